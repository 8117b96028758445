"""How the learner's programs lie on a mesh: names, sums, and one device's results."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from jaxagent.devices import placement, sharding
from tests.runs import QUICK

ROWS = ('data', 'fsdp')
WORKER = 'tests.learner.placement_worker'
FLAGS = f'--xla_force_host_platform_device_count=8 {QUICK}'
slow = lambda test: pytest.mark.slow(pytest.mark.timeout(900)(test))  # noqa: E731


@functools.cache
def _found(what: str) -> dict:
  """What the worker prints, on eight simulated devices."""
  out = subprocess.run(
    [sys.executable, '-m', WORKER, what],
    capture_output=True,
    text=True,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': FLAGS},
  )
  assert out.returncode == 0, out.stderr[-2000:]
  return json.loads(out.stdout.splitlines()[-1])


@slow
@pytest.mark.parametrize(
  'program', ['logprobs', 'policy_grads', 'sft_grads', 'value_grads']
)
def test_six_meshes_give_one_devices_arrays(program):
  worst = {mesh: of[program] for mesh, of in _found('unrolled').items()}
  assert len(worst) == 6 and max(worst.values()) < 1e-5, worst


@slow
@pytest.mark.parametrize('variant', ['scanned', 'adapters'])
def test_scanned_layers_adapters_and_untied_tables_give_one_devices_arrays(
  variant,
):
  worst = {mesh: of['policy_grads'] for mesh, of in _found(variant).items()}
  assert len(worst) == 2 and max(worst.values()) < 1e-5, worst


@slow
def test_feed_forward_is_of_a_devices_own_rows():
  # 8 rows of 40 tokens on 8 devices; 32 and 4 are of the kernels themselves.
  assert _found('compiled')['40']['rows'] == [4, 32, 40]


@slow
def test_fsdp_sums_no_activation_and_moves_the_same_at_any_number_of_tokens():
  few, many = (_found('compiled')[n]['bytes'] for n in ('40', '160'))
  assert few == many
  # Norms and biases alone are summed whole; weights are gathered and scattered.
  assert few['all-reduce'] < 0.1 * few['all-gather']


def test_activations_are_split_by_rows_and_tensor_alone():
  place = placement.Placement(AbstractMesh((1, 4, 2), sharding.AXES))
  assert place.active(('rows', 'embed'), (8, 32)) == PartitionSpec(ROWS, None)
  assert place.active(('rows', 'mlp'), (8, 32)) == PartitionSpec(ROWS, 'tensor')
  assert place.active(('embed', 'mlp'), (32, 64)) == PartitionSpec(
    None, 'tensor'
  )
  assert place.stored(('embed', 'mlp'), (32, 64)) == PartitionSpec(
    'fsdp', 'tensor'
  )


def test_rows_that_do_not_divide_are_named():
  place = placement.Placement(AbstractMesh((2, 4, 1), sharding.AXES))
  with pytest.raises(
    ValueError, match='12 rows do not divide by data x fsdp = 8'
  ):
    place.active(('rows',), (12,))


def test_outside_of_a_placement_nothing_is_placed():
  assert placement.here() is None
  x = object()
  assert placement.constrain(x, 'rows') is x
