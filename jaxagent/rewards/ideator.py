"""Reward of paper 001, equation 1: three levels for one idea."""

from __future__ import annotations

import enum
import math

from jaxagent import types

FIRST_SCORES = ('1', '0', 'leave_out')


class IdeaResult(str, enum.Enum):
  """Names of what became of an idea.

  improved: the score rose by more than the margin.
  first_score: there was no score before, and a valid one came.
  not_better: a valid score that does not rise by more than the margin.
  no_op: the Implementer's program equals the present one but for seeds.
  no_submission: the step ended without a submission of its own.
  failed: the program ended in an error or its submission is not valid.
  bad_message: the Implementer's message does not hold exactly one action.
  format_error: the Ideator's answer is no idea; nothing was carried out.
  infrastructure: an error of sandbox, grader or endpoint.
  """

  IMPROVED = 'improved'
  FIRST_SCORE = 'first_score'
  NOT_BETTER = 'not_better'
  NO_OP = 'no_op'
  NO_SUBMISSION = 'no_submission'
  FAILED = 'failed'
  BAD_MESSAGE = 'bad_message'
  FORMAT_ERROR = 'format_error'
  INFRASTRUCTURE = 'infrastructure'


def idea_result(
  outcome: types.Outcome,
  *,
  valid_format: bool,
  score_before: float | None,
  score_after: float | None,
  higher_is_better: bool = True,
  is_no_op: bool = False,
  least_gain: float = 0.0,
) -> IdeaResult:
  """Returns what became of an idea.

  Args:
    outcome: of the one step that carried it out; `invalid_action` where the
      Implementer's message does not hold exactly one action.
    valid_format: the answer is an idea.
    score_before, score_after: p_t and p_{t+1}; None or no finite number where there
      is no score.
    is_no_op: its program equals C_t but for seeds.
    least_gain: what a score must rise by more than, in units of the metric.

  Raises ValueError where `least_gain` is no finite number of 0 or more.
  """
  if not (math.isfinite(least_gain) and least_gain >= 0):
    raise ValueError(f'least_gain={least_gain!r} must be 0 or more and finite.')
  if outcome.is_infrastructure:
    return IdeaResult.INFRASTRUCTURE
  if not valid_format or outcome is types.Outcome.INVALID_FORMAT:
    return IdeaResult.FORMAT_ERROR
  if outcome is types.Outcome.INVALID_ACTION:
    return IdeaResult.BAD_MESSAGE
  if is_no_op:
    return IdeaResult.NO_OP
  if outcome is types.Outcome.NO_SUBMISSION:
    return IdeaResult.NO_SUBMISSION
  if outcome is not types.Outcome.OK or not _is_score(score_after):
    return IdeaResult.FAILED
  if not _is_score(score_before):
    return IdeaResult.FIRST_SCORE
  sign = 1.0 if higher_is_better else -1.0
  gain = sign * (score_after - score_before)  # type: ignore[operator]
  return IdeaResult.IMPROVED if gain > least_gain else IdeaResult.NOT_BETTER


def reward_of(result: IdeaResult, *, first_score: str = '1') -> float | None:
  """Returns equation 1 for a result.

  first_score: of FIRST_SCORES: what a first valid score earns.

  None for an infrastructure error, and for a first score with 'leave_out'. Raises
  ValueError for another `first_score`.
  """
  if first_score not in FIRST_SCORES:
    raise ValueError(
      f'first_score={first_score!r}; choose one of {", ".join(FIRST_SCORES)}.'
    )
  if result is IdeaResult.INFRASTRUCTURE:
    return None
  if result is IdeaResult.FIRST_SCORE:
    return None if first_score == 'leave_out' else float(first_score)
  if result is IdeaResult.FORMAT_ERROR:
    return -1.0
  return 1.0 if result is IdeaResult.IMPROVED else 0.0


def ideator_reward(
  outcome: types.Outcome,
  *,
  valid_format: bool,
  score_before: float | None,
  score_after: float | None,
  higher_is_better: bool = True,
) -> float | None:
  """+1 better than before; 0 not better or failed run; -1 format error.

  Equation 1 as the paper has it, `reward_of` without margin. Without a score before,
  any graded solution counts as better. None for a failure of the infrastructure.
  """
  return reward_of(
    idea_result(
      outcome,
      valid_format=valid_format,
      score_before=score_before,
      score_after=score_after,
      higher_is_better=higher_is_better,
    )
  )


def _is_score(score: float | None) -> bool:
  return score is not None and math.isfinite(score)
