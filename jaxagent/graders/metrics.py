"""Metrics of the catalogue. scikit-learn and SciPy are imported when used.

Arrays are NumPy, [N] or [N, K]. A metric that is not defined for its input
(one class only, negative logarithms) raises ValueError instead of giving
NaN, whatever the installed library would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def _floats(values) -> np.ndarray:
  values = np.asarray(values, dtype=float)
  if not np.isfinite(values).all():
    raise ValueError('predictions hold NaN or infinite values')
  return values


def roc_auc(y_true: Any, y_score) -> float:
  """Area under the ROC curve; [N, K] is averaged over the K columns."""
  from sklearn.metrics import roc_auc_score

  y_true, y_score = np.asarray(y_true), _floats(y_score)
  if y_true.shape != y_score.shape:
    raise ValueError(
      f'predictions have shape {y_score.shape}, answers {y_true.shape}'
    )
  if y_true.ndim == 2:
    columns = range(y_true.shape[1])
    return float(
      np.mean([roc_auc(y_true[:, k], y_score[:, k]) for k in columns])
    )
  if len(np.unique(y_true)) < 2:
    raise ValueError('ROC AUC needs both classes among the answers')
  return float(roc_auc_score(y_true, y_score))


def log_loss(y_true_nk, y_pred_nk) -> float:
  """Mean cross-entropy of one-hot answers; probabilities clipped at eps."""
  y_true, y_pred = np.asarray(y_true_nk, float), _floats(y_pred_nk)
  eps = np.finfo(float).eps
  clipped = np.clip(y_pred, eps, 1 - eps)
  return float(-(y_true * np.log(clipped)).sum(axis=1).mean())


def binary_log_loss(y_true: Any, y_pred: Any) -> float:
  """Mean cross-entropy of 0/1 answers [N] and P(1) [N]."""
  y_true, y_pred = np.asarray(y_true, float), _floats(y_pred)
  if y_true.shape != y_pred.shape:
    raise ValueError('predictions and answers differ in length')
  if len(np.unique(y_true)) < 2:
    raise ValueError('log loss needs both classes among the answers')
  return log_loss(
    np.stack([1 - y_true, y_true], 1), np.stack([1 - y_pred, y_pred], 1)
  )


def accuracy(y_true: Any, y_pred: Any) -> float:
  """Share of equal labels."""
  from sklearn.metrics import accuracy_score

  return float(accuracy_score(y_true, y_pred))


def argmax_accuracy(y_true_n, scores_nk) -> float:
  """Share of rows whose largest score has the label's place; ties: the first."""
  return float(np.mean(np.argmax(_floats(scores_nk), 1) == y_true_n))


def mae(y_true: Any, y_pred: Any) -> float:
  """Mean absolute error."""
  return float(np.mean(np.abs(_floats(y_true) - _floats(y_pred))))


def smape_plus_one(y_true: Any, y_pred: Any) -> float:
  """SMAPE of values + 1 in percent (0 to 200), over rows whose truth is finite.

  Raises: ValueError for negative values. NaN where a prediction is not finite.
  """
  y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
  known = np.isfinite(y_true)
  y_true, y_pred = y_true[known], y_pred[known]
  if (y_true < 0).any() or (y_pred < 0).any():
    raise ValueError('SMAPE of values + 1 needs values of zero or more')
  denominator = (y_true + y_pred) / 2 + 1
  return float(np.average(np.abs(y_pred - y_true) / denominator) * 100)


def perplexity(symbols_n, weights_nv) -> float:
  """exp of the mean negative log probability of the symbols that came.

  symbols: integers [N] in [0, V). weights: [N, V], divided by their row's sum,
  as softmax of their logarithms does. Infinite where a symbol has weight 0.
  """
  weights = np.asarray(weights_nv, dtype=float)
  own = weights[np.arange(len(weights)), np.asarray(symbols_n)]
  with np.errstate(all='ignore'):
    nll = np.mean(np.log(weights.sum(axis=1)) - np.log(own))
    return float(np.exp(nll))


def rmse(y_true: Any, y_pred: Any) -> float:
  """Root mean squared error."""
  return float(np.sqrt(np.mean(np.square(_floats(y_true) - _floats(y_pred)))))


