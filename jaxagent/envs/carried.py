"""Files that a run leaves in the workspace are carried to the next step.

Text stays text; anything else is kept by content (`snapshots`). What cannot be
kept is listed in the observation, so that an agent does not search for it.
The submission is kept to be read: no run gets it (`workspace.laid_out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.snapshots import Snapshots
from jaxagent.sandbox.checks import MAX_FILE_MB


def carry(
  files: workspace.Files,
  execution: types.Execution,
  spec: types.TaskSpec,
  store: Snapshots,
  mounts: Iterable[str] = (),
) -> tuple[dict[str, str | types.Blob], list[str]]:
  """(files of the next state, one line each of what is not kept).

  mounts: where the workspace shows data of the task.
  """
  kept, lines = dict(files), list(execution.left_out)
  taken = (*workspace.RESERVED, *mounts)
  for name in execution.removed:
    if not workspace.is_read_only(name, spec):
      kept.pop(name, None)
  left = {**execution.changed, **execution.collected}
  for name, data in sorted(left.items()):
    if workspace.is_at(name, taken) or '__pycache__' in name.split('/'):
      continue  # no step would look for it
    if why := _barred(name, len(data), execution, spec) or _no_room(kept, name):
      lines.append(f'{name if name.isprintable() else ascii(name)}: {why}')
    # A submission by reference: every state of a trajectory has one.
    elif name not in execution.collected and (
      (text := workspace.as_text(data)) is not None
    ):
      others = {k: v for k, v in workspace.visible(kept).items() if k != name}
      if workspace.text_bytes(others) + len(data) > workspace.MAX_TEXT_BYTES:
        lines.append(f'{name}: {workspace.TOO_MUCH}')
      else:
        kept = workspace.with_room({**kept, name: text})
    elif (blob := store.put_bytes(data)) is not None:
      kept[name] = blob
    else:
      lines.append(f'{name}: no more room for {len(data)} bytes')
  return kept, lines


def _barred(
  name: str, size: int, execution: types.Execution, spec: types.TaskSpec
) -> str:
  """Returns why no workspace keeps such a file; '' if one may."""
  if workspace.inside(name) != name:
    return 'no sensible name'
  if workspace.is_read_only(name, spec):
    return 'read-only'
  submits = name in execution.collected
  if not submits and workspace.is_at(name, (spec.submission,)):
    return 'a submission is written by running a script'
  if size > MAX_FILE_MB << 20:
    return f'{size} bytes, beyond {MAX_FILE_MB} MB a file'
  return ''


def _no_room(kept: workspace.Files, name: str) -> str:
  if name not in kept and workspace.is_full(kept):
    return f'the workspace holds {workspace.MAX_FILES} files'
  return workspace.clash(kept, name)


def told(lines: Sequence[str]) -> str:
  """Returns the observation's part on files not kept; '' if all were."""
  if not lines:
    return ''
  return '\nNot kept for the next step:\n' + '\n'.join(lines)
