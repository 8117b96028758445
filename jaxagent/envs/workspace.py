"""The files of a state: what an action may read, list and write.

Values again: a change gives new files, those of the state stay as they are.
"""

from __future__ import annotations

import codecs
import fnmatch
import io
import os
import pathlib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from jaxagent import types
from jaxagent.envs import parser

MAX_NAME_BYTES = 200  # a file system takes 255 for one part of a path
MAX_FILES = 64
MOST_LISTED = 20  # names of a kind in a folder, one by one
MAX_FILE_BYTES = 256 * 1024
MAX_TEXT_BYTES = 2 * 1024 * 1024  # of all files; undo copies give way
MAX_BINARY_BYTES = 16 * 1024 * 1024  # of a data file that is copied as it is
TOO_MUCH = f'the workspace holds at most {MAX_TEXT_BYTES} bytes of text'
BACKUP = '.backup'  # folder of the undo copies; no run sees it
MAX_BACKUPS = 8  # of one file; the oldest goes first
COMMANDS = '.repl'  # folder in which a run of one command is laid out
RESERVED = (BACKUP, COMMANDS)  # no action and no script puts a file there
_READ_BYTES = 1 << 20  # at once, of a file whose lines are counted

# Relative path -> content.
Files = Mapping[str, str | types.Blob]
# Name in the workspace -> folder that it shows there.
Mounts = Mapping[str, pathlib.Path]
# The content of a file that is kept beside the states.
Opened = Callable[[types.Blob], bytes]


class ActionFailed(Exception):
  """A valid action that the environment answers with an error.

  Attributes:
    kind: 'outside' (of the workspace), 'missing', 'read_only', 'model' (a text
      model has no answer to it), or '' for what the message alone says.
    name: the file or folder that it is about, as the action gave it.
  """

  def __init__(self, message: str, kind: str = '', name: str = ''):
    super().__init__(message)
    self.kind, self.name = kind, name


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


def is_at(path: str, places: Iterable[str]) -> bool:
  """Whether `path` is one of these files and folders, or lies below one."""
  return any(path == place or within(path, place) for place in places)


def is_read_only(path: str, spec: types.TaskSpec) -> bool:
  """Whether the task lists `path`, or a folder around it, as read-only."""
  fixed = tuple(map(posixpath.normpath, spec.read_only_files))
  return is_at(path, fixed) or any(fnmatch.fnmatchcase(path, f) for f in fixed)


def visible(files: Files) -> dict[str, str | types.Blob]:
  """Returns the files that actions see: all but the undo copies."""
  return {k: v for k, v in files.items() if not within(k, BACKUP)}


def laid_out(
  files: Files, mounts: Iterable[str], submission: str
) -> dict[str, str | types.Blob]:
  """Returns the files that a run gets.

  Left out are those at reserved paths or at the task's data, and the last
  run's submission: a script that writes none has none.
  """
  taken = (*RESERVED, *mounts, submission)
  return {k: v for k, v in files.items() if not is_at(k, taken)}


def restored(
  files: Files, spec: types.TaskSpec, fixed: Files
) -> dict[str, str | types.Blob]:
  """The files with read-only ones as the task began with them, and no others.

  fixed: those; whatever an action has made of a read-only name reaches no run.
  """
  own = {
    name: content
    for name, content in files.items()
    if not is_read_only(name, spec) and not clash(fixed, name)
  }
  return {**own, **fixed}


def checked(name: str) -> str:
  """The normalised path of a name; ActionFailed where it is none."""
  path = inside(name)
  if path is None:
    raise ActionFailed(f'{name!r} is not in the workspace.', 'outside', name)
  return path


