"""The three reward modules against the papers' formulas."""

from __future__ import annotations

import math

import pytest

from jaxagent.rewards.ideator import ideator_reward
from jaxagent.rewards.ml_agent import ml_agent_reward, sigmoid
from jaxagent.rewards.mle import MARKERS, marker_hits, mle_reward
from jaxagent.types import Outcome

OURS = (Outcome.INFRASTRUCTURE, Outcome.GRADER_ERROR)
CORNERS = (
  Outcome.TIMEOUT,
  Outcome.OOM,
  Outcome.OUTPUT_LIMIT,
  Outcome.DISK_LIMIT,
  Outcome.KILLED,
)
ERRORS = (
  Outcome.SCRIPT_ERROR,
  Outcome.NO_SUBMISSION,
  Outcome.INVALID_SUBMISSION,
)


def ml(outcome=Outcome.OK, **changes):
  options = dict(
    valid_action=True,
    is_edit=True,
    score_before=0.5,
    score_after=0.6,
    alpha=200.0,
  )
  return ml_agent_reward(outcome, **{**options, **changes})


def test_ml_agent_equation_6():
  assert ml() == pytest.approx(1 / (1 + math.exp(-20)))
  assert ml(score_after=0.5) == 0.5
  assert ml(score_after=0.49) == pytest.approx(1 / (1 + math.exp(2)))
  # Lower is better: alpha is negative, a lower score earns more.
  assert ml(alpha=-10.0, score_after=0.4) > 0.5 > ml(alpha=-10.0)
  assert ml(is_edit=False, score_after=None) == 0.5


@pytest.mark.parametrize('outcome', CORNERS)
def test_ml_agent_corner_cases(outcome):
  assert ml(outcome, score_after=None) == 0.5
  assert ml(outcome, score_after=None, corner_term=False) == 0.0


@pytest.mark.parametrize('outcome', ERRORS)
def test_ml_agent_errors(outcome):
  assert ml(outcome, score_after=None) == 0.0
  assert ml(outcome, score_after=None, format_term=False) == 0.5


def test_ml_agent_invalid_action_comes_first():
  assert ml(Outcome.INVALID_FORMAT, valid_action=False) == 0.0
  assert ml(Outcome.TIMEOUT, valid_action=False) == 0.0


@pytest.mark.parametrize('outcome', OURS)
def test_our_failures_are_nobodys_reward(outcome):
  assert ml(outcome, valid_action=False) is None
  assert mle_reward(outcome, score=0.5) is None
  assert (
    ideator_reward(
      outcome, valid_format=False, score_before=0.5, score_after=0.6
    )
    is None
  )


@pytest.mark.parametrize('score', [math.nan, math.inf, -math.inf, None])
def test_a_score_that_is_no_number_is_no_reward(score):
  assert ml(score_after=score) == 0.0
  assert ml(score_before=score) == 0.5
  assert mle_reward(Outcome.OK, score=score) == -10.0
  assert (
    ideator_reward(
      Outcome.OK, valid_format=True, score_before=0.5, score_after=score
    )
    == 0.0
  )


def test_ml_agent_extremes_and_binary():
  assert ml(score_after=1e308, alpha=1e308) == 1.0
  assert ml(score_after=-1e308, alpha=1e308) == 0.0
  assert ml(binary=True) == 1.0 and ml(binary=True, score_after=0.5) == 0.0
  with pytest.raises(ValueError, match='alpha=0'):
    ml(alpha=0.0)
  with pytest.raises(ValueError, match='alpha=nan'):
    ml(alpha=math.nan)
  assert sigmoid(math.inf) == 1.0 and sigmoid(-math.inf) == 0.0


def test_mle_partial_credit():
  assert mle_reward(Outcome.OK, score=0.7) == 0.7
  assert mle_reward(Outcome.OK, score=0.7, higher_is_better=False) == -0.7
  output = 'imported packages\nloaded data\n' * 50 + 'x trained model\n'
  assert marker_hits(output) == 2  # once each, at the start of a line
  failed = mle_reward(Outcome.SCRIPT_ERROR, score=None, output=output)
  assert failed == pytest.approx(-9.8)
  everything = '\n'.join(m + ' 1' for m in MARKERS)
  assert mle_reward(
    Outcome.TIMEOUT, score=None, output=everything
  ) == pytest.approx(-10 + 0.1 * len(MARKERS))
  assert (
    mle_reward(
      Outcome.TIMEOUT, score=None, output=everything, instrumented=False
    )
    == -10.0
  )


