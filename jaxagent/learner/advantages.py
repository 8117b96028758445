"""Computes the inputs of the loss from rewards, values and log-probs per sample.

All arrays [N, R]: N samples, R response tokens, zero-padded. Working per
sample makes packing irrelevant to the result. A sample is a row of one
interaction; rows of the same interaction count as one where interactions are
compared or averaged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxagent import algorithms, types
from jaxagent.learner.config import (
  OF_THE_BEST,
  ON_THE_HOST,
  LearnerConfig,
)
from jaxagent.learner.score_window import Past


@functools.partial(jax.jit, static_argnames=('config',))
def compute(
  tables: dict[str, jax.Array],
  group_ids: jax.Array,
  first: jax.Array,
  kl_coef: jax.Array,
  *,
  config: LearnerConfig,
) -> dict[str, jax.Array]:
  """tables: as `batching.sample_tables` gives them, with weights, old_logp
  and, where they are used, ref_logp and values, [N, R]; group_ids [N]; first
  [N], the index of the first row of each row's interaction.

  Returns advantages (normalised, then weighted), returns, importance (where
  used), token_rewards and kl (where there is a reference), all [N, R].
  The order is fixed: estimate, normalise, then weight (paper 003, eq. 3).
  """
  mask = tables['mask']
  rewards = tables['rewards']
  out: dict[str, jax.Array] = {}
  if config.uses_reference and config.kl_in == 'reward':
    kl = algorithms.kl_estimate(
      tables['old_logp'], tables['ref_logp'], config.kl_kind
    )
    rewards = rewards - kl_coef * kl * mask
  out['token_rewards'] = rewards
  weights = tables['weights']
  if config.importance_level != 'none':
    out['importance'] = algorithms.importance_weights(
      tables['old_logp'],
      tables['behaviour_logprobs'],
      mask,
      level=config.importance_level,
      cap=config.importance_cap,
      segment_ids=tables['turn'].astype(jnp.int32),
    )
    weights = weights * out['importance']
  raw, returns = _estimate(
    rewards, weights, tables, mask, group_ids, first, config
  )
  out['advantages'] = raw * tables['weights'] * mask
  out['returns'] = returns
  return out


def _estimate(
  rewards: jax.Array,
  weights: jax.Array,
  tables: Any,
  mask: Any,
  group_ids: Any,
  first: Any,
  config: LearnerConfig,
):
  to_go = rewards + tables['later']
  if config.estimator == 'gae':
    raw, returns = algorithms.gae(
      to_go, tables['values'], mask, config.gamma, config.lam
    )
    return _whitened(raw, weights, mask, config), returns
  if config.estimator == 'reinforce_pp':
    # Discounted reward to go: GAE without a critic.
    raw, returns = algorithms.gae(
      to_go, jnp.zeros_like(rewards), mask, config.gamma, 1.0
    )
    return _whitened(raw, weights, mask, config), returns
  if config.estimator in ON_THE_HOST:
    return tables['estimate'], tables['estimate']
  n = len(first)
  scores = jax.ops.segment_sum(jnp.sum(rewards * mask, -1), first, n)
  one_each = {'valid': first == jnp.arange(n)}
  if config.baseline == 'weighted':
    one_each['weights'] = jax.ops.segment_sum(
      jnp.sum(tables['weights'] * mask, -1), first, n
    ) / jnp.maximum(jax.ops.segment_sum(jnp.sum(mask, -1), first, n), 1)
  if config.estimator == 'rloo':
    score = algorithms.leave_one_out_advantages(scores, group_ids, **one_each)
  else:
    score = algorithms.group_relative_advantages(
      scores,
      group_ids,
      normalize_std=config.estimator == 'grpo',
      **one_each,
    )
  spread = score[first][:, None] * mask
  return spread, spread


def of_the_best(
  tables: dict[str, np.ndarray],
  group_ids: np.ndarray,
  first: np.ndarray,
  config: LearnerConfig,
  past: Past | None = None,
) -> np.ndarray:
  """Returns the advantages [N, R] of an estimator of ON_THE_HOST, float32.

  tables: rewards, mask and, for a weighted baseline, weights, [N, R] each.
  past: further members of the groups, which get none.

  Scores are summed in float64, for beside a failure their differences would be lost.
  All advantages of the batch are divided by their root mean square, never those of a
  group by its own: one of equal programs that differ by noise would be paid in full.
  """
  own = first == np.arange(len(first))
  estimate = _compared(tables, group_ids, first, config, past)
  size = np.sqrt(np.mean(np.square(estimate[own])))
  if size > 0:
    estimate = estimate / size
  return (estimate[first][:, None] * tables['mask']).astype(np.float32)


def for_the_critic(
  tables: dict[str, np.ndarray],
  group_ids: np.ndarray,
  first: np.ndarray,
  config: LearnerConfig,
  past: Past,
) -> dict[str, np.ndarray]:
  """Returns rewards and later [N, R], float32, that pay what a score adds to the best.

  tables: rewards and mask [N, R]. An interaction earns K (S_i - U_K of the others), in
  units of the score, at the last policy token of its last row; rows before it have
  it as what comes later. Others do not depend on it, so a critic that is fitted to it,
  and the advantages of GAE over it, follow the gradient of the best of K.
  """
  estimate = _compared(tables, group_ids, first, config, past)
  n, mask = len(first), tables['mask']
  last = np.zeros(n, np.int64)
  last[first] = np.arange(n)  # of equal ones the last assignment holds
  ends = _last_tokens(mask) * estimate[first][:, None]
  is_last = (last[first] == np.arange(n))[:, None]
  return {
    'rewards': np.where(is_last, ends, 0.0).astype(np.float32),
    'later': np.where(is_last, 0.0, ends).astype(np.float32),
  }


def _last_tokens(mask: np.ndarray) -> np.ndarray:
  """[N, R]: 1 at the last token of each row that the policy wrote, if any."""
  width = mask.shape[1]
  at = width - 1 - np.argmax(mask[:, ::-1] > 0, axis=1)
  return (np.arange(width) == at[:, None]) & (mask > 0)


def _compared(
  tables: dict[str, np.ndarray],
  group_ids: np.ndarray,
  first: np.ndarray,
  config: LearnerConfig,
  past: Past | None,
) -> np.ndarray:
  """Returns the estimate [N] of each interaction at its first row, float64, else 0."""
  n = len(first)
  scores, weights = scores_of(tables, first)
  valid = first == np.arange(n)
  if past is not None:
    scores = np.append(scores, past.scores)
    weights = np.append(weights, past.weights)
    group_ids = np.append(group_ids, past.group_ids)
    valid = np.append(valid, np.ones(len(past.scores), bool))
  if config.ties:
    scores = np.round(scores / config.ties) * config.ties
  given: dict[str, Any] = {'valid': valid}
  if config.estimator in (*OF_THE_BEST, 'gae'):
    given['k'] = config.best_of
  if config.baseline == 'weighted':
    given['baseline_weights'] = weights
    given['valid'] = valid & (weights > 0)
  estimate = _ESTIMATES.get(config.estimator, algorithms.best_of_advantages)
  return estimate(scores, group_ids.tolist(), **given)[:n]


def scores_of(
  tables: Mapping[str, np.ndarray], first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (score, mean weight of a token), float64 [N] each, at first rows, else 0.

  tables: rewards, mask and weights (none: ones), [N, R] each.
  """
  mask = tables['mask']
  weights = tables.get('weights', mask)
  scores, total, tokens = (np.zeros(len(first)) for _ in range(3))
  rewards = tables['rewards'] * mask
  np.add.at(scores, first, np.sum(rewards, -1, dtype=np.float64))
  np.add.at(total, first, np.sum(weights * mask, -1))
  np.add.at(tokens, first, np.sum(mask, -1))
  return scores, total / np.maximum(tokens, 1)


