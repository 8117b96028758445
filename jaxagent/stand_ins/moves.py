"""The stock of edit instructions that the scripted expert knows.

A move is one thing to try, with several ways of saying it. `worth` is a
prior between 0 and 1 of how often it helps on such tasks; it steers the
expert only, no reward looks at it. `impossible` moves are what people
propose and the scripted editor cannot do.
"""

from __future__ import annotations

import dataclasses
import functools
import random

from jaxagent.stand_ins.ways import CONSTANTS, WAYS

PHRASES = {
  'estimator': (
    'Replace the estimator with {x}',
    'Use {x} as the model',
    'Switch the model to {x}',
    'Try {x} instead of the estimator',
    'Swap the estimator for {x}',
    'Train {x}',
  ),
  'set': (
    'Set {p} of {s} to {v}',
    'Change {p} to {v} in {s}',
    'Set {p}={v} in {s}',
    'Tune {s}: set {p} to {v}',
  ),
  'relative': ('{x}',),
  'scale': (
    'Add {x} before the estimator',
    'Scale the features with {x}',
    'Insert {x} as the scaler',
  ),
  'add': (
    'Add {x} before the estimator',
    'Insert {x} before the estimator',
    'Put {x} in front of the estimator',
  ),
  'vectorize': (
    'Replace the vectorizer with {x}',
    'Use {x} as the vectorizer',
    'Swap the vectorizer for {x}',
  ),
  'remove': ('Remove {x}', 'Drop {x} from the pipeline'),
  'wrap': ('Wrap the estimator in {x}', 'Put {x} around the estimator'),
  'ensemble': ('{x}',),
  'data': ('{x}',),
  'combo': ('{x}',),
  'function': (
    'Compute {f} with {x}',
    'Rewrite {f} with {x}',
    'Let {f} use {x}',
  ),
  'constant': ('Set {f} to {x}', 'Change {f} to {x}'),
  'impossible': ('{x}',),
}


@dataclasses.dataclass(frozen=True)
class Move:
  """One edit to try.

  family: key of PHRASES.
  values: what fills the phrase.
  needs: classes one of which must be in the pipeline for it to make sense.
  """

  family: str
  values: tuple[tuple[str, str], ...]
  worth: float
  needs: tuple[str, ...] = ()

  def say(self, rng: random.Random | None = None) -> str:
    """The instruction; the first phrase without a generator."""
    phrases = PHRASES[self.family]
    phrase = phrases[0] if rng is None else rng.choice(phrases)
    return phrase.format(**dict(self.values))


def _x(family: str, rows: str) -> list[Move]:
  """Rows `worth | text`; `@A,B` behind the text names needed classes."""
  moves = []
  for row in rows.strip().splitlines():
    worth, text = row.strip().split(' | ', 1)
    text, _, needs = text.partition(' @')
    moves.append(
      Move(
        family,
        (('x', text.strip()),),
        float(worth),
        tuple(n for n in needs.strip().split(',') if n),
      )
    )
  return moves


def _set(rows: str) -> list[Move]:
  """Rows `worth | class param value [value ...]`."""
  moves = []
  for row in rows.strip().splitlines():
    worth, text = row.strip().split(' | ', 1)
    step, param, values = text.split(' ', 2)
    for value in values.split(' ; '):
      fill = (('p', param), ('s', step), ('v', value.strip()))
      moves.append(Move('set', fill, float(worth), (step,)))
  return moves


