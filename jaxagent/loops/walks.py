"""Interactions driven in step, without a scheduler: how policies are evaluated.

All that wait for a completion are answered in one call of the engine, then all
that wait for an execution are carried out, and so on until each has ended.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from jaxagent import disk, interactions
from jaxagent.envs.interfaces import TextModelError
from jaxagent.loops.errors import in_one_line


@dataclasses.dataclass
class Walk:
  """One interaction under way.

  missing: why a fault of the machinery ended it; '' where none did.
  """

  task: str
  index: int
  progress: interactions.Progress
  missing: str = ''

  @property
  def call(self) -> interactions.Call | None:
    """What it waits for; None where it has ended."""
    if self.missing or self.progress.finished:
      return None
    (call,) = self.progress.open.values()
    return call

  @property
  def role(self) -> str:
    """Whose completion it waits for; '' where for none."""
    return getattr(self.call, 'role', '')


W = TypeVar('W', bound=Walk)
# Walks that wait for the same role, and the step -> their results; the error
# of one that got none.
Draw = Callable[[Sequence[W], int], Iterable[Any]]
# A walk, the step, what its job's id ends in -> '', or a fault of ours.
Act = Callable[[W, int, str], str]


def drive(
  host,
  walks: Sequence[W],
  draws: Mapping[str, Draw],
  act: Act,
  done: Callable[[], None] = lambda: None,
) -> None:
  """Drives every walk to its end.

  draws: role -> how its completions are drawn.
  act: carries out a walk's execution and takes in its result.
  done: called after each execution.
  """
  with concurrent.futures.ThreadPoolExecutor(
    2 * host.config.sandbox.slots
  ) as executor:
    for step in itertools.count():
      if all(w.call is None for w in walks):
        return
      _answer(walks, draws, step)
      futures = [
        executor.submit(_attempt, act, walk, step)
        for walk in walks
        if walk.call is not None
      ]
      try:
        for future in concurrent.futures.as_completed(futures):
          future.result()
          done()
          host.stop.check('finished stages are kept')
      except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        raise


def _answer(walks: Sequence[W], draws: Mapping[str, Draw], step: int) -> None:
  """Until nothing waits for a completion."""
  while any(w.role for w in walks):
    for role, draw in draws.items():
      waiting = [w for w in walks if w.role == role]
      if waiting:
        for walk, result in zip(waiting, draw(waiting, step), strict=True):
          if isinstance(result, TextModelError):
            walk.missing = in_one_line(str(result))
          else:
            walk.progress.take(walk.call.call, result)


def _attempt(act: Act, walk: W, step: int) -> None:
  """One execution, tried again after a fault of ours; then it is missing.

  One item must not end the run, nor be averaged as if it were the policy's.
  """
  for suffix in ('', '-again'):
    try:
      fault = act(walk, step, suffix)
    except Exception as error:  # noqa: BLE001 - any fault here is ours
      if disk.is_full(error):
        raise
      fault = f'{type(error).__name__}: {error}'
    if not fault:
      return
  walk.missing = in_one_line(fault)
