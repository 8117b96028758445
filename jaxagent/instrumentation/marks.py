"""Marks: what a running program leaves behind, and what it is worth.

A mark is one line of a file: a digest of its number under a key of the run. The
key comes in a file that is gone before the program's own first line runs, and
then lives in a hash object, which does not give it out. That keeps a program from
printing its way to credit, or from reading the key where programs can read. It
does not keep one from searching its own process for that object and using it
(docs/rl_for_mle.md): whoever has to rule that out takes the verified mode.
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
_DIGEST = 16  # bytes

# In the program's process. It must not fail, print, or be seen by the program
# more than an imported name is.
_MODULE = '''\
import hashlib, os, sys

def _make():
  try:
    with open({key_file!r}, 'rb') as file:
      keyed = hashlib.blake2b(key=file.read(), digest_size={digest})
    os.unlink({key_file!r})
    out = os.open({marks_file!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
  except OSError:  # another process of the same program
    return lambda number, value=None: None
  told, lines, frame, write = set(), {lines!r}, sys._getframe, os.write

  def mark(number, value=None):
    try:
      if number in told or frame(1).f_lineno not in lines[number]:
        return
      told.add(number)
      digest = keyed.copy()
      digest.update(b'%d' % number)
      text = digest.hexdigest()
      if isinstance(value, float):
        text += ' %.6g' % value
      write(out, text.encode() + b'\\n')
    except Exception:
      pass

  return mark

mark = _make()
'''


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
  """What the workspace gets: the module `name` and its key.

  lines: number of a mark -> lines of the program that may set it.
  """
  module = _MODULE.format(
    key_file=f'.{name}.key',
    marks_file=marks_file(name),
    digest=_DIGEST,
    lines={number: tuple(at) for number, at in lines.items()},
  )
  return {f'{name}.py': module, f'.{name}.key': key}


def marks_file(name: str) -> str:
  """Where marks are left in the workspace."""
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
