"""Requests and results between the scheduler, samplers and executors.

Samplers and executors work on other threads, or on a virtual clock. They take
orders and put what became of them into the inbox they were made with; nothing
they are asked blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from jaxagent.clock import Clock
from jaxagent.interactions import Execute, Generate
from jaxagent.types import (
  Completion,
  Executed,
  Outcome,
  Prompt,
  TextCompletion,
)


@dataclasses.dataclass(frozen=True)
class Key:
  """Names one call: of which prompt, in which drawing of it, which number.

  draw grows when an interaction begins anew, so that what was still under way
  for the former one is never taken for the new one's.
  """

  prompt_id: str
  draw: int
  call: int

  def __str__(self) -> str:
    return f'{self.prompt_id}#{self.draw}.{self.call}'


@dataclasses.dataclass(frozen=True)
class GenerationRequest:
  """One completion to draw."""

  key: Key
  prompt: Prompt
  call: Generate


@dataclasses.dataclass(frozen=True)
class ExecutionRequest:
  """One execution to carry out.

  attempt grows with each submission of the same call, also beyond a resume,
  and comes back in the result: it tells a late answer from the awaited one.
  """

  key: Key
  prompt: Prompt
  call: Execute
  attempt: int = 1


@dataclasses.dataclass(frozen=True)
class GenerationResult:
  """Result of a `GenerationRequest`. completion None: infrastructure, see `error`."""

  key: Key
  completion: Completion | TextCompletion | str | None
  error: str = ''


@dataclasses.dataclass(frozen=True)
class ExecutionResult:
  """Result of an `ExecutionRequest`; `executed.outcome` may be infrastructure."""

  key: Key
  attempt: int
  executed: Executed
  finished_at: float = 0.0  # on the scheduler's clock, seconds


def failure(
  work: ExecutionRequest, error: str, at: float = 0.0
) -> ExecutionResult:
  """Returns the result of a work that was lost to an infrastructure error."""
  executed = Executed(Outcome.INFRASTRUCTURE, exec_s=0.0, message=error)
  return ExecutionResult(work.key, work.attempt, executed, at)


class ResultQueue(Protocol):
  """Queue of arriving results; thread-safe."""

  def put(self, result: GenerationResult | ExecutionResult) -> None:
    """Called by samplers and executors."""
    ...

  def take(self, timeout_s: float) -> list[GenerationResult | ExecutionResult]:
    """All that is there, once each; waits for the first, or until time is up.

    Raises OSError where the disk is full.
    """
    ...

  def take_and_begin(
    self,
  ) -> tuple[list[GenerationResult | ExecutionResult], int | None]:
    """All that is there, and the journal's new segment, which later results
    are in; None without a journal."""
    ...


class Executor(Protocol):
  """Carries out works in parallel."""

  capacity: int  # works that may be submitted and unanswered at once
  slots: int  # works that run at once

  def submit(self, work: ExecutionRequest) -> None:
    """Starts or queues one work."""
    ...

  def cancel(self, key: Key) -> None:
    """Stops it; no result of it is wanted. Unknown keys are ignored."""
    ...

  def begun(self, key: Key) -> float | None:
    """Returns when a slot took it, on the scheduler's clock; None while queued.

    A lease runs from then.
    """
    ...

  def close(self) -> None:
    """Stops everything; bounded."""
    ...


class Sampler(Protocol):
  """Draws completions, each for the role that its call names."""

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    """Starts or queues them, the policy's with its newest weights."""
    ...

  def cancel(self, key: Key) -> None:
    """Cancels it without a result. Unknown keys are ignored."""
    ...

  def close(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Workers:
  """Sampler, executor, queue of results, and their clock.

  inbox: where sampler and executor put their results.
  """

  sampler: Sampler
  executor: Executor
  inbox: ResultQueue
  clock: Clock
