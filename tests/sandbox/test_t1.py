"""T1 and T0 have no pid namespace: who ends a job whose supervisor is gone?"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

_TEXT = r'''
import json, os, pathlib, signal, sys, time, warnings
from jaxagent import sandbox
from jaxagent.types import Job, Limits
warnings.simplefilter('ignore')

JOB = """
import os, signal, sys, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
  signal.signal(s, signal.SIG_IGN)
for _ in range(4):
  if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 60
    while time.monotonic() < end:  # never the same process for long
      time.sleep(0.002)
      try:
        if os.fork(): os._exit(0)
      except OSError: pass
time.sleep(60)
"""

def alive(word):
  found = 0
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    try:
      found += path.read_bytes().endswith(f'\0{word}\0'.encode())
    except OSError:
      pass
  return found

def left(word):  # what is still there after at most three seconds
  end = time.monotonic() + 3
  while time.monotonic() < end and alive(word):
    time.sleep(0.02)
  return alive(word)

def supervisors(pid):
  return [int(p) for p in pathlib.Path(
    f'/proc/{pid}/task/{pid}/children').read_text().split()]

found = {}
with sandbox.SandboxPool(1, min_tier='T1', zygote=False,
                         disable=['namespaces', 'cgroup']) as pool:
  found['tier'] = pool.tier
  def start(word):
    future = pool.submit(Job(word, 'main.py', files={'main.py': JOB},
                             argv=(word,), limits=Limits(timeout_s=50)))
    end, most = time.monotonic() + 20, 0
    while most < 4 and time.monotonic() < end:
      time.sleep(0.01)
      most = max(most, alive(word))
    time.sleep(0.3)
    found[word + ' ran'] = most
    return future
  launcher = pool.stats()['launcher']['launcher_pid']
  future = start('mark-cancel')
  pool.cancel('mark-cancel')
  found['cancelled'] = future.result(20).outcome.value
  found['mark-cancel'] = left('mark-cancel')
  future = start('mark-supervisor')
  for pid in supervisors(launcher):
    os.kill(pid, signal.SIGKILL)
  pool.cancel('mark-supervisor'); future.result(20)
  found['mark-supervisor'] = left('mark-supervisor')
  future = start('mark-launcher')
  os.kill(pool.stats()['launcher']['launcher_pid'], signal.SIGKILL)
  time.sleep(0.5)
  pool.cancel('mark-launcher'); future.result(20)
  found['mark-launcher'] = left('mark-launcher')
  start('mark-close')
found['mark-close'] = left('mark-close')
LEAVES = """
import os, time
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0: time.sleep(60)
  os._exit(0)
"""
with sandbox.SandboxPool(1, min_tier='T0', zygote=False, disable=[
    'namespaces', 'cgroup', 'seccomp', 'landlock']) as pool:
  result = pool.submit(Job('t0', 'main.py', files={'main.py': LEAVES},
                           argv=('mark-t0',))).result(60)
  found['t0'] = [result.outcome.value, result.tier, result.exec_s < 5]
found['mark-t0'] = left('mark-t0')
print(json.dumps(found))
'''


@pytest.mark.parametrize('who', ['nobody', 'root'])
def test_no_process_of_a_job_outlives_it(who):
  command = [sys.executable, '-c', _TEXT]
  if os.geteuid() == 0:
    command = [sys.executable, '-m', 'tests.sandbox.as_user', who, *command]
  elif who == 'root':
    pytest.skip('needs root')
  command = [sys.executable, '-m', 'jaxagent.sandbox.guard', *command]
  done = subprocess.run(command, capture_output=True, text=True, timeout=250)
  if 'TierError' in done.stderr and 'Landlock ABI' in done.stderr:
    pytest.skip(done.stderr[-400:])
  assert done.returncode == 0, done.stderr[-2000:]
  found = json.loads(done.stdout)
  assert found['tier'] == 'T1' and found['cancelled'] == 'killed'
  for word in ('cancel', 'supervisor', 'launcher', 'close'):
    assert found[f'mark-{word} ran'] >= 2, found  # a chain may be between two
    assert found[f'mark-{word}'] == 0, found
  # There nothing keeps a job in its group.
  assert found['t0'] == ['ok', 'T0', True] and found['mark-t0'] == 0, found
