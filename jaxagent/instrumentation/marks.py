"""Marks: what a running program leaves behind, and what it is worth.

A mark is one line of a file: a digest of its number under a key of the run. The
key comes in a file that is gone before the program's own first line runs, and
then lives in a hash object, which does not give it out. That keeps a program from
printing its way to credit, or from reading the key where programs can read. It
does not keep one from searching its own process for that object and using it
(docs/rl_for_mle.md): the verified mode rules that out.

Marks are written once the program has imported a package that was installed
before it ran; those of before then wait. With Python's own modules alone no model
is trained. It does not ask whether the package is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence

from jaxagent.rewards.mle import MARKERS

NAMES = MARKERS  # a mark for each, by its number
IMPORTED, LOADED, DEFINED, TRAINING_LOSS, TRAINED, TESTING_LOSS, PREDICTED = (
  range(7)
)
# A mark counts only after these, where they have a place in the program.
_AFTER = {
  LOADED: (IMPORTED,),
  DEFINED: (IMPORTED,),
  TRAINING_LOSS: (LOADED, DEFINED),
  TRAINED: (LOADED, DEFINED),
  TESTING_LOSS: (LOADED, DEFINED),
  PREDICTED: (TRAINED,),
}
# No milestone: a package that is not Python's own has been imported.
PACKAGE = len(NAMES)
_DIGEST = 16  # bytes

# In the program's process. It must not fail, print, or be seen by the program
# more than an imported name is. It imports what Python itself has.
_MODULE = """\
import hashlib, os, sys

def _make():
  nothing = {{}}.get  # takes what a mark takes, and leads to nothing
  try:
    with open({key_file!r}, 'rb') as file:
      keyed = hashlib.blake2b(key=file.read(), digest_size={digest})
    os.unlink({key_file!r})
    out = os.open({marks_file!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
  except OSError:  # another process of the same program
    return nothing
  program = sys._getframe()
  while program is not None and program.f_globals['__name__'] != '__main__':
    program = program.f_back
  if program is None:
    return nothing
  space, codes, found = program.f_globals, {{}}, [program.f_code]
  for code in found:  # and what it holds
    found += [c for c in code.co_consts if isinstance(c, type(code))]
    if '_{name}' in code.co_names:
      codes[id(code)] = code
  python, real = os.path.dirname(os.__file__), os.path.realpath
  packages = {{real(path) for path in sys.path if path}} - {{
    real(os.path.dirname(__file__)), real(python), real(python + '/lib-dynload'),
  }}
  lines, frame, write, modules = {lines!r}, sys._getframe, os.write, sys.modules
  told, waiting = set(), []

  def is_package(name):
    spec = getattr(modules.get(name), '__spec__', None)
    paths = getattr(spec, 'submodule_search_locations', None)
    paths = paths or [getattr(spec, 'origin', None) or '']
    folders = [os.path.dirname(path) for path in paths]  # '' of a built-in one
    return any(folder and real(folder) in packages for folder in folders)

  class Mark:
    __slots__ = ()

    def __call__(self, number, value=None):
      try:
        if number in told:
          return
        at = frame(1)
        if id(at.f_code) not in codes or at.f_globals is not space:
          return  # code that the program has made, not what it is
        if at.f_lineno not in lines[number]:
          return
        if number == {package}:
          if any(map(is_package, value.split())):
            told.add(number)
            write(out, b''.join(waiting))
          return
        told.add(number)
        digest = keyed.copy()
        digest.update(b'%d' % number)
        text = digest.hexdigest()
        if isinstance(value, float):
          text += ' %.6g' % value
        line = text.encode() + b'\\n'
        if {package} in told:
          write(out, line)
        else:
          waiting.append(line)
      except Exception:
        pass

    def __reduce__(self):  # a function that is sent elsewhere takes no key along
      return getattr, ({{}}, 'get')

  return Mark()

mark = _make()
"""


@dataclasses.dataclass(frozen=True)
class Mark:
  """A milestone that was reached.

  value: the loss or score that the program computed there, if it is known.
  """

  name: str
  value: float | None = None


def files(
  name: str, key: bytes, lines: Mapping[int, Sequence[int]]
) -> dict[str, str | bytes]:
  """Returns the files for the workspace: the module `name` and its key.

  lines: number of a mark -> lines of the program that may set it.
  """
  module = _MODULE.format(
    name=name,
    package=PACKAGE,
    key_file=f'.{name}.key',
    marks_file=marks_file(name),
    digest=_DIGEST,
    lines={number: tuple(at) for number, at in lines.items()},
  )
  return {f'{name}.py': module, f'.{name}.key': key}


def marks_file(name: str) -> str:
  """Returns the file of the workspace into which marks are written."""
  return f'.{name}.marks'


def read(data: bytes, key: bytes, placed: Sequence[int]) -> tuple[Mark, ...]:
  """The milestones in a marks file, in their order, each once.

  placed: numbers of the marks that have a place in the program. Lines that are
  not of this run count for nothing, nor does a mark that came before one that it
  follows from.
  """
  digests = {_digest(key, number): number for number in placed}
  found: dict[int, Mark] = {}
  for line in data.decode('ascii', 'replace').splitlines():
    digest, _, value = line.partition(' ')
    number = digests.get(digest)
    if number is None or number in found:
      continue
    needed = [n for n in _AFTER.get(number, ()) if n in placed]
    if all(n in found for n in needed):
      found[number] = Mark(NAMES[number], _value(value))
  return tuple(found.values())


def _digest(key: bytes, number: int) -> str:
  keyed = hashlib.blake2b(key=key, digest_size=_DIGEST)
  keyed.update(b'%d' % number)
  return keyed.hexdigest()


def _value(text: str) -> float | None:
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None
