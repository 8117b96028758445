"""Eight CPU devices in a process of their own: jax counts them once, at its start."""

import functools
import json
import os
import pathlib
import subprocess
import sys

from tests.runs import QUICK

ROOT = pathlib.Path(__file__).parents[2]


@functools.cache
def run(module: str, *arguments: str, timeout_s: float = 300.0):
  """The JSON that `python -m module ARGUMENTS` prints last, on eight devices."""
  environment = os.environ | {
    'JAX_PLATFORMS': 'cpu',
    # Neither collectives nor buffers are other ones with QUICK.
    'XLA_FLAGS': f'--xla_force_host_platform_device_count=8 {QUICK}',
  }
  done = subprocess.run(
    [sys.executable, '-m', module, *arguments],
    cwd=ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=timeout_s,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return json.loads(done.stdout.splitlines()[-1])
