"""The native engine's programs and the hand-over of weights, over abstract weights."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxagent import models
from jaxagent.compiled.programs import Abstract, Learner, Program, placed
from jaxagent.devices import sharding
from jaxagent.learner import weights
from jaxagent.rollout.engines import (
  native_engine,
  native_programs,
  prompt_rows,
)

CACHE = 'engine_cache'


class Sampler:
  """The programs that `native_engine.NativeEngine` would run on a learner's mesh.

  On the devices of the first process alone where there are several, as
  `training.multi_process` has it. Slots, tokens and cache are uncommitted there: where they
  lie is what XLA makes of the weights' shardings.
  """

  def __init__(self, learner: Learner):
    if learner.run.engine is None:
      raise ValueError('the run has no native engine, so no programs of one.')
    self.run, self.engine = learner.run, learner.run.engine
    devices = list(learner.mesh.devices.flat)
    own = [d for d in devices if d.process_index == devices[0].process_index]
    self.platform = devices[0].platform
    model = self.run.model.replace(lora_rank=0)
    layout = learner.policy_layout
    if self.run.model.lora_rank:
      layout = weights.flatten(*models.abstract_decoder(model))[0]
    # Merged kernels have the shapes of those of the base.
    self.params = layout.state(learner.roles['policy'], learner.frozen)
    self.moves = len(own) < len(devices)
    self.whole = self.params
    if self.moves:
      mesh = sharding.make_mesh({'fsdp': len(own)}, own)
      self.params = placed(
        self.params, sharding.parameter_shardings(self.params, mesh)
      )
    self.mesh = learner.mesh
    self.structure = native_programs.Structure(
      layout.graphdef, self.params, model
    )

  def cache(self) -> Abstract:
    """The cache of all slots, as it is made: whole on one device."""
    e, model = self.engine, self.run.model
    longest = e.prompt_tokens + e.new_tokens
    steps = native_engine.round_steps(self.platform)
    columns = native_engine.cache_columns(longest, steps)
    return jax.eval_shape(
      lambda: native_programs.empty_cache(model, e.slots, columns)
    )

  def each(self) -> Iterator[Program]:
    """Prefill of all slots at once, a round of decoding, and the hand-over."""
    holds = frozenset({'policy', 'frozen', CACHE})
    if self.run.model.lora_rank:
      holds = frozenset(
        {'engine_weights', 'frozen_rest', 'output_table', CACHE}
      )
    if self.moves:
      holds = frozenset({'engine_weights', CACHE})
    e = self.engine
    width = -(-e.prompt_tokens // prompt_rows.BLOCK) * prompt_rows.BLOCK
    tokens = e.slots * width
    yield Program('prefill', lambda: self._prefill(width), holds, tokens)
    yield Program('decode', self._decode, holds)
    if self.moves:
      yield from self._hand_over()

  def _prefill(self, width: int) -> list[tuple[Any, int]]:
    rows = _ints(self.engine.slots, width)
    lowered = native_programs.prefill.lower(
      self.structure,
      native_programs.leaves(self.params),
      self.cache(),
      rows,
      rows,
      rows,
      _ints(self.engine.slots, width // prompt_rows.BLOCK),
    )
    return [(lowered, 1)]

  def _decode(self) -> list[tuple[Any, int]]:
    e, one = self.engine, jax.ShapeDtypeStruct((), jnp.int32)
    rows = _ints(e.slots)
    settings = jax.eval_shape(lambda: native_engine.settings_arrays(e.slots))
    program = native_programs.decode_program(self.platform in ('gpu', 'cuda'))
    lowered = program.lower(
      self.structure,
      native_programs.Round(
        e.prompt_tokens + e.new_tokens,
        native_engine.round_steps(self.platform),
        e.cut,
        e.greedy,
      ),
      native_programs.leaves(self.params),
      self.cache(),
      native_programs.Rows(rows, rows, rows, settings | {'limit': rows}),
      one,
      one,
    )
    return [(lowered, 1)]

  def _hand_over(self) -> Iterator[Program]:
    """Each array in turn is gathered whole on every device (`sharding.fetch`)."""
    one = sharding.replicated(self.mesh)
    gather = jax.jit(lambda x: x, out_shardings=one)
    kinds = collections.Counter(
      (leaf.shape, leaf.dtype, leaf.sharding)
      for leaf in jax.tree.leaves(self.whole)
    )

    def lower() -> list[tuple[Any, int]]:
      return [
        (gather.lower(jax.ShapeDtypeStruct(shape, dtype, sharding=place)), n)
        for (shape, dtype, place), n in kinds.items()
      ]

    yield Program('hand_over', lower, frozenset({'policy', 'frozen'}))


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.int32)
