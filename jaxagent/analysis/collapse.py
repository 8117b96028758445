"""Whether a policy's ideas become alike while their mean reward rises.

Training on the outcome of execution raises the mean and narrows the ideas
(arXiv 2601.14525); the best of several then gains nothing, or falls.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Hashable, Sequence

from jaxagent.analysis.evaluation import best_at_k

BEST_OF = 8


def distinct_share(texts: Sequence[str]) -> float | None:
  """Returns the share of different texts; None without any.

  White space and capital letters make no difference.
  """
  if not texts:
    return None
  return len({' '.join(text.lower().split()) for text in texts}) / len(texts)


def entropy(kinds: Sequence[Hashable]) -> float | None:
  """Returns the entropy of kinds in nats, 0 where all are one; None without any."""
  if not kinds:
    return None
  counts = collections.Counter(kinds).values()
  shares = [count / len(kinds) for count in counts]
  return abs(math.fsum(p * math.log(p) for p in shares))


def mixed_share(groups: Sequence[Sequence[float | None]]) -> float | None:
  """Returns the share of groups with different rewards; None without a group.

  Only those teach something under GRPO. None among the rewards is a member without
  one, which is left out.
  """
  if not groups:
    return None
  mixed = [len({r for r in group if r is not None}) > 1 for group in groups]
  return sum(mixed) / len(mixed)


def best_beside_mean(
  groups: Sequence[Sequence[float | None]], k: int = BEST_OF
) -> tuple[float, float] | None:
  """Returns (expected best reward of k, mean reward), means over groups.

  A group with fewer than k rewards is left out; None where that leaves none.
  """
  kept = [[r for r in group if r is not None] for group in groups]
  kept = [group for group in kept if len(group) >= k]
  if not kept:
    return None
  best = math.fsum(best_at_k(group, k) for group in kept) / len(kept)
  mean = math.fsum(math.fsum(g) / len(g) for g in kept) / len(kept)
  return best, mean
