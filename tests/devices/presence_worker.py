"""One of two processes of a run that waits for what its test does to it.

usage: python -m tests.devices.presence_worker FOLDER DOES RUN
DOES: what process 1 does, 'wait' for nothing, 'late' to connect after the others;
process 0 waits, too, but for 'end', and for 'stop', where it is stopped while process 1
waits for it to end together.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

from jaxagent import errors
from jaxagent.devices import presence, sharding


def _raise() -> None:
  raise errors.UserError('config.model.path is gone')


def _abort() -> None:
  os.write(2, b'I1129 noise\nF1129 12:00:00 memory.cc:1] Check failed: x\n')
  os.write(2, b'*** Check failure stack trace: ***\n    @     0x7f malloc\n')
  os.abort()


def main() -> None:
  folder, does, run = pathlib.Path(sys.argv[1]), *sys.argv[2:]
  index, count = sharding.initialize_distributed()
  if does == 'late' and index == 1:
    time.sleep(2)
  with presence.among(index, count, folder, run) as watch:
    presence.doing('rl_update')
    peers = ' '.join(f'{i}:{p.host}' for i, p in watch.peers.items())
    print(f'met {peers}', flush=True)
    (folder / f'met_{index}').touch()
    while not (folder / 'go').exists():
      time.sleep(0.01)
    if index and does in ('raise', 'abort'):
      {'raise': _raise, 'abort': _abort}[does]()
    if does not in ('end', 'stop'):
      time.sleep(120)
  if does == 'stop' and not index:
    time.sleep(1)
    watch.end_others()
    os._exit(errors.STOPPED)


if __name__ == '__main__':
  main()
