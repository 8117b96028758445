"""Statistics of evaluated trajectories that papers 002 and 000 report of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent.analysis import benchmark_figures, diversity, failure_modes
from jaxagent.records import Evaluated

if TYPE_CHECKING:
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext


def figures(
  context: RunContext,
  starts: Mapping[str, Any],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> dict[str, Any]:
  """Returns policy -> figures of all its trajectories, and of `heldin` and `heldout`; JSON-able.

  evaluated: policy -> its trajectories, none of them missing.
  tasks: task -> `benchmark_figures.kinds_figures` on validation scores.
  averages: kind -> success rate and mean improvement over tasks (002, table 3).
  failure_modes: label -> share of the runs (002, section 4.2).
  edits: verb-noun pairs of 100 instructions (`diversity.figure8`).
  cost: means over runs of steps, seconds of executions, and, where they were
    counted, seconds until an endpoint's model had answered and tokens read and
    written.
  """
  return {
    policy: _with_splits(context, starts, records)
    for policy, records in evaluated.items()
    if records
  }


def _with_splits(
  context: RunContext, starts: Mapping[str, Start], records: Sequence[Evaluated]
) -> dict[str, Any]:
  found = {
    'tasks': _tasks(context, starts, records),
    **_over(context, starts, records),
  }
  for split in ('heldin', 'heldout'):
    if own := [r for r in records if r.split == split]:
      found[split] = _over(context, starts, own)
  return found


def _by_task(records: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
  found: dict[str, list[Evaluated]] = {}
  for record in records:
    found.setdefault(record.task, []).append(record)
  return found


def _tasks(
  context: RunContext, starts: Mapping[str, Start], records: Sequence[Evaluated]
) -> dict[str, Any]:
  return {
    task: benchmark_figures.kinds_figures(
      own,
      starts[task].valid,
      context.spec(task).higher_is_better,
    )
    for task, own in _by_task(records).items()
  }


def _over(
  context: RunContext, starts: Mapping[str, Start], records: Sequence[Evaluated]
) -> dict[str, Any]:
  """Figures over all tasks of the records."""
  labels = [
    failure_modes.classify(
      record,
      m_init=starts[record.task].valid,
      higher_is_better=context.spec(record.task).higher_is_better,
      metric=context.spec(record.task).metric,
      known_text=context.spec(record.task).research_problem,
    )
    for record in records
    if record.steps
  ]
  said = diversity.instructions_of(records)
  return {
    'averages': _averages(context, starts, records),
    'failure_modes': failure_modes.shares(labels) if labels else {},
    'edits': diversity.figure8(said, seed=context.config.seed),
    'cost': _cost(records),
  }


def _averages(
  context: RunContext, starts: Mapping[str, Start], records: Sequence[Evaluated]
) -> dict[str, Any]:
  by_task, better = _by_task(records), {}
  scores: dict[str, dict[str, list]] = {k: {} for k in benchmark_figures.KINDS}
  for task, own in by_task.items():
    better[task] = context.spec(task).higher_is_better
    each = [benchmark_figures.scores_of(record, better[task]) for record in own]
    for kind in scores:
      scores[kind][task] = [one[kind] for one in each]
  scales = {task: (starts[task].valid, up) for task, up in better.items()}
  return {
    kind: benchmark_figures.averages(of, scales) for kind, of in scores.items()
  }


def _cost(records: Sequence[Evaluated]) -> dict[str, float]:
  made = [step for record in records for step in record.steps]
  found = {'steps': len(made), 'exec_s': sum(s.record.exec_s for s in made)}
  for key in ('answer_s', 'prompt_tokens', 'tokens'):
    counted = [getattr(step, key) for step in made]
    if None not in counted:
      found[key] = sum(counted)
  return {key: value / len(records) for key, value in found.items()}