_ESTIMATES: Mapping[str, Callable[..., np.ndarray]] = {
  'best_of': algorithms.best_of_advantages,
  'max_rl': algorithms.max_rl_advantages,
  'entropic': algorithms.entropic_advantages,
}


def _whitened(
  raw: jax.Array, weights: jax.Array, mask: Any, config: LearnerConfig
):
  centre = None
  if config.baseline == 'optimal':
    centre = algorithms.optimal_baseline(raw, weights, mask)
  return algorithms.whiten(raw, mask, centre) * mask


def effective_share(
  samples: Sequence[types.Sample], weights: np.ndarray, old_logp: np.ndarray
) -> float:
  """`algorithms.effective_share` of duration weight times importance ratio.

  weights: [S], of the turns in order; old_logp: [N, R], of the policy that is
  updated. The ratio of a turn is the product over its policy tokens, not
  truncated.
  """
  logs = []
  for row, sample in zip(old_logp, samples):
    n = len(sample.token_ids)
    gap = np.where(sample.loss_mask, row[:n] - sample.behaviour_logprobs, 0.0)
    logs += [gap[t.start : t.end].sum() for t in sample.steps()]
  bound = algorithms.LOG_RATIO_BOUND
  ratios = np.exp(np.clip(np.array(logs), -bound, bound))
  # To few lengths, each compiled once.
  padded = np.zeros(-(-len(ratios) // 16) * 16, np.float32)
  padded[: len(ratios)] = np.nan_to_num(np.asarray(weights) * ratios)
  return float(_share(padded, np.arange(len(padded)) < len(ratios)))


_share = jax.jit(algorithms.effective_share)


_discounted = jax.jit(algorithms.discounted_returns, static_argnums=(2,))


def returns_to_go(
  rewards: np.ndarray, mask: np.ndarray, gamma: float
) -> np.ndarray:
  """float32 [N, R]: discounted rewards to go on policy tokens, else 0."""
  n, width = rewards.shape
  return np.asarray(_discounted(_padded(rewards), _padded(mask), gamma))[
    :n, :width
  ]


def _padded(table: np.ndarray) -> np.ndarray:
  """Rounds N up to 16s and R to 64s: few shapes to compile."""
  n, width = table.shape
  return np.pad(table, ((0, -n % 16), (0, -width % 64)))


def pad_tables(
  tables: dict[str, np.ndarray], groups: np.ndarray, first: np.ndarray
) -> tuple[Any, Any, Any]:
  """Tables as `_padded` makes them; padded samples are groups of one."""
  tables = {k: _padded(v) for k, v in tables.items()}
  n = len(groups)
  own = np.arange(-n % 16, dtype=groups.dtype)
  return (
    tables,
    np.concatenate([groups, groups.max() + 1 + own]),
    np.concatenate([first, n + own]),
  )


def groups_of(
  samples: Sequence[types.Sample], first: np.ndarray, groups: str
) -> np.ndarray:
  """int32 [N]: the number of each row's group, by `LearnerConfig.groups`.

  By prompt: that of the first row of its interaction, token for token.
  """
  if groups == 'drawn':
    named: list[str] | list[bytes] = [s.group_id for s in samples]
  else:
    named = [samples[i].prompt_ids.tobytes() for i in first]
  numbers: dict[str | bytes, int] = {}
  return np.array(
    [numbers.setdefault(name, len(numbers)) for name in named], np.int32
  )


def first_rows(samples: Sequence[types.Sample]) -> np.ndarray:
  """int32 [N]: the index of the first row of each row's interaction."""
  seen: dict[str, int] = {}
  found = [seen.setdefault(s.prompt_id, i) for i, s in enumerate(samples)]
  return np.array(found, np.int32)


def token_scale(
  mask: np.ndarray, aggregation: str, first: np.ndarray
) -> np.ndarray:
  """[n, R] weights with sum(loss * scale) = the aggregate of one minibatch.

  A sequence is an interaction, whatever its rows; first [n] tells which rows
  belong together. Fixed before the minibatch is cut into micro-batches, so
  that neither the cut nor the packing changes the gradient.
  """
  if aggregation == 'token-mean':
    return mask / max(float(mask.sum()), 1.0)
  _, sequence = np.unique(first, return_inverse=True)
  lengths = np.bincount(sequence, mask.sum(-1))
  n = max(float((lengths > 0).sum()), 1.0)
  if aggregation == 'seq-mean-token-sum':
    return mask / n
  return mask / np.maximum(lengths, 1.0)[sequence, None] / n
