#!/usr/bin/env bash
# lightgbm: a table whose columns stand in another order is predicted from the wrong ones.
# One would expect: columns are found by name, or an error, as scikit-learn raises one,
#   since the model keeps the names (feature_name_) and is given a table with names.
# What happens: predict takes columns by place, of a Booster and of the scikit-learn class,
#   without a warning. validate_features=True raises.
# Versions: lightgbm 4.7.0, pandas 2.3.3, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6,
#   Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages lightgbm==4.7.0 pandas==2.3.3 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
program <<'PY'
import warnings

import lightgbm
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

warnings.simplefilter('error')
rng = np.random.default_rng(0)
table = pd.DataFrame(rng.normal(size=(500, 3)), columns=['size', 'age', 'noise'])
target = 3 * table['size'] + 0.1 * rng.normal(size=len(table))
turned = table[['noise', 'age', 'size']]


def correlation(predicted):
  return f'correlation {np.corrcoef(predicted, target)[0, 1]:.1f}'


model = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1)
model.fit(table, target)
print('as trained:', correlation(model.predict(table)))
print('turned, LGBMRegressor:', correlation(model.predict(turned)))
print('turned, Booster:', correlation(model.booster_.predict(turned)))
other = HistGradientBoostingRegressor(max_iter=20).fit(table, target)
for name, predict in (
  ('validate_features', lambda: model.predict(turned, validate_features=True)),
  ('scikit-learn', lambda: other.predict(turned)),
):
  try:
    print(f'turned, {name}:', correlation(predict()))
  except (ValueError, lightgbm.basic.LightGBMError):
    print(f'turned, {name}: refused')
PY
recorded <<'SEEN'
as trained: correlation 1.0
turned, LGBMRegressor: correlation -0.0
turned, Booster: correlation -0.0
turned, validate_features: refused
turned, scikit-learn: refused
SEEN
