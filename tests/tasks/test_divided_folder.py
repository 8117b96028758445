"""A folder of MLAgentBench whose file NAME.yaml names its answers: it can be trained on."""

from __future__ import annotations

import pandas as pd
import pytest

from jaxagent.config import task_checks
from jaxagent.envs import grading
from jaxagent.envs import tasks as lib
from jaxagent.envs.execution import ExecutionOptions
from jaxagent.envs.grading import Grader
from jaxagent.envs.step_env import StepEnvironment
from jaxagent.sandbox import SandboxPool
from jaxagent.tasks.__main__ import main
from jaxagent.types import Outcome
from tests.config.test_rules import _config
from tests.tasks.test_mlagentbench_folder import (
  MODELS,
  NAME,
  _lay_out,
  _submission,
)

YAML = """
answers: scripts/answer.csv
metric: house-price
higher_is_better: false
split: heldin
modality: tabular
kind: regression
m_init: 17.0
m_best: 1.0
m_best_private: 1.0
"""
IDS = range(30, 40)


def _prepared(folder, text=YAML, **changes):
  root = _lay_out(folder, **changes)
  root.with_name(f'{NAME}.yaml').write_text(text)
  spec = lib.load_task(NAME, folder)
  return lib.prepare_task(spec, folder / 'made')


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  return _prepared(tmp_path_factory.mktemp('divided'))


def _halves(task):
  table = pd.read_csv(task.private_dir / 'answers.csv')
  assert list(table.columns) == ['Id', 'SalePrice', 'split']
  return {h: set(own['Id']) for h, own in table.groupby('split')}


def test_a_submission_is_scored_on_each_half_by_our_grader(task):
  halves = _halves(task)
  assert halves['valid'] | halves['private'] == set(IDS)
  assert not halves['valid'] & halves['private']
  data = _submission(
    (i, 2.0 * i + (4 if i in halves['valid'] else 0)) for i in IDS
  )
  whole = 4 * len(halves['valid']) / len(IDS)
  with Grader({NAME: task}) as grader:
    scores = [grader.grade(NAME, data, half).score for half in grading.SPLITS]
    found = grader.grade(NAME, data, grading.WHOLE)
    assert (scores, found.score) == ([4.0, 0.0], pytest.approx(whole))
    lacking = _submission((i, 1.0) for i in IDS[1:])
    refused = grader.grade(NAME, lacking, 'valid')
    assert refused.outcome is Outcome.INVALID_SUBMISSION


def test_the_whole_is_scored_by_the_folders_own_script(tmp_path):
  """Its get_score is the source's: here it says 7 whatever is submitted."""
  task = _prepared(
    tmp_path, **{'scripts/eval.py': 'def get_score(folder): return 7.0\n'}
  )
  data = _submission((i, 2.0 * i) for i in IDS)
  with Grader({NAME: task}) as grader:
    assert grader.grade(NAME, data, grading.WHOLE).score == 7.0
    assert grader.grade(NAME, data, 'private').score == 0.0


def test_the_halves_stay_and_depend_on_the_answers(tmp_path, task):
  assert _halves(_prepared(tmp_path / 'a')) == _halves(task)
  prepare = '\n'.join(
    [
      'import pandas as pd',
      'rows = pd.DataFrame({"Id": range(30, 40), "SalePrice": range(10)})',
      'rows.to_csv("answer.csv", index=False)',
      'rows[["Id"]].to_csv("../env/test.csv", index=False)',
      'rows.to_csv("../env/train.csv", index=False)',
    ]
  )
  other = _prepared(tmp_path / 'b', **{'scripts/prepare.py': prepare})
  assert _halves(other) != _halves(task)


def test_a_step_is_scored_on_the_half_of_rewards(task):
  """The starter guesses 1.5 times an area for answers of 2 times."""
  with Grader({NAME: task}) as grader, SandboxPool(1, min_tier='T0') as pool:
    env = StepEnvironment(
      {NAME: task}, pool, grader, MODELS, options=ExecutionOptions(zygote=False)
    )
    state = env.initial_state(NAME)
  valid = _halves(task)['valid']
  assert state.score == pytest.approx(0.5 * sum(valid) / len(valid))
  assert state.score != pytest.approx(17.25)  # of all ten rows


