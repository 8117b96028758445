"""Pipelines of the documented search for m_best: what goes between the
brackets of a starter's `model = make_pipeline(...)`."""

from __future__ import annotations

IMPORTS = """
from sklearn.decomposition import *
from sklearn.discriminant_analysis import *
from sklearn.ensemble import *
from sklearn.feature_extraction.text import *
from sklearn.linear_model import *
from sklearn.naive_bayes import *
from sklearn.neighbors import *
from sklearn.neural_network import *
from sklearn.pipeline import *
from sklearn.preprocessing import *
from sklearn.svm import *
from sklearn.tree import *
"""

_REGRESSORS = (
  'LinearRegression()',
  'RidgeCV(alphas=[0.1, 1, 10, 100, 1000])',
  'LassoCV(cv=5)',
  'BayesianRidge()',
  'HuberRegressor(max_iter=1000)',
  'KNeighborsRegressor(n_neighbors=10)',
  'SVR(C=30, gamma=0.01)',
  'SVR(C=100, epsilon=2.0)',
  'SVR(C=300, gamma=0.005, epsilon=2.0)',
  'SVR(C=1000, gamma=0.003, epsilon=2.0)',
  'RandomForestRegressor(n_estimators=200, min_samples_leaf=3, random_state=0)',
  'RandomForestRegressor(n_estimators=400, random_state=0)',
  'ExtraTreesRegressor(n_estimators=300, random_state=0)',
  'ExtraTreesRegressor(n_estimators=300, min_samples_leaf=2, random_state=0)',
  'HistGradientBoostingRegressor(random_state=0)',
  'GradientBoostingRegressor(n_estimators=100, max_depth=2, subsample=0.7, '
  'learning_rate=0.05, random_state=0)',
  'GradientBoostingRegressor(n_estimators=300, max_depth=4, subsample=0.7, '
  'learning_rate=0.05, random_state=0)',
  'MLPRegressor(hidden_layer_sizes=(64, 32), max_iter=500, random_state=0)',
)
REGRESSION = tuple(f'StandardScaler(), {m}' for m in _REGRESSORS) + (
  'StandardScaler(), PolynomialFeatures(2), '
  'RidgeCV(alphas=[1, 10, 100, 1000, 10000])',
  'DecisionTreeRegressor(max_depth=6, random_state=0)',
)

_CLASSIFIERS = (
  'LogisticRegression(C=0.01, max_iter=2000)',
  'LogisticRegression(C=0.1, max_iter=2000)',
  'LogisticRegression(C=1.0, max_iter=2000)',
  'LogisticRegression(C=10.0, max_iter=2000)',
  'SVC(C=1, probability=True, random_state=0)',
  'SVC(C=10, probability=True, random_state=0)',
  'SVC(C=10, gamma=0.01, probability=True, random_state=0)',
  'SVC(C=1, gamma=0.003, probability=True, random_state=0)',
  'KNeighborsClassifier(n_neighbors=3)',
  'GaussianNB()',
  'LinearDiscriminantAnalysis()',
  "LinearDiscriminantAnalysis(solver='lsqr', shrinkage='auto')",
  'QuadraticDiscriminantAnalysis(reg_param=0.2)',
  'MLPClassifier(hidden_layer_sizes=(64,), max_iter=300, random_state=0)',
  'RandomForestClassifier(n_estimators=300, random_state=0)',
  'ExtraTreesClassifier(n_estimators=400, random_state=0)',
  'HistGradientBoostingClassifier(random_state=0)',
  'GradientBoostingClassifier(random_state=0)',
)
CLASSIFICATION = tuple(f'StandardScaler(), {m}' for m in _CLASSIFIERS) + (
  'SVC(gamma=0.001, C=10, probability=True, random_state=0)',
  'PCA(20, random_state=0), SVC(C=10, probability=True, random_state=0)',
  'StandardScaler(), PolynomialFeatures(2), '
  'LogisticRegression(C=0.01, max_iter=2000)',
)

_VECTORIZERS = (
  'CountVectorizer()',
  'TfidfVectorizer(ngram_range=(1, 2))',
  "TfidfVectorizer(analyzer='char_wb', ngram_range=(2, 5))",
  "TfidfVectorizer(analyzer='char_wb', ngram_range=(1, 4), sublinear_tf=True)",
  "TfidfVectorizer(analyzer='char', ngram_range=(1, 6), sublinear_tf=True)",
)
_TEXT_MODELS = (
  'LogisticRegression(C=10, max_iter=1000)',
  'LinearSVC(C=1)',
  "LinearSVC(C=1, class_weight='balanced')",
  'MultinomialNB(alpha=0.05)',
  'ComplementNB(alpha=0.1)',
  'RidgeClassifier()',
  'SGDClassifier(random_state=0)',
  'KNeighborsClassifier(n_neighbors=3)',
  'SVC(C=10)',
  'RandomForestClassifier(n_estimators=300, random_state=0)',
)
TEXT = tuple(f'{v}, {m}' for v in _VECTORIZERS for m in _TEXT_MODELS)


def pipelines(modality: str, kind: str) -> tuple[str, ...]:
  """Candidates for a kind of task."""
  if modality == 'text' and kind == 'classification':
    return TEXT
  return CLASSIFICATION if kind == 'classification' else REGRESSION
