"""Scores worked out by hand, in both modes, from files and in memory."""

from __future__ import annotations

import numpy as np
import pytest

from jaxagent import graders
from tests.graders import hand_computed
from tests.graders.hand_computed import CASES


def _in_memory(name, submission, answers, mode='strict'):
  if isinstance(submission, dict):
    return graders.grade_arrays(name, submission, answers, mode)
  return graders.grade_tables(name, submission, answers, mode)


def test_every_further_grader_has_a_case():
  assert set(CASES) < set(graders.names())
  assert len(graders.names()) == 27 + len(CASES)


@pytest.mark.parametrize('mode', graders.MODES)
@pytest.mark.parametrize('name', CASES)
def test_score_is_the_one_worked_out(tmp_path, name, mode):
  answers, submission, want = CASES[name]
  suffix = '.npy' if isinstance(answers, dict) else '.csv'
  paths = tmp_path / f's{suffix}', tmp_path / f'a{suffix}'
  hand_computed.write(paths[0], submission)
  hand_computed.write(paths[1], answers)
  got = graders.grade_files(name, *paths, mode)
  assert (got.score, got.reason) == (want, '')
  assert got.higher_is_better == (name not in hand_computed.LOWER_IS_BETTER)
  assert _in_memory(name, submission, answers, mode).score == want


@pytest.mark.parametrize('mode', graders.MODES)
@pytest.mark.parametrize('name', CASES)
def test_no_submission_is_better_than_the_answers(name, mode):
  answers, submission, want = CASES[name]
  if name in ('cifar10', 'imdb'):
    classes = 10 if name == 'cifar10' else 2
    gold = submission.copy()
    gold.iloc[:, 1:] = np.eye(classes)[answers['label']]
  elif name == 'babylm':
    gold = {'': np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])}
  elif name == 'fathomnet':
    gold = answers.assign(osd=0.5)
  else:
    gold = answers
  best = _in_memory(name, gold, answers, mode).score
  assert best == {'babylm': 1.0}.get(
    name, 0.0 if name in hand_computed.LOWER_IS_BETTER else 1.0
  )
  lower = name in hand_computed.LOWER_IS_BETTER
  assert best < want if lower else best > want


# Not of arrays and of a table without ids, whose order is the key.
WITH_IDS = [
  name
  for name, (answers, *_) in CASES.items()
  if not isinstance(answers, dict) and name != 'ogbn-arxiv'
]


@pytest.mark.parametrize('name', WITH_IDS)
def test_strict_ignores_the_order_of_rows_and_columns(name):
  answers, submission, want = CASES[name]
  turned = submission.iloc[::-1, ::-1]
  assert _in_memory(name, turned, answers).score == want