def test_answers_are_nowhere_that_a_script_sees(task):
  shown = [*task.starter_files, *task.mounts]
  assert not any('answer' in name for name in shown)


def test_it_is_trained_on_and_without_answers_the_file_and_its_keys_are_named(
  tmp_path,
):
  root = _lay_out(tmp_path)
  beside = root.with_name(f'{NAME}.yaml')
  options = {
    'tasks_dir': str(tmp_path),
    'tasks.heldin': (NAME,),
    'tasks.heldout': (),
    'eval.policies': (),
  }
  beside.write_text(YAML)
  said = _complaint(options)
  assert NAME not in said
  beside.write_text('m_init: 17\nsplit: heldin\n')
  said = _complaint(options)
  assert str(beside) in said and 'answers' in said and 'm_best_private' in said
  beside.write_text(YAML.replace('m_best_private: 1.0\n', ''))
  assert f'{beside} lacks m_init, m_best or m_best_private' in _complaint(
    options
  )


def _complaint(options):
  """What is said of the config's tasks; '' where they are taken."""
  return task_checks.chosen_tasks(_config(options))


@pytest.mark.parametrize(
  ('changes', 'why'),
  [
    (('scripts/answer.csv', 'env/answer.csv'), 'every script can read it'),
    (('scripts/answer.csv', '../answer.csv'), 'leads out of'),
    (('scripts/answer.csv', 'scripts/answer.pt'), 'ending of answers'),
    (('metric: house-price', 'metric: mae'), 'needs the names of its columns'),
    (('metric: house-price', 'metric: price'), 'must be a grader'),
    (('metric: house-price', 'metric: speed'), 'must be a grader'),
    (('_better: false', '_better: true'), 'worse than m_init'),
    (('answers: scripts/answer.csv', 'id: Id'), 'id belongs to answers'),
    (('answers:', 'targets: Id\nanswers:'), 'must be a list of columns'),
    (('answers:', 'submission: 5\nanswers:'), 'submission=5 must be text'),
    (('answers:', 'id: [Id]\nanswers:'), 'must be text'),
    (
      ('metric: house-price', 'metric: mae\nid: Id\ntargets: [y, y]'),
      'each once',
    ),
  ],
)
def test_what_is_wrong_with_the_file_is_named(tmp_path, changes, why):
  root = _lay_out(tmp_path)
  root.with_name(f'{NAME}.yaml').write_text(YAML.replace(*changes))
  with pytest.raises(ValueError, match=why) as error:
    lib.load_task(NAME, tmp_path)
  assert f'{NAME}.yaml' in str(error.value)


@pytest.mark.parametrize(
  ('changes', 'why'),
  [
    (('answer.csv', 'answers.csv'), 'not there after its preparation'),
    (
      ('metric: house-price', 'metric: mae\nid: ID\ntargets: [SalePrice]'),
      "no column 'ID'",
    ),
    (
      ('metric: house-price', 'metric: mae\nid: Id\ntargets: [Price]'),
      'has no column of Price',
    ),
  ],
)
def test_answers_that_cannot_be_divided_are_refused(tmp_path, changes, why):
  with pytest.raises(ValueError, match=why):
    _prepared(tmp_path, YAML.replace(*changes))


def test_a_folder_may_be_of_any_kind_of_task(tmp_path):
  text = YAML.replace('tabular', 'graph').replace(': regression', ': sequence')
  spec = _prepared(tmp_path, text).spec
  assert (spec.modality, spec.kind) == ('graph', 'sequence')


def _classes(*columns):
  """prepare.py of rows 0 to 39, whose columns are 1 in a few of them."""
  return '\n'.join(
    [
      'import pandas as pd',
      'rows = pd.DataFrame({"Id": range(40)})',
      *(
        f'rows["{name}"] = rows["Id"].isin({list(ones)}).astype(int)'
        for name, ones in columns
      ),
      'rows.to_csv("answer.csv", index=False)',
      'rows[["Id"]].to_csv("../env/test.csv", index=False)',
      'rows.to_csv("../env/train.csv", index=False)',
    ]
  )


