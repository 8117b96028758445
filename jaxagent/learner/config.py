"""Options of the learner, checked when made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from jaxagent.algorithms import kl
from jaxagent.data import batching

CHOICES = {
  'estimator': ('gae', 'grpo', 'dr_grpo', 'rloo', 'reinforce_pp'),
  'kl_kind': ('k1', 'k2', 'k3'),
  'kl_in': ('loss', 'reward'),
  'aggregation': ('token-mean', 'seq-mean-token-sum', 'seq-mean-token-mean'),
  'importance_level': ('none', 'token', 'sequence'),
  'baseline': ('mean', 'optimal'),
  'step_size': ('fixed', 'ess'),
  'schedule': ('cosine', 'constant'),
  'sft_schedule': ('cosine', 'constant'),
  'grad_reduce_dtype': ('float32', 'bfloat16'),
  'reference_dtype': ('float32', 'bfloat16'),
}
# What may lie in pinned host memory while it is not used.
OFFLOADED = ('reference', 'value', 'policy_optimizer', 'value_optimizer')

CENTRED = ('gae', 'reinforce_pp')  # estimators whose batch is whitened


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
  """How parameters are updated. Learning rates are AdamW's.

  warmup_steps, steps, sft_steps: optimizer steps; `steps` and `sft_steps` are
  the lengths of a cosine, which ends at a tenth of the rate. micro_batch_tokens: padded tokens
  that one device holds in a compiled pass; a longer row is one row a device. row_tokens: row lengths allowed, each a
  static shape. chunk_rows: tokens whose logits exist at once on a device.
  grad_reduce_dtype: of gradients while they are summed over devices.
  baseline: what advantages are centred on before they are scaled, for 'gae' and
    'reinforce_pp': their mean, or `algorithms.optimal_baseline` under duration
    weight times importance ratio.
  step_size: 'ess' multiplies the policy's step by the square root of the
    effective share of duration weight times importance ratio (VCPO).
  entropy_metric: measure the entropy even where entropy_coef is 0.
  reference_dtype: that the frozen reference is kept in.
  offload: of `OFFLOADED`, what lies in pinned host memory while it is not used.
  donate_params: update weights in place; a holder of `policy_params` must have
    copied them before the next update.
  """

  policy_lr: float = 1e-6
  value_lr: float = 1e-5
  sft_lr: float = 2e-5
  warmup_steps: int = 0
  steps: int = 0
  schedule: str = 'constant'
  sft_warmup_steps: int = 0
  sft_steps: int = 0
  sft_schedule: str = 'constant'
  weight_decay: float = 0.01
  adam_b1: float = 0.9
  adam_b2: float = 0.999
  max_grad_norm: float = 1.0
  ppo_epochs: int = 1
  minibatches: int = 1
  estimator: str = 'gae'
  gamma: float = 1.0
  lam: float = 1.0
  clip_low: float = 0.2
  clip_high: float = 0.2
  dual_clip: float | None = None
  value_clip: float = 0.5
  kl_kind: str = 'k3'
  kl_in: str = 'loss'
  kl_coef: float = 0.001
  kl_target: float | None = None  # nats a token; None keeps kl_coef fixed
  kl_horizon: int = 10_000
  entropy_coef: float = 0.0
  entropy_metric: bool = False
  aggregation: str = 'token-mean'
  importance_level: str = 'token'
  importance_cap: float = 2.0
  baseline: str = 'mean'
  step_size: str = 'fixed'
  temperature: float = 1.0
  micro_batch_tokens: int = 4096
  row_tokens: tuple[int, ...] = batching.DEFAULT_ROW_TOKENS
  chunk_rows: int = 1024
  grad_reduce_dtype: str = 'float32'
  max_nonfinite: int = 5
  reference_dtype: str = 'float32'
  offload: tuple[str, ...] = ()
  donate_params: bool = False

  def __post_init__(self):
    for name, choices in CHOICES.items():
      if getattr(self, name) not in choices:
        raise ValueError(
          f'{name}={getattr(self, name)!r} is not known; choose one of '
          f'{choices}.'
        )
    for name in ('policy_lr', 'value_lr', 'sft_lr', 'kl_coef', 'weight_decay'):
      value = getattr(self, name)
      if not (math.isfinite(value) and value >= 0):
        raise ValueError(f'{name}={value} must be finite and >= 0.')
    for name in (
      'ppo_epochs',
      'minibatches',
      'micro_batch_tokens',
      'chunk_rows',
      'temperature',
      'max_grad_norm',
      'importance_cap',
    ):
      if not getattr(self, name) > 0:
        raise ValueError(f'{name}={getattr(self, name)} must be above zero.')
    if self.dual_clip is not None and self.dual_clip <= 1:
      raise ValueError(f'dual_clip={self.dual_clip} must be above 1 or None.')
    if self.baseline == 'optimal' and self.estimator not in CENTRED:
      raise ValueError(
        f"baseline='optimal' is for the estimators {CENTRED}; "
        f'{self.estimator!r} has the baseline of its groups.'
      )
    useful = kl.USEFUL[self.kl_in]
    if self.kl_coef and self.kl_kind not in useful:
      raise ValueError(
        f'kl_kind={self.kl_kind!r} with kl_in={self.kl_in!r} has no gradient '
        f'towards the reference (see algorithms/kl.py); choose kl_kind from '
        f'{useful}, or another kl_in.'
      )
    for name, steps in (('schedule', 'steps'), ('sft_schedule', 'sft_steps')):
      if getattr(self, name) == 'cosine' and getattr(self, steps) < 1:
        raise ValueError(f"{name}='cosine' needs {steps}, its length.")
    unknown = set(self.offload) - set(OFFLOADED)
    if unknown:
      raise ValueError(
        f'offload={sorted(unknown)} is not known; choose from {OFFLOADED}.'
      )
    if absent := self.absent(self.offload):
      raise ValueError(
        f'offload={absent} is not of this run: estimator={self.estimator!r} and '
        f'kl_coef={self.kl_coef} make none; leave it out.'
      )

  def absent(self, roles: Sequence[str]) -> list[str]:
    """Returns those of some roles that a run of this config does not have."""
    without = {'value': self.uses_value, 'value_optimizer': self.uses_value}
    without['reference'] = self.uses_reference
    return [role for role in roles if not without.get(role, True)]

  @property
  def uses_value(self) -> bool:
    """Whether the estimator needs a critic."""
    return self.estimator == 'gae'

  @property
  def uses_reference(self) -> bool:
    """Whether any KL to the reference enters."""
    return self.kl_coef > 0
