"""Machine and versions of a measurement, for every result's JSON.

`python -m benchmarks.machine` prints it, with the speed index by which time
limits in the documentation scale.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
from typing import Any

RESULTS = pathlib.Path(__file__).parent / 'results'
INDEX_S = 0.8  # what a machine of speed index 1 takes for `_FIT`
_FIT = """
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
x, y = load_wine(return_X_y=True)
RandomForestClassifier(n_estimators=20, random_state=0).fit(x, y)
"""


def describe() -> dict[str, Any]:
  """Processor, cores, memory, versions and the commit."""
  versions: dict[str, str | None] = {}
  for name in ('numpy', 'scipy', 'jax', 'flax'):
    try:
      versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      versions[name] = None
  return {
    **_accelerator(),
    'cpu': _cpu(),
    'cores': os.cpu_count(),
    'memory_gb': round(
      os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1
    ),
    'system': f'{platform.system()} {platform.release()}',
    'python': platform.python_version(),
    'versions': versions,
    'commit': _commit(),
  }


def speed_index(repeats: int = 5) -> float:
  """How much slower than the reference this machine is now; at least 1.

  The median time of a cold interpreter that imports scikit-learn and fits 20
  trees, over `INDEX_S`. A busy machine is a slow one.
  """
  times = []
  for _ in range(repeats):
    began = time.monotonic()
    subprocess.run([sys.executable, '-c', _FIT], check=True)
    times.append(time.monotonic() - began)
  return max(1.0, sorted(times)[repeats // 2] / INDEX_S)


def resident_mb(pid: int | str = 'self', peak: bool = False) -> float:
  """Resident megabytes of a process on Linux, now or at its peak."""
  text = pathlib.Path(f'/proc/{pid}/status').read_text()
  name = 'VmHWM:' if peak else 'VmRSS:'
  return int(text.partition(name)[2].split()[0]) / 1024


def forget_peak() -> None:
  """Lets this process's peak of resident memory begin anew."""
  pathlib.Path('/proc/self/clear_refs').write_text('5')


def _cpu() -> str:
  try:
    for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines():
      if line.startswith('model name'):
        return line.split(':', 1)[1].strip()
  except OSError:
    pass
  return platform.processor()


def _accelerator() -> dict[str, str]:
  """Kind and platform, where JAX runs on one."""
  jax = sys.modules.get('jax')
  if jax is None or jax.default_backend() == 'cpu':
    return {}
  device = jax.devices()[0]
  platform_version = ' '.join(device.client.platform_version.split())
  return {'accelerator': device.device_kind, 'platform': platform_version}


def _commit() -> str:
  try:
    return subprocess.run(
      ['git', 'rev-parse', '--short', 'HEAD'],
      cwd=pathlib.Path(__file__).parent,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'


def save(name: str, result: dict[str, Any]) -> pathlib.Path:
  """Writes benchmarks/results/<name>.json with the machine beside it."""
  RESULTS.mkdir(exist_ok=True)
  path = RESULTS / f'{name}.json'
  record = {'machine': describe(), **result}
  path.write_text(json.dumps(record, indent=1, sort_keys=False) + '\n')
  return path


if __name__ == '__main__':
  print(json.dumps({**describe(), 'speed_index': speed_index()}, indent=1))
