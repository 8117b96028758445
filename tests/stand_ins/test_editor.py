"""Each kind of edit of the scripted editor, and what it refuses."""

from __future__ import annotations

import pytest

from jaxagent.envs import parser
from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import model_line
from jaxagent.stand_ins.editor import ScriptedEditor

_SCRIPT = """import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.{module} import {name}

SIZE = 10  # of what
x_train = y_train = x_test = None
model = make_pipeline(StandardScaler(), {call})  # the model
model.fit(x_train, y_train)
pred = model.predict(x_test)
"""
LOGISTIC = _SCRIPT.format(
  module='linear_model',
  name='LogisticRegression',
  call='LogisticRegression(C=1.0)',
)
RIDGE = _SCRIPT.format(
  module='linear_model', name='Ridge', call='Ridge(alpha=1.0)'
)
FOREST = _SCRIPT.format(
  module='ensemble',
  name='RandomForestClassifier',
  call='RandomForestClassifier(n_estimators=100, random_state=0)',
)
EDITOR = ScriptedEditor()
PIPE = 'model = make_pipeline(StandardScaler(), {})'


def edited(script, instruction):
  text = EDITOR.edit(script, instruction)
  compile(text, 'train.py', 'exec')
  return model_line(text)


@pytest.mark.parametrize(
  'instruction, estimator',
  [
    ('Replace the estimator with SVC(C=2)', 'SVC(C=2, random_state=0)'),
    ('Use a random forest', 'RandomForestClassifier(random_state=0)'),
    ('Switch the model to GaussianNB()', 'GaussianNB()'),
    ('Set C to 10', 'LogisticRegression(C=10)'),
    ('Set the C of the LogisticRegression to 10', 'LogisticRegression(C=10)'),
    ('Double C', 'LogisticRegression(C=2)'),
    ('Increase C from 1 to 10', 'LogisticRegression(C=10)'),
    (
      'Add PCA(n_components=5)',
      'PCA(n_components=5, random_state=0), LogisticRegression(C=1.0)',
    ),
    (
      'Bag the model with 30 copies',
      'BaggingClassifier(estimator=LogisticRegression(C=1.0), '
      'n_estimators=30, random_state=0)',
    ),
    (
      'Combine SVC() and GaussianNB() by voting',
      "VotingClassifier([('m0', SVC(random_state=0)), ('m1', GaussianNB())])",
    ),
  ],
)
def test_kinds_of_edits(instruction, estimator):
  assert edited(LOGISTIC, instruction) == PIPE.format(estimator)


def test_a_wrapper_is_not_put_around_its_own_kind():
  """80 bags of 80 bags would be 6,400 fits, and never meant."""
  once = PIPE.format(
    'BaggingClassifier(estimator=GaussianNB(), n_estimators=5)'
  )
  script = LOGISTIC.replace(model_line(LOGISTIC), once)
  again = edited(
    script, 'Wrap the estimator in BaggingClassifier(n_estimators=80)'
  )
  assert again == once.replace('=5)', '=80, random_state=0)')
  other = edited(script, 'Wrap the estimator in AdaBoostClassifier()')
  assert 'AdaBoostClassifier(estimator=BaggingClassifier(' in other


@pytest.mark.parametrize(
  'how, name', [('Stack', 'Stacking'), ('Vote', 'Voting')]
)
def test_an_ensemble_takes_new_members_in(how, name):
  first = EDITOR.edit(RIDGE, f'{how} the current estimator with SVR()')
  second = edited(first, f'{how} the current estimator with Lasso()')
  assert second == PIPE.format(
    f"{name}Regressor([('m0', Ridge(alpha=1.0)), ('m1', SVR()), "
    "('m2', Lasso())])"
  )
  same = EDITOR.edit(first, f'{how} the current estimator with SVR()')
  assert same == first