_CLASSIFY = _x(
  'estimator',
  """
0.9 | RandomForestClassifier(n_estimators=80)
0.8 | RandomForestClassifier(n_estimators=40)
0.6 | RandomForestClassifier(n_estimators=20, max_depth=8)
0.2 | RandomForestClassifier(n_estimators=5, max_depth=2)
0.9 | ExtraTreesClassifier(n_estimators=80)
0.8 | ExtraTreesClassifier(n_estimators=40)
0.7 | GradientBoostingClassifier(n_estimators=40)
0.7 | GradientBoostingClassifier(n_estimators=80, max_depth=2)
0.7 | HistGradientBoostingClassifier(max_iter=40)
0.5 | HistGradientBoostingClassifier(max_iter=15, learning_rate=0.3)
0.4 | AdaBoostClassifier(n_estimators=20)
0.9 | SVC(C=10, probability=True)
0.8 | SVC(C=10)
0.7 | SVC(kernel='poly', degree=3, probability=True)
0.3 | SVC(kernel='sigmoid')
0.7 | LogisticRegression(C=1.0, max_iter=1000)
0.7 | LogisticRegression(C=10, max_iter=1000)
0.2 | LogisticRegression(C=0.001, max_iter=1000)
0.4 | RidgeClassifier(alpha=1.0)
0.4 | SGDClassifier(loss='log_loss')
0.3 | SGDClassifier(max_iter=20)
0.3 | Perceptron(max_iter=50)
0.5 | LinearSVC(C=0.1)
0.6 | LinearSVC(C=1.0)
0.6 | KNeighborsClassifier(n_neighbors=3)
0.6 | KNeighborsClassifier(n_neighbors=5, weights='distance')
0.2 | KNeighborsClassifier(n_neighbors=50)
0.1 | DecisionTreeClassifier(max_depth=2)
0.4 | DecisionTreeClassifier(max_depth=8)
0.3 | GaussianNB()
0.2 | MultinomialNB(alpha=1.0)
0.2 | BernoulliNB()
0.3 | NearestCentroid()
0.7 | LinearDiscriminantAnalysis()
0.4 | QuadraticDiscriminantAnalysis(reg_param=0.1)
0.8 | MLPClassifier(hidden_layer_sizes=(64,), max_iter=100)
0.7 | MLPClassifier(hidden_layer_sizes=(128, 64), max_iter=50)
0.2 | MLPClassifier(hidden_layer_sizes=(8,), max_iter=20)
0.0 | DummyClassifier(strategy='most_frequent')
0.1 | RandomForestRegressor(n_estimators=50)
0.1 | LinearRegression()
""",
)

_REGRESS = _x(
  'estimator',
  """
0.9 | RandomForestRegressor(n_estimators=80)
0.8 | RandomForestRegressor(n_estimators=40)
0.6 | RandomForestRegressor(n_estimators=15, max_depth=8)
0.2 | RandomForestRegressor(n_estimators=5, max_depth=2)
0.9 | ExtraTreesRegressor(n_estimators=80)
0.8 | ExtraTreesRegressor(n_estimators=40, min_samples_leaf=3)
0.8 | GradientBoostingRegressor(n_estimators=80)
0.7 | GradientBoostingRegressor(n_estimators=40, max_depth=2)
0.3 | GradientBoostingRegressor(n_estimators=10, learning_rate=0.05)
0.8 | HistGradientBoostingRegressor(max_iter=40)
0.6 | HistGradientBoostingRegressor(max_iter=80, learning_rate=0.05)
0.4 | AdaBoostRegressor(n_estimators=20)
0.6 | SVR(C=10)
0.4 | SVR(C=1.0)
0.2 | SVR(kernel='sigmoid')
0.3 | LinearSVR(C=1.0)
0.7 | Ridge(alpha=1.0)
0.6 | Ridge(alpha=10)
0.2 | Ridge(alpha=10000)
0.5 | LinearRegression()
0.5 | Lasso(alpha=0.01)
0.1 | Lasso(alpha=100)
0.4 | ElasticNet(alpha=0.01)
0.6 | BayesianRidge()
0.5 | HuberRegressor()
0.3 | SGDRegressor()
0.5 | PLSRegression(n_components=5)
0.6 | KernelRidge(alpha=1.0, kernel='rbf')
0.6 | KNeighborsRegressor(n_neighbors=5)
0.6 | KNeighborsRegressor(n_neighbors=10, weights='distance')
0.2 | KNeighborsRegressor(n_neighbors=100)
0.3 | DecisionTreeRegressor(max_depth=3)
0.5 | DecisionTreeRegressor(max_depth=8)
0.1 | DecisionTreeRegressor(max_depth=1)
0.7 | MLPRegressor(hidden_layer_sizes=(64,), max_iter=100)
0.6 | MLPRegressor(hidden_layer_sizes=(128, 64), max_iter=50)
0.2 | MLPRegressor(hidden_layer_sizes=(8,), max_iter=20)
0.0 | DummyRegressor(strategy='mean')
0.0 | LogisticRegression(max_iter=200)
0.0 | GaussianNB()
""",
)

