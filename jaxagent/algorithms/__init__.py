"""Pure functions over arrays: advantages, weights, losses, reductions.

No model, no config and no I/O here. All arrays are [B, T] unless said;
float32 and float64; every function but `validate_batch` and the KL
controllers works under jit.
"""

from jaxagent.algorithms.advantages import (
  ESTIMATORS,
  NEEDS_CRITIC,
  NEEDS_GROUPS,
  advantages,
  broadcast_to_tokens,
  discounted_returns,
  gae,
  group_relative_advantages,
  leave_one_out_advantages,
  reinforce_plus_plus,
  reinforce_plus_plus_baseline,
)
from jaxagent.algorithms.inclusion import (
  inclusion_probabilities,
  inclusion_weights,
  inclusion_weights_with_metrics,
  inverse_probability_weights,
  kaplan_meier,
)
from jaxagent.algorithms.kl import (
  KL_KINDS,
  AdaptiveKL,
  FixedKL,
  kl_estimate,
  kl_in_reward,
)
from jaxagent.algorithms.losses import (
  entropy_from_logits,
  explained_variance,
  kl_loss,
  policy_loss,
  token_logprobs,
  value_loss,
)
from jaxagent.algorithms.reductions import (
  AGGREGATIONS,
  aggregate,
  aggregation_denominator,
  masked_mean,
  masked_sum,
  masked_variance,
  whiten,
)
from jaxagent.algorithms.validation import validate_batch
from jaxagent.algorithms.weights import (
  IMPORTANCE_LEVELS,
  WEIGHTINGS,
  capped_weights,
  duration_weighted,
  duration_weights,
  importance_metrics,
  importance_weights,
  step_weights_to_tokens,
)

__all__ = [
  'AGGREGATIONS',
  'ESTIMATORS',
  'IMPORTANCE_LEVELS',
  'KL_KINDS',
  'NEEDS_CRITIC',
  'NEEDS_GROUPS',
  'WEIGHTINGS',
  'AdaptiveKL',
  'FixedKL',
  'advantages',
  'aggregate',
  'aggregation_denominator',
  'broadcast_to_tokens',
  'capped_weights',
  'discounted_returns',
  'duration_weighted',
  'duration_weights',
  'entropy_from_logits',
  'explained_variance',
  'gae',
  'group_relative_advantages',
  'importance_metrics',
  'importance_weights',
  'inclusion_probabilities',
  'inclusion_weights',
  'inclusion_weights_with_metrics',
  'inverse_probability_weights',
  'kaplan_meier',
  'kl_estimate',
  'kl_in_reward',
  'kl_loss',
  'leave_one_out_advantages',
  'masked_mean',
  'masked_sum',
  'masked_variance',
  'policy_loss',
  'reinforce_plus_plus',
  'reinforce_plus_plus_baseline',
  'step_weights_to_tokens',
  'token_logprobs',
  'validate_batch',
  'value_loss',
  'whiten',
]
