"""The learner's programs on meshes of simulated devices; prints figures as JSON.

For each mesh and model: the greatest difference of what each program gives from one
device's, over the greatest value of its array; what collectives the gradients hold, and
the shapes of activations that a device's program has.
"""

from __future__ import annotations

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxagent import models
from jaxagent.compiled import hlo
from jaxagent.devices import sharding
from jaxagent.learner import LearnerConfig, programs, weights

BASE = models.ModelConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=96,
  num_hidden_layers=1,
  num_attention_heads=8,
  num_key_value_heads=2,
  head_dim=8,
)
VARIANTS = {
  'unrolled': {},
  'scanned': dict(
    num_hidden_layers=2,
    scan_layers=True,
    remat='full',
    tie_word_embeddings=False,
  ),
  'adapters': dict(
    num_hidden_layers=2,
    scan_layers=True,
    remat='attention',
    lora_rank=4,
    lora_alpha=4.0,
    attention='xla',
  ),
}


class Case:
  """Programs, weights and one micro-batch of a model on a mesh."""

  def __init__(self, variant: str, shape: str, tokens: int = 16, rows: int = 8):
    model = BASE.replace(**VARIANTS[variant])
    mesh = sharding.make_mesh([int(n) for n in shape.split('x')])
    sharding.check_model(model, mesh)
    policy = weights.flatten(*_shaken(*models.init_decoder(model, 0)))
    critic = models.ValueModel(model, rngs=nnx.Rngs(params=1))
    value = weights.flatten(*_shaken(*models.split_model(critic)))
    names = ('policy', 'frozen', 'value', 'value_frozen')
    self.flat = dict(zip(names, (*policy[1:], *value[1:])))
    self.place = {
      k: sharding.parameter_shardings(v, mesh) for k, v in self.flat.items()
    }
    config = LearnerConfig(
      policy_lr=1e-6,
      value_lr=1e-5,
      kl_coef=0.001,
      chunk_rows=20,
      entropy_coef=0.01,
    )
    self.programs = programs.Programs(
      config, mesh, policy[0], value[0], self.place
    )
    self.micro = _micro(rows, tokens)
    if variant != 'unrolled':  # there samples share their prompts
      place = np.arange(tokens) % (tokens // 2)
      third = np.minimum(
        3 * place // (tokens // 2), 2
      )  # a prompt, two branches
      self.micro['branches'] = np.tile(third.astype(np.int32), (rows, 1))

  def calls(self) -> dict[str, tuple]:
    """Program -> its arguments."""
    flat = jax.tree.map(jnp.copy, self.flat)
    put = {k: jax.device_put(v, self.place[k]) for k, v in flat.items()}
    zeros = lambda role: jax.tree.map(jnp.zeros_like, put[role])  # noqa: E731
    policy = put['policy'], put['frozen'], self.micro
    value = put['value'], put['value_frozen'], self.micro
    return {
      'logprobs': policy,
      'policy_grads': (zeros('policy'), *policy, np.float32(0.1)),
      'sft_grads': (zeros('policy'), *policy),
      'value_grads': (zeros('value'), *value),
    }

  def results(self, names: tuple[str, ...]) -> dict[str, list[np.ndarray]]:
    """Program -> all arrays that it gives but metrics."""
    found, calls = {}, self.calls()
    for name in names:
      args = calls[name]
      out = getattr(self.programs, name)(*args)
      out = out if name == 'logprobs' else out[0]
      found[name] = [np.asarray(a) for a in jax.tree.leaves(out)]
    return found

  def text(self, name: str) -> str:
    """The compiled program of one device."""
    return (
      getattr(self.programs, name)
      .lower(*self.calls()[name])
      .compile()
      .as_text()
    )


def _shaken(graphdef, params):
  """Random values in every leaf: zero biases and factors prove nothing."""
  rng = np.random.default_rng(0)
  noise = lambda a: a + rng.normal(size=a.shape, scale=0.1).astype(a.dtype)  # noqa: E731
  return graphdef, jax.tree.map(noise, params)


def _micro(rows: int, tokens: int) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(3)
  draw = lambda: rng.normal(size=(rows, tokens)).astype(np.float32)  # noqa: E731
  half = tokens // 2
  segments = np.where(np.arange(tokens) < half, 1, 2) * np.ones((rows, 1), int)
  segments[:, -2:] = 0
  return {
    'tokens': rng.integers(1, 64, (rows, tokens)).astype(np.int32),
    'positions': (np.arange(tokens) % half * np.ones((rows, 1))).astype(
      np.int32
    ),
    'segment_ids': segments.astype(np.int32),
    'scale': (rng.random((rows, tokens)) * (segments > 0) / 64).astype(
      np.float32
    ),
    'old_logp': draw() - 4,
    'ref_logp': draw() - 4,
    'advantages': draw(),
    'old_values': draw(),
    'returns': draw(),
  }


def compared(variant: str, shapes: list[str], names: tuple[str, ...]) -> dict:
  """Mesh -> program -> greatest difference from one device's."""
  want = Case(variant, '1x1x1').results(names)

  def worst(name, got):
    return max(
      float(np.abs(a - b).max() / np.abs(a).max())
      for a, b in zip(want[name], got)
    )

  return {
    shape: {
      k: worst(k, v) for k, v in Case(variant, shape).results(names).items()
    }
    for shape in shapes
  }


def compiled(shape: str, tokens: int) -> dict:
  """Collective bytes by kind, and first dimensions of arrays as wide as a layer."""
  text = Case('scanned', shape, tokens).text('policy_grads')
  wide = re.findall(r'f32\[(\d+),96\]', text)
  return {
    'bytes': dict(hlo.collectives(text, least_bytes=64).bytes),
    'rows': sorted({int(n) for n in wide}),
  }


def main() -> None:
  what = sys.argv[1]
  if what == 'compiled':
    found = {n: compiled('1x8x1', n) for n in (40, 160)}
  elif what == 'unrolled':
    six = ['8x1x1', '1x8x1', '2x4x1', '1x4x2', '2x2x2', '1x2x4']
    names = ('logprobs', 'policy_grads', 'sft_grads', 'value_grads')
    found = compared(what, six, names)
  else:
    found = compared(what, ['2x2x2', '1x2x4'], ('policy_grads',))
  print(json.dumps(found))


if __name__ == '__main__':
  main()
