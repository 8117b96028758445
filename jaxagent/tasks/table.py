"""The table of the catalogue: `python -m jaxagent.tasks.table`.

It stands in docs/tasks.md, and every score in it is one on a stand-in.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from jaxagent.envs import tasks as task_lib
from jaxagent.types import TaskSpec

HEAD = (
  'task (stand-in)',
  'papers',
  'split',
  'modality, kind',
  'starter, valid / private',
  'reference, valid / private',
  'board best / median / worst',
)


def _pair(first: float | None, second: float | None) -> str:
  return ' / '.join('-' if v is None else f'{v:.4g}' for v in (first, second))


def _papers(spec: TaskSpec) -> str:
  letters = {'train': 'T', 'evaluate': 'E', 'both': 'TE'}
  papers = spec.details.papers if spec.details else {}
  return ', '.join(f'{paper} {letters[role]}' for paper, role in papers.items())


def row(spec: TaskSpec) -> list[str]:
  """Gives the cells of a task of version 2, in the order of HEAD."""
  assert spec.details is not None, spec.name
  scale = spec.details.variants.get('standin')
  board = spec.details.board
  human = '-'
  if board is not None:
    scores = (board.best, board.median, board.worst)
    human = ' / '.join('-' if s is None else f'{s:g}' for s in scores)
    human += ' (see `board.faults`)' if board.faults else ''
  arrow = 'up' if spec.higher_is_better else 'down'
  return [
    f'`{spec.name}` ({arrow})',
    _papers(spec),
    spec.split,
    f'{spec.modality}, {spec.kind}',
    _pair(scale.m_init, scale.m_init_private) if scale else '-',
    _pair(scale.m_best, scale.m_best_private) if scale else '-',
    human,
  ]


def markdown(specs: Sequence[TaskSpec]) -> str:
  """Writes the table of these tasks."""
  rows = [list(HEAD), ['---'] * len(HEAD), *(row(spec) for spec in specs)]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in rows)


if __name__ == '__main__':
  print(markdown(task_lib.list_tasks(pathlib.Path('tasks'), version=2)))
