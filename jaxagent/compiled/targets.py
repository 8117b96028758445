"""Devices that are not there: what a target's name means, and how jax gets them.

A target is a family and its shape. `cpu:8` is so many devices of this processor;
`v5e:2x4` a TPU topology as libtpu names it; `a100:1x1x8` GPUs as slices x hosts x
GPUs a host. Nothing here imports jax before `devices`, for the environment of a
process decides what jax finds.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.compiled import gpus


@dataclasses.dataclass(frozen=True)
class Family:
  """Facts that all targets of one name share.

  kind: platform, 'cpu', 'tpu' or 'cuda'. memory_gb: of a device, as sold
  (1e9 bytes), or None where there is no limit. peak: the key of
  `accelerator.PEAK_FLOPS`. shape: how its shape is written; example: one of it.
  """

  kind: str
  memory_gb: float | None
  peak: str
  shape: str
  example: str


FAMILIES = {
  'cpu': Family('cpu', None, 'cpu', r'\d+', 'cpu:8'),
  'v5e': Family('tpu', 16.0, 'tpu-v5e', r'\d+x\d+', 'v5e:2x4'),
  'v5p': Family('tpu', 95.0, 'tpu-v5p', r'\d+x\d+x\d+', 'v5p:2x2x2'),
  'v6e': Family('tpu', 32.0, 'tpu-v6e', r'\d+x\d+', 'v6e:2x4'),
  'a100': Family('cuda', 80.0, 'a100', r'\d+x\d+x\d+', 'a100:1x1x8'),
  'h100': Family('cuda', 80.0, 'h100', r'\d+x\d+x\d+', 'h100:1x2x8'),
}
# Modules that a kind of target is compiled with, and the extra that brings them.
_NEEDS = {
  'cpu': ((), ''),
  'tpu': (('libtpu',), 'tpu'),
  'cuda': (('jax_plugins.xla_cuda12', 'nvidia.cudnn'), 'cuda12'),
}
_COUNT = '--xla_force_host_platform_device_count'
_MOST_CPUS = 512


@dataclasses.dataclass(frozen=True)
class Target:
  """`family:shape`, checked. devices: how many it has."""

  family: str
  shape: str

  @property
  def name(self) -> str:
    """The name as it is given on the command line."""
    return f'{self.family}:{self.shape}'

  @property
  def of(self) -> Family:
    """The facts of its family."""
    return FAMILIES[self.family]

  @property
  def count(self) -> int:
    """The number of its devices."""
    return math.prod(int(n) for n in self.shape.split('x'))


def parse(text: str) -> Target:
  """The target that `--target=TEXT` names.

  Raises ValueError for a family that is not known or a shape that is none of its.
  """
  name, _, shape = text.partition(':')
  choices = ', '.join(f.example for f in FAMILIES.values())
  if name not in FAMILIES:
    raise ValueError(
      f'--target={text}: {name!r} is no known family; choose one like: {choices}.'
    )
  family = FAMILIES[name]
  sizes = [int(n) for n in re.findall(r'\d+', shape)]
  if not re.fullmatch(family.shape, shape) or min(sizes) < 1:
    means = {
      'cpu': 'a number of devices',
      'tpu': "a topology's chips along each axis",
      'cuda': 'slices x hosts x GPUs a host',
    }[family.kind]
    raise ValueError(
      f'--target={text}: {shape!r} is not {means}; give one like {family.example}.'
    )
  target = Target(name, shape)
  if family.kind == 'cpu' and target.count > _MOST_CPUS:
    raise ValueError(
      f'--target={text}: at most {_MOST_CPUS} devices are simulated; give one '
      f'like {family.example}.'
    )
  return target


def check_packages(target: Target) -> None:
  """Raises ValueError where this environment cannot compile for the target."""
  modules, extra = _NEEDS[target.of.kind]
  missing = [name for name in modules if not _is_there(name)]
  if missing:
    raise ValueError(
      f'--target={target.name} needs {", ".join(missing)}, which this environment '
      f"has not: pip install 'jaxagent[{extra}]', or make an environment of its own "
      'with `bash launch_scripts/plan_env.sh` and give .venv-plan/bin/python.'
    )


def _is_there(module: str) -> bool:
  try:
    return importlib.util.find_spec(module) is not None
  except ModuleNotFoundError:
    return False


def environment(target: Target, base: Mapping[str, str]) -> dict[str, str]:
  """The variables of a process that compiles for the target, from those of this one.

  jax itself is on the CPU there: compilers need no device, and one that this machine
  has is left alone.
  """
  flags = [
    flag
    for flag in base.get('XLA_FLAGS', '').split()
    if not flag.startswith(_COUNT)
  ]
  if target.of.kind == 'cpu':
    flags.append(f'{_COUNT}={target.count}')
  out = dict(base) | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ' '.join(flags)}
  out.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  if target.of.kind == 'tpu':
    # No metadata server of a cloud is asked, and no TPU taken: libtpu's lock on the
    # machine's would refuse a second process.
    out |= {'TPU_SKIP_MDS_QUERY': '1', 'ALLOW_MULTIPLE_LIBTPU_LOAD': '1'}
  return out


def devices(target: Target) -> Sequence[Any]:
  """jax's devices of the target, in a process with `environment(target)`.

  Raises ValueError for a topology that the library does not take.
  """
  import jax

  if target.of.kind == 'cpu':
    found = jax.devices('cpu')
    if len(found) < target.count:
      raise ValueError(
        f'--target={target.name}: this process has {len(found)} CPU devices; '
        f'start it with XLA_FLAGS={_COUNT}={target.count}.'
      )
    return found[: target.count]
  from jax.experimental import topologies

  if target.of.kind == 'tpu':
    options = {'platform': 'tpu', 'topology_name': target.name}
  else:
    config = gpus.target_config(gpus.GPUS[target.family])
    options = {
      'platform': 'cuda',
      'target_config': config,
      'topology': target.shape,
    }
  try:
    return topologies.get_topology_desc(**options).devices
  except Exception as error:
    raise ValueError(
      f'--target={target.name}: the compiler has no such topology '
      f'({" ".join(str(error).split())[:200]}); give one like '
      f'{target.of.example}.'
    ) from error


def gpu(target: Target) -> gpus.Gpu | None:
  """The kind of GPU of a target, or None where it has none."""
  return gpus.GPUS.get(target.family)


def room_bytes(
  target: Target, base: Mapping[str, str] = os.environ
) -> tuple[float | None, str]:
  """(bytes that a program may use of a device, how that comes about); None: no limit.

  On GPUs XLA takes a share of the memory when it starts: what
  XLA_PYTHON_CLIENT_MEM_FRACTION says, else what `launch_scripts/_launch.sh` sets
  beside a vLLM server. Elsewhere all but `plan.RESERVED`.
  """
  from jaxagent.plan import GB, RESERVED

  memory = target.of.memory_gb
  if memory is None:
    return None, 'no limit on a CPU'
  if target.of.kind != 'cuda':
    share, source = 1 - RESERVED, 'all but what is reserved'
  elif given := base.get(FRACTION):
    share, source = float(given), f'{FRACTION}={given}'
  else:
    share = LAUNCHED
    source = f"{FRACTION}={LAUNCHED}, the launchers' beside a vLLM server"
  return share * memory * GB, f'{share:.2f} of {memory:g} GB: {source}'


FRACTION = 'XLA_PYTHON_CLIENT_MEM_FRACTION'
LAUNCHED = 0.6  # TRAINER_MEMORY of launch_scripts/_launch.sh
