"""A person changes what a stopped trajectory goes on from.

  python -m jaxagent.pause WORK_DIR list
  python -m jaxagent.pause WORK_DIR out TASK INDEX FOLDER
  python -m jaxagent.pause WORK_DIR in TASK INDEX FOLDER

Stop the run (Ctrl-C, or SIGTERM); `out` lays the trajectory's workspace into
FOLDER/files and the agent's last response, with its plan, into
FOLDER/response.txt; change them; `in` takes them back; the run's own command then
goes on from there. What a person changed is marked in the trajectory's record.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.execution import state_id
from jaxagent.envs.snapshots import Snapshots
from jaxagent.loops import walked
from jaxagent.loops.errors import UserError
from jaxagent.loops.text_models import printable
from jaxagent.sandbox.checks import MAX_FILE_MB

FILES, RESPONSE = 'files', 'response.txt'


class PauseError(ValueError):
  """What was asked cannot be done; nothing was changed."""


def check_out(
  log: pathlib.Path,
  store: Snapshots,
  task: str,
  index: int,
  folder: pathlib.Path,
) -> None:
  """Lays what a trajectory goes on from into a new folder."""
  state = _paused(log, store, task, index)
  if folder.exists() and any(folder.iterdir()):
    raise PauseError(f'{folder} is not empty; name another.')
  for name, content in workspace.visible(state.files).items():
    path = folder / FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_bytes(content, store))
  if state.history:
    _response(folder).write_text(state.history[-1].response, encoding='utf-8')


def check_in(
  log: pathlib.Path,
  store: Snapshots,
  task: str,
  index: int,
  folder: pathlib.Path,
) -> None:
  """Takes the folder's files and response as those to go on from."""
  state = _paused(log, store, task, index)
  files = _read(folder / FILES, state, store)
  script = state.script if state.script in files else ''
  if not script:
    raise PauseError(f'{folder / FILES} lacks {state.script}, which is run.')
  history = state.history
  if history and _response(folder).is_file():
    said = _text(_response(folder))
    history = (*history[:-1], dataclasses.replace(history[-1], response=said))
  changed = dataclasses.replace(
    state,
    files=files,
    history=history,
    state_id=state_id(task, files, script, state.step, 'edited'),
  )
  if changed == dataclasses.replace(state, state_id=changed.state_id):
    raise PauseError(f'{folder} is what it was; nothing to take in.')
  key = store.put(changed)
  walked.StepLog(log).append(task, index, {walked.EDITED: key})


def _paused(
  log: pathlib.Path, store: Snapshots, task: str, index: int
) -> types.State:
  """What the trajectory goes on from."""
  if not log.is_file():
    raise PauseError(f'{log}: no trajectory is under way.')
  lines = walked.StepLog(log).read().get((task, index))
  if not lines:
    raise PauseError(
      f'{task} {index} has made no step; those that have: {_named(log)}.'
    )
  state = store.get(lines[-1].get(walked.EDITED) or lines[-1]['workspace_id'])
  if ended := _ended(log, lines):
    raise PauseError(f'{task} {index} has ended with {ended}.')
  return state


def _ended(log: pathlib.Path, lines: Sequence[Mapping[str, Any]]) -> str:
  """What a trajectory ended with; '' where it goes on, as far as can be told."""
  if lines[-1].get('done'):
    return 'a final answer'
  config = log.parents[1] / 'config.json'
  if not config.is_file():
    return ''
  limits = json.loads(config.read_text(encoding='utf-8'))['eval']
  steps = walked.steps(lines)
  if len(steps) >= limits['max_steps']:
    return 'its last step (config.eval.max_steps)'
  if sum(step.record.exec_s for step in steps) >= limits['time_limit_s']:
    return 'its time (config.eval.time_limit_s)'
  return ''


def _named(log: pathlib.Path) -> str:
  made = walked.StepLog(log).read()
  return ', '.join(f'{task} {index}' for task, index in sorted(made)) or 'none'


