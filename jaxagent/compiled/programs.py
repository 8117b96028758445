"""A run's programs over abstract weights: what the learner and the engine would jit.

Nothing is allocated: weights, moments and batches are shapes with the shardings that
the learner gives them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxagent import models
from jaxagent.devices import sharding
from jaxagent.learner import LearnerConfig
from jaxagent.learner import programs as learner_programs
from jaxagent.learner import roles as learner_roles
from jaxagent.learner import weights as weights_lib
from jaxagent.models import ModelConfig

Abstract = Any  # a tree of jax.ShapeDtypeStruct


@dataclasses.dataclass(frozen=True)
class Engine:
  """The native engine's largest programs.

  slots: texts at once; prompt_tokens, new_tokens: of the longest; cut, greedy: as
  `native_programs.decode` has them.
  """

  slots: int
  prompt_tokens: int
  new_tokens: int
  cut: bool = False
  greedy: bool = False


@dataclasses.dataclass(frozen=True)
class Run:
  """A run to compile: models, options of the learner, shape of a micro-batch.

  rows: of the whole mesh. engine: None where sampling is elsewhere. keeps_merged:
  whether the merged kernels that were handed over last stay on the mesh, as they do in
  vLLM's client.
  """

  model: ModelConfig
  options: LearnerConfig
  rows: int
  row_tokens: int
  critic: ModelConfig | None = None
  engine: Engine | None = None
  keeps_merged: bool = False


@dataclasses.dataclass(frozen=True)
class Program:
  """One program, or several that run one after another for the same end.

  lower: gives what is to be compiled, each with how often it runs. holds: roles of
  `Learner.roles` that are among its arguments; what else is alive then lies beside
  it. tokens: of a call, on the whole mesh.
  """

  name: str
  lower: Callable[[], list[tuple[Any, int]]]
  holds: frozenset[str]
  tokens: int = 0


def micro_rows(
  device_tokens: int, row_tokens: int, sizes: Mapping[str, int]
) -> int:
  """Rows of a micro-batch: of each device as many as it may hold, at least one."""
  return max(device_tokens // row_tokens, 1) * sizes['data'] * sizes['fsdp']


def device_bytes(tree: Abstract) -> int:
  """Bytes of a tree on one device, by its shardings."""
  total = 0
  for leaf in jax.tree.leaves(tree):
    shape = (
      leaf.shape
      if leaf.sharding is None
      else leaf.sharding.shard_shape(leaf.shape)
    )
    total += math.prod(shape) * np.dtype(leaf.dtype).itemsize
  return total


def placed(tree: Abstract, places: Any) -> Abstract:
  """The same shapes with shardings: one for all leaves, or a tree of them."""
  if isinstance(places, jax.sharding.Sharding):
    places = jax.tree.map(lambda _: places, tree)
  return jax.tree.map(
    lambda leaf, place: jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=place
    ),
    tree,
    places,
  )


class Learner:
  """The learner's roles as shapes, and its programs over them."""

  def __init__(self, run: Run, mesh: Mesh):
    self.run, self.mesh = run, mesh
    sharding.check_model(run.model, mesh)
    self.place: dict[str, Any] = {}
    self.roles: dict[str, Abstract] = {}
    self.policy_layout = self._model(
      'policy', models.abstract_decoder(run.model)
    )
    self.frozen = self.roles['frozen']
    self.optimizer = self._optimizer('policy', run.options.policy_lr)
    if run.options.uses_reference:
      kept = run.options.reference_dtype
      self.roles['reference'] = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
          leaf.shape,
          leaf.dtype if kept == 'float32' else kept,
          sharding=leaf.sharding,
        ),
        self.roles['policy'],
      )
    self.value_layout = None
    if run.options.uses_value:
      critic = run.critic or run.model
      sharding.check_model(critic, mesh)
      self.value_layout = self._model('value', models.abstract_value(critic))
      self.value_frozen = self.roles['value_frozen']
      self.value_optimizer = self._optimizer('value', run.options.value_lr)
    if run.model.lora_rank:
      self._split_base()
    self.programs = learner_programs.Programs(
      run.options, mesh, self.policy_layout, self.value_layout, self.place
    )

  def _split_base(self) -> None:
    """Divides a base by what of it a program has: all, the trunk, or what is merged.

    The value model's is the policy's own, but for the output table.
    """
    self.roles.pop('value_frozen', None)
    kernels = {
      p: leaf
      for p, leaf in self.frozen.items()
      if f'{p.removesuffix("kernel")}lora_a' in self.roles['policy']
    }
    table = {p: leaf for p, leaf in self.frozen.items() if p == 'lm_head'}
    rest = {
      p: leaf
      for p, leaf in self.frozen.items()
      if p not in kernels and p not in table
    }
    self.roles |= {
      'frozen': kernels, 'frozen_rest': rest, 'output_table': table
    }  # fmt: skip

  def _model(self, role: str, made: tuple[Any, Abstract]) -> weights_lib.Layout:
    layout, train, frozen = weights_lib.flatten(*made)
    rest = 'frozen' if role == 'policy' else f'{role}_frozen'
    for name, tree in ((role, train), (rest, frozen)):
      self.place[name] = sharding.parameter_shardings(tree, self.mesh)
      self.roles[name] = placed(tree, self.place[name])
    return layout

  def _optimizer(self, role: str, lr: float) -> learner_programs.Optimizer:
    schedule = learner_programs.rl_schedule(self.run.options, lr)
    made = learner_programs.Optimizer(
      self.run.options, schedule, self.place[role], self.roles[role]
    )
    state = jax.eval_shape(made.tx.init, self.roles[role])
    self.roles[f'{role}_optimizer'] = placed(state, made.sharding)
    return made

  def micro(self, *fields: str) -> Abstract:
    """A micro-batch [rows, row_tokens] with per-token fields."""
    shape = self.run.rows, self.run.row_tokens
    rows = sharding.rows_sharding(self.mesh)
    ids = {k: jnp.int32 for k in ('tokens', 'positions', 'segment_ids')}
    kinds = ids | {k: jnp.float32 for k in fields}
    return {
      k: jax.ShapeDtypeStruct(shape, dtype, sharding=rows)
      for k, dtype in kinds.items()
    }

  def policy_fields(self) -> tuple[str, ...]:
    """Fields of a policy micro-batch beside its ids."""
    options = self.run.options
    fields = ['old_logp', 'advantages', 'scale']
    fields += ['ref_logp'] if options.uses_reference else []
    fields += ['importance'] if options.importance_level != 'none' else []
    return tuple(fields)

  def each(self) -> Iterator[Program]:
    """The programs of an update, in its order."""
    roles, tokens = self.roles, self.run.rows * self.run.row_tokens
    policy = roles['policy'], self.frozen
    one = jax.ShapeDtypeStruct((), jnp.float32)
    make = functools.partial(_program, tokens=tokens)
    trunk = ('frozen', 'frozen_rest')
    passes, holds = self.programs, ('policy', *trunk, 'output_table')
    yield make('logprobs', passes.logprobs, (*policy, self.micro()), holds)
    if 'reference' in roles:
      scored = roles['reference'], self.frozen, self.micro()
      yield make(
        'reference_logprobs',
        passes.logprobs,
        scored,
        ('reference', *trunk, 'output_table'),
      )
    if self.value_layout is not None:
      value = roles['value'], self.value_frozen
      value_holds = ('value', *trunk)
      yield make('values', passes.values, (*value, self.micro()), value_holds)
    micro = self.micro(*self.policy_fields())
    arguments = roles['policy'], *policy, micro, one
    yield make('policy_grads', passes.policy_grads, arguments, holds)
    yield self._step('policy', self.optimizer)
    if self.value_layout is not None:
      micro = self.micro('old_values', 'returns', 'scale')
      given = roles['value'], *value, micro
      yield make('value_grads', passes.value_grads, given, value_holds)
      yield self._step('value', self.value_optimizer)
    if self.run.model.lora_rank and self.run.options.merge_adapters:
      kernels, adapters = roles['frozen'], roles['policy']
      merge = learner_roles.merge_program(
        self.run.model,
        {p: leaf.sharding for p, leaf in kernels.items()},
        self.place['policy'],
      )
      yield _program('merge', merge, (kernels, adapters), ('policy', 'frozen'))

  def _step(self, role: str, optimizer: Any) -> Program:
    one = jax.ShapeDtypeStruct((), jnp.float32)
    weights, state = self.roles[role], self.roles[f'{role}_optimizer']
    return _program(
      f'{role}_step',
      optimizer.program,
      (weights, state, weights, one),
      (role, f'{role}_optimizer'),
    )


def _program(
  name: str, function: Any, arguments: Any, holds: Any, tokens: int = 0
) -> Program:
  return Program(
    name, lambda: [(function.lower(*arguments), 1)], frozenset(holds), tokens
  )