def test_the_outermost_estimator_tells_the_kind():
  mixed = EDITOR.edit(LOGISTIC, 'Stack the current estimator with Ridge()')
  assert 'StackingClassifier(' in mixed and 'Ridge(' in mixed
  assert 'BaggingClassifier(' in edited(mixed, 'Bag the model with 5 copies')


@pytest.mark.parametrize(
  'instruction, why',
  [
    ('Use MLPClassifier with gamma=200, in=5', "'in' is no name"),
    ('Use SVC(ｉｎ=1)', 'cannot read'),
    ('Use SVC(C=1, 2)', 'cannot read'),
    ('Set C to 0x' + 'f' * 3900, 'cannot read'),
    ('Set C=({[]: 1})', 'do not know what 1 is for'),
    ('Use SVC(C=' + '[' * 90 + '1' + ']' * 90 + ')', 'nested too deep'),
    ('Use SVC(C=' + '(' * 300 + '1' + ')' * 300 + ')', 'cannot read'),
    ('Use SVC(C=' + '-' * 300 + '1)', 'nested too deep'),
    ('Multiply C by 1.2.3', "'1.2.3' is not a number"),
    ('Multiply C by 1' + '0' * 400, 'would be inf'),
  ],
)
def test_what_is_no_python_is_refused(instruction, why):
  with pytest.raises(EditRefused, match=why):
    EDITOR.edit(LOGISTIC, instruction)


def test_growth_is_bounded_and_what_has_grown_can_be_edited():
  script = LOGISTIC
  with pytest.raises(EditRefused, match='nested too deep'):
    for i in range(100):
      name = ('OneVsRestClassifier', 'OneVsOneClassifier')[i % 2]
      script = EDITOR.edit(script, f'Wrap the estimator in {name}')
  assert script.count('OneVsRest') > 5
  assert 'RobustScaler' in edited(script, 'Use RobustScaler as the scaler')


def test_steps_and_several_clauses():
  assert edited(LOGISTIC, 'Replace the scaler with MinMaxScaler()') == (
    'model = make_pipeline(MinMaxScaler(), LogisticRegression(C=1.0))'
  )
  assert edited(LOGISTIC, 'Remove the scaler and then use SVC(C=2)') == (
    'model = make_pipeline(SVC(C=2, random_state=0))'
  )
  assert edited(LOGISTIC, '1. Remove the StandardScaler') == (
    'model = make_pipeline(LogisticRegression(C=1.0))'
  )


@pytest.mark.parametrize(
  'instruction, estimator',
  [
    (
      'Use a random forest with 300 trees',
      'RandomForestClassifier(n_estimators=300, random_state=0)',
    ),
    (
      'Replace the estimator with a random forest of 300 trees',
      'RandomForestClassifier(n_estimators=300, random_state=0)',
    ),
    (
      'Use histogram gradient boosting with 50 rounds',
      'HistGradientBoostingClassifier(max_iter=50, random_state=0)',
    ),
    (
      'Add polynomial features of degree 2',
      'PolynomialFeatures(degree=2), LogisticRegression(C=1.0)',
    ),
    (
      'Use an MLP with hidden layers (64, 32)',
      'MLPClassifier(hidden_layer_sizes=(64, 32), random_state=0)',
    ),
    ('Use an SVM with kernel rbf', "SVC(kernel='rbf', random_state=0)"),
    (
      'Use an SVM with an rbf kernel and C 10',
      "SVC(kernel='rbf', C=10, random_state=0)",
    ),
    ('Use KNN with 7 neighbours', 'KNeighborsClassifier(n_neighbors=7)'),
    (
      'Use a decision tree of depth 5',
      'DecisionTreeClassifier(max_depth=5, random_state=0)',
    ),
    (
      'Use logistic regression with l1 penalty',
      "LogisticRegression(penalty='l1')",
    ),
    (
      'Add PCA with 10 components',
      'PCA(n_components=10, random_state=0), LogisticRegression(C=1.0)',
    ),
  ],
)
def test_spoken_values_are_honoured(instruction, estimator):
  assert edited(LOGISTIC, instruction) == PIPE.format(estimator)


