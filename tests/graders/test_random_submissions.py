"""Random submissions, malformed ones among them: a score or a refusal.

A score of `strict` is finite. Where the source breaks off and `strict` gives a
score, docs/tasks.md says so: `BEYOND` is that list.
"""

from __future__ import annotations

import json
import math
import pathlib

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from tests.graders import hand_computed, random_changes
from tests.graders.hand_computed import CASES
from tests.subset import fast

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'mlebench'
_MLEBENCH = sorted(path.name for path in _GOLDEN.iterdir())
# Grader -> what the source breaks off at and `strict` grades.
BEYOND = {
  'fathomnet': 'osd is missing, or no number; a submission of single categories',
  'cifar10': 'the id is not the first column',
  'chaii-hindi-and-tamil-question-answering': 'a column of numbers as text',
  'spaceship-titanic': 'True and False beside 1 and 0',
  'spooky-author-identification': 'the id is not the first column',
}


def _check(name: str, scores: dict[str, graders.Grade]) -> None:
  for mode, grade in scores.items():
    assert (grade.score is None) == bool(grade.reason), (mode, grade)
    assert grade.score is None or mode == 'compat' or math.isfinite(grade.score)
  strict, compat = scores['strict'].score, scores['compat'].score
  if name not in BEYOND:
    assert strict is None or compat is not None, (name, scores)


def _fuzz(name: str, count: int, folder: pathlib.Path) -> None:
  rng = np.random.default_rng(sum(name.encode()))
  if name in CASES:
    answers, base, _ = CASES[name]
  else:
    answers = pd.read_csv(_GOLDEN / name / 'answers.csv')
    base = pd.read_csv(_GOLDEN / name / 'noisy.csv')
  suffix = 'npy' if isinstance(base, dict) else 'csv'
  truth, path = folder / f'a.{suffix}', folder / f's.{suffix}'
  hand_computed.write(truth, answers)
  refused = 0
  for _ in range(count):
    if isinstance(base, dict):
      given = {'': random_changes.changed_array(rng, base[''])}
    else:
      given = random_changes.changed(rng, base, base.columns[0])
    hand_computed.write(path, given)
    scores = {
      mode: graders.grade_files(name, path, truth, mode)
      for mode in graders.MODES
    }
    _check(name, scores)
    refused += scores['strict'].score is None
  assert count // 10 < refused < count


@pytest.mark.parametrize('name', fast(CASES, first=4))
def test_a_score_or_a_refusal(tmp_path, name):
  _fuzz(name, 100, tmp_path)


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.parametrize('name', [*CASES, *_MLEBENCH])
def test_two_thousand_submissions(tmp_path, name):
  _fuzz(name, 2000, tmp_path)


@pytest.mark.parametrize('name', CASES)
def test_a_file_of_random_bytes(tmp_path, name):
  """Text, half a table, arrays and objects, by every name of a file."""
  answers = CASES[name][0]
  arrays = isinstance(answers, dict)
  rng = np.random.default_rng(1)
  truth = tmp_path / ('a.npy' if arrays else 'a.csv')
  if arrays:
    np.save(truth, answers[''])
  else:
    answers.to_csv(truth, index=False)
  whole = truth.read_bytes()
  contents = [
    b'',
    whole[: len(whole) // 2],
    b'PK\x03\x04' + whole,
    rng.bytes(200),
    b'a,b\n1,2,3\n',
    b'"',
    b'[' * 100_000,
    b'{"id": [1]}\n',
    json.dumps({'0': 1}).encode(),
    b'\x93NUMPY\x01\x00v\x00{' + b' ' * 117,
  ]
  for suffix in ('csv', 'jsonl', 'npy', 'npz', 'pkl'):
    path = tmp_path / f's.{suffix}'
    for content in contents:
      path.write_bytes(content)
      for mode in graders.MODES:
        got = graders.grade_files(name, path, truth, mode)
        if mode == 'strict':
          assert got.score is None and got.reason, content[:20]
