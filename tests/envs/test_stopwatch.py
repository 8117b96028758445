"""What is charged where processes cannot be forbidden, and what is left in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.envs.program_task import HEAD

_RUN = """
import json, os, sys
from jaxagent.envs import _stopwatch
program, wall = sys.stdin.buffer.read(), sys.argv[1] == 'wall'
_stopwatch.signal.pthread_sigmask(
  _stopwatch.signal.SIG_BLOCK, {_stopwatch.signal.SIGCHLD})
watch = _stopwatch.Stopwatch(5.0, 1000, wall)
try:
  output, seconds = watch.run(program, b'input', 5.0)
  print(json.dumps([output.decode(), seconds]))
except _stopwatch.Failed as error:
  print(json.dumps([str(error), None]))
"""
# Of two rounds: seconds, or what was raised.
_MEASURE = """
import json, sys
from jaxagent.envs import _stopwatch
_stopwatch.signal.pthread_sigmask(
  _stopwatch.signal.SIG_BLOCK, {_stopwatch.signal.SIGCHLD})
watch = _stopwatch.Stopwatch(5.0, 1000, False)
program, reference = (text.encode() for text in json.load(sys.stdin))
try:
  print(json.dumps(_stopwatch.measure(watch, program, reference, [b'1', b'2'])[1]))
except Exception as error:
  print(json.dumps([type(error).__name__, str(error)]))
"""
# Where others run on the same CPU, most of the time these do.
_STARVED = """
import os, sys
from jaxagent.envs import _stopwatch
_stopwatch.signal.pthread_sigmask(
  _stopwatch.signal.SIG_BLOCK, {_stopwatch.signal.SIGCHLD})
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
program, cpu_s, timeout_s = sys.stdin.buffer.read(), *map(float, sys.argv[1:])
watch = _stopwatch.Stopwatch(cpu_s, 1000, False, timeout_s)
try:
  watch.run(program, b'input', cpu_s)
  print('ended')
except Exception as error:
  print(type(error).__name__, error)
"""
_SPIN = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 30
while time.monotonic() < end: pass
"""
WRITE = "open(sys.argv[2], 'w').write('done')\n"
BURN = 'end = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass\n'


def run(tmp_path, program, charged):
  """(output or reason, seconds) of a trusted program, without a sandbox."""
  done = subprocess.run(
    [sys.executable, '-c', _RUN, charged],
    input=program.replace('import numpy as np\n', '').encode(),
    capture_output=True,
    cwd=tmp_path,
  )
  assert done.returncode == 0, done.stderr.decode()
  return json.loads(done.stdout)


def test_wall_time_is_charged_where_cpu_time_may_be_incomplete(tmp_path):
  sleep = HEAD + 'time.sleep(0.8)\n' + WRITE
  output, seconds = run(tmp_path, sleep, 'wall')
  assert output == 'done' and seconds >= 0.8
  output, seconds = run(tmp_path, sleep, 'cpu')
  assert output == 'done' and seconds < 0.8


needs_root = pytest.mark.skipif(
  os.geteuid() != 0, reason='the limit of processes holds for this user'
)


@needs_root
def test_work_of_a_child_that_no_account_has_is_charged_by_the_clock(tmp_path):
  hiding = (
    HEAD
    + 'signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n'
    + 'child = os.fork()\n'
    + f'if child == 0:\n  {"  ".join(BURN.splitlines(True))}  os._exit(0)\n'
    + 'try:\n  os.waitpid(child, 0)\nexcept OSError:\n  pass\n'
    + WRITE
  )
  assert run(tmp_path, hiding, 'wall')[1] >= 0.6


@needs_root
def test_what_a_program_leaves_running_is_ended(tmp_path):
  leaving = (
    HEAD + 'if os.fork() == 0:\n  time.sleep(60)\n  os._exit(0)\n' + WRITE
  )
  output, seconds = run(tmp_path, leaving, 'cpu')
  assert output == 'done' and seconds < 5


def test_a_workspace_is_cleared_of_whatever_lies_in_it(tmp_path):
  folder = tmp_path / 'a/b/c'
  folder.mkdir(parents=True)
  (folder / 'file').write_text('x')
  outside = tmp_path.parent / f'{tmp_path.name}-outside'
  outside.mkdir()
  (outside / 'kept').write_text('x')
  (tmp_path / 'link').symlink_to(outside)
  (folder / 'link').symlink_to(outside)
  (tmp_path / 'a/b').chmod(0)
  left = HEAD + "assert os.listdir('..') == ['run'], os.listdir('..')\n" + WRITE
  assert run(tmp_path, left, 'cpu')[0] == 'done'
  assert (outside / 'kept').exists()


# Sleeps, and asks its parent to look whenever it is awake.
_FLOOD = (
  'import os, signal\nfrom time import sleep\nwhile True: sleep(0.01); '
  'os.kill(os.getppid(), signal.SIGCHLD)\n'
)


