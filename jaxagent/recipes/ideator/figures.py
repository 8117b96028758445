"""Tables of paper 001 in the numbers of a run: arms, ideas by type, calls by step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent.analysis import at_three
from jaxagent.analysis.boards import reference_board
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.ideator import evaluate, types_of

if TYPE_CHECKING:
  from jaxagent.analysis.boards import Board
  from jaxagent.recipes.starts import Start
  from jaxagent.records import Evaluated
  from jaxagent.runtime.host import Host


def boards_of(host: Host, starts: Mapping[str, Start]) -> dict[str, Board]:
  """Returns task -> its reference board: the starter's score and the best recorded."""
  found = {}
  for task, start in starts.items():
    spec = host.spec(task)
    best = spec.m_best_private
    found[task] = reference_board(
      [] if best is None else [best],
      task=task,
      higher_is_better=spec.higher_is_better,
      starter=start.private,
    )
  return found


def arms(
  host: Host,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> dict[str, Any]:
  """Returns label -> split -> figures, JSON-able; see `_of_arm`."""
  boards = boards_of(host, starts)
  return {
    label: {
      split: _of_arm(
        host, boards, [r for r in present(records) if r.split == split]
      )
      for split in ('heldin', 'heldout')
      if any(r.split == split for r in records)
    }
    for label, records in evaluated.items()
  }


def _of_arm(
  host: Host, boards: Mapping[str, Board], records: Sequence[Evaluated]
) -> dict[str, Any]:
  """Returns figures of an arm on a split.

  avg_at_3, best_at_3: means over tasks of normalised private scores of the last valid
    submission (None below three runs of a task); best_by_valid_at_3: of the best one.
  board: what the scores are normalised on.
  valid: share of runs with a valid submission.
  improve, ideas: share of ideas that improve, and their number; types, effectiveness:
    by type, by rule from the family.
  calls, steps, exec_s: means of a run. by_step: mean normalised score after each
    message; calls_by_step: share of the calls at each.
  """
  by_task: dict[str, list[Evaluated]] = {}
  for record in records:
    by_task.setdefault(record.task, []).append(record)
  last, best, curves = [], [], []
  for task, own in by_task.items():
    board, up = boards[task], host.spec(task).higher_is_better
    last.append([board.normalised(r.score) for r in own])
    private = [evaluate.best_by_valid(r, up) for r in own]
    best.append([board.normalised(score) for score in private])
    curves += [
      [board.normalised(s) or 0.0 for s in evaluate.by_step(r)] for r in own
    ]
  return {
    'board': 'reference: starter and best recorded solution',
    'runs': len(records),
    'avg_at_3': _mean(last, at_three.avg_at_three),
    'best_at_3': _mean(last, at_three.best_at_three),
    'best_by_valid_at_3': _mean(best, at_three.avg_at_three),
    **_of_ideas(host, records),
    **_of_runs(records),
    'by_step': _by_step(curves),
  }


def _of_ideas(host: Host, records: Sequence[Evaluated]) -> dict[str, Any]:
  ideas = [
    one
    for r in records
    for one in evaluate.ideas_of(r, host.spec(r.task).higher_is_better)
  ]
  return {
    'ideas': len(ideas),
    'improve': sum(g for _, g in ideas) / len(ideas) if ideas else None,
    'types': types_of.shares([kind for kind, _ in ideas]),
    'types_are': types_of.BY_RULE,
    'effectiveness': types_of.effectiveness(ideas),
  }


def _of_runs(records: Sequence[Evaluated]) -> dict[str, Any]:
  asked = Counter(
    n
    for r in records
    for n, step in enumerate(r.steps)
    if step.record.action == 'seek_help'
  )
  steps = [step for r in records for step in r.steps]
  totals = {
    'valid': sum(r.score is not None for r in records),
    'calls': asked.total(),
    'steps': len(steps),
    'exec_s': math.fsum(step.record.exec_s for step in steps),
  }
  means = {n: t / len(records) if records else None for n, t in totals.items()}
  calls = {str(n): c / asked.total() for n, c in sorted(asked.items())}
  return {**means, 'calls_by_step': calls}


def _mean(rows: Sequence[Sequence[float | None]], figure: Any) -> float | None:
  if not rows or any(len(row) < at_three.K for row in rows):
    return None
  return at_three.over_tasks([figure(row) for row in rows])


def _by_step(curves: Sequence[Sequence[float]]) -> list[float]:
  """Returns the mean after each message; a run that has ended keeps its score."""
  most = max(map(len, curves), default=0)
  kept = [curve for curve in curves if curve]
  return [
    math.fsum(c[min(n, len(c) - 1)] for c in kept) / len(kept)
    for n in range(most)
  ]