_TEXT = (
  _x(
    'estimator',
    """
0.9 | MultinomialNB(alpha=0.1)
0.7 | MultinomialNB(alpha=1.0)
0.8 | ComplementNB(alpha=0.3)
0.4 | BernoulliNB(alpha=0.1)
0.9 | LogisticRegression(C=10, max_iter=1000)
0.8 | LogisticRegression(C=1.0, max_iter=1000)
0.2 | LogisticRegression(C=0.01, max_iter=200)
0.9 | LinearSVC(C=1.0)
0.7 | LinearSVC(C=0.1)
0.7 | SGDClassifier(alpha=0.0001)
0.6 | SGDClassifier(loss='log_loss')
0.7 | RidgeClassifier(alpha=1.0)
0.5 | PassiveAggressiveClassifier(C=0.1)
0.3 | Perceptron()
0.7 | RandomForestClassifier(n_estimators=50)
0.7 | ExtraTreesClassifier(n_estimators=50)
0.3 | RandomForestClassifier(n_estimators=10, max_depth=4)
0.3 | KNeighborsClassifier(n_neighbors=5)
0.2 | DecisionTreeClassifier(max_depth=5)
0.6 | SVC(C=10, kernel='linear')
0.3 | AdaBoostClassifier(n_estimators=20)
0.3 | NearestCentroid()
0.2 | GaussianNB()
0.2 | HistGradientBoostingClassifier(max_iter=20)
0.6 | MLPClassifier(hidden_layer_sizes=(32,), max_iter=30)
0.0 | DummyClassifier(strategy='most_frequent')
0.0 | Ridge(alpha=1.0)
""",
  )
  + _x(
    'vectorize',
    """
0.7 | TfidfVectorizer()
0.8 | TfidfVectorizer(ngram_range=(1, 2))
0.8 | TfidfVectorizer(sublinear_tf=True)
0.9 | TfidfVectorizer(analyzer='char_wb', ngram_range=(2, 4))
0.9 | TfidfVectorizer(analyzer='char', ngram_range=(1, 4))
0.7 | CountVectorizer()
0.7 | CountVectorizer(ngram_range=(1, 2))
0.8 | CountVectorizer(analyzer='char_wb', ngram_range=(1, 3))
0.4 | CountVectorizer(binary=True)
0.2 | CountVectorizer(max_features=50)
0.1 | TfidfVectorizer(max_features=20)
0.2 | TfidfVectorizer(min_df=50)
0.5 | HashingVectorizer(n_features=4096)
0.1 | HashingVectorizer(n_features=64)
0.5 | HashingVectorizer(n_features=4096, alternate_sign=False)
""",
  )
  + _x(
    'add',
    """
0.3 | TruncatedSVD(n_components=50)
0.2 | TruncatedSVD(n_components=5)
0.5 | TfidfTransformer(sublinear_tf=True)
0.4 | SelectKBest(k=500)
0.3 | SelectPercentile(percentile=50)
0.4 | MaxAbsScaler()
0.1 | StandardScaler()
0.1 | PCA(n_components=10)
""",
  )
  + _set("""
0.8 | TfidfVectorizer ngram_range (1, 2) ; (1, 3)
0.7 | TfidfVectorizer sublinear_tf True
0.5 | TfidfVectorizer min_df 2
0.7 | TfidfVectorizer max_features 5000 ; 20000
0.6 | TfidfVectorizer analyzer 'char_wb'
0.3 | TfidfVectorizer stop_words 'english'
0.7 | CountVectorizer ngram_range (1, 2) ; (1, 3)
0.6 | CountVectorizer binary True
0.8 | CountVectorizer max_features 2000 ; 5000 ; 10000
0.2 | CountVectorizer stop_words 'english'
0.7 | CountVectorizer analyzer 'char_wb' ; 'char'
0.3 | HashingVectorizer ngram_range (1, 2)
0.6 | MultinomialNB alpha 0.01 ; 0.3
0.6 | BernoulliNB alpha 0.01 ; 0.1
0.5 | ComplementNB alpha 0.1
""")
)