SCORES = [-1e308, -1e6, -70.3, -53.5, -11.48, -10.0, -8.5, -8.0, -7.9, 0.0, 1.0]


@pytest.mark.parametrize('scale', ['bounded', 'task'])
def test_mle_a_worse_score_pays_less_and_failing_least(scale):
  paid = [
    mle_reward(Outcome.OK, score=s, scale=scale, start=0.0, best=1.0)
    for s in SCORES
  ]
  assert paid == sorted(paid) and len(set(paid)) >= len(paid) - 1
  most = mle_reward(Outcome.TIMEOUT, score=None, milestones=len(MARKERS))
  assert most == pytest.approx(-9.3) and most < paid[0]
  assert paid[SCORES.index(-8.0) :] == [-8.0, -7.9, 0.0, 1.0]
  lower = mle_reward(Outcome.OK, score=11.48, higher_is_better=False)
  assert lower == mle_reward(Outcome.OK, score=-11.48) > most


def test_mle_failures_on_the_scale_of_the_task():
  pay = {'scale': 'task', 'start': 0.0, 'best': 1.0, 'failure': -1.0}
  paid = [mle_reward(Outcome.OK, score=s, **pay) for s in SCORES]
  assert paid == sorted(paid) and paid[-2:] == [0.0, 1.0]
  most = mle_reward(Outcome.TIMEOUT, score=None, milestones=len(MARKERS), **pay)
  assert most == pytest.approx(-0.93) and most < paid[0]
  assert mle_reward(Outcome.TIMEOUT, score=None, **pay) == -1.0
  for failure in (0.0, 1.0, math.nan, -math.inf):
    with pytest.raises(ValueError, match='failure=.* must be a number below 0'):
      mle_reward(Outcome.OK, score=1.0, failure=failure)


def test_mle_scales():
  raw = mle_reward(Outcome.OK, score=11.48, higher_is_better=False, scale='raw')
  assert raw == -11.48  # as in the paper: less than a failure
  assert mle_reward(Outcome.OK, score=-1e40, scale='raw') == -1e12
  of_task = dict(higher_is_better=False, scale='task', start=70.0, best=54.0)
  assert mle_reward(Outcome.OK, score=70.0, **of_task) == 0.0
  assert mle_reward(Outcome.OK, score=54.0, **of_task) == 1.0
  assert mle_reward(Outcome.OK, score=62.0, **of_task) == 0.5
  extreme = mle_reward(
    Outcome.OK, score=1e308, scale='task', start=0.0, best=1e-308
  )
  assert math.isfinite(extreme)
  with pytest.raises(ValueError, match="scale='tasks'; choose one of"):
    mle_reward(Outcome.OK, score=1.0, scale='tasks')
  with pytest.raises(ValueError, match='start=None and best=1.0'):
    mle_reward(Outcome.OK, score=1.0, scale='task', best=1.0)


def test_mle_milestones_from_elsewhere():
  printed = '\n'.join(MARKERS)
  assert mle_reward(
    Outcome.SCRIPT_ERROR, score=None, output=printed, milestones=1
  ) == pytest.approx(-9.9)


@pytest.mark.parametrize(
  'before, after, higher, reward',
  [
    (0.5, 0.6, True, 1.0),
    (0.5, 0.5, True, 0.0),
    (0.5, 0.4, True, 0.0),
    (0.5, 0.4, False, 1.0),
    (None, 0.4, True, 1.0),
  ],
)
def test_ideator_three_levels(before, after, higher, reward):
  assert (
    ideator_reward(
      Outcome.OK,
      valid_format=True,
      score_before=before,
      score_after=after,
      higher_is_better=higher,
    )
    == reward
  )


def test_ideator_format_and_failed_runs():
  known = dict(score_before=0.5, score_after=0.9)
  assert ideator_reward(Outcome.OK, valid_format=False, **known) == -1.0
  assert (
    ideator_reward(Outcome.INVALID_FORMAT, valid_format=True, **known) == -1.0
  )
  for outcome in (*ERRORS, *CORNERS):
    assert ideator_reward(outcome, valid_format=True, **known) == 0.0
