"""Scores of a run's trajectories on the scale of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxagent.analysis import evaluation
from jaxagent.errors import UserError
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.starts import Start
from jaxagent.records import Evaluated

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


def scales(
  context: RunContext, starts: Mapping[str, Start]
) -> dict[str, evaluation.Scale]:
  """Returns the scale of each task's private score.

  It reaches from the starter's score, measured here, to `m_best_private` of
  `task.yaml`. Raises UserError where they are one number: then there is no scale.
  """
  for task, start in starts.items():
    if start.private == context.spec(task).m_best_private:
      raise UserError(
        f'task {task}: its starter scores {start.private:.6g} on the private rows, '
        'which is m_best_private of task.yaml: nothing can be better. Give a '
        f'weaker starter, or `python -m jaxagent.tasks measure {task}`.'
      )
  return {
    task: evaluation.Scale(
      start.private,
      context.spec(task).m_best_private,
      context.spec(task).higher_is_better,
    )
    for task, start in starts.items()
  }


def runs_of(records: Sequence[Evaluated], split: str) -> list[evaluation.Run]:
  """Returns the records of a split in the form of `jaxagent.analysis.evaluation`."""
  runs = []
  for record in present(records):
    if record.split != split:
      continue
    steps = [s for s in record.steps if s.reward is not None]
    runs.append(
      evaluation.Run(
        record.task,
        record.score,
        tuple(s.reward for s in steps if s.reward is not None),
        tuple(s.record.valid_action for s in steps),
      )
    )
  return runs


def starter_runs(
  context: RunContext, starts: Mapping[str, Start], split: str
) -> list[evaluation.Run]:
  """Returns a run of each starter script: its private score, without a step."""
  names = context.heldin if split == 'heldin' else context.heldout
  return [evaluation.Run(t, starts[t].private) for t in names]
