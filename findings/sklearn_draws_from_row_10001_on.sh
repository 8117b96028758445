#!/usr/bin/env bash
# scikit-learn: a script without a seed is exact to 10,000 rows, and draws from 10,001 on.
# One would expect: whether HistGradientBoosting and QuantileTransformer repeat themselves without
#   random_state depends on their options, not on the number of rows.
# What happens: above 10,000 rows the first holds out a random tenth to stop early by
#   (early_stopping='auto') and the second fits to a random sample (subsample=10_000). A
#   score that was measured twice and agreed on a sample of the data differs on all of it.
# Versions: scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
program <<'PY'
import numpy as np
from sklearn.ensemble import (
  HistGradientBoostingClassifier,
  HistGradientBoostingRegressor,
)
from sklearn.preprocessing import QuantileTransformer

rng = np.random.default_rng(0)
x = rng.normal(size=(10_001, 4))
noisy = x[:, 0] + rng.normal(size=len(x))


def classifier(x, y):
  return HistGradientBoostingClassifier(max_iter=20).fit(x, y > 0)


def regressor(x, y):
  return HistGradientBoostingRegressor(max_iter=20).fit(x, y)


for rows in (10_000, 10_001):
  a, y = x[:rows], noisy[:rows]
  twice = {
    'classifier': [classifier(a, y).predict_proba(a) for _ in range(2)],
    'regressor': [regressor(a, y).predict(a) for _ in range(2)],
    'quantiles': [QuantileTransformer().fit_transform(a) for _ in range(2)],
  }
  for name, (one, other) in twice.items():
    print(f'{rows} rows, {name}: the same twice {np.array_equal(one, other)}')
PY
recorded <<'SEEN'
10000 rows, classifier: the same twice True
10000 rows, regressor: the same twice True
10000 rows, quantiles: the same twice True
10001 rows, classifier: the same twice False
10001 rows, regressor: the same twice False
10001 rows, quantiles: the same twice False
SEEN
