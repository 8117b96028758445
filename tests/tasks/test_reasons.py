"""A task that is at fault is named in one line, with the reason."""

from __future__ import annotations

import dataclasses

import pytest

from jaxagent import types
from jaxagent.envs import execution, failures
from jaxagent.envs import tasks as lib
from jaxagent.envs.grading import Grader
from jaxagent.tasks.check import Data, to_csv
from tests.subset import fast


def _with_eval(task, folder, text: str):
  root = folder / 'task'
  (root / 'scripts').mkdir(parents=True)
  (root / 'scripts/eval.py').write_text(text)
  return dataclasses.replace(
    task, spec=dataclasses.replace(task.spec, root=root)
  )


SCORE = 'def score(submission, answers):\n  return 0.5\n'


@pytest.mark.parametrize(
  'text, reason',
  fast(
    [
      (
        'import no_such_package\n' + SCORE,
        "imports 'no_such_package', which is not",
      ),
      (
        'from no_such_package.deep import x\n' + SCORE,
        "imports 'no_such_package'",
      ),
      (
        'def score(submission, answers):\n  import no_such_package\n  return 0.5\n',
        "imports 'no_such_package', which is not installed here",
      ),
      ('raise SystemExit("not so")\n' + SCORE, 'SystemExit: not so'),
      ('raise KeyError("a\\nb")\n' + SCORE, 'KeyError: '),
      ('def score(:\n', 'SyntaxError: '),
    ],
    first=2,
  ),
  ids=range(6),
)
def test_an_eval_that_cannot_be_used_is_named(prepared, tmp_path, text, reason):
  task = _with_eval(prepared['wine'], tmp_path, text)
  with pytest.raises(ValueError) as said:
    Grader({'wine': task})
  words = str(said.value)
  assert (
    'task wine: ' in words and 'scripts/eval.py' in words and reason in words
  )
  assert '\n' not in words


@pytest.mark.parametrize(
  'text',
  [
    'print("loading")\n' + SCORE,
    'try:\n  import no_such_package\nexcept ImportError:\n  pass\n' + SCORE,
    'def score(submission, answers):\n'
    '  try:\n    import no_such_package\n  except ImportError:\n    return 0.5\n',
  ],
  ids=['prints', 'optional', 'optional within'],
)
def test_an_eval_that_can_be_used_is(prepared, tmp_path, text):
  task = _with_eval(prepared['wine'], tmp_path, text)
  with Grader({'wine': task}) as grader:
    gold = to_csv(Data(prepared['wine']).gold())
    assert grader.grade('wine', gold).score == 0.5


SAID = {
  'exception': ("Traceback (most recent call last):\n  File 'a'\n    x\n"
                "KeyError: 'no such column'\n", "KeyError: 'no such column'"),
  'of two the last': ('Traceback (most recent call last):\n  File\nA: 1\n\nDuring\n\n'
                      'Traceback (most recent call last):\n  File\nB: 2\n', 'B: 2'),
  'several lines': ('Traceback (most recent call last):\n  File\nA: 1\n more\n', 'A: 1 more'),
  'none': ('epoch 1\nKilled by hand\n', 'Killed by hand'),
  'nothing': (' \n', ''),
  'long': (f'x\n{"y" * 5000}', f'{"y" * 297}...'),
}  # fmt: skip


@pytest.mark.parametrize('case', SAID)
def test_last_words(case):
  output, expected = SAID[case]
  assert failures.last_words(output) == expected


def test_a_reason_joins_the_sandbox_and_the_script():
  failed = types.Execution(
    job_id='a',
    outcome=types.Outcome.SCRIPT_ERROR,
    tier='T1',
    output=SAID['exception'][0],
  )
  assert execution.reason_of('it exited with 1', failed) == (
    "it exited with 1 (KeyError: 'no such column')"
  )
  good = dataclasses.replace(failed, outcome=types.Outcome.OK)
  assert execution.reason_of('it wrote nothing', good) == 'it wrote nothing'


def test_a_preparation_that_fails_says_why(tasks_dir, tmp_path):
  script = tmp_path / 'wine/scripts/prepare.py'
  script.parent.mkdir(parents=True)
  script.write_text('import no_such_package\n')
  spec = dataclasses.replace(
    lib.load_task('wine', tasks_dir), root=tmp_path / 'wine'
  )
  with pytest.raises(
    ValueError, match="No module named 'no_such_package'"
  ) as said:
    lib.prepare_task(spec, tmp_path / 'out')
  assert '\n' not in str(said.value)


LOG_LOSS = """
from sklearn.metrics import log_loss
def score(submission, answers):
  names = [c[2:] for c in submission.columns]
  return log_loss(answers['variety'], submission.to_numpy(), labels=names)
"""


def test_scaled_probabilities_have_the_score_of_their_shares(
  prepared, tmp_path
):
  """scikit-learn's log loss takes a sum of 1.0099 for confidence."""
  task = _with_eval(prepared['wine'], tmp_path, LOG_LOSS)
  gold = Data(prepared['wine']).gold()
  names = [c for c in gold.columns if c != 'id']
  sure = gold.copy()
  sure[names] = 0.94 * gold[names] + 0.02
  assert sure[names].sum(axis=1).to_numpy() == pytest.approx(1)
  with Grader({'wine': task}) as grader:
    want = grader.grade('wine', to_csv(sure)).score
    for factor in (1.0099, 0.9901, 1.000001):
      scaled = sure.copy()
      scaled[names] = sure[names] * factor
      found = grader.grade('wine', to_csv(scaled))
      assert found.score == pytest.approx(want, abs=1e-12), found
    beyond = sure.copy()
    beyond[names] = sure[names] * 1.02
    found = grader.grade('wine', to_csv(beyond))
    assert found.outcome is types.Outcome.INVALID_SUBMISSION


def _with_ids(task, folder, change):
  """The task with other ids in its answers and its sample."""
  import pandas as pd

  out = {}
  for kind, name in (
    ('public_dir', 'sample_submission.csv'),
    ('private_dir', 'answers.csv'),
  ):
    home = folder / kind
    home.mkdir(parents=True)
    text = dict(dtype=str, keep_default_na=False)
    table = pd.read_csv(getattr(task, kind) / name, **text)
    table['id'] = change(table['id'])
    table.to_csv(home / name, index=False)
    out[kind] = home
  return dataclasses.replace(task, **out)


@pytest.mark.parametrize(
  'change',
  fast(
    [lambda ids: ids + '.0', lambda ids: ids + '.00', lambda ids: ' ' + ids],
    first=1,
  ),
  ids=['1.0', '1.00', ' 1'],
)
def test_ids_of_answers_are_read_as_those_of_submissions(
  prepared, tmp_path, change
):
  task = _with_ids(prepared['digits'], tmp_path, change)
  gold = Data(prepared['digits']).gold()
  with Grader({'digits': task}) as grader:
    for own in (gold, gold.assign(id=change(gold['id'].astype(str)))):
      found = grader.grade('digits', to_csv(own))
      assert (found.score, found.reason) == (1.0, '')


def test_two_ids_that_are_one_are_refused(prepared, tmp_path):
  def change(ids):
    ids = ids.copy()
    ids.iloc[1] = ids.iloc[0] + '.0'
    return ids

  task = _with_ids(prepared['digits'], tmp_path, change)
  with pytest.raises(ValueError, match='task digits: .*occurs twice'):
    Grader({'digits': task})