_SCALE = _x(
  'scale',
  """
0.7 | StandardScaler()
0.6 | MinMaxScaler()
0.5 | RobustScaler()
0.4 | MaxAbsScaler()
0.3 | Normalizer()
0.5 | PowerTransformer()
0.5 | QuantileTransformer(n_quantiles=100)
""",
)

_FEATURES = _x(
  'add',
  """
0.5 | PCA(n_components=10)
0.3 | PCA(n_components=2)
0.5 | PCA(n_components=0.95)
0.4 | PCA(n_components=10, whiten=True)
0.4 | PolynomialFeatures(degree=2)
0.4 | PolynomialFeatures(degree=2, interaction_only=True)
0.4 | SplineTransformer(n_knots=5)
0.3 | KBinsDiscretizer(n_bins=8)
0.5 | SelectKBest(k=10)
0.2 | SelectKBest(k=3)
0.4 | SelectPercentile(percentile=50)
0.4 | VarianceThreshold(threshold=0.01)
0.6 | Nystroem(gamma=0.1, n_components=100)
0.4 | RBFSampler(gamma=0.1, n_components=100)
0.2 | GaussianRandomProjection(n_components=5)
0.3 | FastICA(n_components=8)
0.2 | Binarizer(threshold=0.5)
""",
)

_PARAMS = _set("""
0.6 | LogisticRegression C 0.1 ; 1.0 ; 10 ; 100
0.1 | LogisticRegression C 0.0001
0.5 | LogisticRegression max_iter 2000
0.5 | LogisticRegression class_weight 'balanced'
0.6 | SVC C 1 ; 10 ; 100
0.5 | SVC gamma 0.01 ; 0.1
0.4 | SVC kernel 'linear' ; 'poly'
0.6 | LinearSVC C 0.01 ; 0.1 ; 10
0.6 | RandomForestClassifier n_estimators 60 ; 120
0.5 | RandomForestClassifier max_features 0.5
0.4 | RandomForestClassifier min_samples_leaf 3
0.2 | RandomForestClassifier max_depth 3
0.6 | ExtraTreesClassifier n_estimators 120
0.6 | GradientBoostingClassifier learning_rate 0.05 ; 0.2
0.6 | GradientBoostingClassifier n_estimators 80
0.5 | HistGradientBoostingClassifier learning_rate 0.05
0.7 | KNeighborsClassifier n_neighbors 1 ; 5 ; 9
0.6 | KNeighborsClassifier weights 'distance'
0.4 | KNeighborsClassifier p 1
0.6 | DecisionTreeClassifier max_depth 5 ; 10
0.4 | DecisionTreeClassifier min_samples_leaf 5
0.4 | GaussianNB var_smoothing 0.000001 ; 0.01
0.6 | MLPClassifier hidden_layer_sizes (128,) ; (64, 32)
0.6 | MLPClassifier alpha 0.01
0.5 | MLPClassifier learning_rate_init 0.01
0.4 | MLPClassifier early_stopping True
0.5 | AdaBoostClassifier n_estimators 40
""")

_PARAMS_REGRESS = _set("""
0.6 | Ridge alpha 0.1 ; 1.0 ; 10
0.1 | Ridge alpha 100000
0.6 | Lasso alpha 0.001 ; 0.01 ; 0.1
0.5 | ElasticNet alpha 0.001 ; 0.01
0.4 | ElasticNet l1_ratio 0.2
0.6 | SVR C 10 ; 100
0.4 | SVR epsilon 0.01
0.5 | SVR gamma 0.1
0.6 | RandomForestRegressor n_estimators 60 ; 120
0.6 | RandomForestRegressor min_samples_leaf 3 ; 5
0.5 | RandomForestRegressor max_features 0.5
0.2 | RandomForestRegressor max_depth 3
0.6 | ExtraTreesRegressor n_estimators 100
0.6 | GradientBoostingRegressor learning_rate 0.05
0.6 | GradientBoostingRegressor n_estimators 100
0.5 | GradientBoostingRegressor subsample 0.7
0.5 | HistGradientBoostingRegressor learning_rate 0.05
0.5 | HistGradientBoostingRegressor max_iter 80
0.6 | KNeighborsRegressor n_neighbors 5 ; 9 ; 15
0.6 | KNeighborsRegressor weights 'distance'
0.6 | DecisionTreeRegressor max_depth 6 ; 10
0.5 | DecisionTreeRegressor min_samples_leaf 5 ; 20
0.6 | MLPRegressor hidden_layer_sizes (128,) ; (64, 32)
0.6 | MLPRegressor alpha 0.01
0.5 | MLPRegressor max_iter 200
""")

