"""The files of a state: what an action may read, list and write.

Values again: a change gives new files, those of the state stay as they are.
"""

from __future__ import annotations

import fnmatch
import pathlib
import posixpath
from collections.abc import Mapping

from jaxagent import types
from jaxagent.envs import parser

MAX_NAME_BYTES = 200  # a file system takes 255 for one part of a path
MAX_FILES = 64
MAX_FILE_BYTES = 256 * 1024
BACKUP = '.backup'  # folder of the undo copies; no run sees it


class ActionFailed(Exception):
  """A valid action that the environment answers with an error."""


def inside(path: str) -> str | None:
  """Normalised relative path, None where it leaves the workspace.

  None, too, for what is no sensible name: control characters, newlines,
  lone surrogates, a backslash, more than MAX_NAME_BYTES bytes.
  """
  if not path or path.startswith('/') or '\\' in path:
    return None
  if not path.isprintable():
    return None
  clean = posixpath.normpath(path)
  if clean == '..' or clean.startswith('../'):
    return None
  return clean if len(clean.encode()) <= MAX_NAME_BYTES else None


def within(path: str, folder: str) -> bool:
  """Whether `path` lies below `folder`; both as `inside` gives them."""
  return path.startswith(folder + '/')


def visible(files: Mapping[str, str]) -> dict[str, str]:
  """What a run gets to see: all files but the undo copies."""
  return {k: v for k, v in files.items() if not within(k, BACKUP)}


def read(files: Mapping[str, str], data: pathlib.Path, name: str) -> str:
  """Text of a workspace file or of a data file.

  data: the folder that the workspace shows as `data`.
  """
  path = inside(name)
  if path is None:
    raise ActionFailed(f'{name!r} is not in the workspace.')
  if path in files:
    return files[path]
  if path == 'data' or path.startswith('data/'):
    root = data.resolve()
    real = (root / path.removeprefix('data').lstrip('/')).resolve()
    if real.is_relative_to(root) and real.is_file():
      with real.open('rb') as file:
        return file.read(64 * 1024).decode('utf-8', 'replace')
  raise ActionFailed(f'there is no file {name!r}.')


def listing(files: Mapping[str, str], data: pathlib.Path, name: str) -> str:
  """Names below a folder of the workspace or of the data, one a line."""
  path = inside(name or '.')
  if path is None:
    raise ActionFailed(f'{name!r} is not in the workspace.')
  if path == 'data' or path.startswith('data/'):
    root = data.resolve()
    real = (root / path.removeprefix('data').lstrip('/')).resolve()
    if real.is_relative_to(root) and real.is_dir():
      return '\n'.join(
        p.name + '/' * p.is_dir() for p in sorted(real.iterdir())
      )
    raise ActionFailed(f'there is no folder {name!r}.')
  prefix = '' if path == '.' else path + '/'
  items = {
    rest.split('/')[0] + '/' * ('/' in rest)
    for rest in (
      f[len(prefix) :] for f in [*files, 'data/.'] if f.startswith(prefix)
    )
  }
  if not items:
    raise ActionFailed(f'there is no folder {name!r}.')
  return '\n'.join(sorted(items))


def writable(files: Mapping[str, str], spec: types.TaskSpec, name: str) -> str:
  """The normalised path; ActionFailed where nothing may be written."""
  path = inside(name)
  if path is None or path == '.':
    raise ActionFailed(f'{name!r} is not in the workspace.')
  if any(
    path == fixed or within(path, fixed) or fnmatch.fnmatchcase(path, fixed)
    for fixed in (
      'data',
      BACKUP,
      *map(posixpath.normpath, spec.read_only_files),
    )
  ):
    raise ActionFailed(f'{name!r} is read-only.')
  if path == spec.submission:
    raise ActionFailed(f'{name!r} is written by running the script.')
  # The sandbox could not lay out a file that is a folder as well.
  for other in (*files, *spec.read_only_files, spec.submission):
    if within(path, other):
      raise ActionFailed(f'{other!r} is a file, not a folder.')
    if within(other, path):
      raise ActionFailed(f'{name!r} is a folder.')
  return path


def with_file(
  files: Mapping[str, str], target: str, text: str
) -> dict[str, str]:
  """The files with one more, or changed; ActionFailed beyond the limits."""
  changed = {**files, target: text}
  if target not in files and len(changed) > MAX_FILES:
    raise ActionFailed(f'the workspace holds at most {MAX_FILES} files.')
  # Characters first: four bytes each at most.
  if (
    len(text) > MAX_FILE_BYTES
    or len(text.encode('utf-8', 'surrogatepass')) > MAX_FILE_BYTES
  ):
    raise ActionFailed(f'a file holds at most {MAX_FILE_BYTES} bytes.')
  if not parser.is_text(text):
    raise ActionFailed('the file would hold a NUL or a lone surrogate.')
  return changed


def summarise(text: str) -> str:
  """Understand File without a language model: imports, names, model line."""
  lines = text.split('\n')
  marks = ('import ', 'from ', 'def ', 'class ', 'model', 'pred')
  told = [
    f'{i}: {line}'
    for i, line in enumerate(lines, 1)
    if line.startswith(marks) or '.fit(' in line
  ]
  return f'{len(lines)} lines. Relevant lines:\n' + '\n'.join(told[:60])
