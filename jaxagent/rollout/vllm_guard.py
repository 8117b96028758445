"""Runs a server that must not outlive its trainer.

  python -I vllm_guard.py COMMAND ARGUMENTS...

The command gets a process group of its own. It is killed, with all that it
started, when this process's standard input ends (the trainer holds the other
end, and a kill closes it, too) or when its first process ends. Standard library
only: it is run as a file, in a moment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
  """The command's exit code; a signal gives 128 + its number."""
  ended_r, ended_w = os.pipe()
  os.set_blocking(ended_w, False)
  signal.set_wakeup_fd(ended_w, warn_on_full_buffer=False)
  signal.signal(signal.SIGCHLD, lambda *_: None)
  child = subprocess.Popen(
    command, stdin=subprocess.DEVNULL, start_new_session=True
  )
  try:
    while child.poll() is None:
      ready, _, _ = select.select([0, ended_r], [], [])
      if 0 in ready and not os.read(0, 1):
        break
      if ended_r in ready:
        os.read(ended_r, 512)
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
  return code if code >= 0 else 128 - code


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
