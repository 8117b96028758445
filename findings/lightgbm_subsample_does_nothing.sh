#!/usr/bin/env bash
# lightgbm: subsample=0.5 changes nothing.
# One would expect: half of the rows for each tree, as with the parameter of the same name of
#   xgboost and scikit-learn.
# What happens: rows are drawn every subsample_freq trees, which is 0 by default: never. No
#   warning; an agent that tunes subsample (or bagging_fraction) alone measures noise.
# Versions: lightgbm 4.7.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages lightgbm==4.7.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
program <<'PY'
import lightgbm
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(500, 5))
y = x[:, 0] + rng.normal(size=len(x))


def fitted(**options):
  model = lightgbm.LGBMRegressor(
    n_estimators=20, random_state=0, n_jobs=1, verbose=-1, **options
  )
  return model.fit(x, y).predict(x)


for options in (
  {'subsample': 0.5},
  {'subsample': 0.01},
  {'bagging_fraction': 0.5},
  {'subsample': 0.5, 'subsample_freq': 1},
  {'colsample_bytree': 0.5},
):
  print(options, 'changes nothing:', np.array_equal(fitted(**options), fitted()))
PY
recorded <<'SEEN'
{'subsample': 0.5} changes nothing: True
{'subsample': 0.01} changes nothing: True
{'bagging_fraction': 0.5} changes nothing: True
{'subsample': 0.5, 'subsample_freq': 1} changes nothing: False
{'colsample_bytree': 0.5} changes nothing: False
SEEN
