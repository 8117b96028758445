"""Meshes: rules, errors, and the same result on every shape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from jaxagent import models
from jaxagent.devices import sharding
from tests.runs import QUICK


def test_every_weight_of_a_layer_has_a_rule(model_config):
  _, params = models.abstract_decoder(model_config)
  mesh = AbstractMesh((1, 2, 2), sharding.AXES)
  for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
    name = sharding.path_of(path)
    spec = sharding.parameter_spec(name, leaf.shape, mesh)
    assert ('norm' in name) == (spec == PartitionSpec()), name


def test_rules_place_rows_and_columns():
  mesh = AbstractMesh((1, 2, 2), sharding.AXES)
  spec = lambda path, shape: sharding.parameter_spec(path, shape, mesh)  # noqa: E731
  assert spec('layers/0/q/kernel', (32, 32)) == PartitionSpec('fsdp', 'tensor')
  assert spec('layers/0/down/kernel', (64, 32)) == PartitionSpec(
    'tensor', 'fsdp'
  )
  # A scanned stack leads with its layers.
  assert spec('layers/up/kernel', (3, 32, 64)) == PartitionSpec(
    None, 'fsdp', 'tensor'
  )
  # An optimizer's moments end in the path of their parameter.
  assert spec('0/mu/embed', (64, 32)) == PartitionSpec('tensor', 'fsdp')


def test_errors_name_the_remedy(model_config):
  with pytest.raises(ValueError, match='needs 64 devices, but there are'):
    sharding.make_mesh({'data': 64})
  with pytest.raises(ValueError, match="axes \\['pipe'\\] are not known"):
    sharding.make_mesh({'pipe': 2})
  with pytest.raises(
    ValueError, match='num_attention_heads=4.*tensor=8.*1, 2, 4'
  ):
    sharding.check_model(model_config, {'tensor': 8})


def test_key_heads_divide_tensor_or_are_divided_by_it(model_config):
  sharding.check_model(model_config, {'tensor': 4})
  odd = model_config.replace(
    num_attention_heads=12,
    num_key_value_heads=6,
    intermediate_size=48,
    vocab_size=48,
  )
  with pytest.raises(
    ValueError, match='num_key_value_heads=6 .* choose tensor from'
  ):
    sharding.check_model(odd, {'tensor': 4})


class Gpu:
  """A device that is not there."""

  platform, device_kind, process_index = 'gpu', 'NVIDIA of a test', 0

  def __init__(self, id: int, slice_index: int = 0):
    self.id, self.slice_index = id, slice_index


@pytest.mark.parametrize('shape', [(2, 4, 1), (1, 8, 1), (1, 4, 2)])
def test_slices_are_split_by_the_outermost_axis_that_they_divide(shape):
  mixed = [Gpu(i, slice_index=i % 2) for i in range(8)]
  slices = [d.slice_index for d in sharding._arranged(shape, mixed, True).flat]
  assert slices == [0] * 4 + [1] * 4


def test_devices_of_a_node_are_neighbours_whatever_their_order():
  devices = [Gpu(i) for i in (3, 0, 2, 1)]
  found = sharding._arranged((1, 2, 2), devices, True)
  assert [d.id for d in found.flat] == [0, 1, 2, 3]


def test_devices_without_an_arrangement_are_taken_in_order(caplog):
  uneven = [Gpu(i, slice_index=i >= 3) for i in range(4)]
  found = sharding._arranged((2, 2, 1), uneven, True)
  assert [d.id for d in found.flat] == [0, 1, 2, 3]
  assert 'devices are taken in their own order' in caplog.text


def test_settings_from_the_environment():
  read = sharding.distributed_settings
  assert read({}) is None
  assert read({'SLURM_NTASKS': '4', 'SLURM_PROCID': '1'}) == {}
  assert read({'SLURM_NTASKS': '1', 'SLURM_PROCID': '0'}) is None
  assert read({'TPU_WORKER_HOSTNAMES': 'a,b'}) == {}
  jobset = {
    'JAXAGENT_COORDINATOR': 'host-0:1234',
    'JAXAGENT_NUM_PROCESSES': '4',
    'JOB_COMPLETION_INDEX': '3',
  }
  assert read(jobset) == {
    'coordinator_address': 'host-0:1234',
    'num_processes': 4,
    'process_id': 3,
    'cluster_detection_method': 'deactivate',
  }
  with pytest.raises(ValueError, match='process index 7'):
    read({**jobset, 'JOB_COMPLETION_INDEX': '7'})
  with pytest.raises(ValueError, match='set both'):
    read({'JAXAGENT_COORDINATOR': 'host-0:1234'})


def test_steps_of_one_slurm_job_meet_at_ports_of_their_own():
  """jax takes the port by the job alone; the first step keeps that."""
  ports = [
    sharding._step_port({'SLURM_JOB_ID': '70123', name: str(step)})
    for name in ('SLURM_STEP_ID', 'SLURM_STEPID')
    for step in range(50)
  ]
  assert ports[0] == str(70123 % 2**12 + (65535 - 2**12 + 1))
  assert len({*ports[:50]}) == 50 and ports[:50] == ports[50:]
  assert all(61440 <= int(port) <= 65535 for port in ports)


def test_one_task_of_slurm_a_node_has_all_its_gpus():
  task = {'SLURM_PROCID': '1', 'SLURM_GPUS_ON_NODE': '8', 'SLURM_NNODES': '2'}
  read = lambda **more: sharding.distributed_settings(task | more)  # noqa: E731
  everything = {'local_device_ids': list(range(8))}
  assert read(SLURM_NTASKS='2') == everything
  assert read(SLURM_NTASKS='2', JAXAGENT_CLUSTER='auto') == everything
  # A task a GPU, and a choice of somebody's own: jax reads both by itself.
  assert read(SLURM_NTASKS='16') == {}
  assert read(SLURM_NTASKS='2', JAX_LOCAL_DEVICE_IDS='0,1') == {}
  # A step on some of the job's nodes.
  assert read(SLURM_NTASKS='2', SLURM_STEP_NUM_NODES='1') == {}


SLURM = {'SLURM_NTASKS': '8', 'SLURM_PROCID': '0', 'SLURM_NNODES': '2'}
STEP = {'SLURM_STEP_NUM_TASKS': '8', 'SLURM_STEP_NODELIST': 'n[1-2]'}
SHELL = {'SLURM_STEP_NUM_TASKS': '1', 'SLURM_STEP_NODELIST': 'localhost'}


@pytest.mark.parametrize(
  'more, alone',
  [
    ({}, True),  # a batch script without srun
    ({'SLURM_STEP_ID': str(0xFFFFFFFB)}, True),
    (SHELL | {'SLURM_STEP_ID': str(0xFFFFFFFA)}, True),  # salloc's shell
    (SHELL | {'SLURM_STEPID': str(0xFFFFFFFA)}, True),
    (STEP | {'SLURM_STEP_ID': '0'}, False),
    (STEP | {'SLURM_STEP_ID': '17'}, False),
    (STEP, False),
    (SHELL | {'SLURM_STEP_ID': '0'}, True),  # srun --ntasks=1 of an allocation
  ],
)
def test_an_allocation_of_slurm_is_no_step(more, alone, caplog):
  found = sharding.distributed_settings(SLURM | more)
  assert found == (None if alone else {})
  assert (
    sharding.distributed_settings(SLURM | more | {'JAXAGENT_CLUSTER': 'none'})
    is None
  )
  # Processes that were asked for and will not come are named.
  started = more.get('SLURM_STEP_ID', more.get('SLURM_STEPID', '')) in (
    '0',
    '17',
  )
  if alone and not started:
    assert 'SLURM_NTASKS=8 are allocated, but' in caplog.text
    with pytest.raises(
      ValueError, match='not started by srun, so no other will come'
    ):
      sharding.distributed_settings(SLURM | more | {'JAXAGENT_CLUSTER': 'auto'})


def test_nodes_without_tasks_are_an_allocation_too(caplog):
  """`sbatch --nodes=2` sets no SLURM_NTASKS."""
  batch = {'SLURM_NNODES': '2', 'SLURM_PROCID': '0'}
  assert sharding.distributed_settings(batch) is None
  assert 'SLURM_NNODES=2 are allocated, but' in caplog.text
  caplog.clear()
  assert sharding.distributed_settings(batch | {'SLURM_NNODES': '1'}) is None
  assert not caplog.text


def test_a_terminal_of_srun_is_asked_about():
  terminal = SLURM | STEP | {'SLURM_STEP_ID': '0', 'SLURM_PTY_PORT': '40001'}
  with pytest.raises(
    ValueError, match='JAXAGENT_CLUSTER=none for one process, or auto'
  ):
    sharding.distributed_settings(terminal)
  assert (
    sharding.distributed_settings(terminal | {'JAXAGENT_CLUSTER': 'auto'}) == {}
  )
  assert (
    sharding.distributed_settings(terminal | {'JAXAGENT_CLUSTER': 'none'})
    is None
  )


def _started_with(monkeypatch, settings):
  """(Devices, address) that jax goes on with where SLURM is to be seen."""
  from jax._src import distributed

  slurm = dict(
    JOB_ID='7', STEP_NODELIST='n[1-2]', NTASKS='2', PROCID='1', LOCALID='0'
  )
  for name, value in slurm.items():
    monkeypatch.setenv(f'SLURM_{name}', value)
  monkeypatch.delenv('JAX_LOCAL_DEVICE_IDS', raising=False)
  found = {}

  def client(address, *args, **kwargs):
    raise ConnectionAbortedError(address)

  monkeypatch.setattr(distributed.config, 'update', found.__setitem__)
  monkeypatch.setattr(
    distributed._jax, 'get_distributed_runtime_client', client
  )
  with pytest.raises(ConnectionAbortedError) as stopped:
    distributed.State().initialize(**settings)
  return found.get('jax_cuda_visible_devices'), str(stopped.value)


def test_jax_leaves_a_process_its_devices(monkeypatch):
  read = sharding.distributed_settings
  own = read(
    {
      'JAXAGENT_COORDINATOR': 'host-0:1234',
      'JAXAGENT_NUM_PROCESSES': '2',
      'JAXAGENT_PROCESS_ID': '1',
    }
  )
  assert _started_with(monkeypatch, own) == (None, 'host-0:1234')
  slurm = {'SLURM_NTASKS': '2', 'SLURM_PROCID': '1', 'SLURM_NNODES': '2'}
  devices, address = _started_with(
    monkeypatch, read(slurm | {'SLURM_GPUS_ON_NODE': '4'})
  )
  assert devices == '0,1,2,3' and address.startswith('n1:')


def test_a_cluster_that_only_jax_can_see():
  read = sharding.distributed_settings
  assert read({'JAXAGENT_CLUSTER': 'auto'}) == {}
  assert read({'JAXAGENT_CLUSTER': ''}) is None
  with pytest.raises(
    ValueError, match="'gce' is not known; choose 'auto'.*'none'"
  ):
    read({'JAXAGENT_CLUSTER': 'gce'})


@pytest.mark.slow
def test_every_mesh_gives_one_devices_result(tmp_path):
  shapes = ['1x1x1', '8x1x1', '2x2x2', '1x4x2', '1x8x1']
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count=8 {QUICK}',
  }
  out = subprocess.run(
    [sys.executable, '-m', 'tests.learner.mesh_worker', str(tmp_path), *shapes],
    capture_output=True,
    text=True,
    env=env,
  )
  assert out.returncode == 0, out.stderr[-2000:]
  found = json.loads(out.stdout.splitlines()[-1])
  want = found['1x1x1']
  for shape in shapes[1:]:
    for key in ('actor/grad_norm', 'critic/grad_norm', 'critic/vf_loss'):
      assert found[shape][key] == pytest.approx(want[key], rel=1e-5), shape
    key = 'actor/pg_loss'
    assert found[shape][key] == pytest.approx(want[key], abs=1e-5), shape
  assert found['1x8x1']['shard'] == [4, 64]
  assert found['2x2x2']['shard'] == [16, 32]
  assert found['restored'] and found['mesh']['tensor'] == 2


def _torus(*shape: int) -> types.SimpleNamespace:
  """A mesh of fsdp alone over TPU chips that are not there, in order."""
  chips = np.empty(int(np.prod(shape)), object)
  chips[:] = [
    types.SimpleNamespace(platform='tpu', coords=at) for at in np.ndindex(shape)
  ]
  return types.SimpleNamespace(devices=chips.reshape(1, -1, 1))


@pytest.mark.parametrize(
  'shape, sizes',
  [((2, 2, 2), (4, 2)), ((4, 4, 4), (16, 4)), ((2, 4, 4), (8, 4))],
)
def test_a_torus_of_three_dimensions_scatters_a_plane_and_then_lines(
  shape, sizes
):
  stages = sharding.scatter_stages(_torus(*shape))
  assert tuple(len(groups[0]) for groups in stages) == sizes


@pytest.mark.parametrize('shape', [(2, 4, 1), (8, 1, 1), (1, 1, 1)])
def test_a_torus_of_two_dimensions_scatters_at_once(shape):
  assert sharding.scatter_stages(_torus(*shape)) == (None,)


def test_stages_leave_each_device_the_part_that_one_scatter_does():
  size = 16
  stages = sharding.scatter_stages(_torus(4, 2, 2))
  held = np.random.default_rng(0).integers(0, 9, (size, size))  # [device, part]
  wanted = held.sum(0)
  parts = {device: held[device] for device in range(size)}
  for groups in stages:
    after = {}
    for group in groups:
      cut = np.split(sum(parts[device] for device in group), len(group))
      after |= dict(zip(group, cut))
    parts = after
  assert [parts[device].tolist() for device in range(size)] == [
    [w] for w in wanted
  ]
