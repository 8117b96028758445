"""Mesh, logical-axis rules by parameter path, multi-host start, transfers.

Three mesh axes: `data` (rows, parameters copied), `fsdp` (rows, parameters
split), `tensor` (heads, feed-forward and vocabulary split). A parameter's
path gives its logical axes (`PARAMETER_AXES`), and `LOGICAL_RULES` says which
mesh axis each of those goes to; what neither names is replicated.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jaxagent.devices import accelerator
from jaxagent.errors import ProcessLost

_log = logging.getLogger(__name__)
_THREADS = 32
# From here on SLURM numbers steps that no srun started: batch scripts, the
# shell of salloc, extern (slurm.h, SLURM_MAX_NORMAL_STEP_ID).
_SLURM_RESERVED_STEPS = 0xFFFFFFF0
AXES = ('data', 'fsdp', 'tensor')
ROWS = ('data', 'fsdp')

LOGICAL_RULES: dict[str, str | tuple[str, ...] | None] = {
  'rows': ROWS,
  'embed': 'fsdp',
  'heads': 'tensor',
  'kv_heads': 'tensor',
  'mlp': 'tensor',
  'vocab': 'tensor',
  'rank': None,
}

# First match wins; the axes name the LAST dimensions, so that a leading
# dimension of scanned layers stays replicated. Norms match nothing.
PARAMETER_AXES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
  (r'(^|/)(embed|lm_head)$', ('vocab', 'embed')),
  (r'(^|/)q/kernel$', ('embed', 'heads')),
  (r'(^|/)(k|v)/kernel$', ('embed', 'kv_heads')),
  (r'(^|/)o/kernel$', ('heads', 'embed')),
  (r'(^|/)(gate|up)/kernel$', ('embed', 'mlp')),
  (r'(^|/)down/kernel$', ('mlp', 'embed')),
  (r'(^|/)q/bias$', ('heads',)),
  (r'(^|/)(k|v)/bias$', ('kv_heads',)),
  (r'(^|/)(q|k|v|gate|up)/lora_a$', ('embed', 'rank')),
  (r'(^|/)o/lora_a$', ('heads', 'rank')),
  (r'(^|/)down/lora_a$', ('mlp', 'rank')),
  (r'(^|/)q/lora_b$', ('rank', 'heads')),
  (r'(^|/)(k|v)/lora_b$', ('rank', 'kv_heads')),
  (r'(^|/)(gate|up)/lora_b$', ('rank', 'mlp')),
  (r'(^|/)(o|down)/lora_b$', ('rank', 'embed')),
)


def make_mesh(
  shape: Mapping[str, int] | Sequence[int] | None = None,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """A mesh with axes data, fsdp, tensor over the first devices.

  Where all devices are taken, neighbours in the mesh are neighbours on a TPU's torus
  or in a GPU's node, and slices are split by the outermost axes.

  Raises ValueError where the shape names another axis, holds a size below
  one, or is larger than the devices there are.
  """
  devices = list(jax.devices() if devices is None else devices)
  if shape is None:
    shape = (1, 1, 1)
  if isinstance(shape, Mapping):
    unknown = sorted(set(shape) - set(AXES))
    if unknown:
      raise ValueError(
        f'mesh axes {unknown} are not known; choose from {AXES}.'
      )
    shape = tuple(int(shape.get(axis, 1)) for axis in AXES)
  shape = tuple(shape)
  if len(shape) != 3 or min(shape) < 1:
    raise ValueError(f'mesh {shape} must be three sizes >= 1 for {AXES}.')
  need = int(np.prod(shape))
  if need > len(devices):
    raise ValueError(
      f'mesh {dict(zip(AXES, shape))} needs {need} devices, but there are '
      f'{len(devices)}; lower an axis or start more processes.'
    )
  return Mesh(_arranged(shape, devices[:need], need == len(devices)), AXES)


def _arranged(
  shape: tuple[int, ...], devices: list[jax.Device], whole: bool
) -> np.ndarray:
  """The devices by mesh axes. Part of a torus and simulated devices: in order."""
  plain = np.asarray(devices).reshape(shape)
  if not whole or len(devices) == 1 or devices[0].platform == 'cpu':
    return plain
  slices = len({getattr(d, 'slice_index', 0) for d in devices})
  outer, left = [], slices
  for size in shape:
    outer.append(math.gcd(size, left))
    left //= outer[-1]
  try:
    if slices > 1 and left == 1:
      inner = [size // by for size, by in zip(shape, outer)]
      return mesh_utils.create_hybrid_device_mesh(
        inner, outer, devices, allow_split_physical_axes=True
      )
    return mesh_utils.create_device_mesh(
      shape, devices, allow_split_physical_axes=True
    )
  except (ValueError, NotImplementedError, AssertionError) as error:
    _log.warning(
      'mesh %s: devices are taken in their own order, which may be slow '
      '(mesh_utils: %s).',
      dict(zip(AXES, shape)),
      error,
    )
    return plain


def scatter_stages(
  mesh: Mesh | AbstractMesh,
) -> tuple[list[list[int]] | None, ...]:
  """Groups along `fsdp` in which a reduce-scatter is done, one stage after another.

  One stage of all (None), but on a TPU torus of three dimensions: there XLA sums the
  whole array to every chip (`findings/libtpu_reduce_scatter_on_a_3d_torus.sh`), while
  a plane and then the lines across it scatter. A device ends with the same part.
  """
  if isinstance(mesh, AbstractMesh):  # traced only: no place of a chip is known
    return (None,)
  line = mesh.devices[0, :, 0]
  if line[0].platform != 'tpu' or len(_directions(line)) < 3:
    return (None,)
  size = len(line)
  for width in range(2, size):  # of the second stage
    if size % width:
      continue
    index = np.arange(size).reshape(-1, width)
    lines, planes = index.tolist(), index.T.tolist()
    if all(len(_directions(line[i])) == 1 for i in lines) and all(
      len(_directions(line[i])) <= 2 for i in planes
    ):
      return planes, lines
  return (None,)


def _directions(devices: np.ndarray) -> list[int]:
  """Dimensions of the torus along which some devices differ."""
  coordinates = np.array([device.coords for device in devices])
  return np.flatnonzero(np.ptp(coordinates, axis=0)).tolist()


def check_model(config: Any, mesh: Mesh | Mapping[str, int]) -> None:
  """Stops where heads, feed-forward or width do not divide by the mesh.

  Key heads may be fewer than `tensor` where they divide it: each is then computed
  by several devices.
  """
  sizes = dict(mesh.shape) if isinstance(mesh, Mesh) else dict(mesh)
  tensor, fsdp = sizes.get('tensor', 1), sizes.get('fsdp', 1)
  for name, axis, by in (
    ('num_attention_heads', 'tensor', tensor),
    ('intermediate_size', 'tensor', tensor),
    ('vocab_size', 'tensor', tensor),
    ('hidden_size', 'fsdp', fsdp),
  ):
    value = getattr(config, name)
    if value % by:
      allowed = [k for k in range(1, by + 1) if value % k == 0]
      raise ValueError(
        f'{name}={value} does not divide by the mesh axis {axis}={by}; '
        f'choose {axis} from {allowed}.'
      )
  keys, heads = config.num_key_value_heads, config.num_attention_heads
  if not keys_divide(keys, tensor):
    allowed = [
      k for k in range(1, heads + 1) if heads % k == 0 and keys_divide(keys, k)
    ]
    raise ValueError(
      f'num_key_value_heads={keys} and the mesh axis tensor={tensor}: neither '
      f'divides the other; choose tensor from {allowed}.'
    )


def keys_divide(key_heads: int, tensor: int) -> bool:
  """Whether each part has whole key heads, or several parts share one."""
  return key_heads % tensor == 0 or tensor % key_heads == 0


def path_of(key_path: Sequence[Any]) -> str:
  """'layers/0/attention/q_proj/kernel' of a jax key path."""
  names = []
  for key in key_path:
    name = getattr(key, 'key', getattr(key, 'name', getattr(key, 'idx', key)))
    names.append(str(name))
  return '/'.join(names).removesuffix('/value')


def parameter_spec(path: str, shape: Sequence[int], mesh: Mesh):
  """PartitionSpec of one parameter; axes that do not divide are dropped."""
  for pattern, logical in PARAMETER_AXES:
    if not re.search(pattern, path):
      continue
    logical = logical[-len(shape) :] if shape else ()
    lead = (None,) * (len(shape) - len(logical))
    return divided(lead + logical, shape, mesh)
  return PartitionSpec()


def divided(
  names: Sequence[str | None], shape: Sequence[int], mesh: Mesh
) -> PartitionSpec:
  """PartitionSpec of an array by the names of its axes.

  An axis that the mesh does not divide stays whole; rows must divide.
  """

  def one(name: Any, size: Any):
    axis = LOGICAL_RULES.get(name) if name else None
    if axis == ROWS:
      if size % rows_multiple(mesh):
        raise ValueError(
          f'{size} rows do not divide by data x fsdp = {rows_multiple(mesh)}; '
          'give rows in multiples of that.'
        )
      return ROWS
    return axis if axis and size % mesh.shape[axis] == 0 else None

  return PartitionSpec(*(one(name, size) for name, size in zip(names, shape)))


def parameter_shardings(
  tree: Any, mesh: Mesh, memory_kind: str | None = None
) -> Any:
  """NamedSharding for each leaf, by its path. Works for optimizer states.

  An optimizer's moments end in the path of their parameter, so the same
  table places them.
  """
  place = lambda path, leaf: NamedSharding(
    mesh,
    parameter_spec(path_of(path), np.shape(leaf), mesh),
    memory_kind=memory_kind,
  )
  return jax.tree_util.tree_map_with_path(place, tree)


def replicated(mesh: Mesh) -> NamedSharding:
  """A sharding that copies to every device."""
  return NamedSharding(mesh, PartitionSpec())


def rows_sharding(mesh: Mesh) -> NamedSharding:
  """[B, ...] split by rows over data and fsdp."""
  return NamedSharding(mesh, PartitionSpec(ROWS))


def rows_multiple(mesh: Mesh) -> int:
  """The number a batch's rows must divide by."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def put(tree: Any, sharding: Any) -> Any:
  """Host arrays -> device arrays; each process places only its own part.

  sharding: one sharding for all leaves, or a tree of them. In a multi-host
  run every process passes the same global arrays.
  """
  if jax.process_count() == 1:
    return jax.device_put(tree, sharding)
  if not isinstance(sharding, jax.sharding.Sharding):
    return jax.tree.map(put, tree, sharding)

  def place(leaf: Any):
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
      if leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
        return leaf  # a program would make a copy of it
      return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
    leaf = np.asarray(leaf)
    return jax.make_array_from_callback(
      leaf.shape, sharding, lambda index: leaf[index]
    )

  return jax.tree.map(place, tree)


