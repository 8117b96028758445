"""A way to compute a function of a task's script."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Way:
  """A way to compute a function, in words and in code.

  worth: a prior between 0 and 1 of how often it helps, as of `moves.Move`.
  words: what an instruction says; `{n}` in it and in the code stands for a number.
  code: the function, written anew.
  numbers: first, last and step of the numbers to try.
  """

  worth: float
  words: str
  code: str
  numbers: tuple[int, ...] = ()

  def tried(self) -> list[str]:
    """Returns the words with each number to try."""
    if not self.numbers:
      return [self.words]
    first, last, *step = self.numbers
    return [
      self.words.replace('{n}', str(n))
      for n in range(first, last + 1, *(step or (1,)))
    ]
