"""Starts the trackers of a run, and lets go of them at its end."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from jaxagent.trackers.adapters import TRACKERS

# Another interpreter for them, whose environment has their libraries.
PYTHON = 'JAXAGENT_TRACKER_PYTHON'
WAIT_S, STOPPED_S = 30.0, 2.0
_ROOT = pathlib.Path(__file__).parents[2]


@contextlib.contextmanager
def following(work: pathlib.Path, names: Sequence[str]) -> Iterator[None]:
  """Lets trackers follow a run within; what one does wrong stops nothing.

  names: of TRACKERS; others are not its business. At the end each has WAIT_S to log the
  rest, or STOPPED_S where the run is stopped; one that takes longer continues by itself.
  """
  wait_s = STOPPED_S
  processes = [
    (name, process)
    for name in names
    if name in TRACKERS and (process := _start(work, name)) is not None
  ]
  try:
    yield
    wait_s = WAIT_S
  finally:
    for _, process in processes:
      if process.stdin is not None:
        with contextlib.suppress(OSError):
          process.stdin.close()
    end = time.monotonic() + wait_s
    for name, process in processes:
      _wait(name, process, end)


def _start(work: pathlib.Path, name: str) -> subprocess.Popen | None:
  path = os.pathsep.join([str(_ROOT), os.environ.get('PYTHONPATH', '')])
  try:
    return subprocess.Popen(
      [
        os.environ.get(PYTHON) or sys.executable,
        '-m',
        'jaxagent.trackers',
        str(work),
        f'--to={name}',
        '--follow',
      ],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      env=os.environ | {'PYTHONPATH': path.rstrip(os.pathsep)},
      start_new_session=True,  # an interrupt is the run's
    )
  except OSError as error:
    print(
      f'tracker {name}: {error}; the run goes on without it.', file=sys.stderr
    )
    return None


def _wait(name: str, process: subprocess.Popen, end: float) -> None:
  try:
    code = process.wait(max(0.0, end - time.monotonic()))
  except subprocess.TimeoutExpired:
    print(f'tracker {name}: still writes; it ends by itself.', file=sys.stderr)
    return
  if code < 0:  # else it said so itself
    print(f'tracker {name}: ended by signal {-code}.', file=sys.stderr)
