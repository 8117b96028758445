"""Measures the live page on a run of many rollouts.

  python -m benchmarks.live [--rollouts 100000] [--seconds 30] [--work_dir DIR] [--json]

Writes a run of so many rollouts in the format of `rl/rollouts.jsonl` and
`rl/finished.jsonl` (unless DIR has it already), serves it by `jaxagent live`, and opens
it in chromium, headless, five times: seconds until the newest rollouts are on the page,
the first time with a server that has read nothing. Then the page stays open while four
rollouts a second are written: seconds until each is on the page, CPU seconds of the
server for each second, and its most resident memory. Aims: 2 s, 300 MB, 3 s.

Needs the extras `live` and `dev`, and chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import browser, machine
from jaxagent.rollout import finished_log, rollout_log

RATE = 4.0  # rollouts a second
PAGES = 5
_TASKS = ('wine', 'iris', 'diabetes', 'digits')
_OUTCOMES = ('ok', 'ok', 'ok', 'invalid_format', 'timeout', 'script_error')
_ROW = '#rollouts tbody tr[data-id="{}~0"]'


def lines(number: int, now: float) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns a rollout's lines: of rl/rollouts.jsonl and of rl/finished.jsonl."""
  outcome = _OUTCOMES[number % len(_OUTCOMES)]
  task = _TASKS[number % len(_TASKS)]
  turn = {
    'call': 0,
    'policy': number // 16,
    'task': task,
    'action': 'Edit Script (AI)',
    'outcome': outcome,
    'reward': number % 100 / 100,
    'reason': None,
    'exec_s': 1.0 + number % 7,
    'message': '' if outcome == 'ok' else 'Traceback: a line of an error. ' * 4,
  }
  ids = {
    'format': rollout_log.FORMAT,
    'prompt_id': f'0/{number}/0',
    'group_id': f'0/{number}',
    'restart': 0,
  }
  calls = [
    {'call': 0, 'kind': 'policy', 'begun': now - 9, 'seconds': 2.0},
    {'call': 1, 'kind': 'execute', 'begun': now - 7, 'seconds': 6.0},
  ]
  code = ''.join(f'+value_{i} = model.fit(x, y, {number})\n' for i in range(12))
  record = {
    'kind': 'step',
    'task': task,
    'outcome': outcome,
    'response': 'Thought: I try another estimator.\n' * 6,
    'diff': '--- \n+++ \n@@ -1,1 +1,12 @@\n' + code,
    'observation': 'Status: ok, validation score 0.75\n' * 6,
    'score_before': 0.5,
    'score_after': 0.75,
  }
  shown = turn | {
    'prompt': 'Improve the script.\n' * 20,
    'record': record,
  }
  finished = ids | {'turns': [shown], 'calls': calls, 'timestamp': now}
  ended = ids | {
    'task': task,
    'fate': 'trained',
    'update': number // 16 + 1,
    'version': number // 16,
    'outcome': outcome,
    'reward': turn['reward'],
    'reason': None,
    'message': '',
    'turns': [turn],
    'attempts': [],
    'calls': calls,
    'seconds': {
      'generation': 2.0,
      'execution': turn['exec_s'],
      'waiting': 0.5,
      'total': 10.0,
    },
    'timestamp': now + 5,
  }
  return ended, finished


def write(work: pathlib.Path, n: int) -> None:
  """Writes a run of n rollouts, the last one now."""
  (work / 'rl').mkdir(parents=True)
  now = time.time()
  with (
    (work / rollout_log.LOG).open('w') as ended,
    (work / finished_log.LOG).open('w') as finished,
  ):
    for number in range(n):
      one, other = lines(number, now - (n - number) / RATE)
      ended.write(json.dumps(one) + '\n')
      finished.write(json.dumps(other) + '\n')


@contextlib.contextmanager
def served(root: pathlib.Path) -> Iterator[tuple[int, str]]:
  """Yields process id and address of a server."""
  process = subprocess.Popen(
    [sys.executable, '-m', 'jaxagent.live', str(root), '--port=0'],
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    assert process.stdout is not None
    yield process.pid, process.stdout.readline().rpartition(': ')[2].strip()
  finally:
    process.terminate()
    process.wait()


def cpu_s(pid: int) -> float:
  """Returns the CPU seconds of a process so far."""
  fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]
  user, system = (int(one) for one in fields.split()[11:13])
  return (user + system) / os.sysconf('SC_CLK_TCK')


def measure(work: pathlib.Path, n: int, seconds: float) -> dict[str, Any]:
  """Returns what is measured of a run of n rollouts."""
  from playwright.sync_api import expect

  found: dict[str, Any] = {'rollouts': n}
  with served(work) as (pid, url), browser.launched() as opened:
    opened.new_page().goto('about:blank')  # the browser itself has started
    paints = []
    for _ in range(PAGES):
      page = opened.new_page()
      began = time.monotonic()
      page.goto(url)
      page.wait_for_selector(_ROW.format(f'0/{n - 1}/0'))
      paints.append(time.monotonic() - began)
      if len(paints) == 1:
        expect(page.locator('#matched')).to_have_text(
          f'{n} of {n}', timeout=120_000
        )
        found['all_read_s'] = time.monotonic() - began
      page.close()
    found['first_paint_s'] = paints[0]
    found['later_paint_s'] = statistics.median(paints[1:])
    page = opened.new_page()
    page.goto(url)
    page.wait_for_selector(_ROW.format(f'0/{n - 1}/0'))
    found |= _followed(page, work, n, seconds, pid)
    found['server_mb'] = machine.resident_mb(pid, peak=True)
  return found


def _followed(
  page: Any, work: pathlib.Path, n: int, seconds: float, pid: int
) -> dict[str, Any]:
  """Writes rollouts while the page is open."""
  waits, cpu, began = [], cpu_s(pid), time.monotonic()
  number = n
  while time.monotonic() - began < seconds:
    with (work / finished_log.LOG).open('a') as file:
      for _ in range(4):
        file.write(json.dumps(lines(number, time.time())[1]) + '\n')
        number += 1
    written = time.monotonic()
    page.wait_for_selector(_ROW.format(f'0/{number - 1}/0'))
    waits.append(time.monotonic() - written)
    time.sleep(max(0.0, 4 / RATE - waits[-1]))
  passed = time.monotonic() - began
  return {
    'shown_after_s': {'median': statistics.median(waits), 'max': max(waits)},
    'server_cpu_share': (cpu_s(pid) - cpu) / passed,
  }


def main() -> None:
  """Command line."""
  parser = argparse.ArgumentParser(
    prog='python -m benchmarks.live', description=__doc__.split('\n')[0]
  )
  parser.add_argument('--rollouts', type=int, default=100_000)
  parser.add_argument('--seconds', type=float, default=30.0)
  parser.add_argument('--work_dir', type=pathlib.Path)
  parser.add_argument('--json', action='store_true', help='write results/')
  arguments = parser.parse_args()
  with tempfile.TemporaryDirectory() as temporary:
    work = arguments.work_dir or pathlib.Path(temporary, 'run')
    if not (work / rollout_log.LOG).exists():
      write(work, arguments.rollouts)
    found = measure(work, arguments.rollouts, arguments.seconds)
  print(json.dumps(found, indent=1))
  if arguments.json:
    machine.save('live', found)


if __name__ == '__main__':
  main()
