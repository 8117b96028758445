"""Implementation of each action, in the project's own dialect (`jaxagent`).

An action is given a `Scene` and its arguments and returns an `Effect`; what it
cannot do it says with ActionFailed. `mlagentbench.py` tells the same in the
words of the original.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence

from jaxagent import types
from jaxagent.envs import carried, interfaces, parser, workspace
from jaxagent.envs.execution import Run
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.workspace import ActionFailed

MAX_INSPECT_LINES = 100
MAX_LOG_CHARS = 500  # of one entry of the research log (paper 000, table 5)
RESEARCH_LOG = 'research_log.log'
# As valid as any edit (MLAgentBench's editor writes such a file, too): what
# is executed scores what it scored.
NO_CHANGE = 'Nothing changed: the file was so already.'
# Beside `on_failure=revert`.
UNDONE = 'The run failed, so the edit was undone.'
REPL = f'{workspace.COMMANDS}/run.py'
COMMAND = f'{workspace.COMMANDS}/command.txt'
# One command in an interpreter of its own, as MLAgentBench's compiles it: the
# value of an expression is printed. Nothing is kept for the next command.
REPL_SCRIPT = f"""\
import codeop, os, sys
sys.path.insert(0, os.getcwd())
with open({COMMAND!r}, encoding='utf-8') as file:
  command = file.read()
try:
  # None, of a command that is not complete, is refused by exec.
  exec(codeop.CommandCompiler()(command), {{'__name__': '__main__'}})
except Exception as error:
  print(error, end='', file=sys.stderr)
  sys.exit(1)
