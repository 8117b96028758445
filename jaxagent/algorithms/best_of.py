"""Advantages for the best of K samples, exact, on the host in float64.

J_K is the expected maximum over K independent samples of a policy. Of m samples of one
prompt with scores r, S_i is the mean, over the (K-1)-subsets J of the others, of
max(r_i, max J), and U_K the mean of the maximum over all K-subsets. Then
  grad J_K = E[sum_i (K/m) S_i grad log p_i],
and the U_K of the others is a baseline that does not depend on sample i:
  A_i = K (S_i - U_K(without i)) = K m / (m - K) (S_i - mean S),  1 <= K <= m - 1,
is unbiased, sums to 0, needs no rule for ties, and is leave-one-out RLOO at K = 1. The
estimator without that baseline is PKPO (Walder and Karkhanis 2025, arXiv 2505.15201).

Where sample j stands for w_j samples, of another policy or selected, means over subsets
weigh each subset by the product of its weights: binomials become elementary symmetric
polynomials, and the estimator self-normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

# Scores come as sums of a few float32 terms: a spread within their rounding is none.
_ROUNDING = 4 * float(np.finfo(np.float32).eps)
# Of the tilted distribution of a group from the even one (`entropic_advantages`).
_ENTROPIC_KL = math.log(2)
_LARGEST_TILT = 1e6  # in units of a group's spread


def best_of_advantages(
  scores: np.ndarray,
  group_ids: Sequence[Hashable],
  k: int,
  *,
  valid: np.ndarray | None = None,
  weights: np.ndarray | None = None,
  baseline_weights: np.ndarray | None = None,
) -> np.ndarray:
  """Returns the advantages [B], float64, for the best of `k` samples of a group.

  Of a group with m valid members K is at most m - 1; with fewer than two valid members,
  and where all scores are equal but for rounding, they are exactly 0.

  Args:
    scores: [B]; one that is not finite is not valid.
    group_ids: [B], equal for samples of one prompt.
    k: samples of which the best counts, 1 or more.
    valid: [B] bool, False for members that were lost: they get 0 and count for nothing.
    weights: [B], above 0, the number of samples that each stands for; None: 1 each.
    baseline_weights: [B], above 0: of the others in the mean that is subtracted,
      K (S_i - sum_j d_j S_j / sum_j d_j), S_j among those without i. For advantages
      that duration weights d multiply: the sum is then the gradient of
      E[d S] / E[d], but for the bias of that mean, of the order of 1/m.

  Raises ValueError for another k, shape or weight.
  """
  return _by_group(
    scores, group_ids, k, valid, weights, _centred_best, baseline_weights
  )


def pkpo_advantages(
  scores: np.ndarray,
  group_ids: Sequence[Hashable],
  k: int,
  *,
  valid: np.ndarray | None = None,
) -> np.ndarray:
  """Returns PKPO's `loo-1` advantages [B]: K times the mean lead over K - 1 others.

  Unbiased as `best_of_advantages`, never negative and not centred: an arm to compare
  with. Groups with fewer than two valid members get 0. Arguments as there, but k is 2 or
  more, and K may be m.
  """
  if k == 1:
    raise ValueError('k=1: there is no lead over no others; choose 2 or more.')
  return _by_group(scores, group_ids, k, valid, None, _pkpo)


def entropic_advantages(
  scores: np.ndarray,
  group_ids: Sequence[Hashable],
  *,
  valid: np.ndarray | None = None,
  baseline_weights: np.ndarray | None = None,
) -> np.ndarray:
  """Returns e^(b r_i) / (mean of e^(b r) over the others) - 1 [B], an arm.

  b is the one at which the group's tilted distribution has a divergence of log 2 from
  the even one (of half its largest, log m, in groups of fewer than four), so it is
  finite for any group. Not centred, and no gradient of any J_K. Equal scores, and groups
  of one, get 0. With `baseline_weights` the weighted mean over the others is subtracted.
  """

  def centred(r: np.ndarray, k: int, w: None, d: np.ndarray | None):
    tilted = _entropic(r)
    return tilted if d is None else tilted - _mean_of_others(tilted, d)

  return _by_group(scores, group_ids, 1, valid, None, centred, baseline_weights)


def max_rl_advantages(
  scores: np.ndarray,
  group_ids: Sequence[Hashable],
  k: int,
  *,
  valid: np.ndarray | None = None,
  baseline_weights: np.ndarray | None = None,
) -> np.ndarray:
  """Returns the sum of the advantages for the best of 1, 2, ..., K, each over its K.

  Of rewards 0 and 1 it is what maximum-likelihood RL estimates up to its order K
  (arXiv 2602.02710), here for any scores. An arm; arguments as `best_of_advantages`.
  """
  return _by_group(
    scores, group_ids, k, valid, None, _harmonic, baseline_weights
  )


def means_of_best(
  scores: np.ndarray, k: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
  """Returns S [m] and the U_K of the others [m] of one group's scores [m].

  1 <= k <= m - 1. weights: [m], above 0; None: 1 each.
  """
  scores = np.asarray(scores, np.float64)
  order = np.argsort(scores, kind='stable')
  back = np.argsort(order, kind='stable')
  ordered = scores[order]
  if weights is None:
    own, rest = _by_binomials(ordered, k)
  else:
    own, rest = _by_polynomials(
      ordered, np.asarray(weights, np.float64)[order], k
    )
  return own[back], rest[back]


def _check_k(k: int) -> None:
  if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
    raise ValueError(
      f'k={k!r} must be a whole number of samples, 1 or more; 1 is the mean.'
    )


def _by_group(
  scores: np.ndarray,
  group_ids: Sequence[Hashable],
  k: int,
  valid: np.ndarray | None,
  weights: np.ndarray | None,
  advantages: Callable[..., np.ndarray],
  baseline_weights: np.ndarray | None = None,
) -> np.ndarray:
  """Applies `advantages(scores [m], k, weights, baseline_weights)` to each group."""
  _check_k(k)
  scores = np.asarray(scores, np.float64)
  if scores.ndim != 1 or len(group_ids) != len(scores):
    raise ValueError(
      f'scores {scores.shape} and {len(group_ids)} group_ids must be lists of one '
      'length.'
    )
  keep = np.isfinite(scores)
  if valid is not None:
    keep &= np.asarray(valid, bool)
  weights = _checked(weights, keep, 'weights')
  baseline_weights = _checked(baseline_weights, keep, 'baseline_weights')
  members: dict[Hashable, list[int]] = {}
  for index, group in enumerate(group_ids):
    if keep[index]:
      members.setdefault(group, []).append(index)
  out = np.zeros(len(scores))
  for own in members.values():
    r = scores[own]
    spread, size = np.ptp(r), np.abs(r).max()
    if len(own) > 1 and spread > _ROUNDING * size:
      w = None if weights is None else weights[own]
      d = None if baseline_weights is None else baseline_weights[own]
      out[own] = advantages(r - r.min(), k, w, d)
  return out


def _checked(
  weights: np.ndarray | None, keep: np.ndarray, name: str
) -> np.ndarray | None:
  if weights is None:
    return None
  weights = np.asarray(weights, np.float64)
  if weights.shape != keep.shape or not (weights[keep] > 0).all():
    raise ValueError(
      f'{name} must be above 0, one for each score; leave out a sample that stands '
      'for none with valid=False.'
    )
  return weights


def _centred_best(
  r: np.ndarray,
  k: int,
  weights: np.ndarray | None,
  baseline_weights: np.ndarray | None,
) -> np.ndarray:
  k = min(k, len(r) - 1)
  own, rest = means_of_best(r, k, weights)
  if baseline_weights is not None:
    rest = _weighted_rest(r, k, weights, baseline_weights)
  return k * (own - rest)


def _weighted_rest(
  r: np.ndarray, k: int, weights: np.ndarray | None, d: np.ndarray
) -> np.ndarray:
  """Returns [m] the mean of S under d among the others of each member."""
  rest = np.empty(len(r))
  for i in range(len(r)):
    others = np.delete(np.arange(len(r)), i)
    w = None if weights is None else weights[others]
    if k == len(others):  # one subset
      rest[i] = r[others].max()
      continue
    s = means_of_best(r[others], k, w)[0]
    share = d[others] if w is None else d[others] * w
    rest[i] = np.sum(share * s) / np.sum(share)
  return rest


def _mean_of_others(x: np.ndarray, d: np.ndarray) -> np.ndarray:
  others = ~np.eye(len(x), dtype=bool)
  return (others @ (d * x)) / (others @ d)


def _pkpo(r: np.ndarray, k: int, weights: None, d: None) -> np.ndarray:
  k = min(k, len(r))
  own = (
    means_of_best(r, k, weights)[0] if k < len(r) else np.full_like(r, r.max())
  )
  rest = means_of_best(r, k - 1, weights)[1]
  return k * (own - rest)


def _harmonic(
  r: np.ndarray, k: int, weights: None, d: np.ndarray | None
) -> np.ndarray:
  orders = range(1, min(k, len(r) - 1) + 1)
  return np.sum([_centred_best(r, j, None, d) / j for j in orders], axis=0)


def _entropic(r: np.ndarray) -> np.ndarray:
  m = len(r)
  scaled = (r - r.max()) / np.ptp(r)
  aim = min(_ENTROPIC_KL, 0.5 * math.log(m))

  def divergence(b: float) -> float:
    p = np.exp(b * scaled)
    p /= p.sum()
    return math.log(m) + float(np.sum(p * np.log(np.maximum(p, 1e-300))))

  low, high = 0.0, 1.0
  while divergence(high) < aim and high < _LARGEST_TILT:
    high *= 2  # several equal best ones may never reach the aim
  for _ in range(100):
    middle = (low + high) / 2
    low, high = (middle, high) if divergence(middle) < aim else (low, middle)
  tilted = np.exp(high * scaled)
  return tilted / ((tilted.sum() - tilted) / (m - 1)) - 1


def _by_binomials(r: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
  """`means_of_best` of ascending scores; whole numbers, divided once."""
  m = len(r)
  subsets, others = math.comb(m - 1, k - 1), math.comb(m - 1, k)
  least = [math.comb(j, k - 1) / subsets for j in range(m)]
  above = np.array(
    [
      math.comb(j - 1, k - 2) / subsets if k > 1 and j else 0.0
      for j in range(m)
    ]
  )
  higher = np.concatenate([np.cumsum((r * above)[::-1])[::-1][1:], [0.0]])
  own = r * least + higher
  # U_K without i: those below keep their place, those above move down by one.
  below = np.array([math.comb(j, k - 1) / others for j in range(m)])
  moved = np.array(
    [math.comb(j - 1, k - 1) / others if j else 0.0 for j in range(m)]
  )
  before = np.concatenate([[0.0], np.cumsum(r * below)[:-1]])
  after = np.concatenate([np.cumsum((r * moved)[::-1])[::-1][1:], [0.0]])
  return own, before + after


def _by_polynomials(
  r: np.ndarray, w: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
  """`means_of_best` of ascending scores with weights, by sums of products alone."""
  m = len(r)
  w = w / w.mean()
  index = np.arange(m)
  # Row i: e_0 .. e_k of the weights so far, without that of i.
  e = np.zeros((m, k + 1))
  e[:, 0] = 1.0
  own, rest = np.zeros(m), np.zeros(m)
  for j in range(m):
    own[j] += r[j] * e[j, k - 1]
    others, lower = index != j, index < j
    if k > 1:
      own[lower] += r[j] * w[j] * e[lower, k - 2]
    rest[others] += r[j] * w[j] * e[others, k - 1]
    e[others, 1:] += w[j] * e[others, :-1]
  return own / e[:, k - 1], rest / e[:, k]
