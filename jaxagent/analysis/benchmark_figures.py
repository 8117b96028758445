"""Success rate, mean improvement and best@K over the runs of a task.

Paper 002 (2.3, tables 3 and 4) judges the final snapshot of a run; paper 000
(figure 9) the best of K runs. A run's score is taken in one of two ways:

- `final`: of its last submission, what it leaves behind; none where that could
  not be graded, whatever an earlier one was worth;
- `best_by_validation`: of its best one.

Both are validation scores, and the second is the best of many, so it promises
too much; private ones count (`score` of a record of `recipes.ml_agent.evaluate` is that
of the script that is best by validation) and can be passed just as well.

Improvement is relative to the starter, `evaluation.relative_gain`: divided by
the magnitude of its score, so that a negative score has a meaning, too. To a
starter at exactly 0 nothing is relative: then a run succeeds where it is
better at all (10 % of 0 is 0; MLAgentBench's plot.py puts 1e-10 there, which
comes to the same), and its improvement is None and left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent.analysis import evaluation, intervals, needed
from jaxagent.analysis.intervals import Interval
from jaxagent.records import Trajectory
from jaxagent.records.trajectory import name_of
from jaxagent.types import Outcome

KINDS = ('final', 'best_by_validation')
THRESHOLD = 0.10
Scores = Sequence[float | None]


def scores_of(
  trajectory: Trajectory, higher_is_better: bool
) -> dict[str, float | None]:
  """The run's validation score of each of KINDS.

  None where nothing that it executed had a score: no submission. An execution that
  wrote none leaves the one before; one that cannot be graded takes its place, unless
  the edit that it ran was undone. Raises ValueError for a trajectory that an
  infrastructure error cut short (`missing`: no run of the policy's), and a score that is
  not finite.
  """
  scores, final = [], None
  if trajectory.missing:
    raise ValueError(
      f'{name_of(trajectory)} is missing: leave it out, it is no run.'
    )
  for index, step in enumerate(trajectory.steps):
    score = step.record.score_after
    if score is not None:
      finite(score, f'{name_of(trajectory)}: steps[{index}].score_after')
      final = float(score)
      scores.append(final)
    elif step.record.outcome is Outcome.INVALID_SUBMISSION:
      final = final if step.record.undone else None
  best = max if higher_is_better else min
  return {'final': final, 'best_by_validation': best(scores, default=None)}


def improvement(
  score: float | None, m_init: float, higher_is_better: bool
) -> float | None:
  """Relative to the starter, positive is better; None where undefined.

  That is without a submission and for a starter at 0.
  """
  finite(m_init, 'm_init')
  if score is None:
    return None
  finite(score, 'score')
  if m_init == 0:
    return None
  return evaluation.relative_gain(score, m_init, higher_is_better)


def succeeded(
  score: float | None,
  m_init: float,
  higher_is_better: bool,
  threshold: float = THRESHOLD,
) -> bool:
  """Returns whether a score beats the starter by `threshold` (10 %).

  False without a submission."""
  gain = improvement(score, m_init, higher_is_better)
  if gain is not None:
    rate = evaluation.success_rate
    return rate([score], m_init, higher_is_better, threshold) == 1.0
  return score is not None and (score > 0 if higher_is_better else score < 0)


def task_figures(
  scores: Scores, m_init: float, higher_is_better: bool
) -> dict[str, Any]:
  """Figures of one task's runs, of one kind of score.

  scores: one for each run, None without a submission.

  Returns:
    runs, submissions: counts.
    success_rate: Wilson's interval; a run without a submission has failed (2.3).
    mean_improvement: interval, over runs with a submission (table 4).
    best: K -> interval of best@K in the metric's units, K = 1, 2, 4, ... up
      to the number of runs; unbiased. A run without a submission counts with
      the starter's score, as in `evaluation.Run`.
  An interval of a single run has no ends, one of no runs no mean either; one of too few
  has `needs` (`needed.needs`).
  Raises ValueError for no runs and for scores that are not finite.
  """
  wins, gains = _wins_and_gains(scores, m_init, higher_is_better)
  filled = [m_init if s is None else float(s) for s in scores]
  curve = {
    k: _interval({0: filled}, intervals.of_best(k, higher_is_better), k)
    for k in _powers(len(filled))
  }
  return {
    'runs': len(filled),
    'submissions': sum(s is not None for s in scores),
    'success_rate': _share(wins),
    'mean_improvement': _interval({0: gains}),
    'best': curve,
  }


def kinds_figures(
  trajectories: Sequence[Trajectory],
  m_init: float,
  higher_is_better: bool,
) -> dict[str, dict[str, Any]]:
  """`task_figures` of trajectories of one task, for each of KINDS.

  m_init: the starter's validation score. A `missing` one is an error: the
  caller leaves it out (`recipes.evaluation.present`).
  """
  scores = [scores_of(one, higher_is_better) for one in trajectories]
  return {
    kind: task_figures([s[kind] for s in scores], m_init, higher_is_better)
    for kind in KINDS
  }


def averages(
  scores: Mapping[str, Scores],
  starters: Mapping[str, tuple[float, bool]],
) -> dict[str, Interval]:
  """`success_rate` and `mean_improvement` over tasks, each weighing the same.

  scores: task -> scores of its runs; starters: task -> (m_init,
  higher_is_better). A task without any improvement to speak of is left out
  of the second. best@K has no average: the units differ.
  """
  wins, gains = {}, {}
  for task, own in scores.items():
    if task not in starters:
      raise ValueError(f'no starter for {task!r}; known: {sorted(starters)}.')
    try:
      wins[task], gains[task] = _wins_and_gains(own, *starters[task])
    except ValueError as error:
      raise ValueError(f'task {task}: {error}') from error
  shares = _interval(wins, within=(0.0, 1.0))
  if len(wins) == 1:
    shares = _share(*wins.values())
  return {'success_rate': shares, 'mean_improvement': _interval(gains)}


def _wins_and_gains(scores: Scores, m_init: float, higher_is_better: bool):
  if not len(scores):
    raise ValueError('figures of no runs; run at least one trajectory.')
  wins = [float(succeeded(s, m_init, higher_is_better)) for s in scores]
  gains = [improvement(s, m_init, higher_is_better) for s in scores]
  return wins, [g for g in gains if g is not None]


def _share(wins: Sequence[float]) -> Interval:
  """Returns an interval; that of one run has no ends."""
  found = intervals.share(int(sum(wins)), len(wins))
  return found if len(wins) > 1 else found | {'low': None, 'high': None}


def _interval(
  groups: Mapping[Any, Sequence[float]],
  figure: intervals.Figure = intervals.of_means,
  k: int = 1,
  within: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
  """Returns an interval; its ends are None where no task has two runs."""
  found = intervals.interval(groups, figure, within=within)
  if all(len(values) < 2 for values in groups.values()):
    return found | {'low': None, 'high': None}
  return found | needed.needs([*map(len, groups.values())], k)


def _powers(n: int) -> list[int]:
  return [2**i for i in range(n.bit_length()) if 2**i <= n]


def finite(value: Any, name: str) -> None:
  """Raises ValueError, by that name, for what is no finite number."""
  number = isinstance(value, int | float | np.number)
  if isinstance(value, bool) or not number or not math.isfinite(value):
    raise ValueError(f'{name} is {value!r}; only finite numbers count.')
