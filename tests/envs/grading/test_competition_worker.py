"""A reward and `python -m jaxagent.grade` are one score, whatever is submitted."""

from __future__ import annotations

import io
import itertools
import pathlib

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.envs.grading import CHECKS, grade_worker
from jaxagent.envs.grading.competition_worker import CompetitionTask
from jaxagent.graders import folders, tables
from tests.graders import hand_computed, random_changes
from tests.graders.hand_computed import CASES

_GOLDEN = pathlib.Path(__file__).parents[2] / 'golden' / 'mlebench'
_MLEBENCH = sorted(path.name for path in _GOLDEN.iterdir())
# Grader -> submissions: several columns, lists in text cells, masks that may be
# empty, arrays.
FAST = {
  'feedback': 200,
  'fathomnet': 300,
  'tgs-salt-identification-challenge': 200,
  'CLRS': 700,
  'babylm': 600,
}


def _case(name: str):
  """Answers with halves, and a submission to begin with."""
  if name in CASES:
    answers, base, _ = CASES[name]
  else:
    answers = pd.read_csv(_GOLDEN / name / 'answers.csv')
    base = pd.read_csv(_GOLDEN / name / 'noisy.csv')
  if isinstance(answers, dict):
    twice = [np.concatenate([a[''], a['']]) for a in (answers, base)]
    halves = np.repeat(['valid', 'private'], len(answers['']))
    return {'x': twice[0], 'split': halves}, {'': twice[1]}
  halves = ['valid' if i % 2 else 'private' for i in range(len(answers))]
  return answers.assign(split=halves), base


class Both:
  """One task in the training worker and as files of the command line."""

  def __init__(self, name: str, folder: pathlib.Path):
    answers, self.base = _case(name)
    self.name, self.arrays = name, isinstance(answers, dict)
    form = 'npy' if self.arrays else 'csv'
    self.truth = folder / ('a.npz' if self.arrays else 'a.csv')
    self.path, sample = folder / f's.{form}', folder / f'sample.{form}'
    hand_computed.write(self.truth, answers)
    hand_computed.write(sample, self.base)
    entry = {
      'grader': name,
      'answers': str(self.truth),
      'sample': str(sample),
      'suffix': f'.{form}',
      'max_bytes': 10**7,
      'id': '',
      'targets': [],
    }
    self.task = CompetitionTask('one', entry)
    self.loaded = graders.load(name, self.truth)

  def random_bytes(self, rng) -> bytes:
    """A changed submission as a file; of five one has damaged bytes."""
    if self.arrays:
      given = {'': random_changes.changed_array(rng, self.base[''])}
    else:
      given = random_changes.changed(rng, self.base, self.base.columns[0])
    hand_computed.write(self.path, given)
    return self._perhaps_damaged(rng, self.path.read_bytes())

  def _perhaps_damaged(self, rng, data: bytes) -> bytes:
    if rng.integers(5):
      return data
    damaged = bytearray(data[: int(rng.integers(len(data) + 1))])
    for _ in range(int(rng.integers(4))):
      if damaged:
        damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
    return bytes(damaged)

  def check(self, data: bytes, split: str, anew: bool) -> bool:
    """Grades both ways; whether there is a score.

    anew: by `grade_files`, which reads the answers each time; else by what it calls.
    """
    self.path.write_bytes(data)
    if anew:
      want = graders.grade_files(
        self.name, self.path, self.truth, scope=graders.Scope(split=split)
      )
    else:
      want = self.loaded.grade_file(self.path, split)
    got = grade_worker.grade(self.task, data, split)
    assert got['score'] == want.score, (data, got, want)
    if want.failed:
      assert got['status'] == 'invalid', (data, got, want)
      passed = CHECKS.index('text') + tables.CHECKS.index(want.failed)
      assert got['passed'] == passed, (data, got, want)
    else:
      assert got['status'] == ('error' if want.score is None else 'ok'), got
    return want.score is not None


class InParts(Both):
  """As Both, of a `.zip` of parts: a table's rows, or a file for an array."""

  def __init__(self, name: str, folder: pathlib.Path):
    super().__init__(name, folder)
    self.path, self.task.suffix = folder / 's.zip', '.zip'

  def random_bytes(self, rng) -> bytes:
    if self.arrays:
      out = io.BytesIO()
      np.save(out, random_changes.changed_array(rng, self.base['']))
      parts = [out.getvalue()]
    else:
      table = random_changes.changed(rng, self.base, self.base.columns[0])
      places = sorted(rng.integers(0, len(table) + 1, int(rng.integers(3))))
      parts = [
        table.iloc[low:high].to_csv(index=False).encode()
        for low, high in itertools.pairwise([0, *places, len(table)])
      ]
    parts = [self._perhaps_damaged(rng, part) for part in parts]
    names = ['x.npy'] if self.arrays else ['a.csv', 'b.csv', 'c.csv']
    data = folders.zipped(dict(zip(names, parts)))
    return self._perhaps_damaged(rng, data)


