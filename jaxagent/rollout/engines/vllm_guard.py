"""Runs a server that must not outlive its trainer.

  python -I vllm_guard.py COMMAND ARGUMENTS...

The command gets a process group of its own. It is ended, with all that it
started, when this process's standard input ends (the trainer holds the other
end, and a kill closes it, too) or when its first process ends: asked first, since
a killed one leaves its shared memory behind, and killed after `GRACE_S`. Where
this process itself is killed, Linux asks the command's first process to end. A
process that loses its parent becomes this process's child, which reaps it: a
container's first process may reap none, and unreaped ones stay in their group.
Standard library only: it is run as a file, in a moment.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(command: list[str]) -> int:
  """The command's exit code; a signal gives 128 + its number."""
  ended_r, ended_w = os.pipe()
  os.set_blocking(ended_w, False)
  signal.set_wakeup_fd(ended_w, warn_on_full_buffer=False)
  signal.signal(signal.SIGCHLD, lambda *_: None)
  if sys.platform == 'linux':
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
  child = subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    start_new_session=True,
    preexec_fn=_ends_with_its_parent if sys.platform == 'linux' else None,
  )
  try:
    while not _reaped(child):
      ready, _, _ = select.select([0, ended_r], [], [])
      if 0 in ready and not os.read(0, 1):
        break
      if ended_r in ready:
        os.read(ended_r, 512)
  finally:
    _end(child)
  code = child.wait()
  return code if code >= 0 else 128 - code


def _prctl(option: int, value: int) -> None:
  ctypes.CDLL(None).prctl(option, value)


def _ends_with_its_parent() -> None:
  _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _reaped(child: subprocess.Popen) -> bool:
  """Waits for all of the group that have ended; whether the child has, too."""
  options = os.WEXITED | os.WNOHANG | os.WNOWAIT
  while True:
    try:
      found = os.waitid(os.P_PGID, child.pid, options)
    except ChildProcessError:
      found = None
    if found is None:
      return child.poll() is not None
    if found.si_pid == child.pid:
      child.wait()  # its code is kept
    else:
      os.waitpid(found.si_pid, 0)


def _end(child: subprocess.Popen) -> None:
  """The whole group. What has ended is no member once it was waited for."""
  try:
    os.killpg(child.pid, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while time.monotonic() < end:
      _reaped(child)
      os.killpg(child.pid, 0)
      time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
  except ProcessLookupError:
    pass  # no process is left


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
