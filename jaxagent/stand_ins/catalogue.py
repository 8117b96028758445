"""Classes, roles and names of scikit-learn that the scripted editor knows.

Facts are scikit-learn's own (module, parameters). `aliases` are what people
write for a class; `{}` classes exist as a classifier and as a regressor and
the alias of the pair takes whichever the script already uses.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

CLASSIFIER = 'classifier'
REGRESSOR = 'regressor'
SCALER = 'scaler'
REDUCER = 'reducer'
FEATURES = 'features'
SELECTOR = 'selector'
VECTORIZER = 'vectorizer'
IMPUTER = 'imputer'
META = 'meta'  # wraps one or several estimators

ESTIMATOR_ROLES = (CLASSIFIER, REGRESSOR)


@dataclasses.dataclass(frozen=True)
class Entry:
  """One class: where it is imported from and what it takes."""

  name: str
  module: str
  role: str
  params: tuple[str, ...]
  seeded: bool = False
  aliases: tuple[str, ...] = ()


def _entry(
  name: str,
  module: str,
  role: str,
  params: Any = '',
  seeded: bool = False,
  aliases: Any = '',
):
  return Entry(
    name,
    f'sklearn.{module}',
    role,
    tuple(params.split()),
    seeded,
    tuple(a.strip() for a in aliases.split('|') if a.strip()),
  )


_TREE = 'max_depth min_samples_leaf min_samples_split max_features criterion'
_FOREST = f'n_estimators {_TREE} bootstrap class_weight max_samples'
_BOOST = f'n_estimators learning_rate subsample loss {_TREE}'
_HIST = (
  'max_iter learning_rate max_leaf_nodes max_depth min_samples_leaf '
  'l2_regularization max_bins early_stopping loss'
)
_MLP = (
  'hidden_layer_sizes activation solver alpha batch_size learning_rate '
  'learning_rate_init max_iter early_stopping tol'
)
_SGD = 'loss penalty alpha l1_ratio max_iter learning_rate eta0 early_stopping'
_KNN = 'n_neighbors weights p metric leaf_size algorithm'
_SVM = 'C kernel gamma degree coef0 tol max_iter'

_CLASSIFIERS = [
  _entry(
    'LogisticRegression',
    'linear_model',
    CLASSIFIER,
    'C penalty solver max_iter class_weight tol fit_intercept l1_ratio',
    False,
    'logistic regression',
  ),
  _entry(
    'RidgeClassifier',
    'linear_model',
    CLASSIFIER,
    'alpha class_weight solver fit_intercept',
    False,
    'ridge classifier',
  ),
  _entry('SGDClassifier', 'linear_model', CLASSIFIER, _SGD, True),
  _entry(
    'Perceptron',
    'linear_model',
    CLASSIFIER,
    'penalty alpha max_iter',
    True,
    'a perceptron',
  ),
  _entry(
    'PassiveAggressiveClassifier',
    'linear_model',
    CLASSIFIER,
    'C max_iter',
    True,
  ),
  _entry(
    'LinearSVC',
    'svm',
    CLASSIFIER,
    'C penalty loss dual max_iter class_weight tol',
    True,
    'linear svm | linear support vector classifier',
  ),
  _entry(
    'SVC',
    'svm',
    CLASSIFIER,
    f'{_SVM} probability class_weight',
    True,
  ),
  _entry('NuSVC', 'svm', CLASSIFIER, f'nu {_SVM} probability', True),
  _entry('KNeighborsClassifier', 'neighbors', CLASSIFIER, _KNN),
  _entry(
    'NearestCentroid',
    'neighbors',
    CLASSIFIER,
    'metric shrink_threshold',
    False,
    'nearest centroid',
  ),
  _entry('DecisionTreeClassifier', 'tree', CLASSIFIER, _TREE, True),
  _entry('ExtraTreeClassifier', 'tree', CLASSIFIER, _TREE, True),
  _entry('RandomForestClassifier', 'ensemble', CLASSIFIER, _FOREST, True),
  _entry('ExtraTreesClassifier', 'ensemble', CLASSIFIER, _FOREST, True),
  _entry('GradientBoostingClassifier', 'ensemble', CLASSIFIER, _BOOST, True),
  _entry('HistGradientBoostingClassifier', 'ensemble', CLASSIFIER, _HIST, True),
  _entry(
    'AdaBoostClassifier',
    'ensemble',
    CLASSIFIER,
    'n_estimators learning_rate estimator',
    True,
  ),
  _entry(
    'BaggingClassifier',
    'ensemble',
    META,
    'n_estimators max_samples max_features bootstrap estimator',
    True,
  ),
  _entry('MLPClassifier', 'neural_network', CLASSIFIER, _MLP, True),
  _entry(
    'GaussianNB',
    'naive_bayes',
    CLASSIFIER,
    'var_smoothing',
    False,
    'gaussian naive bayes',
  ),
  _entry(
    'MultinomialNB',
    'naive_bayes',
    CLASSIFIER,
    'alpha fit_prior',
    False,
    'multinomial naive bayes | naive bayes',
  ),
  _entry(
    'ComplementNB',
    'naive_bayes',
    CLASSIFIER,
    'alpha norm',
    False,
    'complement naive bayes',
  ),
  _entry(
    'BernoulliNB',
    'naive_bayes',
    CLASSIFIER,
    'alpha binarize',
    False,
    'bernoulli naive bayes',
  ),
  _entry(
    'LinearDiscriminantAnalysis',
    'discriminant_analysis',
    CLASSIFIER,
    'solver shrinkage n_components',
    False,
    'linear discriminant analysis | LDA',
  ),
  _entry(
    'QuadraticDiscriminantAnalysis',
    'discriminant_analysis',
    CLASSIFIER,
    'reg_param',
    False,
    'quadratic discriminant analysis | QDA',
  ),
  _entry(
    'GaussianProcessClassifier', 'gaussian_process', CLASSIFIER, 'kernel', True
  ),
  _entry('DummyClassifier', 'dummy', CLASSIFIER, 'strategy', True),
]

_REGRESSORS = [
  _entry(
    'LinearRegression',
    'linear_model',
    REGRESSOR,
    'fit_intercept positive',
    False,
    'linear regression | ordinary least squares',
  ),
  _entry(
    'Ridge',
    'linear_model',
    REGRESSOR,
    'alpha solver fit_intercept',
    False,
    'ridge regression',
  ),
  _entry(
    'Lasso', 'linear_model', REGRESSOR, 'alpha max_iter tol', False, 'the lasso'
  ),
  _entry(
    'ElasticNet',
    'linear_model',
    REGRESSOR,
    'alpha l1_ratio max_iter',
    False,
    'elastic net',
  ),
  _entry(
    'BayesianRidge',
    'linear_model',
    REGRESSOR,
    'max_iter alpha_1',
    False,
    'bayesian ridge',
  ),
  _entry(
    'HuberRegressor',
    'linear_model',
    REGRESSOR,
    'epsilon alpha max_iter',
    False,
    'huber regression',
  ),
  _entry('SGDRegressor', 'linear_model', REGRESSOR, _SGD, True),
  _entry('RidgeCV', 'linear_model', REGRESSOR, 'alphas cv', False),
  _entry('LassoCV', 'linear_model', REGRESSOR, 'cv n_alphas', False),
  _entry(
    'TheilSenRegressor', 'linear_model', REGRESSOR, 'max_subpopulation', True
  ),
  _entry(
    'PoissonRegressor',
    'linear_model',
    REGRESSOR,
    'alpha max_iter',
    False,
    'poisson regression',
  ),
  _entry('SVR', 'svm', REGRESSOR, f'epsilon {_SVM}', False),
  _entry('LinearSVR', 'svm', REGRESSOR, 'C epsilon loss max_iter', True),
  _entry(
    'KernelRidge',
    'kernel_ridge',
    REGRESSOR,
    'alpha kernel gamma degree',
    False,
    'kernel ridge | kernel ridge regression',
  ),
  _entry(
    'PLSRegression',
    'cross_decomposition',
    REGRESSOR,
    'n_components scale',
    False,
    'partial least squares',
  ),
  _entry('KNeighborsRegressor', 'neighbors', REGRESSOR, _KNN),
  _entry('DecisionTreeRegressor', 'tree', REGRESSOR, _TREE, True),
  _entry('ExtraTreeRegressor', 'tree', REGRESSOR, _TREE, True),
  _entry('RandomForestRegressor', 'ensemble', REGRESSOR, _FOREST, True),
  _entry('ExtraTreesRegressor', 'ensemble', REGRESSOR, _FOREST, True),
  _entry('GradientBoostingRegressor', 'ensemble', REGRESSOR, _BOOST, True),
  _entry('HistGradientBoostingRegressor', 'ensemble', REGRESSOR, _HIST, True),
  _entry(
    'AdaBoostRegressor',
    'ensemble',
    REGRESSOR,
    'n_estimators learning_rate loss estimator',
    True,
  ),
  _entry(
    'BaggingRegressor',
    'ensemble',
    META,
    'n_estimators max_samples max_features bootstrap estimator',
    True,
  ),
  _entry('MLPRegressor', 'neural_network', REGRESSOR, _MLP, True),
  _entry(
    'GaussianProcessRegressor',
    'gaussian_process',
    REGRESSOR,
    'alpha kernel normalize_y',
    True,
  ),
  _entry('DummyRegressor', 'dummy', REGRESSOR, 'strategy', False),
]

_STEPS = [
  _entry(
    'StandardScaler',
    'preprocessing',
    SCALER,
    'with_mean with_std',
    False,
    'standard scaler | standard scaling | standardization | standardisation',
  ),
  _entry(
    'MinMaxScaler',
    'preprocessing',
    SCALER,
    'feature_range clip',
    False,
    'min-max scaler | min-max scaling | minmax scaling',
  ),
  _entry(
    'MaxAbsScaler',
    'preprocessing',
    SCALER,
    '',
    False,
    'max-abs scaler | max-abs scaling',
  ),
  _entry(
    'RobustScaler',
    'preprocessing',
    SCALER,
    'quantile_range with_centering',
    False,
    'robust scaler | robust scaling',
  ),
  _entry(
    'Normalizer',
    'preprocessing',
    SCALER,
    'norm',
    False,
    'row normalization | row normalisation | unit norm',
  ),
  _entry(
    'PowerTransformer',
    'preprocessing',
    SCALER,
    'method standardize',
    False,
    'power transform | yeo-johnson transform',
  ),
  _entry(
    'QuantileTransformer',
    'preprocessing',
    SCALER,
    'n_quantiles output_distribution',
    True,
    'quantile transform | quantile transformation',
  ),
  _entry(
    'PCA',
    'decomposition',
    REDUCER,
    'n_components whiten',
    True,
    'principal component analysis | principal components',
  ),
  _entry(
    'TruncatedSVD',
    'decomposition',
    REDUCER,
    'n_components n_iter',
    True,
    'truncated svd | latent semantic analysis | LSA',
  ),
  _entry(
    'FastICA',
    'decomposition',
    REDUCER,
    'n_components max_iter',
    True,
    'independent component analysis',
  ),
  _entry(
    'NMF',
    'decomposition',
    REDUCER,
    'n_components max_iter',
    True,
    'non-negative matrix factorization',
  ),
  _entry(
    'KernelPCA',
    'decomposition',
    REDUCER,
    'n_components kernel gamma',
    True,
    'kernel pca',
  ),
  _entry(
    'GaussianRandomProjection',
    'random_projection',
    REDUCER,
    'n_components',
    True,
    'random projection',
  ),
  _entry(
    'PolynomialFeatures',
    'preprocessing',
    FEATURES,
    'degree interaction_only include_bias',
    False,
    'polynomial features | polynomial feature expansion',
  ),
  _entry(
    'SplineTransformer',
    'preprocessing',
    FEATURES,
    'n_knots degree knots',
    False,
    'spline features | splines',
  ),
  _entry(
    'KBinsDiscretizer',
    'preprocessing',
    FEATURES,
    'n_bins encode strategy',
    False,
    'binned features | binning',
  ),
  _entry(
    'Binarizer',
    'preprocessing',
    FEATURES,
    'threshold',
    False,
    'binarization | binarisation',
  ),
  _entry(
    'Nystroem',
    'kernel_approximation',
    FEATURES,
    'kernel gamma n_components degree',
    True,
    'nystroem features | nystroem kernel approximation',
  ),
  _entry(
    'RBFSampler',
    'kernel_approximation',
    FEATURES,
    'gamma n_components',
    True,
    'random fourier features | rbf sampler',
  ),
  _entry(
    'SelectKBest',
    'feature_selection',
    SELECTOR,
    'k score_func',
    False,
    'k best features | univariate feature selection',
  ),
  _entry(
    'SelectPercentile',
    'feature_selection',
    SELECTOR,
    'percentile score_func',
    False,
    'percentile feature selection',
  ),
  _entry(
    'VarianceThreshold',
    'feature_selection',
    SELECTOR,
    'threshold',
    False,
    'variance threshold',
  ),
  _entry(
    'SelectFromModel',
    'feature_selection',
    META,
    'estimator threshold max_features',
    False,
  ),
  _entry(
    'TfidfVectorizer',
    'feature_extraction.text',
    VECTORIZER,
    'ngram_range analyzer min_df max_df max_features sublinear_tf '
    'stop_words lowercase norm use_idf binary token_pattern '
    'strip_accents',
    False,
    'tf-idf | tf-idf vectorizer',
  ),
  _entry(
    'CountVectorizer',
    'feature_extraction.text',
    VECTORIZER,
    'ngram_range analyzer min_df max_df max_features stop_words '
    'lowercase binary token_pattern strip_accents',
    False,
    'count vectorizer | word counts | bag of words',
  ),
  _entry(
    'HashingVectorizer',
    'feature_extraction.text',
    VECTORIZER,
    'ngram_range analyzer n_features norm alternate_sign stop_words '
    'lowercase binary',
    False,
    'hashing vectorizer',
  ),
  _entry(
    'TfidfTransformer',
    'feature_extraction.text',
    FEATURES,
    'norm use_idf sublinear_tf smooth_idf',
    False,
    'tf-idf transformer | tf-idf weighting',
  ),
  _entry(
    'SimpleImputer',
    'impute',
    IMPUTER,
    'strategy fill_value',
    False,
    'mean imputation | imputation',
  ),
  _entry(
    'KNNImputer',
    'impute',
    IMPUTER,
    'n_neighbors weights',
    False,
    'nearest neighbour imputation',
  ),
  _entry(
    'CalibratedClassifierCV',
    'calibration',
    META,
    'method cv ensemble estimator',
    False,
    'probability calibration',
  ),
  _entry(
    'OneVsRestClassifier', 'multiclass', META, 'estimator', False, 'one-vs-rest'
  ),
  _entry(
    'OneVsOneClassifier', 'multiclass', META, 'estimator', False, 'one-vs-one'
  ),
  _entry(
    'MultiOutputRegressor',
    'multioutput',
    META,
    'estimator',
    False,
    'one regressor per output',
  ),
  _entry(
    'TransformedTargetRegressor',
    'compose',
    META,
    'regressor func inverse_func transformer',
    False,
    'target transform',
  ),
  _entry('VotingClassifier', 'ensemble', META, 'estimators voting weights'),
  _entry('VotingRegressor', 'ensemble', META, 'estimators weights'),
  _entry(
    'StackingClassifier', 'ensemble', META, 'estimators final_estimator cv'
  ),
  _entry(
    'StackingRegressor', 'ensemble', META, 'estimators final_estimator cv'
  ),
  _entry(
    'GridSearchCV', 'model_selection', META, 'estimator param_grid cv scoring'
  ),
]

# Functions that may stand in an argument.
FUNCTIONS = {
  'make_pipeline': 'sklearn.pipeline',
  'make_union': 'sklearn.pipeline',
  'chi2': 'sklearn.feature_selection',
  'f_classif': 'sklearn.feature_selection',
  'f_regression': 'sklearn.feature_selection',
  'mutual_info_classif': 'sklearn.feature_selection',
  'mutual_info_regression': 'sklearn.feature_selection',
}

ENTRIES: dict[str, Entry] = {
  e.name: e for e in _CLASSIFIERS + _REGRESSORS + _STEPS
}

# What people write -> stem; 'Classifier' or 'Regressor' is appended, SVC/SVR
# aside, by what the script holds.
PAIRED_ALIASES = {
  'random forest': 'RandomForest',
  'randomized trees': 'ExtraTrees',
  'extremely randomized trees': 'ExtraTrees',
  'extra trees': 'ExtraTrees',
  'histogram gradient boosting': 'HistGradientBoosting',
  'hist gradient boosting': 'HistGradientBoosting',
  'gradient boosting': 'GradientBoosting',
  'gradient boosted trees': 'GradientBoosting',
  'adaboost': 'AdaBoost',
  'decision tree': 'DecisionTree',
  'k nearest neighbours': 'KNeighbors',
  'k nearest neighbors': 'KNeighbors',
  'k-nearest neighbours': 'KNeighbors',
  'k-nearest neighbors': 'KNeighbors',
  'nearest neighbours': 'KNeighbors',
  'nearest neighbors': 'KNeighbors',
  'knn': 'KNeighbors',
  'neural network': 'MLP',
  'multi-layer perceptron': 'MLP',
  'multilayer perceptron': 'MLP',
  'mlp': 'MLP',
  'stochastic gradient descent': 'SGD',
  'linear support vector machine': 'LinearSV',
  'support vector machine': 'SV',
  'support vector machines': 'SV',
  'svm': 'SV',
  'gaussian process': 'GaussianProcess',
  'ridge': 'Ridge',
  'bagging': 'Bagging',
  'dummy': 'Dummy',
}

PARAM_ALIASES = {
  'number of trees': 'n_estimators',
  'number of estimators': 'n_estimators',
  'number of boosting stages': 'n_estimators',
  'number of neighbours': 'n_neighbors',
  'number of neighbors': 'n_neighbors',
  'number of components': 'n_components',
  'number of features': 'max_features',
  'number of iterations': 'max_iter',
  'number of bins': 'n_bins',
  'regularization strength': 'alpha',
  'regularisation strength': 'alpha',
  'maximum depth': 'max_depth',
  'max depth': 'max_depth',
  'tree depth': 'max_depth',
  'learning rate': 'learning_rate',
  'hidden layers': 'hidden_layer_sizes',
  'hidden layer sizes': 'hidden_layer_sizes',
  'n-gram range': 'ngram_range',
  'ngram range': 'ngram_range',
  'smoothing': 'alpha',
  'class weight': 'class_weight',
  'class weights': 'class_weight',
  'minimum document frequency': 'min_df',
  'vocabulary size': 'max_features',
  'stop words': 'stop_words',
  'early stopping': 'early_stopping',
  'polynomial degree': 'degree',
}


def paired_name(stem: str, regression: bool) -> str:
  """The class of a pair for the kind of task at hand."""
  if stem in ('SV', 'LinearSV'):
    return stem + ('R' if regression else 'C')
  if stem == 'Ridge':
    return 'Ridge' if regression else 'RidgeClassifier'
  return stem + ('Regressor' if regression else 'Classifier')


def is_regression(names: Sequence[str]) -> bool:
  """Whether a script predicts numbers, by the first class name that tells.

  The outermost goes first: a stack of classifiers may hold a regressor.
  """
  for name in names:
    role = ENTRIES[name].role if name in ENTRIES else None
    if role == CLASSIFIER or (role != REGRESSOR and 'Classifier' in name):
      return False
    if role == REGRESSOR or name.endswith(('Regressor', 'Regression', 'SVR')):
      return True
  return False


def _alias_table() -> list[tuple[re.Pattern[str], str, bool]]:
  """(pattern, class name or stem, is a pair), longest alias first."""
  rows = [(a, e.name, False) for e in ENTRIES.values() for a in e.aliases]
  rows += [(a, stem, True) for a, stem in PAIRED_ALIASES.items()]
  rows.sort(key=lambda row: -len(row[0]))
  return [
    (re.compile(rf'\b{re.escape(a)}\b', re.I), name, pair)
    for a, name, pair in rows
  ]


ALIASES = _alias_table()
