"""Sampler of a frozen role: each answer is a blocking call on a thread of its own.

An answer is handed on when it is there, whatever others take. The policy's sampler is
in `engine_sampler`.
"""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Sequence

from jaxagent.envs.interfaces import TextModelError
from jaxagent.rollout.requests import GenerationRequest, GenerationResult, Key
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.types import Completion, TextCompletion

Draw = Callable[[GenerationRequest], Completion | TextCompletion | str]


@dataclasses.dataclass(frozen=True)
class FrozenRole:
  """Sampler of a frozen role's answers: `draw`, and how many at once."""

  draw: Draw
  max_concurrency: int = 1


class ThreadSampler:
  """Serves one role with a blocking call.

  Args:
    inbox: gets the completions.
    draw: answers one ask; thread-safe. `TextModelError` (an endpoint that does not
      answer) and a completion that was aborted are infrastructure errors, and the ask
      is tried again; any other exception ends the run: taking from the inbox raises it.
    max_concurrency: answers that are drawn at once.
  """

  def __init__(
    self, inbox: JournalledQueue, draw: Draw, *, max_concurrency: int = 1
  ):
    if max_concurrency < 1:
      raise ValueError(
        f'max_concurrency={max_concurrency!r} must be 1 or more.'
      )
    self._inbox, self._draw = inbox, draw
    self._waiting: queue.SimpleQueue[GenerationRequest | None] = (
      queue.SimpleQueue()
    )
    # Asks that wait or are drawn.
    self._open: collections.Counter[Key] = collections.Counter()
    self._unwanted: set[Key] = set()  # of those that are open
    self._lock = threading.Lock()
    self._most = max_concurrency
    self._threads: list[threading.Thread] = []  # as many as were ever needed

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    with self._lock:
      self._open.update(ask.key for ask in asks)
      while len(self._threads) < min(self._most, self._open.total()):
        name = f'sampler-{len(self._threads)}'
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
    for ask in asks:
      self._waiting.put(ask)

  def cancel(self, key: Key) -> None:
    with self._lock:
      if key in self._open:  # another role's would be kept for ever
        self._unwanted.add(key)

  def close(self) -> None:
    """Lets each thread end after its present call; waits up to 5 s."""
    with self._lock:
      self._unwanted.update(self._open)
    for _ in self._threads:
      self._waiting.put(None)
    end = time.monotonic() + 5.0
    for thread in self._threads:
      thread.join(max(0.0, end - time.monotonic()))

  def _serve(self) -> None:
    while (ask := self._waiting.get()) is not None:
      if self._is_wanted(ask):
        self._answer(ask)
      self._forget(ask)

  def _is_wanted(self, ask: GenerationRequest) -> bool:
    with self._lock:
      if ask.key not in self._unwanted:
        return True
      self._unwanted.discard(ask.key)
      return False

  def _forget(self, ask: GenerationRequest) -> None:
    """Forgets a finished ask; one that was asked again meanwhile stays open."""
    with self._lock:
      self._open.subtract([ask.key])
      self._open = +self._open  # without what is at zero
      self._unwanted.intersection_update(self._open)

  def _answer(self, ask: GenerationRequest) -> None:
    try:
      completion = self._draw(ask)
    except TextModelError as error:
      message = f'{type(error).__name__}: {error}'
      self._inbox.put(GenerationResult(ask.key, None, message))
    except Exception as error:  # noqa: BLE001 - raised in the loop's thread
      self._inbox.fail(error)
    else:
      if getattr(completion, 'finish_reason', None) == 'abort':
        self._inbox.put(
          GenerationResult(ask.key, None, 'the engine gave it up')
        )
      else:
        self._inbox.put(GenerationResult(ask.key, completion))
