"""`python -m jaxagent.grade`, reports, medals, and bad input."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pandas as pd
import pytest

from jaxagent import grade, graders
from jaxagent.graders import report, strict, tables

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'mlebench'


def _line(competition, submission, mode='compat', **more):
  folder = _GOLDEN / competition
  return json.dumps(
    {
      'competition': competition,
      'submission': str(folder / f'{submission}.csv'),
      'answers': str(folder / 'answers.csv'),
      'mode': mode,
      **more,
    }
  )


def test_command_line_with_report_and_medals(tmp_path):
  board = tmp_path / 'boards' / 'spaceship-titanic' / 'leaderboard.csv'
  board.parent.mkdir(parents=True)
  scores = [0.99 - 0.01 * i for i in range(20)]
  pd.DataFrame({'score': scores}).to_csv(board, index=False)
  jsonl = tmp_path / 'in.jsonl'
  lines = [
    '# a comment',
    _line('spaceship-titanic', 'perfect'),
    '',
    _line('spaceship-titanic', 'wrong_ids', 'strict'),
    '// another',
    _line('dogs-vs-cats-redux-kernels-edition', 'noisy'),
    _line('spaceship-titanic', 'not_there'),
  ]
  jsonl.write_text('\n'.join(lines))
  out = tmp_path / 'report.json'
  command = [sys.executable, '-X', 'importtime', '-m', 'jaxagent.grade']
  command += ['--jsonl', str(jsonl), '--report', str(out)]
  command += ['--leaderboards', str(tmp_path / 'boards')]
  done = subprocess.run(command, capture_output=True, text=True, timeout=120)
  assert done.returncode == 0, done.stderr[-2000:]
  imported = {row.split('|')[-1].strip() for row in done.stderr.splitlines()}
  assert 'pandas' in imported and 'jax' not in imported
  got = [json.loads(line) for line in done.stdout.splitlines()]
  assert [g['score'] for g in got] == [1.0, None, 0.15058, None]
  assert 'test set' in got[1]['reason'] and 'not_there' in got[3]['reason']
  total = json.loads(out.read_text())
  assert total['total_runs'] == 4 and total['total_valid_submissions'] == 2
  assert total['total_runs_with_submissions'] == 3
  assert total['total_medals'] == total['total_gold_medals'] == 1
  first, _, third, _ = total['competition_reports']
  assert (
    list(first)
    == (
      'competition_id score gold_threshold silver_threshold bronze_threshold '
      'median_threshold any_medal gold_medal silver_medal bronze_medal '
      'above_median submission_exists valid_submission is_lower_better '
      'created_at submission_path'
    ).split()
  )
  assert first['gold_medal'] and not first['silver_medal']
  assert third['is_lower_better'] and third['gold_threshold'] is None


def test_faulty_lines_are_named(tmp_path, capsys):
  jsonl = tmp_path / 'in.jsonl'
  jsonl.write_text(
    '{not json\n'
    + json.dumps({'competition': 'x'})
    + '\n'
    + _line('no-such-competition', 'perfect').replace('answers', 'answers', 1)
    + '\n'
    + _line('spaceship-titanic', 'perfect', 'lenient')
  )
  assert grade.main(['--jsonl', str(jsonl)]) == 1
  reasons = [
    json.loads(line)['reason'] for line in capsys.readouterr().out.splitlines()
  ]
  assert 'not JSON' in reasons[0] and 'lacks' in reasons[1]
  assert "Unknown competition 'no-such-competition'" in reasons[2]
  assert "Unknown mode 'lenient'" in reasons[3]


def test_lines_of_odd_types_are_faults_of_their_own_and_the_others_graded(
  tmp_path, capsys
):
  lines = [
    _line('spaceship-titanic', 'perfect', leaderboard=5),
    '[' * 100_000,
    _line('spaceship-titanic', 'perfect', leaderboard=None),
  ]
  (tmp_path / 'in.jsonl').write_text('\n'.join(lines))
  assert grade.main(['--jsonl', str(tmp_path / 'in.jsonl')]) == 1
  first, second, third = _answers(capsys)
  assert first['reason'] == 'line 1: leaderboard=5 must be the path of a file'
  assert 'line 2 is not JSON' in second['reason']
  assert third['score'] == 1.0


def test_a_file_that_is_no_text_and_a_report_without_a_place_are_told(
  tmp_path, capsys
):
  path = tmp_path / 'in.jsonl'
  path.write_bytes(b'\xff\xfe')
  with pytest.raises(SystemExit) as left:
    grade.main(['--jsonl', str(path)])
  assert left.value.code == 2
  assert 'cannot be read as UTF-8 text' in capsys.readouterr().err
  path.write_text(_line('spaceship-titanic', 'perfect'))
  out = str(path / 'report.json')  # below a file
  assert grade.main(['--jsonl', str(path), '--report', out]) == 1
  said = capsys.readouterr()
  assert json.loads(said.out)['score'] == 1.0
  assert f'--report {out} cannot be written' in said.err


def test_leaderboards_that_cannot_be_used(tmp_path):
  board = tmp_path / 'leaderboard.csv'
  board.write_text('version https://git-lfs.github.com/spec/v1\noid sha256:0\n')
  with pytest.raises(report.LeaderboardError, match='git lfs pull'):
    report.read_leaderboard(board)
  board.write_text('points\n1\n')
  with pytest.raises(report.LeaderboardError, match='no `score` column'):
    report.read_leaderboard(board)


def _answers(capsys):
  return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_score_stands_whatever_the_leaderboard(tmp_path, capsys):
  pointer = tmp_path / 'boards' / 'spaceship-titanic' / 'leaderboard.csv'
  pointer.parent.mkdir(parents=True)
  pointer.write_text('version https://git-lfs.github.com/spec/v1\noid sha:0\n')
  jsonl, out = tmp_path / 'in.jsonl', tmp_path / 'report.json'
  missing = _line('spaceship-titanic', 'perfect', leaderboard='none.csv')
  jsonl.write_text(_line('spaceship-titanic', 'perfect') + '\n' + missing)
  code = grade.main(
    [
      '--jsonl',
      str(jsonl),
      '--report',
      str(out),
      '--leaderboards',
      str(tmp_path / 'boards'),
    ]
  )
  first, second = _answers(capsys)
  assert code == 1 and first['score'] == second['score'] == 1.0
  assert first['reason'] == '' and 'git lfs pull' in first['note']
  assert 'none.csv' in second['note']
  total = json.loads(out.read_text())
  assert total['total_valid_submissions'] == 2 and total['total_medals'] == 0
  assert total['competition_reports'][0]['gold_threshold'] is None


def test_a_board_with_marks_in_place_of_scores_is_named(tmp_path, capsys):
  board, jsonl = tmp_path / 'board.csv', tmp_path / 'in.jsonl'
  name = 'multi-modal-gesture-recognition'
  board.write_text('score\n0.13\n0.2\n999999\n999999\n')
  jsonl.write_text(_line(name, 'perfect', leaderboard=str(board)))
  assert grade.main(['--jsonl', str(jsonl)]) == 0
  (got,) = _answers(capsys)
  assert got['score'] == 0.0 and '2 of 4 scores' in got['board_note']
  assert '999999' in got['board_note']
  board.write_text('score\n0.13\n0.2\n')
  assert grade.main(['--jsonl', str(jsonl)]) == 0
  assert 'board_note' not in _answers(capsys)[0]


@pytest.mark.slow
def test_limits_of_time_and_memory(tmp_path, capsys):
  """Both submissions would take more; the line between them is graded."""
  folder = _GOLDEN / 'spaceship-titanic'
  slow, large = tmp_path / 'slow.csv', tmp_path / 'large.csv'
  slow.write_bytes((folder / 'perfect.csv').read_bytes() * 3000)
  with large.open('w') as file:
    file.write('PassengerId,Transported\n')
    for start in range(0, 12_000_000, 500_000):
      rows = range(start, start + 500_000)
      file.write(''.join(f'{row},True\n' for row in rows))
  jsonl = tmp_path / 'in.jsonl'
  for submission, option, word in (
    (slow, '--timeout_s=0.01', '0.01 s'),
    (large, '--memory_mb=1536', 'memory'),
  ):
    record = json.loads(_line('spaceship-titanic', 'perfect', 'strict'))
    lines = [{**record, 'submission': str(submission)}]
    if submission is large:
      lines.append(record)
    jsonl.write_text('\n'.join(map(json.dumps, lines)))
    assert grade.main(['--jsonl', str(jsonl), option]) == 0
    answers = _answers(capsys)
    assert answers[0]['score'] is None and word in answers[0]['reason']
    assert [a['score'] for a in answers[1:]] == [1.0] * (len(lines) - 1)


@pytest.mark.parametrize(
  'option',
  [
    '--timeout_s=0',
    '--timeout_s=inf',
    '--timeout_s=nan',
    '--timeout_s=x',
    '--timeout_s=1e300',
    '--memory_mb=1',
    '--memory_mb=-1',
    '--memory_mb=1e9',
  ],
)
def test_limits_that_make_no_sense(option, tmp_path, capsys):
  with pytest.raises(SystemExit):
    grade.main(['--jsonl', str(tmp_path), option])
  assert 'must be a number from' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('n', 'want'),
  [
    (1, (1, 1, 1)),
    (99, (9, 19, 39)),
    (100, (10, 20, 40)),
    (249, (10, 49, 99)),
    (250, (10, 50, 100)),
    (999, (11, 50, 100)),
    (1000, (12, 50, 100)),
    (2000, (14, 100, 200)),
  ],
)
def test_medal_positions(n, want):
  assert report.medal_positions(n) == want


def test_medals_exclude_each_other_and_median_is_strict():
  board = [float(v) for v in range(1, 11)]  # lower is better; median 5.5
  assert report.rank(1.0, board)['gold_medal']
  assert report.rank(2.0, board)['silver_medal']
  bronze = report.rank(4.0, board)
  assert bronze['bronze_medal'] and bronze['any_medal']
  assert not bronze['gold_medal'] and bronze['above_median']
  assert not report.rank(5.5, board)['above_median']
  assert not report.rank(None, board)['any_medal']


def _tables():
  answers = pd.DataFrame({'id': ['a', 'b', 'c'], 'target': [0, 1, 1]})
  return answers.rename(columns={'target': 'label'}), answers


@pytest.mark.parametrize(
  ('change', 'reason'),
  [
    (lambda t: t.drop(columns='label'), 'columns are missing'),
    (lambda t: t.assign(label=[0.1, float('inf'), 0.2]), 'not finite'),
    (lambda t: t.assign(label=[0.1, 1.5, 0.2]), 'between 0 and 1'),
    (lambda t: t.assign(label=['0.1', 'x', '0.2']), 'must be numeric'),
    (lambda t: t.assign(id=['a', 'a', 'c']), 'more than once'),
    (lambda t: t.assign(id=['a', 'z', 'c']), 'not of the test set'),
    (lambda t: t.assign(id=['a', None, 'c']), 'ids are empty'),
    (lambda t: t.iloc[:2], 'are missing'),
    (lambda t: t.iloc[:0], 'no rows'),
    (lambda t: t.assign(more=1), 'unexpected columns'),
  ],
)
def test_strict_reasons(change, reason):
  answers, _ = _tables()
  name = 'dogs-vs-cats-redux-kernels-edition'
  good = answers.assign(label=[0.1, 0.8, 0.9])
  assert graders.grade_tables(name, good, answers).score is not None
  before = good.copy()
  got = graders.grade_tables(name, change(good), answers)
  assert got.score is None and reason in got.reason
  pd.testing.assert_frame_equal(good, before)


def test_strict_gives_no_nan_and_no_credit_for_an_empty_mask():
  answers = pd.DataFrame({'id': ['a', 'b', 'c'], 'score': [0.0, 0.5, 1.0]})
  same = answers.assign(score=0.5)
  name = 'us-patent-phrase-to-phrase-matching'
  got = graders.grade_tables(name, same, answers, 'strict')
  assert got.score is None and 'nan' in got.reason
  name = 'tgs-salt-identification-challenge'
  full = pd.DataFrame({'id': ['a'], 'rle_mask': [f'1 {101 * 90}']})
  empty = full.assign(rle_mask='')
  assert graders.grade_tables(name, empty, full, 'compat').score > 0.7
  assert graders.grade_tables(name, empty, full, 'strict').score == 0.0
  for bad, reason in (('1 5 9', 'pairs'), ('10200 9', 'beyond')):
    got = graders.grade_tables(name, full.assign(rle_mask=bad), full)
    assert got.score is None and reason in got.reason


def test_unreadable_files(tmp_path):
  folder = _GOLDEN / 'spaceship-titanic'
  bad = tmp_path / 'submission.csv'
  for content in (b'', b'a,b\n1,2,3\n4,5,6,7\n', b'\xff\xfe\x00\x01'):
    bad.write_bytes(content)
    got = graders.grade_files(
      'spaceship-titanic', bad, folder / 'answers.csv', 'strict'
    )
    assert got.score is None and got.reason
  with pytest.raises(FileNotFoundError):
    graders.grade_files('spaceship-titanic', bad, tmp_path / 'none.csv')


def test_unknown_cells_kind():
  answers, _ = _tables()
  with pytest.raises(ValueError, match='choose one of'):
    strict.check_and_align(answers, answers, 'id', ['label'], 'colour')
  assert issubclass(tables.InvalidSubmission, ValueError)


def test_of_a_half_the_whole_test_is_reported_beside_with_its_medal(
  tmp_path, capsys
):
  """Half `valid` is right, half `private` wrong: no gold for the right half."""
  (tmp_path / 'answers.csv').write_text(
    'id,has_cactus,split\na,0,valid\nb,1,valid\nc,0,private\nd,1,private\n'
  )
  (tmp_path / 's.csv').write_text('id,has_cactus\na,0\nb,0.9\nc,0.8\nd,0.7\n')
  (tmp_path / 'board.csv').write_text('score\n1.0\n0.7\n0.6\n0.2\n0.1\n')
  line = {
    'competition': 'aerial-cactus-identification',
    'submission': 's.csv',
    'answers': 'answers.csv',
    'mode': 'strict',
    'split': 'valid',
    'leaderboard': 'board.csv',
  }
  (tmp_path / 'in.jsonl').write_text(json.dumps(line))
  out = tmp_path / 'report.json'
  given = ['--jsonl', str(tmp_path / 'in.jsonl'), '--report', str(out)]
  assert grade.main(given) == 0
  (found,) = _answers(capsys)
  assert (found['score'], found['whole'], found['medal']) == (
    1.0,
    0.75,
    'bronze',
  )
  (told,) = json.loads(out.read_text())['competition_reports']
  assert told['score'] == 0.75 and told['bronze_medal']
