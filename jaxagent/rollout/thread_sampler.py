"""Sampler of frozen roles: each draws on a thread of its own.

What has gathered while the thread was busy is drawn in one call, and nothing
waits for a wave. The policy's sampler is in `engine_sampler`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from jaxagent.envs.interfaces import TextModelError
from jaxagent.rollout.inbox import JournalledInbox
from jaxagent.rollout.work import Ask, Key, Sampled
from jaxagent.types import Completion

Draw = Callable[[Sequence[Ask]], Sequence[Completion | str]]


class ThreadSampler:
  """Serves the roles of `draws`, each with a blocking call.

  Args:
    inbox: gets the completions.
    draws: role -> a call that draws one completion for each ask, in order.
      `TextModelError` (an endpoint that does not answer) and a completion
      that was aborted are faults of ours, and the asks are tried again; any
      other exception ends the run: whoever takes from the inbox gets it.
  """

  def __init__(self, inbox: JournalledInbox, draws: Mapping[str, Draw]):
    self._inbox = inbox
    self._queues = {role: queue.SimpleQueue() for role in draws}
    self._unwanted: set[Key] = set()
    self._lock = threading.Lock()
    self._threads = [
      threading.Thread(
        target=self._serve, args=(role, draw), name=f'draw-{role}', daemon=True
      )
      for role, draw in draws.items()
    ]
    for thread in self._threads:
      thread.start()

  def submit(self, asks: Sequence[Ask]) -> None:
    by_role: dict[str, list[Ask]] = {}
    for ask in asks:
      by_role.setdefault(ask.call.role, []).append(ask)
    for role, some in by_role.items():
      self._queues[role].put(some)

  def cancel(self, key: Key) -> None:
    with self._lock:
      self._unwanted.add(key)

  def close(self) -> None:
    """Lets each thread end after its present call; waits up to 5 s."""
    for waiting in self._queues.values():
      waiting.put(None)
    for thread in self._threads:
      thread.join(5.0)

  def _serve(self, role: str, draw: Draw) -> None:
    waiting = self._queues[role]
    while (asks := waiting.get()) is not None:
      with contextlib.suppress(queue.Empty):
        while (more := waiting.get_nowait()) is not None:
          asks = [*asks, *more]
        waiting.put(None)  # the end was called for
      asks = self._wanted(asks)
      if asks:
        self._draw(draw, asks)
        self._wanted(asks)  # forgets what was cancelled meanwhile

  def _wanted(self, asks: Sequence[Ask]) -> list[Ask]:
    with self._lock:
      kept = [a for a in asks if a.key not in self._unwanted]
      self._unwanted.difference_update(a.key for a in asks)
    return kept

  def _draw(self, draw: Draw, asks: Sequence[Ask]) -> None:
    try:
      completions = list(draw(asks))
      if len(completions) != len(asks):
        raise ValueError(
          f'{len(completions)} completions were drawn for {len(asks)} asks.'
        )
    except TextModelError as error:
      for ask in asks:
        self._inbox.put(Sampled(ask.key, None, str(error)))
      return
    except Exception as error:  # noqa: BLE001 - told to the loop's thread
      self._inbox.fail(error)
      return
    for ask, completion in zip(asks, completions):
      if getattr(completion, 'finish_reason', None) == 'abort':
        self._inbox.put(Sampled(ask.key, None, 'the engine gave it up'))
      else:
        self._inbox.put(Sampled(ask.key, completion))
