#!/usr/bin/env bash
# numpy: default_rng([7]), default_rng([7, 0]) and default_rng(7) are one stream.
# One would expect: [run, worker] as a seed gives each worker a stream of its own, apart
#   from the run's, default_rng(run).
# What happens: zeros at the end of a seed's list change nothing, so worker 0 (of epoch 0,
#   of attempt 0) draws just what the run itself draws.
# Versions: numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages numpy==2.4.6
program <<'PY'
import numpy as np

for seed in (7, [7], [7, 0], [7, 0, 0], [7, 1], [0, 7]):
  print(seed, np.random.default_rng(seed).integers(1_000_000))
PY
recorded <<'SEEN'
7 944904
[7] 944904
[7, 0] 944904
[7, 0, 0] 944904
[7, 1] 870260
[0, 7] 796656
SEEN
