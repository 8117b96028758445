#!/usr/bin/env bash
# scikit-learn, xgboost: trees on Unix time stamps in seconds, 30 seconds apart.
# One would expect: a tree without a limit tells all distinct values of float64 apart.
# What happens: both turn features into float32 first, in which times of today are 128
#   seconds apart: of 200 rows 48 values are left, and labels that change every minute are
#   learned little better than by a coin. With the first time subtracted the same trees
#   learn all of them. HistGradientBoosting bins float64 and has no such limit.
# Versions: scikit-learn 1.9.1, xgboost 3.2.0, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1 xgboost==3.2.0 numpy==2.4.6
program <<'PY'
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

seconds = 1_790_000_000 + 30.0 * np.arange(200)
label = np.arange(200) // 2 % 2
print('values in float32', len(np.unique(seconds.astype(np.float32))))
for model in (
  DecisionTreeClassifier(random_state=0),
  XGBClassifier(n_estimators=300, max_depth=8, min_child_weight=0, reg_lambda=0),
  HistGradientBoostingClassifier(max_iter=300, min_samples_leaf=1, random_state=0),
):
  name = type(model).__name__
  for first in (0.0, seconds[0]):
    x = (seconds - first)[:, None]
    print(name, 'shifted' if first else 'as it is', model.fit(x, label).score(x, label))
PY
recorded <<'SEEN'
values in float32 48
DecisionTreeClassifier as it is 0.535
DecisionTreeClassifier shifted 1.0
XGBClassifier as it is 0.535
XGBClassifier shifted 1.0
HistGradientBoostingClassifier as it is 1.0
HistGradientBoostingClassifier shifted 1.0
SEEN
