"""Flax NNX decoder of the Qwen2 and Qwen3 families.

Weights are stored as [in, out] kernels. Every matmul is done on a flattened
[B*T, d] matrix: on the CPU the gradient of the 3-D form is twice as slow.
Nothing here knows of a mesh: the axes of weights (`_AXES`) and activations have
logical names, which `jaxagent.devices.placement` maps to a mesh.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxagent.devices import placement
from jaxagent.models import attention, products
from jaxagent.models.config import ModelConfig

# (key, value) of every layer: a tuple of [B, K, S, h] pairs where the layers
# are unrolled, one pair of [L, B, K, S, h] where they are scanned.
Cache = Any


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _normal(
  key: jax.Array, shape: tuple[int, ...], std: float, dtype: Any
) -> jax.Array:
  # Rounded after it is drawn: of bfloat16 jax makes 128 values, off centre
  # (findings/jax_random_in_bfloat16.sh).
  return (jax.random.normal(key, shape) * jnp.float32(std)).astype(dtype)


class LoraParam(nnx.Param):
  """A trained low-rank factor, float32, beside a frozen kernel."""


class Linear(nnx.Module):
  """x [N, in] -> [N, out], with bias and low-rank adapter where asked."""

  def __init__(
    self,
    d_in: int,
    d_out: int,
    *,
    axes: tuple[str, str],
    bias: bool,
    lora: bool,
    config: ModelConfig,
    rngs: nnx.Rngs,
  ):
    dtype = jnp.dtype(config.param_dtype)
    self.axes = axes
    self.dtype = jnp.dtype(config.dtype)
    self.kernel = nnx.Param(
      _normal(rngs.params(), (d_in, d_out), config.initializer_range, dtype)
    )
    self.bias = nnx.Param(jnp.zeros((d_out,), dtype)) if bias else None
    # Beside adapters no kernel is trained, whether it has one or not.
    self.frozen = config.lora_rank > 0
    self.scale = 0.0
    if lora:
      rank = config.lora_rank
      self.scale = config.lora_alpha / rank
      draw = nnx.initializers.he_uniform()
      self.lora_a = LoraParam(draw(rngs.params(), (d_in, rank), jnp.float32))
      # Zero, so that a fresh adapter changes nothing.
      self.lora_b = LoraParam(jnp.zeros((rank, d_out), jnp.float32))

  def __call__(self, x: jax.Array) -> jax.Array:
    return together(x, self)[0]

  def adapted(self, x: jax.Array, y: jax.Array) -> jax.Array:
    """y [N, out], the product of x, and what the adapter adds."""
    if not self.scale:
      return y
    first, last = self.axes
    (low,) = products.products(x, [self.lora_a[...]], [None], [(first, 'rank')])
    (add,) = products.products(
      low, [self.lora_b[...]], [None], [('rank', last)]
    )
    return y + self.scale * add


def together(x: jax.Array, *linears: Linear) -> list[jax.Array]:
  """Each of `linears` of one x [N, in]; on a mesh their gradients to x are one sum."""
  groups = [linears] if placement.here() else [(one,) for one in linears]
  out = []
  for group in groups:
    made = products.products(
      x.astype(group[0].dtype),
      [one.kernel[...] for one in group],
      [one.bias if one.bias is None else one.bias[...] for one in group],
      [one.axes for one in group],
      group[0].frozen,
    )
    out += [one.adapted(x, y) for one, y in zip(group, made)]
  return out


class RMSNorm(nnx.Module):
  """Root mean square norm over the last axis, in float32."""

  def __init__(self, size: int, config: ModelConfig):
    self.eps = config.rms_norm_eps
    self.scale = nnx.Param(jnp.ones((size,), jnp.dtype(config.param_dtype)))

  def __call__(self, x: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + self.eps)
    return (y * self.scale[...].astype(jnp.float32)).astype(x.dtype)


def rope(positions: jax.Array, config: ModelConfig) -> tuple[jax.Array, ...]:
  """positions [...] -> cos, signed sin [..., 1, h], float32."""
  half = config.head_dim // 2
  power = jnp.arange(half, dtype=jnp.float32) / half
  angle = positions[..., None].astype(jnp.float32) * config.rope_theta**-power
  cos, sin = jnp.cos(angle), jnp.sin(angle)
  both = jnp.concatenate([cos, cos], -1), jnp.concatenate([-sin, sin], -1)
  return tuple(a[..., None, :] for a in both)


def _rotate(x: jax.Array, angles: tuple[jax.Array, ...]) -> jax.Array:
  """x [..., heads, h]; HF's order: the halves are the pairs."""
  cos, sin = angles
  y = x.astype(jnp.float32)
  # A roll: to split and to join is slower on the CPU.
  return (y * cos + jnp.roll(y, y.shape[-1] // 2, -1) * sin).astype(x.dtype)


def _chunks(rows: int, most: int = 2048) -> int:
  """Equal parts of at most `most` rows; 1 where there are no such parts."""
  least = -(-rows // most)
  return next((n for n in range(least, 2 * least) if rows % n == 0), 1)


class Layer(nnx.Module):
  """Pre-norm attention and gated feed-forward."""

  def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
    c = self.config = config
    q, kv = (
      c.num_attention_heads * c.head_dim,
      c.num_key_value_heads * c.head_dim,
    )
    d, f, bias = c.hidden_size, c.intermediate_size, c.attention_bias

    def linear(name: str, d_in: int, d_out: int, bias: bool = False):
      lora = c.lora_rank > 0 and name in c.lora_targets
      return Linear(
        d_in, d_out, axes=_AXES[name], bias=bias, lora=lora, config=c, rngs=rngs
      )

    self.input_norm = RMSNorm(d, c)
    self.q = linear('q', d, q, bias)
    self.k = linear('k', d, kv, bias)
    self.v = linear('v', d, kv, bias)
    self.o = linear('o', q, d, c.output_bias)
    self.q_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
    self.k_norm = RMSNorm(c.head_dim, c) if c.qk_norm else None
    self.post_norm = RMSNorm(d, c)
    self.gate = linear('gate', d, f)
    self.up = linear('up', d, f)
    self.down = linear('down', f, d)

  def qkv(self, x: jax.Array, angles: tuple[jax.Array, ...]):
    """x [N, D], angles [N, 1, h] -> q [N, H, h], k and v [N, K, h]."""
    h, heads = self.config.head_dim, ('heads', 'kv_heads', 'kv_heads')
    out = together(self.input_norm(x), self.q, self.k, self.v)
    # By whole heads, where the columns of a few heads are split further.
    q, k, v = (
      placement.constrain(a.reshape(x.shape[0], -1, h), 'rows', name, None)
      for a, name in zip(out, heads)
    )
    if self.q_norm is not None:
      assert self.k_norm is not None  # both or neither
      q, k = self.q_norm(q), self.k_norm(k)
    return _rotate(q, angles), _rotate(k, angles), v

  def finish(self, x: jax.Array, attended: jax.Array) -> jax.Array:
    """Residual x [N, D] and attended [N, H, h] -> [N, D]."""
    x = x + self.o(attended.reshape(x.shape[0], -1))
    chunks = 1
    c = self.config
    if (
      attention.choose(c.attention, c.dtype, c.head_dim) in attention.OF_CPUS
      and not placement.here()
    ):
      chunks = _chunks(x.shape[0])
    if chunks == 1:
      return x + self._mlp(x)
    # In cache, and recomputed there: faster than reading [N, F] from memory.
    parts = x.reshape(chunks, -1, x.shape[1])
    return x + jax.lax.map(jax.checkpoint(self._mlp), parts).reshape(x.shape)

  def _mlp(self, x: jax.Array) -> jax.Array:
    y = self.post_norm(x)
    gate, up = together(y, self.gate, self.up)
    return self.down(jax.nn.silu(gate) * up)

  def __call__(
    self,
    x: jax.Array,
    angles: tuple[jax.Array, ...],
    segment_ids: jax.Array,
    branches: jax.Array | None = None,
  ):
    """x [B*T, D] -> x [B*T, D], (k, v) each [B, T, K, h]."""
    b, t = segment_ids.shape
    x = placement.constrain(x, 'rows', None)
    q, k, v = (a.reshape(b, t, *a.shape[1:]) for a in self.qkv(x, angles))
    kernel = self.config.attention
    out = attention.attend(q, k, v, segment_ids, kernel, branches)
    x = self.finish(x, out.reshape(b * t, *out.shape[2:]))
    return placement.constrain(x, 'rows', None), (k, v)


class Decoder(nnx.Module):
  """Token ids to hidden states; `unembed` [V, D] turns those to logits."""

  def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
    c = self.config = config
    attention.choose(c.attention, c.dtype, c.head_dim)
    dtype = jnp.dtype(c.param_dtype)
    shape = (c.vocab_size, c.hidden_size)
    self.embed = nnx.Param(
      _normal(rngs.params(), shape, c.initializer_range, dtype)
    )
    layers = [Layer(c, rngs=rngs) for _ in range(c.num_hidden_layers)]
    # One module whose weights have a leading axis, or a list of modules.
    self.layers: Any = _stack(layers) if c.scan_layers else nnx.List(layers)
    self.norm = RMSNorm(c.hidden_size, c)
    if not c.tie_word_embeddings:
      self.lm_head = nnx.Param(
        _normal(rngs.params(), shape, c.initializer_range, dtype)
      )

  @property
  def unembed(self) -> jax.Array:
    """[V, D]: the embedding table where tied, else its own."""
    return (self.embed if self.config.tie_word_embeddings else self.lm_head)[
      ...
    ]

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    branches: jax.Array | None = None,
  ) -> jax.Array:
    """int32 [B, T] each -> hidden [B, T, D], after the last norm.

    A token sees the tokens before it in its row that carry its segment id;
    segment 0 is padding. `positions` restart at 0 in each segment.
    branches: of samples that share a prompt (`attention.attend`); `positions` of each
    then go on from the prompt's.
    """
    return self._forward(tokens, positions, segment_ids, None, branches)[0]

  def prefill(
    self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
  ) -> tuple[jax.Array, Cache]:
    """Runs `__call__`, keeping all layers' keys and values [B, K, T, h]."""

    def head_major(pair: Any):
      return tuple(a.transpose(0, 2, 1, 3) for a in pair)

    return self._forward(tokens, positions, segment_ids, head_major)

  def trace(
    self, tokens: jax.Array, positions: jax.Array, segment_ids: jax.Array
  ) -> list[jax.Array]:
    """Residual stream [B, T, D] before each layer and after the last norm."""
    x, angles = self._start(tokens, positions)
    out = [x]
    for layer in self._layer_list():
      x, _ = layer(x, angles, segment_ids)
      out.append(x)
    out[-1] = self.norm(x)
    return [a.reshape(*tokens.shape, -1) for a in out]

  def beside_cache(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    cache: Any,
    attend: Callable[..., tuple[jax.Array, Any]],
  ) -> tuple[jax.Array, Any]:
    """New tokens that see cached ones: tokens, positions [N] -> hidden [N, D].

    cache: what there is of each layer, a tuple, or one stacked tree if the
      layers are scanned.
    attend(q [N, H, h], k and v [N, K, h], what there is of the layer) ->
      attended [N, H, h], what is kept of the layer.

    Returns also what is kept of all layers, as `cache` holds them.
    """
    x, angles = self._start(tokens, positions)

    def step(layer: Any, x: jax.Array, cached: Any):
      out, kept = attend(*layer.qkv(x, angles), cached)
      return layer.finish(x, out), kept

    x, kept = self._through(step, x, cache)
    return self.norm(x), kept

  def _through(self, step: Callable[..., Any], x: jax.Array, cache: Any):
    """step(layer, x, cached) -> (x, kept) layer by layer -> x, all that is kept."""
    if self.config.scan_layers:
      graph, state = nnx.split(self.layers)
      return jax.lax.scan(
        lambda x, args: step(nnx.merge(graph, args[0]), x, args[1]),
        x,
        (state, cache),
      )
    kept = []
    for layer, cached in zip(self.layers, cache):
      x, one = step(layer, x, cached)
      kept.append(one)
    return x, tuple(kept)

  def _start(self, tokens: jax.Array, positions: jax.Array):
    tokens, positions = jnp.asarray(tokens), jnp.asarray(positions)
    tokens = placement.constrain(tokens.reshape(-1), 'rows')
    positions = placement.constrain(positions.reshape(-1), 'rows')
    x = products.lookup(
      self.embed[...],
      tokens,
      self.config.dtype,
      frozen=self.config.lora_rank > 0,
    )
    return x, rope(positions, self.config)

  def _layer_list(self) -> Sequence[Layer]:
    if not self.config.scan_layers:
      return list(self.layers)
    graph, state = nnx.split(self.layers)
    return [
      nnx.merge(graph, jax.tree.map(lambda a, i=i: a[i], state))
      for i in range(self.config.num_hidden_layers)
    ]

  def _forward(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    collect: Any,
    branches: jax.Array | None = None,
  ):
    x, angles = self._start(tokens, positions)

    def apply(graph: Any, state: Any, x: jax.Array):
      x, pair = nnx.merge(graph, state)(x, angles, segment_ids, branches)
      return x, (collect(pair) if collect else None)

    apply = _remat(apply, self.config.remat, self.config.scan_layers)
    if self.config.scan_layers:
      graph, state = nnx.split(self.layers)
      x, cache = jax.lax.scan(lambda x, s: apply(graph, s, x), x, state)
    else:
      cache = []
      for layer in self.layers:
        x, pair = apply(*nnx.split(layer), x)
        cache.append(pair)
      cache = tuple(cache)
    x = self.norm(x).reshape(*tokens.shape, -1)
    return x, (cache if collect else None)


# What a placement and a kernel of attention do, by the names of JAX's primitives.
_GATHERING = ('sharding_constraint', 'all_gather')
_ATTENDING = ('dot_product_attention_fwd', 'dot_product_attention_fwd_wrapper')


def _keeps_attention(primitive: Any, *_, **settings) -> bool:
  """Saves what attention gave and what its backward pass needs of that."""
  named = primitive.name == 'name' and settings['name'] == attention.NAME
  return named or primitive.name in _ATTENDING


def _keeps_all_but_weights(primitive: Any, *_, **__) -> bool:
  """Saves everything but weights gathered from other devices."""
  return primitive.name not in _GATHERING


def _remat(apply: Callable[..., Any], policy: str, scanned: bool):
  """Wraps `apply(graph, state, x)` by the named rematerialisation policy.

  Where weights are gathered, 'none' gathers them again for the backward pass: kept,
  they would be a whole model on each device.
  """
  policies = {
    'full': None,
    'dots': jax.checkpoint_policies.checkpoint_dots,
    'dots_no_batch': (
      jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims
    ),
    'attention': _keeps_attention,
    'none': _keeps_all_but_weights,
  }
  place = placement.here()
  if policy == 'none' and not (place and place.gathers):
    return apply
  # In a scan nothing can be merged with the forward pass, and the barriers that
  # prevent it would keep XLA from overlapping and fusing.
  return jax.checkpoint(
    apply,
    policy=policies[policy],
    static_argnums=(0,),
    prevent_cse=not scanned,
  )


def _stack(layers: Sequence[Layer]) -> Layer:
  """One module whose weights carry a leading layer axis."""
  graph, first = nnx.split(layers[0])
  states = [first, *(nnx.state(layer) for layer in layers[1:])]
  return nnx.merge(graph, jax.tree.map(lambda *a: jnp.stack(a), *states))


def split_model(model: nnx.Module) -> tuple[nnx.GraphDef, nnx.State]:
  """(graphdef, params): `nnx.merge(graphdef, params)` gives the model back."""
  return nnx.split(model, nnx.Param)


def init_decoder(
  config: ModelConfig, seed: int
) -> tuple[nnx.GraphDef, nnx.State]:
  """A randomly initialised decoder, split.

  Array by array where there is an accelerator: one program that draws them all
  takes minutes to compile there (24 layers on an H200: 183 s). On a CPU it is
  what compiles fastest.
  """

  def make():
    return split_model(Decoder(config, rngs=nnx.Rngs(params=seed)))

  if jax.default_backend() != 'cpu':
    return make()
  return abstract_decoder(config)[0], jax.jit(lambda: make()[1])()


def abstract_decoder(
  config: ModelConfig,
) -> tuple[nnx.GraphDef, nnx.State]:
  """(graphdef, params) with shapes and dtypes only: nothing is allocated."""
  return split_model(
    nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(params=0)))
  )


# Logical names of each kernel's axes, [in, out].
_AXES = {
  'q': ('embed', 'heads'),
  'k': ('embed', 'kv_heads'),
  'v': ('embed', 'kv_heads'),
  'o': ('heads', 'embed'),
  'gate': ('embed', 'mlp'),
  'up': ('embed', 'mlp'),
  'down': ('mlp', 'embed'),
}