def read(
  files: Files,
  mounts: Mounts,
  name: str,
  *,
  whole: bool = False,
  opened: Opened | None = None,
) -> str:
  """Text of a workspace file or of a data file.

  whole: the text is to be kept: what is too long is refused. Else its first
    MAX_FILE_BYTES are enough, and the end says so.
  opened: for texts of the workspace that are too long for a state.
  """
  found = _kept(files, name)
  if isinstance(found, str):
    return found
  with _open(found, mounts, name, opened) as file:
    head, size = _head(file, name)
  return _whole(head, size, name) if whole else _shown(head, size)


def lines(
  files: Files,
  mounts: Mounts,
  name: str,
  first: int,
  last: int,
  *,
  universal: bool = False,
  opened: Opened | None = None,
) -> tuple[str, int]:
  """(lines `first` to `last`, counted from 1; how many there are) of a text.

  Wherever in it they are; of what is longer than MAX_FILE_BYTES the beginning.
  universal: line ends as `universal_newlines` has them.
  Raises as `read`.
  """
  found = _kept(files, name)
  if isinstance(found, str):
    every = (universal_newlines(found) if universal else found).split('\n')
    return '\n'.join(every[max(first - 1, 0) : max(last, 0)]), len(every)
  with _open(found, mounts, name, opened) as file:
    _head(file, name)
    file.seek(0)
    return _lines(_parts(file, universal), first, last)


def _kept(files: Files, name: str) -> str | types.Blob | None:
  """Returns a state's file; None if there is none, as for the task's data."""
  path = checked(name)
  return None if within(path, BACKUP) else files.get(path)


def _open(
  blob: types.Blob | None, mounts: Mounts, name: str, opened: Opened | None
) -> BinaryIO:
  """A file that is kept beside the states; without one, the data file."""
  if blob is not None:
    if opened is None:
      raise _no_text(name, blob.size)
    return io.BytesIO(opened(blob))
  real = _mounted(mounts, checked(name))
  if real is None or not real.is_file():
    raise ActionFailed(f'there is no file {name!r}.', 'missing', name)
  return real.open('rb')


def _head(file: BinaryIO, name: str) -> tuple[bytes, int]:
  """(the first MAX_FILE_BYTES, all bytes); ActionFailed for what is no text."""
  size = file.seek(0, os.SEEK_END)
  file.seek(0)
  head = file.read(MAX_FILE_BYTES)
  if not _is_text(head, size):
    raise _no_text(name, size)
  return head, size


def _no_text(name: str, size: int) -> ActionFailed:
  return ActionFailed(
    f'{name!r} is no text ({size} bytes); a script can read it.'
  )


def universal_newlines(text: str) -> str:
  """The text with line ends as Python's text mode reads them."""
  return text.replace('\r\n', '\n').replace('\r', '\n')


def _parts(file: BinaryIO, universal: bool) -> Iterator[bytes]:
  """A file's bytes, piece by piece; universal: as `universal_newlines`."""
  if not universal:
    yield from iter(lambda: file.read(_READ_BYTES), b'')
    return
  ends = io.IncrementalNewlineDecoder(None, translate=True)
  while data := file.read(_READ_BYTES):  # Latin-1 is every byte as it is
    yield ends.decode(data.decode('latin-1')).encode('latin-1')
  yield ends.decode('', final=True).encode(
    'latin-1'
  )  # a carriage return's, at last


def _lines(parts: Iterable[bytes], first: int, last: int) -> tuple[str, int]:
  """Returns `lines` of bytes, holding in memory only what is shown."""
  part, size, ended = bytearray(), 0, 0  # ended: lines before those of `data`
  for data in parts:
    more = data.count(b'\n')
    start, stop = max(first - 1 - ended, 0), last - ended
    if start <= more and stop > 0:
      # The last piece continues with the first one of what is read next.
      wanted = b'\n'.join(data.split(b'\n')[start:stop])
      part += wanted[: MAX_FILE_BYTES - len(part)]
      size += len(wanted)
    ended += more
  return _shown(bytes(part), size), ended + 1


