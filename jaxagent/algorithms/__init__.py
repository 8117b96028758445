"""Pure functions over arrays: advantages, weights, losses, reductions.

No model, no config and no I/O here. All arrays are [B, T] unless noted;
float32 and float64; every function works under jit (the KL controllers and the
advantages for the best of K are of the host).
"""

from jaxagent.algorithms.advantages import (
  discounted_returns,
  gae,
  group_relative_advantages,
  leave_one_out_advantages,
  optimal_baseline,
)
from jaxagent.algorithms.best_of import (
  best_of_advantages,
  entropic_advantages,
  max_rl_advantages,
  pkpo_advantages,
)
from jaxagent.algorithms.inclusion import (
  inclusion_probabilities,
  inverse_probability_weights,
  kaplan_meier,
)
from jaxagent.algorithms.kl import (
  KL_KINDS,
  AdaptiveKL,
  FixedKL,
  kl_estimate,
)
from jaxagent.algorithms.losses import (
  Clips,
  explained_variance,
  policy_loss,
  value_loss,
)
from jaxagent.algorithms.reductions import (
  AGGREGATIONS,
  Aggregation,
  aggregate,
  aggregation_denominator,
  masked_mean,
  masked_sum,
  masked_variance,
  whiten,
)
from jaxagent.algorithms.weights import (
  IMPORTANCE_LEVELS,
  LOG_RATIO_BOUND,
  capped_weights,
  duration_weights,
  effective_share,
  importance_weights,
)

__all__ = [
  'pkpo_advantages',
  'max_rl_advantages',
  'entropic_advantages',
  'best_of_advantages',
  'AGGREGATIONS',
  'IMPORTANCE_LEVELS',
  'KL_KINDS',
  'LOG_RATIO_BOUND',
  'AdaptiveKL',
  'Aggregation',
  'Clips',
  'FixedKL',
  'aggregate',
  'aggregation_denominator',
  'capped_weights',
  'discounted_returns',
  'duration_weights',
  'effective_share',
  'explained_variance',
  'gae',
  'group_relative_advantages',
  'importance_weights',
  'inclusion_probabilities',
  'inverse_probability_weights',
  'kaplan_meier',
  'kl_estimate',
  'leave_one_out_advantages',
  'optimal_baseline',
  'masked_mean',
  'masked_sum',
  'masked_variance',
  'policy_loss',
  'value_loss',
  'whiten',
]
