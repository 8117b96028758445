"""Policy, value model and frozen reference on a mesh, with their optimizers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxagent import models, sharding
from jaxagent.learner import programs, weights
from jaxagent.learner.config import LearnerConfig

log = logging.getLogger(__name__)


class Roles:
  """What the learner trains and compares with; all arrays, no samples.

  Fine-tuning has a policy and its optimizer; RL has the reference and the
  value model besides, both made from the policy of that moment; the value
  model's trunk from `critic`, (its config, params), where that is given.
  """

  def __init__(
    self,
    model_config: models.ModelConfig,
    config: LearnerConfig,
    mesh: Mesh,
    *,
    seed: int = 0,
    policy_params: Any = None,
    critic: tuple[models.ModelConfig, Any] | None = None,
    with_value: bool = True,
    with_reference: bool = True,
  ):
    sharding.check_model(model_config, mesh)
    self._critic = critic if with_value else None
    if self._critic:
      _check_critic(critic[0], model_config, mesh)
    self.model_config, self.config, self.mesh = model_config, config, mesh
    self.with_value, self.with_reference = with_value, with_reference
    self.place: dict[str, Any] = {}
    self._make_policy(policy_params, seed)
    self.start_rl()

  @property
  def policy_params(self) -> Any:
    """The policy as `init_decoder` gives it: nested state on the mesh."""
    return self.policy_layout.state(self.policy, self.frozen)

  @property
  def value_params(self) -> Any:
    """The value model's nested state, or None without one."""
    if self.value is None:
      return None
    return self.value_layout.state(self.value, self.value_frozen)

  def start_sft(self, config: LearnerConfig) -> None:
    """A fresh optimizer for the policy, which is then alone."""
    self.value = self.reference = self.opt = self.value_opt = None
    self.optimizer = programs.Optimizer(
      config,
      programs.sft_schedule(config),
      self.place['policy'],
      self.policy,
    )
    self.opt = self.optimizer.init(self.policy)

  def start_rl(self) -> None:
    """Fresh optimizers; reference and value from the policy of now."""
    config = self.config
    self.reference = self.value = self.value_opt = None
    self.value_layout, self.value_frozen = None, {}
    if self.with_reference:
      self.reference = weights.copy(self.policy)
      if 'reference' in config.offload:
        self.reference = self._offload(self.reference, 'policy')
    if self.with_value:
      self._make_value()
    self.optimizer = programs.Optimizer(
      config,
      programs.rl_schedule(config, config.policy_lr),
      self.place['policy'],
      self.policy,
    )
    self.opt = self.optimizer.init(self.policy)
    self.programs = programs.Programs(
      config, self.mesh, self.policy_layout, self.value_layout, self.place
    )

  def restart_value_schedule(self) -> None:
    self.value_opt = self.value_optimizer.restarted(self.value_opt)

  def _make_policy(self, params: Any, seed: int) -> None:
    graphdef, abstract = models.abstract_decoder(self.model_config)
    if params is None:
      graphdef, params = models.init_decoder(self.model_config, seed)
    self.policy_layout, train, frozen = weights.flatten(graphdef, params)
    _check_shapes(abstract, train | frozen)
    self.place['policy'] = sharding.parameter_shardings(train, self.mesh)
    self.place['frozen'] = sharding.parameter_shardings(frozen, self.mesh)
    self.policy = sharding.put(train, self.place['policy'])
    self.frozen = sharding.put(frozen, self.place['frozen'])

  def _make_value(self) -> None:
    trunk = self._critic or (self.model_config, self.policy_params)
    graphdef, params = models.value_from_policy(*trunk)
    self.value_layout, train, frozen = weights.flatten(graphdef, params)
    self.place['value'] = sharding.parameter_shardings(train, self.mesh)
    self.place['value_frozen'] = sharding.parameter_shardings(frozen, self.mesh)
    self.value = sharding.put(train, self.place['value'])
    self.value_frozen = sharding.put(frozen, self.place['value_frozen'])
    self.value_optimizer = programs.Optimizer(
      self.config,
      programs.rl_schedule(self.config, self.config.value_lr),
      self.place['value'],
      self.value,
    )
    self.value_opt = self.value_optimizer.init(self.value)

  def _offload(self, flat, role: str):
    kinds = {m.kind for m in self.mesh.devices.flat[0].addressable_memories()}
    if 'pinned_host' not in kinds:
      log.warning('no pinned host memory here (%s): kept on device.', kinds)
      return flat
    place = jax.tree.map(
      lambda s: s.with_memory_kind('pinned_host'), self.place[role]
    )
    return jax.device_put(flat, place)

  def _on_device(self, flat, role: str):
    """Brings an offloaded role back for one use; others pass unchanged."""
    leaf = next(iter(flat.values()))
    if leaf.sharding.memory_kind == 'pinned_host':
      return jax.device_put(flat, self.place[role])
    return flat

  # Passes over a micro-batch, or several with their gradients summed

  def logprobs(self, micro: programs.Micro) -> jax.Array:
    """[B, T]: log-probs of the tokens under the policy."""
    return self.programs.logprobs(self.policy, self.frozen, micro)

  def reference_logprobs(self) -> Callable[[programs.Micro], jax.Array]:
    """`logprobs` under the reference, which stays on the device meanwhile."""
    reference = self._on_device(self.reference, 'policy')
    return lambda micro: self.programs.logprobs(reference, self.frozen, micro)

  def values(self, micro: programs.Micro) -> jax.Array:
    """[B, T]: values of the critic."""
    return self.programs.values(self.value, self.value_frozen, micro)

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
    total, found = self.value_optimizer.zeros(self.value), []
    for micro in micros:
      total, metrics = self.programs.value_grads(
        total, self.value, self.value_frozen, micro
      )
      found.append(metrics)
    return total, found

  def step(
    self, role: str, grads: Any, factor: float = 1.0
  ) -> dict[str, Any]:
    """One optimizer step of 'actor' or 'critic': grad_norm, finite, lr.

    factor: of the learning rate.
    """
    if role == 'actor':
      self.policy, self.opt, info = self.optimizer.apply(
        self.policy, self.opt, grads, factor
      )
    else:
      self.value, self.value_opt, info = self.value_optimizer.apply(
        self.value, self.value_opt, grads, factor
      )
    return sharding.fetch(info)

  # State

  def state(self) -> dict[str, Any]:
    """Arrays of a checkpoint, by role and optimizer."""
    tree = {
      'policy': {**self.policy, **self.frozen},
      'opt': self.opt,
    }
    if self.value is not None:
      tree['value'] = {**self.value, **self.value_frozen}
      tree['value_opt'] = self.value_opt
    if self.reference is not None:
      tree['reference'] = self.reference
    return tree

  def load_state(self, tree: Mapping[str, Any]) -> None:
    """Takes over what `state()` gave, with the same parts."""
    put = sharding.put
    policy = tree['policy']
    self.policy = put({k: policy[k] for k in self.policy}, self.place['policy'])
    self.frozen = put({k: policy[k] for k in self.frozen}, self.place['frozen'])
    self.opt = put(tree['opt'], self.optimizer.sharding)
    if self.value is not None:
      value = tree['value']
      self.value = put({k: value[k] for k in self.value}, self.place['value'])
      self.value_frozen = put(
        {k: value[k] for k in self.value_frozen}, self.place['value_frozen']
      )
      self.value_opt = put(tree['value_opt'], self.value_optimizer.sharding)
    if self.reference is not None:
      self.reference = put(dict(tree['reference']), self.place['policy'])
      if 'reference' in self.config.offload:
        self.reference = self._offload(self.reference, 'policy')


def _check_critic(
  critic: models.ModelConfig, policy: models.ModelConfig, mesh: Mesh
) -> None:
  sharding.check_model(critic, mesh)
  if critic.vocab_size < policy.vocab_size:
    raise ValueError(
      f'the critic knows {critic.vocab_size} tokens, the policy '
      f'{policy.vocab_size}: both must have the same tokenizer.'
    )


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
