"""Scores of the last rollouts of each kind, to compare an update's own with.

The best of K is compared with that of others; where a prompt occurs once, or few of its
samples are in an update, those are the last ones of the same task and kind
(`Record.compared_with`), of somewhat older policies. They do not depend on the sample, so
what is subtracted adds no bias; the objective's maximum is then over one sample of the
policy and K - 1 others, of the window and of its update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent import types


@dataclasses.dataclass(frozen=True)
class Past:
  """Members of the groups of an update that are not trained on.

  scores, weights: float64 [P], weights those of `baseline='weighted'`.
  group_ids: int [P], numbers of the update's groups.
  """

  scores: np.ndarray
  weights: np.ndarray
  group_ids: np.ndarray


class ScoreWindow:
  """The last `size` (score, weight) of each kind; deterministic, JSON-able."""

  def __init__(self, size: int):
    self.size = size
    self._kept: dict[str, list[tuple[float, float]]] = {}

  def past(self, kinds: Sequence[str], group_ids: np.ndarray) -> Past:
    """Returns the members of the past of each group, of kind `kinds[i]` each row."""
    found: list[tuple[float, float, int]] = []
    for group, kind in dict(zip(group_ids.tolist(), kinds)).items():
      found += [(*one, group) for one in self._kept.get(kind, ())]
    scores, weights, groups = np.array(found, np.float64).reshape(-1, 3).T
    return Past(scores, weights, groups.astype(np.int64))

  def add(
    self, kinds: Sequence[str], scores: np.ndarray, weights: np.ndarray
  ) -> None:
    """Takes the rollouts of an update, [n] each; the oldest of a kind are dropped."""
    for kind, score, weight in zip(kinds, scores.tolist(), weights.tolist()):
      kept = self._kept.setdefault(kind, [])
      kept.append((score, weight))
      del kept[: -self.size]

  def state(self) -> dict[str, list[list[float]]]:
    """JSON-able."""
    return {kind: [list(one) for one in of] for kind, of in self._kept.items()}

  def load(self, state: Mapping[str, Any]) -> None:
    """Takes over what `state` gave."""
    self._kept = {
      kind: [(score, weight) for score, weight in of]
      for kind, of in state.items()
    }


def kinds_of(samples: Sequence[types.Sample], first: np.ndarray) -> list[str]:
  """Returns of each row whose scores its own are compared with.

  first: [N], the first row of each row's interaction. Rows without a record are of the
  kind of their group.
  """
  found = []
  for index in first:
    sample = samples[index]
    record = sample.record
    found.append(sample.group_id if record is None else record.compared_with)
  return found