def _is_text(head: bytes, size: int) -> bool:
  """Whether a file of `size` bytes that begins so is UTF-8 that can be shown."""
  try:
    # Where the head ends amid a character, that is no fault of the file's.
    text = codecs.getincrementaldecoder('utf-8')().decode(
      head, final=size <= len(head)
    )
  except UnicodeDecodeError:
    return False
  return parser.is_text(text)


def _shown(head: bytes, size: int) -> str:
  rest = size - len(head)
  more = f'\n[... {rest} bytes left out ...]' if rest > 0 else ''
  return head.decode('utf-8', 'replace') + more


def _whole(head: bytes, size: int, name: str) -> str:
  if size > MAX_FILE_BYTES:
    raise ActionFailed(
      f'{name!r} has {size} bytes, more than the {MAX_FILE_BYTES} of an action; '
      'a script can read it where it is.'
    )
  return head.decode('utf-8')


def binary(mounts: Mounts, name: str) -> bytes | None:
  """Content of a data file that is no text; None where there is none such.

  ActionFailed beyond MAX_BINARY_BYTES: each run gets the copies, too.
  """
  real = _mounted(mounts, checked(name))
  if real is None or not real.is_file():
    return None
  size = real.stat().st_size
  with real.open('rb') as file:
    head = file.read(MAX_FILE_BYTES)
    if _is_text(head, size):
      return None
    if size > MAX_BINARY_BYTES:
      raise ActionFailed(
        f'{name!r} has {size} bytes, more than the {MAX_BINARY_BYTES} of a copy; '
        'a script can read it where it is.'
      )
    return head + file.read(MAX_BINARY_BYTES - len(head))


def _mounted(mounts: Mounts, path: str) -> pathlib.Path | None:
  """Returns the real place of a path below a mount; None outside of all."""
  name, _, rest = path.partition('/')
  if name not in mounts:
    return None
  root = mounts[name].resolve()
  real = (root / rest).resolve()
  return real if real.is_relative_to(root) else None


def listing(files: Files, mounts: Mounts, name: str) -> list[str]:
  """Sorted names in a folder of the workspace or the data; folders end in /."""
  path = checked(name or '.')
  real = _mounted(mounts, path)
  given = set()
  if real is not None and real.is_dir():
    with os.scandir(real) as found:
      given = {one.name + '/' * one.is_dir() for one in found}
  prefix = '' if path == '.' else path + '/'
  items = given | {
    rest.split('/')[0] + '/' * ('/' in rest)
    for rest in (
      f[len(prefix) :]
      for f in [*visible(files), *(f'{m}/.' for m in mounts if path == '.')]
      if f.startswith(prefix)
    )
  }
  if not items:
    raise ActionFailed(f'there is no folder {name!r}.', 'missing', name)
  return sorted(items)


def briefly(names: Sequence[str]) -> list[str]:
  """Names of a `listing`; of many of a kind, as of images, two and their number."""
  kinds: dict[str, list[str]] = {}
  for name in names:
    suffix = pathlib.PurePosixPath(name).suffix
    kinds.setdefault('*/' if name.endswith('/') else f'*{suffix}', []).append(
      name
    )
  shown = []
  for kind, found in kinds.items():
    many = len(found) > MOST_LISTED
    shown += found[:2] if many else found
    if many:
      shown.append(f'{kind} ({len(found)} in all)')
  return shown


def writable(files: Files, spec: types.TaskSpec, name: str) -> str:
  """The normalised path; ActionFailed where nothing may be written."""
  path = checked(name)
  if path == '.':
    raise ActionFailed(f'{name!r} is a folder.', 'outside', name)
  if is_at(path, ('data', *RESERVED)) or is_read_only(path, spec):
    raise ActionFailed(f'{name!r} is read-only.', 'read_only', name)
  return can_be_laid_out(files, spec, name, path)


def can_be_laid_out(
  files: Files, spec: types.TaskSpec, name: str, path: str
) -> str:
  """`path`; ActionFailed where a sandbox could not hold such a file."""
  if path == spec.submission:
    raise ActionFailed(f'{name!r} is written by running the script.')
  given = (*visible(files), *spec.read_only_files, spec.submission)
  if why := clash(given, path):
    raise ActionFailed(why)
  return path


