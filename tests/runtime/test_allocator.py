"""What a process frees it keeps, and only where nothing else was asked for."""

import os
import subprocess
import sys

import pytest

OWN = ('MALLOC_MMAP_THRESHOLD_', 'MALLOC_TRIM_THRESHOLD_', 'MALLOC_ARENA_MAX')
TAKEN = """
import resource, sys, threading
import numpy as np
if sys.argv[1] == 'kept':
  from jaxagent.runtime import allocator
  print(allocator.keep_freed_memory())
else:
  print(None)
counted = []
def work():
  for _ in range(3):
    np.ones(30 << 20, np.uint8), np.ones(90 << 20, np.uint8)
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  for _ in range(10):
    np.ones(30 << 20, np.uint8), np.ones(90 << 20, np.uint8)
  counted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
work()
thread = threading.Thread(target=work)  # its heap would hold no block above 64 MB
thread.start()
thread.join()
print(max(counted))
"""


def _run(how, **more):
  env = {k: v for k, v in os.environ.items() if k not in OWN}
  env.pop('GLIBC_TUNABLES', None)
  done = subprocess.run(
    [sys.executable, '-c', TAKEN, how],
    env=env | more,
    capture_output=True,
    text=True,
    check=True,
  )
  told, faults = done.stdout.split()
  return told, int(faults)


@pytest.mark.skipif(sys.platform != 'linux', reason='of glibc')
def test_blocks_that_are_freed_are_not_taken_from_the_system_again():
  told, faults = _run('kept')
  if told == 'False':
    pytest.skip('another C library')
  assert faults < 100
  assert _run('given back')[1] > 300


@pytest.mark.parametrize(
  'name, value',
  [
    ('MALLOC_ARENA_MAX', '2'),
    ('MALLOC_MMAP_THRESHOLD_', '1000000'),
    ('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=0'),
  ],
)
def test_what_the_environment_says_stays(name, value):
  assert _run('kept', **{name: value})[0] == 'False'


def test_a_run_keeps_it_before_jax_is_imported():
  code = (
    'import runpy, sys\n'
    'from jaxagent.runtime import allocator\n'
    "allocator.keep_freed_memory = lambda: print('jax' in sys.modules)\n"
    "sys.argv = ['jaxagent.main', '--helpshort']\n"
    "runpy.run_module('jaxagent.main', run_name='__main__')\n"
  )
  done = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True
  )
  assert done.stdout.splitlines()[:1] == ['False'], done.stderr
