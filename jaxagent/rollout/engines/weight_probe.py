"""The proof that a server samples from the trainer's weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxagent import types
from jaxagent.rollout.engine import EngineError

_TOKENS = 2  # the prompt, and a step beside its keys


class LogProbProbe:
  """Compares the log-probs of one fixed request, drawn after every update.

  The prompt is the same each time, so that keys of earlier weights that a
  server still holds for it show.

  Args:
    score: (params, token ids [T]) -> log-prob of each but the first [T - 1].
    vocab_size, prompt_tokens: of the prompt, which is drawn from `seed`.
    max_gap_nats: above it, the `bound`, the weights are not the trainer's. Rounding gives
      about 1e-5 in float32 and up to 0.1 in bfloat16.
  """

  def __init__(
    self,
    score: Callable[[Any, np.ndarray], np.ndarray],
    *,
    vocab_size: int,
    prompt_tokens: int,
    max_gap_nats: float,
    seed: int = 0,
  ):
    self._score, self.bound = score, max_gap_nats
    rng = np.random.default_rng([seed, 11])
    prompt = rng.integers(0, vocab_size, prompt_tokens).astype(np.int32)
    sampling = types.Sampling(max_new_tokens=_TOKENS)
    self.request = types.Request('probe', prompt, seed, sampling)
    self.gap_nats = 0.0  # the largest of the last check

  def gap(self, completion: types.Completion, params: Any) -> float:
    """Returns the largest distance of its log-probs from those of `params`, in nats."""
    prompt, drawn = completion.prompt_ids, completion.token_ids
    scored = self._score(params, np.concatenate([prompt, drawn]))
    gaps = np.abs(scored[len(prompt) - 1 :] - completion.logprobs)
    return float(gaps.max(initial=0.0))

  def check(self, completion: types.Completion, params: Any, url: str) -> None:
    """Raises EngineError where the gap is above the bound."""
    self.gap_nats = self.gap(completion, params)
    if not self.gap_nats <= self.bound:
      raise EngineError(
        f'{url}: log-probs of a fixed request differ by {self.gap_nats:.3g} '
        f"nats from the trainer's, above {self.bound:g}. The server does not "
        'have the weights that it was given, or runs in another precision: '
        'compare its --dtype with model.dtype, and only then raise '
        'rollout.vllm.max_gap_nats.'
      )
