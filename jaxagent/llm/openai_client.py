"""A model behind an endpoint that speaks OpenAI's protocol: chat, embeddings.

Works with hosted services and with local servers (vLLM, SGLang, llama.cpp).
Blocking and thread-safe. The API key is read from the environment, goes into
the Authorization header and nowhere else: it is no part of the cache, of a
log line, of an error message or of `repr`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import random
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx
import numpy as np

from jaxagent.envs.interfaces import TextModelError
from jaxagent.llm import answer as answers
from jaxagent.llm import cache as answer_cache
from jaxagent.llm import request, room, wire
from jaxagent.llm.base import Refused
from jaxagent.llm.client_options import ClientOptions

_log = logging.getLogger(__name__)

RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REFUSED_STATUS = frozenset({400, 413, 422})
MAX_ANSWER_BYTES = 16 * 2**20
_REMEDIES = {
  401: 'set a valid key in {env}',
  403: 'the key in {env} may not use this model',
  404: 'check base_url (it usually ends in /v1) and the name of the model',
}


@dataclasses.dataclass(frozen=True)
class Usage:
  """Usage of a client so far; answers from the cache are free.

  requests: HTTP requests sent, the repeated ones too.
  without_usage: answers of an endpoint that did not count its tokens: where
    this is not 0, tokens and cost are lower bounds.
  cost: in the currency of the prices given; 0.0 without prices.
  """

  calls: int = 0
  cache_hits: int = 0
  requests: int = 0
  retries: int = 0
  failures: int = 0
  prompt_tokens: int = 0
  completion_tokens: int = 0
  without_usage: int = 0
  cost: float = 0.0


# (a 200 answer's JSON, key) -> what is made of it
_Read = Callable[[Any, str], Any]


class _Retry(Exception):
  """A failure that may be none on the next try."""

  def __init__(self, message: str, wait_s: float | None = None):
    super().__init__(message)
    self.wait_s = wait_s


class OpenAIClient:
  """Chat and embeddings over HTTP with retries, a cache and accounting.

  Args:
    base_url: endpoint, e.g. 'http://127.0.0.1:8000/v1'.
    model: name that the endpoint serves.
    cache_dir: answers are kept here by the hash of their request; None: no
      cache. A sampled answer (temperature > 0) without a seed is never
      looked up, for two samples must be able to differ.
    options: how requests are sent.
    limit: what becomes of an answer that its limit of tokens cuts.
    extra: merged into the JSON of each request; a value None takes a key out.
    sleep: waits; tests replace it.
  """

  is_stand_in = False

  def __init__(
    self,
    base_url: str,
    model: str,
    cache_dir: pathlib.Path | str | None = None,
    options: ClientOptions = ClientOptions(),
    limit: room.TokenLimit = room.TokenLimit(),
    *,
    extra: Mapping[str, Any] = types.MappingProxyType({}),
    sleep: Callable[[float], None] = time.sleep,
  ):
    self._url, loopback = wire.checked_url(base_url)
    if not model:
      raise ValueError(
        f'model={model!r} is empty; name a model that {base_url} serves.'
      )
    self.name = model
    self.options = options
    self._room = room.Room(f'{model} at {self._url}', limit)
    self._extra = _checked(extra)
    self._sleep = sleep
    self._slots = threading.BoundedSemaphore(options.max_concurrency)
    self._lock = threading.Lock()
    self._usage = Usage()
    self._meters = threading.local()
    self._cache = (
      None
      if cache_dir is None
      else answer_cache.AnswerCache(pathlib.Path(cache_dir))
    )
    # A proxy of the environment is of no use on the way to this machine.
    self._http = httpx.Client(
      timeout=options.timeout_s,
      trust_env=not loopback,
      limits=httpx.Limits(max_connections=options.max_concurrency),
    )

  def __repr__(self) -> str:
    return f'OpenAIClient(base_url={self._url!r}, model={self.name!r})'

  def __enter__(self) -> OpenAIClient:
    return self

  def __exit__(self, *exc) -> None:
    self.close()

  def close(self) -> None:
    """Closes the connections; the client is of no use afterwards."""
    self._http.close()

  def usage(self) -> Usage:
    """Returns the usage since the client was made."""
    with self._lock:
      return self._usage

  @contextlib.contextmanager
  def meter(self) -> Iterator[dict[str, int]]:
    """Counts what this thread's answers take: `prompt_tokens` and `tokens`.

    An answer of the cache counts with what it once took. Empty where an answer
    did not tell its tokens.
    """
    found = {'prompt_tokens': 0, 'tokens': 0}
    self._meters.open = found
    try:
      yield found
    finally:
      self._meters.open = None

  def _meter_tokens(self, tokens: dict[str, int] | None) -> None:
    found = getattr(self._meters, 'open', None)
    if not found:
      return
    if tokens is None:
      found.clear()
      return
    for name, count in tokens.items():
      found[name] += count

  def _count(self, **more: float) -> None:
    with self._lock:
      self._usage = dataclasses.replace(
        self._usage,
        **{k: getattr(self._usage, k) + v for k, v in more.items()},
      )

  def complete(
    self,
    messages: Sequence[dict[str, str]],
    *,
    max_tokens: int = 1024,
    temperature: float = 0.0,
    stop: Sequence[str] = (),
    seed: int | None = None,
  ) -> answers.Answer:
    """Returns the answer, an `answer.Answer`, without what its model thought.

    Raises TextModelError where no usable answer came: the endpoint refuses
    the request (`base.Refused` where for what is in it), fails more than
    `max_retries` times, cuts its answer (`base.Unfinished`), says nothing
    (`NoText`; `base.Declined` where it will not), or does not speak the protocol.
    """
    body: dict[str, Any] = {
      'model': self.name,
      'messages': [
        {k: wire.encodable(v) for k, v in m.items()} for m in messages
      ],
      'max_tokens': max_tokens,
      'temperature': temperature,
    }
    if stop:
      body['stop'] = list(stop)
    if seed is not None:
      body['seed'] = seed
    cache = None if temperature > 0 and seed is None else self._cache
    wanted = self._request(self._url, body)
    ask = functools.partial(self._with_retries, read=self._read)
    whole = functools.partial(self._room.whole, ask)
    found = self._answer('chat/completions', wanted, whole, cache)
    # A server that must not be sent stop texts does not stop at them.
    ends = [at for text in stop if (at := found.find(text)) >= 0]
    if not ends:
      return found
    return answers.Answer(found[: min(ends)], found.thoughts)

  def embed(self, texts: Sequence[str]) -> np.ndarray:
    """Returns float64 [len(texts), D], a vector of the model's D for each text.

    Raises TextModelError as `complete` does.
    """
    body = {'model': self.name, 'input': [wire.encodable(t) for t in texts]}
    wanted = self._request(f'{self._url}/embeddings', body)
    read = functools.partial(self._read_vectors, n=len(texts))
    ask = functools.partial(self._with_retries, read=read)
    return np.array(
      json.loads(self._answer('embeddings', wanted, ask, self._cache))
    )

  def _request(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the key of an answer in the cache, with what is not sent, such as a seed."""
    sent, left_out = request.merged(body, self._extra)
    found = {'url': url, 'body': sent}
    return found | {'left_out': left_out} if left_out else found

  def _answer(
    self,
    path: str,
    wanted: dict[str, Any],
    ask: room.Ask,
    cache: answer_cache.AnswerCache | None,
  ) -> answers.Answer:
    """Returns what `ask` makes of the endpoint's answer, or made of it before."""
    self._count(calls=1)
    if cache is not None:
      kept = cache.get(wanted)
      if kept is not None and (found := self._of_cache(kept)) is not None:
        self._count(cache_hits=1)
        self._meter_tokens(kept.tokens)
        return found
    key = self._key()
    try:
      with self._slots:
        text, tokens = ask(path, wanted['body'], key)
    except TextModelError:
      self._count(failures=1)
      raise
    # An endpoint may echo its headers.
    thoughts = wire.without(getattr(text, 'thoughts', ''), key)
    found = answers.Answer(wire.without(text, key), thoughts)
    if cache is not None:
      try:
        cache.put(wanted, str(found), tokens, thoughts)
      except OSError as error:  # the answer is there all the same
        _log.warning('%s: the answer is not cached: %s.', self.name, error)
    return found

  @staticmethod
  def _of_cache(kept: answer_cache.Kept) -> answers.Answer | None:
    """Reads a stored answer; None for an old one that was cut in its thoughts."""
    if isinstance(kept.thoughts, str):
      return answers.Answer(kept.answer, kept.thoughts)
    found, is_cut = answers.proper(kept.answer)
    return None if is_cut or not found.strip() else found

  def _key(self) -> str:
    key = os.environ.get(self.options.api_key_env, '').strip()
    if any(not '!' <= c <= '~' for c in key):
      # The HTTP library would quote the header in its own error.
      raise TextModelError(
        f'the key in {self.options.api_key_env} holds characters that a header '
        'cannot hold (blanks, line ends, non-ASCII); set it anew.'
      )
    return key

  def _with_retries(
    self, path: str, body: dict[str, Any], key: str, *, read: _Read
  ) -> tuple[Any, room.Tokens]:
    """Requests with retries; returns what `read` gives and the tokens used."""
    for attempt in range(self.options.max_retries + 1):
      try:
        self._count(requests=1)
        answer = self._once(path, body, key)
        tokens = self._account(answer, path)
        return read(answer, key), tokens
      except _Retry as error:
        message = wire.without(str(error), key)
        if attempt == self.options.max_retries:
          break
        wait = self._wait_s(attempt, error.wait_s)
        _log.info('%s: %s; again in %.1f s.', self.name, message, wait)
        self._count(retries=1)
        self._sleep(wait)
    raise TextModelError(
      f'{self.name} at {self._url} gave no answer in {self.options.max_retries + 1} '
      f'attempts; the last one: {message}.'
    )

  def _wait_s(self, attempt: int, asked: float | None) -> float:
    first, most = self.options.backoff_s, self.options.max_backoff_s
    if asked is not None:
      return min(most, asked)
    # Jitter, so that clients that failed together do not come back so.
    return min(most, first * 2**attempt) * random.uniform(0.5, 1.0)

  def _once(self, path: str, body: dict[str, Any], key: str) -> Any:
    """The JSON of a good answer."""
    headers = {'Authorization': f'Bearer {key}'} if key else {}
    limit_s = max(
      self.options.timeout_s,
      self.options.s_per_token * (request.room(body) or 0),
    )
    deadline = time.monotonic() + limit_s
    data = bytearray()
    try:
      with self._http.stream(
        'POST',
        f'{self._url}/{path}',
        json=body,
        headers=headers,
        timeout=limit_s,
      ) as response:
        for chunk in response.iter_bytes():
          data += chunk
          if len(data) > MAX_ANSWER_BYTES:
            raise TextModelError(
              f'{self.name}: the answer is longer than {MAX_ANSWER_BYTES} '
              'bytes.'
            )
          if time.monotonic() > deadline:
            raise _Retry(f'no whole answer within {limit_s:g} s')
    except httpx.TimeoutException:
      raise _Retry(f'time-out after {limit_s:g} s') from None
    except httpx.TransportError as error:
      raise _Retry(f'{type(error).__name__}: {error}') from None
    except httpx.HTTPError as error:  # its request would hold the header
      raise TextModelError(
        f'{self.name}: {wire.without(str(error), key)}'
      ) from None
    if response.status_code != 200:
      raise self._refusal(response, bytes(data), key)
    return self._json(bytes(data), key)

  def _refusal(
    self, response: httpx.Response, data: bytes, key: str
  ) -> Exception:
    status = response.status_code
    said = wire.without(wire.error_text(data), key)
    if status in RETRY_STATUS:
      return _Retry(
        f'HTTP {status} {said}',
        wire.seconds(response.headers.get('retry-after')),
      )
    remedy = _REMEDIES.get(status, 'the request was not accepted')
    kind = Refused if status in REFUSED_STATUS else TextModelError
    return kind(
      f'{self.name} at {self._url}: HTTP {status} {said}: '
      f'{remedy.format(env=self.options.api_key_env)}.'
    )

  def _json(self, data: bytes, key: str) -> Any:
    try:
      return json.loads(data)
    except (ValueError, RecursionError):
      raise TextModelError(
        f'{self.name} at {self._url}: the answer is no JSON: '
        f'{wire.without(wire.shown(data), key)}. Check base_url.'
      ) from None

  def _read(self, answer: Any, key: str) -> answers.Reply:
    """The first choice of a 200 answer."""
    try:
      return answers.read(answer)
    except ValueError as error:
      raise TextModelError(
        f'{self.name} at {self._url}: the answer has {error}: '
        f'{wire.told(answer, key)}.'
      ) from None

  def _read_vectors(self, answer: Any, key: str, *, n: int) -> str:
    """The n vectors of a 200 answer, in the order of the texts, as JSON."""
    try:
      items = sorted(answer['data'], key=lambda item: item['index'])
      vectors = np.array([item['embedding'] for item in items], np.float64)
      places = [item['index'] for item in items]
    except (KeyError, TypeError, ValueError, OverflowError):
      vectors, places = np.empty(0), []
    if (
      places != list(range(n))
      or vectors.ndim != 2
      or not vectors.size
      or not np.isfinite(vectors).all()
    ):
      raise TextModelError(
        f'{self.name} at {self._url}: the answer is not a vector of finite '
        f'numbers, all of one length, for each of {n} texts: '
        f'{wire.told(answer, key)}.'
      )
    return json.dumps(vectors.tolist())

  def _account(self, answer: Any, path: str) -> dict[str, int] | None:
    """Counts an answer's tokens; None where it does not tell them."""
    usage = answer.get('usage') if isinstance(answer, dict) else None
    counts: list[Any] = [
      usage.get(k) if isinstance(usage, dict) else None
      for k in ('prompt_tokens', 'completion_tokens')
    ]
    if path == 'embeddings':
      counts[1] = 0  # nothing is written
    if not all(type(n) is int and n >= 0 for n in counts):  # bool is no count
      self._count(without_usage=1)
      self._meter_tokens(None)
      return None
    prices = (
      self.options.price_per_1k_prompt,
      self.options.price_per_1k_completion,
    )
    cost = sum(n * price / 1000 for n, price in zip(counts, prices))
    self._count(prompt_tokens=counts[0], completion_tokens=counts[1], cost=cost)
    tokens = {'prompt_tokens': counts[0], 'tokens': counts[1]}
    self._meter_tokens(tokens)
    return tokens


def _checked(extra: Mapping[str, Any]) -> dict[str, Any]:
  try:
    request.check_extra(extra)
  except ValueError as error:
    raise ValueError(f'extra: {error}.') from None
  return dict(extra)
