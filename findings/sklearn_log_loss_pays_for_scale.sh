#!/usr/bin/env bash
# scikit-learn: log_loss of rows that sum to more than 1 is lower, so scaling is a score.
# One would expect: rows of probabilities are brought to shares, or refused; a metric that a model is rewarded by does not depend on their scale.
# What happens: a warning, and the logarithms are taken of the numbers as they are: rows
#   times 1.01 gain 0.01, times 1.4 a loss of 0.43 becomes 0.10.
# Versions: scikit-learn 1.9.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1 numpy==2.4.6
program <<'PY'
import warnings

import numpy as np
from sklearn.metrics import log_loss

warnings.simplefilter('ignore')
rows = np.array([[0.7, 0.3], [0.4, 0.6]])
for factor in (1.0, 1.01, 1.4):
  print(factor, round(log_loss([0, 1], rows * factor), 4))
PY
recorded <<'SEEN'
1.0 0.4338
1.01 0.4238
1.4 0.0973
SEEN
