"""Policy, value model and frozen reference on a mesh, with their optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxagent import models
from jaxagent.devices import accelerator, sharding
from jaxagent.learner import programs, weights
from jaxagent.learner.config import LearnerConfig
from jaxagent.learner.offload import HOST, Offload
from jaxagent.models import identity, lora

# From (path, shape) of a weight to its sharding; see `sharding.parameter_place`.
PlaceOf = Callable[[Sequence[Any], Sequence[int]], Any]
# A model's config, and what makes its weights: new arrays at each call.
Critic = tuple[models.ModelConfig, Callable[[PlaceOf], Any]]

_HEAD, _TRUNK = 'head', 'trunk/'  # paths of a value model
# What a checkpoint holds: a base stays where it is.
_ARRAYS = ('policy', 'opt', 'value', 'value_opt', 'reference')


class Roles:
  """The models that the learner trains and compares with, and their optimizers.

  Fine-tuning has a policy and its optimizer; RL has the reference and the
  value model besides, both made from the policy of that moment; the value
  model's trunk from `critic`, where that is given: its weights are made each time
  that RL begins, and nothing keeps a second copy of them.

  Of a model with adapters these are trained, over one frozen base that policy,
  reference and value model share: `frozen`. With `config.full_sft` fine-tuning trains
  all weights, and RL makes the base of them.

  base: digest of that base, '' without adapters.
  """

  def __init__(
    self,
    model_config: models.ModelConfig,
    config: LearnerConfig,
    mesh: Mesh,
    *,
    seed: int = 0,
    policy_params: Any = None,
    critic: Critic | None = None,
  ):
    sharding.check_model(model_config, mesh)
    self._critic = critic if config.uses_value else None
    if self._critic:
      _check_critic(self._critic[0], model_config, mesh)
    self.model_config, self.config, self.mesh = model_config, config, mesh
    self._offload = Offload(config.offload, mesh)
    self.place: dict[str, Any] = {}
    self._seed = seed
    self.policy: weights.Flat
    # What is trained now; changes where RL makes a base of what SFT has trained.
    self._trained = model_config
    if model_config.lora_rank and config.full_sft:
      self._trained = model_config.replace(lora_rank=0, param_dtype='float32')
    self._make_policy(policy_params, seed)
    self._sampled = self.policy_layout
    if model_config.lora_rank:
      made = models.abstract_decoder(self.sampled)
      self._sampled = weights.flatten(*made)[0]
    if self.is_full:
      self.start_sft(config)
    else:
      self.start_rl()

  @property
  def sampled(self) -> models.ModelConfig:
    """The model of `policy_params` where adapters are merged."""
    return self.model_config.replace(lora_rank=0)

  @property
  def is_full(self) -> bool:
    """Whether all weights are trained that later become a base."""
    return self._trained != self.model_config

  @property
  def adapted_base(self) -> str:
    """The digest of the base below adapters that `policy_params` does not merge."""
    return '' if self.config.merge_adapters or self.is_full else self.base

  @property
  def graphdef(self) -> Any:
    """The graph definition of `policy_params` where adapters are merged."""
    return self._sampled.graphdef

  @property
  def policy_params(self) -> Any:
    """The policy as `init_decoder` gives it: nested state on the mesh.

    Adapters are merged, by a new array for each kernel that has one, or copied.
    """
    policy = self.policy
    if self.adapted_base:
      return self.policy_layout.state(weights.copy(policy), self.frozen)
    if self.is_full:  # as the base will be
      policy = weights.rounded(policy, self.model_config.param_dtype)
    elif self._merge is not None:
      policy = self._merge(
        {p: self.frozen[p] for p in self._adapted}, self.policy
      )
    return self._sampled.state(policy, self.frozen)

  @property
  def value_params(self) -> Any:
    """The value model's nested state, or None without one."""
    if self.value is None:
      return None
    return self.value_layout.state(self.value, self.value_frozen)

  def start_sft(self, config: LearnerConfig) -> None:
    """A fresh optimizer for the policy, which is then alone.

    Raises ValueError where RL has made a base of what SFT should train.
    """
    if self.config.full_sft and self.base:
      raise ValueError(
        'all weights were to be fine-tuned, but adapters are trained on them by now; '
        'make a new learner.'
      )
    self._clear()
    self.optimizer = programs.Optimizer(
      config,
      programs.sft_schedule(config),
      self.place['policy'],
      self.policy,
    )
    self.opt = self._fresh('policy', self.optimizer, self.policy)
    if self.is_full:
      self._make_programs()

  def start_rl(self) -> None:
    """Fresh optimizers; reference and value from the policy of now."""
    config = self.config
    self._clear()
    if self.is_full:
      self._make_base()
    if config.uses_reference:
      kept = config.reference_dtype
      copied = weights.copy(self.policy, None if kept == 'float32' else kept)
      self.reference = self._offload.away('reference', copied)
      del copied
    if config.uses_value:
      self._make_value()
    self.optimizer = programs.Optimizer(
      config,
      programs.rl_schedule(config, config.policy_lr),
      self.place['policy'],
      self.policy,
    )
    self.opt = self._fresh('policy', self.optimizer, self.policy)
    self._make_programs()

  def _make_programs(self) -> None:
    self.programs = programs.Programs(
      self.config, self.mesh, self.policy_layout, self.value_layout, self.place
    )

  def _clear(self) -> None:
    """Lets go of all but the policy, before anything new is made."""
    self.value = self.reference = self.opt = self.value_opt = None
    self.value_layout: weights.Layout | None = None
    self.value_frozen: weights.Flat = {}

  def _fresh(self, role: str, optimizer, trained: weights.Flat) -> Any:
    return self._offload.away(f'{role}_optimizer', optimizer.init(trained))

  def restart_value_schedule(self) -> None:
    """The critic's schedule is at its beginning again; its moments stay."""
    opt = self._offload.back('value_optimizer', self.value_opt)
    restarted = self.value_optimizer.restarted(opt)
    self.value_opt = self._offload.away('value_optimizer', restarted)

  def _make_base(self) -> None:
    """Freezes the weights, in the precision of a base, under fresh adapters."""
    base = weights.rounded(self.policy, self.model_config.param_dtype)
    state = self.policy_layout.state(base, {})
    self.policy = {}
    self._trained = self.model_config
    self._make_policy(
      lora.add_lora(self.model_config, state, seed=self._seed)[2], self._seed
    )

  def _make_policy(self, params: Any, seed: int) -> None:
    made = models.abstract_decoder(self._trained)
    self.policy_layout, train, frozen = weights.flatten(*made)
    self.place['policy'] = sharding.parameter_shardings(train, self.mesh)
    self.place['frozen'] = sharding.parameter_shardings(frozen, self.mesh)
    place = self.place['policy'] | self.place['frozen']
    if params is None:
      flat = weights.drawn(self._trained, seed, place)
    else:
      flat = weights.by_path(params)
      _check_shapes(train | frozen, flat)
    self.policy = sharding.put(
      {p: flat[p] for p in train}, self.place['policy']
    )
    self.frozen = sharding.put(
      {p: flat[p] for p in frozen}, self.place['frozen']
    )
    self._note_adapters()

  def _note_adapters(self) -> None:
    """Makes the program that merges adapters, and takes the digest of their base."""
    model, self.base, self._merge = self._trained, '', None
    factors = [p for p in self.policy if p.endswith('lora_a')]
    self._adapted = [p.removesuffix('lora_a') + 'kernel' for p in factors]
    if not factors:
      return
    self.base = identity.digest(model, self.frozen)
    kernels = {p: self.place['frozen'][p] for p in self._adapted}
    self._merge = merge_program(model, kernels, self.place['policy'])

  def _make_value(self) -> None:
    config = self._critic[0] if self._critic else self.model_config
    self.value_layout, train, frozen = weights.flatten(
      *models.abstract_value(config)
    )
    self.place['value'] = sharding.parameter_shardings(train, self.mesh)
    self.place['value_frozen'] = sharding.parameter_shardings(frozen, self.mesh)
    trunk = {p: v for p, v in (train | frozen).items() if p != _HEAD}
    if self._critic:
      made = self._critic[1](sharding.parameter_place(self.mesh))
      flat = {_TRUNK + p: v for p, v in weights.by_path(made).items()}
      del made
    else:
      policy = self.policy | self.frozen
      own = {p: policy[p.removeprefix(_TRUNK)] for p in trunk}
      flat = weights.copy({p: own[p] for p in own if p in train})
      flat |= {p: own[p] for p in frozen}  # the policy's base itself
    _check_shapes(trunk, {p: flat[p] for p in flat if p in trunk})
    # The value of every state is 0 at first, and the trunk is not shaken.
    flat[_HEAD] = jnp.zeros(train[_HEAD].shape, train[_HEAD].dtype)
    value = sharding.put({p: flat[p] for p in train}, self.place['value'])
    self.value_frozen = {p: flat[p] for p in frozen}
    del flat
    self.value_optimizer = programs.Optimizer(
      self.config,
      programs.rl_schedule(self.config, self.config.value_lr),
      self.place['value'],
      value,
    )
    self.value_opt = self._fresh('value', self.value_optimizer, value)
    self.value = self._offload.away('value', value)

  # Passes over a micro-batch, or several with their gradients summed

  def logprobs(self, micro: programs.Micro) -> jax.Array:
    """[B, T]: log-probs of the tokens under the policy."""
    return self.programs.logprobs(self.policy, self.frozen, micro)

  def reference_logprobs(self) -> Callable[[programs.Micro], jax.Array]:
    """`logprobs` under the reference, which stays on the device meanwhile."""
    reference = self._offload.back('reference', self.reference)
    return lambda micro: self.programs.logprobs(reference, self.frozen, micro)

  def values(self) -> Callable[[programs.Micro], jax.Array]:
    """[B, T]: values of the critic, which stays on the device meanwhile."""
    value = self._offload.back('value', self.value)
    return lambda micro: self.programs.values(value, self.value_frozen, micro)

  def sft_grads(self, micros: Iterable[programs.Micro]):
    """(gradients of the policy, metrics of each micro-batch)."""
    total, found = self.optimizer.zeros(self.policy), []
    for micro in micros:
      total, metrics = self.programs.sft_grads(
        total, self.policy, self.frozen, micro
      )
      found.append(metrics)
    return total, found

  def policy_grads(self, micros: Iterable[programs.Micro], kl_coef: float):
    """(gradients of the policy, metrics of each micro-batch)."""
    total, found = self.optimizer.zeros(self.policy), []
    for micro in micros:
      total, metrics = self.programs.policy_grads(
        total, self.policy, self.frozen, micro, np.float32(kl_coef)
      )
      found.append(metrics)
    return total, found

  def value_grads(self, micros: Iterable[programs.Micro]):
    """(gradients of the value model, metrics of each micro-batch)."""
    value = self._offload.back('value', self.value)
    total, found = self.value_optimizer.zeros(value), []
    for micro in micros:
      total, metrics = self.programs.value_grads(
        total, value, self.value_frozen, micro
      )
      found.append(metrics)
    return total, found

  def first_value_grads(self, micros: Iterable[programs.Micro]):
    """`value_grads` of a first step, and the values [B, T] of each micro-batch."""
    value = self._offload.back('value', self.value)
    total, found, values = self.value_optimizer.zeros(value), [], []
    for micro in micros:
      total, metrics, one = self.programs.first_value_grads(
        total, value, self.value_frozen, micro
      )
      found.append(metrics)
      values.append(one)
    return total, found, values

  def step(self, role: str, grads: Any, factor: float = 1.0) -> dict[str, Any]:
    """One optimizer step of 'actor' or 'critic': grad_norm, finite, lr.

    factor: of the learning rate.
    """
    back, away = self._offload.back, self._offload.away
    if role == 'actor':
      self.policy, opt, info = self.optimizer.apply(
        self.policy, back('policy_optimizer', self.opt), grads, factor
      )
      self.opt = away('policy_optimizer', opt)
    else:
      value, opt, info = self.value_optimizer.apply(
        back('value', self.value),
        back('value_optimizer', self.value_opt),
        grads,
        factor,
      )
      self.value = away('value', value)
      self.value_opt = away('value_optimizer', opt)
    return sharding.fetch(info)

  # State

  def state(self) -> dict[str, Any]:
    """Arrays of a checkpoint, by role and optimizer: what is trained, no base."""
    tree = {'policy': dict(self.policy), 'opt': self.opt}
    if self.value is not None:
      tree['value'] = dict(self.value)
      tree['value_opt'] = self.value_opt
    if self.reference is not None:
      tree['reference'] = self.reference
    return tree

  def let_go(self) -> None:
    """Keeps shapes alone, in which a saved state is read; `load_state` must follow."""
    for name in _ARRAYS:
      setattr(self, name, weights.shapes(getattr(self, name)))

  def load_state(self, tree: Mapping[str, Any]) -> None:
    """Takes over what `state()` gave, with the same parts."""
    put, place = sharding.put, self.place
    policy = tree['policy']
    self.policy = put({k: policy[k] for k in self.policy}, place['policy'])
    self.opt = self._kept(
      'policy_optimizer', tree['opt'], self.optimizer.sharding
    )
    if self.value is not None:
      value = tree['value']
      trained = {k: value[k] for k in self.value}
      self.value = self._kept('value', trained, place['value'])
      self.value_opt = self._kept(
        'value_optimizer', tree['value_opt'], self.value_optimizer.sharding
      )
    if self.reference is not None:
      self.reference = self._kept(
        'reference', dict(tree['reference']), place['policy']
      )

  def adapters(self) -> dict[str, Any] | None:
    """Returns what a checkpoint's arrays belong to, JSON-able; None without adapters."""
    if not self.base:
      return None
    return {
      'rank': self.model_config.lora_rank,
      'alpha': self.model_config.lora_alpha,
      'targets': list(self.model_config.lora_targets),
      'base': self.base,
    }

  def _kept(self, name: str, tree: Any, place: Any) -> Any:
    """A role of a saved state where it is kept, by way of no other memory."""
    if name in self.config.offload:
      place = jax.tree.map(lambda s: s.with_memory_kind(HOST), place)
    return sharding.put(tree, place)


def merge_program(
  model: models.ModelConfig,
  kernels: Mapping[str, Any],
  adapters: Mapping[str, Any],
) -> Callable[..., weights.Flat]:
  """The program from (kernels, adapters) to merged kernels; its arguments: places."""
  merge = functools.partial(
    lora.merged_kernels, scale=model.lora_alpha / model.lora_rank
  )
  return accelerator.in_turns(
    jax.jit(merge, in_shardings=(kernels, adapters), out_shardings=kernels)
  )


def _check_critic(
  critic: models.ModelConfig, policy: models.ModelConfig, mesh: Mesh
) -> None:
  sharding.check_model(critic, mesh)
  if critic.vocab_size < policy.vocab_size:
    raise ValueError(
      f'the critic knows {critic.vocab_size} tokens, the policy '
      f'{policy.vocab_size}: both must have the same tokenizer.'
    )


def _check_shapes(abstract: Mapping[str, Any], flat: Mapping[str, Any]) -> None:
  want = {p: tuple(v.shape) for p, v in abstract.items()}
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
