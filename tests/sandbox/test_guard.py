"""The cage around attacks holds what the sandbox would not."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
import uuid

import pytest

from jaxagent.sandbox import guard

_FORKS = """
import os, signal, sys, time
made = 0
try:
  for _ in range(400):
    if os.fork() == 0: time.sleep(60)
    made += 1
except OSError:
  pass
print(made)
"""


def _run(command: list[str], **limits) -> int:
  """`guard.run` from a fresh process, as the command line has it.

  It clones, which must not be done where threads may hold locks, as those of
  other tests' libraries here may.
  """
  text = (
    'from jaxagent.sandbox import guard\n'
    f'raise SystemExit(guard.run({command!r}, **{limits!r}))'
  )
  return subprocess.run(_python(text), timeout=120).returncode


def _python(text: str) -> list[str]:
  return [sys.executable, '-c', text]


@pytest.mark.parametrize(
  'text, code',
  [
    ('pass', 0),
    ('raise SystemExit(3)', 3),
    ('import os; os.kill(os.getpid(), 6)', 0),  # pid 1 ignores its own signals
  ],
)
def test_the_exit_code_comes_through(text, code):
  assert _run(_python(text)) == code


def _running(word: str) -> list[str]:
  """Command lines on this machine that hold `word`."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    with contextlib.suppress(OSError):
      text = path.read_bytes()
      if word.encode() in text:
        found.append(text.decode(errors='replace'))
  return found


def test_processes_are_bounded_and_none_survives(tmp_path):
  out, word = tmp_path / 'made', uuid.uuid4().hex
  text = _FORKS.replace(
    'print(made)',
    f'open({str(out)!r}, "w").write('
    "str(made) + ' ' + os.readlink('/proc/self'))",
  )
  assert _run([*_python(text), word], pids=60) == 0
  made, own_pid = out.read_text().split()
  assert 0 < int(made) < 60
  assert own_pid == '1'
  assert _running(word) == []


@pytest.mark.skipif(os.geteuid() != 0, reason='becomes another user')
def test_an_ordinary_user_is_guarded_too():
  text = _FORKS.replace('400', '4000')
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'tests.sandbox.as_user',
      'nobody',
      sys.executable,
      '-m',
      'jaxagent.sandbox.guard',
      *_python(text),
    ],
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert done.returncode == 0, done.stderr
  assert 0 < int(done.stdout.split()[-1]) < guard.PIDS


def test_a_stray_kill_stays_inside():
  # Outside, it would end this very process.
  assert _run(_python('import os; os.kill(-1, 9)')) in (0, 1)


def test_the_time_limit_ends_all(tmp_path):
  late = tmp_path / 'late'
  text = (
    'import os, time\n'
    f'if os.fork() == 0:\n  time.sleep(1.5); open({str(late)!r}, "w")\n'
    'time.sleep(60)'
  )
  assert _run(_python(text), timeout_s=0.5) == guard.TIMED_OUT
  time.sleep(1.6)
  assert not late.exists()


def test_a_command_is_needed(capsys):
  assert guard.main([]) == 2
  assert 'COMMAND' in capsys.readouterr().err
