"""The embedded engine: prefill and the whole decode in one compiled loop.

Prompts are right-padded to a bucket of P columns; token n of every row is
written at column P + n of the cache, so that one contiguous slice is written
a step and nothing is scattered. Rotary positions stay each row's own.
Weights are held by reference: an update copies nothing. A trainer that
donates its weights must hand over the new ones before the next call.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxagent import types
from jaxagent.models.config import ModelConfig
from jaxagent.models.logprobs import logits_of
from jaxagent.rollout import sampling
from jaxagent.rollout.engine import (
  EngineError,
  RequestError,
  check_request,
  stop_length,
)

_log = logging.getLogger(__name__)
_MAX_STOPS = 8


class NativeEngine:
  """Samples from a Flax decoder on the devices that hold its weights."""

  def __init__(
    self,
    graphdef: nnx.GraphDef,
    params: nnx.State,
    config: ModelConfig,
    *,
    pad_id: int = 0,
    eos_ids: Sequence[int] = (),
    prompt_buckets: Sequence[int] = (64, 128, 256),
    batch_buckets: Sequence[int] = (1, 4, 16, 48),
    new_buckets: Sequence[int] = (192,),
    decode: Callable[[Sequence[int]], str] | None = None,
    seed: int = 0,
    version: int = 0,
  ):
    """`eos_ids` end a completion beside each request's own stop ids.

    `decode` turns a response's ids into text, for requests with stop texts.

    The buckets are the static shapes: prompt tokens, rows and new tokens of
    one compiled loop. A larger batch is cut into several. `seed` is folded
    into every request's own seed.
    """
    self._graphdef, self._params, self._config = graphdef, params, config
    self._pad_id, self._eos = pad_id, tuple(eos_ids)
    self._prompt = _buckets('prompt_buckets', prompt_buckets)
    self._batch = _buckets('batch_buckets', batch_buckets)
    self._new = _buckets('new_buckets', new_buckets)
    self._seed, self._version, self._decode = seed, version, decode
    self._closed = False
    self._shapes: set[tuple[Any, ...]] = set()
    longest = self._prompt[-1] + self._new[-1]
    if longest > config.max_position_embeddings:
      raise ValueError(
        f'prompt bucket {self._prompt[-1]} and {self._new[-1]} new tokens need '
        f'{longest} positions; the model has max_position_embeddings='
        f'{config.max_position_embeddings}. Lower the buckets.'
      )
    for token in (pad_id, *self._eos):
      if not 0 <= token < config.vocab_size:
        raise ValueError(
          f'token id {token} (pad or eos) is outside the vocabulary '
          f"[0, {config.vocab_size}); is the tokenizer the model's own?"
        )
    self._loop = jax.jit(_generate, static_argnums=(0, 1, 2, 3))

  @property
  def version(self) -> int:
    return self._version

  @property
  def compiles(self) -> int:
    """Programs compiled so far; constant once every bucket has been seen."""
    return len(self._shapes)

  def update_weights(self, params: nnx.State, version: int) -> None:
    """By reference. Raises ValueError, unchanged, on other names or shapes."""
    old = jax.tree_util.tree_flatten_with_path(self._params)[0]
    new = dict(jax.tree_util.tree_flatten_with_path(params)[0])
    wrong = [
      f'{jax.tree_util.keystr(k)}: {getattr(new.get(k), "shape", "missing")} '
      f'{getattr(new.get(k), "dtype", "")}, not {v.shape} {v.dtype}'
      for k, v in old
      if k not in new or (new[k].shape, new[k].dtype) != (v.shape, v.dtype)
    ]
    extra = set(new) - {k for k, _ in old}
    wrong += [f'{jax.tree_util.keystr(k)}: unknown' for k in extra]
    if wrong:
      raise ValueError(
        f'weights of version {version} do not fit the engine: '
        + '; '.join(wrong)
      )
    self._params, self._version = params, version

  def generate(
    self, requests: Sequence[types.Request], *, for_training: bool = True
  ) -> list[types.Completion]:
    """See `engine.Engine.generate`."""
    if self._closed:
      raise EngineError('the engine is closed; make a new one.')
    for request in requests:
      self._check(request, for_training)
    out: list[types.Completion] = []
    for start in range(0, len(requests), self._batch[-1]):
      out += self._run(requests[start : start + self._batch[-1]])
    return out

  def close(self) -> None:
    self._closed, self._params = True, None

  def _check(self, request: types.Request, for_training: bool) -> None:
    check_request(
      request,
      vocab_size=self._config.vocab_size,
      max_prompt_tokens=self._prompt[-1],
      max_new_tokens=self._new[-1],
      for_training=for_training,
    )
    if request.sampling.stop and self._decode is None:
      raise RequestError(
        f'request {request.request_id!r}: stop={request.sampling.stop!r} are '
        'matched on text; make the engine with decode=TOKENIZER.decode_response.'
      )
    stops = set(request.sampling.stop_token_ids) | set(self._eos)
    if len(stops) > _MAX_STOPS:
      raise RequestError(
        f'request {request.request_id!r}: {len(stops)} stop ids with eos; at '
        f'most {_MAX_STOPS}.'
      )

  def _run(self, requests: Sequence[types.Request]) -> list[types.Completion]:
    """One batch through one compiled loop."""
    rows = _fit(len(requests), self._batch)
    width = _fit(max(len(r.prompt_ids) for r in requests), self._prompt)
    longest = max(r.sampling.max_new_tokens for r in requests)
    new = _fit(longest, self._new)
    unique, source = self._unique(requests, rows, width)
    cut = any(r.sampling.top_p < 1 or r.sampling.top_k > 0 for r in requests)
    arrays = pack_settings(requests, rows, self._eos, self._seed)
    static = (self._graphdef, self._config, new, cut)
    self._note((rows, width, new, cut, unique[0].shape[0]))
    done = self._loop(*static, self._params, *unique, source, arrays)
    tokens, logprobs, lengths, stopped = jax.device_get(done)
    return [
      self._completion(r, tokens[i, : lengths[i]], logprobs[i], stopped[i])
      for i, r in enumerate(requests)
    ]

  def _completion(self, request, tokens, logprobs, stopped):
    """What was sampled [N], cut where it completes a stop text."""
    length = stop_length(tokens, request.sampling.stop, self._decode)
    if length is None:
      length = len(tokens)
    else:
      stopped = True
    return types.Completion(
      request_id=request.request_id,
      prompt_ids=np.asarray(request.prompt_ids, np.int32),
      token_ids=tokens[:length],
      logprobs=logprobs[:length],
      version_spans=((self._version, 0, length),),
      finish_reason='stop' if stopped else 'length',
    )

  def _unique(self, requests, rows, width):
    """Prompts that the batch shares are prefilled once.

    Returns ((tokens [U, P], lengths [U]), source [rows]). Sharing pays, and
    costs a shape of its own, only where it at least halves the prefill.
    """
    index: dict[bytes, int] = {}
    source = np.zeros(rows, np.int32)
    for i, r in enumerate(requests):
      key = np.asarray(r.prompt_ids, np.int32).tobytes()
      source[i] = index.setdefault(key, len(index))
    size = _fit(len(index), self._batch)
    if 2 * size > rows:
      size, source = rows, np.arange(rows, dtype=np.int32)
      prompts = [r.prompt_ids for r in requests]
    else:
      prompts = [np.frombuffer(key, np.int32) for key in index]
    tokens = np.full((size, width), self._pad_id, np.int32)
    lengths = np.ones(size, np.int32)
    for i, ids in enumerate(prompts):
      tokens[i, : len(ids)], lengths[i] = ids, len(ids)
    return (tokens, lengths), source

  def _note(self, shape: tuple[Any, ...]) -> None:
    if shape not in self._shapes:
      self._shapes.add(shape)
      _log.info(
        'native engine: program %d: rows %d, prompt %d, new %d, truncated %s, '
        'prompts %d',
        len(self._shapes),
        *shape,
      )


def _buckets(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
  if not sizes or min(sizes) < 1:
    raise ValueError(f'{name}={tuple(sizes)} must be positive sizes.')
  return tuple(sorted(set(int(s) for s in sizes)))


def _fit(size: int, buckets: tuple[int, ...]) -> int:
  """The smallest bucket that holds `size`."""
  return next(b for b in buckets if b >= size)


def pack_settings(
  requests: Sequence[types.Request],
  rows: int,
  eos: tuple[int, ...],
  seed: int,
) -> dict[str, np.ndarray]:
  """Sampling settings as arrays over `rows`; the spare rows ask for nothing."""
  out = {
    'limit': np.zeros(rows, np.int32),
    'temperature': np.ones(rows, np.float32),
    'seed': np.zeros(rows, np.uint32),
    'top_k': np.zeros(rows, np.int32),
    'top_p': np.ones(rows, np.float32),
    'stops': np.full((rows, _MAX_STOPS), -1, np.int32),
  }
  for i, r in enumerate(requests):
    s = r.sampling
    out['limit'][i] = s.max_new_tokens
    out['temperature'][i] = s.temperature
    out['seed'][i] = mix_seed(seed, r.seed)
    out['top_k'][i], out['top_p'][i] = s.top_k, s.top_p
    stops = sorted(set(s.stop_token_ids) | set(eos))
    out['stops'][i, : len(stops)] = stops
  return out


def mix_seed(engine: int, request: int) -> int:
  """Two seeds of any size -> 32 bits, well spread."""
  words = [engine & (2**64 - 1), request & (2**64 - 1)]
  return int(np.random.SeedSequence(words).generate_state(1)[0])


def _generate(graphdef, config, new, cut, params, tokens, lengths, source, s):
  """tokens [U, P], lengths [U], source [B] -> tokens, log-probs [B, new], ..."""
  model = nnx.merge(graphdef, params)
  hidden, cache = _prefill(model, config, tokens, lengths, source, new)
  draw = functools.partial(_draw, model, s, cut)
  width, rows = tokens.shape[1], source.shape[0]
  lengths = lengths[source]
  column = jnp.arange(width + new)
  is_prompt = column[None] < lengths[:, None]
  active = s['limit'] > 0
  first, logp = draw(hidden, lengths)
  out = {
    'tokens': jnp.zeros((rows, new), jnp.int32).at[:, 0].set(first),
    'logprobs': jnp.zeros((rows, new), jnp.float32).at[:, 0].set(logp),
    'lengths': active.astype(jnp.int32),
    'stopped': active & _is_stop(first, s),
    'cache': cache,
    'last': first,
    'n': jnp.int32(1),
  }

  def going(o):
    return active & ~o['stopped'] & (o['lengths'] < s['limit'])

  def step(o):
    """Feeds token n-1 at column width+n-1, draws token n."""
    n, live = o['n'], going(o)
    at = width + n - 1

    def write(cache, new_kv):
      return jax.lax.dynamic_update_slice(
        cache, new_kv[:, :, None].astype(cache.dtype), (0, 0, at, 0)
      )

    seen = is_prompt | ((column >= width) & (column <= at))[None]
    hidden, cache = model.decode_step(
      o['last'], lengths + n - 1, o['cache'], write, seen
    )
    token, logp = draw(hidden, lengths + n)
    token = jnp.where(live, token, 0)
    logp = jnp.where(live, logp, 0.0)

    def put(a, b):
      return jax.lax.dynamic_update_slice(a, b[:, None], (0, n))

    return {
      'tokens': put(o['tokens'], token),
      'logprobs': put(o['logprobs'], logp),
      'lengths': o['lengths'] + live,
      'stopped': o['stopped'] | (live & _is_stop(token, s)),
      'cache': cache,
      'last': token,
      'n': n + 1,
    }

  out = jax.lax.while_loop(lambda o: (o['n'] < new) & going(o).any(), step, out)
  return out['tokens'], out['logprobs'], out['lengths'], out['stopped']


def _prefill(model, config, tokens, lengths, source, new):
  """Last hidden state [B, D] of each prompt and a cache with room for `new`."""
  u, width = tokens.shape
  index = jnp.broadcast_to(jnp.arange(width), (u, width))
  segments = (index < lengths[:, None]).astype(jnp.int32)
  hidden, cache = model.prefill(tokens, index, segments)
  hidden = hidden[jnp.arange(u), lengths - 1][source]
  axis = 1 if config.scan_layers else 0

  def grow(a):
    if source.shape[0] != u:
      a = jnp.take(a, source, axis=axis)
    pad = [(0, 0)] * a.ndim
    pad[-2] = (0, new)
    return jnp.pad(a, pad)

  return hidden, jax.tree.map(grow, cache)


def _draw(model, s, cut, hidden, positions):
  """hidden [B, D], position of the token to draw [B] -> token, log-prob."""
  table = model.unembed.astype(hidden.dtype)
  logits = logits_of(hidden, table, jnp.float32(1))
  top = (s['top_k'], s['top_p']) if cut else ()
  return sampling.draw(logits, s['temperature'], s['seed'], positions, *top)


def _is_stop(token, s):
  return (token[:, None] == s['stops']).any(-1)