def rmsle(y_true: Any, y_pred: Any) -> float:
  """Root mean squared error of log(1 + x), for values of zero or more."""
  y_true, y_pred = _floats(y_true), _floats(y_pred)
  if (y_true < 0).any() or (y_pred < 0).any():
    raise ValueError('RMSLE is not defined for negative values')
  return rmse(np.log1p(y_true), np.log1p(y_pred))


def mcrmse(y_true_nk, y_pred_nk) -> float:
  """RMSE of each column, averaged over columns."""
  y_true, y_pred = _floats(y_true_nk), _floats(y_pred_nk)
  return float(np.mean(np.sqrt(np.mean(np.square(y_true - y_pred), axis=0))))


def quadratic_kappa(y_true: Any, y_pred: Any) -> float:
  """Cohen's kappa with quadratic weights, as scikit-learn has it.

  A weight is of the places among the labels that occur, not of the labels.
  """
  from sklearn.metrics import cohen_kappa_score

  return float(cohen_kappa_score(y_pred, y_true, weights='quadratic'))


def grade_kappa(y_true: ArrayLike, y_pred: ArrayLike) -> float:
  """Quadratic kappa by the distance of the grades themselves; NaN if undefined.

  1 - mean((t - p)^2) / mean over all pairs of rows i, j of (t_i - p_j)^2.
  Labels that do not occur bring the others no nearer to each other.
  """
  true, pred = np.asarray(y_true, float), np.asarray(y_pred, float)
  # Over all pairs, without their table: E(t - p)^2 of independent draws.
  chance = np.var(true) + np.var(pred) + (true.mean() - pred.mean()) ** 2
  seen = np.mean(np.square(true - pred))
  return float(1 - seen / chance) if chance > 0 else float('nan')


def pearson(y_true: Any, y_pred: Any) -> float:
  """Pearson's r; NaN where a prediction is NaN or all are equal."""
  y_true, y_pred = np.asarray(y_true, float), np.asarray(y_pred, float)
  if len(y_true) < 2:
    raise ValueError('a correlation needs two rows or more')
  if np.isnan(y_pred).any() or np.ptp(y_pred) == 0 or np.ptp(y_true) == 0:
    return float('nan')
  from scipy.stats import pearsonr

  return float(pearsonr(y_true, y_pred)[0])


def mean_spearman(y_true_nk, y_pred_nk) -> float:
  """Spearman's rho of each column, averaged; NaN if one is undefined."""
  from scipy.stats import spearmanr

  y_true = np.asarray(y_true_nk, float)
  y_pred = np.asarray(y_pred_nk, float)
  rhos = []
  for k in range(y_true.shape[1]):
    a, b = y_pred[:, k], y_true[:, k]
    bad = np.isnan(a).any() or np.ptp(a) == 0 or np.ptp(b) == 0
    rhos.append(np.nan if bad else spearmanr(a, b).correlation)
  return float(np.mean(rhos))


def word_jaccard(a: str, b: str) -> float:
  """|A & B| / |A | B| of the sets of lower-cased words.

  Raises: ZeroDivisionError where both are empty.
  """
  first, second = set(a.lower().split()), set(b.lower().split())
  return len(first & second) / len(first | second)


def edit_distance(a: Sequence, b: Sequence) -> int:
  """Levenshtein's distance: insertions, deletions and substitutions."""
  row = list(range(len(b) + 1))
  for i, x in enumerate(a, 1):
    previous, row[0] = row[0], i
    for j, y in enumerate(b, 1):
      previous, row[j] = (
        row[j],
        min(row[j] + 1, row[j - 1] + 1, previous + (x != y)),
      )
  return row[-1]


def edit_error_rate(truths: Sequence, predictions: Sequence) -> float:
  """Sum of edit distances over the total length of the truths."""
  total = sum(edit_distance(a, b) for a, b in zip(truths, predictions))
  return total / sum(len(truth) for truth in truths)


def kendall_tau(
  orders: Sequence[Sequence], others: Sequence[Sequence]
) -> float:
  """1 - 4 (inversions) / sum(n (n - 1)), pooled over the rows.

  Raises: ValueError where an item of one order is missing in the other.
  """
  inversions = pairs = 0
  for order, other in zip(orders, others):
    # index(), as the first of repeated items counts.
    ranks = np.array([order.index(item) for item in other], dtype=int)
    later = np.triu(ranks[:, None] > ranks[None, :], 1)
    inversions += int(later.sum())
    pairs += len(order) * (len(order) - 1)
  return 1 - 4 * inversions / pairs


