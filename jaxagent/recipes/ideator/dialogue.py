"""Evaluated runs as conversations of two, on one page: `conversations.html`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.envs.implementer_state import SEEK_HELP
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.ideator import evaluate
from jaxagent.recipes.ideator.record import ImplementerStepRecord
from jaxagent.records import Evaluated
from jaxagent.report.page import clean, environment, write_page

_HERE = pathlib.Path(__file__).parent
# Title -> figure of an arm.
COLUMNS = {
  'Avg@3': 'avg_at_3',
  'Best@3': 'best_at_3',
  'Percentile': 'percentile_at_3',
  'Ideas that improve': 'improve',
  'Calls': 'calls',
  'Steps': 'steps',
  'Seconds of execution': 'exec_s',
  'Money': 'money',
}
_FATE = {
  True: 'improved',
  False: 'did not improve',
  None: 'not carried out',
}


def write(
  path: str | os.PathLike,
  evaluated: Mapping[str, Sequence[Evaluated]],
  higher_is_better: Mapping[str, bool],
  table: Mapping[str, Any] = {},
  *,
  per_task: int = 2,
) -> pathlib.Path:
  """Writes the page to `path`, atomically, and returns it.

  evaluated: label of an arm -> its runs.
  higher_is_better: of the metric, by task.
  table: label -> split -> figures of the arm, as `figures.arms` has them.
  per_task: runs of an arm and task that are shown, those that ask first.
  """
  shown = []
  for label, records in evaluated.items():
    seen: dict[str, int] = {}
    for record in sorted(present(records), key=lambda r: -_calls(r)):
      seen[record.task] = seen.get(record.task, 0) + 1
      if seen[record.task] <= per_task:
        up = higher_is_better[record.task]
        shown.append(_conversation(label, record, up))
  template = (_HERE / 'dialogue.html.j2').read_text(encoding='utf-8')
  page = (
    environment()
    .from_string(template)
    .render(runs=shown, arms=_arms(table), columns=list(COLUMNS))
  )
  return write_page(path, page)


def _arms(table: Mapping[str, Any]) -> list[dict[str, Any]]:
  """Returns the rows of the table of arms."""
  rows = []
  for label, splits in table.items():
    for split, row in splits.items():
      cells = [row[name] for name in COLUMNS.values()]
      kinds = ', '.join(
        f'{name} {share:.0f} %' + _effect(row['effectiveness'].get(name))
        for name, share in row['types'].items()
        if share
      )
      rows.append(
        {
          'label': clean(label),
          'split': clean(split),
          'cells': cells,
          'kinds': clean(kinds),
        }
      )
  return rows


def _effect(found: tuple[int, float] | None) -> str:
  return '' if found is None else f' ({found[1]:.0f} % of {found[0]} improve)'


def _calls(record: Evaluated) -> int:
  return sum(step.record.action == SEEK_HELP for step in record.steps)


def _conversation(
  label: str, record: Evaluated, higher_is_better: bool
) -> dict[str, Any]:
  fates = evaluate.fates(record, higher_is_better)
  said: list[dict[str, Any]] = []
  for number, step in enumerate(record.steps):
    made = step.record
    if not isinstance(made, ImplementerStepRecord):
      continue
    said.append(_said('Implementer', made.response, made.action or ''))
    if made.action == SEEK_HELP:
      kind, fate = fates.get(number, ('', None))
      note = f'{kind}, {_FATE[fate]}' if kind else made.format_error
      said.append(_said('Ideator', made.observation, note))
    else:
      score = made.score_after
      note = made.outcome.value
      if score is not None:
        note += f', {score:.6g} on the validation rows'
      said.append(_said('Result', made.observation, note))
  return {
    'label': clean(label),
    'task': clean(record.task),
    'index': record.index,
    'score': record.score,
    'calls': _calls(record),
    'said': said,
  }


def _said(who: str, text: str, note: str) -> dict[str, Any]:
  return {'who': who, 'text': clean(text), 'note': clean(note)}
