"""The actions as MLAgentBench's environment tells them, byte for byte.

For runs that are compared with paper 002's. Observations follow its environment
at 5d71205 (`tests/golden/mlagentbench_observations.json`), its holes included:
success and failure begin alike, a script that fails loses what it printed, a
read-only file is recognised by its exact spelling alone. The rules behind
them stay this package's: no path leaves the workspace, the task's data and
read-only files do not change for a script (a write that the original would let
through is seen by reading actions alone), and a submission is written by
running the script. Files that a run leaves and the next step will not have are
named at the end of its answer: the original keeps all and has no words for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxagent import types
from jaxagent.envs import parser, prompts, workspace
from jaxagent.envs.actions import (
  RESEARCH_LOG,
  UNDONE,
  Actions,
  Effect,
  Scene,
  unified,
)
from jaxagent.envs.execution import Run
from jaxagent.envs.workspace import ActionFailed

BACKUP_FOLDER = 'backup/'  # its own is there from the start
SHUT_DOWN = (
  'The environment has shut down because the maximum number of steps or time '
  'has been reached. Please submit your final answer.'
)
# As its answer to an unknown action lists them; Request Help is for its
# interactive mode.
ACTIONS = (
  'List Files', 'Read File', 'Write File', 'Append File', 'Copy File',
  'Undo Edit Script', 'Execute Script', 'Python REPL', 'Final Answer',
  'Understand File', 'Append Summary to Research Log', 'Inspect Script Lines',
  'Edit Script (AI)', 'Edit Script Segment (AI)', 'Reflection',
  'Retrieval from Research Log',
)  # fmt: skip
_OUTSIDE = 'cannot access file {} because it is not in the work directory.'
_READ_ONLY = 'cannot write file {} because it is a read-only file.'
# What each action says of a failure that has no words of its own.
_CANNOT = {
  'List Files': 'Cannot list file in the {dir_path} directory',
  'Read File': 'cannot read file {file_name}',
  'Understand File': 'cannot read file {file_name}',
  'Write File': 'cannot write file {file_name}',
  'Append File': 'cannot append file {file_name}',
  'Copy File': 'File {source} copy to {destination} failed. Check whether the '
  'source and destinations are valid.',
  'Inspect Script Lines': 'cannot find script {script_name}',
  'Undo Edit Script': 'There is no change to undo.',
  'Execute Script': 'The file {script_name} does not exist.',
  'Edit Script (AI)': 'cannot write file {save_name}',
  'Edit Script Segment (AI)': 'cannot write file {save_name}',
  'Append Summary to Research Log': f'cannot append file {RESEARCH_LOG}',
  'Reflection': f'cannot read file {RESEARCH_LOG}',
  'Retrieval from Research Log': f'cannot read file {RESEARCH_LOG}',
}


class Said(ActionFailed):
  """A failure whose message is the original's."""


