"""Interactions of `turns` arms pulled one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxagent.interactions import Call, Credit, Execute, Generate, Transition


@dataclasses.dataclass(frozen=True)
class Pull:
  """Payload of an execution: the arm drawn for an item."""

  payload: Any
  arm: int
  turn: int


@dataclasses.dataclass(frozen=True)
class Bandit:
  """`turns` pairs of a completion and an execution.

  The reward comes from the execution's record (`arms`). Each turn's prompt extends
  all before, and the execution's duration is observed.
  """

  turns: int = 1

  def start(self, payload: Any) -> Transition:
    return Transition((payload, ()), (Generate(0, np.zeros(1, np.int32)),))

  def advance(self, state: Any, call: Call, result: Any) -> Transition:
    payload, done = state[:2]
    if isinstance(call, Generate):
      arm = int(result.token_ids[0])
      shown = np.concatenate([result.prompt_ids, result.token_ids])
      return Transition(
        (payload, done, shown),
        (Execute(call.call + 1, Pull(payload, arm, len(done))),),
      )
    shown = state[2]
    done = (*done, (result.record.paid, result.exec_s, result.outcome))
    if len(done) < self.turns:
      shown = np.append(shown, np.int32(len(done)))
      return Transition((payload, done), (Generate(call.call + 1, shown),))
    return Transition(
      None, credits={2 * i: Credit(*one) for i, one in enumerate(done)}
    )
