"""Scores on the whole hidden test: the number that a task's source would report.

Rewards are of the half `valid`, and a run's scores of the half `private`; published
figures are of both together, so they are reported beside, with the medals that
mle-bench's rules give where there is a leaderboard. The half that gave rewards is part
of it: a task that was trained on is marked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.analysis import evaluation
from jaxagent.config import recipe
from jaxagent.envs.grading import has_whole
from jaxagent.envs.specs import leaderboards
from jaxagent.records import Evaluated

if TYPE_CHECKING:
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext


def figures(
  context: RunContext,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> dict[str, Any]:
  """Returns task -> its figures on the whole hidden test; JSON-able.

  Tasks whose source has such a number are there; evaluated: as of `results.write`.

  split, trained_on: whether it is held in, and whether the run trained on it.
  standin: whether its data was made by code.
  board: thresholds of the leaderboard (`graders.report.Thresholds`), or None.
  note: what is odd about it, or why there is none.
  policies: policy -> `n` scores, their `mean` and `best`, and, with a board, how many
    of them earn `gold`, `silver`, `bronze`, and are `above_median`.
  """
  found = {}
  trains = recipe.find(context.config).trains
  for task in context.heldin + context.heldout:
    spec = context.spec(task)
    if not has_whole(spec):
      continue
    board = leaderboards.board_of(spec, context.config.tasks.mlebench_repo)
    thresholds = board.thresholds
    found[task] = {
      'split': 'heldin' if task in context.heldin else 'heldout',
      'trained_on': trains and task in context.heldin,
      'standin': spec.is_standin,
      'metric': spec.metric,
      'higher_is_better': spec.higher_is_better,
      'board': None if thresholds is None else dataclasses.asdict(thresholds),
      'note': board.note,
      'policies': {
        policy: {
          'n': len(scores),
          'mean': float(np.mean(scores)),
          'best': evaluation.best_at_k(
            scores, len(scores), spec.higher_is_better
          ),
          **({} if thresholds is None else thresholds.counts(scores)),
        }
        for policy, scores in _scores(task, starts, evaluated)
        if scores
      },
    }
  return found


def _scores(
  task: str,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> Iterator[tuple[str, list[float]]]:
  """Yields each policy with the scores of its trajectories of a task."""
  start = starts[task].whole
  yield 'starter', [] if start is None else [start]
  for policy, records in evaluated.items():
    own = [r.whole for r in records if r.task == task]
    yield policy, [score for score in own if score is not None]


def lines(found: Mapping[str, Any]) -> Iterator[str]:
  """Yields a line for people for each task and policy, and each task's note."""
  for task, one in found.items():
    marks = [
      word
      for word, is_so in (
        ('trained on', one['trained_on']),
        ('stand-in', one['standin']),
      )
      if is_so
    ]
    said = f' ({", ".join(marks)})' if marks else ''
    for policy, own in one['policies'].items():
      text = f'{task}{said}: {policy}: mean {own["mean"]:.5g}, best {own["best"]:.5g}'
      if one['board']:
        won = ', '.join(
          f'{own[name]} {name.replace("_", " the ")}'
          for name in ('gold', 'silver', 'bronze', 'above_median')
        )
        text += f' of {own["n"]}; {won}'
      yield text
    if one['note'] and not one['standin']:
      yield f'{task}: {one["note"]}'
