"""Run directories as runs write them, line by line, and a server that shows them."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
ROLLOUTS = pathlib.Path('rl', 'rollouts.jsonl')
FINISHED = pathlib.Path('rl', 'finished.jsonl')
METRICS = pathlib.Path('logs', 'metrics.jsonl')
EXECUTIONS = pathlib.Path('logs', 'executions.jsonl')


def rollout(number: int, **fields: Any) -> dict[str, Any]:
  """A line of rl/rollouts.jsonl; `reward`, `outcome` and `task` are its turn's, too."""
  turn = {
    'call': 0, 'policy': number // 4, 'task': 'wine', 'action': 'Execute Script',
    'outcome': 'ok', 'reward': 0.5, 'reason': None, 'exec_s': 1.5, 'message': '',
  }  # fmt: skip
  turn |= {k: v for k, v in fields.items() if k in turn}
  return {
    'format': 1, 'prompt_id': f'0/{number}/0', 'group_id': f'0/{number}',
    'restart': 0, 'task': turn['task'], 'fate': 'trained', 'update': number // 4,
    'version': number // 4, 'outcome': turn['outcome'], 'reward': turn['reward'],
    'reason': None, 'message': '', 'turns': [turn], 'attempts': [],
    'seconds': {'generation': 1.0, 'execution': 1.5, 'waiting': 0.5, 'total': 3.0},
    'timestamp': time.time(),
  } | fields  # fmt: skip


def finished(number: int, **record: Any) -> dict[str, Any]:
  """A line of rl/finished.jsonl; `record` is what its turn did."""
  line = rollout(number)
  turn = line['turns'][0] | {
    'prompt': f'Improve the script, prompt {number}.',
    'record': {
      'kind': 'step', 'outcome': 'ok', 'task': 'wine', 'exec_s': 1.5,
      'response': 'Thought: run it.\nAction: Execute Script', 'observation': 'it ran',
      'diff': '--- \n+++ \n@@ -1 +1 @@\n-old = 1\n+new = 2\n', 'score_before': 0.5,
      'score_after': 0.75,
    } | record,
  }  # fmt: skip
  keep = ('format', 'prompt_id', 'group_id', 'restart', 'timestamp')
  call = {'call': 0, 'kind': 'policy', 'begun': time.time() - 3, 'seconds': 1.0}
  return {k: line[k] for k in keep} | {'turns': [turn], 'calls': [call]}


def trace(number: int, **fields: Any) -> dict[str, Any]:
  """A line of rl/traces/update_NNNNNN.jsonl."""
  turn = finished(number, **fields)['turns'][0]
  return turn['record'] | {
    'prompt_id': f'0/{number}/0', 'update': number // 4, 'version': 0,
    'reward': 0.5, 'timestamp': time.time(),
  }  # fmt: skip


def metrics(step: int) -> dict[str, Any]:
  """A line of logs/metrics.jsonl."""
  return {
    'step': step, 'time': time.time(), 'critic/score/mean': 0.1 * step,
    'actor/kl_loss': 0.01, 'sandbox/malformed_rate': 0.2, 'timing_s/gen': 2.0,
    'timing_s/old_log_prob': 0.2, 'timing_s/update_actor': 0.5,
    'timing_s/update_weights': 0.1, 'timing_s/save_checkpoint': 0.3,
  }  # fmt: skip


def execution(number: int, **fields: Any) -> dict[str, Any]:
  """A line of logs/executions.jsonl."""
  return {
    'job_id': f'0/{number}/0#1.1', 'outcome': 'ok', 'task': 'wine',
    'slot': number % 2, 'queue_s': 0.2, 'startup_s': 0.1, 'exec_s': 1.5,
    'total_s': 2.0, 'timestamp': time.time(),
  } | fields  # fmt: skip


def add(work: pathlib.Path, file: pathlib.Path, *lines: Any) -> None:
  """Appends lines to a run's file; bytes as they are."""
  path = work / file
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open('ab') as out:
    for line in lines:
      out.write(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b'\n'
      )


def whole(work: pathlib.Path, n: int) -> None:
  """Writes a run of n rollouts."""
  add(work, ROLLOUTS, *(rollout(i) for i in range(n)))
  add(work, FINISHED, *(finished(i) for i in range(n)))
  add(work, EXECUTIONS, *(execution(i) for i in range(n)))
  add(work, METRICS, *(metrics(i) for i in range(n // 4)))


class Served:
  """A live server in a process of its own."""

  def __init__(self, root: pathlib.Path, *options: str):
    self.root = root
    self.process = subprocess.Popen(
      [
        sys.executable, '-m', 'jaxagent.live', str(root), '--port=0', *options,
      ],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )  # fmt: skip
    assert self.process.stdout is not None
    line = self.process.stdout.readline()
    self.url = line.rpartition(': ')[2].strip()
    assert self.url.startswith('http'), line

  def ask(self, what: str, **question: Any) -> Any:
    """Returns an answer's JSON; of a refusal, too."""
    query = urllib.parse.urlencode(question)
    try:
      with urllib.request.urlopen(f'{self.url}api/{what}?{query}') as answer:
        return json.load(answer)
    except urllib.error.HTTPError as error:
      return json.load(error)

  def state(self, run: str) -> Any:
    return self.ask('state', run=run)

  def rows(self, run: str, **question: Any) -> list[dict[str, Any]]:
    return self.ask('rollouts', run=run, **question)['rows']

  def close(self) -> None:
    self.process.send_signal(signal.SIGINT)
    self.process.communicate(timeout=20)


@contextlib.contextmanager
def served(root: pathlib.Path, *options: str) -> Iterator[Served]:
  """Serves a folder."""
  server = Served(root, *options)
  try:
    yield server
  finally:
    server.close()


def until(found: Callable[[], Any], seconds: float = 10.0) -> Any:
  """Returns what is true in the end; fails after so many seconds."""
  end = time.monotonic() + seconds
  while not (value := found()):
    assert time.monotonic() < end, f'not within {seconds} s'
    time.sleep(0.1)
  return value
