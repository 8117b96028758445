#!/usr/bin/env bash
# numpy: the order of equal elements under argsort depends on the CPU's vector units.
# One would expect: np.argsort of eight whole numbers is the same on every x86-64 machine
#   that runs the same wheel.
# What happens: with AVX2 ties come in another order than without (and in a third one
#   with AVX-512). A script that takes the most frequent class, or ranks tokens by count,
#   scores differently on two machines. kind='stable' is the same everywhere.
# Versions: numpy 2.4.6, Python 3.11, Linux on an x86-64 CPU with AVX2.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages numpy==2.4.6
program <<'PY'
import os
import subprocess
import sys

code = '''
import numpy as np
counts = np.array([3, 1, 1, 2, 3, 1, 2, 1])
print(np.argsort(counts).tolist(), np.argsort(counts, kind='stable').tolist())
'''
for off in ('X86_V4', 'X86_V4 X86_V3'):
  env = {**os.environ, 'NPY_DISABLE_CPU_FEATURES': off}
  run = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], env=env, capture_output=True, text=True)
  print('without', off, run.stdout.strip())
PY
recorded <<'SEEN'
without X86_V4 [1, 2, 7, 5, 6, 3, 0, 4] [1, 2, 5, 7, 3, 6, 0, 4]
without X86_V4 X86_V3 [1, 2, 5, 7, 3, 6, 0, 4] [1, 2, 5, 7, 3, 6, 0, 4]
SEEN
