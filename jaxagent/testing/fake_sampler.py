"""A sampler that draws one token: the arm of a bandit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxagent.types import Completion, Prompt

_PROMPT = np.zeros(1, np.int32)


class ArmSampler:
  """Draws arms from a softmax policy; `token_ids[0]` is the arm.

  Args:
    logits: float [A]; assign `logits` to change the policy.
    seed: seeds the draws, in order of calls.
  """

  def __init__(self, logits: np.ndarray, seed: int = 0):
    self._rng = np.random.default_rng(seed)
    self.logits = np.asarray(logits, np.float64)

  @property
  def logprobs(self) -> np.ndarray:
    """Log-probability of each arm, float64 [A]."""
    shifted = self.logits - self.logits.max()
    return shifted - np.log(np.exp(shifted).sum())

  def __call__(
    self, prompts: Sequence[Prompt], version: int
  ) -> list[Completion]:
    logp = self.logprobs
    cumulative = np.cumsum(np.exp(logp))
    draws = self._rng.random(len(prompts)) * cumulative[-1]
    arms = np.searchsorted(cumulative, draws, side='right')
    arms = np.minimum(arms, len(logp) - 1)
    return [
      Completion(
        request_id=p.prompt_id,
        prompt_ids=_PROMPT,
        token_ids=np.array([a], np.int32),
        logprobs=np.array([logp[a]], np.float32),
        version_spans=((version, 0, 1),),
        finish_reason='stop',
      )
      for p, a in zip(prompts, arms)
    ]