def _fuzz(
  name: str, count: int, folder: pathlib.Path, kind: type[Both] = Both
) -> None:
  both = kind(name, folder)
  rng = np.random.default_rng(sum(name.encode()))
  graded = sum(
    both.check(both.random_bytes(rng), ('valid', 'private')[i % 2], i % 20 < 2)
    for i in range(count)
  )
  assert count // 50 < graded < count


@pytest.mark.slow
def test_random_changes_make_what_is_graded_and_what_is_refused(tmp_path):
  """2,000 submissions of five graders, a fifth of them with damaged bytes."""
  assert sum(FAST.values()) == 2000
  for name, count in FAST.items():
    folder = tmp_path / name
    folder.mkdir()
    _fuzz(name, count, folder)


@pytest.mark.parametrize(('name', 'count'), [('feedback', 100), ('CLRS', 200)])
def test_parts_are_graded_alike(tmp_path, name, count):
  _fuzz(name, count, tmp_path, InParts)


def test_a_reason_never_quotes_the_answers(tmp_path):
  """Of texts, lists of labels and orders, whatever is submitted."""
  ids = [f'row{i}' for i in range(6)]
  secret = [f'secret{i} hidden{i}' for i in range(6)]
  for name, column, target in (
    ('whale-categorization-playground', 'Image', 'Id'),
    ('tweet-sentiment-extraction', 'textID', 'selected_text'),
    ('chaii-hindi-and-tamil-question-answering', 'id', 'PredictionString'),
    ('AI4Code', 'id', 'cell_order'),
  ):
    paths = tmp_path / 'a.csv', tmp_path / 'sample.csv'
    halves = ['valid', 'private'] * 3
    answers = pd.DataFrame({column: ids, target: secret, 'split': halves})
    base = answers[[column]].assign(**{target: 'a b'})
    for path, table in zip(paths, (answers, base)):
      table.to_csv(path, index=False)
    entry = {'grader': name, 'suffix': '.csv', 'max_bytes': 10**6, 'id': ''}
    files = {'answers': str(paths[0]), 'sample': str(paths[1]), 'targets': []}
    task = CompetitionTask('one', {**entry, **files})
    rng = np.random.default_rng(0)
    reasons = set()
    for _ in range(60):
      given = random_changes.changed(rng, base, column)
      data = given.to_csv(index=False).encode()
      got = grade_worker.grade(task, data, 'valid', own_work=True)
      if got['status'] == 'invalid':
        reasons.add(got['reason'])
    assert len(reasons) > 5
    assert not any('secret' in r or 'hidden' in r for r in reasons), reasons


def test_arrays_unlike_the_sample_in_shape_or_name_are_compared_with_it(
  tmp_path,
):
  """More symbols than the sample has, and a name that only one file has."""
  truth = {'x': np.array([0, 1, 1, 0]), 'split': ['valid', 'private'] * 2}
  np.savez(tmp_path / 'a.npz', **truth)
  np.savez(tmp_path / 's.npz', x=np.full((4, 2), 0.5))
  entry = {
    'grader': 'babylm',
    'answers': str(tmp_path / 'a.npz'),
    'sample': str(tmp_path / 's.npz'),
    'suffix': '.npz',
    'max_bytes': 10**6,
    'id': '',
    'targets': [],
  }
  task = CompetitionTask('one', entry)
  for arrays, status in (
    ({'x': np.full((4, 3), 1 / 3)}, 'ok'),
    ({'': np.full((4, 3), 1 / 3)}, 'ok'),
    ({'': np.full((4, 2), 0.5)}, 'invalid'),
    ({'x': np.full((4, 2), 0.5)}, 'invalid'),
  ):
    np.savez(tmp_path / 'given.npz', **arrays)
    data = (tmp_path / 'given.npz').read_bytes()
    got = grade_worker.grade(task, data, 'valid', own_work=True)
    assert got['status'] == status, got
    assert status == 'ok' or got['reason'] == grade_worker.COPY


def test_a_file_far_larger_than_the_sample_is_not_searched_for_a_copy(
  tmp_path, monkeypatch
):
  both = Both('feedback', tmp_path)
  assert both.task.said is not None
  monkeypatch.setattr(
    grade_worker, 'loose_table', None
  )  # fails if it is called
  data = b'a,b\n' + b'x\n' * both.task.comparable
  got = grade_worker.grade(both.task, data, 'valid', own_work=True)
  assert got['status'] == 'invalid' and got['passed'] <= CHECKS.index('table')


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.parametrize('name', [*CASES, *_MLEBENCH])
def test_two_thousand_submissions_a_grader(tmp_path, name):
  _fuzz(name, 2000, tmp_path)
