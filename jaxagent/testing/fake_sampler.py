"""A sampler that draws one token: the arm of a bandit."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from jaxagent.rollout.requests import (
  GenerationRequest,
  GenerationResult,
  Key,
  ResultQueue,
)
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.types import Completion


class ArmSampler:
  """Draws arms from a softmax policy; `token_ids[0]` is the arm.

  Args:
    inbox: gets the completions; at once, or on a virtual clock after
      `latency_s`.
    logits: float [A]; assign `logits` to change the policy.
    seed: seeds the draws, in order of calls.
  """

  def __init__(
    self,
    inbox: ResultQueue,
    logits: np.ndarray,
    seed: int = 0,
    latency_s: float = 0.0,
  ):
    self.version = 0
    self.logits = np.asarray(logits, np.float64)
    self._inbox = inbox
    self._rng = np.random.default_rng(seed)
    self._latency_s = latency_s
    self._cancelled: set[Key] = set()

  @property
  def logprobs(self) -> np.ndarray:
    """Log-probability of each arm, float64 [A]."""
    shifted = self.logits - self.logits.max()
    return shifted - np.log(np.exp(shifted).sum())

  def submit(self, asks: Sequence[GenerationRequest]) -> None:
    for result in self._drawn(asks):
      if self._latency_s and isinstance(self._inbox, VirtualInbox):
        at = self._inbox.clock.now() + self._latency_s
        self._inbox.at(at, functools.partial(self._put, result))
      else:
        self._inbox.put(result)

  def cancel(self, key: Key) -> None:
    self._cancelled.add(key)

  def close(self) -> None:
    pass

  def _put(self, result: GenerationResult) -> None:
    if result.key not in self._cancelled:
      self._inbox.put(result)

  def _drawn(self, asks: Sequence[GenerationRequest]) -> list[GenerationResult]:
    logp = self.logprobs
    cumulative = np.cumsum(np.exp(logp))
    draws = self._rng.random(len(asks)) * cumulative[-1]
    arms = np.searchsorted(cumulative, draws, side='right')
    arms = np.minimum(arms, len(logp) - 1)
    return [
      GenerationResult(
        ask.key,
        Completion(
          request_id=str(ask.key),
          prompt_ids=ask.call.prompt,
          token_ids=np.array([a], np.int32),
          logprobs=np.array([logp[a]], np.float32),
          version_spans=((self.version, 0, 1),),
          finish_reason='stop',
        ),
      )
      for ask, a in zip(asks, arms)
    ]
