"""Trajectory records in the form of MLAgentBench's `trace.json`.

  {steps: [{action: {name, args}, observation, timestamp}],
   low_level_steps: [the same], action_infos: {name: info}, task_description}

as `MLAgentBench/environment.py` and `schema.py` write it (commit 5d71205), so
that tools made for their traces read these. No jax here.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.envs import parser, prompts
from jaxagent.records import Trajectory
from jaxagent.records.trajectory import name_of
from jaxagent.types import Outcome, Record

FILE = 'trace.json'
RESEARCH_LOG = 'research_log.log'
# In place of a file's text that the record does not hold.
NOT_RECORDED = '[not recorded]'
Workspace = Mapping[str, str] | None  # path -> text
# Actions that the original's environment carries out itself; all others are
# made of these (`is_primitive` of its action_infos).
PRIMITIVE = (
  'List Files',
  'Read File',
  'Write File',
  'Append File',
  'Copy File',
  'Undo Edit Script',
  'Execute Script',
  'Python REPL',
  'Request Help',
  'Final Answer',
)
_READS = {
  'Understand File': 'file_name',
  'Inspect Script Lines': 'script_name',
  'Edit Script (AI)': 'script_name',
  'Edit Script Segment (AI)': 'script_name',
}
_REFUSED = (Outcome.INVALID_FORMAT, Outcome.INVALID_ACTION)
_RAN = {
  o
  for o in Outcome
  if o.is_corner_case
  or o
  in (Outcome.SCRIPT_ERROR, Outcome.NO_SUBMISSION, Outcome.INVALID_SUBMISSION)
}
_FUNCTIONS = {
  'Append Summary to Research Log': 'append_to_research_log',
  'Edit Script (AI)': 'edit_script',
  'Edit Script Segment (AI)': 'edit_script_lines',
  'Final Answer': '<lambda>',
}


def ran(record: Record) -> bool:
  """Whether a script was executed in the step: by its outcome and score."""
  return record.outcome in _RAN or record.score_after is not None


def entries_of(record: Record) -> dict[str, str]:
  """Entry -> text of the response; {} where nothing can be made of it.

  Records from before `entries` was kept, and those of what was refused, hold the
  response alone.
  """
  if record.entries:
    return dict(record.entries)
  try:
    return parser.split_entries(record.response, strict=False)
  except parser.ResponseError:
    return {}


def action_of(record: Record) -> tuple[str, dict[str, Any]]:
  """Name and arguments of the step's action, ('', {}) where it has none.

  An action that was refused keeps the name that the response gives it, and the
  arguments as far as they can be read. (No action is without any.)
  """
  name = record.action or entries_of(record).get('Action', '')
  if record.args:
    return str(name), dict(record.args)
  try:
    parsed = parser.parse_response(record.response, mode='compatible')
  except parser.ResponseError:
    return str(name), {}
  return str(name), dict(parsed.args)


def mlagentbench_trace(
  trajectory: Trajectory,
  task_description: str,
  workspaces: Sequence[Workspace] | None = None,
) -> dict[str, Any]:
  """A trajectory as MLAgentBench's trace; JSON-able.

  trajectory: where a step lacks its time the steps are numbered instead: their
    order is what is known.
  workspaces: of each step, path -> text after it; None where that is not known.

  Two differences: the original's agent keeps a response that does not parse
  from its environment, here it is a step like any other; and the execution
  that belongs to an edit here (paper 000, 4.3) is a low-level step.

  Raises ValueError for a time that is not finite, or a description that is no text.
  """
  if not isinstance(task_description, str):
    raise ValueError(f'task_description is {task_description!r}, not a text.')
  own = [step.record for step in trajectory.steps]
  times = _times(trajectory, own)
  steps, low = [], []
  before: Workspace = None
  for record, time, after in zip(
    own, times, workspaces or [None] * len(own), strict=True
  ):
    name, args = action_of(record)
    steps.append(_logged(name, args, record.observation, time))
    parts = _low_level(record, name, args, before, after)
    for place, part in enumerate(parts):
      low.append(_logged(*part, _just_before(time, len(parts) - place)))
    before = after
  return {
    'steps': steps,
    'low_level_steps': low,
    'action_infos': action_infos(),
    'task_description': task_description,
  }


def action_infos() -> dict[str, dict[str, Any]]:
  """Action -> what the original tells of it (paper 000, table 5)."""
  infos = {}
  for name, (purpose, usage, result) in prompts.TOOLS.items():
    function = _FUNCTIONS.get(name) or '_'.join(name.lower().split())
    infos[name] = {
      'name': name,
      'description': purpose,
      'usage': dict(usage),
      'return_value': result,
      'function': function,
      'is_primitive': name in PRIMITIVE,
    }
  return infos


def write(folder: str | os.PathLike, trace: Mapping[str, Any]) -> pathlib.Path:
  """Checks a trace and writes `folder/trace.json`; old or new, never half."""
  path = pathlib.Path(folder) / FILE
  check(trace, str(path))
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_name(f'{path.name}.{os.getpid()}.part')
  try:
    with part.open('w', encoding='utf-8') as file:
      json.dump(trace, file, indent=4, allow_nan=False)
      file.flush()
      os.fsync(file.fileno())
    os.replace(part, path)
  finally:
    part.unlink(missing_ok=True)
  return path


def read(path: str | os.PathLike) -> dict[str, Any]:
  """Reads and checks a trace; ValueError names the file and the field."""
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
    trace = json.loads(text, parse_constant=_no_constant)
  except (ValueError, RecursionError) as error:
    raise ValueError(f'{path} is not JSON: {error}') from error
  check(trace, str(path))
  return trace


def check(trace: Any, where: str = FILE) -> None:
  """Raises ValueError, naming the field, where it is no MLAgentBench trace."""
  _fields(
    trace,
    where,
    'trace',
    ('steps', 'low_level_steps', 'action_infos', 'task_description'),
  )
  _need(trace['task_description'], str, where, 'task_description', 'a text')
  for part in ('steps', 'low_level_steps'):
    _need(trace[part], list, where, part, 'a list')
    for index, step in enumerate(trace[part]):
      _check_step(step, where, f'{part}[{index}]')
  _need(trace['action_infos'], dict, where, 'action_infos', 'an object')
  for name, info in trace['action_infos'].items():
    _check_info(info, where, f'action_infos.{name}')


def _check_step(step: Any, where: str, place: str) -> None:
  _fields(step, where, place, ('action', 'observation', 'timestamp'))
  _fields(step['action'], where, f'{place}.action', ('name', 'args'))
  _need(step['action']['name'], str, where, f'{place}.action.name', 'a text')
  args = f'{place}.action.args'
  _need(step['action']['args'], dict, where, args, 'an object')
  _need(step['observation'], str, where, f'{place}.observation', 'a text')
  if not _is_time(step['timestamp']):
    _wrong(step['timestamp'], where, f'{place}.timestamp', 'finite seconds')


def _check_info(info: Any, where: str, place: str) -> None:
  texts = ('name', 'description', 'return_value', 'function')
  _fields(info, where, place, (*texts, 'usage', 'is_primitive'))
  for name in texts:
    _need(info[name], str, where, f'{place}.{name}', 'a text')
  _need(info['usage'], dict, where, f'{place}.usage', 'an object')
  primitive = f'{place}.is_primitive'
  _need(info['is_primitive'], bool, where, primitive, 'true or false')


def _fields(value: Any, where: str, place: str, names: Sequence[str]) -> None:
  _need(value, dict, where, place, 'an object')
  for name in names:
    if name not in value:
      raise ValueError(f'{where}: {place} lacks {name!r}.')
  extra = sorted(set(map(str, value)) - set(names))
  if extra:
    raise ValueError(f'{where}: {place} has no field {extra[0]!r}.')


def _need(value: Any, kind: type, where: str, place: str, wanted: str) -> None:
  if not isinstance(value, kind):
    _wrong(value, where, place, wanted)


def _wrong(value: Any, where: str, place: str, wanted: str) -> None:
  raise ValueError(
    f'{where}: {place} is {str(value)[:80]!r}; it must be {wanted}.'
  )


def _no_constant(name: str) -> None:
  raise ValueError(f'the constant {name} is no number')


def _is_time(value: Any) -> bool:
  number = isinstance(value, int | float) and not isinstance(value, bool)
  return number and math.isfinite(value)


def _times(trajectory: Trajectory, records: Sequence[Record]) -> list[float]:
  times = [record.timestamp for record in records]
  if any(time is None for time in times):
    return [float(index) for index in range(len(records))]
  for index, time in enumerate(times):
    if not _is_time(time):
      raise ValueError(
        f'{name_of(trajectory)}: steps[{index}].timestamp is {time!r}; it must '
        'be finite seconds.'
      )
  return [float(time) for time in times if time is not None]  # each is, here


def _just_before(time: float, floats: int) -> float:
  """Nearest numbers below: the original resumes by `low < step` in time."""
  for _ in range(floats):
    time = math.nextafter(time, -math.inf)
  return time


def _logged(name: str, args: dict, observation: str, time: float) -> dict:
  return {
    'action': {'name': name, 'args': args},
    'observation': observation,
    'timestamp': time,
  }


def _low_level(
  record: Record,
  name: str,
  args: Mapping[str, Any],
  before: Workspace,
  after: Workspace,
) -> list[tuple[str, dict, str]]:
  """Returns the original's log below one action: [(action, args, observation)].

  Empty for an action that was refused: its decorator logs an action when it
  has returned, and a refusal is raised. It does not call Final Answer.
  before, after: the workspace as the step found and left it, None where unknown.
  """
  refused = record.outcome in _REFUSED
  if refused or name not in parser.ACTION_ARGS or name == 'Final Answer':
    return []
  if name in PRIMITIVE:
    return [(name, dict(args), record.observation)]
  if name == 'Append Summary to Research Log':
    content = f'{args.get("content", "")}\n'
    target = {'file_name': RESEARCH_LOG, 'content': content}
    told = f'File {RESEARCH_LOG} appended successfully.'
    return [('Append File', target, told)]
  edit = name in parser.EDIT_ACTIONS
  source = str(args.get(_READS.get(name, ''), RESEARCH_LOG))
  # What only reads leaves the files as they were.
  held = before if edit or before is not None else after
  parts: list[tuple[str, dict, str]] = [
    ('Read File', {'file_name': source}, _text(held, source))
  ]
  if not edit:
    return parts
  path = str(args.get('save_name', NOT_RECORDED))
  content = _text(after, path)
  # The file after a failed edit is the old one again where it was undone.
  if record.outcome is not Outcome.OK:
    if before is None or content == _text(before, path):
      content = NOT_RECORDED
  written = {'file_name': path, 'content': content}
  told = f'File {path} written successfully.'
  parts.append(('Write File', written, told))
  if ran(record):
    script = {'script_name': path}
    parts.append(('Execute Script', script, record.observation))
  return parts


def _text(files: Any, name: str) -> str:
  """A file's text in a workspace; a path may be written as ./path."""
  if not isinstance(files, Mapping):
    return NOT_RECORDED
  text = files.get(name, files.get(os.path.normpath(name)))
  return text if isinstance(text, str) else NOT_RECORDED
