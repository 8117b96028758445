"""How the learner's programs lie on a mesh: names, sums, and one device's results."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from jaxagent import placement, sharding

ROWS = ('data', 'fsdp')
PROGRAMS = ('logprobs', 'policy_grads', 'sft_grads', 'value_grads')


@pytest.fixture(scope='module')
def found():
  """What `placement_worker` prints, on eight simulated devices."""
  flags = (
    '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0'
  )
  out = subprocess.run(
    [sys.executable, '-m', 'tests.learner.placement_worker'],
    capture_output=True,
    text=True,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flags},
  )
  assert out.returncode == 0, out.stderr[-2000:]
  return json.loads(out.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('variant', ['unrolled', 'scanned', 'adapters'])
def test_every_mesh_gives_one_devices_arrays(found, variant, program):
  worst = {mesh: of[program] for mesh, of in found[variant].items()}
  assert len(worst) == (6 if variant == 'unrolled' else 2)
  assert max(worst.values()) < 1e-5, worst


@pytest.mark.slow
def test_feed_forward_is_of_a_devices_own_rows(found):
  # 8 rows of 40 tokens on 8 devices; 32 and 4 are of the kernels themselves.
  assert found['compiled']['40']['rows'] == [4, 32, 40]


@pytest.mark.slow
def test_fsdp_sums_no_activation_and_moves_the_same_at_any_number_of_tokens(found):
  few, many = (found['compiled'][n]['bytes'] for n in ('40', '160'))
  assert few == many
  # Norms and biases alone are summed whole; weights are gathered and scattered.
  assert few['all-reduce'] < 0.1 * few['all-gather']


def test_activations_are_split_by_rows_and_tensor_alone():
  place = placement.Placement(AbstractMesh((1, 4, 2), sharding.AXES))
  assert place.active(('rows', 'embed'), (8, 32)) == PartitionSpec(ROWS, None)
  assert place.active(('rows', 'mlp'), (8, 32)) == PartitionSpec(ROWS, 'tensor')
  assert place.active(('embed', 'mlp'), (32, 64)) == PartitionSpec(None, 'tensor')
  assert place.stored(('embed', 'mlp'), (32, 64)) == PartitionSpec('fsdp', 'tensor')


def test_rows_that_do_not_divide_are_named():
  place = placement.Placement(AbstractMesh((2, 4, 1), sharding.AXES))
  with pytest.raises(ValueError, match='12 rows do not divide by data x fsdp = 8'):
    place.active(('rows',), (12,))


def test_outside_of_a_placement_nothing_is_placed():
  assert placement.here() is None
  x = object()
  assert placement.constrain(x, 'rows') is x