def clash(names: Iterable[str], path: str) -> str:
  """Returns why no sandbox could hold `path` beside these; '' if it could."""
  for other in names:
    if within(path, other):
      return f'{other!r} is a file, not a folder.'
    if within(other, path):
      return f'{path!r} is a folder.'
  return ''


def as_text(data: bytes) -> str | None:
  """A file's content as a state holds it; None for what is no such text."""
  if len(data) > MAX_FILE_BYTES:
    return None
  try:
    content = data.decode('utf-8')
  except UnicodeDecodeError:
    return None
  return content if parser.is_text(content) else None


def is_full(files: Files) -> bool:
  """Whether there is no room for one more file."""
  return len(visible(files)) >= MAX_FILES


def with_file(
  files: Files, target: str, text: str | types.Blob
) -> dict[str, str | types.Blob]:
  """The files with one more, or changed; ActionFailed beyond the limits.

  Where the text is too much with the undo copies, the oldest of them go.
  """
  if why := clash(visible(files), target):
    raise ActionFailed(why)
  changed = {**files, target: text}
  if target not in files and is_full(files):
    raise ActionFailed(f'the workspace holds at most {MAX_FILES} files.')
  if isinstance(text, types.Blob):
    return changed
  # Characters first: four bytes each at most.
  if (
    len(text) > MAX_FILE_BYTES
    or len(text.encode('utf-8', 'surrogatepass')) > MAX_FILE_BYTES
  ):
    raise ActionFailed(f'a file holds at most {MAX_FILE_BYTES} bytes.')
  if not parser.is_text(text):
    raise ActionFailed('the file would hold a NUL or a lone surrogate.')
  if text_bytes(visible(changed)) > MAX_TEXT_BYTES:
    raise ActionFailed(f'{TOO_MUCH}.')
  return with_room(changed)


def with_room(files: Files) -> dict[str, str | types.Blob]:
  """The files without the oldest undo copies, as many as are too much text."""
  kept, size = dict(files), text_bytes(files)
  for name in sorted(files):
    if size > MAX_TEXT_BYTES and within(name, BACKUP):
      if old := text_bytes({name: files[name]}):
        size -= old
        del kept[name]
  return kept


def text_bytes(files: Files) -> int:
  """Returns the bytes of all text in the workspace, undo copies included."""
  return sum(
    len(value.encode('utf-8', 'surrogatepass'))
    for value in files.values()
    if isinstance(value, str)
  )


def _backups(files: Files, path: str) -> list[str]:
  """Names of the undo copies of a file, the oldest first."""
  return sorted(
    name
    for name in files
    if within(name, BACKUP) and name.split('/', 2)[2] == path
  )


def with_backup(files: Files, path: str) -> dict[str, str | types.Blob]:
  """The files with an undo copy of one that is there."""
  if path not in files:
    return dict(files)
  kept = dict(files)
  numbers = [int(n.split('/')[1]) for n in files if within(n, BACKUP)]
  kept[f'{BACKUP}/{max(numbers, default=0) + 1:06d}/{path}'] = files[path]
  for old in _backups(kept, path)[:-MAX_BACKUPS]:
    del kept[old]
  return kept


def undone(files: Files, path: str) -> dict[str, str | types.Blob]:
  """The files with the last undo copy of one in its place."""
  copies = _backups(files, path)
  if not copies:
    raise ActionFailed('there is no change to undo.', 'missing', path)
  if why := clash(visible(files), path):
    raise ActionFailed(why)
  restored = dict(files)
  restored[path] = restored.pop(copies[-1])
  return restored


def text(files: Files, name: str) -> str:
  """A file's text; '' where there is none."""
  found = files.get(name, '')
  return found if isinstance(found, str) else ''