def average_precision_at(truth: set, ranked: Sequence, k: int) -> float:
  """AP@k of distinct hits; 0 for an empty truth."""
  hits, score, seen = 0, 0.0, set()
  for i, item in enumerate(ranked[:k], 1):
    if item in truth and item not in seen:
      hits += 1
      score += hits / i
    seen.add(item)
  return score / min(len(truth), k) if truth else 0.0


def laplace_log_likelihood(actual, predicted, confidence) -> float:
  """Mean modified Laplace log-likelihood (OSIC): sigma at least 70, error at
  most 1000."""
  sigma = np.maximum(confidence, 70)
  error = np.minimum(np.abs(np.asarray(actual) - np.asarray(predicted)), 1000)
  values = -np.sqrt(2) * error / sigma - np.log(np.sqrt(2) * sigma)
  return float(np.mean(values))


def decode_rle(text: str, height: int, width: int) -> np.ndarray:
  """Bool mask [height, width] of 1-based, column-major (start, length) runs.

  Raises: ValueError for unsorted, overlapping or non-positive runs. Runs
  over the end are cut, and a missing last length is tolerated as NumPy
  broadcasting does; the strict grader checks for both first.
  """
  numbers = [int(part) for part in text.split()]
  starts, lengths = numbers[0::2], numbers[1::2]
  if not numbers:
    return np.zeros((width, height), dtype=bool).T
  if starts != sorted(starts) or min(numbers) <= 0:
    raise ValueError('runs must be sorted and positive')
  begin, size = np.array(starts) - 1, height * width
  end = begin + np.array(lengths, dtype=int)
  begin = begin[: len(end)]
  # An end beyond 64 bits has wrapped around, and such a run is empty in the source.
  begin, end = begin[end > begin], end[end > begin]
  if np.any((begin[1:] < end[:-1]) & (begin[1:] < size)):
    raise ValueError('runs overlap')
  changes = np.zeros(size + 1, np.int8)
  # One run may begin where another ends, and all may be cut at the end.
  for places, step in ((begin, 1), (end, -1)):
    np.add.at(changes, np.minimum(places, size).astype(int), np.int8(step))
  mask = np.cumsum(changes[:-1], dtype=np.int8).view(bool)
  return mask.reshape(width, height).T


def mask_precision(truth: np.ndarray, predicted: np.ndarray) -> float:
  """Share of IoU thresholds 0.5, 0.55, .. 0.95 that one mask exceeds.

  An empty truth gives 1 for an empty prediction and 0 for any other.
  """
  if not truth.any():
    return float(not predicted.any())
  iou = (truth & predicted).sum() / (truth | predicted).sum()
  return float(np.mean(iou > np.arange(0.5, 1.0, 0.05)))


def dice(truths, predictions: Any, smooth: float = 0.0) -> float:
  """2 |A & B| / (|A| + |B|) of boolean masks of equal shapes, pooled.

  smooth is added above and below; without it two empty masks give NaN.
  """
  both = sum(int((t & p).sum()) for t, p in zip(truths, predictions))
  total = sum(int(t.sum()) + int(p.sum()) for t, p in zip(truths, predictions))
  if total + smooth == 0:
    return float('nan')
  return (2 * both + smooth) / (total + smooth)


def bias_auc(
  toxic_n, predicted_n, identity_nk, *, power: float = -5, weight: float = 0.25
) -> float:
  """Overall AUC and the power means of three bias AUCs, a quarter each.

  Subgroup; background positive, subgroup negative; and the reverse (Jigsaw
  Unintended Bias). toxic and identity are 0/1.
  """
  toxic, inside = np.asarray(toxic_n, bool), np.asarray(identity_nk, bool)
  predicted = np.asarray(predicted_n, float)
  means = []
  for rows_of in (
    lambda group: group,
    lambda group: toxic != group,
    lambda group: toxic == group,
  ):
    aucs = []
    for k in range(inside.shape[1]):
      rows = rows_of(inside[:, k])
      aucs.append(roc_auc(toxic[rows].astype(int), predicted[rows]))
    means.append(np.mean(np.power(aucs, power)) ** (1 / power))
  return float(
    weight * roc_auc(toxic.astype(int), predicted) + weight * sum(means)
  )
