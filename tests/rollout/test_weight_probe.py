"""The trainer's half of the proof that a server has its weights."""

from __future__ import annotations

import numpy as np

from jaxagent.devices import accelerator
from jaxagent.runtime import engines


def test_it_is_scored_in_turn_with_the_learners_programs(monkeypatch):
  """Until its result is there: it may be on devices that others wait for."""
  monkeypatch.setattr(accelerator, 'takes_turns', lambda: True)
  held = []

  class Result:
    def __array__(self, dtype=None, copy=None):
      held.append(len(accelerator._TURNS._queue))
      return np.zeros(3, dtype)

  def program(graphdef, params, tokens):
    held.append(len(accelerator._TURNS._queue))
    assert tokens.shape == (1, 4)
    return Result()

  monkeypatch.setattr(engines, '_log_probs', program)
  assert engines._score(lambda params: None, None, np.arange(4)).shape == (3,)
  assert held == [1, 1] and not accelerator._TURNS._queue
