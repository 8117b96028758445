"""The scores of mle-bench's own graders, and what strict refuses."""

from __future__ import annotations

import json
import math
import pathlib

import pytest

from jaxagent import graders

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'mlebench'
_FOLDERS = sorted(p.name for p in _GOLDEN.iterdir())
_MALFORMED = (
  'half_of_rows',
  'duplicated_id',
  'extra_column',
  'nan_cell',
  'wrong_ids',
  'no_rows',
)


def _grade(competition, submission, mode):
  folder = _GOLDEN / competition
  return graders.grade_files(
    competition, folder / f'{submission}.csv', folder / 'answers.csv', mode
  )


def test_every_golden_competition_has_a_grader():
  assert set(_FOLDERS) <= set(graders.names()) and len(_FOLDERS) == 27


@pytest.mark.parametrize('competition', _FOLDERS)
def test_compat_equals_mlebench(competition):
  expected = json.loads((_GOLDEN / competition / 'expected.json').read_text())
  assert len(expected) == 10
  for name, want in expected.items():
    got = _grade(competition, name, 'compat')
    if want is None:
      assert got.score is None and got.reason, name
    elif want == 'nan':
      assert math.isnan(got.score), name
    else:
      assert got.score == pytest.approx(want, abs=1e-9), (name, got)


# Their answers hold empty cells, or their well-formed submissions do: there
# `nan_cell.csv` is `noisy.csv`, byte for byte.
_EMPTY_IS_AN_ANSWER = (
  'tgs-salt-identification-challenge',
  'tweet-sentiment-extraction',
)


@pytest.mark.parametrize('competition', _FOLDERS)
def test_strict_refuses_malformed_and_ignores_order(competition):
  expected = json.loads((_GOLDEN / competition / 'expected.json').read_text())
  assert _grade(competition, 'perfect', 'strict').score == expected['perfect']
  scores = {}
  for name in ('noisy', 'shuffled_rows', 'reversed_columns'):
    got = _grade(competition, name, 'strict')
    assert got.score is not None, (name, got.reason)
    scores[name] = got.score
  assert len(set(scores.values())) == 1
  if competition != 'tgs-salt-identification-challenge':
    assert scores['noisy'] == pytest.approx(expected['noisy'], abs=1e-9)
  for name in _MALFORMED:
    got = _grade(competition, name, 'strict')
    if name == 'nan_cell' and competition in _EMPTY_IS_AN_ANSWER:
      assert got.score == scores['noisy']
    else:
      assert got.score is None and got.reason, name
