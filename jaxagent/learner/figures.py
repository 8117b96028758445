"""Metrics of an update, by verl's names where the meaning is the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from jax.sharding import Mesh

from jaxagent import types
from jaxagent.devices import accelerator

_MFU = {'actor': 'perf/mfu/actor', 'critic': 'perf/mfu/critic'}


def utilisation(
  mesh: Mesh,
  seconds: Mapping[str, float],
  work: Mapping[str, float],
) -> dict[str, float]:
  """Model FLOPs utilisation by role: `work` over what the mesh could do meanwhile.

  work: FLOPs of 'actor' and 'critic'. seconds: of stages, by name, of which
  `update_actor` and `update_critic` count; a role that was not updated is left out.

  Returns nothing where the accelerator's peak is not known.
  """
  peak = accelerator.peak_flops(mesh.devices.flat[0].device_kind)
  if peak is None:
    return {}
  return {
    _MFU[role]: flops / (seconds[f'update_{role}'] * mesh.size * peak)
    for role, flops in work.items()
    if f'update_{role}' in seconds
  }


def usable(
  samples: Sequence[types.Sample], weights: np.ndarray | None
) -> tuple[list[types.Sample], np.ndarray, int]:
  """(samples, weights, number of samples rejected).

  weights: [S], one for each turn of the samples in order, or None for ones.
  Rejected: no reward (infrastructure), a reward or log-prob that is not
  finite, no policy token. Raises ValueError where nothing is left, or where
  weights do not fit, are negative or not finite.
  """
  samples = list(samples)
  turns = [len(s.steps()) for s in samples]
  weights = np.ones(sum(turns)) if weights is None else np.asarray(weights)
  if weights.shape != (sum(turns),):
    raise ValueError(
      f'weights have shape {weights.shape}, wanted ({sum(turns)},): one a turn.'
    )
  if not np.all(np.isfinite(weights) & (weights >= 0)):
    raise ValueError(f'weights must be finite and >= 0; got {weights}.')
  keep = [i for i, s in enumerate(samples) if _is_usable(s)]
  if not keep:
    raise ValueError(
      f'none of the {len(samples)} samples can be used: each lacks a finite '
      'reward, finite log-probs or a policy token.'
    )
  return (
    [samples[i] for i in keep],
    weights[np.isin(np.repeat(np.arange(len(samples)), turns), keep)],
    len(samples) - len(keep),
  )


def _is_usable(sample: types.Sample) -> bool:
  mask = np.asarray(sample.loss_mask, bool)
  rewards = [sample.later_reward, *(t.reward for t in sample.steps())]
  return (
    all(r is not None and _is_float32(r) for r in rewards)
    and bool(mask.any())
    and bool(np.all(np.isfinite(sample.behaviour_logprobs[mask])))
  )


def _is_float32(x: float) -> bool:
  with np.errstate(over='ignore'):
    return bool(np.isfinite(np.float32(x)))


def masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
  """The values under the mask, flat."""
  return x[mask > 0]


def spread(name: str, x: np.ndarray) -> dict[str, float]:
  """mean, max and min."""
  return {
    f'{name}/mean': float(np.mean(x)),
    f'{name}/max': float(np.max(x)),
    f'{name}/min': float(np.min(x)),
  }


def explained_variance(
  values: np.ndarray, returns: np.ndarray, mask: np.ndarray
) -> float:
  """1 - var(returns - values) / var(returns) over the mask, all [N, R]."""
  values, returns = masked(values, mask), masked(returns, mask)
  return 1 - float(np.var(returns - values)) / (float(np.var(returns)) + 1e-5)


def _sampler_gap(logp: np.ndarray, sampled: np.ndarray) -> dict[str, float]:
  """Returns metrics of the trainer's distance from the sampler; both [T], nats.

  For samples of earlier versions this includes what was learned since.
  """
  probs = np.abs(np.exp(logp) - np.exp(sampled))
  nats = np.abs(logp - sampled)
  return {
    'training/rollout_probs_diff_mean': float(probs.mean()),
    'training/rollout_probs_diff_max': float(probs.max()),
    'training/rollout_probs_diff_std': float(probs.std()),
    'training/rollout_logps_diff_mean': float(nats.mean()),
    'training/rollout_logps_diff_p99': float(np.quantile(nats, 0.99)),
    'training/rollout_logps_diff_max': float(nats.max()),
  }


def data_metrics(
  samples: Sequence[types.Sample],
  tables: dict,
  token: dict,
  critic: bool,
  importance_cap: float = np.inf,
) -> dict[str, float]:
  """Figures of the batch itself: rewards, advantages, lengths, log-prob gap."""
  mask = tables['mask']
  out = spread('critic/score', tables['rewards'].sum(-1))
  out |= spread('critic/rewards', token['token_rewards'].sum(-1))
  out |= spread('critic/advantages', masked(token['advantages'], mask))
  out |= spread('critic/returns', masked(token['returns'], mask))
  if critic:
    out |= spread('critic/values', masked(tables['values'], mask))
    out['critic/vf_explained_var'] = explained_variance(
      tables['values'], token['returns'], mask
    )
  out |= spread(
    'response_length', np.array([len(s.token_ids) for s in samples])
  )
  out |= spread('prompt_length', np.array([len(s.prompt_ids) for s in samples]))
  clipped = [s.steps()[-1].finish_reason == 'length' for s in samples]
  out['response_length/clip_ratio'] = float(np.mean(clipped))
  out |= _sampler_gap(
    masked(tables['old_logp'], mask),
    masked(tables['behaviour_logprobs'], mask),
  )
  if 'importance' in token:
    capped = masked(token['importance'], mask) >= importance_cap
    out['training/importance_capped_fraction'] = float(capped.mean())
  return out


class Mean:
  """Sums micro-batches' shares, then averages over optimizer steps."""

  def __init__(self):
    self._sums: dict[str, float] = defaultdict(float)
    self._steps: dict[str, int] = defaultdict(int)

  def add(self, role: str, micro_metrics: Sequence[dict], info: dict) -> None:
    """One optimizer step: metrics of its micro-batches, weighted by share."""
    step: dict[str, float] = defaultdict(float)
    shares = [float(m['share']) for m in micro_metrics]
    total = sum(shares) or 1.0
    for metrics in micro_metrics:
      for name, value in metrics.items():
        if name != 'share':
          step[name] += float(value)
    for name, value in step.items():
      # Losses carry their shares already; per-token means are over all.
      is_sum = name.rsplit('/', 1)[-1] in ('pg_loss', 'vf_loss', 'kl_loss')
      self._put(_key(role, name), value if is_sum else value / total)
    self._put(f'{role}/grad_norm', float(info['grad_norm']))
    self._put(f'{role}/lr', float(info['lr']))

  def _put(self, name: str, value: float) -> None:
    self._sums[name] += value
    self._steps[name] += 1

  def result(self) -> dict[str, float]:
    """Means over the steps added."""
    return {k: v / self._steps[k] for k, v in self._sums.items()}


def _key(role: str, name: str) -> str:
  return name if '/' in name else f'{role}/{name}'