_WRAP = {
  'classification': _x(
    'wrap',
    """
0.5 | BaggingClassifier(n_estimators=5)
0.5 | BaggingClassifier(n_estimators=10, max_samples=0.8)
0.4 | CalibratedClassifierCV(cv=3)
0.4 | OneVsRestClassifier()
""",
  ),
  'regression': _x(
    'wrap',
    """
0.6 | BaggingRegressor(n_estimators=5)
0.5 | BaggingRegressor(n_estimators=10, max_samples=0.8)
0.4 | AdaBoostRegressor(n_estimators=8)
""",
  ),
}

_ENSEMBLE = {
  'classification': _x(
    'ensemble',
    """
0.7 | Average the current estimator and RandomForestClassifier(n_estimators=40)
0.7 | Combine LogisticRegression(max_iter=500) and ExtraTreesClassifier(n_estimators=30) by soft voting
0.5 | Combine the current estimator with KNeighborsClassifier(n_neighbors=5) by voting
0.6 | Stack the current estimator with LogisticRegression(max_iter=500)
""",
  ),
  'regression': _x(
    'ensemble',
    """
0.7 | Average the current estimator and RandomForestRegressor(n_estimators=40)
0.7 | Average Ridge(alpha=1.0) and ExtraTreesRegressor(n_estimators=30)
0.6 | Combine the current estimator with GradientBoostingRegressor(n_estimators=40) by voting
0.6 | Stack the current estimator with Ridge(alpha=1.0)
""",
  ),
}

_DATA = {
  'classification': _x(
    'data',
    """
0.3 | Train on half of the training rows
0.1 | Train on a tenth of the training rows
0.4 | Add Gaussian noise of 0.1 to the training data
""",
  ),
  'regression': _x(
    'data',
    """
0.5 | Clip the predictions to the range of the training target
0.4 | Predict the log of the target
0.5 | Standardize the target
0.2 | Round the predictions
0.2 | Train on half of the training rows
0.3 | Add Gaussian noise of 0.05 to the training data
""",
  ),
}

_IMPOSSIBLE = _x(
  'impossible',
  """
0.3 | Replace the estimator with XGBClassifier(n_estimators=200)
0.3 | Use LightGBM as the model
0.3 | Add focal loss to deal with the rare classes
0.3 | Fine-tune BERT on the training data
0.3 | Use a higher resolution for the input
0.3 | Pretrain on more unlabeled data
0.3 | Add more convolutional layers to the CNN
0.3 | Visualize what the features have learned
0.3 | Tune the momentum of the optimizer
0.3 | Use test time augmentation
""",
)

_REMOVE = [
  Move('remove', (('x', name),), worth, (name,))
  for name, worth in (
    ('StandardScaler', 0.3),
    ('MinMaxScaler', 0.3),
    ('Normalizer', 0.5),
    ('PCA', 0.5),
    ('SelectKBest', 0.5),
    ('PolynomialFeatures', 0.4),
    ('Binarizer', 0.6),
    ('KBinsDiscretizer', 0.5),
    ('TruncatedSVD', 0.6),
    ('GaussianRandomProjection', 0.6),
    ('SelectPercentile', 0.5),
    ('QuantileTransformer', 0.4),
    ('PowerTransformer', 0.4),
    ('RobustScaler', 0.3),
    ('MaxAbsScaler', 0.4),
    ('Nystroem', 0.5),
  )
]

