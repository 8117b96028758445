"""Calls that an interaction makes, their results, and its final credits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from jaxagent.types import NoReward, Outcome, Record

# The role that is trained. Every other one is frozen: it has an endpoint of
# its own, no rows, and no staleness.
POLICY = 'policy'


class InteractionError(ValueError):
  """An interaction broke its contract; the message names it and what it did."""


@dataclasses.dataclass(frozen=True)
class Generate:
  """One completion by a role.

  call: number of the call, unique within the interaction, 0 or more.
  prompt: what the role is shown, not empty. The policy: its ids, int32 [P]; a
    frozen role: what its endpoint takes.

  Its result is a `types.Completion`; of a frozen role that speaks text, a
  `types.TextCompletion` or a str.
  """

  call: int
  prompt: Any
  role: str = POLICY


@dataclasses.dataclass(frozen=True)
class Execute:
  """One execution; its result is a `types.Executed`.

  request: what the recipe's executor is to carry out.
  """

  call: int
  request: Any


Call = Generate | Execute


@dataclasses.dataclass(frozen=True)
class Credit:
  """The reward and the cost of the tokens of one policy call.

  reward: of this call alone; later ones are added where returns are computed. Or
    the reason why there is none: nothing is learned from it then, and its tokens
    become observation. None is `not_credited`.
  exec_s: seconds of the execution clock, > 0; the call's duration weight.
  record: what traces keep of the call; None where there is nothing to keep.
  """

  reward: float | NoReward | None
  exec_s: float
  outcome: Outcome = Outcome.OK
  record: Record | None = None

  @property
  def reason(self) -> NoReward | None:
    """The reason for having no reward; None if there is one."""
    if self.reward is None:
      return NoReward.NOT_CREDITED
    return self.reward if isinstance(self.reward, NoReward) else None

  @property
  def value(self) -> float:
    """The reward. Raises ValueError where there is none."""
    if self.reward is None or isinstance(self.reward, NoReward):
      raise ValueError('a call without a reward has no value.')
    return float(self.reward)


@dataclasses.dataclass(frozen=True)
class Transition:
  """State of an interaction after one event.

  state: plain data, never changed in place.
  calls: to be carried out next, in any order or at once.
  credits: call -> Credit of every policy call; not None ends the interaction.
  """

  state: Any
  calls: tuple[Call, ...] = ()
  credits: Mapping[int, Credit] | None = None


class Interaction(Protocol):
  """A pure reducer: the same arguments give the same step."""

  def start(self, payload: Any) -> Transition:
    """The first step for one item of the pool."""
    ...

  def advance(self, state: Any, call: Call, result: Any) -> Transition:
    """The step after `result`, which answers the open `call`."""
    ...
