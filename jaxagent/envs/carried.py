"""What a run leaves in the workspace goes on to the next step.

Text stays text; anything else is kept by content (`snapshots`). What cannot be
kept is told in the observation, so that an agent does not look for it in vain.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import parser, workspace
from jaxagent.envs.snapshots import Snapshots

# Ours, or made anew by each run.
_OWN = ('.repl', workspace.BACKUP, 'data', '__pycache__')


def carry(
  files: workspace.Files,
  execution: types.Execution,
  spec: types.TaskSpec,
  store: Snapshots,
) -> tuple[dict[str, str | types.Blob], list[str]]:
  """(files of the next state, one line each of what is not kept)."""
  kept, lines = dict(files), list(execution.left_out)
  for name in execution.removed:
    if not _fixed(name, spec):
      kept.pop(name, None)
  for name, data in sorted(execution.changed.items()):
    if _fixed(name, spec):
      continue
    if workspace.inside(name) != name:
      lines.append(f'{name!a}: no sensible name')
    elif name not in kept and workspace.is_full(kept):
      lines.append(f'{name}: the workspace holds {workspace.MAX_FILES} files')
    elif clash := workspace.clash(kept, name):
      lines.append(f'{name}: {clash}')
    elif text := _as_text(data):
      if workspace.text_bytes(kept) + len(data) > workspace.MAX_TEXT_BYTES:
        lines.append(f'{name}: {workspace.TOO_MUCH}')
      else:
        kept[name] = text
    elif (blob := store.put_bytes(data)) is not None:
      kept[name] = blob
    else:
      lines.append(f'{name}: no more room for {len(data)} bytes')
  return kept, lines


def _fixed(name: str, spec: types.TaskSpec) -> bool:
  """Whether it is laid out anew for each run, whatever became of it."""
  fixed = (*_OWN, spec.submission, *map(posixpath.normpath, spec.read_only_files))
  return any(
    name == one
    or workspace.within(name, one)
    or fnmatch.fnmatchcase(name, one)
    or one in name.split('/')[:-1]
    for one in fixed
  )


def _as_text(data: bytes) -> str:
  """'' where it is no text that an action could show."""
  if len(data) > workspace.MAX_FILE_BYTES:
    return ''
  try:
    text = data.decode('utf-8')
  except UnicodeDecodeError:
    return ''
  return text if parser.is_text(text) else ''


def told(lines: Sequence[str]) -> str:
  """For the observation; '' where everything was kept."""
  if not lines:
    return ''
  return '\nNot kept for the next step:\n' + '\n'.join(lines)

