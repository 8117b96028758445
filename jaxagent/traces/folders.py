"""A trajectory's folder as MLAgentBench's runner leaves it.

  env_log/trace.json              the trace (`form`)
  env_log/traces/step_N_files/    the workspace after step N
  env_log/traces/step_final_files/
  env_log/overall_time.txt        seconds
  agent_log/main_log              the agent's responses and observations
  agent_log/step_N_log.log        its prompt and response, where that was kept
  log                             how each step ended

Its offline evaluation (`MLAgentBench/eval.py`) scores such folders. Data that a
task shows read-only is in none of them, as there.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.records import Trajectory
from jaxagent.records.trajectory import name_of
from jaxagent.traces import form

WORKSPACES = ('none', 'final', 'all')  # which of them are written

Files = dict[str, str | bytes]


def write_folder(
  folder: pathlib.Path,
  trajectory: Trajectory,
  description: str,
  *,
  store: Snapshots | None = None,
  workspaces: str = 'final',
  submission: str = 'submission.csv',
) -> pathlib.Path:
  """Writes one trajectory; the path of its trace.

  Args:
    trajectory: a step's `workspace_id` and `submission` name what `store` holds
      of it.
    store: of the run; None where there is none.
    workspaces: one of WORKSPACES.
    submission: name of the file that the task's scripts write.

  Raises ValueError for a trajectory that names what `store` lacks.
  """
  found = _workspaces(trajectory, store, submission)
  texts = [None if files is None else _texts(files) for files in found]
  trace = form.mlagentbench_trace(trajectory, description, texts)
  path = form.write(folder / 'env_log', trace)
  _write_workspaces(folder / 'env_log' / 'traces', found, workspaces)
  _write_logs(folder, trajectory)
  _write_prompts(folder / 'agent_log', trajectory, store)
  return path


def _workspaces(
  trajectory: Trajectory, store: Snapshots | None, submission: str
) -> list[Files | None]:
  """Returns each step's files; None where they were not kept."""
  found: list[Files | None] = []
  last: bytes | None = None  # a submission stays until a run writes another
  for number, step in enumerate(trajectory.steps):
    key = step.workspace_id
    if store is None or key is None:
      found.append(None)
      continue
    try:
      state = store.get(key)
      files = store.bytes_of(workspace.visible(state.files))
      if step.submission:
        last = store.get_bytes(types.Blob(*step.submission))
    except (KeyError, TypeError) as error:
      raise ValueError(
        f'{name_of(trajectory)}: steps[{number}]: its files are not in the '
        f'store of states ({error}).'
      ) from error
    found.append(files if last is None else {**files, submission: last})
  return found


def _texts(files: Files) -> dict[str, str]:
  return {k: v for k, v in files.items() if isinstance(v, str)}


def _write_workspaces(
  folder: pathlib.Path, found: Sequence[Files | None], which: str
) -> None:
  if which not in WORKSPACES:
    raise ValueError(
      f'workspaces={which!r}; choose one of {", ".join(WORKSPACES)}.'
    )
  shutil.rmtree(folder, ignore_errors=True)
  if which == 'all':
    for number, files in enumerate(found):
      if files is not None:
        _lay_out(folder / f'step_{number}_files', files)
  if which != 'none' and found and found[-1] is not None:
    _lay_out(folder / 'step_final_files', found[-1])


def _lay_out(folder: pathlib.Path, files: Files) -> None:
  folder.mkdir(parents=True)
  for name, content in files.items():
    if workspace.inside(name) != name:
      continue  # no state of this package holds one
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
      content = content.encode('utf-8', 'surrogatepass')
    path.write_bytes(content)


def _write_logs(folder: pathlib.Path, trajectory: Trajectory) -> None:
  (folder / 'agent_log').mkdir(parents=True, exist_ok=True)
  records = [step.record for step in trajectory.steps]
  said = [
    f'Step {number}:\n{record.response}\nObservation:\n'
    f'```\n{record.observation}\n```\n\n'
    for number, record in enumerate(records)
  ]
  _write(folder / 'agent_log' / 'main_log', ''.join(said))
  ended = [
    f'step {n}: {r.action or "no action"}: {r.outcome.value}\n'
    for n, r in enumerate(records)
  ]
  _write(folder / 'log', ''.join(ended))
  seconds = sum(float(record.exec_s) for record in records)
  _write(folder / 'env_log' / 'overall_time.txt', str(seconds))


def _write_prompts(
  folder: pathlib.Path, trajectory: Trajectory, store: Snapshots | None
) -> None:
  for number, step in enumerate(trajectory.steps):
    if store is None or not step.prompt:
      continue
    try:
      prompt = store.get_bytes(types.Blob(*step.prompt))
    except (KeyError, TypeError) as error:
      raise ValueError(
        f'{name_of(trajectory)}: steps[{number}]: its prompt is not in the '
        f'store of states ({error}).'
      ) from error
    text = prompt.decode('utf-8', 'replace')
    _write(
      folder / f'step_{number}_log.log',
      f'{_rule("prompt")}\n{text}\n{_rule("response")}\n'
      f'{step.record.response}\n',
    )


def _rule(name: str) -> str:
  return f'{19 * "="}{name}{21 * "="}'


def _write(path: pathlib.Path, text: str) -> None:
  path.write_text(text, encoding='utf-8', errors='replace')
