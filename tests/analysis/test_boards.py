"""Scores between a leaderboard's worst and best, and boards that are refused."""

from __future__ import annotations

import json
import math
import pathlib

import pytest

from jaxagent.analysis.boards import (
  HUMAN,
  REFERENCE,
  Board,
  human_board,
  reference_board,
)

REAL = json.loads(
  (
    pathlib.Path(__file__).parents[1] / 'golden' / 'human_boards.json'
  ).read_text()
)


def real(task: str) -> Board:
  facts = REAL['boards'][task]
  scores = tuple(facts[name] for name in ('best', 'median', 'worst'))
  return Board(task, HUMAN, scores, facts['higher_is_better'], 'golden')


def write(folder: pathlib.Path, text: str | bytes) -> pathlib.Path:
  path = folder / 'leaderboard.csv'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return path


@pytest.mark.parametrize(
  'case', REAL['worked'], ids=lambda case: f'{case["task"]} {case["score"]}'
)
def test_scores_are_normalised_to_real_boards_as_worked_by_hand(case):
  got = real(case['task']).normalised(case['score'])
  assert got == pytest.approx(case['normalised'], abs=5e-5)


@pytest.mark.parametrize('task', REAL['boards'])
def test_the_best_of_a_real_board_has_100_and_the_worst_0(task):
  board = real(task)
  assert board.normalised(board.best) == 100.0
  assert board.normalised(board.worst) == 0.0
  assert board.best == REAL['boards'][task]['best']


def test_a_metric_without_bound_blinds_the_score_but_not_the_rank():
  """99.5 of 100 for the median human of a log loss, whose rank is the middle."""
  board = real('dogs-vs-cats-redux-kernels-edition')
  assert round(board.normalised(0.122), 1) == 99.5
  assert board.percentile(0.122) == 50.0


@pytest.mark.parametrize('score', [None, math.nan, math.inf, -math.inf])
def test_a_run_without_a_finite_score_has_neither_figure(score):
  board = real('spaceship-titanic')
  assert board.normalised(score) is None and board.percentile(score) is None


@pytest.mark.parametrize('higher', [True, False])
def test_the_percentile_is_the_share_of_entries_that_are_beaten(higher):
  sign = 1 if higher else -1
  scores = tuple(sign * s for s in (9.0, 5.0, 5.0, 1.0))
  board = Board('t', HUMAN, scores, higher, 'x')
  found = [board.percentile(sign * s) for s in (10, 9, 7, 5, 2, 1, 0)]
  assert found == [100.0, 87.5, 75.0, 50.0, 25.0, 12.5, 0.0]


@pytest.mark.parametrize(
  'text, message',
  [
    (
      b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n',
      'is a Git-LFS pointer.*git lfs pull',
    ),
    ('score\n0.5\n0.5\n', 'best and worst are both 0.5'),
    ('score\n0.5\n', 'best and worst are both 0.5'),
    ('score\n0.9\nnan\n0.1\n', 'rows without a score'),
    ('score\n0.9\n\n,\n', 'not a readable CSV|rows without a score'),
    ('0.9\n0.8\n0.1\n', 'no `score` column'),
    ('team,points\na,1\nb,0\n', 'no `score` column'),
    ('score\n', 'is empty'),
    ('', 'not a readable CSV'),
    ('score\ngood\nbad\n', 'no number: could not convert'),
    ('score\n-9999\n-9999\n', 'has no scores'),
    ('score\ninf\n0.1\n', 'holds inf'),
    ('score\n0.1\n0.9\n', 'begins with 0.1 and ends with 0.9, but higher'),
    (b'\xff\xfe\x00score\n', 'board'),
  ],
)
def test_a_board_that_cannot_be_used_is_refused_by_task_and_file(
  tmp_path, text, message
):
  path = write(tmp_path, text)
  with pytest.raises(ValueError, match=message) as refused:
    human_board(path, task='wine', higher_is_better=True)
  assert 'wine' in str(refused.value) and str(path) in str(refused.value)


def test_a_board_that_is_not_there_is_refused_by_task_and_file(tmp_path):
  for path in (tmp_path / 'none.csv', tmp_path):
    with pytest.raises(ValueError, match=f'task wine.*{path}'):
      human_board(path, task='wine', higher_is_better=True)


def test_a_human_board_is_read_in_the_order_of_its_metric(tmp_path):
  path = write(tmp_path, 'teamId,score\n3,0.1\n5,0.4\n1,0.9\n')
  board = human_board(path, task='wine', higher_is_better=False)
  assert (board.kind, board.best, board.worst) == (HUMAN, 0.1, 0.9)
  assert board.normalised(0.5) == pytest.approx(50.0)


def test_entries_without_a_score_are_left_out_and_told(tmp_path):
  path = write(tmp_path, 'score\n0.13\n0.9\n999999\n999999\n')
  board = human_board(
    path, task='wine', higher_is_better=False, faults=['0.13 is a leak']
  )
  assert (board.best, board.worst) == (0.13, 0.9)
  assert 'without 2 entries of 999999' in board.source
  assert board.source.endswith('0.13 is a leak')


def test_a_board_of_recorded_candidates_is_called_a_reference():
  board = reference_board(
    [0.7, 0.9, 0.5], task='wine', higher_is_better=True, starter=0.6
  )
  assert board.kind == REFERENCE and 'human' not in board.source
  assert (board.best, board.worst, len(board.scores)) == (0.9, 0.6, 3)
  assert board.normalised(0.6) == 0.0 and board.normalised(0.5) == 0.0
  assert board.normalised(0.75) == pytest.approx(50.0)


def test_a_reference_board_of_a_metric_that_falls_has_the_starter_last():
  board = reference_board(
    [3.0, 1.0, 9.0], task='wine', higher_is_better=False, starter=5.0
  )
  assert board.scores == (1.0, 3.0, 5.0)
  whole = reference_board([3.0, 1.0, 9.0], task='wine', higher_is_better=False)
  assert whole.scores == (1.0, 3.0, 9.0)


@pytest.mark.parametrize(
  'candidates, starter, message',
  [
    ([], None, 'wine: the reference board of 0 .* has no scores'),
    ([0.5], 0.6, 'best and worst are both 0.6'),
    ([0.5, math.nan], None, 'holds nan'),
    ([0.5, math.nan], 0.1, 'holds nan'),
    ([0.5], math.inf, 'holds inf'),
  ],
)
def test_a_reference_board_without_spread_is_refused(
  candidates, starter, message
):
  with pytest.raises(ValueError, match=message):
    reference_board(
      candidates, task='wine', higher_is_better=True, starter=starter
    )


def test_an_unknown_kind_is_refused():
  with pytest.raises(ValueError, match="kind='own'; choose human or reference"):
    Board('t', 'own', (1.0, 0.0), True, 'x')
