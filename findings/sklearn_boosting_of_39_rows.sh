#!/usr/bin/env bash
# scikit-learn: HistGradientBoosting of 39 rows predicts one number, however many trees.
# One would expect: a poor fit of few rows, or a warning.
# What happens: a leaf has at least 20 rows (min_samples_leaf), so below 40 no tree has a
#   split, and the model is the mean of the target. Nothing is said, and more trees and a higher
#   rate change nothing; smaller leaves do. A program that is tried on the head of the data
#   looks hopeless; GradientBoosting, the other class, fits it.
# Versions: scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
program <<'PY'
import warnings

import numpy as np
from sklearn.ensemble import (
  GradientBoostingRegressor,
  HistGradientBoostingRegressor,
)

warnings.simplefilter('error')
x = np.random.default_rng(0).normal(size=(40, 2))
y = x[:, 0]
for rows in (39, 40):
  for name, model in (
    ('by default', HistGradientBoostingRegressor()),
    ('1000 trees', HistGradientBoostingRegressor(max_iter=1000, learning_rate=1)),
    ('leaves of 5', HistGradientBoostingRegressor(min_samples_leaf=5)),
    ('GradientBoosting', GradientBoostingRegressor(random_state=0)),
  ):
    found = model.fit(x[:rows], y[:rows]).predict(x)
    print(f'{rows} rows, {name}:', 'one number' if np.ptp(found) < 1e-9 else 'a fit')
PY
recorded <<'SEEN'
39 rows, by default: one number
39 rows, 1000 trees: one number
39 rows, leaves of 5: a fit
39 rows, GradientBoosting: a fit
40 rows, by default: a fit
40 rows, 1000 trees: a fit
40 rows, leaves of 5: a fit
40 rows, GradientBoosting: a fit
SEEN
