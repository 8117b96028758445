"""The embedded engine: continuous batching over the slots of one cache.

A thread of its own decodes some tokens at a time for every request that has a
slot; between two such rounds finished requests leave, waiting ones take their
slots, and new weights come in. A prompt that begins as the text of another slot
does (samples of one prompt, the next turn of an interaction) takes its keys and
values from there. A request's tokens depend on its own seed and prompt, not on
what is beside it.

Weights are held by reference: an update copies nothing. A trainer that donates
its weights must hold the engine between rounds meanwhile (`paused`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxagent import types
from jaxagent.devices import accelerator
from jaxagent.models.config import ModelConfig
from jaxagent.rollout import grouping
from jaxagent.rollout.calls import Calls, broke_down
from jaxagent.rollout.engine import (
  Ends,
  EngineError,
  RequestError,
  RequestLimits,
  check_request,
  mix_seed,
  stop_length,
)
from jaxagent.rollout.engines import native_programs as programs
from jaxagent.rollout.engines import prompt_rows
from jaxagent.rollout.engines.slots import Plan, Slots

_log = logging.getLogger(__name__)
_MAX_STOPS = 8
_STEPS = 16  # tokens a round at most
# On an accelerator: a round's host time counts, and fewer rows are slower.
_STEPS_BESIDE, _ROWS_BESIDE = 32, 8


@dataclasses.dataclass
class _Job:
  """A request on its way; `tokens` and `logprobs` hold what is drawn."""

  request: types.Request
  put: Callable[[types.Completion | Exception], None]
  tokens: np.ndarray
  logprobs: np.ndarray
  count: int = 0
  slot: int = -1
  spans: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)

  def add(self, tokens: Any, logprobs: Any, version: int) -> None:
    start, self.count = self.count, self.count + len(tokens)
    self.tokens[start : self.count] = tokens
    self.logprobs[start : self.count] = logprobs
    if self.spans and self.spans[-1][0] == version:
      start = self.spans.pop()[1]
    self.spans.append((version, start, self.count))

  def completion(self, reason: str, version: int) -> types.Completion:
    n = self.count
    spans = tuple((v, a, min(b, n)) for v, a, b in self.spans if a < n)
    return types.Completion(
      request_id=self.request.request_id,
      prompt_ids=np.asarray(self.request.prompt_ids, np.int32),
      token_ids=self.tokens[:n].copy(),
      logprobs=self.logprobs[:n].copy(),
      version_spans=spans or ((version, 0, 0),),
      finish_reason=reason,
    )


@dataclasses.dataclass(frozen=True)
class Shapes:
  """Static shapes of an engine's programs.

  prompt_buckets, batch_buckets: prompt tokens and rows of one program; the
    largest batch is the number of slots, and the cache has as many rows of the
    longest prompt and response.
  max_new_tokens: of a response.
  pad_id: token id that fills up a shape.
  batch_invariant: log-probs depend on what is beside a request in their last
    digits, because programs of different shapes round differently. This keeps
    to one shape and shares nothing: equal to the last bit, and slower.
  """

  prompt_buckets: Sequence[int] = (64, 128, 256)
  batch_buckets: Sequence[int] = (1, 4, 16, 48)
  max_new_tokens: int = 192
  pad_id: int = 0
  batch_invariant: bool = False


class NativeEngine(Calls):
  """Samples from a Flax decoder on the devices that hold its weights.

  Args:
    shapes: of its programs.
    ends: what ends a completion.
    seed: is folded into every request's own.
    version: policy version of `params`.

  Raises ValueError for shapes or token ids that the model does not have.
  """

  def __init__(
    self,
    graphdef: nnx.GraphDef,
    params: nnx.State,
    config: ModelConfig,
    shapes: Shapes = Shapes(),
    ends: Ends = Ends(),
    *,
    seed: int = 0,
    version: int = 0,
  ):
    super().__init__()
    self._params, self._config = params, config
    self._structure = programs.Structure(graphdef, params, config)
    self._weights: programs.Leaves = programs.leaves(params)
    self._pad_id, self._ends = shapes.pad_id, ends
    self._prompt = _buckets('prompt_buckets', shapes.prompt_buckets)
    self._batch = _buckets('batch_buckets', shapes.batch_buckets)
    self._seed, self._version = seed, version
    self._limits = RequestLimits(
      config.vocab_size, self._prompt[-1], shapes.max_new_tokens
    )
    _check_model(config, self._limits, (shapes.pad_id, *ends.eos_ids))
    longest = self._limits.longest
    self._columns = _column_buckets(longest)
    reads = _column_buckets(longest, halves=True)  # by a decode
    self._slots = Slots(
      self._batch[-1], longest, share=not shapes.batch_invariant
    )
    self._prefills, decodes = self._batch, self._batch
    self._steps = round_steps(jax.default_backend())
    if jax.default_backend() != 'cpu':
      decodes = _buckets('', [max(rows, _ROWS_BESIDE) for rows in self._batch])
    self._alone = shapes.batch_invariant
    if self._alone:
      # Which tokens of a round are new depends on when it began: one at a time.
      self._steps = 1
      self._prefills = (1,)
      self._batch, self._columns = self._batch[-1:], self._columns[-1:]
      decodes, reads = self._batch, self._columns
    self._settings = _Settings(self._batch[-1])
    self._cache: Any = None
    self._grouping = grouping.Grouping(
      decodes, reads, _floats(params, config), self._steps
    )
    self._shapes: set[tuple[Any, ...]] = set()
    self._waiting: collections.deque[_Job] = collections.deque()
    self._jobs: dict[int, _Job] = {}  # by slot
    self._unwanted: set[str] = set()
    self._moved = threading.Condition()
    self._held = 0  # callers that want the time between two rounds
    self._in_round = False
    self._broken: Exception | None = None
    self._closed = False
    self._thread: threading.Thread | None = None

  @property
  def version(self) -> int:
    return self._version

  @property
  def compiles(self) -> int:
    """Programs compiled so far; constant once every bucket has been seen."""
    return len(self._shapes)

  # The callers' side ---------------------------------------------------------

  def update_weights(self, params: nnx.State, version: int) -> None:
    """Swaps the weights by reference between two decoding rounds.

    Requests under way continue with the new ones.

    Raises ValueError, unchanged, on other names or shapes.
    """
    _check_fits(self._params, params, version)
    with self.paused():
      self._params, self._version = params, version
      self._weights = programs.leaves(params)
      self._slots.forget()

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    """Holds back decoding rounds meanwhile; requests keep their places."""
    with self._moved:
      self._held += 1
      self._moved.wait_for(lambda: not self._in_round)
    try:
      yield
    finally:
      with self._moved:
        self._held -= 1
        self._moved.notify_all()

  def abort(self, request_ids: Sequence[str]) -> list[types.Completion]:
    """See `engine.Engine.abort`."""
    place = {name: i for i, name in enumerate(request_ids)}
    with self.paused(), self._moved:
      out = []
      jobs = self._take_out(set(place))
      for job in sorted(jobs, key=lambda j: place[j.request.request_id]):
        out.append(job.completion('abort', self._version))
        if not self._told(job.put):
          job.put(out[-1])
      return out

  def discard(self, request_ids: Sequence[str]) -> None:
    """See `engine.Engine.discard`."""
    with self._moved:
      self._unwanted.update(request_ids)

  def _take_out(self, unwanted: set[str]) -> list[_Job]:
    """Takes requests out of their slots, between two rounds."""
    jobs = [
      job
      for job in (*self._waiting, *self._jobs.values())
      if job.request.request_id in unwanted
    ]
    for job in jobs:
      if job.slot < 0:
        self._waiting.remove(job)
      else:
        self._leave(job)
    return jobs

  def close(self) -> None:
    """Ends what runs; callers that wait for it get an EngineError."""
    with self._moved:
      self._closed = True
      self._moved.notify_all()
    if self._thread is not None:
      self._thread.join()
    self._fail(EngineError('the engine is closed; make a new one.'))
    self._params, self._cache = nnx.State({}), None
    self._weights = ()

  def _enter(
    self, requests: Sequence[types.Request], for_training: bool, puts: Any
  ) -> None:
    for request in requests:
      self._check(request, for_training)
    jobs = []
    for request, put in zip(requests, puts):
      most = request.sampling.max_new_tokens
      arrays = np.zeros(most, np.int32), np.zeros(most, np.float32)
      jobs.append(_Job(request, put, *arrays))
    with self._moved:
      if self._closed:
        raise EngineError('the engine is closed; make a new one.')
      if self._broken is not None:
        raise broke_down(self._broken)
      # An earlier request of that name is gone; this one is wanted.
      self._unwanted.difference_update(r.request_id for r in requests)
      self._waiting.extend(jobs)
      if self._thread is None:
        self._thread = threading.Thread(
          target=self._serve, name='native-engine', daemon=True
        )
        self._thread.start()
      self._moved.notify_all()

  def _check(self, request: types.Request, for_training: bool) -> None:
    check_request(request, self._limits, for_training=for_training)
    if request.sampling.stop and self._ends.decode is None:
      raise RequestError(
        f'request {request.request_id!r}: stop={request.sampling.stop!r} are '
        'matched on text; make the engine with Ends(decode=TOKENIZER.decode_response).'
      )
    stops = set(request.sampling.stop_token_ids) | set(self._ends.eos_ids)
    if len(stops) > _MAX_STOPS:
      raise RequestError(
        f'request {request.request_id!r}: {len(stops)} stop ids with eos; at '
        f'most {_MAX_STOPS}.'
      )

  # The thread's side ---------------------------------------------------------

  def _serve(self) -> None:
    try:
      while self._begin_round():
        try:
          with accelerator.turn():
            self._round()
        finally:
          with self._moved:
            self._in_round = False
            self._moved.notify_all()
    except BaseException as error:  # noqa: BLE001 - raised in every caller
      _log.exception('native engine')
      self._fail(error if isinstance(error, Exception) else broke_down(error))

  def _begin_round(self) -> bool:
    """Waits for work and until the engine is not held; False at the end."""
    with self._moved:
      self._moved.wait_for(
        lambda: (
          self._closed or (not self._held and (self._waiting or self._jobs))
        )
      )
      if self._closed:
        return False
      for job in self._take_out(self._unwanted):
        self._told(job.put)
      self._unwanted.clear()
      self._in_round = True
      return True

  def _fail(self, error: Exception) -> None:
    with self._moved:
      self._broken = error
      jobs = [*self._waiting, *self._jobs.values()]
      self._waiting.clear()
      self._jobs.clear()
    for job in jobs:
      job.put(error)

  def _round(self) -> None:
    if self._cache is None:
      self._cache = programs.empty_cache(
        self._config,
        self._slots.n,
        cache_columns(self._slots.columns, self._steps),
      )
    self._admit()
    for slots, rows, columns in self._groups():
      self._decode_some(slots, rows, columns)

  def _admit(self) -> None:
    """Waiting requests take the free slots, first come, first served."""
    n = min(self._slots.free, len(self._waiting))
    if not n:
      return
    jobs = [self._waiting.popleft() for _ in range(n)]
    prompts = [np.asarray(job.request.prompt_ids, np.int32) for job in jobs]
    plans = self._slots.seat(prompts)
    for job, plan in zip(jobs, plans):
      job.slot = plan.slot
      self._jobs[plan.slot] = job
      self._settings.set(plan.slot, job.request, self._ends.eos_ids, self._seed)
    self._fill(plans, prompts)

  def _fill(self, plans: Sequence[Plan], prompts: Any) -> None:
    """Brings the prompts' keys and values into their slots."""
    moved = [p for p in plans if not p.after and p.source is not None]
    self._copy(
      [
        (p.source, p.slot)
        for p in moved
        if p.source is not None and p.source != p.slot
      ]
    )
    new = [
      (p.slot, ids[:-1])
      for p, ids in zip(plans, prompts)
      if p.source is None and len(ids) > 1
    ]
    together = [[x] for x in new] if self._alone else [new]
    for some in filter(None, together):
      self._prefill(*zip(*some))
    for plan, ids in zip(plans, prompts):
      rest = ids[plan.kept : -1]
      if plan.source is not None and not plan.after and len(rest):
        self._extend(plan, rest)
    self._copy(
      [(p.source, p.slot) for p in plans if p.after and p.source is not None]
    )

  def _prefill(self, slots: Sequence[int], prompts: Any) -> None:
    """Prompts without their last tokens, side by side in rows."""
    width = _fit(max(map(len, prompts)), self._prompt)
    width = -(-width // prompt_rows.BLOCK) * prompt_rows.BLOCK
    packed = prompt_rows.pack(
      prompts, slots, width, self._slots.n, self._pad_id
    )
    start = 0
    for rows in prompt_rows.programs(len(packed.tokens), self._prefills):
      part = packed.cut(start, rows, self._slots.n)
      self._note('prefill', rows, width)
      self._cache = programs.prefill(
        self._structure,
        self._weights,
        self._cache,
        part.tokens,
        part.positions,
        part.segments,
        part.slots,
      )
      start += rows

  def _extend(self, plan: Plan, rest: np.ndarray) -> None:
    """Computes a prompt's tokens after those that its slot holds already."""
    width = _fit(len(rest), self._prompt)
    columns = _fit(plan.kept + len(rest), self._columns)
    tokens = np.full((1, width), self._pad_id, np.int32)
    tokens[0, : len(rest)] = rest
    self._note('extend', width, columns)
    self._cache = programs.extend(
      self._structure,
      columns,
      self._weights,
      self._cache,
      tokens,
      np.array([plan.kept], np.int32),
      np.array([plan.slot], np.int32),
    )

  def _copy(self, moves: Sequence[tuple[int, int]]) -> None:
    if not moves:
      return
    rows = _fit(len(moves), self._batch)
    source = np.zeros(rows, np.int32)
    target = np.full(rows, self._slots.n, np.int32)
    for i, (a, b) in enumerate(moves):
      source[i], target[i] = a, b
    self._note('copy', rows)
    self._cache = programs.copy(self._config, self._cache, source, target)

  def _groups(self) -> list[grouping.Group]:
    """Returns the groups of slots that are decoded together in this round."""
    slots = sorted(self._jobs, key=lambda slot: int(self._slots.held[slot]))
    held = [int(self._slots.held[slot]) for slot in slots]
    return self._grouping.groups(slots, held)

  def _decode_some(self, slots: Sequence[int], rows: int, columns: int) -> None:
    """A round of these slots' jobs, as `rows` rows over `columns` columns."""
    last = np.zeros(rows, np.int32)
    limit = np.zeros(rows, np.int32)
    at = np.zeros(rows, np.int32)
    where = np.full(rows, self._slots.n, np.int32)  # what pads is nowhere
    for row, slot in enumerate(slots):
      job = self._jobs[slot]
      last[row] = (
        job.tokens[job.count - 1] if job.count else job.request.prompt_ids[-1]
      )
      limit[row] = len(job.tokens) - job.count
      where[row], at[row] = slot, self._slots.held[slot]
    bound = min(self._steps, int(limit.max()))
    settings = self._settings.rows(where) | {'limit': limit}
    kinds = self._settings.kinds(slots)
    # Where others wait, a few ends are worth a return.
    wake = max(1, rows // 8) if self._waiting else rows + 1
    self._note('decode', rows, columns, *kinds)
    done = programs.decode(
      self._structure,
      programs.Round(columns, self._steps, *kinds),
      self._weights,
      self._cache,
      programs.Rows(where, last, at, settings),
      np.int32(bound),
      np.int32(wake),
    )
    self._cache = done[0]
    self._harvest(slots, last, *jax.device_get(done[1:]))

  def _harvest(
    self,
    slots: Any,
    last: Any,
    tokens: Any,
    logprobs: Any,
    counts: Any,
    stopped: Any,
  ) -> None:
    for row, slot in enumerate(slots):
      job, n = self._jobs[slot], int(counts[row])
      drawn = tokens[row, :n]
      fed = np.concatenate([last[row : row + 1], drawn[:-1]])
      self._slots.write(slot, fed)
      job.add(drawn, logprobs[row, :n], self._version)
      length = stop_length(
        job.tokens[: job.count], job.request.sampling.stop, self._ends.decode
      )
      if length is not None:
        job.count = length
      if length is not None or stopped[row]:
        self._finish(job, 'stop')
      elif job.count == len(job.tokens):
        self._finish(job, 'length')

  def _finish(self, job: _Job, reason: str) -> None:
    self._leave(job)
    job.put(job.completion(reason, self._version))

  def _leave(self, job: _Job) -> None:
    del self._jobs[job.slot]
    self._slots.leave(job.slot)

  def _note(self, *shape: Any) -> None:
    if shape not in self._shapes:
      self._shapes.add(shape)
      _log.info('native engine: program %d: %s', len(self._shapes), shape)


def _check_model(
  config: ModelConfig, limits: RequestLimits, tokens: Sequence[int]
) -> None:
  """Raises ValueError where the model lacks positions or a token id."""
  if limits.longest > config.max_position_embeddings:
    raise ValueError(
      f'prompt bucket {limits.max_prompt_tokens} and {limits.max_new_tokens} '
      f'new tokens need {limits.longest} positions; the model has '
      f'max_position_embeddings={config.max_position_embeddings}. Lower the '
      'buckets.'
    )
  for token in tokens:
    if not 0 <= token < config.vocab_size:
      raise ValueError(
        f'token id {token} (pad or eos) is outside the vocabulary '
        f"[0, {config.vocab_size}); is the tokenizer the model's own?"
      )


def round_steps(platform: str) -> int:
  """Tokens that a round draws at most."""
  return _STEPS if platform == 'cpu' else _STEPS_BESIDE


def cache_columns(longest: int, steps: int) -> int:
  """Columns of the cache for texts of `longest` tokens and rounds of `steps`."""
  return longest + max(steps, prompt_rows.BLOCK)


def settings_arrays(n: int) -> dict[str, np.ndarray]:
  """Sampling settings [n] of as many rows, and stop ids [n, most of a request]."""
  return {
    'temperature': np.ones(n, np.float32),
    'seed': np.zeros(n, np.uint32),
    'top_k': np.zeros(n, np.int32),
    'top_p': np.ones(n, np.float32),
    'stops': np.full((n, _MAX_STOPS), -1, np.int32),
  }


class _Settings:
  """Sampling settings of every slot, as arrays."""

  def __init__(self, n: int):
    self._arrays = settings_arrays(n)

  def set(
    self, slot: int, request: types.Request, eos: tuple[int, ...], seed: int
  ) -> None:
    s, arrays = request.sampling, self._arrays
    arrays['temperature'][slot] = s.temperature
    arrays['seed'][slot] = mix_seed(seed, request.seed)
    arrays['top_k'][slot], arrays['top_p'][slot] = s.top_k, s.top_p
    stops = sorted(set(s.stop_token_ids) | set(eos))
    arrays['stops'][slot] = -1
    arrays['stops'][slot, : len(stops)] = stops

  def rows(self, slots: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the rows of these slots; an out-of-range slot means the last."""
    return {
      name: array.take(slots, 0, mode='clip')
      for name, array in self._arrays.items()
    }

  def kinds(self, slots: Any) -> tuple[bool, bool]:
    """Whether any of them truncates the distribution; whether any is greedy."""
    a = {name: array[list(slots)] for name, array in self._arrays.items()}
    cut = (a['top_k'] > 0).any() or (a['top_p'] < 1).any()
    return bool(cut), bool((a['temperature'] <= 0).any())


def _floats(params: Any, config: ModelConfig) -> grouping.Floats:
  """Returns the cost of decoding: measured on two cores, else assumed."""
  weights = sum(a.size for a in jax.tree.leaves(params))
  column = config.num_hidden_layers * config.num_key_value_heads
  column *= 2 * config.head_dim
  if jax.default_backend() == 'cpu':
    return grouping.Floats(weights, column)
  return grouping.Floats(weights, column, rows_a_read=256, compiling=1e13)


def _check_fits(old_params: Any, params: Any, version: int) -> None:
  old = jax.tree_util.tree_flatten_with_path(old_params)[0]
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
      f'weights of version {version} do not fit the engine: ' + '; '.join(wrong)
    )


def _buckets(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
  if not sizes or min(sizes) < 1:
    raise ValueError(f'{name}={tuple(sizes)} must be positive sizes.')
  return tuple(sorted(set(int(s) for s in sizes)))


def _column_buckets(longest: int, *, halves: bool = False) -> tuple[int, ...]:
  """Columns that may be read: powers of two from 64 and, with `halves`, also
  those between. Few sizes, for each is compiled alone."""
  sizes, size = [], 64
  while size < longest:
    sizes += [size, size * 3 // 2] if halves else [size]
    size *= 2
  return (*(s for s in sizes if s < longest), longest)


def _fit(size: int, buckets: tuple[int, ...]) -> int:
  """The smallest bucket that holds `size`."""
  return next(b for b in buckets if b >= size)
