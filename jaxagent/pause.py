"""Lets a person edit the state from which a stopped trajectory resumes.

  python -m jaxagent.pause WORK_DIR list
  python -m jaxagent.pause WORK_DIR out TASK INDEX FOLDER
  python -m jaxagent.pause WORK_DIR in TASK INDEX FOLDER

Stop the run (Ctrl-C, or SIGTERM); `out` lays the trajectory's workspace into
FOLDER/files and the agent's last response, with its plan, into
FOLDER/response.txt; change them; `in` takes them back; the run's own command then
resumes from there. A person's changes are marked in the trajectory's record.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.execution import state_id
from jaxagent.envs.snapshots import Snapshots
from jaxagent.records import StepRecord
from jaxagent.rollout import under_way
from jaxagent.rollout.journal import Journal, JournalError
from jaxagent.rollout.requests import ExecutionResult
from jaxagent.runtime.text_models import printable
from jaxagent.sandbox.checks import MAX_FILE_MB

FILES, RESPONSE = 'files', 'response.txt'
STATE_ID = 'state_id.txt'  # names the state that a folder was made from
EDITED = 'edited'  # `records.TakenStep.edited`


class PauseError(ValueError):
  """A request that cannot be carried out; nothing was changed."""


def check_out(
  journal: pathlib.Path,
  store: Snapshots,
  task: str,
  index: int,
  folder: pathlib.Path,
) -> None:
  """Writes the state from which a trajectory resumes into a new folder."""
  state = _state(_paused(journal, task, index))
  if Journal(journal).is_written:
    raise PauseError(f'{journal}: its run goes on; stop it first.')
  if folder.exists() and any(folder.iterdir()):
    raise PauseError(f'{folder} is not empty; give another folder.')
  for name, content in workspace.visible(state.files).items():
    path = folder / FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_bytes(content, store))
  if state.history:
    # Bytes: a response may hold half a character, which UTF-8 has no place for.
    _response(folder).write_bytes(_encoded(state.history[-1].response))
  folder.mkdir(parents=True, exist_ok=True)
  (folder / STATE_ID).write_text(state.state_id)


def check_in(
  journal: pathlib.Path,
  store: Snapshots,
  task: str,
  index: int,
  folder: pathlib.Path,
) -> None:
  """Takes the folder's files and response as the state to resume from."""
  paused = _paused(journal, task, index)
  state = _state(paused)
  mark = folder / STATE_ID
  if mark.is_file() and mark.read_text() != state.state_id:
    raise PauseError(
      f'{task} {index} has gone on since {folder} was written; write it into '
      'another folder, and change that.'
    )
  files = _read(folder / FILES, state, store)
  script = state.script if state.script in files else ''
  if not script:
    raise PauseError(
      f'{folder / FILES} lacks {state.script}, the script that is run; put it back.'
    )
  history = state.history
  if history and _response(folder).is_file():
    text = _text(_response(folder))
    history = (*history[:-1], dataclasses.replace(history[-1], response=text))
  changed = dataclasses.replace(
    state,
    files=files,
    history=history,
    state_id=state_id(task, files, script, state.step, 'edited'),
  )
  if changed == dataclasses.replace(state, state_id=changed.state_id):
    raise PauseError(
      f'{folder} is unchanged; edit {FILES}/ or {RESPONSE} in it first.'
    )
  executed = dataclasses.replace(
    paused.executed,
    state=changed,
    kept={**paused.executed.kept, EDITED: store.put(changed)},
  )
  under_way.replace(
    Journal(journal), dataclasses.replace(paused, executed=executed)
  )
  mark.write_text(changed.state_id)


def _state(paused: ExecutionResult) -> types.State:
  """Returns the state from which the trajectory resumes."""
  assert paused.executed.state is not None
  return paused.executed.state


def _paused(journal: pathlib.Path, task: str, index: int) -> ExecutionResult:
  """Returns the last step of a trajectory that is under way."""
  known = _trajectories(journal)
  steps = known.get((task, index))
  if not steps:
    named = ', '.join(f'{t} {i}' for (t, i), s in sorted(known.items()) if s)
    raise PauseError(
      f'{task} {index} has taken no step; choose from those that have: '
      f'{named or "none"}.'
    )
  if ended := _ended(journal, steps):
    raise PauseError(
      f'{task} {index} has ended with {ended}; only a trajectory under way can be '
      'edited.'
    )
  return steps[-1]


