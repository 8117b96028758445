#!/usr/bin/env bash
# catboost: the share of right predictions, as `(model.predict(x) == y).mean()`.
# One would expect: predict gives one label a row, [300], as for two classes and as
#   scikit-learn's classifiers do.
# What happens: with three classes it is a column, [300, 1]. Compared with y it becomes a
#   table of 300 x 300, and a model that is right in every row scores as if it guessed.
# Versions: catboost 1.2.10, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages catboost==1.2.10 numpy==2.4.6
program <<'PY'
import numpy as np
from catboost import CatBoostClassifier

x = np.random.default_rng(0).normal(size=(300, 4))
three = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
for y in (three > 0, three):
  model = CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False)
  given = model.fit(x, y).predict(x)
  right = round(float((given == y).mean()), 3)
  print(len(set(y.tolist())), 'classes', given.shape, right, model.score(x, y))
PY
recorded <<'SEEN'
2 classes (300,) 1.0 1.0
3 classes (300, 1) 0.386 1.0
SEEN