@pytest.mark.alone
@pytest.mark.parametrize(
  ('body', 'cpu_s', 'timeout_s', 'rivals', 'said'),
  [
    ('while True: pass\n', 0.5, 60, 5, 'NotMeasured no CPU was free for most'),
    ('while True: pass\n', 5, 2, 5, 'NotMeasured no CPU was free for most'),
    ('time.sleep(60)\n', 0.5, 60, 5, 'Failed took longer than 0.5 s'),
    # Whoever is awake again and again waits for a CPU that others have.
    (_FLOOD, 0.5, 60, 0, 'Failed took longer than 0.5 s'),
  ],
)
def test_a_wait_for_a_cpu_is_told_from_sleep(
  tmp_path, body, cpu_s, timeout_s, rivals, said
):
  # Sessions of their own: the kernel may divide a CPU among sessions.
  others = [
    subprocess.Popen([sys.executable, '-c', _SPIN], start_new_session=True)
    for _ in range(rivals)
  ]
  try:
    done = subprocess.run(
      [sys.executable, '-c', _STARVED, str(cpu_s), str(timeout_s)],
      input=('import time\n' + body).encode(),
      capture_output=True,
      cwd=tmp_path,
      timeout=60,
    )
  finally:
    for other in others:
      other.kill()
      other.wait()
  assert said in done.stdout.decode(), (done.stdout, done.stderr)


def _failing_at(counter, *calls):
  """A program that fails at its n-th calls, counted in a file out of reach."""
  return (
    'import os, sys\n'
    f'calls = os.open({str(counter)!r}, os.O_APPEND | os.O_CREAT | os.O_RDWR)\n'
    "os.write(calls, b'x')\n"
    f'if os.fstat(calls).st_size in {calls!r}: sys.exit(5)\n' + WRITE
  )


@pytest.mark.parametrize(
  ('failing', 'said'),
  [
    ((), None),
    ((1,), ['NotMeasured', 'the reference ended with exit status 5']),
    ((2,), ['NotMeasured', 'the reference ended with exit status 5']),
    ((3,), None),  # once, and not when it is run again
    ((4,), None),
    ((3, 4), ['Failed', 'after the program had run, the reference ended with']),
  ],
)
def test_a_program_is_blamed_for_what_the_reference_fails_at_twice_after_it(
  tmp_path, failing, said
):
  inside = tmp_path / 'workspace'
  inside.mkdir()
  programs = [
    'import sys\n' + WRITE, _failing_at(tmp_path / 'calls', *failing)
  ]  # fmt: skip
  done = subprocess.run(
    [sys.executable, '-c', _MEASURE],
    input=json.dumps(programs).encode(),
    capture_output=True,
    cwd=inside,
  )
  found = json.loads(done.stdout)
  if said is None:
    assert [len(found[n]) for n in ('program_s', 'reference_s')] == [2, 2]
  else:
    assert found[0] == said[0] and said[1] in found[1]


# Two runs of one program in a job's folders, as they are at T1.
_TWICE = """
import sys
from jaxagent.envs import _stopwatch
_stopwatch.signal.pthread_sigmask(
  _stopwatch.signal.SIG_BLOCK, {_stopwatch.signal.SIGCHLD})
watch, program = _stopwatch.Stopwatch(5.0, 1000, False), sys.stdin.buffer.read()
for _ in range(2):
  watch.run(program, b'input', 5.0)
watch.places.clear()
"""


def test_a_job_at_t1_is_emptied_and_the_host_around_it_is_not(tmp_path):
  root, beside = tmp_path / 'job', tmp_path / 'beside'
  for folder in ('workspace', 'tmp', 'shm'):
    (root / folder).mkdir(parents=True)
  (root / 'theirs').write_text('there before')
  (root / 'tmp/link').symlink_to(tmp_path)
  (root / 'changed').write_text('there before')
  beside.write_text('kept')
  leaving = (
    HEAD.replace('import numpy as np\n', '')
    + "top = '../..'\n"
    + "for place in ('tmp/x', 'shm/x', 'x', 'workspace/x', '.x'):\n"
    + "  open(f'{top}/{place}', 'x').close()\n"
    + "os.symlink('../..', f'{top}/tmp/up')\n"
    + "open(f'{top}/changed', 'a').write('by the program')\n"
    + WRITE
  )
  done = subprocess.run(
    [sys.executable, '-c', _TWICE],
    input=leaving.encode(),
    capture_output=True,
    cwd=root / 'workspace',
    env={**os.environ, 'HOME': f'{root}/tmp', 'TMPDIR': f'{root}/tmp'},
  )
  assert done.returncode == 0, done.stderr.decode()
  left = {str(path.relative_to(root)) for path in root.rglob('*')}
  assert left == {'workspace', 'tmp', 'shm', 'theirs'}
  assert beside.read_text() == 'kept'
