"""The pool's promises: queue, deadlines, cancellation, collection, faults."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from jaxagent import sandbox
from jaxagent.sandbox import __main__ as cli
from jaxagent.sandbox import outcome
from jaxagent.types import Job, Limits, Outcome


@pytest.fixture(scope='module')
def pool():
  with sandbox.SandboxPool(2, min_tier='T1', zygote=False) as made:
    yield made


def job(name, script, **fields):
  return Job(name, 'main.py', files={'main.py': script}, **fields)


def test_a_file_and_a_mount_come_through(pool, tmp_path):
  (tmp_path / 'x.csv').write_text('7')
  tmp_path.chmod(0o755)
  script = (
    "open('submission.csv', 'w').write(open('data/x.csv').read())\n"
    "try: open('data/y', 'w')\nexcept OSError: print('read-only')"
  )
  result = pool.submit(
    job('mount', script, mounts={'data': tmp_path}, collect=('submission.csv',))
  ).result()
  assert result.outcome is Outcome.OK
  assert result.collected == {'submission.csv': b'7'}
  assert 'read-only' in result.output and result.tier == pool.tier
  assert not (tmp_path / 'y').exists()


def test_missing_submission(pool):
  result = pool.submit(job('none', 'pass', collect=('a.csv',))).result()
  assert result.outcome is Outcome.NO_SUBMISSION


def test_cancel_kills_a_running_job(pool):
  future = pool.submit(job('long', 'import time; time.sleep(50)'))
  time.sleep(0.5)
  assert pool.cancel('long')
  assert future.result(timeout=10).outcome is Outcome.KILLED
  assert not pool.cancel('long')


def test_a_cancel_is_never_lost(pool):
  for number in range(40):
    name = f'lost-{number}'
    future = pool.submit(job(name, 'import time; time.sleep(50)'))
    time.sleep(number * 0.25e-3)  # in the queue, between, or running
    assert pool.cancel(name)
    assert future.result(timeout=10).outcome is Outcome.KILLED


def test_a_gpu_is_given_to_one_job_at_a_time():
  script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
  with sandbox.SandboxPool(3, min_tier='T1', zygote=False, gpus=['5']) as made:
    futures = [made.submit(job(f'g{i}', script, gpus=1)) for i in range(12)]
    results = [future.result(timeout=60) for future in futures]
  assert {(r.outcome, r.attempts, r.output) for r in results} == {
    (Outcome.OK, 1, '5\n')
  }


def test_a_killed_launcher_leaves_no_cgroup():
  with sandbox.SandboxPool(1, min_tier='T1', zygote=False) as made:
    name = made._backend._name
    launcher = made.stats()['launcher']
    os.kill(launcher['launcher_pid'], signal.SIGKILL)
    assert (
      made.submit(job('x', 'pass')).result(timeout=60).outcome.value == 'ok'
    )
    assert made._backend._name != name
  roots = ('/sys/fs/cgroup/memory', '/sys/fs/cgroup')
  assert not [
    path for root in roots for path in pathlib.Path(root).glob(f'**/{name}')
  ]


_MORTAL = """
import os, pathlib, sys
from jaxagent.sandbox import SandboxPool
pool = SandboxPool(1, min_tier='T1', work_dir=pathlib.Path(sys.argv[1]))
print('up', flush=True)
sys.stdin.read()
os._exit(9)
"""


@pytest.mark.slow
def test_what_a_killed_run_left_is_swept_and_no_live_ones(tmp_path):
  command = [sys.executable, '-c', _MORTAL, str(tmp_path)]
  runs = [
    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(2)
  ]
  for run in runs:
    assert run.stdout.readline() == b'up\n'
  dead, live = runs
  dead.communicate()
  assert len(list(tmp_path.iterdir())) == 2
  with sandbox.SandboxPool(1, min_tier='T1', work_dir=tmp_path) as pool:
    assert len(list(tmp_path.iterdir())) == 2  # the live one's and its own
    result = pool.submit(job('a', 'print(1)')).result(timeout=60)
    assert result.outcome is Outcome.OK
  live.communicate()
  sandbox.SandboxPool(1, min_tier='T1', work_dir=tmp_path).close()
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('text', ['inf', '1e300', 'nan', '0', '-1'])
def test_the_command_line_refuses_absurd_limits(text, tmp_path, capsys):
  path = tmp_path / 'x.py'
  path.write_text('pass')
  assert cli.main(['run', str(path), f'--timeout={text}']) == 2
  said = capsys.readouterr().err
  assert 'timeout_s' in said and said.count('\n') == 1


def test_the_outer_deadline_is_not_the_jobs_own(pool):
  loop, own = 'while True: pass', Limits(timeout_s=0.5)
  cut = pool.submit(job('cut', loop), deadline_s=1.0).result()
  assert cut.outcome is Outcome.DEADLINE and cut.outcome.is_infrastructure
  assert 0.5 < cut.exec_s < 1.5 and 'of its 60 s' in cut.message
  late = pool.submit(job('own', loop, limits=own), deadline_s=30.0).result()
  assert late.outcome is Outcome.TIMEOUT


def test_a_deadline_passed_in_the_queue_is_not_charged(pool):
  result = pool.submit(job('late', 'pass'), deadline_s=1e-9).result()
  assert result.outcome is Outcome.DEADLINE


def test_a_deadline_ends_the_wait_for_a_slot(pool):
  sleep = 'import time; time.sleep(50)'
  ahead = [pool.submit(job(f'ahead-{i}', sleep)) for i in range(2)]
  start = time.monotonic()
  waits = [
    pool.submit(job(f'waits-{i}', 'pass'), deadline_s=d)
    for i, d in enumerate((0.6, 0.3))
  ]
  results = [future.result(timeout=10) for future in waits]
  assert time.monotonic() - start < 5.0
  assert {r.outcome for r in results} == {Outcome.DEADLINE}
  assert not any(future.done() for future in ahead)
  for i, future in enumerate(ahead):
    assert pool.cancel(f'ahead-{i}') and future.result(timeout=10)


def test_a_killed_launcher_is_replaced_and_the_job_retried(pool):
  future = pool.submit(job('again', 'import time; time.sleep(1)'))
  time.sleep(0.5)
  os.kill(pool.stats()['launcher']['launcher_pid'], signal.SIGKILL)
  result = future.result(timeout=30)
  assert result.outcome is Outcome.OK and result.attempts == 2


@pytest.mark.parametrize(
  'fields, text',
  [
    ({'script': '../x'}, 'plain relative path'),
    ({'script': 'other.py'}, 'is not among its files'),
    ({'collect': ('/etc/passwd',)}, 'plain relative path'),
    ({'limits': Limits(memory_mb=4)}, 'memory_mb=4'),
    ({'mounts': {'data': '/nowhere'}}, 'is not a directory'),
    ({'gpus': 1}, 'gpus=1'),
  ],
)
def test_bad_jobs_are_refused(pool, fields, text):
  made = Job(
    **{
      'job_id': 'bad',
      'script': 'main.py',
      'files': {'main.py': 'pass'},
      **fields,
    }
  )
  with pytest.raises(ValueError, match=text):
    pool.submit(made)


def test_bad_pools_are_refused():
  with pytest.raises(ValueError, match='backend='):
    sandbox.SandboxPool(1, backend='podman')
  with pytest.raises(ValueError, match='min_tier='):
    sandbox.SandboxPool(1, min_tier='T9')
  with pytest.raises(ValueError, match='slots=0'):
    sandbox.SandboxPool(0)
  with pytest.raises(sandbox.TierError, match='Allow unprivileged'):
    sandbox.SandboxPool(1, zygote=False, min_tier='T3', disable=['cgroup'])


def test_outcomes_come_from_status_and_counters():
  base = {
    'reason': '',
    'status': 0,
    'disk_full': False,
    'timeout_s': 1,
    'memory_full': False,
    'problems': [],
  }
  for change, trailer, wanted in (
    ({}, {}, Outcome.OK),
    ({'memory_full': True}, {}, Outcome.OK),
    ({'status': 256, 'memory_full': True}, {}, Outcome.OOM),
    ({'status': int(signal.SIGXCPU)}, {}, Outcome.SCRIPT_ERROR),
    ({'reason': 'processes'}, {}, Outcome.SCRIPT_ERROR),
    ({'status': 9}, {'oom_kills': 1}, Outcome.OOM),
    ({'status': 9}, {}, Outcome.SCRIPT_ERROR),
    ({'status': 256, 'disk_full': True}, {}, Outcome.DISK_LIMIT),
    ({'reason': 'timeout', 'status': 0}, {}, Outcome.TIMEOUT),
  ):
    assert outcome.decide({**base, **change}, trailer)[0] is wanted