"""


@dataclasses.dataclass(frozen=True)
class Scene:
  """Context of an action: its state, and the services that it can use.

  state, spec: where the step starts, and its task.
  mounts: name -> folder that the workspace shows there.
  run: (files, script) -> the graded execution of a script.
  command: (files, script) -> an execution of which nothing is graded.
  carried: (files, execution) -> the files with what it left, and lines on what
    is not kept.
  edited: (text, instruction) -> the editor's text; ActionFailed where it
    refuses, TextModelError where none came.
  store: of the files that are no text, or too long for a state; without it
    they are not opened, and no data file becomes one.
  fixed: the read-only files of the task's start, which every run gets.
  """

  state: types.State
  spec: types.TaskSpec
  mounts: workspace.Mounts
  run: Callable[[Mapping[str, str | types.Blob], str], Run]
  command: Callable[[Mapping[str, str | types.Blob], str], types.Execution]
  carried: Callable[
    [Mapping, types.Execution], tuple[dict[str, str | types.Blob], list[str]]
  ]
  edited: Callable[[str, str], str]
  reader: interfaces.Reader
  helper: interfaces.Helper
  after_edit: str = 'execute'
  on_failure: str = 'revert'
  store: Snapshots | None = None
  fixed: workspace.Files = dataclasses.field(default_factory=dict)

  @property
  def files(self) -> Mapping[str, str | types.Blob]:
    return self.state.files

  @property
  def problem(self) -> str:
    return self.spec.research_problem.strip()

  def laid_out(
    self, files: Mapping[str, str | types.Blob]
  ) -> dict[str, str | types.Blob]:
    """Returns the files that a run gets, read-only ones as they were."""
    given = workspace.laid_out(files, self.mounts, self.spec.submission)
    return workspace.restored(given, self.spec, self.fixed)


@dataclasses.dataclass(frozen=True)
class Effect:
  """Result of an action.

  files, script: of the next state; None leaves them as they are.
  lost: a line on each file of a run that is not there in the next step.
  undone: an edit is not in the next state, for its run failed.
  """

  observation: str
  outcome: types.Outcome = types.Outcome.OK
  files: Mapping[str, str | types.Blob] | None = None
  script: str | None = None
  run: Run | None = None
  execution: types.Execution | None = None
  diff: str = ''
  lost: tuple[str, ...] = ()
  undone: bool = False


class Actions:
  """All actions of MLAgentBench (paper 002, table 1), in wording of our own."""

  name = 'jaxagent'
  # Standard output and error apart: else as they came, in one stream.
  streams_apart = False
  universal_newlines = False  # in what is shown of a file
  max_observation_chars: int | None = 6000

  def carry_out(self, scene: Scene, action: str, args: Mapping[str, str]):
    """Returns an Effect; raises ActionFailed or TextModelError."""
    return getattr(self, METHODS[action])(scene, **args)

  def failed(
    self, action: str, args: Mapping[str, str], error: ActionFailed
  ) -> str:
    """Returns the observation of an action that could not be carried out."""
    return f'Error: {error}'

  def not_understood(self, error: parser.ResponseError) -> str:
    """Returns the observation of a response that cannot be acted on."""
    return str(error)

  # --- Reading -------------------------------------------------------------

  def read(self, scene: Scene, name: str, *, whole: bool = False) -> str:
    return workspace.read(
      scene.files,
      scene.mounts,
      name,
      whole=whole,
      opened=scene.store.get_bytes if scene.store else None,
    )

  def lines(
    self, scene: Scene, name: str, first: int, last: int
  ) -> tuple[str, int]:
    """(lines of a file, how many it has in all)."""
    return workspace.lines(
      scene.files,
      scene.mounts,
      name,
      first,
      last,
      universal=self.universal_newlines,
      opened=scene.store.get_bytes if scene.store else None,
    )

  def list_files(self, scene: Scene, dir_path: str) -> Effect:
    names = workspace.listing(scene.files, scene.mounts, dir_path)
    return Effect('\n'.join(workspace.briefly(names)))

  def read_file(self, scene: Scene, file_name: str) -> Effect:
    return Effect(self.read(scene, file_name))

  def inspect_lines(
    self,
    scene: Scene,
    script_name: str,
    start_line_number: str,
    end_line_number: str,
  ) -> Effect:
    start, end = _numbers(start_line_number, end_line_number)
    if not 1 <= start <= end:
      raise ActionFailed(f'lines {start} to {end} are no range.')
    if end - start >= MAX_INSPECT_LINES:
      raise ActionFailed(f'at most {MAX_INSPECT_LINES} lines at once.')
    part, total = self.lines(scene, script_name, start, end)
    return Effect(f'Lines {start}-{end} of {total}:\n{part}')

  def understand(
    self, scene: Scene, file_name: str, things_to_look_for: str
  ) -> Effect:
    text = self.read(scene, file_name)
    return Effect(scene.reader.describe(text, things_to_look_for))

  def content(self, scene: Scene, name: str) -> str | types.Blob:
    """A file to be copied."""
    found = workspace.visible(scene.files).get(workspace.checked(name))
    if isinstance(found, types.Blob):
      return found
    store, data = scene.store, None
    if found is None and store:
      data = workspace.binary(scene.mounts, name)
    if not store or data is None:
      return self.read(scene, name, whole=True)
    blob = store.put_bytes(data)
    if blob is None:
      raise ActionFailed(f'no more room for {len(data)} bytes.')
    return blob

  # --- Changing ------------------------------------------------------------

  def target(self, scene: Scene, name: str) -> str:
    """The path of a file that is to be written."""
    return workspace.writable(scene.files, scene.spec, name)

  def write_file(self, scene: Scene, file_name: str, content: str) -> Effect:
    path = self.target(scene, file_name)
    files = workspace.with_backup(scene.files, path)
    files = workspace.with_file(files, path, content)
    return Effect(f'{path} written.', files=files)

  def append_file(self, scene: Scene, file_name: str, content: str) -> Effect:
    path = self.target(scene, file_name)
    files = workspace.with_backup(scene.files, path)
    old = self.read(scene, path, whole=True) if path in files else ''
    files = workspace.with_file(files, path, old + content)
    return Effect(f'{path} extended.', files=files)

  def copy_file(self, scene: Scene, source: str, destination: str) -> Effect:
    content = self.content(scene, source)
    path = self.target(scene, destination)
    files = workspace.with_backup(scene.files, path)
    files = workspace.with_file(files, path, content)
    return Effect(f'{source} copied to {path}.', files=files)

  def undo_edit(self, scene: Scene, script_name: str) -> Effect:
    path = self.target(scene, script_name)
    files = workspace.undone(scene.files, path)
    return Effect(workspace.text(files, path), files=files)

  # --- Running -------------------------------------------------------------

  def execute(self, scene: Scene, script_name: str) -> Effect:
    path = workspace.checked(script_name)
    laid_out = scene.laid_out(scene.files)
    if path not in laid_out:
      raise ActionFailed(
        f'there is no script {script_name!r}.', 'missing', script_name
      )
    run = scene.run(laid_out, path)
    files, lost = scene.carried(scene.files, run.execution)
    return Effect(
      self.report(path, run) + self.not_kept(lost),
      run.outcome,
      files=files,
      run=run,
      script=path,
    )

  def not_kept(self, lines: Sequence[str]) -> str:
    """Returns the lines on a run's files that the next step does not have."""
    return carried.told(lines)

  def report(self, script: str, run: Run) -> str:
    """Status line, then standard output and error of the run."""
    status = f'Status: {run.outcome.value}'
    if run.score is not None:
      status += f', validation score {run.score:.6g}'
    elif run.message:
      status += f' ({run.message})'
    return f'{status}\n{run.execution.output}'

  def repl(self, scene: Scene, command: str) -> Effect:
    files = scene.laid_out(scene.files)
    files |= {REPL: REPL_SCRIPT, COMMAND: command}
    execution = scene.command(files, REPL)
    files, lost = scene.carried(scene.files, execution)
    return Effect(
      self.printed(execution) + self.not_kept(lost),
      execution.outcome,
      files=files,
      execution=execution,
    )

  def printed(self, execution: types.Execution) -> str:
    """Returns a command's output, after its status if it failed."""
    if execution.outcome is types.Outcome.OK:
      return execution.output
    return f'Status: {execution.outcome.value}\n{execution.output}'

  # --- Editing -------------------------------------------------------------

  def edit(
    self, scene: Scene, script_name: str, edit_instruction: str, save_name: str
  ) -> Effect:
    old = self.to_edit(scene, script_name)
    target = self.target(scene, save_name)
    new = scene.edited(old, edit_instruction)
    return self._after_edit(scene, script_name, old, new, target)

  def to_edit(self, scene: Scene, name: str) -> str:
    """The text of a script; one that is not there begins empty (table 5)."""
    try:
      return self.read(scene, name, whole=True)
    except ActionFailed as error:
      if error.kind == 'missing':
        return ''
      raise

  def edit_segment(
    self, scene: Scene, script_name: str, start_line_number: str, end_line_number: str,
    edit_instruction: str, save_name: str,
  ) -> Effect:  # fmt: skip
    old = self.to_edit(scene, script_name)
    target = self.target(scene, save_name)
    lines = old.split('\n')
    start, end = _numbers(start_line_number, end_line_number)
    if not 1 <= start <= end <= len(lines):
      raise ActionFailed(f'lines {start} to {end} are no range of the file.')
    part = scene.edited('\n'.join(lines[start - 1 : end]), edit_instruction)
    new = '\n'.join([*lines[: start - 1], part.rstrip('\n'), *lines[end:]])
    return self._after_edit(scene, script_name, old, new, target)

  def edited(self, target: str, diff: str) -> str:
    """Returns the observation of an edit."""
    return f'The edited file is saved to {target}.\n{diff or NO_CHANGE}'

  def backed_up(self, script: str, target: str) -> str:
    """The file that Undo Edit Script brings back as it was."""
    return target

  def _after_edit(
    self, scene: Scene, script: str, old: str, new: str, target: str
  ) -> Effect:
    """The edit saved, and executed where that is part of it."""
    files = workspace.with_backup(scene.files, self.backed_up(script, target))
    files = workspace.with_file(files, target, new)
    diff = unified(old, new)
    text = self.edited(target, diff)
    if scene.after_edit == 'nothing':
      return Effect(text, files=files, script=target, diff=diff)
    laid_out = scene.laid_out(files)
    if target not in laid_out:  # no sandbox would have it
      raise ActionFailed(f'{target!r} is read-only.', 'read_only', target)
    run = scene.run(laid_out, target)
    if scene.after_edit == 'measure':
      return Effect(text, run.outcome, files, target, run, diff=diff)
    text = f'{self.report(target, run)}\n{text}'
    # An infrastructure error changes nothing, unlike a failed script.
    keep = scene.on_failure == 'keep' and not run.outcome.is_infrastructure
    if run.outcome is not types.Outcome.OK and not keep:
      text += f'\n{UNDONE}'
      return Effect(text, run.outcome, run=run, diff=diff, undone=True)
    files, lost = scene.carried(files, run.execution)
    text += self.not_kept(lost)
    return Effect(
      text, run.outcome, files, target, run, diff=diff, lost=tuple(lost)
    )

  # --- Notes and questions --------------------------------------------------

  def log(self, scene: Scene) -> str:
    return workspace.text(scene.files, RESEARCH_LOG)

  def append_log(self, scene: Scene, content: str) -> Effect:
    if len(content) > MAX_LOG_CHARS:
      raise ActionFailed(f'a summary has at most {MAX_LOG_CHARS} characters.')
    path = self.target(scene, RESEARCH_LOG)
    text = f'{self.log(scene)}{content}\n'
    files = workspace.with_file(scene.files, path, text)
    return Effect('Added to the research log.', files=files)

  def retrieve_log(self, scene: Scene, current_plan: str) -> Effect:
    return Effect(
      scene.reader.retrieve(scene.problem, self.log(scene), current_plan)
    )

  def reflect(self, scene: Scene, things_to_reflect_on: str) -> Effect:
    return Effect(
      scene.reader.reflect(scene.problem, self.log(scene), things_to_reflect_on)
    )

  def request_help(self, scene: Scene, request: str) -> Effect:
    return Effect(scene.helper.answer(request))

  def final_answer(self, scene: Scene, final_answer: str) -> Effect:
    return Effect('')


# Action -> the method that carries it out.
METHODS = {
  'List Files': 'list_files',
  'Read File': 'read_file',
  'Write File': 'write_file',
  'Append File': 'append_file',
  'Copy File': 'copy_file',
  'Undo Edit Script': 'undo_edit',
  'Execute Script': 'execute',
  'Python REPL': 'repl',
  'Final Answer': 'final_answer',
  'Understand File': 'understand',
  'Append Summary to Research Log': 'append_log',
  'Inspect Script Lines': 'inspect_lines',
  'Edit Script (AI)': 'edit',
  'Edit Script Segment (AI)': 'edit_segment',
  'Reflection': 'reflect',
  'Retrieval from Research Log': 'retrieve_log',
  'Request Help': 'request_help',
}


def unified(old: str, new: str) -> str:
  """Unified diff of two texts."""
  return ''.join(
    difflib.unified_diff(
      old.splitlines(keepends=True), new.splitlines(keepends=True)
    )
  )


def _numbers(start: str, end: str) -> tuple[int, int]:
  try:
    return int(start), int(end)
  except ValueError:
    raise ActionFailed('the line numbers must be whole numbers.') from None