AUC = YAML.replace('_better: false', '_better: true').replace(
  'm_init: 17.0\nm_best: 1.0', 'm_init: 0.5\nm_best: 1.0'
)


@pytest.mark.parametrize('rare', [(7, 8), (3, 30), (11, 12, 13)])
def test_both_halves_have_both_classes_of_every_column(tmp_path, rare):
  """Of a rare class, and of columns after the first, too: AUC needs them."""
  prepare = _classes(('often', range(20)), ('rare', rare))
  text = AUC.replace(
    'metric: house-price', 'metric: roc_auc\nid: Id\ntargets: [often, rare]'
  )
  task = _prepared(tmp_path, text, **{'scripts/prepare.py': prepare})
  table = pd.read_csv(task.private_dir / 'answers.csv')
  for _, half in table.groupby('split'):
    assert half['often'].nunique() == half['rare'].nunique() == 2
    assert 0.4 <= len(half) / len(table) <= 0.6


def test_a_class_of_one_row_is_no_answer_of_auc(tmp_path):
  text = AUC.replace(
    'metric: house-price', 'metric: roc_auc\nid: Id\ntargets: [y]'
  )
  prepare = _classes(('y', [5]))
  with pytest.raises(ValueError, match='has no score of roc_auc: .* classes'):
    _prepared(tmp_path, text, **{'scripts/prepare.py': prepare})


def test_a_metric_of_any_columns_divides_too(tmp_path):
  text = YAML.replace(
    'metric: house-price', 'metric: rmse\nid: Id\ntargets: [SalePrice]'
  )
  task = _prepared(tmp_path, text)
  with Grader({NAME: task}) as grader:
    data = _submission((i, 2.0 * i + 3.0) for i in IDS)
    assert grader.grade(NAME, data, 'private').score == 3.0


def test_a_recipe_of_whole_programs_is_refused(tmp_path):
  root = _lay_out(tmp_path)
  root.with_name(f'{NAME}.yaml').write_text(YAML)
  spec = lib.load_task(NAME, tmp_path)
  config = _config({})
  config.recipe = 'solutions'
  said = task_checks._not_trained_on(config, [spec])
  assert NAME in said and 'whole programs' in said


def test_its_starter_is_measured_where_a_run_would_run_it(tmp_path, capsys):
  root = _lay_out(tmp_path / 'tasks')
  path = root.with_name(f'{NAME}.yaml')
  path.write_text(YAML.replace('m_init: 17.0', 'm_init: 99.0'))
  command = '--tasks_dir', str(root.parent), '--data_dir', str(tmp_path / 'd')
  command += 'measure', NAME, '--min_tier', 'T1'
  assert main([*command, '--dry_run']) == 0
  assert 'starter' in capsys.readouterr().out and '99.0' in path.read_text()
  assert main([*command]) == 0, capsys.readouterr().err
  said = capsys.readouterr().out
  score = float(said.partition('valid ')[2].split()[0])
  assert f'm_init: {score:g}' in path.read_text() and score != 99.0
  assert main(['--tasks_dir', str(root.parent), 'check', NAME]) == 2
  assert 'no task.yaml' in capsys.readouterr().err


def test_a_starter_without_a_score_is_told_with_its_reason(tmp_path, capsys):
  root = _lay_out(tmp_path / 'tasks', **{'env/train.py': 'raise KeyError(3)\n'})
  root.with_name(f'{NAME}.yaml').write_text(YAML)
  command = '--tasks_dir', str(root.parent), '--data_dir', str(tmp_path / 'd')
  assert main([*command, 'measure', NAME, '--min_tier', 'T1']) == 2
  said = capsys.readouterr().err
  assert 'the starter gives no score: script_error' in said
  assert 'KeyError: 3' in said and 'Traceback' not in said.splitlines()[0]
