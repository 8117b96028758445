"""Collectives of the learner's programs against what they must be, worked out by hand."""

import json

import pytest

from jaxagent.compiled import analytic
from jaxagent.compiled.programs import Run
from jaxagent.learner import LearnerConfig
from jaxagent.models import ModelConfig
from tests.compiled import simulated
from tests.compiled.six_meshes import SMALL

MESHES = ('8x1x1', '1x8x1', '2x4x1', '1x4x2', '2x2x2', '1x2x4')
GRADS = ('policy_grads', 'value_grads')
# By hand: kernels of 2 layers, tables, biases, scales of the norms.
KERNELS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192)
TABLE, BIASES, SCALES = 512 * 64, 2 * (64 + 2 * 32), 2 * 2 * 64 + 64


def _compiled(
  *meshes, rows=2, row_tokens=64, only=('policy_grads',), **options
):
  given = json.dumps({'only': list(only), **options})
  return simulated.run(
    'tests.compiled.six_meshes', str(rows), str(row_tokens), given, *meshes
  )


def _volume(mesh: str, program: str, **changes):
  model = ModelConfig(**(SMALL | changes))
  sizes = dict(zip(('data', 'fsdp', 'tensor'), map(int, mesh.split('x'))))
  rows = 2 * sizes['data'] * sizes['fsdp']
  run = Run(model, LearnerConfig(entropy_metric=False), rows, 64)
  return analytic.Volumes(run, sizes, 'cpu').of(program)


def test_volume_by_hand():
  assert analytic.counts(ModelConfig(**SMALL), critic=False) == (
    KERNELS, 2 * TABLE, BIASES, SCALES,
  )  # fmt: skip
  # Pure data: all gradients once.
  whole = KERNELS + 2 * TABLE + BIASES + SCALES
  assert _volume('8x1x1', 'policy_grads') == {'all-reduce': 4 * whole}
  # FSDP: kernels twice (remat), tables once, a device's part of the gradients.
  assert _volume('1x8x1', 'policy_grads') == {
    'all-gather': 4 * (2 * KERNELS + 2 * TABLE),
    'reduce-scatter': 4 * (KERNELS + 2 * TABLE) // 8,
    'all-reduce': 4 * (BIASES + SCALES),
  }
  tied = _volume('1x8x1', 'logprobs', tie_word_embeddings=True)
  assert tied == {'all-gather': 4 * (KERNELS + TABLE) + 4 * 16 * 64}
  # Of 128 tokens a device: 2 sums a layer and direction, one again, 2 of the tables.
  found = _volume('1x2x4', 'policy_grads')
  sums = (2 * 2 + 1) + (2 * 2 + 2 + 1)
  assert found['all-reduce'] == (
    4 * (sums * 128 * 64 + 3 * 128) + 4 * (BIASES // 4 + SCALES)
  )
  assert _volume('1x8x1', 'policy_step') == {}
  assert _volume('1x8x1', 'decode') is None


def _ratio(record) -> float:
  return sum(record['collectives_gb'].values()) / record['analytic_gb']


def test_gradients_move_what_they_must_on_three_axes():
  record = _compiled('2x2x2')['2x2x2']['programs']['policy_grads']
  assert _ratio(record) == pytest.approx(1, abs=0.15)
  for kind, size in record['analytic_by_kind_gb'].items():
    assert record['collectives_gb'][kind] == pytest.approx(size, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize('mesh', MESHES)
def test_gradients_move_what_they_must(mesh):
  found = _compiled(*MESHES, only=GRADS)[mesh]['programs']
  for name in GRADS:
    assert _ratio(found[name]) <= 1.15, found[name]


@pytest.mark.slow
@pytest.mark.parametrize('mesh', ['1x8x1', '2x4x1', '8x1x1', '2x2x2'])
def test_more_tokens_move_activations_alone(mesh):
  few, many = (
    _compiled(*MESHES, only=GRADS, rows=rows)[mesh]['programs']
    for rows in (2, 8)
  )
  for name in GRADS:
    before, after = (
      sum(f[name]['collectives_gb'].values()) for f in (few, many)
    )
    grown = many[name]['analytic_gb'] - few[name]['analytic_gb']
    assert after <= before * 1.001 + grown * 1.15
    if mesh.endswith('x1'):
      assert grown == 0


def test_a_device_multiplies_its_own_share():
  # Of the layers' products one of four is made again, and of the head's logits.
  record = _compiled('2x2x2')['2x2x2']['programs']['policy_grads']
  assert record['products_over_model'] == pytest.approx(4 / 3, rel=0.05)
