"""SFT steps and RL updates over a mesh."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxagent import algorithms, models, sharding, types
from jaxagent.data import batching
from jaxagent.learner import advantages as advantages_lib
from jaxagent.learner import compiles, figures, programs, weights
from jaxagent.learner.config import LearnerConfig

log = logging.getLogger(__name__)

# The second one meets what the first leaves behind: carried-over samples,
# refills of the slots that are free.
_WARM_UPDATES = 2


class NonFiniteGradientError(RuntimeError):
  """Too many updates in a row had a gradient that is not finite."""


class Learner:
  """Policy, value model, frozen reference and their optimizers on a mesh.

  A new learner is ready for RL: the reference is a copy of the policy, the
  value model's trunk too. `start_sft` turns to fine-tuning (only the policy
  and its own optimizer then exist in `state()`); `start_rl` turns back, with
  reference and value model made anew from the policy of that moment.
  """

  def __init__(
    self,
    model_config: models.ModelConfig,
    config: LearnerConfig,
    *,
    mesh: Mesh | None = None,
    seed: int = 0,
    policy_params: Any = None,
    with_value: bool | None = None,
    with_reference: bool | None = None,
    pad_id: int = 0,
  ):
    self.model_config, self.config = model_config, config
    self.mesh = sharding.make_mesh() if mesh is None else mesh
    self.seed, self.pad_id = seed, pad_id
    sharding.check_model(model_config, self.mesh)
    self._with_value = config.uses_value if with_value is None else with_value
    self._with_reference = (
      config.uses_reference if with_reference is None else with_reference
    )
    self._place: dict[str, Any] = {}
    self._make_policy(policy_params)
    self._counters = {'updates': 0, 'sft_steps': 0, 'nonfinite': 0}
    self._bad = {'actor': 0, 'critic': 0}  # skipped in a row, by role
    self._kl = _kl_controller(config)
    self._shapes: set[tuple[int, int]] = set()
    self._attention_tokens = _attention_tokens(model_config)
    self._sft_optimizer = None
    self.start_rl()

  # Roles

  @property
  def policy_params(self) -> Any:
    """The policy as `init_decoder` gives it: nested state on the mesh."""
    return self._policy_layout.state(self._policy, self._frozen)

  @property
  def graphdef(self) -> Any:
    """The policy's graph definition."""
    return self._policy_layout.graphdef

  @property
  def value_params(self) -> Any:
    """The value model's nested state, or None without one."""
    if not self._with_value:
      return None
    return self._value_layout.state(self._value, self._value_frozen)

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
    given = {
      'sft_lr': lr,
      'sft_steps': total_steps,
      'sft_warmup_steps': warmup_steps,
      'sft_schedule': schedule,
    }
    given = {k: v for k, v in given.items() if v is not None}
    config = dataclasses.replace(self.config, **given)
    self._phase = 'sft'
    self._value = self._reference = self._opt = self._value_opt = None
    self._optimizer = programs.Optimizer(
      config,
      programs.sft_schedule(config),
      self._place['policy'],
      self._policy,
    )
    self._opt = self._optimizer.init(self._policy)
    self._counters['sft_steps'] = 0
    self._measured = self._warm_compiles = self._last_more = 0

  def start_rl(self) -> None:
    """Turns to RL: fresh optimizers, reference and value from the policy."""
    config = self.config
    self._phase = 'rl'
    self._reference = self._value = self._value_opt = None
    self._value_layout, self._value_frozen = None, {}
    if self._with_reference:
      self._reference = weights.copy(self._policy)
      if 'reference' in config.offload:
        self._reference = self._offload(self._reference, 'policy')
    if self._with_value:
      self._make_value()
    self._optimizer = programs.Optimizer(
      config,
      programs.warmup(config.policy_lr, config.warmup_steps),
      self._place['policy'],
      self._policy,
    )
    self._opt = self._optimizer.init(self._policy)
    self._programs = programs.Programs(
      config, self.mesh, self._policy_layout, self._value_layout, self._place
    )
    self._measured = self._warm_compiles = self._last_more = 0

  def _make_policy(self, params: Any) -> None:
    graphdef, abstract = models.abstract_decoder(self.model_config)
    if params is None:
      graphdef, params = models.init_decoder(self.model_config, self.seed)
    self._policy_layout, train, frozen = weights.flatten(graphdef, params)
    _check_shapes(abstract, train | frozen)
    self._place['policy'] = sharding.parameter_shardings(train, self.mesh)
    self._place['frozen'] = sharding.parameter_shardings(frozen, self.mesh)
    self._policy = sharding.put(train, self._place['policy'])
    self._frozen = sharding.put(frozen, self._place['frozen'])

  def _make_value(self) -> None:
    graphdef, params = models.value_from_policy(
      self.model_config, self.policy_params
    )
    self._value_layout, train, frozen = weights.flatten(graphdef, params)
    self._place['value'] = sharding.parameter_shardings(train, self.mesh)
    self._place['value_frozen'] = sharding.parameter_shardings(
      frozen, self.mesh
    )
    self._value = sharding.put(train, self._place['value'])
    self._value_frozen = sharding.put(frozen, self._place['value_frozen'])
    self._value_optimizer = programs.Optimizer(
      self.config,
      programs.warmup(self.config.value_lr, self.config.warmup_steps),
      self._place['value'],
      self._value,
    )
    self._value_opt = self._value_optimizer.init(self._value)

  def _offload(self, flat, role: str):
    kinds = {m.kind for m in self.mesh.devices.flat[0].addressable_memories()}
    if 'pinned_host' not in kinds:
      log.warning('no pinned host memory here (%s): kept on device.', kinds)
      return flat
    place = jax.tree.map(
      lambda s: s.with_memory_kind('pinned_host'), self._place[role]
    )
    return jax.device_put(flat, place)

  def _on_device(self, flat, role: str):
    """Brings an offloaded role back for one use; others pass unchanged."""
    leaf = next(iter(flat.values()))
    if leaf.sharding.memory_kind == 'pinned_host':
      return jax.device_put(flat, self._place[role])
    return flat

  # State

  def state(self) -> dict[str, Any]:
    """Arrays of a checkpoint: everything that changes, and the reference."""
    counters = {k: np.int64(v) for k, v in self._counters.items()}
    counters['kl_coef'] = np.float64(self._kl.coefficient)
    tree = {
      'policy': {**self._policy, **self._frozen},
      'opt': self._opt,
      'counters': counters,
    }
    if self._value is not None:
      tree['value'] = {**self._value, **self._value_frozen}
      tree['value_opt'] = self._value_opt
    if self._reference is not None:
      tree['reference'] = self._reference
    return tree

  def load_state(self, tree: Mapping[str, Any]) -> None:
    """Takes over what `state()` gave, of the same phase and config."""
    expected = jax.tree.structure(self.state())
    if jax.tree.structure(dict(tree)) != expected:
      raise ValueError(
        'the saved learner state has other parts than this learner: '
        f'{sorted(tree)} against {sorted(self.state())}; use the config that '
        'made it.'
      )
    put = sharding.put
    policy = tree['policy']
    self._policy = put(
      {k: policy[k] for k in self._policy}, self._place['policy']
    )
    self._frozen = put(
      {k: policy[k] for k in self._frozen}, self._place['frozen']
    )
    self._opt = put(tree['opt'], self._optimizer.sharding)
    if self._value is not None:
      value = tree['value']
      self._value = put(
        {k: value[k] for k in self._value}, self._place['value']
      )
      self._value_frozen = put(
        {k: value[k] for k in self._value_frozen}, self._place['value_frozen']
      )
      self._value_opt = put(tree['value_opt'], self._value_optimizer.sharding)
    if self._reference is not None:
      self._reference = put(dict(tree['reference']), self._place['policy'])
      if 'reference' in self.config.offload:
        self._reference = self._offload(self._reference, 'policy')
    counters = dict(tree['counters'])
    self._kl.load_state_dict({'value': float(counters.pop('kl_coef'))})
    self._counters = {k: int(v) for k, v in counters.items()}

  def host_state(self) -> dict[str, Any]:
    """JSON-able part: how many bad updates in a row, shapes seen."""
    return {
      'phase': self._phase,
      'nonfinite_in_a_row': dict(self._bad),
      'shapes': sorted(list(s) for s in self._shapes),
    }

  def load_host_state(self, state: Mapping[str, Any]) -> None:
    """Takes over what `host_state()` gave."""
    self._bad = dict(state['nonfinite_in_a_row'])
    # The shapes decide the packing, hence the order of float additions.
    self._shapes = {tuple(s) for s in state['shapes']}

  # SFT

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
    grads = self._optimizer.zeros(self._policy)
    losses = []
    for b in batches:
      micro = self._micro(
        {
          'tokens': b.tokens,
          'positions': b.positions,
          'segment_ids': b.segment_ids,
          'scale': (b.mask / total).astype(np.float32),
        }
      )
      grads, metrics = self._programs.sft_grads(
        grads, self._policy, self._frozen, micro
      )
      losses.append(metrics['loss'])
    name = f'SFT step {self._counters["sft_steps"]}'
    self._policy, self._opt, info = self._apply(
      'actor', self._optimizer, self._policy, self._opt, grads, name
    )
    self._counters['sft_steps'] += 1
    tokens = sum(int((b.segment_ids > 0).sum()) for b in batches)
    wall = time.monotonic() - began
    return {
      'sft/loss': float(sum(float(x) for x in losses)),
      'sft/grad_norm': float(info['grad_norm']),
      'sft/lr': float(info['lr']),
      'sft/tokens': total,
      'learner/padding': 1 - tokens / sum(b.tokens.size for b in batches),
      'perf/throughput': tokens / wall / self.mesh.size,
      **self._compile_metrics(),
    }

  # RL

  def rl_update(
    self,
    samples: Sequence[types.Sample],
    weights: np.ndarray | None = None,
    version: int = 0,
  ) -> dict[str, float]:
    """One update: all epochs and minibatches over `samples`.

    weights: [N], duration or inclusion weights (default 1). version: of the
    policy being updated, for staleness and for naming a bad batch.
    Raises ValueError where no sample can be used, NonFiniteGradientError
    after `max_nonfinite` skipped steps in a row.
    """
    if self._phase != 'rl':
      raise ValueError('this learner is fine-tuning; call start_rl() first.')
    if self.config.uses_value and self._value is None:
      raise ValueError(
        "estimator='gae' needs a value model; make the learner with "
        'with_value=True.'
      )
    began = time.monotonic()
    samples, weights, rejected = figures.usable(samples, weights)
    clock = _Clock()
    work = _Work(self, samples)
    tables = self._forward_tables(work, clock)
    with clock('adv'):
      token = self._advantages(work, tables, weights)
    metrics = figures.data_metrics(
      samples, tables, token, self._value is not None
    )
    metrics |= self._epochs(work, token, version, clock)
    metrics |= {f'timing_s/{k}': v for k, v in clock.seconds.items()}
    metrics['learner/rejected'] = float(rejected)
    metrics['learner/padding'] = 1.0 - work.everything.efficiency
    metrics['learner/skipped_updates'] = float(self._counters['nonfinite'])
    self._counters['updates'] += 1
    wall = time.monotonic() - began
    tokens = float(work.lengths.sum())
    metrics['perf/total_num_tokens'] = tokens
    metrics['perf/throughput'] = tokens / wall / self.mesh.size
    metrics |= self._compile_metrics()
    return metrics

  def value_update(
    self, samples: Sequence[types.Sample], name: str = 'value warm-up'
  ) -> dict[str, float]:
    """One critic step toward the samples' discounted returns; no policy step.

    A critic that has seen rewards before the policy moves, the policy's own
    or an expert's (Yuan et al. 2025, VC-PPO, "value pretraining").

    Returns critic/vf_loss, critic/vf_explained_var (before the step) and the
    optimizer's figures. Raises ValueError without a value model.
    """
    if self._value is None:
      raise ValueError(
        f'estimator={self.config.estimator!r} has no value model to warm up.'
      )
    samples, _, _ = figures.usable(samples, None)
    work = _Work(self, samples)
    tables = batching.sample_tables(work.samples, work.width)
    tables['values'] = self._per_token(work, self._run_values)
    returns = advantages_lib.returns_to_go(
      tables['rewards'], tables['mask'], self.config.gamma
    )
    token = {'old_values': tables['values'], 'returns': returns}
    scale = advantages_lib.token_scale(tables['mask'], self.config.aggregation)
    sums = figures.Mean()
    self._critic_step(
      work, work.all, token, scale.astype(np.float32), name, sums
    )
    explained = figures.explained_variance(
      tables['values'], returns, tables['mask']
    )
    return sums.result() | {'critic/vf_explained_var': explained}

  def logprobs(self, samples: Sequence[types.Sample]) -> np.ndarray:
    """float32 [N, R]: log-probs of the response tokens under the policy."""
    work = _Work(self, samples)
    return self._per_token(work, self._run_logprobs(self._policy))

  def _forward_tables(self, work: _Work, clock: _Clock) -> dict:
    tables = batching.sample_tables(work.samples, work.width)
    with clock('old_log_prob'):
      tables['old_logp'] = self._per_token(
        work, self._run_logprobs(self._policy)
      )
    if self._reference is not None and self.config.uses_reference:
      with clock('ref'):
        reference = self._on_device(self._reference, 'policy')
        tables['ref_logp'] = self._per_token(
          work, self._run_logprobs(reference)
        )
    if self._value is not None:
      with clock('values'):
        tables['values'] = self._per_token(work, self._run_values)
    return tables

  def _run_logprobs(self, trained):
    return lambda micro: self._programs.logprobs(trained, self._frozen, micro)

  def _run_values(self, micro):
    return self._programs.values(self._value, self._value_frozen, micro)

  def _per_token(self, work: _Work, run) -> np.ndarray:
    """Runs over the whole update's micro-batches -> [N, R]."""
    outs = [run(micro) for micro in work.micros()]
    packed = np.stack([sharding.fetch(out) for out in outs])
    table = work.everything.unpack(packed, work.skip, work.width)
    return table.astype(np.float32)

  def _advantages(self, work: _Work, tables, sample_weights) -> dict:
    groups = np.unique([s.group_id for s in work.samples], return_inverse=True)[
      1
    ].astype(np.int32)
    padded = advantages_lib.pad_tables(
      tables, np.asarray(sample_weights, np.float32), groups
    )
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
    return token

  def _epochs(self, work: _Work, token, version: int, clock) -> dict:
    sums = figures.Mean()
    for epoch in range(self.config.ppo_epochs):
      for k, members in enumerate(self._minibatches(work, epoch)):
        name = self._name(work.samples, members, version, epoch, k)
        self._minibatch(work, members, token, name, sums, clock)
    metrics = sums.result()
    metrics['actor/kl_coef'] = self._kl.coefficient
    if 'ref_logp' in token:
      kl = figures.masked(token['old_logp'] - token['ref_logp'], token['mask'])
      if self.config.kl_in == 'reward':
        metrics['actor/reward_kl_penalty'] = float(kl.mean())
        metrics['actor/reward_kl_penalty_coeff'] = self._kl.coefficient
      self._kl.update(float(kl.mean()), len(work.samples))
    return metrics

  def _minibatches(self, work: _Work, epoch: int) -> list[np.ndarray]:
    n = len(work.samples)
    count = min(self.config.minibatches, n)
    if count == 1:
      return [np.arange(n)]
    # Stateless: the update's number is in the checkpoint, no RNG need be.
    rng = np.random.default_rng([self.seed, self._counters['updates'], epoch])
    return [np.sort(m) for m in np.array_split(rng.permutation(n), count)]

  def _minibatch(self, work, members, token, name, sums, clock) -> None:
    scale = advantages_lib.token_scale(
      token['mask'][members], self.config.aggregation
    ).astype(np.float32)
    fields = {
      k: token[k][members]
      for k in ('old_logp', 'ref_logp', 'advantages', 'importance')
      if k in token
    }
    fields['scale'] = scale
    with clock('update_actor'):
      micros = work.micros(members, fields)
      grads = self._optimizer.zeros(self._policy)
      found = []
      coef = np.float32(self._kl.coefficient)
      for micro in micros:
        grads, metrics = self._programs.policy_grads(
          grads, self._policy, self._frozen, micro, coef
        )
        found.append(metrics)
      self._policy, self._opt, info = self._apply(
        'actor', self._optimizer, self._policy, self._opt, grads, name
      )
      sums.add('actor', found, info)
    if self.config.uses_value:
      with clock('update_critic'):
        self._critic_step(work, members, token, scale, name, sums)

  def _critic_step(self, work, members, token, scale, name, sums) -> None:
    """One optimizer step of the value model; token: old_values, returns."""
    fields = {k: token[k][members] for k in ('old_values', 'returns')}
    fields['scale'] = scale
    grads = self._value_optimizer.zeros(self._value)
    found = []
    for micro in work.micros(members, fields):
      grads, metrics = self._programs.value_grads(
        grads, self._value, self._value_frozen, micro
      )
      found.append(metrics)
    self._value, self._value_opt, info = self._apply(
      'critic',
      self._value_optimizer,
      self._value,
      self._value_opt,
      grads,
      name,
    )
    sums.add('critic', found, info)

  def _apply(self, role, optimizer, trained, state, grads, name: str):
    trained, state, info = optimizer.apply(trained, state, grads)
    info = sharding.fetch(info)
    if info['finite']:
      self._bad[role] = 0
      return trained, state, info
    self._counters['nonfinite'] += 1
    self._bad[role] += 1
    log.warning('gradient of %s is not finite: step skipped.', name)
    if self._bad[role] >= self.config.max_nonfinite:
      raise NonFiniteGradientError(
        f'{self._bad[role]} {role} steps in a row had a gradient that is '
        f'not finite; the last was {name}. The parameters are those of before. '
        'Lower the learning rate, or look at these samples.'
      )
    return trained, state, info

  def _name(self, samples, members, version, epoch, k) -> str:
    ids = [samples[i].prompt_id for i in members[:4]]
    more = '' if len(members) <= 4 else f' and {len(members) - 4} more'
    return (
      f'version {version}, epoch {epoch}, minibatch {k} (prompts '
      f'{", ".join(ids)}{more})'
    )

  def _micro(self, arrays: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return sharding.put(arrays, sharding.rows_sharding(self.mesh))

  def _compile_metrics(self) -> dict[str, float]:
    now = self.compiles
    self._measured += 1
    if self._measured <= _WARM_UPDATES:
      self._warm_compiles = now
    more = now - self._warm_compiles
    if more > self._last_more:
      log.warning('%d programs compiled after warm-up.', more)
    self._last_more = more
    return {
      'learner/recompiles': float(more),
      'learner/compiles': float(now),
    }


class _Clock:
  """Seconds by stage."""

  def __init__(self):
    self.seconds: dict[str, float] = {}

  def __call__(self, name: str):
    @contextlib.contextmanager
    def timed():
      began = time.monotonic()
      yield
      spent = time.monotonic() - began
      self.seconds[name] = self.seconds.get(name, 0.0) + spent

    return timed()


class _Work:
  """The samples of one update, packed once and reused where possible."""

  def __init__(self, learner: Learner, samples: Sequence[types.Sample]):
    self.learner, self.samples = learner, list(samples)
    self.sequences = [batching.sequence_of(s) for s in self.samples]
    self.lengths = np.array([len(s) for s in self.sequences])
    self.skip = np.array([len(s.prompt_ids) for s in self.samples], np.int64)
    self.width = max(len(s.token_ids) for s in self.samples)
    self.all = np.arange(len(self.samples))
    self._ids: dict[bytes, tuple] = {}
    self.everything = self._packed(self.all)[0]

  def _packed(self, members: np.ndarray):
    """(packing, device arrays of each micro-batch) of some samples."""
    key = members.tobytes()
    if key not in self._ids:
      learner = self.learner
      packing = batching.plan_packing(
        self.lengths[members],
        row_tokens_buckets=learner.config.row_tokens,
        max_tokens=learner.config.micro_batch_tokens,
        rows_multiple=sharding.rows_multiple(learner.mesh),
        prefer=learner._shapes,
        attention_tokens=learner._attention_tokens,
      )
      learner._shapes.add((packing.rows, packing.row_tokens))
      ids = batching.pack_tokens(
        packing, [self.sequences[i] for i in members], learner.pad_id
      )
      names = ('tokens', 'positions', 'segment_ids')
      micros = [
        learner._micro({k: v[m] for k, v in zip(names, ids)})
        for m in range(packing.n_micro)
      ]
      self._ids[key] = (packing, micros)
    return self._ids[key]

  def micros(self, members=None, fields=None) -> list[dict[str, jax.Array]]:
    """Micro-batches of some samples, with per-sample fields [n, R] packed."""
    members = self.all if members is None else members
    packing, base = self._packed(members)
    if not fields:
      return base
    skip = self.skip[members]
    packed = {
      k: packing.scatter(np.asarray(v, np.float32), skip)
      for k, v in fields.items()
    }
    return [
      base[m] | self.learner._micro({k: v[m] for k, v in packed.items()})
      for m in range(packing.n_micro)
    ]


def _kl_controller(config: LearnerConfig):
  if config.kl_target is None:
    return algorithms.FixedKL(config.kl_coef)
  return algorithms.AdaptiveKL(
    config.kl_coef, config.kl_target, config.kl_horizon
  )


def _attention_tokens(c: models.ModelConfig) -> float:
  """Row length at which attention's products equal the weights'."""
  width = c.num_attention_heads * c.head_dim
  weights_ = c.num_params() + (
    0 if c.tie_word_embeddings else -c.vocab_size * c.hidden_size
  )
  # Softmax and masking about double the cost of the products.
  return max(weights_ / (2 * c.num_hidden_layers * width) / 2, 64.0)


def _check_shapes(abstract: Any, flat: Mapping[str, Any]) -> None:
  leaves = jax.tree_util.tree_flatten_with_path(abstract)[0]
  want = {sharding.path_of(p): tuple(v.shape) for p, v in leaves}
  have = {p: tuple(jnp.shape(v)) for p, v in flat.items()}
  wrong = [
    f'{p}: {have.get(p, "missing")}, wanted {want.get(p, "none")}'
    for p in sorted(want.keys() | have.keys())
    if want.get(p) != have.get(p)
  ]
  if wrong:
    raise ValueError(
      'policy_params do not fit the model config: ' + '; '.join(wrong[:8])
    )