class MlAgentBenchActions(Actions):
  """The dialect `mlagentbench`."""

  name = 'mlagentbench'
  streams_apart = True
  universal_newlines = True  # the original reads in text mode
  max_observation_chars = None

  def failed(
    self, action: str, args: Mapping[str, str], error: ActionFailed
  ) -> str:
    if isinstance(error, Said):
      return f'EnvError: {error}'
    if error.kind == 'outside':
      return f'EnvError: {_OUTSIDE.format(error.name)}'
    if error.kind == 'model':
      return f'LLMError: {error}'
    if error.kind == 'read_only':
      return f'EnvError: {_READ_ONLY.format(error.name)}'
    if action in parser.EDIT_ACTIONS and not error.kind:
      return f'EnvError: {error}'  # why the editor refused
    if action not in _CANNOT:
      return f'EnvError: Error executing {action}.'
    return f'EnvError: {_CANNOT[action].format(**args)}'

  def not_understood(self, error: parser.ResponseError) -> str:
    if isinstance(error, parser.UnknownAction):
      return (
        f'Invalid action: {error.action}. Action did not execute. Please use '
        f'one of the following actions:\n{", ".join(ACTIONS)}'
      )
    if error.action in prompts.TOOLS:
      # Text that holds no arguments at all is answered without the prefix.
      prefix = 'EnvError: ' * isinstance(error, parser.ActionError)
      return f'{prefix}{usage(error.action)}'
    return str(error)

  # --- Reading -------------------------------------------------------------

  def read(self, scene: Scene, name: str, *, whole: bool = False) -> str:
    text = super().read(scene, name, whole=whole)
    return text if whole else workspace.universal_newlines(text)

  def list_files(self, scene: Scene, dir_path: str) -> Effect:
    names = workspace.listing(scene.files, scene.mounts, dir_path)
    if workspace.inside(dir_path or '.') == '.':
      names = sorted({*names, BACKUP_FOLDER})
    return Effect(
      ''.join(f'{name}\n' for name in names if not name.startswith('.'))
    )

  def inspect_lines(
    self,
    scene: Scene,
    script_name: str,
    start_line_number: str,
    end_line_number: str,
  ) -> Effect:
    start, end = _numbers(start_line_number, end_line_number)
    if end - start > 100:
      raise Said('the number of lines to display is limited to 100 lines')
    try:
      part, total = self.lines(scene, script_name, start, end)
      if end < 0:  # as a slice has it: from the file's end
        part, total = self.lines(scene, script_name, start, total + end)
    except ActionFailed as error:
      raise Said(f'cannot find script {script_name}') from error
    return Effect(
      f'Here are the lines (the file ends at line {total}):\n\n{part}'
    )

  # --- Changing ------------------------------------------------------------

  def target(self, scene: Scene, name: str) -> str:
    path = workspace.checked(name)
    if name in _read_only(scene) or _is_shown_data(scene, path):
      raise ActionFailed(f'{name!r} is read-only.', 'read_only', name)
    folder = posixpath.dirname(path)
    if (
      folder
      and folder not in scene.mounts
      and not any(
        workspace.within(other, folder)
        for other in workspace.visible(scene.files)
      )
    ):
      raise ActionFailed(f'there is no folder {folder!r}.', 'missing', name)
    if path in ('.', *scene.mounts) or workspace.is_at(
      path, workspace.RESERVED
    ):
      raise ActionFailed(f'{name!r} is a folder.')
    return workspace.can_be_laid_out(scene.files, scene.spec, name, path)

  def write_file(self, scene: Scene, file_name: str, content: str) -> Effect:
    path = self.target(scene, file_name)
    files = workspace.with_file(scene.files, path, content)
    return Effect(f'File {file_name} written successfully.', files=files)

  def append_file(self, scene: Scene, file_name: str, content: str) -> Effect:
    path = self.target(scene, file_name)
    try:
      old = self.read(scene, file_name, whole=True)
    except ActionFailed as error:
      if error.kind != 'missing':
        raise
      old = ''
    files = workspace.with_file(scene.files, path, old + content)
    return Effect(f'File {file_name} appended successfully.', files=files)

  def copy_file(self, scene: Scene, source: str, destination: str) -> Effect:
    content = self.content(scene, source)
    path = self.target(scene, destination)
    files = workspace.with_file(scene.files, path, content)
    return Effect(f'File {source} copied to {destination}', files=files)

  def undo_edit(self, scene: Scene, script_name: str) -> Effect:
    path = workspace.checked(script_name)
    try:
      files = workspace.undone(scene.files, path)
    except ActionFailed as error:
      if error.kind == 'missing':
        raise
      raise Said(
        f'Cannot undo the edit of file name {script_name}. Check the file name '
        'again.'
      ) from error
    text = workspace.universal_newlines(workspace.text(files, path))
    return Effect(
      f'Content of {script_name} after undo the most recent edit:\n{text}',
      files=files,
    )

  # --- Running -------------------------------------------------------------

  def report(self, script: str, run: Run) -> str:
    execution = run.execution
    if _was_stopped(execution):  # at a limit, which the original has none of
      return (
        f'EnvError: Something went wrong in executing {script}: {run.message}. '
        'Please check if it is ready to be executed.'
      )
    return (
      'The script has been executed. Here is the output:\n'
      f'{self._told(execution)}'
    )

  def _told(self, execution: types.Execution) -> str:
    failed = execution.exit_code != 0  # None, of one that died of a signal
    output = '' if failed else execution.output
    return workspace.universal_newlines(output or execution.errors)

  def printed(self, execution: types.Execution) -> str:
    if _was_stopped(execution):
      return f'EnvError: Something went wrong in executing: {execution.message}'
    failed = execution.exit_code != 0
    return execution.errors if failed else execution.output

  # --- Editing -------------------------------------------------------------

  def to_edit(self, scene: Scene, name: str) -> str:
    try:
      text = self.read(scene, name, whole=True)
      return workspace.universal_newlines(text)
    except ActionFailed as error:
      if error.kind != 'missing':
        raise
      with _writing(name):
        self.target(scene, name)  # it is made, empty
      return ''

  def backed_up(self, script: str, target: str) -> str:
    return workspace.checked(script)

  def edit(
    self, scene: Scene, script_name: str, edit_instruction: str, save_name: str
  ) -> Effect:
    old = self.to_edit(scene, script_name)
    new = scene.edited(old, edit_instruction).strip()
    return self._saved(scene, script_name, save_name, old, old, new)

  def edit_segment(
    self, scene: Scene, script_name: str, start_line_number: str, end_line_number: str,
    edit_instruction: str, save_name: str,
  ) -> Effect:  # fmt: skip
    start, end = _numbers(start_line_number, end_line_number)
    old = self.to_edit(scene, script_name)
    lines = old.split('\n')
    part = '\n'.join(lines[max(start - 1, 0) : end])
    new = '\n'.join(
      [
        '\n'.join(lines[: start - 1]),
        scene.edited(part, edit_instruction).strip(),
        '\n'.join(lines[end:]),
      ]
    )
    return self._saved(scene, script_name, save_name, old, part, new)

  def _saved(
    self,
    scene: Scene,
    script: str,
    save_name: str,
    old: str,
    part: str,
    new: Any,
  ) -> Effect:
    """part: what the answer compares the new file with."""
    path = workspace.checked(script)
    if path not in scene.files:  # for its undo copy
      with _writing(script):
        files = workspace.with_file(scene.files, path, old)
      scene = _with_files(scene, files)
    with _writing(save_name):
      target = self.target(scene, save_name)
      effect = self._after_edit(scene, script, old, new, target)
    text = (
      f'The edited file is saved to {save_name}. Here is the diff, please check '
      f'if the edit is correct and desirable:\n\n{unified(part, new)}'
    )
    if effect.run is not None and scene.after_edit == 'execute':
      text += f'\n{self.report(save_name, effect.run)}'
      text += f'\n{UNDONE}' * effect.undone + self.not_kept(effect.lost)
    return _told_as(effect, text)

  # --- Notes and questions --------------------------------------------------

  def log(self, scene: Scene) -> str:
    return self.read(scene, RESEARCH_LOG)

  def append_log(self, scene: Scene, content: str) -> Effect:
    effect = self.append_file(scene, RESEARCH_LOG, f'{content}\n')
    return _told_as(effect, 'Successfully appended to research log')

  def reflect(self, scene: Scene, things_to_reflect_on: str) -> Effect:
    effect = super().reflect(scene, things_to_reflect_on)
    return _told_as(effect, f'Reflection: {effect.observation}\n')

  def final_answer(self, scene: Scene, final_answer: str) -> Effect:
    return Effect('end')