def _trajectories(
  journal: pathlib.Path,
) -> dict[tuple[str, int], list[ExecutionResult]]:
  """Returns (task, index) -> steps of a trajectory; [] before the first."""
  found = {}
  for prompt_id, steps in under_way.executions(Journal(journal)).items():
    task, _, index = prompt_id.rpartition('-')
    if not index.isdecimal():
      continue  # another recipe's rollout, which has no workspace
    if all(isinstance(one.executed.record, StepRecord) for one in steps):
      found[task, int(index)] = steps
  return found


def _ended(journal: pathlib.Path, steps: Sequence[ExecutionResult]) -> str:
  """Returns how a trajectory ended; '' if it has not, as far as is known."""
  if steps[-1].executed.state is None:
    return 'a final answer'
  config = journal.parents[1] / 'config.json'
  if not config.is_file():
    return ''
  limits = json.loads(config.read_text(encoding='utf-8'))['eval']
  if len(steps) >= limits['max_steps']:
    return 'its last step (config.eval.max_steps)'
  if sum(one.executed.exec_s for one in steps) >= limits['time_limit_s']:
    return 'its time (config.eval.time_limit_s)'
  return ''


def _read(
  folder: pathlib.Path, state: types.State, store: Snapshots
) -> dict[str, str | types.Blob]:
  """Returns the folder's files; changed ones must be within a workspace's limits."""
  if not folder.is_dir():
    raise PauseError(
      f'{folder} is not a folder; `out` makes it, with the files in it.'
    )
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
  reserved = workspace.is_at(name, workspace.RESERVED)
  if workspace.inside(name) != name or reserved:
    raise PauseError(
      f'{name!r} is not a valid file name in a workspace; rename the file.'
    )
  if len(data) > MAX_FILE_MB << 20:
    raise PauseError(
      f'{name}: has {len(data) / 2**20:.1f} MB; a file may have {MAX_FILE_MB} MB at '
      'most.'
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
  return _encoded(content)


def _encoded(text: str) -> bytes:
  return text.encode('utf-8', 'surrogatepass')


def _response(folder: pathlib.Path) -> pathlib.Path:
  return folder / RESPONSE


def _text(path: pathlib.Path) -> str:
  try:
    # Bytes: text mode would take a carriage return for a line's end.
    return path.read_bytes().decode('utf-8', 'surrogatepass')
  except UnicodeDecodeError as error:
    raise PauseError(f'{path} is not UTF-8 text: {error}.') from error


def _journals(work: pathlib.Path) -> list[pathlib.Path]:
  return sorted((work / 'eval').glob('*.journal'))


def _list(work: pathlib.Path) -> None:
  for journal in _journals(work):
    for (task, index), steps in sorted(_trajectories(journal).items()):
      print(f'{journal.stem}  {task} {index}  {len(steps)} steps{_last(steps)}')


def _last(steps: Sequence[ExecutionResult]) -> str:
  """Returns the last step's action and outcome; '' before the first."""
  if not steps:
    return ''
  last = steps[-1].executed
  action = printable(str(last.made.action))
  return f'  {" ".join(action.split())}: {last.outcome.value}'


def main(argv: Sequence[str] | None = None) -> int:
  flags = _parser().parse_args(argv)
  try:
    if flags.command == 'list':
      _list(flags.work_dir)
      return 0
    journals = _journals(flags.work_dir)
    if len(journals) != 1:
      raise PauseError(
        f'{flags.work_dir}: {len(journals)} evaluations are under way, not exactly '
        'one. Stop a run during an evaluation, with Ctrl-C or SIGTERM.'
      )
    store = Snapshots(flags.work_dir / 'snapshots.sqlite')
    try:
      act = check_out if flags.command == 'out' else check_in
      act(journals[0], store, flags.task, flags.index, flags.folder)
    finally:
      store.close()
  except (ValueError, KeyError, OSError, JournalError) as error:
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
    ('out', 'write the state from which one resumes into a folder'),
    ('in', 'take the changed files and response back'),
  ):
    one = commands.add_parser(name, help=text)
    one.add_argument('task')
    one.add_argument('index', type=int)
    one.add_argument('folder', type=pathlib.Path)
  return made


if __name__ == '__main__':
  sys.exit(main())
