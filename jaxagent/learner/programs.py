"""The compiled functions of the learner, with explicit shardings.

A micro-batch is a dictionary of [B, T] arrays. `tokens`, `positions` and
`segment_ids` are as packed, and `branches` where samples share prompts; per-token
fields stand at the token itself, and the log-prob or value of a token comes from the
position before it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from jaxagent import algorithms, models
from jaxagent.devices import accelerator, placement, sharding
from jaxagent.learner.config import LearnerConfig
from jaxagent.learner.weights import Flat, Layout
from jaxagent.models import rounding

Micro = dict[str, jax.Array]


def _jit(function: Callable[..., Any], **options):
  return accelerator.in_turns(jax.jit(function, **options))


class Programs:
  """jitted functions over one mesh; each compiles once a shape.

  Traced under a placement: rows over data and fsdp, weights gathered where they are
  used, heads, feed-forward and vocabulary over tensor.
  """

  def __init__(
    self,
    config: LearnerConfig,
    mesh: Mesh,
    policy: Layout,
    value: Layout | None,
    place: dict[str, Any],
  ):
    self.config, self.policy, self.value = config, policy, value
    placed = placement.Placement(mesh, config.grad_reduce_dtype)
    dtype = config.product_dtype
    operands = dtype if dtype == 'bfloat16' else ''

    def jit(method: Callable[..., Any], **options: Any) -> Callable[..., Any]:
      @functools.wraps(method)
      def traced(*args: Any) -> Any:
        with placement.use(placed), rounding.use(operands):
          return method(*args)

      return accelerator.in_turns(jax.jit(traced, **options))

    rows, one = sharding.rows_sharding(mesh), sharding.replicated(mesh)
    train, frozen = place['policy'], place['frozen']
    self.logprobs = jit(
      self._logprobs, in_shardings=(train, frozen, rows), out_shardings=one
    )
    self.policy_grads = jit(
      self._policy_grads,
      in_shardings=(train, train, frozen, rows, one),
      out_shardings=(train, one),
      donate_argnums=(0,),
    )
    self.sft_grads = jit(
      self._sft_grads,
      in_shardings=(train, train, frozen, rows),
      out_shardings=(train, one),
      donate_argnums=(0,),
    )
    if value is not None:
      vtrain, vfrozen = place['value'], place['value_frozen']
      self.values = jit(
        self._values, in_shardings=(vtrain, vfrozen, rows), out_shardings=one
      )
      self.value_grads = jit(
        self._value_grads,
        in_shardings=(vtrain, vtrain, vfrozen, rows),
        out_shardings=(vtrain, one),
        donate_argnums=(0,),
      )
      self.first_value_grads = jit(
        self._first_value_grads,
        in_shardings=(vtrain, vtrain, vfrozen, rows),
        out_shardings=(vtrain, one, one),
        donate_argnums=(0,),
      )

  def _token_logprobs(
    self,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
    entropy: bool = False,
  ):
    model = self.policy.merge(trained, frozen)
    hidden = model(*_placed(micro))
    targets = jnp.roll(micro['tokens'], -1, axis=1)
    logp, ent = models.token_logprobs(
      hidden,
      model.unembed,
      targets,
      temperature=self.config.temperature,
      chunk_rows=self.config.chunk_rows,
      with_entropy=entropy,
      frozen=bool(frozen),
    )
    if ent is not None:
      ent = jnp.roll(ent, 1, axis=1)
    return jnp.roll(logp, 1, axis=1), ent

  def _logprobs(self, trained: Flat, frozen: Flat, micro: Micro):
    return self._token_logprobs(trained, frozen, micro)[0]

  def _values(self, trained: Flat, frozen: Flat, micro: Micro):
    assert self.value is not None  # programs of a value model have one
    model = self.value.merge(trained, frozen)
    out = model(*_placed(micro))
    return jnp.roll(out.astype(jnp.float32), 1, axis=1)

  def _policy_loss(
    self,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
    kl_coef: jax.Array | float,
  ):
    c = self.config
    wants_entropy = c.entropy_coef != 0 or c.entropy_metric
    logp, entropy = self._token_logprobs(trained, frozen, micro, wants_entropy)
    scale = micro['scale']
    mask, share = _normalised(scale)
    loss, metrics = algorithms.policy_loss(
      logp,
      micro['old_logp'],
      micro['advantages'],
      mask,
      algorithms.Clips(c.clip_low, c.clip_high, c.dual_clip or None),
      algorithms.Aggregation('token-mean'),
      micro.get('importance'),
    )
    metrics = {k: v * share for k, v in metrics.items()}
    loss = loss * share
    metrics['actor/pg_loss'] = loss
    if 'ref_logp' in micro:
      kl = algorithms.kl_estimate(logp, micro['ref_logp'], c.kl_kind)
      kl_loss = jnp.sum(jnp.where(scale > 0, kl, 0.0) * scale)
      metrics['kl_loss'] = kl_loss
      if c.kl_in == 'loss':
        loss = loss + kl_coef * kl_loss
    if entropy is not None:
      ent = jnp.sum(entropy * scale)
      metrics['entropy'] = ent
      if c.entropy_coef:
        loss = loss - c.entropy_coef * ent
    metrics['share'] = share
    return loss, metrics

  def _policy_grads(
    self,
    total: Any,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
    kl_coef: jax.Array | float,
  ):
    grads, metrics = jax.grad(self._policy_loss, has_aux=True)(
      trained, frozen, micro, kl_coef
    )
    return _add(total, grads), metrics

  def _sft_loss(
    self,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
  ):
    logp, _ = self._token_logprobs(trained, frozen, micro)
    loss = -jnp.sum(jnp.where(micro['scale'] > 0, logp, 0.0) * micro['scale'])
    return loss, {'loss': loss}

  def _sft_grads(
    self,
    total: Any,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
  ):
    grads, metrics = jax.grad(self._sft_loss, has_aux=True)(
      trained, frozen, micro
    )
    return _add(total, grads), metrics

  def _value_loss(
    self,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
  ):
    values = self._values(trained, frozen, micro)
    old = micro.get('old_values', jax.lax.stop_gradient(values))
    mask, share = _normalised(micro['scale'])
    loss, metrics = algorithms.value_loss(
      values,
      old,
      micro['returns'],
      mask,
      clip=self.config.value_clip,
      aggregation=algorithms.Aggregation('token-mean'),
    )
    metrics = {k: v * share for k, v in metrics.items()}
    metrics['critic/vf_loss'] = loss * share
    # A variance is no sum over micro-batches; it is taken from the tables.
    metrics.pop('critic/vf_explained_var', None)
    metrics['share'] = share
    return loss * share, (metrics, values)

  def _value_grads(
    self,
    total: Any,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
  ):
    return self._first_value_grads(total, trained, frozen, micro)[:2]

  def _first_value_grads(
    self,
    total: Any,
    trained: dict[str, jax.Array],
    frozen: Any,
    micro: dict[str, jax.Array],
  ):
    """(gradients, metrics, values [B, T]); `old_values` may be left out.

    The values that it takes the gradient of are then the old ones.
    """
    grads, (metrics, values) = jax.grad(self._value_loss, has_aux=True)(
      trained, frozen, micro
    )
    return _add(total, grads), metrics, values


class Optimizer:
  """AdamW with clipping by global norm; a non-finite gradient changes nothing.

  program: the jitted step, to be compiled without being run.
  """

  def __init__(
    self, config: LearnerConfig, schedule: Any, train_sharding: Any, like: Any
  ):
    self.config, self.schedule = config, schedule
    self.tx = optax.adamw(
      schedule,
      b1=config.adam_b1,
      b2=config.adam_b2,
      weight_decay=config.weight_decay,
    )
    mesh = jax.tree.leaves(train_sharding)[0].mesh
    one = sharding.replicated(mesh)
    shapes = jax.eval_shape(self.tx.init, like)
    self.sharding = sharding.parameter_shardings(shapes, mesh)
    self._init = _jit(self.tx.init, out_shardings=self.sharding)
    self._zeros = _jit(
      lambda p: jax.tree.map(jnp.zeros_like, p), out_shardings=train_sharding
    )
    # With the weights donated no output is left for the gradients.
    donate = (0, 1) if config.donate else (1, 2)
    self.program = _jit(
      self._step,
      in_shardings=(train_sharding, self.sharding, train_sharding, one),
      out_shardings=(train_sharding, self.sharding, one),
      donate_argnums=donate,
    )

  def init(self, trained: Flat):
    """Fresh moments, placed."""
    return self._init(trained)

  def restarted(self, state: Any):
    """The state with the schedule at its beginning; the moments stay."""
    return tuple(
      part._replace(count=part.count * 0) if _is_schedule(part) else part
      for part in state
    )

  def zeros(self, trained: Flat) -> Flat:
    """An empty accumulator of gradients."""
    return self._zeros(trained)

  def apply(self, trained: Flat, state: Any, grads: Flat, factor: float = 1.0):
    """(trained, state, {grad_norm, finite, lr}); grads are summed already.

    factor: of the learning rate, which `lr` includes.
    """
    return self.program(trained, state, grads, np.float32(factor))

  def _step(
    self, trained: dict[str, jax.Array], state: Any, grads: Any, factor: Any
  ):
    norm = optax.global_norm(grads)
    finite = jnp.isfinite(norm)
    cut = jnp.minimum(1.0, self.config.max_grad_norm / (norm + 1e-6))
    # A where, not a product: 0 * nan is nan.
    clipped = jax.tree.map(
      lambda g: jnp.where(finite, g, 0.0) * jnp.where(finite, cut, 0.0),
      grads,
    )
    lr = self.schedule(_count(state)) * factor
    updates, new_state = self.tx.update(clipped, state, trained)
    updates = jax.tree.map(lambda u: u * factor.astype(u.dtype), updates)
    new = optax.apply_updates(trained, updates)

    def keep(new: Any, old: Any):
      return jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, old)

    info = {'grad_norm': norm, 'finite': finite, 'lr': jnp.asarray(lr)}
    return keep(new, trained), keep(new_state, state), info


def _count(state: Any) -> jax.Array:
  """Returns the step count of the learning-rate schedule."""
  return next(part.count for part in state if _is_schedule(part))


def _is_schedule(part: Any) -> bool:
  return isinstance(part, optax.ScaleByScheduleState)


def _placed(micro: Micro) -> tuple[jax.Array | None, ...]:
  """Arguments of a model: tokens, where they lie, and who sees whom."""
  names = ('tokens', 'positions', 'segment_ids')
  return *(micro[name] for name in names), micro.get('branches')


def _normalised(scale: jax.Array) -> tuple[jax.Array, jax.Array]:
  """scale [B, T] -> a mask with the number of its tokens as sum, and share.

  The mean over that mask times `share` is sum(x * scale): a minibatch's
  aggregate is the sum of its micro-batches'.
  """
  share = jnp.sum(scale)
  count = jnp.sum(scale > 0)
  mask = scale * (count / jnp.where(share > 0, share, 1.0))
  # An all-padding micro-batch adds exactly nothing.
  first = jnp.zeros_like(mask).at[0, 0].set(1.0)
  return jnp.where(count > 0, mask, first), share


def _add(total: Any, grads: Any):
  return jax.tree.map(jnp.add, total, grads)


def warmup(lr: float, steps: int) -> optax.Schedule:
  """Linear from lr/steps up, then constant."""
  if steps <= 0:
    return optax.constant_schedule(lr)
  return lambda count: lr * jnp.minimum(1.0, (count + 1) / steps)


def sft_schedule(config: LearnerConfig) -> optax.Schedule:
  """Returns the learning-rate schedule of fine-tuning."""
  return _schedule(
    config.sft_schedule,
    config.sft_lr,
    config.sft_warmup_steps,
    config.sft_steps,
  )


def rl_schedule(config: LearnerConfig, lr: float) -> optax.Schedule:
  """Returns the learning-rate schedule of one role's optimizer in RL."""
  return _schedule(config.schedule, lr, config.warmup_steps, config.steps)


def _schedule(kind: str, lr: float, rise: int, steps: int) -> optax.Schedule:
  """Warm-up over `rise`, then a cosine to a tenth over `steps`, or constant."""
  rising = warmup(lr, rise)
  if kind == 'constant':
    return rising
  length = max(steps - rise, 1)

  def schedule(count: Any):
    done = jnp.clip((count - rise) / length, 0.0, 1.0)
    return rising(count) * (0.1 + 0.45 * (1.0 + jnp.cos(jnp.pi * done)))

  return schedule