def _read(
  folder: pathlib.Path, state: types.State, store: Snapshots
) -> dict[str, str | types.Blob]:
  """The folder's files; those that are changed within a workspace's limits."""
  if not folder.is_dir():
    raise PauseError(f'{folder} is no folder.')
  found = {
    path.relative_to(folder).as_posix(): path
    for path in sorted(folder.rglob('*'))
    if path.is_file() and not path.is_symlink()
  }
  files: dict[str, str | types.Blob] = {
    name: value
    for name, value in state.files.items()
    if name in found or workspace.within(name, workspace.BACKUP)
  }
  for name, path in found.items():
    data, old = path.read_bytes(), state.files.get(name)
    if old is None or _bytes(old, store) != data:
      files = _with_changed(files, name, data, store)
  return files


def _with_changed(
  files: workspace.Files, name: str, data: bytes, store: Snapshots
) -> dict[str, str | types.Blob]:
  ours = workspace.is_at(name, workspace.RESERVED)
  if workspace.inside(name) != name or ours:
    raise PauseError(f'{name!r} is no name that a workspace can hold.')
  if len(data) > MAX_FILE_MB << 20:
    raise PauseError(
      f'{name}: a run is given files of {MAX_FILE_MB} MB at most.'
    )
  content: str | types.Blob | None = workspace.as_text(data)
  if content is None and (content := store.put_bytes(data)) is None:
    raise PauseError(f'{name}: the store of states has no room for it.')
  try:
    return workspace.with_file(files, name, content)
  except workspace.ActionFailed as error:
    raise PauseError(f'{name}: {error}') from error


def _bytes(content: str | types.Blob, store: Snapshots) -> bytes:
  if isinstance(content, types.Blob):
    return store.get_bytes(content)
  return content.encode('utf-8', 'surrogatepass')


def _response(folder: pathlib.Path) -> pathlib.Path:
  return folder / RESPONSE


def _text(path: pathlib.Path) -> str:
  try:
    # Bytes: text mode would take a carriage return for a line's end.
    return path.read_bytes().decode('utf-8')
  except UnicodeDecodeError as error:
    raise PauseError(f'{path} is not UTF-8 text: {error}.') from error


def _logs(work: pathlib.Path) -> list[pathlib.Path]:
  return sorted((work / 'eval').glob('*.steps.jsonl'))


def _list(work: pathlib.Path) -> None:
  for log in _logs(work):
    for (task, index), lines in sorted(walked.StepLog(log).read().items()):
      steps = walked.steps(lines)
      last = steps[-1].record if steps else None
      action = ' '.join(printable(str(last and last.action)).split())
      print(
        f'{log.name.removesuffix(".steps.jsonl")}  {task} {index}  '
        f'{len(steps)} steps  {action}: {last and last.outcome.value}'
      )


def main(argv: Sequence[str] | None = None) -> int:
  flags = _parser().parse_args(argv)
  try:
    if flags.command == 'list':
      _list(flags.work_dir)
      return 0
    logs = _logs(flags.work_dir)
    if len(logs) != 1:
      raise PauseError(
        f'{flags.work_dir}: {len(logs)} evaluations are under way; there must '
        'be one.'
      )
    store = Snapshots(flags.work_dir / 'snapshots.sqlite')
    try:
      act = check_out if flags.command == 'out' else check_in
      act(logs[0], store, flags.task, flags.index, flags.folder)
    finally:
      store.close()
  except (UserError, ValueError, KeyError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


def _parser() -> argparse.ArgumentParser:
  made = argparse.ArgumentParser(
    prog='python -m jaxagent.pause',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  made.add_argument('work_dir', type=pathlib.Path)
  commands = made.add_subparsers(dest='command', required=True)
  commands.add_parser('list', help='trajectories under way')
  for name, text in (
    ('out', 'lay out what one goes on from'),
    ('in', 'take back what was changed'),
  ):
    one = commands.add_parser(name, help=text)
    one.add_argument('task')
    one.add_argument('index', type=int)
    one.add_argument('folder', type=pathlib.Path)
  return made


if __name__ == '__main__':
  sys.exit(main())
