"""A line for each rollout that ends, trained or not: `rl/rollouts.jsonl`.

`python -m jaxagent.why` reads it. A line is written when the rollout ends, so that a
running run has it. One that a kill makes the run repeat is written again: of the
lines with the same prompt_id and restart the last counts (`read`).
"""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jaxagent.clock import Clock
from jaxagent.interactions import Credit
from jaxagent.rollout.finished_log import FinishedLog
from jaxagent.rollout.requests import ExecutionResult, GenerationResult, Key
from jaxagent.rollout.tracked import TrackedRollout
from jaxagent.types import Completion, NoReward, Outcome, Record

FORMAT = 1
LOG = pathlib.Path('rl', 'rollouts.jsonl')  # in the work directory
MESSAGE_CHARS = 500
# Outcomes of attempts that are no fault of the policy.
FAULTS = (
  *(outcome.value for outcome in Outcome if outcome.is_infrastructure),
  NoReward.GENERATION_FAILED.value,
  NoReward.LEASE_EXPIRED.value,
)


class Fate(str, enum.Enum):
  """Fate of a rollout.

  trained: an update learned from it. stale, cancelled: dropped, its prompt begins
  anew; so does a restarted one, whose recipe broke its contract. quarantined: its
  prompt is never used again. unused: it had finished when the run ended or stopped;
  unfinished: it had not. A resumed run continues with both.
  """

  TRAINED = 'trained'
  STALE = 'stale'
  CANCELLED = 'cancelled'
  RESTARTED = 'restarted'
  QUARANTINED = 'quarantined'
  UNUSED = 'unused'
  UNFINISHED = 'unfinished'


@dataclasses.dataclass
class _Trail:
  """Data of a rollout that has not ended; times of this process alone."""

  begun: float
  generation_s: float = 0.0
  execution_s: float = 0.0
  waiting_s: float = 0.0  # of executions: in queues, starting, being read
  attempts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  versions: dict[int, int] = dataclasses.field(default_factory=dict)
  turns: list[dict[str, Any]] = dataclasses.field(default_factory=list)


class RolloutLog:
  """Writes the lines. Called under the scheduler's lock.

  Args:
    path: of the file, which may be there: a line that a kill cut is ended.
    clock: the scheduler's.
    finished: keeps the texts of what finishes; None: they are not kept.

  Its methods raise OSError where the disk is full.
  """

  def __init__(
    self,
    path: pathlib.Path,
    clock: Clock,
    finished: FinishedLog | None = None,
  ):
    self.version = 0  # of the policy, now
    self._clock, self._finished = clock, finished
    self._trails: dict[str, _Trail] = {}
    self._since: dict[Key, float] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    self._file = path.open('a', encoding='utf-8', buffering=1)
    if self._file.tell() and not path.read_bytes().endswith(b'\n'):
      self._file.write('\n')

  def begun(self, member: TrackedRollout) -> None:
    """A rollout begins."""
    self._trails[member.prompt_id] = _Trail(self._clock.now())

  def issued(self, key: Key) -> None:
    """A call is with its sampler or executor."""
    self._since[key] = self._clock.now()

  def returned(self, result: GenerationResult | ExecutionResult) -> None:
    """An awaited result is there, well or not."""
    trail = self._trail(result.key)
    known = result.key in self._since
    took = self._took(result.key)
    if known:  # else a process before this one asked for it
      trail.calls.append(_call(result, took))
    if isinstance(result, GenerationResult):
      trail.generation_s += took
      if result.completion is None:
        outcome = NoReward.GENERATION_FAILED.value
        self._attempt(trail, result.key, 0, outcome, result.error, took)
      elif isinstance(result.completion, Completion):
        trail.versions[result.key.call] = result.completion.version
      return
    executed = result.executed
    trail.execution_s += executed.exec_s
    trail.waiting_s += max(0.0, took - executed.exec_s)
    self._attempt(
      trail, result.key, result.attempt, executed.outcome.value, executed.message,
      took,
    )  # fmt: skip

  def expired(self, key: Key, attempt: int, message: str) -> None:
    """An execution gave no answer within its lease."""
    trail, took = self._trail(key), self._took(key)
    trail.waiting_s += took
    outcome = NoReward.LEASE_EXPIRED.value
    self._attempt(trail, key, attempt, outcome, message, took)

  def finished(
    self, member: TrackedRollout, credits: Mapping[int, Credit]
  ) -> None:
    """A rollout has come to its end; what becomes of it is not known yet."""
    trail = self._trail_of(member.prompt_id)
    trail.turns = [
      _turn(
        call, credit.outcome,
        None if isinstance(credit.reward, NoReward) else credit.reward,
        credit.reason, credit.exec_s, credit.record, trail.versions.get(call),
      )
      for call, credit in sorted(credits.items())
    ]  # fmt: skip
    if self._finished is not None:
      self._finished.write(member, credits, trail.turns, trail.calls)

  def ended(
    self,
    member: TrackedRollout,
    fate: Fate,
    *,
    update: int | None = None,
    reason: NoReward | None = None,
    message: str = '',
  ) -> None:
    """Writes the line. update: the one that learned from it."""
    trail = self._trail_of(member.prompt_id)
    turns = trail.turns or [
      _turn(
        None,
        turn.outcome,
        turn.reward,
        None,
        turn.exec_s,
        turn.record,
        turn.version,
      )
      for sample in member.samples
      for turn in sample.steps()
    ]
    rewards = [t['reward'] for t in turns if t['reward'] is not None]
    if reason is None and not rewards:
      reason = next((NoReward(t['reason']) for t in turns if t['reason']), None)
    record = {
      'format': FORMAT,
      'prompt_id': member.prompt_id,
      'group_id': member.group.group_id,
      'restart': member.draws - 1,
      'task': next((t['task'] for t in turns if t['task']), None),
      'fate': fate.value,
      'update': update,
      'version': self.version,
      'outcome': turns[-1]['outcome'] if turns else None,
      'reward': sum(rewards) if rewards else None,
      'reason': reason and reason.value,
      'message': _one_line(message),
      'turns': turns,
      'attempts': trail.attempts,
      'calls': trail.calls,
      'seconds': {
        'generation': trail.generation_s,
        'execution': trail.execution_s,
        'waiting': trail.waiting_s,
        'total': max(0.0, self._clock.now() - trail.begun),
      },
      'timestamp': time.time(),
    }
    self._file.write(json.dumps(record) + '\n')
    del self._trails[member.prompt_id]
    for key in [k for k in self._since if k.prompt_id == member.prompt_id]:
      del self._since[key]

  def close(self) -> None:
    """Closes the file."""
    self._file.close()
    if self._finished is not None:
      self._finished.close()

  def _trail(self, key: Key) -> _Trail:
    return self._trail_of(key.prompt_id)

  def _trail_of(self, prompt_id: str) -> _Trail:
    # Of one that began in a process before this one nothing is known.
    return self._trails.setdefault(prompt_id, _Trail(self._clock.now()))

  def _took(self, key: Key) -> float:
    now = self._clock.now()
    return now - self._since.pop(key, now)

  def _attempt(
    self, trail: _Trail, key: Key, number: int, outcome: str, message: str,
    took: float,
  ) -> None:  # fmt: skip
    trail.attempts.append(
      {
        'call': key.call,
        'attempt': number,
        'outcome': outcome,
        'message': _one_line(message),
        'seconds': took,
      }
    )


