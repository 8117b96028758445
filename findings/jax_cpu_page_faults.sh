#!/usr/bin/env bash
# jax on a CPU: the temporary arrays of a program are new memory at every call.
# One would expect: a compiled program whose sizes are known keeps its scratch memory, or
#   the allocator below it does, so that a call that is repeated touches pages that it
#   has.
# What happens: XLA asks malloc for the scratch memory of each call and frees it after.
#   glibc maps blocks above 32 MiB (smaller ones until one like them was freed) one by one
#   and gives them back at once, so every call takes each page of it from the system again,
#   zeroed. In a program of the shape of attention that is a large part of its CPU seconds.
#   With mallopt's two thresholds raised before the first call no page is taken any more;
#   where other threads than the first one run programs, with one arena, too.
# Versions: jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11, glibc 2.36, Linux x86-64,
#   pages of 4 KiB.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import subprocess
import sys

CHILD = """
import ctypes, os, resource, sys
os.environ['JAX_PLATFORMS'] = 'cpu'
if sys.argv[1] == 'kept':
  libc = ctypes.CDLL(None)
  for name in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
    libc.mallopt(name, 1 << 30)
  libc.mallopt(-8, 1)  # M_ARENA_MAX
import jax
import jax.numpy as jnp

def attention(q, k, v):
  return jax.nn.softmax(q @ k.T) @ v

q = jnp.ones((4096, 64))
run = jax.jit(attention)
for _ in range(5):
  run(q, q, q).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF)
for _ in range(20):
  run(q, q, q).block_until_ready()
after = resource.getrusage(resource.RUSAGE_SELF)
taken = (after.ru_minflt - before.ru_minflt) * 4096 / 20
used = sum(getattr(after, n) - getattr(before, n) for n in ('ru_utime', 'ru_stime'))
print(taken / (4096 * 4096 * 4), used)
"""


def measured(how):
  rows = []
  for _ in range(3):
    words = [sys.executable, '-c', CHILD, how]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows.append([float(word) for word in done.stdout.split()])
  return [sorted(column)[1] for column in zip(*rows)]  # medians


taken, used = measured('default')
kept_taken, kept = measured('kept')
print('memory taken anew by a call, as a share of the scores: above 0.9:', taken > 0.9)
print('with thresholds raised: below 0.01:', kept_taken < 0.01)
print('CPU seconds then: below 0.9 of them:', kept < 0.9 * used)
print(f'{taken:.2f} and {kept_taken:.4f}, {used:.2f} and {kept:.2f} CPU s', file=sys.stderr)
PY
recorded <<'SEEN'
memory taken anew by a call, as a share of the scores: above 0.9: True
with thresholds raised: below 0.01: True
CPU seconds then: below 0.9 of them: True
SEEN
