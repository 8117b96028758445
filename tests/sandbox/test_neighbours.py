"""A job's neighbours move neither its clock nor its number of processes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from jaxagent import sandbox
from jaxagent.types import Job, Limits, Outcome

WORK = 'for i in range(3_000_000): pass'
# Each process is a session: the kernel shares its time out among those.
NOISE = """
import os
for _ in range(4):
  if os.fork() == 0: os.setsid()
while True: pass
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize('disable', [(), ('cgroup',)])
def test_a_noisy_neighbour_does_not_move_the_clock(disable):
  """Without a quota or CPUs of its own the work takes ten times as long."""
  if len(os.sched_getaffinity(0)) < 2:
    pytest.skip('one CPU has no room for a neighbour')
  with sandbox.SandboxPool(
    2, min_tier='T1', zygote=False, disable=disable
  ) as pool:

    def seconds(name: str) -> float:
      results = [
        pool.submit(Job(f'{name}-{i}', 'm.py', files={'m.py': WORK})).result()
        for i in range(5)
      ]
      assert {r.outcome for r in results} == {Outcome.OK}
      return statistics.median(r.exec_s for r in results)

    alone = seconds('alone')
    noise = pool.submit(
      Job('noise', 'm.py', files={'m.py': NOISE}, limits=Limits(timeout_s=60.0))
    )
    time.sleep(0.5)
    noisy = seconds('noisy')
    assert pool.cancel('noise')
    assert noise.result(20).outcome is Outcome.KILLED
  assert noisy < 4 * alone


@pytest.mark.parametrize('threads', [1, 10**6])
def test_a_job_has_no_more_cpus_than_threads(threads):
  """More than the machine has is no error."""
  text = """
import os, time
end, child = time.monotonic() + 0.8, os.fork()
while time.monotonic() < end: pass
if child == 0: os._exit(0)
os.wait()
"""
  with sandbox.SandboxPool(1, min_tier='T1', zygote=False) as pool:
    job = Job('cpu', 'm.py', files={'m.py': text}, threads=threads)
    result = pool.submit(job).result()
  assert result.outcome is Outcome.OK, result
  assert result.cpu_s / 0.8 < min(threads, 2) + 0.4


_USER = '''
import json, warnings
from jaxagent import sandbox
from jaxagent.types import Job, Limits
warnings.simplefilter('ignore')
SCRIPT = """
import threading, time
for _ in range(40): threading.Thread(target=time.sleep, args=(1.5,)).start()
"""
with sandbox.SandboxPool(3, min_tier='T1', zygote=False,
                         disable=['cgroup']) as pool:
  futures = [pool.submit(Job(f'j{i}', 'm.py', files={'m.py': SCRIPT},
                             limits=Limits(timeout_s=30, pids=64)))
             for i in range(3)]
  print(json.dumps([pool.tier, [f.result().outcome.value for f in futures]]))
'''


@pytest.mark.slow
@pytest.mark.alone
def test_slots_of_an_ordinary_user_do_not_share_a_limit_of_processes():
  command = [sys.executable, '-c', _USER]
  if os.geteuid() == 0:
    command = [
      sys.executable,
      '-m',
      'tests.sandbox.as_user',
      'nobody',
      *command,
    ]
  done = subprocess.run(command, capture_output=True, text=True, timeout=120)
  assert done.returncode == 0, done.stderr[-2000:]
  tier, outcomes = json.loads(done.stdout)
  if tier == 'T1':
    pytest.skip('T1 has no user namespaces to count in')
  assert outcomes == ['ok'] * 3
