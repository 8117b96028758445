"""Prints how each rollout of an update ended, and why.

  python -m jaxagent.why WORK_DIR --update 37 [--prompt ID] [--json]

Reads `rl/rollouts.jsonl` of a running, stopped or finished run. An update shows what it
learned from and what ended, without being learned from, while its batch was
collected. With --prompt alone: all rollouts of that prompt; with neither: the counts of
the whole run. Exits with 2 where there is nothing to read.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxagent.rollout import rollout_log
from jaxagent.rollout.rollout_log import Fate

_DONE = {
  Fate.TRAINED: 'update {update} learned from it',
  Fate.STALE: 'dropped as too old; its prompt was started again',
  Fate.CANCELLED: 'stopped when the batch was full; its prompt was started again',
  Fate.RESTARTED: 'not learned from; its prompt was started again',
  Fate.QUARANTINED: 'not learned from; its prompt is not used again',
  Fate.UNUSED: 'finished, but the run ended or stopped before an update took it',
  Fate.UNFINISHED: 'under way when the run ended or stopped',
}


class NotThere(ValueError):
  """A run, update or prompt that does not exist; the message lists what does."""


def rollouts(
  work: pathlib.Path, update: int | None = None, prompt: str = ''
) -> list[dict[str, Any]]:
  """Returns records of `rl/rollouts.jsonl` (docs/rollout.md), in the order they ended.

  update: keeps those it learned from, and those that ended without being learned from
    while its batch was collected. prompt: keeps those of this prompt.

  Raises NotThere.
  """
  path = work / rollout_log.LOG
  try:
    found = list(rollout_log.read(path))
  except OSError:
    what = (
      'no such folder'
      if not work.is_dir()
      else (
        f'no {rollout_log.LOG}: RL has not started there, or an older version ran it'
      )
    )
    raise NotThere(
      f'{work}: {what}. Give the work directory of a run.'
    ) from None
  if update is not None:
    known = sorted({r['update'] for r in found if r['update'] is not None})
    found = [r for r in found if update in (r['update'], _while(r))]
    if not found:
      have = f'{known[0]} to {known[-1]}' if known else 'none so far'
      raise NotThere(f'update {update} is not in {path}; choose from: {have}.')
  if prompt:
    ids = sorted({r['prompt_id'] for r in found})
    found = [r for r in found if r['prompt_id'] == prompt]
    if not found:
      where = '' if update is None else f' of update {update}'
      raise NotThere(
        f'prompt {prompt!r} is not among the {len(ids)} prompts with an ended rollout'
        f'{where}; choose from: {", ".join(ids[:3]) or "none"}'
        f'{", ..." if len(ids) > 3 else ""}.'
      )
  return found


def _while(record: Mapping[str, Any]) -> int | None:
  """Returns the update whose batch was collected when an untrained rollout ended."""
  return record['version'] if record['update'] is None else None


def lines(records: Iterable[Mapping[str, Any]]) -> Iterable[str]:
  """Yields lines for people: each rollout, its failed attempts, its turns."""
  for record in records:
    fate = Fate(record['fate'])
    restart = f' (restart {record["restart"]})' if record['restart'] else ''
    reward = record['reward']
    earned = f'no reward: {record["reason"] or "none was given"}'
    if reward is not None:
      earned = f'reward {reward:.4g}'
    task = record['task'] or 'unknown task'
    done = _DONE[fate].format(update=record['update'])
    yield f'{record["prompt_id"]}{restart}  {task}  {fate.value}: {earned}; {done}'
    if record['message']:
      yield f'  {record["message"]}'
    for attempt in record['attempts']:
      if attempt['outcome'] in rollout_log.FAULTS:
        yield (
          f'  call {attempt["call"]}, attempt {attempt["attempt"]}: '
          f'{attempt["outcome"]} after {attempt["seconds"]:.1f} s, an infrastructure '
          f'error: {attempt["message"] or "no message"}'
        )
    for turn in record['turns']:
      yield '  ' + _of_turn(turn)
    seconds = record['seconds']
    yield '  seconds: ' + ', '.join(f'{k} {v:.1f}' for k, v in seconds.items())


def _of_turn(turn: Mapping[str, Any]) -> str:
  earned = f'no reward ({turn["reason"]})'
  if turn['reward'] is not None:
    earned = f'reward {turn["reward"]:.4g}'
  action = turn['action'] or 'response'
  text = (
    f'{action}: {turn["outcome"]}, {earned}, {turn["exec_s"]:.1f} s executed'
  )
  return f'{text}: {turn["message"]}' if turn['message'] else text


def counts(records: Sequence[Mapping[str, Any]]) -> list[str]:
  """Returns a line for each fate, with reasons and outcomes."""
  text = []
  for fate in Fate:
    mine = [r for r in records if r['fate'] == fate]
    if mine:
      causes = Counter(
        r['reason'] or r['outcome'] or 'no outcome' for r in mine
      )
      listed = ', '.join(f'{n} {name}' for name, n in causes.most_common())
      text.append(f'{len(mine):6d} {fate.value}: {listed}')
  return text


def main(argv: Sequence[str] | None = None) -> int:
  """Command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.why', description=__doc__.split('\n')[0]
  )
  parser.add_argument('work_dir', type=pathlib.Path, help='of a run')
  parser.add_argument('--update', type=int, help='its number, 0 for the first')
  parser.add_argument(
    '--prompt', default='', metavar='ID', help='one prompt alone'
  )
  parser.add_argument(
    '--json', action='store_true', help='the records, one a line'
  )
  arguments = parser.parse_args(argv)
  try:
    found = rollouts(arguments.work_dir, arguments.update, arguments.prompt)
  except NotThere as error:
    print(_inert(f'error: {error}'), file=sys.stderr)
    return 2
  if arguments.json:
    print('\n'.join(json.dumps(record) for record in found))
    return 0
  print(_inert('\n'.join(counts(found))))
  if arguments.update is not None or arguments.prompt:
    print(_inert('\n'.join(lines(found))))
  return 0


def _inert(text: str) -> str:
  """Returns text without what a terminal obeys: a policy or endpoint may have sent it."""
  return ''.join(
    c if c.isprintable() or c == '\n' else ascii(c)[1:-1] for c in text
  )


if __name__ == '__main__':
  # Whoever reads it, such as `head`, may have enough.
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  sys.exit(main())
