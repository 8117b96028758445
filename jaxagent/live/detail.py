"""A rollout as the page shows it: its turns with prompt, code, output and reward."""

from __future__ import annotations

from typing import Any

from jaxagent.files.tail import LONG_BYTES, object_of
from jaxagent.live import values
from jaxagent.live.rollouts import Rollouts, Row
from jaxagent.rollout.rollout_log import FAULTS

MOST_TURNS = 200


def of_row(rollouts: Rollouts, row: Row) -> dict[str, Any]:
  """Returns the row with its turns, failed attempts and seconds, all texts safe."""
  lines = list(rollouts.lines(row))
  told = {'long': any(len(line) > LONG_BYTES for line in lines)}
  found = [object_of(line) or {} for line in lines]
  log = found[0] if row.line is not None and found else {}
  rest = found[1:] if row.line is not None else found
  if row.texts is not None:
    turns = values.objects(rest[0].get('turns')) if rest else []
    shown = [_turn(turn, values.mapping(turn.get('record'))) for turn in turns]
  else:
    shown = [_turn(turn, turn) for turn in rest]
  if not shown:  # neither texts nor traces, or not yet
    shown = [_turn(turn, {}) for turn in values.objects(log.get('turns'))]
    told['bare'] = True
  return {
    **row.to_json(),
    **told,
    'message': values.text(log.get('message')),
    'attempts': [_attempt(one) for one in values.objects(log.get('attempts'))],
    'seconds': {
      values.name(key): values.number(seconds)
      for key, seconds in values.mapping(log.get('seconds')).items()
    },
    'shown': shown[:MOST_TURNS],
    'more_turns': max(0, len(shown) - MOST_TURNS),
  }


def _turn(turn: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
  """Returns a turn; `record` has what was done, `turn` what it earned."""

  def first(key: str) -> Any:
    return record.get(key, turn.get(key))

  return {
    'task': values.name(first('task')),
    'action': values.name(first('action')),
    'outcome': values.name(first('outcome')),
    'reward': values.number(turn.get('reward')),
    'reason': values.name(turn.get('reason')),
    'policy': values.whole(turn.get('policy', turn.get('version'))),
    'prompt': values.text(turn.get('prompt')),
    'response': values.text(record.get('response')),
    'diff': values.text(record.get('diff')),
    'output': values.text(record.get('observation') or turn.get('message')),
    'score_before': values.number(record.get('score_before')),
    'score_after': values.number(record.get('score_after')),
    'undone': record.get('undone') is True,
    'untrusted': values.text(record.get('untrusted')),
    'tier': values.name(record.get('tier')),
    'exec_s': values.number(first('exec_s')),
    'queue_s': values.number(record.get('queue_s')),
    'startup_s': values.number(record.get('startup_s')),
    'cpu_s': values.number(record.get('cpu_s')),
  }


def _attempt(attempt: dict[str, Any]) -> dict[str, Any]:
  outcome = values.name(attempt.get('outcome'))
  return {
    'call': values.whole(attempt.get('call')),
    'attempt': values.whole(attempt.get('attempt')),
    'outcome': outcome,
    'fault': outcome in FAULTS,
    'message': values.text(attempt.get('message')),
    'seconds': values.number(attempt.get('seconds')),
  }
