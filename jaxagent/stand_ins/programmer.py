"""Whole programs by script: the stand-in for a model that can write them.

They teach the form of a solution and a wide choice of models, from quick poor
ones to slow good ones. Most run; how good they are is left for reinforcement
learning to find out.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jaxagent import types
from jaxagent.stand_ins import catalogue

# 'NAME param value|value ...'; a class name in braces exists as a classifier and
# as a regressor.
_TABULAR = """\
KNeighbors{} n_neighbors 1|3|5|15|40 weights 'uniform'|'distance'
DecisionTree{} max_depth 1|2|4|8|None
RandomForest{} n_estimators 5|20|100|300 max_depth 3|8|None
ExtraTrees{} n_estimators 5|20|100|300 min_samples_leaf 1|3
GradientBoosting{} n_estimators 5|20|60 learning_rate 0.05|0.1|0.3
HistGradientBoosting{} max_iter 5|20|60 learning_rate 0.05|0.1
MLP{} hidden_layer_sizes (16,)|(64,) max_iter 20|100|300
Bagging{} n_estimators 5|20|60
"""
_CLASSIFIERS = """\
GaussianNB
LogisticRegression C 0.01|1|100 max_iter 200
LinearDiscriminantAnalysis
QuadraticDiscriminantAnalysis reg_param 0.01|0.2
SVC C 0.1|1|10|100 gamma 'scale'|0.001|0.03
"""
_REGRESSORS = """\
LinearRegression
Ridge alpha 0.1|10|1000
Lasso alpha 0.01|1
SVR C 1|30|1000 gamma 'scale'|0.003|0.03
HuberRegressor epsilon 1.35|2
"""
_TEXT = """\
MultinomialNB alpha 0.1|1
BernoulliNB alpha 0.1|1
LogisticRegression C 0.1|1|10 max_iter 200
LinearSVC C 0.1|1|10
SVC C 1|10
RidgeClassifier alpha 0.1|1
SGDClassifier alpha 0.0001|0.001
RandomForestClassifier n_estimators 20|100
"""
_VECTORIZERS = """\
TfidfVectorizer max_features 60|300|None
CountVectorizer max_features 100|None
TfidfVectorizer analyzer 'char_wb' ngram_range (1,3)|(2,5)
"""
_SCALERS = ('', '', 'StandardScaler', 'MinMaxScaler', 'RobustScaler')


@dataclasses.dataclass(frozen=True)
class Slip:
  """A slip of the pen that keeps a program from running, and its error message.

  old, new: what is replaced, and by what.
  error: end of the output; {model} is the estimator's name.
  reason: of the sandbox or the grader; {target} is the submission's column.
  """

  old: str
  new: str
  error: str = ''
  outcome: types.Outcome = types.Outcome.SCRIPT_ERROR
  reason: str = 'it exited with 1'


@dataclasses.dataclass(frozen=True)
class Failed:
  """A response whose program fails, and how its run ends."""

  response: str
  outcome: types.Outcome
  reason: str
  output: str


_SLIPS = (
  Slip(
    "'data/train.csv'",
    "'train.csv'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'train.csv'\n",
  ),
  Slip(
    'make_pipeline(',
    'make_pipline(',
    "NameError: name 'make_pipline' is not defined\n",
  ),
  Slip(
    'model.fit(x, y)',
    'model.fit(x)',
    'ValueError: This {model} estimator requires y to be passed, but the target y is '
    'None.\n',
  ),
  Slip(
    "'id': test['id'], ",
    '',
    outcome=types.Outcome.INVALID_SUBMISSION,
    reason="columns are ['{target}']; exactly ['id', '{target}'] are expected.",
  ),
  Slip('import pandas as pd\n', '', "NameError: name 'pd' is not defined\n"),
  Slip(
    "test.drop(columns=['id'])",
    'test',
    'ValueError: The feature names should match those that were passed during fit.\n'
    'Feature names unseen at fit time:\n- id\n',
  ),
)
P_SETTING = 0.7  # that a setting is given at all
_PLANS = (
  'Read the data. Fit {what}. Predict the test rows.',
  'I load both files. I train {what}. Then I write the predictions.',
  'Use {what}. Train on all rows. Save the submission.',
)
# Part of a class's name -> what scikit-learn may say of it while it is fitted.
_SAID = {
  'MLP': """\
