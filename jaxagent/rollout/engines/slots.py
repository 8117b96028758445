"""Slots of a key-value cache: who sits where, and what can be used again.

Pure bookkeeping in numpy; the programs that move keys and values are given
`Plan`s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

# Fewer tokens in common are not worth a copy.
_LEAST_COMMON = 16


@dataclasses.dataclass(frozen=True)
class Plan:
  """Plan for bringing a prompt into its slot.

  slot: where it sits. source: the slot whose first `kept` tokens it shares,
  itself where they are there already; None: nothing is shared. A plan `after`
  the others copies what one of them has just written.
  """

  slot: int
  source: int | None
  kept: int
  after: bool = False


class Slots:
  """`n` slots of `columns` tokens; `share`: whether texts are used again.

  `text[slot, :held[slot]]` are the ids whose keys and values the cache holds,
  all computed with the present weights.
  """

  def __init__(self, n: int, columns: int, share: bool = True):
    self.n, self.columns, self._share = n, columns, share
    self.text = np.zeros((n, columns), np.int32)
    self.held = np.zeros(n, np.int32)
    self.taken = np.zeros(n, bool)
    # Its keys are all of the present weights, so that others may use them.
    self._pure = np.ones(n, bool)

  @property
  def free(self) -> int:
    return int(self.n - self.taken.sum())

  def seat(self, prompts: Sequence[np.ndarray]) -> list[Plan]:
    """Takes a free slot for each prompt; there must be as many.

    The last token of a prompt is not kept: it is what decoding feeds first.
    """
    plans: list[Plan] = []
    first: dict[bytes, int] = {}
    for prompt in prompts:
      kept = np.asarray(prompt[:-1], np.int32)
      twin = first.get(kept.tobytes())
      if twin is not None and len(kept) and self._share:
        plans.append(Plan(self._empty(), twin, len(kept), after=True))
      else:
        plans.append(self._plan(kept))
        first[kept.tobytes()] = plans[-1].slot
      self.taken[plans[-1].slot] = True
    for plan, prompt in zip(plans, prompts):
      n = len(prompt) - 1
      self.text[plan.slot, :n] = prompt[:-1]
      self.held[plan.slot], self._pure[plan.slot] = n, True
    return plans

  def write(self, slot: int, tokens: np.ndarray) -> None:
    """The cache holds these tokens of the slot, too."""
    at = int(self.held[slot])
    self.text[slot, at : at + len(tokens)] = tokens
    self.held[slot] = at + len(tokens)

  def leave(self, slot: int) -> None:
    """Frees it; what it holds may be used again until it is taken."""
    self.taken[slot] = False

  def forget(self) -> None:
    """The weights are new: what is held is no prefix for anyone."""
    self._pure[:] = False

  def _plan(self, kept: np.ndarray) -> Plan:
    if not len(kept) or not self._share:
      return Plan(self._empty(), None, 0)
    common = self._common(kept)
    source = int(np.argmax(common))
    shared = int(common[source])
    if shared < min(_LEAST_COMMON, len(kept)):
      return Plan(self._empty(), None, 0)
    if not self.taken[source] and shared == self.held[source]:
      return Plan(source, source, shared)
    return Plan(self._empty(), source, shared)

  def _common(self, kept: np.ndarray) -> np.ndarray:
    """[n]: how many first tokens each slot shares with `kept`."""
    same = self.text[:, : len(kept)] == kept
    length = np.where(same.all(1), len(kept), np.argmin(same, 1))
    return np.where(self._pure, np.minimum(length, self.held), 0)

  def _empty(self) -> int:
    """A free slot: the lowest that holds nothing of use, else the lowest."""
    free = np.flatnonzero(~self.taken)
    useless = free[~self._pure[free] | (self.held[free] == 0)]
    return int(useless[0] if len(useless) else free[0])
