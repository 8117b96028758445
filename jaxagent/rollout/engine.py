"""Protocol of a rollout engine: token ids in, token ids and log-probs out.

The native engine and the vLLM engine both keep this protocol, and the same
conformance tests run against both.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxagent import types


class EngineError(RuntimeError):
  """The engine cannot serve any request (dead, unreachable, misconfigured)."""


class RequestError(ValueError):
  """One request cannot be served; says its id, the value and the remedy."""


@runtime_checkable
class Engine(Protocol):
  """A sampler of the current policy."""

  @property
  def version(self) -> int:
    """Policy version of the weights that the next token is sampled with."""

  def update_weights(self, params: Any, version: int) -> None:
    """Serves `params` from the next token on, or the next request.

    The spans of a completion say which tokens are of which version. Raises on a
    misfit, unchanged.
    """

  def generate(
    self, requests: Sequence[types.Request], *, for_training: bool = True
  ) -> list[types.Completion]:
    """Completions in the order of the requests; blocks until all are done.

    Raises RequestError on a bad request, before anything is sampled.
    `for_training=True` refuses top_p < 1 and top_k > 0, whose log-probs are
    not those of the policy that is trained.
    """

  def submit(
    self,
    requests: Sequence[types.Request],
    *,
    for_training: bool = True,
    put: Callable[[types.Completion | Exception], object] | None = None,
  ) -> None:
    """Queues requests, whose completions `poll` returns as they finish.

    put: called with each of them instead, on a thread of the engine's; with an
      EngineError for each that is lost when the engine breaks down.
    """

  def poll(self, timeout_s: float | None = None) -> list[types.Completion]:
    """Returns what finished since the last call; [] when nothing is left.

    Waits for at least one completion, up to `timeout_s` (None: no limit).
    """

  def abort(self, request_ids: Sequence[str]) -> list[types.Completion]:
    """Ends requests now: finish_reason 'abort', with the tokens so far.

    In the order of `request_ids`; one that is unknown or has ended is ignored.
    """

  def discard(self, request_ids: Sequence[str]) -> None:
    """Cancels requests without waiting; ignores unknown ids."""

  def close(self) -> None:
    """Frees what the engine holds; further calls raise EngineError."""


@dataclasses.dataclass(frozen=True)
class RequestLimits:
  """Requests that an engine takes: sizes in tokens.

  vocab_size: ids of a prompt are below it.
  """

  vocab_size: int
  max_prompt_tokens: int
  max_new_tokens: int

  @property
  def longest(self) -> int:
    """Tokens of the longest prompt and response together."""
    return self.max_prompt_tokens + self.max_new_tokens


@dataclasses.dataclass(frozen=True)
class Ends:
  """Ends of a completion, beside the stop ids of its request.

  eos_ids: the tokenizer's end tokens.
  decode: a response's ids -> text, for requests with stop texts.
  """

  eos_ids: tuple[int, ...] = ()
  decode: Callable[[Sequence[int]], str] | None = None


def check_request(
  request: types.Request, limits: RequestLimits, *, for_training: bool
) -> None:
  """Raises RequestError naming the request, the value and the remedy."""
  name = f'request {request.request_id!r}'
  ids, s = request.prompt_ids, request.sampling
  if len(ids) == 0:
    raise RequestError(f'{name}: empty prompt; give at least one token id.')
  if len(ids) > limits.max_prompt_tokens:
    raise RequestError(
      f"{name}: prompt of {len(ids)} tokens, longer than the engine's "
      f'{limits.max_prompt_tokens}; shorten it or raise the largest prompt bucket.'
    )
  low, high = int(min(ids)), int(max(ids))
  if low < 0 or high >= limits.vocab_size:
    raise RequestError(
      f'{name}: token id {low if low < 0 else high} is outside the vocabulary '
      f"[0, {limits.vocab_size}); is the tokenizer the model's own?"
    )
  if not 1 <= s.max_new_tokens <= limits.max_new_tokens:
    raise RequestError(
      f'{name}: max_new_tokens={s.max_new_tokens} must be in '
      f'[1, {limits.max_new_tokens}].'
    )
  if not s.temperature >= 0:
    raise RequestError(f'{name}: temperature={s.temperature} must be >= 0.')
  if not 0 < s.top_p <= 1 or s.top_k < 0:
    raise RequestError(
      f'{name}: top_p={s.top_p} must be in (0, 1] and top_k={s.top_k} >= 0.'
    )
  if for_training and (s.top_p < 1 or s.top_k > 0):
    raise RequestError(
      f'{name}: top_p={s.top_p}, top_k={s.top_k} cut the distribution, so its '
      "log-probs are not the policy's; sample with top_p=1, top_k=0 for "
      'training, or pass for_training=False for evaluation.'
    )


def mix_seed(engine: int, request: int) -> int:
  """Two seeds of any size -> 32 bits, well spread."""
  words = [engine & (2**64 - 1), request & (2**64 - 1)]
  return int(np.random.SeedSequence(words).generate_state(1)[0])


def stop_length(
  token_ids: Sequence[int] | np.ndarray,
  stop: Sequence[str],
  decode: Callable[[Any], str] | None,
) -> int | None:
  """Tokens up to and with the one that completes a stop text; None if none.

  Matched on the text of the ids, which may part a stop text anywhere.
  """
  if not stop:
    return None
  assert decode is not None  # stop texts need one: `check_request`
  if not has_stop(decode(token_ids), stop):
    return None
  # Once a text holds a stop text, any longer one does: halves may be searched.
  lengths = range(1, len(token_ids) + 1)
  return 1 + bisect.bisect_left(
    lengths, True, key=lambda n: has_stop(decode(token_ids[:n]), stop)
  )


def has_stop(text: str, stop: Sequence[str]) -> bool:
  return any(s in text for s in stop)


def before_stop(text: str, stop: Sequence[str]) -> str:
  """The text before the first stop text in it."""
  return text[: min((text.find(s) for s in stop if s in text), default=None)]
