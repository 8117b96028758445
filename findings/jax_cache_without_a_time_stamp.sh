#!/usr/bin/env bash
# jax: one lost time stamp and the compilation cache keeps nothing any more.
# One would expect: with a size limit, a damaged entry of the persistent cache costs that
#   entry.
# What happens: an entry is two files, the program and, written after it, the time of its
#   last use. Before each write all times are read; where one is missing, as after a
#   process that ended between the two writes, every later write of every process fails
#   with a warning, until somebody empties the folder. Without a limit no time is read.
#   The limit itself needs the package filelock, which jax does not install: without it
#   nothing is kept at all, with a warning.
# Versions: jax 0.10.2, jaxlib 0.10.2, filelock 3.20.0, Python 3.11, Linux x86-64.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages jax==0.10.2 jaxlib==0.10.2 filelock==3.20.0
program <<'PY'
import pathlib
import subprocess
import sys

CHILD = """
import sys, warnings
if sys.argv[4] == 'without':
  sys.modules['filelock'] = None  # as where it is not installed
import jax
jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_compilation_cache_dir', sys.argv[1])
jax.config.update('jax_compilation_cache_max_size', int(sys.argv[2]))
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
with warnings.catch_warnings(record=True) as told:
  warnings.simplefilter('always')
  jax.jit(lambda x: x * float(sys.argv[3]))(1.0)
print(len(told), 'warnings')
"""
folder = pathlib.Path('cache')
folder.mkdir()


def compile_(factor, limit=10**9, filelock='with'):
  words = [sys.executable, '-c', CHILD, folder, str(limit), str(factor), filelock]
  done = subprocess.run(words, capture_output=True, text=True, check=True)
  kept = sum(path.name.endswith('-cache') for path in folder.iterdir())
  size = 'no limit' if limit < 0 else 'a limit'
  print(f'{size}, {filelock} filelock: {kept} programs kept, {done.stdout.strip()}')


compile_(1, filelock='without')
compile_(2)
compile_(3)
next(folder.glob('*-atime')).unlink()
print('one time stamp is lost')
compile_(4)
compile_(5)
compile_(6, limit=-1)
PY
recorded <<'SEEN'
a limit, without filelock: 0 programs kept, 1 warnings
a limit, with filelock: 1 programs kept, 0 warnings
a limit, with filelock: 2 programs kept, 0 warnings
one time stamp is lost
a limit, with filelock: 2 programs kept, 1 warnings
a limit, with filelock: 2 programs kept, 1 warnings
no limit, with filelock: 3 programs kept, 0 warnings
SEEN
