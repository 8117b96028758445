"""Asks experts and agents that answer with text."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from typing import Any

from jaxagent import types
from jaxagent.envs.interfaces import MOST_THOUGHTS, Expert, NoText


def asked(
  expert: Expert,
  state: types.State,
  spec: types.TaskSpec,
  rng: random.Random,
  ideas: Sequence[str] = (),
  *,
  is_measured: bool = False,
) -> types.TextCompletion:
  """Returns the expert's response with its cost in tokens and seconds.

  is_measured: where the model says nothing, that is its response: judging it is the
    environment's business.
  Raises TextModelError where the model gives no answer.
  """
  began = time.monotonic()
  with _meter(expert) as tokens:
    try:
      text = expert.act(state, spec, rng, ideas)
    except NoText:
      if not is_measured:
        raise
      text = ''
  cost: dict[str, Any] = {**tokens, 'answer_s': time.monotonic() - began}
  if thoughts := getattr(text, 'thoughts', ''):
    cost['thoughts'] = thoughts[-MOST_THOUGHTS:]
  return types.TextCompletion(str(text), cost)


def _meter(expert: Expert) -> contextlib.AbstractContextManager[dict[str, int]]:
  """Counts the tokens of what an expert behind an endpoint is asked."""
  client = getattr(expert, 'client', None)
  if expert.is_stand_in or client is None:
    return contextlib.nullcontext({})
  return client.meter()
