"""One interaction under way: results in, calls out, the contract checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sized
from typing import Any, cast

import numpy as np

from jaxagent.errors import UserError
from jaxagent.interactions.calls import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Interaction,
  InteractionError,
  Transition,
)
from jaxagent.types import Completion, Executed, TextCompletion

Result = Completion | TextCompletion | str | Executed

MAX_CALLS = 1000


class RolloutState:
  """Folds results through an interaction. Not thread-safe.

  open: call number -> call without a result, in the order they were made.
  results: (call, result) in the order taken in. Folding them again restores
    this object: nothing else of it need be saved.

  Args:
    interaction: the reducer.
    payload: what it starts from.
    roles: those that have an endpoint.
    max_calls: more of them are an interaction that never ends.

  Raises InteractionError where the interaction raises or breaks its contract.
  """

  def __init__(
    self,
    interaction: Interaction,
    payload: Any,
    *,
    roles: Collection[str] = (POLICY,),
    max_calls: int = MAX_CALLS,
  ):
    self.open: dict[int, Call] = {}
    self.results: list[tuple[Call, Result]] = []
    self.credits: Mapping[int, Credit] | None = None
    self._interaction = interaction
    self._roles, self._max_calls = roles, max_calls
    self._made: set[int] = set()
    self._enter(self._guarded('start', payload))

  @property
  def finished(self) -> bool:
    return self.credits is not None

  @property
  def state(self) -> Any:
    """State of the interaction after the last result."""
    return self._state

  def take(self, call: int, result: Result) -> tuple[Call, ...]:
    """Takes in the result of an open call; returns the calls that it opens.

    Raises KeyError for a call that is not open.
    """
    made = self.open.pop(call)
    self.results.append((made, result))
    return self._enter(self._guarded('advance', self._state, made, result))

  def fold(self, results: Iterable[tuple[int, Result]]) -> None:
    """Takes in results that were known before, in their order."""
    for call, result in results:
      if call not in self.open:
        raise InteractionError(
          f'{self._name}: restored, it has no call {call}, which it made '
          'before; it must be a pure function of its payload and results.'
        )
      self.take(call, result)

  @property
  def completions(self) -> list[tuple[Generate, Completion]]:
    """The policy's own, in the order taken in."""
    return [
      (call, cast(Completion, result))
      for call, result in self.results
      if isinstance(call, Generate) and call.role == POLICY
    ]

  @property
  def _name(self) -> str:
    return type(self._interaction).__name__

  def _guarded(self, method: str, *arguments) -> Transition:
    """A step of foreign code: whatever it raises is a fault with its name.

    But for a `UserError`, which ends the run.
    """
    try:
      step = getattr(self._interaction, method)(*arguments)
    except UserError:
      raise
    except Exception as error:  # noqa: BLE001 - a recipe may raise anything
      raise InteractionError(
        f'{self._name}.{method} raised {type(error).__name__}: {error}'
      ) from error
    if not isinstance(step, Transition):
      raise InteractionError(
        f'{self._name}.{method} gave a {type(step).__name__}, not a Transition.'
      )
    return step

  def _enter(self, step: Transition) -> tuple[Call, ...]:
    self._state = step.state
    for call in step.calls:
      self._check_call(call)
      self._made.add(call.call)
      self.open[call.call] = call
    if step.credits is not None:
      self._check_credits(step.credits)
      self.credits = step.credits
    elif not self.open:
      raise InteractionError(
        f'{self._name} has no open call and gives no credits: it never ends.'
      )
    return tuple(step.calls)

  def _check_call(self, call: Call) -> None:
    if not isinstance(call, Generate | Execute):
      raise InteractionError(
        f'{self._name} asks for a {type(call).__name__}; calls are Generate '
        'and Execute.'
      )
    if call.call in self._made:
      raise InteractionError(f'{self._name} makes call {call.call} twice.')
    if len(self._made) >= self._max_calls:
      raise InteractionError(
        f'{self._name} makes more than {self._max_calls} calls and has not '
        'ended.'
      )
    if isinstance(call, Generate):
      if call.role not in self._roles:
        raise InteractionError(
          f'{self._name} asks for the role {call.role!r}; there are '
          f'{sorted(self._roles)}.'
        )
      if not _is_prompt(call):
        raise InteractionError(
          f'{self._name}: call {call.call} shows {call.role!r} an empty prompt, '
          'or what is none.'
        )

  def _check_credits(self, credits: Mapping[int, Credit]) -> None:
    if self.open:
      raise InteractionError(
        f'{self._name} gives credits with calls {sorted(self.open)} open.'
      )
    mine = {call.call for call, _ in self.completions}
    if set(credits) != mine:
      raise InteractionError(
        f'{self._name} credits calls {sorted(credits)}; the policy made '
        f'{sorted(mine)}.'
      )
    for number, credit in credits.items():
      if credit.reason is None and not math.isfinite(credit.value):
        raise InteractionError(
          f'{self._name} gives call {number} the reward {credit.reward}.'
        )
      if not (math.isfinite(credit.exec_s) and credit.exec_s > 0):
        raise InteractionError(
          f'{self._name} gives call {number} exec_s={credit.exec_s}; it must '
          'be finite and above zero.'
        )


def _is_prompt(call: Generate) -> bool:
  prompt = call.prompt
  if prompt is None or isinstance(prompt, Sized) and len(prompt) == 0:
    return False
  if call.role != POLICY:
    return True
  ids = isinstance(prompt, np.ndarray) and prompt.ndim == 1
  return ids and np.issubdtype(prompt.dtype, np.integer)
