"""Folders of the catalogue: prepared, run and graded beside each other.

`python -m tests.tasks.catalogue NAME...` prints what the tests compare.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import yaml

from jaxagent import graders
from jaxagent.envs import tasks as task_lib
from jaxagent.envs.specs import task_data
from jaxagent.graders import arrays, tables
from jaxagent.graders.competitions import COMPETITIONS
from jaxagent.sandbox import cpu_levels
from jaxagent.tasks import check_published

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
HALVES = ('valid', 'private')


def names() -> list[str]:
  """Folders whose task.yaml is version 2; without programs (`test_programs.py`)."""
  return sorted(
    path.parent.name
    for path in TASKS.glob('*/task.yaml')
    if path.read_text().startswith('version: 2')
    and 'kind: speed' not in path.read_text()
  )


def record(name: str) -> dict:
  return yaml.safe_load((TASKS / name / 'task.yaml').read_text())


def is_arrays(name: str) -> bool:
  """Whether a task is graded by arrays, and its answers are arrays."""
  return COMPETITIONS[record(name)['metric']].arrays


def answers_of(name: str, home: pathlib.Path) -> pathlib.Path:
  form = 'npz' if is_arrays(name) else 'csv'
  return home / f'private/answers.{form}'


def submission_of(name: str) -> str:
  """The name of a task's submission."""
  return record(name)['submission']['path']


def environment(level: str | None = None) -> dict[str, str]:
  own = (
    cpu_levels.here()
    if level is None
    else cpu_levels.environment(
      level, cpu_levels.machine_flags(), cpu_levels.numpy_features()
    )
  )
  return {
    **os.environ,
    'OMP_NUM_THREADS': '1',
    'OPENBLAS_NUM_THREADS': '1',
    'PYTHONHASHSEED': '0',
    'PYTHONWARNINGS': 'ignore',
    **own,
  }


def prepare(
  name: str, home: pathlib.Path, *source: str, level: str | None = None
) -> subprocess.CompletedProcess:
  """Runs prepare.py into home/public and home/private."""
  home.mkdir(parents=True, exist_ok=True)
  script = TASKS / name / 'scripts/prepare.py'
  folders = '--public', home / 'public', '--private', home / 'private'
  return subprocess.run(
    [sys.executable, script, *folders, *source],
    capture_output=True,
    text=True,
    cwd=home,
    env=environment(level),
  )


def sample_of(name: str, home: pathlib.Path) -> pathlib.Path:
  """Finds the sample submission as the grader does."""
  spec = task_lib.load_task(name, TASKS)
  path = task_data.sample_file(spec, home / 'public')
  assert path is not None, name
  return path


