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