def usage(action: str) -> str:
  """Returns the original's answer to arguments that it cannot use."""
  _, hints, _ = prompts.TOOLS[action]
  lines = ',\n            '.join(f'{k}: [{v}]' for k, v in hints.items())
  return (
    f'The action input for {action} needs to be a valid json with proper '
    'entries. You may have missed the comma between entries. Please use the '
    f'correct format and try again:\n{{\n            {lines}\n}}'
  )


def _was_stopped(execution: types.Execution) -> bool:
  """Whether the sandbox ended the run, and not the program itself or its signal."""
  outcome = execution.outcome
  ours = outcome.is_corner_case or outcome.is_infrastructure
  return execution.exit_code is None and ours


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
  """A failure that the original has no words for is that of writing the file."""
  try:
    yield
  except ActionFailed as error:
    if error.kind in ('', 'missing'):
      raise Said(f'cannot write file {name}') from error
    raise


def _read_only(scene: Scene) -> set[str]:
  """Names as the original lists them: './train.py', 'data/train.csv'."""
  return {
    name
    for name in _walked(scene)
    for pattern in scene.spec.read_only_files
    if fnmatch.fnmatch(name, pattern)
  }


def _is_shown_data(scene: Scene, path: str) -> bool:
  """Whether it is in a folder that the task shows read-only as a whole."""
  folder, slash, _ = path.partition('/')
  fixed = folder in scene.mounts and folder in scene.spec.read_only_files
  return bool(slash) and fixed


def _walked(scene: Scene) -> Iterator[str]:
  for path in workspace.visible(scene.files):
    if path.split('/')[0] not in scene.mounts:
      yield path if '/' in path else f'./{path}'
  for name, folder in scene.mounts.items():
    for real in folder.rglob('*'):
      if real.is_file():
        yield f'{name}/{real.relative_to(folder).as_posix()}'


def _numbers(start: str, end: str) -> Sequence[int]:
  try:
    return int(start), int(end)
  except ValueError:
    raise Said(
      'start_line_number and end_line_number must be integers'
    ) from None


def _with_files(scene: Scene, files: Mapping[str, str | types.Blob]) -> Scene:
  state = dataclasses.replace(scene.state, files=files)
  return dataclasses.replace(scene, state=state)


def _told_as(effect: Effect, text: str) -> Effect:
  return dataclasses.replace(effect, observation=text)
