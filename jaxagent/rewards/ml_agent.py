"""Reward of paper 000, equation 6."""

from __future__ import annotations

import math

from jaxagent import types

# Options of `ml_agent_reward` that leave out one of its parts (table 2).
SWITCHES = ('binary', 'format_term', 'corner_term')


def sigmoid(x: float) -> float:
  """1 / (1 + exp(-x)) without overflow; 0 and 1 at the infinities."""
  if x >= 0:
    return 1.0 / (1.0 + math.exp(-x))
  z = math.exp(x)
  return z / (1.0 + z)


def ml_agent_reward(
  outcome: types.Outcome,
  *,
  valid_action: bool,
  is_edit: bool,
  score_before: float | None,
  score_after: float | None,
  alpha: float | None,
  binary: bool = False,
  format_term: bool = True,
  corner_term: bool = True,
) -> float | None:
  """R(s_t, a_t) in [0, 1]; None for a failure of the infrastructure.

  R = 0                              invalid action, or error feedback
    = 0.5                            valid and no edit, or a corner case
    = sigmoid(alpha (m_t+1 - m_t))   edit that ran and was graded

  alpha = 100 / (m_best - m_init) is negative where lower is better, so a
  better score gives more than 0.5 either way.

  Args:
    outcome: what became of the action.
    valid_action: a_t is in A_valid (parsed, known, right arguments).
    is_edit: a_t is in A_edit.
    score_before: m_t, of the state.
    score_after: m_{t+1}; None where nothing was graded.
    alpha: the task's scale (TaskSpec.alpha); None where it has none.
    binary: ablation (table 2): performance reward 1 if better, else 0.
    format_term: False is the ablation without the format reward: an invalid
      action and an error earn the neutral 0.5 instead of 0, so that the
      performance of edits alone tells actions apart.
    corner_term: False is the ablation without the corner-case reward: a
      corner case counts as an error.

  Returns:
    A finite float, or None: a failure of the infrastructure (retried, never
    charged), or a gain on a task without a scale.
  """
  if outcome.is_infrastructure:
    return None
  wrong = 0.0 if format_term else 0.5
  if not valid_action:
    return wrong
  if outcome.is_corner_case:
    return 0.5 if corner_term else wrong
  if outcome is not types.Outcome.OK:
    return wrong
  if not is_edit:
    return 0.5
  if score_after is None or not math.isfinite(score_after):
    return wrong  # a score that is no number is never a reward
  if alpha is None:
    return None
  if not math.isfinite(alpha) or alpha == 0:
    raise ValueError(
      f'alpha={alpha!r} must be finite and not zero; see TaskSpec.alpha.'
    )
  if score_before is None or not math.isfinite(score_before):
    # Nothing to compare with: the first score of a state is neutral.
    return 0.5
  gain = alpha * (score_after - score_before)
  if binary:
    return 1.0 if gain > 0 else 0.0
  return sigmoid(gain)
