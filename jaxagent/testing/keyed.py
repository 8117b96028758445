"""Samplers and actions that depend on a call's key alone, whenever it is made.

So two runs of the same seed can be compared whatever happened to either.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Transition,
)
from jaxagent.rollout.requests import (
  ExecutionRequest,
  GenerationRequest,
  GenerationResult,
  Key,
  ResultQueue,
)
from jaxagent.testing.bandit import Pull
from jaxagent.testing.fake_executor import Action
from jaxagent.types import Completion

HELPER = 'helper'


def rng_of(key: Key, salt: int = 0) -> np.random.Generator:
  return np.random.default_rng([zlib.crc32(str(key).encode()), salt])


class KeyedSampler:
  """Answers at once with 1 to 4 tokens; `version` is the policy's."""

  def __init__(self, inbox: ResultQueue):
    self.version = 0
    self._inbox = inbox

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    for ask in asks:
      rng = rng_of(ask.key)
      ids = rng.integers(1, 64, rng.integers(1, 5)).astype(np.int32)
      completion = Completion(
        str(ask.key),
        ask.call.prompt,
        ids,
        rng.normal(-4, 1, len(ids)).astype(np.float32),
        ((self.version, 0, len(ids)),),
        'stop',
      )
      self._inbox.put(GenerationResult(ask.key, completion))

  def cancel(self, key: Key) -> None:
    pass

  def close(self) -> None:
    pass


def act(work: ExecutionRequest) -> Action:
  """Durations are log-normal with median 1 s; rewards uniform."""
  rng = rng_of(work.key, 1)
  return Action(float(np.exp(rng.standard_normal())), float(rng.random()))


class Helped:
  """`turns` rounds: a frozen helper speaks, the policy answers, it is run.

  The policy's prompt extends all before, the helper's words and the
  execution's time among them.
  """

  roles = (POLICY, HELPER)

  def __init__(self, turns: int):
    self._turns = turns

  def start(self, payload: Any) -> Transition:
    shown = np.array([1], np.int32)
    return Transition((payload, shown, ()), (Generate(0, shown, HELPER),))

  def advance(self, state: Any, call: Call, result: Any) -> Transition:
    payload, shown, done = state
    if isinstance(call, Execute):
      done = (*done, (result.record.paid, result.exec_s, result.outcome))
      if len(done) == self._turns:
        credits = {3 * i + 1: Credit(*one) for i, one in enumerate(done)}
        return Transition(None, credits=credits)
      shown = np.append(shown, np.int32(1 + int(result.exec_s) % 60))
      return Transition(
        (payload, shown, done), (Generate(call.call + 1, shown, HELPER),)
      )
    shown = np.concatenate([shown, result.token_ids])
    if call.role == HELPER:
      return Transition(
        (payload, shown, done), (Generate(call.call + 1, shown),)
      )
    pull = Pull(payload, int(result.token_ids[0]), len(done))
    return Transition((payload, shown, done), (Execute(call.call + 1, pull),))
