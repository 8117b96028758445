"""The policy served by vLLM, out of process: one engine over several servers.

An event loop on a thread of its own holds every request. It goes to the server
that has least to do, the turns of one text to the same one (its prefix is
cached there). What a lost server had begins anew on another, or on the same one
when it has come again with the weights of the day: a seed gives the same tokens.
New weights take effect under the requests, in the midst of them; new adapters
(`vllm_adapters`) with the next request, and none stands still.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from jaxagent import types
from jaxagent.rollout.calls import Calls, Put, broke_down
from jaxagent.rollout.engine import (
  Ends,
  EngineError,
  RequestError,
  RequestLimits,
  check_request,
  mix_seed,
  stop_length,
)
from jaxagent.rollout.engines.vllm_adapters import AdapterSync
from jaxagent.rollout.engines.vllm_api import (
  Adapter,
  ServerError,
  ServerLost,
  Vllm,
)
from jaxagent.rollout.engines.weight_sync import WeightSync

_log = logging.getLogger(__name__)
_ATTEMPTS = 5  # of one request, on servers that are lost meanwhile
_WATCH_S = 5.0  # between two looks at a server's health
_MISSED = 3  # looks in a row, after which a server is lost
_PROBE_S = 120.0  # within which a server answers the request of the proof
_RETRIES = 3  # of bringing a server back that is lost again over it
_STICKY_TOKENS = 64  # of a prompt, that name its server
_STICKY_SLACK = 8  # requests more than another, before it goes there


class Fleet(Protocol):
  """The servers: where they are, and how one that was lost comes back."""

  @property
  def urls(self) -> Sequence[str]:
    """Returns the servers' addresses."""
    ...

  def revive(self, url: str) -> None:
    """Returns when it answers again; blocking. Raises EngineError if never."""

  def close(self) -> None:
    """Ends what it started, and a `revive` on another thread."""

  def hint(self) -> str:
    """Returns where to look when servers misbehave."""


class Probe(Protocol):
  """Whether a server samples from the weights of the trainer."""

  request: types.Request

  def check(self, completion: types.Completion, params: Any, url: str) -> None:
    """Raises EngineError where its log-probs are not those of `params`."""


def _to_both(
  first: Callable[[Any], object], second: Callable[[Any], object], result: Any
) -> None:
  first(result)
  second(result)


@dataclasses.dataclass(eq=False)
class _Job:
  request: types.Request
  put: Put
  name: str = ''  # of the attempt under way
  server: _Server | None = None
  unwanted: bool = False  # abort was asked for
  done: bool = False


@dataclasses.dataclass(eq=False)
class _Server:
  api: Vllm
  places: asyncio.Semaphore
  ready: asyncio.Event
  load: int = 0
  under_way: set[asyncio.Task] = dataclasses.field(default_factory=set)


