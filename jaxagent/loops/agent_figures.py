"""What papers 002 and 000 tell of agents, of the evaluated trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import benchmark_figures, diversity, failure_modes


def figures(
  host, starts: Mapping[str, Any], evaluated: Mapping[str, Sequence[dict]]
) -> dict[str, Any]:
  """policy -> `tasks`, `failure_modes`, `edits`; JSON-able.

  evaluated: policy -> its trajectories, none of them missing.
  tasks: task -> `benchmark_figures.kinds_figures` on validation scores.
  failure_modes: label -> share of the runs (002, section 4.2).
  edits: verb-noun pairs of the instructions (000, figure 8).
  cost: means over runs of steps, seconds of executions, and, where they were
    counted, seconds until an endpoint's model had answered and tokens read and
    written.
  """
  return {
    policy: _of_policy(host, starts, records)
    for policy, records in evaluated.items()
    if records
  }


def _of_policy(host, starts, records: Sequence[dict]) -> dict[str, Any]:
  by_task: dict[str, list[dict]] = {}
  for record in records:
    by_task.setdefault(record['task'], []).append(record)
  labels = [
    failure_modes.classify(
      record,
      m_init=starts[task].state.score,
      higher_is_better=host.spec(task).higher_is_better,
      metric=host.spec(task).metric,
      known_text=host.spec(task).research_problem,
    )
    for task, own in by_task.items()
    for record in own
    if record['steps']
  ]
  said = diversity.instructions_of(records)
  edits = diversity.counts(said) if said else {'instructions': 0}
  return {
    'tasks': {
      task: benchmark_figures.kinds_figures(
        own,
        starts[task].state.score,
        host.spec(task).higher_is_better,
        seed=host.config.seed,
      )
      for task, own in by_task.items()
    },
    'failure_modes': failure_modes.shares(labels) if labels else {},
    'edits': {k: v for k, v in edits.items() if k != 'nouns'},
    'cost': _cost(records),
  }


def _cost(records: Sequence[dict]) -> dict[str, float]:
  made = [step for record in records for step in record['steps']]
  found = {'steps': len(made)}
  for key in ('exec_s', 'answer_s', 'prompt_tokens', 'tokens'):
    if all(key in step for step in made):
      found[key] = sum(step[key] for step in made)
  return {key: value / len(records) for key, value in found.items()}
