"""SFT steps and RL updates over a mesh."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxagent import algorithms, models, types
from jaxagent.data import batching
from jaxagent.devices import sharding
from jaxagent.learner import advantages as advantages_lib
from jaxagent.learner import compiles, figures
from jaxagent.learner import weights as weights_lib
from jaxagent.learner.config import ON_THE_HOST, LearnerConfig
from jaxagent.learner.nonfinite import Skips
from jaxagent.learner.packing import Clock, PackedBatch, Packer
from jaxagent.learner.roles import Critic, Roles
from jaxagent.learner.score_window import Past, ScoreWindow, kinds_of
from jaxagent.models import flops

# The second one meets what the first leaves behind: carried-over samples,
# refills of the slots that are free.
_WARM_UPDATES = 2


class Learner:
  """Policy, value model, frozen reference and their optimizers on a mesh.

  A new learner is ready for RL: the reference is a copy of the policy, the
  value model's trunk too, unless `critic` is given: the config of a model of its own
  with the same tokenizer, and what makes its weights on their places. `start_sft` turns to fine-tuning (only the policy
  and its own optimizer then exist in `state()`); `start_rl` turns back, with
  reference and value model made anew from the policy of that moment.

  Of a model with adapters these alone are trained; with `config.full_sft` a new learner
  is ready for fine-tuning all weights, and `start_rl` puts adapters on them.
  """

  def __init__(
    self,
    model_config: models.ModelConfig,
    config: LearnerConfig,
    *,
    mesh: Mesh | None = None,
    seed: int = 0,
    policy_params: Any = None,
    critic: Critic | None = None,
    pad_id: int = 0,
  ):
    self.model_config, self.config = model_config, config
    self.mesh = sharding.make_mesh() if mesh is None else mesh
    self.seed = seed
    self._critic = model_config if critic is None else critic[0]
    self._roles = Roles(
      model_config,
      config,
      self.mesh,
      seed=seed,
      policy_params=policy_params,
      critic=critic,
    )
    self._packer = Packer(model_config, config, self.mesh, pad_id)
    self._counters = {'updates': 0, 'sft_steps': 0}
    self._skips = Skips(config.max_nonfinite)
    self._kl = _kl_controller(config)
    self._window = ScoreWindow(config.window)
    self._begin('sft' if self._roles.is_full else 'rl')

  # Roles

  @property
  def policy_params(self) -> Any:
    """The policy as `init_decoder` gives it: nested state on the mesh.

    Adapters are merged, unless `config.merge_adapters` is False.
    """
    return self._roles.policy_params

  @property
  def adapted_base(self) -> str:
    """The digest of the base below adapters that `policy_params` does not merge.

    '' where it has no adapters.
    """
    return self._roles.adapted_base

  @property
  def graphdef(self) -> Any:
    """The graph definition of `sampled_config`."""
    return self._roles.graphdef

  @property
  def sampled_config(self) -> models.ModelConfig:
    """The model that is sampled: `model_config` with adapters merged."""
    return self._roles.sampled

  @property
  def value_params(self) -> Any:
    """The value model's nested state, or None without one."""
    return self._roles.value_params

  @property
  def compiles(self) -> int:
    """Programs compiled by this process so far, the engine's included."""
    return compiles.count()

  @property
  def kl_coef(self) -> float:
    """The KL coefficient now."""
    return self._kl.coefficient

  def start_sft(
    self,
    *,
    lr: float | None = None,
    total_steps: int | None = None,
    warmup_steps: int | None = None,
    schedule: str | None = None,
  ) -> None:
    """Turns to fine-tuning with a fresh optimizer; None keeps the config's."""
    given: dict[str, Any] = {
      'sft_lr': lr,
      'sft_steps': total_steps,
      'sft_warmup_steps': warmup_steps,
      'sft_schedule': schedule,
    }
    given = {k: v for k, v in given.items() if v is not None}
    self._roles.start_sft(dataclasses.replace(self.config, **given))
    self._counters['sft_steps'] = 0
    self._begin('sft')

  @property
  def updates(self) -> int:
    """RL updates so far."""
    return self._counters['updates']

  def start_rl(self) -> None:
    """Turns to RL: fresh optimizers, reference and value from the policy."""
    self._roles.start_rl()
    self._begin('rl')

  def _begin(self, phase: str) -> None:
    self._phase = phase
    self._recompiles = compiles.Recompiles(_WARM_UPDATES)

  # State

  def state(self) -> dict[str, Any]:
    """Arrays of a checkpoint: everything that changes, and the reference."""
    counters: dict[str, Any] = {
      k: np.int64(v) for k, v in self._counters.items()
    }
    counters['nonfinite'] = np.int64(self._skips.total)
    counters['kl_coef'] = np.float64(self._kl.coefficient)
    return self._roles.state() | {'counters': counters}

  def shapes(self) -> dict[str, Any]:
    """`state()` with shape, dtype and sharding in place of each device array."""
    return weights_lib.shapes(self.state())

  def let_go(self) -> None:
    """Drops the arrays, before a saved state is read in their place.

    `state()` has their shapes from then on; `load_state` must follow.
    """
    self._roles.let_go()

  def load_state(self, tree: Mapping[str, Any]) -> None:
    """Takes over what `state()` gave, of the same phase and config."""
    expected: Any = jax.tree.structure(self.state())
    if jax.tree.structure(dict(tree)) != expected:
      raise ValueError(
        'the saved learner state has other parts than this learner: '
        f'{sorted(tree)} against {sorted(self.state())}; use the config that '
        'made it.'
      )
    self._roles.load_state(tree)
    counters = dict(tree['counters'])
    self._kl.load_state_dict({'value': float(counters.pop('kl_coef'))})
    self._skips.total = int(counters.pop('nonfinite'))
    self._counters = {k: int(v) for k, v in counters.items()}

  def host_state(self) -> dict[str, Any]:
    """JSON-able part: how many bad updates in a row, shapes seen; adapters' base; scores
    of the last updates."""
    state = {
      'phase': self._phase,
      'nonfinite_in_a_row': dict(self._skips.in_a_row),
      'shapes': sorted(list(s) for s in self._packer.shapes),
    }
    adapters = self._roles.adapters()
    if self.config.window:
      state['window'] = self._window.state()
    return state | ({'adapters': adapters} if adapters else {})

  def misfit(self, state: Mapping[str, Any]) -> str:
    """Why a checkpoint with this host state is of other adapters; '' if it is not."""
    saved, own = state.get('adapters'), self._roles.adapters()
    if saved == own:
      return ''
    if not saved or not own:
      has = {True: 'adapters', False: 'all weights'}
      return f'it has {has[bool(saved)]}, and {has[bool(own)]} are trained here'
    return '; '.join(
      f"the adapters' {name} was {saved.get(name)!r} and is {own[name]!r} here"
      for name in own
      if saved.get(name) != own[name]
    )

  def load_host_state(self, state: Mapping[str, Any]) -> None:
    """Takes over what `host_state()` gave."""
    self._skips.in_a_row = dict(state['nonfinite_in_a_row'])
    self._packer.shapes = {tuple(s) for s in state['shapes']}
    self._window.load(state.get('window', {}))

  # SFT

  def sft_batches(
    self, rows: Sequence[tuple[np.ndarray, np.ndarray]]
  ) -> list[types.Batch]:
    """Packs (tokens [L], loss mask [L]) each into the micro-batches of one step."""
    return self._packer.conversations(rows)

  def sft_step(
    self, batch: types.Batch | Sequence[types.Batch]
  ) -> dict[str, float]:
    """One optimizer step; a list is accumulated, as if it were one batch.

    Returns sft/loss (nats a learned token), sft/grad_norm, sft/lr, counts.
    """
    if self._phase != 'sft':
      self.start_sft()
    began = time.monotonic()
    batches = [batch] if isinstance(batch, types.Batch) else list(batch)
    total = sum(float(b.mask.sum()) for b in batches)
    if total == 0:
      raise ValueError('no token of this SFT batch carries loss.')
    self._packer.note_row(max(b.tokens.shape[1] for b in batches))
    micros = (
      self._packer.put(
        {
          'tokens': b.tokens,
          'positions': b.positions,
          'segment_ids': b.segment_ids,
          'scale': (b.mask / total).astype(np.float32),
        }
      )
      for b in batches
    )
    grads, found = self._roles.sft_grads(micros)
    name = f'SFT step {self._counters["sft_steps"]}'
    info = self._apply('actor', grads, name)
    self._counters['sft_steps'] += 1
    tokens = sum(int((b.segment_ids > 0).sum()) for b in batches)
    wall = time.monotonic() - began
    return {
      'sft/loss': float(sum(float(m['loss']) for m in found)),
      'sft/grad_norm': float(info['grad_norm']),
      'sft/lr': float(info['lr']),
      'sft/tokens': total,
      'learner/padding': 1 - tokens / sum(b.tokens.size for b in batches),
      'perf/throughput': tokens / wall / self.mesh.size,
      **self._recompiles.measure(),
    }

  # RL

  def rl_update(
    self,
    samples: Sequence[types.Sample],
    weights: np.ndarray | None = None,
    version: int = 0,
  ) -> dict[str, float]:
    """One update: all epochs and minibatches over `samples`.

    weights: [S], duration or inclusion weights, one for each turn of the
    samples in order (default 1). version: of the policy being updated, for staleness and for naming a bad batch.
    Raises ValueError where no sample can be used, NonFiniteGradientError
    after `max_nonfinite` skipped steps in a row.
    """
    if self._phase != 'rl':
      raise ValueError('this learner is fine-tuning; call start_rl() first.')
    began = time.monotonic()
    samples, weights, rejected = figures.usable(samples, weights)
    clock = Clock()
    work = PackedBatch(self._packer, samples)
    tables = self._forward_tables(work, clock)
    with clock('adv'):
      token = self._advantages(work, tables, weights)
    metrics = figures.data_metrics(
      samples,
      tables,
      token,
      self._roles.value is not None,
      self.config.importance_cap,
    )
    share = advantages_lib.effective_share(
      work.samples, weights, tables['old_logp']
    )
    by_share = self.config.step_size == 'ess'
    step = share**0.5 if by_share else 1.0
    metrics['actor/weight_ess'] = share
    metrics |= self._epochs(work, token, step, version, clock)
    metrics |= {f'timing_s/{k}': v for k, v in clock.seconds.items()}
    metrics['learner/rejected'] = float(rejected)
    metrics['learner/padding'] = 1.0 - work.everything.efficiency
    if self.config.share_prompts:
      computed = float(work.everything.texts[0].sum())
      metrics['learner/shared'] = 1.0 - computed / float(work.lengths.sum())
    metrics['learner/skipped_updates'] = float(self._skips.total)
    self._counters['updates'] += 1
    wall = time.monotonic() - began
    tokens = float(work.lengths.sum())
    metrics['perf/total_num_tokens'] = tokens
    metrics['perf/throughput'] = tokens / wall / self.mesh.size
    metrics |= figures.utilisation(
      self.mesh, clock.seconds, self._flops(*work.everything.texts)
    )
    metrics |= self._recompiles.measure()
    return metrics

  def _flops(self, lengths: np.ndarray, before: np.ndarray) -> dict[str, float]:
    """FLOPs of an update's gradients over texts of these lengths, by role.

    before: tokens that each sees in front of it, a prompt that is shared.
    """
    epochs, texts = self.config.ppo_epochs, (lengths.tolist(), before.tolist())

    def needed(model: models.ModelConfig, head: bool) -> float:
      return epochs * flops.training_flops(model, texts[0], head, texts[1])

    found = {'actor': needed(self.model_config, True)}
    if self._roles.value is not None:
      found['critic'] = needed(self._critic, False)
    return found

  def value_update(
    self, samples: Sequence[types.Sample], name: str = 'value warm-up'
  ) -> dict[str, float]:
    """One critic step toward the samples' discounted returns; no policy step.

    A critic that has seen rewards before the policy moves, the policy's own
    or an expert's (Yuan et al. 2025, VC-PPO, "value pretraining").

    Returns critic/vf_loss, critic/vf_explained_var (before the step) and the
    optimizer's figures. Raises ValueError without a value model.
    """
    if self._roles.value is None:
      raise ValueError(
        f'estimator={self.config.estimator!r} has no value model to warm up.'
      )
    samples, _, _ = figures.usable(samples, None)
    work = PackedBatch(self._packer, samples)
    tables = batching.sample_tables(work.samples, work.width)
    returns = advantages_lib.returns_to_go(
      tables['rewards'] + tables['later'], tables['mask'], self.config.gamma
    )
    scale = advantages_lib.token_scale(
      tables['mask'],
      self.config.aggregation,
      advantages_lib.first_rows(work.samples),
    ).astype(np.float32)
    sums = figures.Mean()
    if self._packer.is_flat:  # one pass; `packed` keeps two, and their digits
      micros = work.micros(None, {'returns': returns, 'scale': scale})
      grads, found, values = self._roles.first_value_grads(micros)
      sums.add('critic', found, self._apply('critic', grads, name))
      tables['values'] = work.unpacked(values)
    else:
      tables['values'] = work.per_token(self._roles.values())
      token = {'old_values': tables['values'], 'returns': returns}
      self._critic_step(work, work.all, token, scale, name, sums)
    explained = figures.explained_variance(
      tables['values'], returns, tables['mask']
    )
    return sums.result() | {'critic/vf_explained_var': explained}

  def end_value_warmup(self) -> None:
    """Ends the warm-up: keeps the critic, restarts its schedule."""
    self._roles.restart_value_schedule()

  def logprobs(self, samples: Sequence[types.Sample]) -> np.ndarray:
    """float32 [N, R]: log-probs of the response tokens under the policy."""
    work = PackedBatch(self._packer, samples)
    return work.per_token(self._roles.logprobs)

  def _forward_tables(self, work: PackedBatch, clock: Clock) -> dict:
    tables = batching.sample_tables(work.samples, work.width)
    with clock('old_log_prob'):
      tables['old_logp'] = work.per_token(self._roles.logprobs)
    if self._roles.reference is not None and self.config.uses_reference:
      with clock('ref'):
        tables['ref_logp'] = work.per_token(self._roles.reference_logprobs())
    if self._roles.value is not None:
      with clock('values'):
        tables['values'] = work.per_token(self._roles.values())
    return tables

  def _advantages(self, work: PackedBatch, tables: Any, weights: Any) -> dict:
    first = advantages_lib.first_rows(work.samples)
    groups = advantages_lib.groups_of(work.samples, first, self.config.groups)
    weighted = tables | {
      'weights': batching.spread_turns(work.samples, weights, work.width)
    }
    past = None
    if self.config.window:
      groups, past = self._past(work.samples, weighted, first)
    if self.config.estimator in ON_THE_HOST:
      weighted['estimate'] = advantages_lib.of_the_best(
        weighted, groups, first, self.config, past
      )
    elif past is not None:
      weighted |= advantages_lib.for_the_critic(
        weighted, groups, first, self.config, past
      )
    padded = advantages_lib.pad_tables(weighted, groups, first)
    out = advantages_lib.compute(
      *padded, np.float32(self._kl.coefficient), config=self.config
    )
    n, width = tables['mask'].shape
    token = {k: np.asarray(v)[:n, :width] for k, v in out.items()}
    token['old_logp'] = tables['old_logp']
    if 'ref_logp' in tables:
      token['ref_logp'] = tables['ref_logp']
    if 'values' in tables:
      token['old_values'] = tables['values']
    token['mask'] = tables['mask']
    token['first'] = first
    return token

  def _past(
    self, samples: Sequence[types.Sample], tables: Any, first: np.ndarray
  ) -> tuple[np.ndarray, Past]:
    """(groups by kind [N], their members of earlier updates); keeps this one's."""
    kinds = kinds_of(samples, first)
    _, groups = np.unique(kinds, return_inverse=True)
    past = self._window.past(kinds, groups)
    scores, weights = advantages_lib.scores_of(tables, first)
    own = np.flatnonzero(first == np.arange(len(first)))
    self._window.add([kinds[i] for i in own], scores[own], weights[own])
    return groups.astype(np.int32), past

  def _epochs(
    self, work: PackedBatch, token: Any, step: float, version: int, clock: Any
  ) -> dict:
    """step: factor of the policy's steps."""
    sums = figures.Mean()
    for epoch in range(self.config.ppo_epochs):
      for k, members in enumerate(self._minibatches(work, epoch)):
        name = self._name(work.samples, members, version, epoch, k)
        self._minibatch(work, members, token, step, name, sums, clock)
    metrics = sums.result()
    metrics['actor/kl_coef'] = self._kl.coefficient
    if 'ref_logp' in token:
      kl = figures.masked(token['old_logp'] - token['ref_logp'], token['mask'])
      if self.config.kl_in == 'reward':
        metrics['actor/reward_kl_penalty'] = float(kl.mean())
        metrics['actor/reward_kl_penalty_coeff'] = self._kl.coefficient
      self._kl.update(float(kl.mean()), len(work.samples))
    return metrics

  def _minibatches(self, work: PackedBatch, epoch: int) -> list[np.ndarray]:
    first = advantages_lib.first_rows(work.samples)
    whole = np.unique(first)  # the rows of an interaction stay together
    count = min(self.config.minibatches, len(whole))
    if count == 1:
      return [np.arange(len(first))]
    # Stateless: the update's number is in the checkpoint, no RNG need be.
    rng = np.random.default_rng([self.seed, self._counters['updates'], epoch])
    parts = np.array_split(rng.permutation(whole), count)
    return [np.flatnonzero(np.isin(first, part)) for part in parts]

  def _minibatch(
    self,
    work: Any,
    members: Any,
    token: Any,
    step: float,
    name: str,
    sums: Any,
    clock: Any,
  ) -> None:
    scale = advantages_lib.token_scale(
      token['mask'][members], self.config.aggregation, token['first'][members]
    ).astype(np.float32)
    fields = {
      k: token[k][members]
      for k in ('old_logp', 'ref_logp', 'advantages', 'importance')
      if k in token
    }
    fields['scale'] = scale
    with clock('update_actor'):
      micros = work.micros(members, fields)
      grads, found = self._roles.policy_grads(micros, self._kl.coefficient)
      sums.add('actor', found, self._apply('actor', grads, name, step))
    if self.config.uses_value:
      with clock('update_critic'):
        self._critic_step(work, members, token, scale, name, sums)

  def _critic_step(
    self, work: Any, members: Any, token: Any, scale: Any, name: str, sums: Any
  ) -> None:
    """One optimizer step of the value model; token: old_values, returns."""
    fields = {k: token[k][members] for k in ('old_values', 'returns')}
    fields['scale'] = scale
    grads, found = self._roles.value_grads(work.micros(members, fields))
    sums.add('critic', found, self._apply('critic', grads, name))

  def _apply(self, role: str, grads: Any, name: str, step: float = 1.0) -> dict:
    info = self._roles.step(role, grads, step)
    self._skips.note(role, bool(info['finite']), name)
    return info

  def _name(
    self,
    samples: Sequence[types.Sample],
    members: Any,
    version: int | None,
    epoch: int,
    k: int,
  ) -> str:
    ids = [samples[i].prompt_id for i in members[:4]]
    more = '' if len(members) <= 4 else f' and {len(members) - 4} more'
    return (
      f'version {version}, epoch {epoch}, minibatch {k} (prompts '
      f'{", ".join(ids)}{more})'
    )


def _kl_controller(config: LearnerConfig):
  if not config.kl_target:
    return algorithms.FixedKL(config.kl_coef)
  return algorithms.AdaptiveKL(
    config.kl_coef, config.kl_target, config.kl_horizon
  )