def _call(
  result: GenerationResult | ExecutionResult, took: float
) -> dict[str, Any]:
  """When a call was with its sampler or executor: seconds since 1970."""
  kind = 'execute'
  if isinstance(result, GenerationResult):
    kind = 'policy' if isinstance(result.completion, Completion) else 'frozen'
  return {
    'call': result.key.call,
    'kind': kind,
    'begun': time.time() - took,
    'seconds': took,
  }


def _turn(
  call: int | None,
  outcome: Outcome,
  reward: float | None,
  reason: NoReward | None,
  exec_s: float,
  record: Record | None,
  policy: int | None,
) -> dict[str, Any]:
  return {
    'call': call,
    'policy': policy,  # the oldest version that wrote a token of it
    'task': record and record.task,
    'action': record and record.action,
    'outcome': outcome.value,
    'reward': reward if reward is None else float(reward),
    'reason': reason and reason.value,
    'exec_s': exec_s,
    'message': ''
    if outcome is Outcome.OK
    else _one_line(record and record.observation),
  }


def _one_line(text: Any) -> str:
  return ' '.join(str(text or '').split())[:MESSAGE_CHARS]


def read(path: pathlib.Path) -> Iterator[dict[str, Any]]:
  """The lines that count, in the order in which their rollouts ended.

  A line that a kill cut is left out, as is one of a later format. Raises OSError
  where there is no file.
  """
  found: dict[tuple[str, int], dict[str, Any]] = {}
  with path.open('rb') as file:
    for line in file:
      try:
        record = json.loads(line)
        key = record['prompt_id'], record['restart']
        known = record['format'] == FORMAT
      except (ValueError, LookupError, TypeError):
        continue
      if known:
        found.pop(key, None)
        found[key] = record
  yield from found.values()


def seconds_by_task(
  path: pathlib.Path,
) -> dict[str, dict[str, dict[str, float]]]:
  """Returns {task: {outcome: {'count': n, 'exec_s': seconds}}}, trained or not.

  Attempts lost to infrastructure errors count under their own outcome, with the seconds
  until they were lost; those of a rollout without any turn under the task ''. Empty
  where there is no file.
  """
  found: dict[str, dict[str, dict[str, float]]] = {}

  def add(task: str, outcome: str, seconds: float) -> None:
    of_task = found.setdefault(task, {})
    cell = of_task.setdefault(outcome, {'count': 0, 'exec_s': 0.0})
    cell['count'] += 1
    cell['exec_s'] += seconds

  if not path.is_file():
    return found
  for record in read(path):
    for turn in record['turns']:
      add(turn['task'] or '', turn['outcome'], turn['exec_s'])
    for attempt in record['attempts']:
      if attempt['outcome'] in FAULTS:
        add(record['task'] or '', attempt['outcome'], attempt['seconds'])
  return found