sklearn/neural_network/_multilayer_perceptron.py:785: ConvergenceWarning: \
Stochastic Optimizer: Maximum iterations ({n}) reached and the optimization hasn't \
converged yet.
  warnings.warn(
""",
  'LogisticRegression': """\
sklearn/linear_model/_logistic.py:599: ConvergenceWarning: lbfgs failed to converge \
after {n} iteration(s) (status=1):
STOP: TOTAL NO. OF ITERATIONS REACHED LIMIT
""",
}


@dataclasses.dataclass(frozen=True)
class Columns:
  """targets: the submission's columns but for the id."""

  features: tuple[str, ...]
  target: str
  targets: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Design:
  """A pipeline to fit: rows of the tables above, and a call for each."""

  rows: tuple[str, ...]
  calls: tuple[str, ...]

  @property
  def names(self) -> list[str]:
    """Names of the calls' classes."""
    return [call.partition('(')[0] for call in self.calls]


class Author(Protocol):
  """Writes whole programs of one task, each from a design of its own kind."""

  def design(
    self, spec: types.TaskSpec, rng: random.Random, previous: Any = None
  ) -> Any:
    """Returns a new design, or `previous` with one of its parts changed."""

  def crossed(
    self, spec: types.TaskSpec, first: Any, second: Any, rng: random.Random
  ) -> Any:
    """Returns a design of parts of both, neither of them; None where there is none."""

  def write(
    self,
    spec: types.TaskSpec,
    design: Any,
    rng: random.Random,
    slips: bool = True,
  ) -> str:
    """Returns a response: a plan and a code block, now and then with a slip."""

  def failed(
    self, spec: types.TaskSpec, design: Any, rng: random.Random
  ) -> Failed:
    """Returns a response with a slip, and how its run ends."""

  def output(self, design: Any, rng: random.Random) -> str:
    """Returns output that such a program may print, for a prompt to revise."""


class ScriptedProgrammer:
  """Writes responses with whole solutions of tabular, image and text tasks.

  Args:
    columns: of the task's tables.
    p_slip: chance of a mistake that keeps the program from running.
  """

  name = 'scripted_programmer'
  is_stand_in = True

  def __init__(self, columns: Columns, p_slip: float = 0.3):
    if not 0 <= p_slip <= 1:
      raise ValueError(f'p_slip={p_slip!r} must be between 0 and 1.')
    self.columns, self.p_slip = columns, p_slip

  def design(
    self,
    spec: types.TaskSpec,
    rng: random.Random,
    previous: Design | None = None,
  ) -> Design:
    """A new one, or `previous` with one of its parts changed.

    Most of a revised program stands in its prompt: a small model that learns
    from both learns to copy early, which it also needs for a class that it has
    imported.
    """
    made = _draw(spec, rng) if previous is None else previous
    while made == previous:
      made = _revised(spec, previous, rng)
    return made

  def crossed(
    self,
    spec: types.TaskSpec,
    first: Design,
    second: Design,
    rng: random.Random,
  ) -> Design | None:
    """Joins what comes before the estimator of one with the estimator of the other."""
    both = [(first, second), (second, first)]
    made = [_joined(head, tail) for head, tail in both]
    new = [one for one in made if one not in (first, second)]
    return rng.choice(new) if new else None

  def write(
    self,
    spec: types.TaskSpec,
    design: Design,
    rng: random.Random,
    slips: bool = True,
  ) -> str:
    """One response: a plan and a code block."""
    code = program(spec, self.columns, design)
    if slips and rng.random() < self.p_slip:
      slip = rng.choice(_SLIPS)
      code = code.replace(slip.old, slip.new)
    return _response(design, code, rng)

  def failed(
    self, spec: types.TaskSpec, design: Design, rng: random.Random
  ) -> Failed:
    """One response with a slip, and how its run ends."""
    code = program(spec, self.columns, design)
    slip = rng.choice([one for one in _SLIPS if one.old in code])
    return Failed(
      _response(design, code.replace(slip.old, slip.new), rng),
      slip.outcome,
      slip.reason.format(target=self.columns.targets[0]),
      slip.error.format(model=design.names[-1]),
    )

  def output(self, design: Design, rng: random.Random) -> str:
    """Returns output that such a program may print, for a prompt to revise."""
    for name, said in _SAID.items():
      if name in design.names[-1] and rng.random() < 0.5:
        return said.format(n=rng.choice((20, 100, 200)))
    return ''


def columns_of(
  train: Sequence[str], test: Sequence[str], sample: Sequence[str]
) -> Columns:
  """Returns the columns, from the heads of a task's three files."""
  (target,) = [name for name in train if name not in test]
  return Columns(
    tuple(name for name in test if name != 'id'),
    target,
    tuple(name for name in sample if name != 'id'),
  )


def grammar(spec: types.TaskSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Rows that a design of the task may begin with ('': none), and those of its models.

  One that stands twice is drawn twice as often.
  """
  if spec.modality == 'text':
    return tuple(_VECTORIZERS.splitlines()), tuple(_TEXT.splitlines())
  own = _REGRESSORS if _is_regression(spec) else _CLASSIFIERS
  return _SCALERS, tuple((own + _TABULAR).splitlines())


def settings_of(row: str) -> list[tuple[str, list[str]]]:
  """Each setting of a row of a grammar, and the values that it may have."""
  _, *settings = row.split()
  return [(k, v.split('|')) for k, v in zip(settings[::2], settings[1::2])]


def call(spec: types.TaskSpec, row: str, settings: Mapping[str, str]) -> str:
  """Returns the call of a row's class with the given settings of it."""
  name = row.split()[0].format(
    'Regressor' if _is_regression(spec) else 'Classifier'
  )
  given = [f'{key}={value}' for key, value in settings.items()]
  if name == 'SVC' and _wants_probabilities(spec):
    given.append('probability=True')
  if catalogue.ENTRIES[name].seeded:
    given.append('random_state=0')
  return f'{name}({", ".join(given)})'


def program(spec: types.TaskSpec, columns: Columns, design: Design) -> str:
  """Returns the text of a design's program."""
  # Beside the line that uses them: a small policy copies what is near.
  imports = [
    f'from {catalogue.ENTRIES[name].module} import {name}'
    for name in design.names
  ]
  text = spec.modality == 'text'
  read = ', keep_default_na=False' if text else ''
  if text:
    (feature,) = columns.features
    x, rows = f"train['{feature}']", f"test['{feature}']"
  else:
    x = f"train.drop(columns=['id', '{columns.target}'])"
    rows = "test.drop(columns=['id'])"
  lines = [
    'import pandas as pd',
    'from sklearn.pipeline import make_pipeline',
    f"train = pd.read_csv('data/train.csv'{read})",
    f"test = pd.read_csv('data/test.csv'{read})",
    f'x = {x}',
    f"y = train['{columns.target}']",
    *imports,
    f'model = make_pipeline({", ".join(design.calls)})',
    'model.fit(x, y)',
    *_submission(spec, columns, rows),
    "out.to_csv('submission.csv', index=False)",
  ]
  return '\n'.join(lines) + '\n'


def _response(design: Design, code: str, rng: random.Random) -> str:
  plan = rng.choice(_PLANS).format(what=design.names[-1])
  return f'{plan}\n```python\n{code}```'


def _draw(spec: types.TaskSpec, rng: random.Random) -> Design:
  before, estimators = grammar(spec)
  first = rng.choice(before)
  rows = [first] if first else []
  rows.append(rng.choice(estimators))
  return Design(tuple(rows), tuple(_call(spec, row, rng) for row in rows))


def _revised(
  spec: types.TaskSpec, design: Design, rng: random.Random
) -> Design:
  """The estimator's settings, the estimator or what is before it drawn again."""
  part = rng.choice(('settings', 'estimator', 'before'))
  if part == 'settings':
    last = _call(spec, design.rows[-1], rng)
    return Design(design.rows, (*design.calls[:-1], last))
  drawn = _draw(spec, rng)
  head, tail = (design, drawn) if part == 'estimator' else (drawn, design)
  return _joined(head, tail)


def _joined(head: Design, tail: Design) -> Design:
  """Joins what comes before the estimator of one with the other's estimator."""
  return Design(
    (*head.rows[:-1], tail.rows[-1]), (*head.calls[:-1], tail.calls[-1])
  )


def _call(spec: types.TaskSpec, row: str, rng: random.Random) -> str:
  given = {
    key: rng.choice(values)
    for key, values in settings_of(row)
    if rng.random() < P_SETTING
  }
  return call(spec, row, given)


def _is_regression(spec: types.TaskSpec) -> bool:
  return spec.kind != 'classification'


def _wants_probabilities(spec: types.TaskSpec) -> bool:
  return spec.metric in ('log_loss', 'roc_auc')


def _submission(spec, columns: Columns, rows: str) -> list[str]:
  if not _wants_probabilities(spec):
    return [
      f'p = model.predict({rows})',
      f"out = pd.DataFrame({{'id': test['id'], '{columns.target}': p}})",
    ]
  lines = [f'p = model.predict_proba({rows})']
  if len(columns.targets) == 1:
    name = columns.targets[0]
    return [
      *lines,
      f"out = pd.DataFrame({{'id': test['id'], '{name}': p[:, 1]}})",
    ]
  return [
    *lines,
    f'out = pd.DataFrame(p, columns={list(columns.targets)!r})',
    "out.insert(0, 'id', test['id'])",
  ]
