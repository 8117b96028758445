"""Solutions of a run as a tree: who improved whom, how far each came, and when."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxagent.records import SolutionRecord, TakenStep, TrainedTurn
from jaxagent.report import progress
from jaxagent.report.page import clean, environment, step_of, write_page

_DEEPEST = 24  # indentation of a node; deeper ones stand no further right


def write_tree(
  path: str | os.PathLike,
  turns: Sequence[TrainedTurn],
  *,
  metrics: Sequence[Mapping[str, Any]] = (),
  title: str = 'Solutions',
  most: int = 300,
) -> pathlib.Path:
  """Writes the page to `path`, atomically, and returns it.

  turns: of trained solutions, in the order they were trained, with
    `records.SolutionRecord`s. One without a program is not shown; the same program
    twice is one node, which shows the best of its runs.
  metrics: of each update, for the score over time (`progress.panels`).
  most: nodes shown; the best, and what they come from.
  """
  nodes = _nodes(turns)
  chosen = _chosen(nodes, most)
  tasks = sorted({node['task'] for node in nodes.values()})
  page = (
    environment()
    .get_template('tree.html.j2')
    .render(
      title=title,
      shown=len(chosen),
      total=len(nodes),
      tasks=[
        (
          clean(task),
          progress.panels(
            task,
            [t.record for t in turns if t.record.task == task],
            metrics,
          ),
          list(_in_order(nodes, chosen, task)),
        )
        for task in tasks
      ],
    )
  )
  return write_page(path, page)


def _nodes(turns: Sequence[TrainedTurn]) -> dict[str, dict[str, Any]]:
  """id -> node; a parent is one that came before, so there is no cycle."""
  nodes: dict[str, dict[str, Any]] = {}
  for turn in turns:
    record = turn.record
    if not isinstance(record, SolutionRecord) or not record.solution_id:
      continue
    name = record.solution_id
    if name in nodes:
      node = nodes[name]
      node['times'] += 1
      shown = _run(turn, record)
      if _reward(shown['shown']) > _reward(node['shown']):
        node.update(shown)
      continue
    parent = record.improves if record.improves in nodes else ''
    nodes[name] = dict(
      task=record.task,
      operator=clean(record.kind),
      parent=parent,
      depth=nodes[parent]['depth'] + 1 if parent else 0,
      times=1,
      children=0,
      **_run(turn, record),
    )
    if parent:
      nodes[parent]['children'] += 1
  return nodes


def _run(turn: TrainedTurn, record: SolutionRecord) -> dict[str, Any]:
  """Returns the view of one run of a node's program."""
  return dict(
    update=turn.update,
    milestones=[clean(m) for m in record.milestones],
    shown=step_of(TakenStep(record=record, reward=turn.reward), 0),
  )


def _reward(step: Mapping) -> float:
  value = step['reward']
  return float('-inf') if value is None else value


def _chosen(nodes: Mapping[str, Mapping], most: int) -> set[str]:
  chosen: set[str] = set()
  for name in sorted(
    nodes, key=lambda name: _reward(nodes[name]['shown']), reverse=True
  ):
    line = []
    while name and name not in chosen:
      line.append(name)
      name = nodes[name]['parent']
    if len(chosen) + len(line) > most:
      break
    chosen.update(line)
  return chosen


def _in_order(
  nodes: Mapping[str, Mapping], chosen: set[str], task: str
) -> Iterator[dict[str, Any]]:
  """Each node after what it improves upon."""
  below: dict[str, list[str]] = {}
  for name, node in nodes.items():
    if name in chosen and node['task'] == task:
      below.setdefault(node['parent'], []).append(name)
  waiting = list(reversed(below.get('', [])))
  while waiting:
    name = waiting.pop()
    node = nodes[name]
    yield {**node, 'indent': min(node['depth'], _DEEPEST)}
    waiting += reversed(below.get(name, []))
