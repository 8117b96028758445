"""The rollouts of a run: a small row of each, and where its texts lie."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from jaxagent.files.tail import object_of, open_plain, read_at
from jaxagent.live import values
from jaxagent.rollout import finished_log, rollout_log

WAITING = 'waiting'  # the fate of what has finished and is in no update yet
# The fate of what a stopped run continues with.
_OPEN = rollout_log.Fate.UNFINISHED.value
MOST_CALLS = 20_000  # that are kept for the lanes
_TRACE_BYTES = 64 << 20  # of an update's traces that are looked through
Place = tuple[int, int]  # offset and length of a line


@dataclasses.dataclass(slots=True)
class Row:
  """A rollout in short.

  policy: version that wrote it, the oldest. at: when it ended, seconds since 1970.
  line, texts: places in rl/rollouts.jsonl and rl/finished.jsonl; None: in neither.
  """

  number: int
  prompt_id: str
  restart: int
  group: str = ''
  task: str = ''
  fate: str = WAITING
  update: int | None = None
  policy: int | None = None
  outcome: str = ''
  reward: float | None = None
  reason: str = ''
  action: str = ''
  turns: int = 0
  at: float | None = None
  exec_s: float | None = None
  total_s: float | None = None
  timed: bool = False  # its calls are known
  line: Place | None = None
  texts: Place | None = None

  @property
  def age(self) -> int | None:
    """Updates between the policy that wrote it and the one that learned from it."""
    if self.update is None or self.policy is None:
      return None
    return self.update - self.policy

  def to_json(self) -> dict[str, Any]:
    """Returns what a list shows of it."""
    return {
      'id': f'{self.prompt_id}~{self.restart}',
      'prompt_id': self.prompt_id,
      'restart': self.restart,
      'group': self.group,
      'task': self.task,
      'fate': self.fate,
      'update': self.update,
      'policy': self.policy,
      'age': self.age,
      'outcome': self.outcome,
      'reward': self.reward,
      'reason': self.reason,
      'action': self.action,
      'turns': self.turns,
      'at': self.at,
      'exec_s': self.exec_s,
      'total_s': self.total_s,
    }


@dataclasses.dataclass(frozen=True)
class Filter:
  """Which rollouts are wanted; '' and None: any.

  text: is somewhere in the rollout's lines, whatever the case of ASCII; other letters
    as they are given, or all in lower or upper case.
  """

  task: str = ''
  outcome: str = ''
  fate: str = ''
  group: str = ''
  update: int | None = None
  text: str = ''

  def admits(self, row: Row) -> bool:
    """Whether the row is wanted, but for the text."""
    return (
      self.task in ('', row.task)
      and self.outcome in ('', row.outcome)
      and self.fate in ('', row.fate)
      and self.group in ('', row.group)
      and self.update in (None, row.update)
    )

  @property
  def needles(self) -> tuple[bytes, ...]:
    """The text as it may stand in a line of JSON whose ASCII is in lower case."""
    found = {
      json.dumps(text, ensure_ascii=ascii_)[1:-1].encode('utf-8', 'replace')
      for text in (self.text, self.text.lower(), self.text.upper())
      for ascii_ in (True, False)
    }
    return tuple({one.lower() for one in found})


class Rollouts:
  """Rows of a run, oldest first. Not thread-safe.

  rows: by the order in which they were first met. by_key: (prompt id, restart) -> row.
  calls: (begun, ended, kind, row) of calls of samplers, newest last.
  unknown: lines of another format than this version's.
  changes: counts what was taken in.
  """

  def __init__(self, work: pathlib.Path):
    self.work = work
    self.changes = 0
    self._traces: deque[tuple[int, int, dict[str, list[bytes]]]] = deque(
      maxlen=4
    )
    self.clear()

  def clear(self) -> None:
    """Forgets all rows."""
    self.rows: list[Row] = []
    self.by_key: dict[tuple[str, int], Row] = {}
    self.calls: deque[tuple[float, float, str, Row]] = deque(maxlen=MOST_CALLS)
    self.unknown = 0
    self.from_traces = 0
    self._traced: set[str] = set()
    self.changes += 1

  # Taking in ------------------------------------------------------------------

  def take_line(self, line: dict[str, Any], offset: int, length: int) -> None:
    """Takes in a line of rl/rollouts.jsonl."""
    row = self._row(line, rollout_log.FORMAT)
    if row is None:
      return
    if self.from_traces:
      self.clear()
      row = self._row(line, rollout_log.FORMAT)
      assert row is not None
    known = row.texts is not None  # its end is known: this is its fate
    fate = sys.intern(values.name(line.get('fate')))
    if known and fate == _OPEN:  # a run was stopped; it has finished since
      return
    row.line, row.fate = (offset, length), fate
    row.update = values.whole(line.get('update'))
    row.task = sys.intern(values.name(line.get('task'))) or row.task
    row.outcome = sys.intern(values.name(line.get('outcome'))) or row.outcome
    row.reward = values.number(line.get('reward'))
    row.reason = sys.intern(values.name(line.get('reason')))
    if not known:
      row.at = values.number(line.get('timestamp'))
      self._of_turns(row, line)
      self._of_calls(row, line)
    seconds = values.mapping(line.get('seconds'))
    row.total_s = values.number(seconds.get('total'))
    if row.exec_s is None:
      row.exec_s = values.number(seconds.get('execution'))

  def take_texts(self, line: dict[str, Any], offset: int, length: int) -> None:
    """Takes in a line of rl/finished.jsonl."""
    row = self._row(line, finished_log.FORMAT)
    if row is None:
      return
    if row.fate == _OPEN:
      row.fate, row.timed = WAITING, False
      at = next(
        i for i in reversed(range(len(self.rows))) if self.rows[i] is row
      )
      self.rows.append(self.rows.pop(at))
    row.texts = offset, length
    row.at = values.number(line.get('timestamp'))
    self._of_turns(row, line)
    self._of_calls(row, line)

  def _row(self, line: dict[str, Any], known: int) -> Row | None:
    """Returns the row of a line, a new one where it is the first."""
    prompt_id = values.name(line.get('prompt_id'))
    restart = values.whole(line.get('restart'))
    if line.get('format') != known or not prompt_id or restart is None:
      self.unknown += 1
      return None
    self.changes += 1
    key = prompt_id, restart
    row = self.by_key.get(key)
    if row is None:
      row = Row(len(self.rows), prompt_id, restart)
      row.group = sys.intern(values.name(line.get('group_id')))
      self.by_key[key] = row
      self.rows.append(row)
    return row

  def _of_turns(self, row: Row, line: dict[str, Any]) -> None:
    turns = values.objects(line.get('turns'))
    row.turns = len(turns)
    rewards = [values.number(turn.get('reward')) for turn in turns]
    given = [reward for reward in rewards if reward is not None]
    policies = [values.whole(turn.get('policy')) for turn in turns]
    known = [policy for policy in policies if policy is not None]
    row.policy = min(known, default=row.policy)
    if turns:
      last = turns[-1]
      row.task = sys.intern(values.name(last.get('task'))) or row.task
      row.outcome = sys.intern(values.name(last.get('outcome'))) or row.outcome
      row.action = sys.intern(values.name(last.get('action')))
      row.exec_s = sum(values.number(t.get('exec_s')) or 0.0 for t in turns)
      if row.fate == WAITING:
        row.reward = sum(given) if given else None
        row.reason = sys.intern(values.name(last.get('reason')))

  def _of_calls(self, row: Row, line: dict[str, Any]) -> None:
    if row.timed:  # both files have them
      return
    for call in values.objects(line.get('calls')):
      begun = values.number(call.get('begun'))
      seconds = values.number(call.get('seconds'))
      kind = values.name(call.get('kind'))
      if begun is not None and seconds is not None:
        self.calls.append((begun, begun + seconds, kind, row))
        row.timed = True

  def take_traces(self) -> None:
    """Takes in updates' traces, where an older version wrote nothing else."""
    folder = self.work / 'rl' / 'traces'
    try:
      names = sorted(p.name for p in folder.glob('update_*.jsonl'))
    except OSError:
      return
    for name in names:
      update = name.removeprefix('update_').removesuffix('.jsonl')
      if name in self._traced or not update.isdigit():
        continue
      self._traced.add(name)
      for lines in self._trace(int(update)).values():
        self._of_trace(int(update), [object_of(line) or {} for line in lines])

  def _of_trace(self, update: int, turns: list[dict[str, Any]]) -> None:
    last = turns[-1]
    line = {**last, 'format': 1, 'restart': 0, 'turns': turns}
    row = self._row(line, 1)
    if row is None:
      return
    self.from_traces += 1
    row.fate, row.update = rollout_log.Fate.TRAINED.value, update
    row.at = values.number(last.get('timestamp'))
    versions = [values.whole(turn.get('version')) for turn in turns]
    row.policy = min((v for v in versions if v is not None), default=None)
    row.group = row.prompt_id.rpartition('/')[0]
    rewards = [values.number(turn.get('reward')) for turn in turns]
    given = [reward for reward in rewards if reward is not None]
    self._of_turns(row, {'turns': turns})
    row.reward = sum(given) if given else None

  # Asking ---------------------------------------------------------------------

  def count(self) -> dict[str, Counter[str]]:
    """Returns how many rows there are by task, outcome and fate."""
    rows = self.rows
    return {
      'task': Counter(row.task for row in rows),
      'outcome': Counter(row.outcome for row in rows),
      'fate': Counter(row.fate for row in rows),
    }

  def newest(self, wanted: Filter) -> Iterator[Row]:
    """Yields rows that the filter admits, but for its text, newest first."""
    return (row for row in reversed(self.rows) if wanted.admits(row))

  def lines(self, row: Row) -> Iterator[bytes]:
    """Yields the rollout's lines as they stand in the files.

    First that of rl/rollouts.jsonl, then that with its texts; or the turns of the
    traces in its place. What cannot be read is left out.
    """
    for name, place in (
      (rollout_log.LOG, row.line),
      (finished_log.LOG, row.texts),
    ):
      if place is not None:
        try:
          yield read_at(self.work / name, *place)
        except OSError:
          continue
    if row.texts is None and row.update is not None:
      yield from self._trace(row.update).get(row.prompt_id, ())

  def has_text(self, row: Row, needles: tuple[bytes, ...]) -> bool:
    """Whether one of the texts stands in the rollout's lines."""
    for line in self.lines(row):
      low = line.lower()
      if any(needle in low for needle in needles):
        return True
    return False

  def _trace(self, update: int) -> dict[str, list[bytes]]:
    """Returns prompt id -> lines of an update's traces; the last few are kept."""
    path = self.work / 'rl' / 'traces' / f'update_{update:06d}.jsonl'
    try:
      size = path.stat().st_size
      for known, length, found in self._traces:
        if (known, length) == (update, size):
          return found
      found = _by_prompt(path)
    except OSError:
      return {}
    self._traces.append((update, size, found))
    return found


def _by_prompt(path: pathlib.Path) -> dict[str, list[bytes]]:
  found: dict[str, list[bytes]] = {}
  with open(open_plain(path), 'rb') as file:
    data = file.read(_TRACE_BYTES)
  for line in data.split(b'\n'):
    record = object_of(line)
    if record is not None:
      found.setdefault(values.name(record.get('prompt_id')), []).append(line)
  return found
