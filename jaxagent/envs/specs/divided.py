"""Hidden rows of one of MLAgentBench's folders, in two halves, so that it can be trained on.

The folder has one test set, whose answers lie in `scripts/`. `NAME.yaml` beside it says
which file they are and which of our graders reads them; the rows are then divided by a
hash of their id, `valid` for rewards and `private` for evaluation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import graders
from jaxagent.envs.specs import task_data, task_yaml, task_yaml2
from jaxagent.envs.specs.halves import SPLITS, frequent, halves
from jaxagent.graders import arrays
from jaxagent.graders.competitions import Competition
from jaxagent.graders.loaded import Loaded
from jaxagent.types import TaskDetails, TaskSource, TaskSpec

if TYPE_CHECKING:
  import pandas as pd

# Of NAME.yaml: `answers` divides the rows, the others belong to it.
KEYS = ('answers', 'id', 'targets', 'sample')
# What `NAME.yaml` needs so that a run may train.
TO_TRAIN = (
  'answers (their file, such as scripts/answer.csv), metric (a grader of `python -m '
  'jaxagent.grade`, or one of accuracy, f1_macro, roc_auc, log_loss, rmse, mae with id '
  'and targets, names of columns), m_init, m_best and m_best_private'
)
_URL = 'https://github.com/snap-stanford/MLAgentBench'
_TABLE = '.csv'
_MOST_CLASSES = 20  # values of a column that are classes, and not numbers
_TRIES = 100  # divisions, until columns of classes vary in both halves


def details_of(
  where: str, root: pathlib.Path, record: Mapping[str, Any]
) -> TaskDetails | None:
  """Returns what `NAME.yaml` says of answers; None where it names none.

  where: that file. record: its keys, over the known values of the task.

  Raises ValueError naming the file, the key and what to write.
  """
  if not record.get('answers'):
    if given := [key for key in KEYS if record.get(key)]:
      raise ValueError(
        f'{where}: {given[0]} belongs to answers, the file of the hidden rows; write '
        'answers: scripts/NAME.csv, or leave it out.'
      )
    return None
  _check_answers(where, root, record['answers'])
  targets = record.get('targets') or []
  if not isinstance(targets, list) or not all(
    isinstance(name, str) for name in targets
  ):
    raise ValueError(f'{where}: targets={targets!r} must be a list of columns.')
  details = TaskDetails(
    source=TaskSource('mlagentbench', root.name, _URL),
    id_column=str(record.get('id') or ''),
    targets=tuple(targets),
    sample=str(record.get('sample') or ''),
    answers=record['answers'],
  )
  metric = record['metric']
  try:
    entry = _grader(metric, details)
  except ValueError as error:
    raise ValueError(
      f'{where}: metric={metric!r} with answers must be a grader: {error} Or one of '
      f'{", ".join(graders.METRICS)}, with id and targets.'
    ) from error
  task_yaml.check_higher(where, record, entry.higher_is_better)
  ending = pathlib.Path(record['submission'] or TaskSpec.submission).suffix[1:]
  forms = task_yaml2.ARRAYS if entry.arrays else ('csv', 'jsonl')
  task_yaml.choice(where, 'ending of submission', ending, forms)
  return dataclasses.replace(details, submission_format=ending)


def _grader(metric: str, details: TaskDetails) -> Competition:
  if metric == graders.SPEED:
    raise ValueError(f'{metric} is of programs.')
  scope = graders.Scope(id_column=details.id_column, targets=details.targets)
  return graders.grader(metric, scope)


def _check_answers(where: str, root: pathlib.Path, given: Any) -> None:
  """Raises ValueError for a path that leads out of the folder, or that agents see."""
  if not isinstance(given, str):
    raise ValueError(f'{where}: answers={given!r} must be the path of a file.')
  path = (root / given).resolve()
  if not path.is_relative_to(root.resolve()):
    raise ValueError(
      f'{where}: answers={given!r} leads out of {root}; put the file into '
      f'{root / "scripts"}.'
    )
  if path.is_relative_to((root / 'env').resolve()):
    raise ValueError(
      f'{where}: answers={given!r} lies in env/, where every script can read it; move '
      f'it to {root / "scripts"}, and see that no other copy is left.'
    )
  known = (_TABLE, *arrays.SUFFIXES)
  task_yaml.choice(where, 'ending of answers', path.suffix, known)


def key_of(spec: TaskSpec, root: pathlib.Path) -> str:
  """Hashes what the division depends on.

  Raises ValueError where the answers are not there.
  """
  path = _answers(spec, root)
  details = task_data.details_of(spec)
  digest = hashlib.sha256(path.read_bytes())
  given = [spec.metric, details.id_column, details.targets, details.answers]
  digest.update(json.dumps(given).encode())
  return f'{digest.hexdigest()[:16]}-halves'


def _answers(spec: TaskSpec, root: pathlib.Path) -> pathlib.Path:
  path = root / task_data.details_of(spec).answers
  if not path.is_file():
    raise ValueError(
      f'task {spec.name}: {spec.root}.yaml names answers that are not there after '
      f'its preparation: {path}; correct the path, or remove the key.'
    )
  return path


def divide(spec: TaskSpec, root: pathlib.Path, target: pathlib.Path) -> None:
  """Writes the answers with the half of each row into `target/private`.

  root: the prepared folder.

  Raises ValueError where they cannot be read, divided or graded.
  """
  path, details = _answers(spec, root), task_data.details_of(spec)
  private = target / 'private'
  private.mkdir()
  written = task_data.answers_file(spec, private)
  try:
    if path.suffix in arrays.SUFFIXES:
      written.write_bytes(_arrays(path))
    else:
      _table(path, _grader(spec.metric, details)).to_csv(written, index=False)
  except (ValueError, OSError) as error:
    raise ValueError(
      f'task {spec.name}: the answers {path} cannot be divided: {error}'
    ) from error
  _check_graded(spec, task_data.read_answers(spec, private))


def _check_graded(spec: TaskSpec, answers: Loaded) -> None:
  """Raises ValueError where the answers themselves have no score on a half.

  As where AUC is asked of rows of one class: no submission would have one either.
  """
  entry, truth = answers.entry, answers.truth
  if entry.arrays or not set(answers.targets) <= set(truth.columns):
    return
  names = [entry.id_column] if entry.id_column else []
  right = truth[[*names, *answers.targets]]
  whole = answers.grade(right)
  for half in SPLITS:
    found = answers.grade(right, half)
    if found.score is None and whole.score is not None:
      raise ValueError(
        f'task {spec.name}: the answers {task_data.details_of(spec).answers} cannot be '
        f'divided: the half {half} has no score of {spec.metric}: {found.reason}; take '
        'more rows of each class into them, or leave answers out.'
      )


def _table(path: pathlib.Path, entry: Competition) -> pd.DataFrame:
  """Reads a table whose cells stay the text they are; with the half of each row."""
  import pandas as pd

  table = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[])
  column, targets = entry.id_column, entry.columns(table)
  if column and column not in table.columns:
    raise ValueError(
      f'there is no column {column!r}, the id; columns: {", ".join(table.columns)}.'
    )
  columns = [
    table[name]
    for name in targets
    if name in table.columns and table[name].nunique() <= _MOST_CLASSES
  ]
  classes = None
  if columns and columns[0].name == targets[0]:
    classes = frequent(columns[0])
  secret = hashlib.sha256(path.read_bytes()).hexdigest()
  names = list(table[column]) if column else range(len(table))
  first = halves(names, classes, secret)
  # A rare class, and those of further columns, may need another division.
  others = (halves(names, classes, f'{secret}:{k}') for k in range(1, _TRIES))
  can = [c for c in columns if len(c) - c.value_counts().max() > 1]
  found = (s for s in itertools.chain([first], others) if _all_vary(can, s))
  return table.assign(split=next(found, first))


def _all_vary(columns: Sequence[pd.Series], split: np.ndarray) -> bool:
  """Whether each column has two values in both halves."""
  return all(
    column[split == half].nunique() > 1 for column in columns for half in SPLITS
  )


def _arrays(path: pathlib.Path) -> bytes:
  given = arrays.read_arrays(path)
  count = len(next(iter(given.values())))
  secret = hashlib.sha256(path.read_bytes()).hexdigest()
  split = np.asarray(halves(range(count), None, secret))
  named = {name or 'answers': array for name, array in given.items()}
  return task_data.npz({**named, 'split': split})
