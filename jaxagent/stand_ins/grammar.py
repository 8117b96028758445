"""Every program that the scripted programmer can write for a task of three tables."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator

from jaxagent.stand_ins import programmer
from jaxagent.types import TaskSpec

NOT_GIVEN = '-'  # a setting's option beside its values
_TABLES = ('train', 'test', 'sample_submission')


@dataclasses.dataclass(frozen=True)
class Written:
  """A program by what was chosen for it: (choice, option), in order."""

  options: tuple[tuple[str, str], ...]
  design: programmer.Design

  @property
  def name(self) -> str:
    """Returns its calls, which no two programs share."""
    return ', '.join(self.design.calls)


def written(spec: TaskSpec) -> Iterator[Written]:
  """Yields every program that the grammar has for a task, once, without slips."""
  before, models = programmer.grammar(spec)
  for first, row in itertools.product(dict.fromkeys(before), models):
    settings = programmer.settings_of(row)
    for values in itertools.product(*([NOT_GIVEN, *v] for _, v in settings)):
      named = [(key, value) for (key, _), value in zip(settings, values)]
      given = {key: value for key, value in named if value != NOT_GIVEN}
      calls = [programmer.call(spec, first, {})] if first else []
      yield Written(
        (
          ('before', first),
          ('model', row.split()[0]),
          *((f'{row.split()[0]} {key}', value) for key, value in named),
        ),
        programmer.Design(
          (first, row) if first else (row,),
          (*calls, programmer.call(spec, row, given)),
        ),
      )


def columns_in(public: pathlib.Path) -> programmer.Columns:
  """Reads the columns of a task's three tables.

  Raises FileNotFoundError or ValueError for other data.
  """
  heads = [_header(public / f'{table}.csv') for table in _TABLES]
  return programmer.columns_of(*heads)


def scripts(spec: TaskSpec, public: pathlib.Path) -> list[tuple[str, str]]:
  """Returns (name, text) of every program of a task, whose data is in `public`.

  Raises ValueError for a task of other data than three tables.
  """
  try:
    columns = columns_in(public)
  except (FileNotFoundError, ValueError) as error:
    raise ValueError(
      f'task {spec.name}: only programs of three tables, train.csv, test.csv and '
      'sample_submission.csv, with one column to predict, can be scripted; choose '
      'another task.'
    ) from error
  return [
    (one.name, programmer.program(spec, columns, one.design))
    for one in written(spec)
  ]


def _header(path: pathlib.Path) -> list[str]:
  with path.open(encoding='utf-8', newline='') as file:
    return next(csv.reader(file), [])