class VllmEngine(Calls):
  """See `engine.Engine`. Serves from the first `update_weights` on.

  Args:
    fleet, sync, probe: closed with the engine. A sync of adapters lets each
      request keep the adapters that it began with.
    limits: requests that it takes.
    ends: what ends a completion.
    max_num_seqs: requests at a server at once; more wait here.
  """

  def __init__(
    self,
    fleet: Fleet,
    sync: WeightSync,
    probe: Probe,
    limits: RequestLimits,
    ends: Ends = Ends(),
    *,
    seed: int = 0,
    max_num_seqs: int = 256,
  ):
    super().__init__()
    self._fleet, self._sync, self._probe = fleet, sync, probe
    self._limits, self._ends, self._seed = limits, ends, seed
    self._places = max_num_seqs
    self._adapters = sync if isinstance(sync, AdapterSync) else None
    self._adapter: Adapter | None = None  # of the requests to come
    self._users: collections.Counter[Adapter] = collections.Counter()
    self._version, self._params = 0, None
    self._servers: list[_Server] = []
    self._jobs: set[_Job] = set()
    self._tasks: set[asyncio.Task] = set()
    self._numbers = itertools.count()
    self._weights = asyncio.Lock()  # over writing and pushing them
    self._checks: list[asyncio.Task] = []  # proofs that nobody waited for
    self._broken: Exception | None = None
    self._closed = False
    self.resubmitted = 0  # requests that a lost server had
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
      target=self._loop.run_forever, name='vllm-engine', daemon=True
    )
    self._thread.start()
    try:
      self._call(self._connect())
    except BaseException:
      self.close()
      raise

  @property
  def version(self) -> int:
    return self._version

  # The callers' side ---------------------------------------------------------

  def update_weights(self, params: Any, version: int) -> None:
    """Every server takes them, in mid-request, and is probed.

    Where adapters alone are new, requests keep the ones that they have, and the proof
    is made beside the first requests: the next call, or `wait_for_proof`, waits for it.
    Raises EngineError where one refuses them, or the proof of the last ones failed.
    """
    self._check_open()
    self._call(self._update(params, version))

  def wait_for_proof(self) -> None:
    """Waits until every server has proven that it has the last weights.

    Raises EngineError where one has not got them.
    """
    self._call(self._proven())
    self._check_open()

  def abort(self, request_ids: Sequence[str]) -> list[types.Completion]:
    """See `engine.Engine.abort`."""
    return self._call(self._abort(list(request_ids)))

  def discard(self, request_ids: Sequence[str]) -> None:
    """See `engine.Engine.discard`."""
    asyncio.run_coroutine_threadsafe(
      self._abort(list(request_ids), tell=False), self._loop
    )

  def close(self) -> None:
    """Ends what runs; callers that wait for it get an EngineError."""
    if self._closed:
      return
    self._closed = True
    self._call(self._shut())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()
    self._loop.close()
    self._sync.close()
    self._fleet.close()
    self._params = None

  def _enter(
    self, requests: Sequence[types.Request], for_training: bool, puts: Any
  ) -> None:
    for request in requests:
      check_request(request, self._limits, for_training=for_training)
      if request.sampling.stop and self._ends.decode is None:
        raise RequestError(
          f'request {request.request_id!r}: stop={request.sampling.stop!r} are '
          'matched on text; make the engine with '
          'decode=TOKENIZER.decode_response.'
        )
    self._check_open()
    jobs = [_Job(r, put) for r, put in zip(requests, puts)]
    self._loop.call_soon_threadsafe(self._begin, jobs)

  def _check_open(self) -> None:
    if self._closed:
      raise EngineError('the engine is closed; make a new one.')
    if self._broken is not None:
      raise broke_down(self._broken)

  def _call(self, work: Coroutine) -> Any:
    return asyncio.run_coroutine_threadsafe(work, self._loop).result()

  # The loop's side: requests --------------------------------------------------

  def _begin(self, jobs: Sequence[_Job]) -> None:
    for job in jobs:
      self._jobs.add(job)
      self._spawn(self._serve(job))

  def _spawn(self, work: Coroutine) -> asyncio.Task:
    task = self._loop.create_task(work)
    self._tasks.add(task)
    task.add_done_callback(self._tasks.discard)
    return task

  async def _serve(self, job: _Job) -> None:
    try:
      result = await self._complete(job)
    except Exception as error:  # noqa: BLE001 - raised in every caller
      self._fail(error)
      return
    self._end(job, result)

  def _end(self, job: _Job, result: types.Completion | Exception) -> None:
    if not job.done:
      job.done = True
      self._jobs.discard(job)
      job.put(result)

  async def _complete(self, job: _Job) -> types.Completion:
    """Completes a job on any server; asks the next one if a server is lost."""
    seed = mix_seed(self._seed, job.request.seed)
    request = self._with_ends(job.request)
    for _ in range(_ATTEMPTS):
      server = await self._choose(request)
      server.load += 1
      try:
        async with server.places:
          if job.unwanted:
            break
          job.name, job.server = f'{next(self._numbers)}', server
          with self._using(self._adapter) as adapter:
            whole = await self._ask(server, request, seed, job.name, adapter)
        return self._cut(job.request, whole)
      except ServerLost as error:
        self.resubmitted += 1
        self._lost(server, error)
      finally:
        server.load -= 1
        job.server = None
    if job.unwanted:
      return _empty(job.request, self._version)
    raise ServerError(
      f'request {job.request.request_id!r}: {_ATTEMPTS} servers were lost while '
      f'they had it; {self._fleet.hint()}'
    )

  @contextlib.contextmanager
  def _using(self, adapter: Adapter | None) -> Iterator[Adapter | None]:
    """A context in which a request names an adapter, which is kept meanwhile."""
    if adapter is None:
      yield None
      return
    self._users[adapter] += 1
    try:
      yield adapter
    finally:
      self._users[adapter] -= 1
      self._forget_unused()

  async def _ask(
    self,
    server: Any,
    request: types.Request,
    seed: int,
    name: str,
    adapter: Adapter | None,
  ) -> types.Completion:
    """`Vllm.generate`; ServerLost as soon as the server is lost."""
    asked = server.api.generate(request, seed, name, adapter)
    task = self._loop.create_task(asked)
    server.under_way.add(task)
    try:
      return await task
    except asyncio.CancelledError:
      if server.ready.is_set():
        raise
      raise ServerLost(f'{server.api.url}: lost meanwhile') from None
    finally:
      task.cancel()
      server.under_way.discard(task)

  async def _choose(self, request: types.Request) -> _Server:
    """Chooses a ready server: the prompt's own, unless another is idler."""
    ready = [s for s in self._servers if s.ready.is_set()]
    while not ready:
      waits = [asyncio.ensure_future(s.ready.wait()) for s in self._servers]
      await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
      for wait in waits:
        wait.cancel()
      ready = [s for s in self._servers if s.ready.is_set()]
    head = np.asarray(request.prompt_ids[:_STICKY_TOKENS], np.int32)
    own = ready[zlib.crc32(head.tobytes()) % len(ready)]
    least = min(ready, key=lambda s: s.load)
    return least if own.load > least.load + _STICKY_SLACK else own

  def _with_ends(self, request: types.Request) -> types.Request:
    s = request.sampling
    ends = tuple(sorted(set(s.stop_token_ids) | set(self._ends.eos_ids)))
    sampling = dataclasses.replace(s, stop_token_ids=ends)
    return dataclasses.replace(request, sampling=sampling)

  def _cut(
    self, request: types.Request, done: types.Completion
  ) -> types.Completion:
    """Cuts a completion where a stop text is complete.

    The server matches stop texts in another way."""
    n = stop_length(done.token_ids, request.sampling.stop, self._ends.decode)
    if n is None:
      return done
    return dataclasses.replace(
      done,
      token_ids=done.token_ids[:n],
      logprobs=done.logprobs[:n],
      version_spans=tuple(
        (v, a, min(b, n)) for v, a, b in done.version_spans if a < n
      ),
      finish_reason='stop',
    )

  async def _abort(self, request_ids: Sequence[str], tell: bool = True):
    place = {name: i for i, name in enumerate(request_ids)}
    jobs = [j for j in self._jobs if j.request.request_id in place]
    jobs.sort(key=lambda j: place[j.request.request_id])
    results: list[types.Completion | Exception] = []
    for job in jobs:
      job.unwanted = True
      put = job.put
      if not tell:
        self._told(put)
        job.put = lambda result: None
      elif self._told(put):
        job.put = results.append
      else:
        job.put = functools.partial(_to_both, results.append, put)
    # A server does not know one that is still on its way: abort it again.
    for n in itertools.count():
      if all(j.done for j in jobs):
        break
      if n % 20 == 0:
        await self._tell_unwanted([j for j in jobs if not j.done])
      await asyncio.sleep(0.005)
    order = [r for r in results if isinstance(r, types.Completion)]
    return sorted(order, key=lambda c: place[c.request_id])

  async def _tell_unwanted(self, jobs: Sequence[_Job]) -> None:
    for server in self._servers:
      if names := [j.name for j in jobs if j.server is server]:
        with contextlib.suppress(ServerLost):
          await server.api.abort(names)

  # The loop's side: servers ---------------------------------------------------

  async def _connect(self) -> None:
    for url in self._fleet.urls:
      places = asyncio.Semaphore(self._places)
      server = _Server(Vllm(url), places, asyncio.Event())
      self._servers.append(server)
      self._check_server(await server.api.describe(), url)

  def _check_server(self, found: Any, url: str) -> None:
    longest = self._limits.longest
    if found.max_model_len < longest:
      raise ServerError(
        f'{url} serves {found.model!r} with a context of {found.max_model_len} '
        f'tokens; prompt and response need {longest}: start it with '
        f'--max-model-len {longest}, or lower rollout.max_prompt_tokens or '
        'rollout.max_new_tokens.'
      )

  async def _update(self, params: Any, version: int) -> None:
    await self._proven()
    if self._broken is not None:
      raise broke_down(self._broken)
    async with self._weights:
      await asyncio.to_thread(self._sync.write, params, version)
      first = self._params is None
      # One that is lost gets them when it has come again.
      there = [s for s in self._servers if first or s.ready.is_set()]
      await asyncio.gather(*(self._give(s, params, first) for s in there))
      self._params, self._version = params, version
      if self._adapters is not None:
        self._adapter = self._adapters.current
        if self._adapter is not None:
          self._users[self._adapter] += 0  # known, though nobody uses it yet
        self._forget_unused()
      for server in there if first else ():
        self._ready(server)

  def _ready(self, server: _Server) -> None:
    server.ready.set()
    self._spawn(self._watch(server))

  async def _give(self, server: _Server, params: Any, first: bool) -> None:
    """`_push`; one that is lost over it gets them when it has come again."""
    try:
      await self._push(server, params)
    except ServerLost as error:
      if first:  # it never served: with what it is, it would be lost again
        raise ServerError(
          f'lost at its first weights ({error}); {self._fleet.hint()}'
        ) from error
      self._lost(server, error)

  async def _push(self, server: _Server, params: Any) -> None:
    """Pushes the weights written last, and verifies them."""
    adapters = self._adapters
    adapter = adapters.current if adapters is not None else None
    beside = adapters is not None and await adapters.has_base(server.api)
    if not beside:
      async with server.api.held():
        await self._sync.push(server.api)
      if adapters is not None and adapter is not None:
        ask = functools.partial(self._ask_probe, server)
        await adapters.prove(server.api, params, ask)
    if adapters is not None and adapter is not None:
      await adapters.load(server.api, adapter)
    if beside:
      check = self._prove_beside(server, adapter, params)
      self._checks.append(self._spawn(check))
    else:
      await self._prove(server, adapter, params)

  async def _prove(
    self, server: _Server, adapter: Adapter | None, params: Any
  ) -> None:
    done = await self._ask_probe(server, adapter)
    check = self._probe.check
    await asyncio.to_thread(check, done, params, server.api.url)

  async def _prove_beside(
    self, server: _Server, adapter: Adapter | None, params: Any
  ) -> None:
    """Proves while requests run: the first use of adapters takes a second."""
    try:
      await self._prove(server, adapter, params)
    except ServerLost as error:
      self._lost(server, error)
    except Exception as error:  # noqa: BLE001 - raised in every caller
      self._fail(error)

  async def _proven(self) -> None:
    checks, self._checks = self._checks, []
    await asyncio.gather(*checks)

  async def _ask_probe(
    self, server: _Server, adapter: Adapter | None
  ) -> types.Completion:
    seed = self._probe.request.seed
    name = f'probe-{next(self._numbers)}'
    asked = server.api.generate(self._probe.request, seed, name, adapter)
    try:  # callers that need the weights' lock wait for the answer
      return await asyncio.wait_for(asked, _PROBE_S)
    except TimeoutError:
      raise ServerLost(
        f'{server.api.url}: no answer to the fixed request within {_PROBE_S:g} s.'
      ) from None

  def _forget_unused(self) -> None:
    """Forgets adapters of earlier versions that no request has any more."""
    for adapter, users in list(self._users.items()):
      if not users and adapter != self._adapter:
        del self._users[adapter]
        self._spawn(self._forget(adapter))

  async def _forget(self, adapter: Adapter) -> None:
    assert self._adapters is not None  # it wrote the adapter
    for server in self._servers:
      with contextlib.suppress(ServerError):  # one that was lost has none
        await server.api.unload_adapter(adapter)
    await asyncio.to_thread(self._adapters.remove, adapter)

  def _lost(self, server: _Server, why: object) -> None:
    """Gives a lost server's requests to others and restarts it meanwhile.

    Acts once a loss, however many requests the server had.
    """
    if not server.ready.is_set() or self._closed:
      return
    _log.warning('A vLLM server was lost (%s); it is brought back.', why)
    server.ready.clear()
    for task in server.under_way:
      task.cancel()
    self._spawn(self._revive(server))

  async def _revive(self, server: _Server) -> None:
    for left in reversed(range(1 + _RETRIES)):
      try:
        return await self._bring_back(server)
      except Exception as error:  # noqa: BLE001 - raised in every caller
        if not left or not isinstance(error, ServerLost):
          return self._fail(error)
        _log.warning('A vLLM server was lost as it came back (%s).', error)

  async def _bring_back(self, server: _Server) -> None:
    url = server.api.url
    await asyncio.to_thread(self._fleet.revive, url)
    self._check_server(await server.api.describe(), url)
    async with self._weights:
      await self._push(server, self._params)
      self._ready(server)
    _log.warning('The vLLM server at %s is back.', url)

  async def _watch(self, server: _Server) -> None:
    missed = 0
    while server.ready.is_set():
      await asyncio.sleep(_WATCH_S)
      missed = 0 if await server.api.healthy() else missed + 1
      if missed >= _MISSED:
        self._lost(server, f'{server.api.url} does not answer')

  def _fail(self, error: Exception) -> None:
    """Fails every caller: nothing can be served any more."""
    if self._broken is None and not self._closed:
      _log.error('vLLM engine: %s', error)
      self._broken = error
    for job in list(self._jobs):
      self._end(job, error)

  async def _shut(self) -> None:
    error = EngineError('the engine is closed; make a new one.')
    for job in list(self._jobs):
      self._end(job, error)
    tasks = list(self._tasks)
    for task in tasks:
      task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for server in self._servers:
      await server.api.close()


def _empty(request: types.Request, version: int) -> types.Completion:
  return types.Completion(
    request_id=request.request_id,
    prompt_ids=np.asarray(request.prompt_ids, np.int32),
    token_ids=np.zeros(0, np.int32),
    logprobs=np.zeros(0, np.float32),
    version_spans=((version, 0, 0),),
    finish_reason='abort',
  )
