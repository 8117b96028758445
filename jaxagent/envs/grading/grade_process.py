"""The process that grades: how it is started, asked and ended."""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from jaxagent.sandbox import cpu_levels

WORKER = str(pathlib.Path(__file__).with_name('grade_worker.py'))
# Two arguments: a module, for `graders` belong to the package.
COMPETITION_WORKER = '-m', 'jaxagent.envs.grading.competition_worker'
_PACKAGE = pathlib.Path(__file__).parents[3]
_START_TIMEOUT_S = 120.0


class WorkerDied(RuntimeError):
  """The grading process ended or went silent."""


class GradeProcess:
  """A grading process of one or more tasks. Not thread-safe.

  Args:
    entries: task name -> what the process needs to know of it.
    program: arguments of the interpreter that run it.
    memory_mb: address space of the process, in MiB.
    start_timeout_s: seconds until it has read the answers.
  """

  def __init__(
    self,
    entries: Mapping[str, Mapping[str, Any]],
    program: tuple[str, ...],
    memory_mb: int,
    start_timeout_s: float = _START_TIMEOUT_S,
  ):
    self._entries, self._program = entries, program
    self._memory_mb, self._start_timeout_s = memory_mb, start_timeout_s
    self._buffer = b''
    self.popen: subprocess.Popen | None = None

  def ask(
    self, request: Mapping[str, Any], data: bytes, limit_s: float
  ) -> dict:
    """Sends a request and its bytes; a process that is not there is started.

    Raises: WorkerDied or OSError where no answer comes; ValueError where the
    answers of a task cannot be read.
    """
    if self.popen is None or self.popen.poll() is not None:
      self.stop()
      self.start()
    self._send(json.dumps(request).encode() + b'\n' + data, limit_s)
    return self._read_line(limit_s)

  def start(self) -> None:
    """Starts the process and waits until it has read the answers."""
    keep = ('PATH', 'LANG', 'LC_ALL', 'TMPDIR', 'LD_LIBRARY_PATH')
    env = {key: os.environ[key] for key in keep if key in os.environ}
    # Scores alike in every process and on every node, as scripts.
    env.update(OMP_NUM_THREADS='1', OPENBLAS_NUM_THREADS='1')
    env.update(PYTHONHASHSEED='0', **cpu_levels.here())
    if '-m' in self._program:
      env['PYTHONPATH'] = str(_PACKAGE)
    self._buffer = b''
    self.popen = subprocess.Popen(
      [sys.executable, '-s', '-P', *self._program, str(self._memory_mb)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      bufsize=0,  # else closing the pipe of a frozen process would block
      env=env,
      cwd='/',
      start_new_session=True,
    )
    os.set_blocking(self._pipes()[0], False)
    try:
      entries = json.dumps(self._entries).encode() + b'\n'
      self._send(entries, self._start_timeout_s)
      hello = self._read_line(self._start_timeout_s)
    except (WorkerDied, OSError):
      self.stop()
      raise
    if hello['status'] != 'ok':
      self.stop()
      raise ValueError(f'the grader cannot start: {hello["reason"]}')

  def _pipes(self) -> tuple[int, int]:
    worker = self.popen
    assert worker is not None and worker.stdin and worker.stdout  # `start`
    return worker.stdin.fileno(), worker.stdout.fileno()

  def _send(self, data: bytes, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    fd = self._pipes()[0]
    rest = memoryview(data)
    while rest:
      left = end - time.monotonic()
      if left <= 0 or not select.select([], [fd], [], left)[1]:
        raise WorkerDied(f'the grader did not listen for {timeout_s:g} s.')
      rest = rest[os.write(fd, rest) :]

  def _read_line(self, timeout_s: float) -> dict:
    end = time.monotonic() + timeout_s
    fd = self._pipes()[1]
    while b'\n' not in self._buffer:
      left = end - time.monotonic()
      if left <= 0 or not select.select([fd], [], [], left)[0]:
        raise WorkerDied(f'the grader did not answer in {timeout_s:g} s.')
      chunk = os.read(fd, 65536)
      if not chunk:
        raise WorkerDied('the grading process ended unexpectedly.')
      self._buffer += chunk
    line, self._buffer = self._buffer.split(b'\n', 1)
    return json.loads(line)

  def stop(self) -> None:
    """Ends the process. May be called twice."""
    worker, self.popen = self.popen, None
    if worker is None:
      return
    for pipe in (worker.stdin, worker.stdout):
      assert pipe is not None
      try:
        pipe.close()
      except OSError:
        pass
    try:
      worker.wait(timeout=0.5)  # it ends by itself at the end of its input
    except subprocess.TimeoutExpired:
      worker.kill()
      worker.wait()