@pytest.mark.parametrize(
  'instruction',
  [
    'Use 300 trees',
    'Increase the trees to 300',
    'Set the number of trees to 300',
  ],
)
def test_spoken_values_change_the_step_there_is(instruction):
  assert edited(FOREST, instruction) == PIPE.format(
    'RandomForestClassifier(n_estimators=300, random_state=0)'
  )


@pytest.mark.parametrize(
  'instruction, says',
  [
    ('Use an SVM with 42 wheels', '42'),
    ('Use an SVM with a matern kernel', 'matern kernel'),
    ('Combine SVC() and GaussianNB() with max_depth=3 by voting', 'max_depth'),
    ('Make it better', 'do not know how'),
    ('Use xgboost', 'library'),
    ('Use FancyBoostingMachine', 'FancyBoostingMachine'),
    ('Remove PCA', 'no step PCA'),
    ('Remove the LogisticRegression', 'only replaced'),
    ('Set n_neighbors to 3', 'n_neighbors'),
    ('Use SVC(C=1', 'never closed'),
    ('', 'empty'),
    ('x' * 5000, 'too long'),
  ],
)
def test_refusals(instruction, says):
  with pytest.raises(EditRefused, match=says):
    EDITOR.edit(LOGISTIC, instruction)


def test_what_is_so_already_is_left_so():
  # MLAgentBench's editor does the same: the diff is empty.
  once = EDITOR.edit(LOGISTIC, 'Set C to 10')
  assert EDITOR.edit(once, 'Set C to 10') == once


def test_noise_doubles_rows_and_labels_together():
  # With two strengths, too: an edit that adds one of both breaks the fit.
  text = EDITOR.edit(LOGISTIC, 'Add Gaussian noise of 0.1 to the training data')
  for script in (text, EDITOR.edit(text, 'Add noise of 0.2 to the data')):
    added = [x for x in script.splitlines() if 'RandomState' in x]
    assert all('[y_train, y_train]' in x for x in added)
  assert len(added) == 2


@pytest.mark.parametrize('script', ['', 'model', 'x = (', 'a = 1\n'])
def test_scripts_that_cannot_be_edited(script):
  with pytest.raises(EditRefused):
    EDITOR.edit(script, 'Set C to 10')


def test_regression_takes_the_regressor_of_a_pair():
  assert edited(RIDGE, 'Use a random forest with 300 trees') == PIPE.format(
    'RandomForestRegressor(n_estimators=300, random_state=0)'
  )
  assert 'func=np.log1p' in edited(RIDGE, 'Log transform the target')


def test_the_rest_of_the_script_stays():
  text = EDITOR.edit(LOGISTIC, 'Use SVC(C=2)')
  assert '# of what' in text and '# the model' in text
  assert 'from sklearn.svm import SVC' in text
  assert 'LogisticRegression' not in text
  assert 'SIZE = 20  # of what' in EDITOR.edit(LOGISTIC, 'Set SIZE to 20')


def test_lines_about_the_data():
  assert 'pred = np.clip(pred' in EDITOR.edit(RIDGE, 'Clip the predictions')
  halved = EDITOR.edit(RIDGE, 'Train on half of the rows')
  assert 'x_train[::2]' in halved


def test_says_that_it_is_a_stand_in():
  assert EDITOR.is_stand_in and EDITOR.name == 'scripted_editor'
  assert 'Edit Script (AI)' in parser.EDIT_ACTIONS


def test_an_import_is_put_above_the_line_that_uses_it():
  script = (
    'from sklearn.linear_model import Ridge\n'
    'model = Ridge()\nmodel.fit(x, y)\nimport shutil\n'
  )
  lines = ScriptedEditor().edit(script, 'Use SVR(C=10)').splitlines()
  (model,) = [n for n, line in enumerate(lines) if line.startswith('model =')]
  (added,) = [n for n, line in enumerate(lines) if 'import SVR' in line]
  assert added < model
