"""Processes of a run notice each other's end, and say in one line what it was."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from jaxagent import errors
from jaxagent.devices import presence

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(180)


def _spawn(folder, does, runs):
  """Starts a process for each of `runs`, what it takes part in."""
  count = len(runs)
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  return [
    subprocess.Popen(
      [
        sys.executable,
        '-m',
        'tests.devices.presence_worker',
        folder,
        does,
        run,
      ],
      cwd=ROOT,
      env={
        **os.environ,
        'JAX_PLATFORMS': 'cpu',
        'JAXAGENT_COORDINATOR': f'127.0.0.1:{port}',
        'JAXAGENT_NUM_PROCESSES': str(count),
        'JAXAGENT_PROCESS_ID': str(index),
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index, run in enumerate(runs)
  ]


def _start(folder, does, count=2):
  started = _spawn(folder, does, ['one'] * count)
  end = time.monotonic() + 90
  while not all((folder / f'met_{i}').exists() for i in range(count)):
    assert time.monotonic() < end and started[0].poll() is None
    time.sleep(0.02)
  return started


def _ended(process, within_s):
  out, err = process.communicate(timeout=within_s)
  return process.returncode, out, err


@pytest.mark.parametrize('victim', [0, 1])
def test_a_killed_process_is_named_by_the_other(tmp_path, victim):
  started = _start(tmp_path, 'wait')
  started[victim].send_signal(signal.SIGKILL)
  code, out, err = _ended(started[1 - victim], 20)
  assert code == errors.LOST, err
  host = socket.gethostname()
  assert f'{victim}:{host}' in out
  assert err.splitlines() == [err.rstrip('\n')]
  start = (
    f'error: process {victim} on {host} died in rl_update; its last words: '
  )
  assert err.startswith(start + 'none (killed, or its host is gone)')
  assert _ended(started[victim], 5)[0] == -signal.SIGKILL


def test_one_of_several_survivors_writes_the_line(tmp_path):
  started = _start(tmp_path, 'wait', count=3)
  started[2].kill()
  (code, _, err), (other, _, quiet) = (_ended(p, 20) for p in started[:2])
  assert (code, other) == (errors.LOST, errors.LOST)
  assert 'error: process 2 on' in err and quiet == ''


def test_what_a_library_wrote_before_it_aborted_is_quoted(tmp_path):
  started = _start(tmp_path, 'abort')
  (tmp_path / 'go').touch()
  code, _, err = _ended(started[0], 20)
  assert code == errors.LOST
  file = presence.log_of(tmp_path, 1)
  assert 'memory.cc:1] Check failed: x; what its libraries' in err
  assert f'wrote: {file}.' in err and len(err.splitlines()) == 1
  assert 'stack trace' in file.read_text()
  code, _, err = _ended(started[1], 10)
  assert code == -signal.SIGABRT and not err


@pytest.mark.slow
def test_an_error_of_one_ends_the_other_with_its_words(tmp_path):
  started = _start(tmp_path, 'raise')
  (tmp_path / 'go').touch()
  code, _, err = _ended(started[0], 30)
  assert code == errors.LOST
  assert 'failed in rl_update; its last words: UserError: config.mod' in err
  assert len(err.splitlines()) == 1
  assert 'Traceback' in _ended(started[1], 10)[2]


def test_processes_of_two_runs_do_not_take_each_other_for_their_own(tmp_path):
  started = _spawn(tmp_path, 'end', ['one', 'another'])
  for index, process in enumerate(started):
    code, out, err = _ended(process, 90)
    assert code and 'met' not in out
    runs = ('one', 'another') if index else ('another', 'one')
    assert (
      f'was started for {runs[0]}, this one, {index}, for {runs[1]}: processes of two '
      'runs have met at the coordinator 127.0.0.1:'
    ) in ' '.join(err.split())


@pytest.mark.parametrize('does', ['wait', 'late'])
def test_the_others_of_a_run_end_with_what_was_said_of_a_stranger(
  tmp_path, does
):
  started = _spawn(tmp_path, does, ['one', 'one', 'another'])
  ends = [_ended(process, 60) for process in started]
  assert all(code for code, _, _ in ends)
  for _, _, err in ends:
    assert 'processes of two runs have met' in ' '.join(err.split())


def test_processes_that_end_together_say_nothing(tmp_path):
  started = _start(tmp_path, 'end')
  (tmp_path / 'go').touch()
  for process in started:
    assert _ended(process, 30)[::2] == (0, '')


def test_a_process_that_waits_for_the_end_of_a_stopped_one_is_stopped_too(
  tmp_path,
):
  started = _start(tmp_path, 'stop')
  (tmp_path / 'go').touch()
  for process in started:
    assert _ended(process, 30)[::2] == (errors.STOPPED, '')


def test_strangers_at_the_port_are_hung_up_on(tmp_path):
  watch = presence.Watch(0, 2)
  watch._server = socket.create_server(('127.0.0.1', 0))
  threading.Thread(target=watch._accept, args=('secret',), daemon=True).start()
  address = watch._server.getsockname()
  for said in (
    b'nonsense\n',
    b'[1]\n',
    b'\xff\xfe\n',
    b'{"token": "guess", "index": 1, "host": "h", "pid": 1}\n',
    b'{"token": "secret", "index": 2, "host": "h", "pid": 1}\n',
    b'{"token": "secret", "index": "x"}\n',
    b'x' * 100_000,
  ):
    with socket.create_connection(address, 10) as stranger:
      try:
        stranger.sendall(said)
        assert stranger.recv(1) == b''
      except ConnectionError:
        pass  # hung up on, with bytes unread
  assert list(watch.peers) == [0]
  watch._server.close()


@pytest.mark.parametrize(
  'text, words',
  [
    ('', ''),
    ('a\nb\n', 'b'),
    (
      'F1129 1 a.cc:1] first\n    @  0x1 f\nI1129 later\n',
      'F1129 1 a.cc:1] first',
    ),
    ('last\n*** Check failure stack trace: ***\n @ 0x2\n', 'last'),
    ('\xff' * 10, r'\xff' * 10),
  ],
)
def test_last_words_are_those_above_a_stack(tmp_path, text, words):
  file = tmp_path / 'log'
  file.write_text(text)
  assert presence.last_words(file) == words
