"""Logs a run to a tracker, from its files.

  python -m jaxagent.trackers WORK_DIR --to wandb|trackio|mlflow [--follow]

Logs the metrics of each update, the evaluated trajectories and the report; a second time
only what is new. With --follow until standard input ends: so a run starts it
(`config.trackers`). Exits with 2 where there is no run or the library is missing, with 1
where the tracker fails; one line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import select
import signal
import sys
from collections.abc import Sequence

from jaxagent.trackers import follow
from jaxagent.trackers.adapters import TRACKERS

EVERY_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
  """Command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.trackers', description=__doc__.split('\n')[0]
  )
  parser.add_argument('work_dir', type=pathlib.Path, help='of a run')
  parser.add_argument('--to', required=True, choices=sorted(TRACKERS))
  parser.add_argument(
    '--follow', action='store_true', help='until standard input ends'
  )
  arguments = parser.parse_args(argv)
  work, name = arguments.work_dir.resolve(), arguments.to
  if not os.path.isfile(work / 'config.json'):  # not Path's, which may raise
    return _say(f'error: {work} is no run: it has no config.json.', 2)
  if arguments.follow:
    # Who stops the run ends this when it is stopped, by its input.
    for number in (signal.SIGINT, signal.SIGTERM):
      signal.signal(number, signal.SIG_IGN)
  try:
    with contextlib.closing(follow.Follower(work, name)) as follower:
      while arguments.follow and not _ended():
        _tell(name, follower.look())
      _tell(name, follower.end())
  except ModuleNotFoundError as error:
    return _say(
      f"tracker {name}: {error.name} is missing: pip install 'jaxagent[{name}]'",
      2,
    )
  except Exception as error:  # noqa: BLE001 - a foreign library raises anything
    why = ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
    return _say(f'tracker {name}: {why}; the run goes on without it.', 1)
  return 0


def _ended() -> bool:
  """Whether standard input ends within EVERY_S."""
  ready, _, _ = select.select([sys.stdin], [], [], EVERY_S)
  return bool(ready) and not os.read(sys.stdin.fileno(), 1)


def _tell(name: str, lines: Sequence[str]) -> None:
  for line in lines:
    _say(f'tracker {name}: {line}.', 0)


def _say(text: str, status: int) -> int:
  print(text, file=sys.stderr, flush=True)
  return status


if __name__ == '__main__':
  sys.exit(main())
