#!/usr/bin/env bash
# rliable: the interquartile mean of three runs is their mean, outlier and all.
# One would expect: the mean of the middle half, which is why it is reported: one run of many
#   points does not move it; of few runs a weighted part of the outer ones.
# What happens: a quarter of the number of scores, rounded down, is cut at each end: none of
#   three, one of seven (five of seven stay, not the middle half). With one task and three seeds
#   the robust figure is the plain one, and a fourth seed removes the outlier.
# Versions: rliable 1.2.0, arch 7.2.0, pandas 2.3.3, scipy 1.17.1, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages rliable==1.2.0 arch==7.2.0 pandas==2.3.3 scipy==1.17.1 numpy==2.4.6
program <<'PY'
import numpy as np
from rliable import metrics

for runs in (3, 4, 7, 8):
  scores = np.arange(runs, dtype=float)[:, None]
  scores[-1] = 1000
  print(
    f'{runs} runs: interquartile mean {metrics.aggregate_iqm(scores):.2f}, '
    f'mean {metrics.aggregate_mean(scores):.2f}'
  )
PY
recorded <<'SEEN'
3 runs: interquartile mean 333.67, mean 333.67
4 runs: interquartile mean 1.50, mean 250.75
7 runs: interquartile mean 3.00, mean 145.00
8 runs: interquartile mean 3.50, mean 127.62
SEEN