def fetch(tree: Any) -> Any:
  """Device arrays -> numpy on every process; an explicit transfer.

  Of arrays that span processes a collective, made in turn with an engine's programs.
  """

  def get(leaf: Any):
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
      if leaf.is_fully_replicated:
        return np.asarray(leaf.addressable_data(0))
      from jax.experimental import multihost_utils

      with accelerator.turn():
        return multihost_utils.process_allgather(leaf, tiled=True)
    return np.asarray(leaf)

  return jax.tree.map(get, tree)


def distributed_settings(
  environment: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
  """Arguments for `jax.distributed.initialize`, or None for one process.

  Read, first found wins, from JAXAGENT_COORDINATOR / JAXAGENT_NUM_PROCESSES /
  JAXAGENT_PROCESS_ID; a Kubernetes JobSet or indexed Job
  (JOB_COMPLETION_INDEX with JAXAGENT_COORDINATOR); JAXAGENT_CLUSTER=none; SLURM
  (SLURM_NTASKS or SLURM_NNODES > 1, in a step of srun); JAXAGENT_CLUSTER=auto, where nothing else
  says that there is a cluster (TPU machines, which jax asks their metadata server
  about); TPUs of Kubernetes (TPU_WORKER_HOSTNAMES with several hosts). Without
  `coordinator_address` jax detects the cluster by itself.

  Raises ValueError where they contradict each other, or other processes are
  expected that cannot come.
  """
  env = os.environ if environment is None else environment
  coordinator = env.get('JAXAGENT_COORDINATOR')
  index = env.get('JAXAGENT_PROCESS_ID', env.get('JOB_COMPLETION_INDEX'))
  if coordinator:
    count = env.get('JAXAGENT_NUM_PROCESSES')
    if count is None or index is None:
      raise ValueError(
        'JAXAGENT_COORDINATOR is set, but JAXAGENT_NUM_PROCESSES or the '
        'process index (JAXAGENT_PROCESS_ID or JOB_COMPLETION_INDEX) is not; '
        'set both.'
      )
    if not 0 <= int(index) < int(count):
      raise ValueError(
        f'process index {index} is not within JAXAGENT_NUM_PROCESSES={count}.'
      )
    return {
      'coordinator_address': coordinator,
      'num_processes': int(count),
      'process_id': int(index),
      # Where jax finds SLURM or MPI as well, it would leave a process one device.
      'cluster_detection_method': 'deactivate',
    }
  cluster = env.get('JAXAGENT_CLUSTER', '')
  if cluster not in ('', 'auto', 'none'):
    raise ValueError(
      f"JAXAGENT_CLUSTER={cluster!r} is not known; choose 'auto', for jax to "
      "find the cluster, or 'none', for one process, or unset it."
    )
  if cluster == 'none':
    return None
  # A batch script that has asked for nodes alone is given no SLURM_NTASKS.
  name = 'SLURM_NTASKS' if env.get('SLURM_NTASKS') else 'SLURM_NNODES'
  if int(env.get(name) or 1) > 1 and 'SLURM_PROCID' in env:
    return _slurm(env, f'{name}={env[name]}')
  if cluster:
    return _devices(env)
  if len(env.get('TPU_WORKER_HOSTNAMES', '').split(',')) > 1:
    return {}
  return None


def _slurm(env: Mapping[str, str], several: str) -> dict[str, Any] | None:
  """Settings of a SLURM step of several tasks; None in a mere allocation of them.

  several: the variable that says how many. SLURM_NTASKS is set in a batch script and in an interactive shell, too, where no
  other process will ever come.
  """
  asked = env.get('JAXAGENT_CLUSTER') == 'auto'
  if not _is_slurm_step(env):
    if asked:
      raise ValueError(
        f'JAXAGENT_CLUSTER=auto: {several} are allocated, but this process was not '
        'started by srun, so no other will come; start it as `srun python -m '
        'jaxagent.main ...`, or unset JAXAGENT_CLUSTER for one process.'
      )
    _log.warning(
      '%s are allocated, but this process was not started by srun: it runs alone. '
      'Start it as `srun python -m jaxagent.main ...` for all of them.',
      several,
    )
    return None
  if int(env.get('SLURM_STEP_NUM_TASKS') or env.get('SLURM_NTASKS') or 1) < 2:
    return None
  if 'SLURM_PTY_PORT' in env and not asked:
    raise ValueError(
      f'{several} with `srun --pty`: where this is a shell, the other tasks will '
      'not come. Set JAXAGENT_CLUSTER=none for one process, or auto where srun '
      'started python itself.'
    )
  return _devices(env)


def _is_slurm_step(env: Mapping[str, str]) -> bool:
  """Whether srun started this process as one task of its step."""
  step = env.get('SLURM_STEP_ID', env.get('SLURM_STEPID', ''))
  if step:
    return int(step) < _SLURM_RESERVED_STEPS
  return (
    'SLURM_STEP_NUM_TASKS' in env
    or 'SLURM_STEP_NODELIST' in env
    or env['SLURM_PROCID'] != '0'
  )


def _devices(env: Mapping[str, str]) -> dict[str, Any]:
  """All GPUs of a node for its one task of SLURM; jax would leave it the first.

  Of several tasks a node each has one, which is what jax does; it reads
  JAX_LOCAL_DEVICE_IDS only where it is given none.
  """
  nodes = env.get('SLURM_STEP_NUM_NODES', env.get('SLURM_NNODES'))
  gpus = env.get('SLURM_GPUS_ON_NODE')
  chosen = env.get('JAX_LOCAL_DEVICE_IDS')
  if chosen or not gpus or env.get('SLURM_NTASKS') != nodes:
    return {}
  return {'local_device_ids': list(range(int(gpus)))}


def _step_port(env: Mapping[str, str]) -> str:
  """Returns the port of process 0 of a SLURM step.

  jax takes one of 4,096 by the job's number alone, at which a second step of the job
  would listen, too, and processes of the two would meet each other.
  """
  job = int(env['SLURM_JOB_ID'])
  step = int(env.get('SLURM_STEP_ID', env.get('SLURM_STEPID', '0')))
  return str(65536 - 4096 + (job + 1009 * step) % 4096)


def initialize_distributed(
  coordinator: str = '',
  num_processes: int = 0,
  process_id: int = -1,
  environment: Mapping[str, str] | None = None,
) -> tuple[int, int]:
  """Joins the cluster that flags or the environment name; once a process.

  Returns (process index, process count). Flags win over the environment. Raises
  ProcessLost where the others do not come.
  """
  if coordinator:
    settings = distributed_settings(
      {
        'JAXAGENT_COORDINATOR': coordinator,
        'JAXAGENT_NUM_PROCESSES': str(num_processes),
        'JAXAGENT_PROCESS_ID': str(process_id),
      }
    )
  else:
    settings = distributed_settings(environment)
  if settings is not None and not jax.distributed.is_initialized():
    # Of XLA on a processor: each collective of each device holds a thread while it
    # waits for the other processes, and with few cores all of them would wait.
    os.environ.setdefault('NPROC', str(max(_THREADS, os.cpu_count() or 1)))
    if 'coordinator_address' not in settings and 'SLURM_JOB_ID' in os.environ:
      os.environ.setdefault('JAX_COORDINATOR_PORT', _step_port(os.environ))
    try:
      jax.distributed.initialize(**settings)
    except jax.errors.JaxRuntimeError as error:
      raise ProcessLost(
        f'the processes of this run did not meet: {error}. Look for the first error of '
        'each; the same command on all hosts starts again.'
      ) from error
  return jax.process_index(), jax.process_count()


def devices() -> tuple[int, str]:
  """Returns how many devices the processes of a run have, and their platform."""
  return jax.device_count(), jax.default_backend()


def parameter_place(
  mesh: Mesh,
) -> Callable[[Sequence[Any], Sequence[int]], Any]:
  """(path of keys, shape) -> NamedSharding of that parameter on the mesh."""
  return lambda path, shape: NamedSharding(
    mesh, parameter_spec('/'.join(map(str, path)), shape, mesh)
  )
