#!/usr/bin/env bash
# scikit-learn: quadratic kappa of grades 1 to 5 where no essay has a 3 or a 4.
# One would expect: a 5 taken for a 1 is four grades off, whatever grades the others have.
# What happens: weights are those of the places among the grades that occur, so a 5 beside 1
#   and 2 counts as a 3. With labels=[1, 2, 3, 4, 5] it is the kappa of the definition.
# Versions: scikit-learn 1.9.1, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages scikit-learn==1.9.1
program <<'PY'
import numpy as np
from sklearn.metrics import cohen_kappa_score


def by_definition(true, given, grades):
  off = np.square(np.subtract.outer(grades, grades))
  seen = np.zeros(off.shape)
  np.add.at(seen, (np.searchsorted(grades, true), np.searchsorted(grades, given)), 1)
  chance = np.outer(seen.sum(1), seen.sum(0)) / seen.sum()
  return 1 - (off * seen).sum() / (off * chance).sum()


true, given = [1, 1, 2, 2, 5, 5], [1, 2, 2, 1, 5, 1]
grades = np.arange(1, 6)
print('definition', round(by_definition(true, given, grades), 4))
for more in ({}, {'labels': grades}):
  kappa = cohen_kappa_score(true, given, weights='quadratic', **more)
  print(*more, round(float(kappa), 4))
PY
recorded <<'SEEN'
definition 0.4375
0.25
labels 0.4375
SEEN
