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
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.traces import form

WORKSPACES = ('none', 'final', 'all')  # which of them are written

Files = dict[str, str | bytes]


def write_folder(
  folder: pathlib.Path,
  record: Mapping[str, Any],
  description: str,
  *,
  store: Snapshots | None = None,
  workspaces: str = 'final',
  submission: str = 'submission.csv',
) -> pathlib.Path:
  """Writes one trajectory; the path of its trace.

  Args:
    record: as `form.mlagentbench_trace`; a step's `workspace_id` and
      `submission` ([digest, bytes]) name what `store` holds of it.
    store: of the run; None where there is none.
    workspaces: one of WORKSPACES.
    submission: name of the file that the task's scripts write.

  Raises ValueError for a record that is damaged or names what `store` lacks.
  """
  found = _workspaces(record, store, submission)
  steps = [
    step if files is None else {**step, 'workspace': _texts(files)}
    for step, files in zip(form.steps_of(record), found)
  ]
  trace = form.mlagentbench_trace({**record, 'steps': steps}, description)
  path = form.write(folder / 'env_log', trace)
  _write_workspaces(folder / 'env_log' / 'traces', found, workspaces)
  _write_logs(folder, steps)
  _write_prompts(folder / 'agent_log', record, store)
  return path


def _workspaces(
  record: Mapping[str, Any], store: Snapshots | None, submission: str
) -> list[Files | None]:
  """Returns each step's files; None where they were not kept."""
  found: list[Files | None] = []
  last: bytes | None = None  # a submission stays until a run writes another
  for number, step in enumerate(form.steps_of(record)):
    key = step.get('workspace_id')
    if store is None or key is None:
      found.append(None)
      continue
    try:
      state = store.get(key)
      files = store.bytes_of(workspace.visible(state.files))
      if given := step.get('submission'):
        last = store.get_bytes(types.Blob(*given))
    except (KeyError, TypeError) as error:
      raise ValueError(
        f'{form.name_of(record)}: steps[{number}]: its files are not in the '
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


def _write_logs(
  folder: pathlib.Path, steps: Sequence[Mapping[str, Any]]
) -> None:
  (folder / 'agent_log').mkdir(parents=True, exist_ok=True)
  said = [
    f'Step {number}:\n{step.get("response") or ""}\nObservation:\n'
    f'```\n{step.get("observation") or ""}\n```\n\n'
    for number, step in enumerate(steps)
  ]
  _write(folder / 'agent_log' / 'main_log', ''.join(said))
  ended = [
    f'step {n}: {s.get("action") or "no action"}: {s.get("outcome")}\n'
    for n, s in enumerate(steps)
  ]
  _write(folder / 'log', ''.join(ended))
  seconds = sum(float(step.get('exec_s') or 0.0) for step in steps)
  _write(folder / 'env_log' / 'overall_time.txt', str(seconds))


def _write_prompts(
  folder: pathlib.Path, record, store: Snapshots | None
) -> None:
  for number, step in enumerate(form.steps_of(record)):
    if store is None or not step.get('prompt'):
      continue
    try:
      prompt = store.get_bytes(types.Blob(*step['prompt']))
    except (KeyError, TypeError) as error:
      raise ValueError(
        f'{form.name_of(record)}: steps[{number}]: its prompt is not in the '
        f'store of states ({error}).'
      ) from error
    text = prompt.decode('utf-8', 'replace')
    _write(
      folder / f'step_{number}_log.log',
      f'{_rule("prompt")}\n{text}\n{_rule("response")}\n'
      f'{step.get("response") or ""}\n',
    )


def _rule(name: str) -> str:
  return f'{19 * "="}{name}{21 * "="}'


def _write(path: pathlib.Path, text: str) -> None:
  path.write_text(text, encoding='utf-8', errors='replace')