def run(
  script: pathlib.Path, public: pathlib.Path, level: str | None = None
) -> bytes:
  """Runs a task's script beside `data/` and returns its submission."""
  with tempfile.TemporaryDirectory() as folder:
    home = pathlib.Path(folder)
    (home / 'data').symlink_to(public)
    done = subprocess.run(
      [sys.executable, '-I', script],
      capture_output=True,
      text=True,
      cwd=home,
      env=environment(level),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return (home / submission_of(script.parents[1].name)).read_bytes()


def read(name: str, path: pathlib.Path) -> pd.DataFrame:
  """Reads a table as the grader does."""
  entry = COMPETITIONS[record(name)['metric']]
  return tables.read_table(path, literal=True, texts=entry.text_columns)


def _places(given, truth, column: str) -> np.ndarray:
  """Rows of a submission in the answers' order, [N] of int."""
  ids, mine = truth[column].astype(str), given[column].astype(str)
  seen = ids.groupby(ids).cumcount().astype(str)
  places = pd.Series(
    range(len(given)),
    index=mine + '#' + mine.groupby(mine).cumcount().astype(str),
  )
  return places.loc[ids + '#' + seen].to_numpy()


def halves(name: str, home: pathlib.Path, submission: bytes):
  """(half -> submission, answers), rows in the answers' order."""
  if is_arrays(name):
    return _array_halves(name, home, submission)
  metric = record(name)['metric']
  path = home / 'submission.csv'
  path.write_bytes(submission)
  given, truth = read(name, path), read(name, home / 'private/answers.csv')
  entry = COMPETITIONS[metric]
  if entry.id_column not in given and entry.id_alias in given:
    given = given.rename(columns={entry.id_alias: entry.id_column})
  if entry.id_column:
    given = given.iloc[_places(given, truth, entry.id_column)]
    given = given.reset_index(drop=True)
  out = {}
  for half in HALVES:
    rows = (truth['split'] == half).to_numpy()
    answers = truth[rows].drop(columns='split').reset_index(drop=True)
    out[half] = given[rows].reset_index(drop=True), answers
  return out


def _array_halves(name: str, home: pathlib.Path, submission: bytes):
  """The same of a task that is graded by arrays: arrays by name."""
  form = pathlib.Path(submission_of(name)).suffix
  given = arrays.read_arrays(submission, form)
  truth = arrays.read_arrays(answers_of(name, home), texts=('split',))
  split = truth.pop('split')
  return {
    half: (_rows(given, split == half), _rows(truth, split == half))
    for half in HALVES
  }


def _rows(found, rows):
  """Rows of a table, or of arrays by name."""
  if isinstance(found, dict):
    return {name: array[rows] for name, array in found.items()}
  return found.iloc[rows].reset_index(drop=True)


def graded(name: str, submission, answers) -> graders.Grade:
  """Grades a table or arrays."""
  both = isinstance(answers, dict)
  grade = graders.grade_arrays if both else graders.grade_tables
  return grade(record(name)['metric'], submission, answers)


def score(name: str, submission, answers) -> float:
  grade = graded(name, submission, answers)
  assert grade.score is not None, grade.reason
  return grade.score


def margin(name: str, first, second, resamples: int = 50) -> float:
  """How many standard errors `second` is better than `first`, on the same rows."""
  metric = record(name)['metric']
  (one, answers), (two, _) = first, second
  id_column = COMPETITIONS[metric].id_column
  rng = np.random.RandomState(0)
  gains = []
  for _ in range(resamples):
    if isinstance(answers, dict):
      count = len(next(iter(answers.values())))
      rows = rng.randint(count, size=count)
      anew = [_rows(f, rows) for f in (one, two, answers)]
      gains.append(
        score(name, anew[1], anew[2]) - score(name, anew[0], anew[2])
      )
      continue
    if check_published.GROUP in answers:
      groups = answers[check_published.GROUP].to_numpy()
      rows = check_published.resampled(rng, np.arange(len(answers)), groups)
      anew = [f.iloc[rows].reset_index(drop=True) for f in (one, two, answers)]
      gains.append(
        score(name, anew[1], anew[2]) - score(name, anew[0], anew[2])
      )
      continue
    rows = rng.randint(len(answers), size=len(answers))
    names = [f'r{k}' for k in range(len(rows))]
    anew = [
      frame.iloc[rows]
      .reset_index(drop=True)
      .assign(**({id_column: names} if id_column else {}))
      for frame in (one, two, answers)
    ]
    gains.append(score(name, anew[1], anew[2]) - score(name, anew[0], anew[2]))
  sign = 1 if graders.higher_is_better(metric, 'strict') else -1
  gain = score(name, two, answers) - score(name, one, answers)
  return float(sign * gain / np.std(gains))


def measure(name: str) -> None:
  with tempfile.TemporaryDirectory() as folder:
    home = pathlib.Path(folder)
    begun = time.monotonic()
    done = prepare(name, home, '--standin')
    assert done.returncode == 0, done.stderr[-3000:]
    print(f'{name}: prepare {time.monotonic() - begun:.1f} s', end='')
    files = [p for p in (home / 'public').rglob('*') if p.is_file()]
    print(
      f', {sum(p.stat().st_size for p in files) / 1e6:.2f} MB, {len(files)} files'
    )
    both = []
    for script in ('env/train.py', 'solution/reference.py'):
      begun = time.monotonic()
      submission = run(TASKS / name / script, home / 'public')
      wall = time.monotonic() - begun
      both.append(halves(name, home, submission))
      shown = {h: score(name, *both[-1][h]) for h in HALVES}
      print(f'  {script} {wall:.1f} s', shown)
    sample = halves(name, home, sample_of(name, home).read_bytes())
    for half in HALVES:
      grade = graded(name, *sample[half])
      print(f'  sample {half}', grade.score, grade.reason)
    for half in HALVES:
      answers = both[0][half][1]
      n = len(next(iter(answers.values())) if is_arrays(name) else answers)
      print(
        f'  {half} {n} rows, margin {margin(name, both[0][half], both[1][half]):.1f} se'
      )


if __name__ == '__main__':
  for task in sys.argv[1:]:
    measure(task)
