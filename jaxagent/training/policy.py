"""The policy of a run: state -> prompt, request to the engine, response's text."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from jaxagent import types
from jaxagent.envs.agents import Prompter
from jaxagent.rollout.engine import Engine, before_stop


def seed_of(*parts) -> int:
  """Returns a 31-bit seed from anything printable; the same on every machine."""
  text = '\x1f'.join(str(p) for p in parts)
  digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
  return int.from_bytes(digest, 'little') & 0x7FFFFFFF


@dataclasses.dataclass
class PolicySampler:
  """Tokenizer, prompter, sampling options and engine of a policy.

  engine: samples with the policy's weights.
  specs: task name -> TaskSpec.
  prompter: state -> the text that it is shown.
  """

  engine: Engine
  tokenizer: Any
  specs: dict[str, types.TaskSpec]
  prompter: Prompter
  sampling: types.Sampling
  max_prompt_tokens: int

  def prompt_ids(self, state: types.State) -> np.ndarray:
    """Returns the prompt's tokens, int32 [P].

    A prompt that is too long is shortened by its oldest observations; one that is
    still too long loses its first tokens.
    """
    ids = self.tokenizer.encode_prompt(
      self.prompt_text(state), self.max_prompt_tokens
    )
    return np.asarray(ids, np.int32)

  def prompt_text(self, state: types.State) -> str:
    """Returns the text of the prompt, without that of the chat template."""
    return self.prompter.text(state, self.specs[state.task], self._fits)

  def _fits(self, text: str) -> bool:
    room = self.max_prompt_tokens
    return len(self.tokenizer.encode_prompt(text)) <= room

  def request(
    self, prompt: np.ndarray, request_id: str, seed: int
  ) -> types.Request:
    """Returns a request to the engine with the policy's sampling options."""
    return types.Request(request_id, prompt, seed, self.sampling)

  def text(self, completion: types.Completion) -> str:
    """Returns the response's text, without the end token or the stop text."""
    text = self.tokenizer.decode_response(completion.token_ids)
    return before_stop(text, self.sampling.stop)
