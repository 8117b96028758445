"""Sampler of a frozen role, which draws on a thread of its own.

What has gathered while the thread was busy is drawn in one call, and nothing
waits for a wave. The policy's sampler is in `engine_sampler`.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

from jaxagent.envs.interfaces import TextModelError
from jaxagent.rollout.inbox import JournalledInbox
from jaxagent.rollout.work import Ask, Key, Sampled
from jaxagent.types import Completion

Draw = Callable[[Sequence[Ask]], Iterable[Completion | str]]


class ThreadSampler:
  """Serves one role with a blocking call.

  Args:
    inbox: gets the completions.
    draw: draws one completion for each ask, in order; an iterator's completions
      are handed on as they come.
      `TextModelError` (an endpoint that does not answer) and a completion
      that was aborted are infrastructure errors, and the asks are tried again;
      any other exception ends the run: taking from the inbox raises it.
  """

  def __init__(self, inbox: JournalledInbox, draw: Draw):
    self._inbox, self._draw = inbox, draw
    self._waiting: queue.SimpleQueue = queue.SimpleQueue()
    # Asks that wait or are drawn.
    self._open: collections.Counter[Key] = collections.Counter()
    self._unwanted: set[Key] = set()  # of those that are open
    self._lock = threading.Lock()
    self._thread = threading.Thread(
      target=self._serve, name='thread-sampler', daemon=True
    )
    self._thread.start()

  def submit(self, asks: Sequence[Ask]) -> None:
    with self._lock:
      self._open.update(ask.key for ask in asks)
    self._waiting.put(list(asks))

  def cancel(self, key: Key) -> None:
    with self._lock:
      if key in self._open:  # another role's would be kept for ever
        self._unwanted.add(key)

  def close(self) -> None:
    """Lets the thread end after its present call; waits up to 5 s."""
    self._waiting.put(None)
    self._thread.join(5.0)

  def _serve(self) -> None:
    while (asks := self._waiting.get()) is not None:
      with contextlib.suppress(queue.Empty):
        while (more := self._waiting.get_nowait()) is not None:
          asks = [*asks, *more]
        self._waiting.put(None)  # the end was called for
      if wanted := self._wanted(asks):
        self._answer(wanted)
      self._forget(asks)

  def _wanted(self, asks: Sequence[Ask]) -> list[Ask]:
    with self._lock:
      kept = [a for a in asks if a.key not in self._unwanted]
      self._unwanted.difference_update(a.key for a in asks)
    return kept

  def _forget(self, asks: Sequence[Ask]) -> None:
    """Forgets finished asks; one that was asked again meanwhile stays open."""
    with self._lock:
      self._open.subtract(ask.key for ask in asks)
      self._open = +self._open  # without what is at zero
      self._unwanted.intersection_update(self._open)

  def _answer(self, asks: Sequence[Ask]) -> None:
    told = 0
    try:
      drawn = self._draw(asks)
      if isinstance(drawn, Sequence) and len(drawn) != len(asks):
        raise ValueError(
          f'{len(drawn)} completions were drawn for {len(asks)} asks.'
        )
      for ask, completion in zip(asks, drawn, strict=True):
        self._tell(ask, completion)
        told += 1
    except TextModelError as error:
      for ask in asks[told:]:
        self._inbox.put(Sampled(ask.key, None, str(error)))
    except Exception as error:  # noqa: BLE001 - raised in the loop's thread
      self._inbox.fail(error)

  def _tell(self, ask: Ask, completion: Completion | str) -> None:
    if getattr(completion, 'finish_reason', None) == 'abort':
      self._inbox.put(Sampled(ask.key, None, 'the engine gave it up'))
    else:
      self._inbox.put(Sampled(ask.key, completion))
