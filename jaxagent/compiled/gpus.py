"""NVIDIA GPUs as XLA's compiler sees them: its GpuTargetConfigProto from few numbers.

The numbers are those of XLA's own repository (`xla/backends/gpu/target_config/specs`);
what all have alike is written once, in `_text`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpu:
  """One kind of GPU.

  capability: compute capability (major, minor). cores: multiprocessors; fpus: float32
  units of each. shared_bytes: shared memory of a multiprocessor, and
  block_shared_bytes: of a block that asks for it. bandwidth: bytes a second.
  memory_bytes: as the driver counts it. clock_ghz: of the multiprocessors.
  """

  name: str
  capability: tuple[int, int]
  cores: int
  fpus: int
  shared_bytes: int
  block_shared_bytes: int
  bandwidth: int
  l2_bytes: int
  memory_bytes: int
  clock_ghz: float


GPUS = {
  'a100': Gpu(
    name='NVIDIA A100-SXM4-80GB',
    capability=(8, 0),
    cores=108,
    fpus=64,
    shared_bytes=167_936,
    block_shared_bytes=166_912,
    bandwidth=2_039_040_000_000,
    l2_bytes=41_943_040,
    memory_bytes=85_100_068_864,
    clock_ghz=1.41,
  ),
  'h100': Gpu(
    name='NVIDIA H100 80GB HBM3',
    capability=(9, 0),
    cores=132,
    fpus=128,
    shared_bytes=233_472,
    block_shared_bytes=232_448,
    bandwidth=3_352_320_000_000,
    l2_bytes=52_428_800,
    memory_bytes=84_942_979_072,
    clock_ghz=1.98,
  ),
}
_DNN = (9, 10, 0)  # cuDNN, of which XLA chooses what it may use


def target_config(gpu: Gpu) -> str:
  """The text form that `topologies.get_topology_desc(target_config=...)` takes."""
  alike = {
    'threads_per_block_limit': 1024,
    'threads_per_warp': 32,
    'shared_memory_per_block': 49_152,
    'threads_per_core_limit': 2048,
    'block_dim_limit_x': 2_147_483_647,
    'block_dim_limit_y': 65_535,
    'block_dim_limit_z': 65_535,
    'registers_per_core_limit': 65_536,
    'registers_per_block_limit': 65_536,
    'thread_dim_limit_x': 1024,
    'thread_dim_limit_y': 1024,
    'thread_dim_limit_z': 64,
  }
  own = {
    'shared_memory_per_core': gpu.shared_bytes,
    'core_count': gpu.cores,
    'fpus_per_core': gpu.fpus,
    'memory_bandwidth': gpu.bandwidth,
    'l2_cache_size': gpu.l2_bytes,
    'clock_rate_ghz': gpu.clock_ghz,
    'device_memory_size': gpu.memory_bytes,
    'shared_memory_per_block_optin': gpu.block_shared_bytes,
  }
  major, minor = gpu.capability
  lines = [f'  {name}: {value}' for name, value in (alike | own).items()]
  lines.append(f'  cuda_compute_capability {{ major: {major} minor: {minor} }}')
  dnn = ' '.join(f'{k}: {v}' for k, v in zip(('major', 'minor', 'patch'), _DNN))
  return '\n'.join(
    [
      'gpu_device_info {',
      *lines,
      '}',
      'platform_name: "CUDA"',
      f'dnn_version_info {{ {dnn} }}',
      f'device_description_str: "{gpu.name}"',
    ]
  )
