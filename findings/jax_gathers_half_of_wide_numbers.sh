#!/usr/bin/env bash
# jax: process_allgather and broadcast_one_to_all keep int64 in one process, and not in two.
# One would expect: what is gathered or broadcast from NumPy arrays comes back in their type, or
#   the call refuses what it cannot carry.
# What happens: one process gets its arrays back as they are. With two they travel as jax
#   arrays: without jax_enable_x64 an int64 loses its upper half (a seed of 2^40 + 7 is 7, a
#   hash of 2^63 is 0), a float64 its digits. No warning, and a test in one process is green.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, CPU devices with gloo.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import socket
import subprocess
import sys

# usage: PORT PROCESSES NUMBER-OF-THE-PROCESS
WORKER = '''
import sys, jax, numpy as np
from jax.experimental import multihost_utils
port, count, number = (int(text) for text in sys.argv[1:])
if count > 1:
  jax.config.update("jax_cpu_collectives_implementation", "gloo")
  jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
for name, value in (
  ("seed", np.int64(2**40 + 7)),
  ("hash", np.uint64(2**63)),
  ("time", np.float64(1_700_000_042.0)),
):
  gathered = multihost_utils.process_allgather(value[None])
  sent = multihost_utils.broadcast_one_to_all(value)
  if number == 0:
    print(count, "process(es):", name, gathered.dtype, f"{gathered.flat[0]:.0f},",
          "broadcast", sent.dtype, f"{sent:.0f}", flush=True)
'''
os.environ['JAX_PLATFORMS'] = 'cpu'


def start(port, count, number):
  return subprocess.Popen(
    [sys.executable, '-c', WORKER, str(port), str(count), str(number)],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
  )  # fmt: skip


for count in (1, 2):
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  running = [start(port, count, number) for number in range(count)]
  seen = [process.communicate(timeout=120)[0] for process in running]
  lines = seen[0].splitlines()
  print('\n'.join(line for line in lines if 'process(es)' in line))
PY
recorded <<'SEEN'
1 process(es): seed int64 1099511627783, broadcast int64 1099511627783
1 process(es): hash uint64 9223372036854775808, broadcast uint64 9223372036854775808
1 process(es): time float64 1700000042, broadcast float64 1700000042
2 process(es): seed int32 7, broadcast int32 7
2 process(es): hash uint32 0, broadcast uint32 0
2 process(es): time float32 1700000000, broadcast float32 1700000000
SEEN