_RELATIVE = [
  Move('relative', (('x', text),), worth, needs)
  for text, worth, needs in (
    (
      'Double n_estimators',
      0.6,
      (
        'RandomForestClassifier',
        'RandomForestRegressor',
        'ExtraTreesClassifier',
        'ExtraTreesRegressor',
        'GradientBoostingClassifier',
        'GradientBoostingRegressor',
      ),
    ),
    (
      'Multiply C by 10',
      0.6,
      ('LogisticRegression', 'SVC', 'LinearSVC', 'SVR'),
    ),
    ('Divide C by 10', 0.4, ('LogisticRegression', 'SVC', 'LinearSVC', 'SVR')),
    ('Divide alpha by 10', 0.6, ('Ridge', 'Lasso', 'MultinomialNB')),
    ('Multiply alpha by 10', 0.3, ('Ridge', 'Lasso', 'MultinomialNB')),
    ('Halve n_neighbors', 0.6, ('KNeighborsClassifier', 'KNeighborsRegressor')),
    (
      'Double n_neighbors',
      0.4,
      ('KNeighborsClassifier', 'KNeighborsRegressor'),
    ),
    (
      'Double max_depth',
      0.6,
      ('DecisionTreeClassifier', 'DecisionTreeRegressor'),
    ),
    ('Double max_features', 0.7, ('CountVectorizer', 'TfidfVectorizer')),
  )
]


def _combos(first: list[Move], second: list[Move], lead: str) -> list[Move]:
  """Two good changes at once, each first one paired with each second."""
  return [
    Move(
      'combo',
      (('x', f'{lead} {dict(a.values)["x"]}, then use {dict(b.values)["x"]}'),),
      (a.worth + b.worth) / 2,
    )
    for a in first
    for b in second
    if a.worth >= 0.6 and b.worth >= 0.6
  ]


# Kinds of tasks whose scripts have no model line, but a function of `ways.WAYS`.
FUNCTION_KINDS = ('speed', 'segmentation', 'ranking', 'span', 'sequence')


def _function_moves() -> tuple[Move, ...]:
  """Moves for functions: each way alone, with a constant, and constants alone."""
  ways = [
    Move('function', (('f', name), ('x', words)), way.worth, (name,))
    for name, known in WAYS.items()
    for way in known
    for words in way.tried()
  ]
  constants = [
    Move('constant', (('f', name), ('x', value)), worth, (function,))
    for function, known in CONSTANTS.items()
    for name, values in known.items()
    for value, worth in values
  ]
  both = [
    Move(
      'combo',
      (('x', f'{way.say()}, then {_lower(constant.say())}'),),
      min(way.worth, constant.worth),
      way.needs,
    )
    for way in ways
    for constant in constants
    if constant.needs == way.needs
  ]
  return tuple(ways + constants + both + _IMPOSSIBLE)


def _lower(text: str) -> str:
  return text[0].lower() + text[1:]


@functools.cache
def moves_for(kind: str, modality: str) -> tuple[Move, ...]:
  """All moves for a kind of task, impossible ones included."""
  if kind in FUNCTION_KINDS:
    return _function_moves()
  side = 'classification' if kind == 'classification' else 'regression'
  own: list[Move] = []
  if modality == 'text':
    own += (
      _TEXT
      if side == 'classification'
      else ([m for m in _TEXT if m.family != 'estimator'] + _REGRESS)
    )
    own += _combos(
      [m for m in own if m.family == 'vectorize'],
      [m for m in own if m.family == 'estimator'],
      'Replace the vectorizer with',
    )
  else:
    own += _CLASSIFY if side == 'classification' else _REGRESS
    own += _SCALE + _FEATURES
    own += _combos(_SCALE, own[:40], 'Scale the features with')
  own += _PARAMS if side == 'classification' else _PARAMS_REGRESS
  own += _WRAP[side] + _ENSEMBLE[side]
  if modality != 'text':
    own += _DATA[side]
  return tuple(own + _REMOVE + _RELATIVE + _IMPOSSIBLE)


@functools.cache
def needs_of(kind: str, modality: str) -> dict[str, tuple[str, ...]]:
  """First phrase of a move -> the classes it needs."""
  return {m.say(): m.needs for m in moves_for(kind, modality)}
