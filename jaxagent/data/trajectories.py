"""Trajectory files, their filters, ShareGPT form, and the state pool.

A trajectory file is append-only JSONL, one step a line. A crash can tear the
last line only: it is left out on reading, told, and cut off before the next
append. A damaged line before the last is an error that names the line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import random
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from jaxagent import types

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class StepRecord:
  """One step of a trajectory, as stored.

  trajectory_id and index identify the step; prompt and response are texts;
  state is where it started; score is m_{t+1} or None.
  """

  trajectory_id: str
  index: int
  task: str
  state: types.State
  prompt: str
  response: str
  action: str
  outcome: str
  valid_action: bool
  is_edit: bool
  score: float | None
  score_before: float | None
  exec_s: float
  observation: str = ''
  diff: str = ''
  reward: float | None = None
  actor: str = ''  # who acted; stand-ins are named here
  editor: str = ''
  done: bool = False
  extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def key(self) -> tuple[str, int]:
    return (self.trajectory_id, self.index)


class TrajectoryFileError(ValueError):
  """A trajectory file that is damaged before its last line."""


# --- State <-> JSON --------------------------------------------------------


def state_to_json(state: types.State) -> dict[str, Any]:
  record = dataclasses.asdict(state)
  record['files'] = dict(state.files)
  return record


def state_from_json(record: Mapping[str, Any]) -> types.State:
  """Inverse of state_to_json; fields of later versions are ignored."""
  names = {f.name for f in dataclasses.fields(types.State)}
  values = {k: v for k, v in record.items() if k in names}
  values['history'] = tuple(tuple(h) for h in values.get('history', ()))
  values['ideas'] = tuple(values.get('ideas', ()))
  return types.State(**values)


def step_to_json(step: StepRecord) -> dict[str, Any]:
  record = {
    f.name: getattr(step, f.name)
    for f in dataclasses.fields(StepRecord)
    if f.name != 'state'
  }
  record['extra'] = dict(step.extra)
  record['state'] = state_to_json(step.state)
  return record


def step_from_json(record: Mapping[str, Any]) -> StepRecord:
  names = {f.name for f in dataclasses.fields(StepRecord)}
  values = {k: v for k, v in record.items() if k in names}
  values['state'] = state_from_json(values['state'])
  return StepRecord(**values)


def record_from_result(
  result: Any,
  *,
  trajectory_id: str,
  index: int,
  state: types.State,
  prompt: str,
  response: str,
  actor: str = '',
  editor: str = '',
  reward: float | None = None,
  extra: Mapping[str, Any] | None = None,
) -> StepRecord:
  """Builds a record from envs.step_env.StepResult."""
  return StepRecord(
    trajectory_id=trajectory_id,
    index=index,
    task=state.task,
    state=state,
    prompt=prompt,
    response=response,
    action=result.action,
    outcome=result.outcome.value,
    valid_action=result.valid_action,
    is_edit=result.is_edit,
    score=result.score,
    score_before=result.score_before,
    exec_s=result.exec_s,
    observation=result.observation,
    diff=result.diff,
    reward=reward,
    actor=actor,
    editor=editor,
    done=result.state is None,
    extra=extra or {},
  )


# --- Files -----------------------------------------------------------------


def read_jsonl(path: str | pathlib.Path) -> tuple[list[dict[str, Any]], int]:
  """(records, bytes of the torn last line or 0)."""
  path = pathlib.Path(path)
  if not path.exists():
    return [], 0
  data = path.read_bytes()
  records: list[dict[str, Any]] = []
  lines = data.split(b'\n')
  torn = lines.pop()  # b'' when the file ends as it should
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      records.append(json.loads(line))
    except ValueError as error:
      raise TrajectoryFileError(
        f'{path}:{number} is damaged ({error}); remove that line or restore '
        'the file from a copy.'
      ) from error
  if torn:
    log.warning(
      '%s: the last line was cut off (%d bytes); it is left out.',
      path, len(torn),
    )
  return records, len(torn)


def read_steps(path: str | pathlib.Path) -> list[StepRecord]:
  """Steps of a file, each (trajectory, index) once, the first one kept."""
  records, _ = read_jsonl(path)
  return dedup_keys(step_from_json(r) for r in records)


class TrajectoryWriter:
  """Appends steps; a torn last line is cut off first. Not thread-safe.

  Attributes:
    torn_bytes: what was cut off.
  """

  def __init__(self, path: str | pathlib.Path, *, sync: bool = False):
    self.path = pathlib.Path(path)
    self.path.parent.mkdir(parents=True, exist_ok=True)
    self.torn_bytes = self._cut_torn_line()
    self._file = self.path.open('ab')
    self._sync = sync

  def _cut_torn_line(self) -> int:
    if not self.path.exists():
      return 0
    size = self.path.stat().st_size
    with self.path.open('rb+') as file:
      data = file.read()
      keep = data.rfind(b'\n') + 1
      if keep < size:
        file.truncate(keep)
        log.warning('%s: cut %d bytes of a torn line.', self.path, size - keep)
    return size - keep

  def append(self, steps: Iterable[StepRecord]) -> None:
    """Writes whole lines in one go and flushes them to the kernel."""
    lines = b''.join(
      json.dumps(step_to_json(s), ensure_ascii=False).encode() + b'\n'
      for s in steps
    )
    self._file.write(lines)
    self._file.flush()
    if self._sync:
      os.fsync(self._file.fileno())

  def close(self) -> None:
    self._file.close()

  def __enter__(self) -> TrajectoryWriter:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


# --- Filters ---------------------------------------------------------------


def dedup_keys(steps: Iterable[StepRecord]) -> list[StepRecord]:
  """Each (trajectory, index) once: a resumed job may write one again."""
  seen: dict[tuple[str, int], StepRecord] = {}
  for step in steps:
    seen.setdefault(step.key, step)
  return list(seen.values())


def dedup_content(steps: Iterable[StepRecord]) -> list[StepRecord]:
  """Each (task, prompt, response) once."""
  seen: dict[tuple[str, str, str], StepRecord] = {}
  for step in steps:
    seen.setdefault((step.task, step.prompt, step.response), step)
  return list(seen.values())


def valid_only(step: StepRecord) -> bool:
  """The format and the action were right."""
  return step.valid_action


def no_errors(step: StepRecord) -> bool:
  """Nothing failed: the run gave a score or there was nothing to run."""
  return step.valid_action and step.outcome == types.Outcome.OK.value


FILTERS: dict[str, Callable[[StepRecord], bool]] = {
  'all': lambda step: True,
  'valid': valid_only,
  'no_errors': no_errors,
  'edits': lambda step: step.is_edit and no_errors(step),
}


def apply_filters(
  steps: Iterable[StepRecord], names: Sequence[str]
) -> list[StepRecord]:
  """Steps that pass all named filters."""
  for name in names:
    if name not in FILTERS:
      raise ValueError(
        f'unknown filter {name!r}; choose among {", ".join(FILTERS)}.'
      )
  return [s for s in steps if all(FILTERS[n](s) for n in names)]


def by_trajectory(
  steps: Iterable[StepRecord],
) -> dict[str, list[StepRecord]]:
  """Trajectory id -> its steps in order."""
  groups: dict[str, list[StepRecord]] = {}
  for step in steps:
    groups.setdefault(step.trajectory_id, []).append(step)
  for group in groups.values():
    group.sort(key=lambda s: s.index)
  return groups


# --- ShareGPT --------------------------------------------------------------


def to_sharegpt(steps: Sequence[StepRecord]) -> dict[str, Any]:
  """One trajectory as a conversation: prompt or observation, response, ..."""
  turns = []
  for position, step in enumerate(steps):
    human = step.prompt
    if position:
      human = f'Observation: {steps[position - 1].observation}\n{step.prompt}'
    turns.append({'from': 'human', 'value': human})
    turns.append({'from': 'gpt', 'value': step.response})
  return {'id': steps[0].trajectory_id, 'conversations': turns}


def export_sharegpt(
  steps: Iterable[StepRecord], path: str | pathlib.Path
) -> int:
  """Writes a JSON list of conversations; returns how many."""
  rows = [to_sharegpt(group) for group in by_trajectory(steps).values()]
  pathlib.Path(path).write_text(
    json.dumps(rows, ensure_ascii=False, indent=1) + '\n'
  )
  return len(rows)


def import_sharegpt(
  path: str | pathlib.Path,
) -> list[list[dict[str, str]]]:
  """Conversations as chat messages (role, content); system turns kept.

  Reads a JSON list or JSONL. Raises ValueError naming the row that is not a
  ShareGPT conversation.
  """
  roles = {
    'human': 'user', 'user': 'user', 'observation': 'user',
    'gpt': 'assistant', 'assistant': 'assistant', 'function_call': 'assistant',
    'system': 'system',
  }
  text = pathlib.Path(path).read_text()
  rows = (
    json.loads(text)
    if text.lstrip().startswith('[')
    else [json.loads(line) for line in text.splitlines() if line.strip()]
  )
  chats = []
  for number, row in enumerate(rows):
    turns = row.get('conversations') if isinstance(row, dict) else None
    if not isinstance(turns, list):
      raise ValueError(f"{path}: row {number} has no list 'conversations'.")
    chat = []
    for turn in turns:
      if turn.get('from') not in roles:
        raise ValueError(
          f'{path}: row {number} has the speaker {turn.get("from")!r}; known '
          f'are {", ".join(roles)}.'
        )
      chat.append({'role': roles[turn['from']], 'content': turn['value']})
    chats.append(chat)
  return chats


# --- State pool ------------------------------------------------------------


def content_key(state: types.State) -> str:
  """Hash of the script that a state starts from (its content only)."""
  text = state.files.get(state.script, '')
  return hashlib.sha256(text.encode()).hexdigest()


def side_of(key: str, eval_fraction: float) -> str:
  """'train' or 'eval' by the content hash alone: stable across runs."""
  share = int(key[:8], 16) / 0x1_0000_0000
  return 'eval' if share < eval_fraction else 'train'


class StatePool:
  """States to draw prompts from, one side of a content-disjoint split.

  A script's content decides its side, so no training state shares a script
  with an evaluation state. Equal (task, script, step outcome) states are
  held once.
  """

  def __init__(self, states: Sequence[types.State]):
    self.states = list(states)

  def __len__(self) -> int:
    return len(self.states)

  def __getitem__(self, index: int) -> types.State:
    return self.states[index]

  def __iter__(self) -> Iterator[types.State]:
    return iter(self.states)

  @property
  def content_keys(self) -> set[str]:
    return {content_key(s) for s in self.states}

  def by_task(self) -> dict[str, list[types.State]]:
    groups: dict[str, list[types.State]] = {}
    for state in self.states:
      groups.setdefault(state.task, []).append(state)
    return groups

  def balanced(self, n: int, rng: random.Random) -> StatePool:
    """n states, as evenly over tasks as their numbers allow, shuffled."""
    groups = {t: list(g) for t, g in sorted(self.by_task().items())}
    for group in groups.values():
      rng.shuffle(group)
    chosen: list[types.State] = []
    while len(chosen) < n and any(groups.values()):
      for group in groups.values():
        if group and len(chosen) < n:
          chosen.append(group.pop())
    rng.shuffle(chosen)
    return StatePool(chosen)

  def save(self, path: str | pathlib.Path) -> None:
    """JSONL, written whole and moved into place. Shared files are stored
    once, by content hash."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    blobs: dict[str, str] = {}
    lines = []
    for state in self.states:
      record = state_to_json(state)
      refs = {}
      for name, text in state.files.items():
        ref = hashlib.sha256(text.encode()).hexdigest()[:32]
        blobs[ref] = text
        refs[name] = ref
      record['files'] = refs
      lines.append(json.dumps(record, ensure_ascii=False))
    head = json.dumps({'version': 1, 'blobs': blobs}, ensure_ascii=False)
    partial = path.with_name(path.name + '.partial')
    partial.write_text('\n'.join([head, *lines]) + '\n')
    os.replace(partial, path)

  @classmethod
  def load(cls, path: str | pathlib.Path) -> StatePool:
    records, torn = read_jsonl(path)
    if not records or torn or records[0].get('version') != 1:
      raise TrajectoryFileError(
        f'{path} is no whole state pool; delete it and it is built again.'
      )
    blobs = records[0]['blobs']
    states = []
    for record in records[1:]:
      record['files'] = {n: blobs[r] for n, r in record['files'].items()}
      states.append(state_from_json(record))
    return cls(states)


def build_pools(
  steps: Iterable[StepRecord] | Iterable[types.State],
  *,
  eval_fraction: float = 0.2,
  tasks: Sequence[str] | None = None,
) -> dict[str, StatePool]:
  """{'train': pool, 'eval': pool}, disjoint by the scripts' content.

  States without a score are left out (equation 6 needs m_t).
  """
  if not 0 <= eval_fraction < 1:
    raise ValueError(f'eval_fraction={eval_fraction} must be in [0, 1).')
  sides: dict[str, dict[tuple, types.State]] = {'train': {}, 'eval': {}}
  for item in steps:
    state = item if isinstance(item, types.State) else item.state
    if state.score is None or (tasks is not None and state.task not in tasks):
      continue
    key = content_key(state)
    same = (state.task, key, state.last_outcome, state.step)
    sides[side_of(key, eval_fraction)].setdefault(same, state)
  return {name: StatePool(list(s.values())) for name, s in sides.items()}
