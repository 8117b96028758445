#!/usr/bin/env bash
# datasets: Dataset.from_generator of a file that has grown since it was read before.
# One would expect: the generator runs, and the data set holds what the file does.
# What happens: the generator is not called. Its code and arguments are as before, so the
#   rows of the first time come out of the cache, in another process, too.
# Versions: datasets 5.2.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages datasets==5.2.0
export HF_HOME="$home/hf" HF_HUB_OFFLINE=1
program <<'PY'
import pathlib
import subprocess
import sys

READ = '''
import datasets

def rows(path):
  print('reads', end=' ')
  with open(path) as file:
    for line in file:
      yield {'reward': float(line)}

found = datasets.Dataset.from_generator(rows, gen_kwargs={'path': 'rewards.txt'})
print(found['reward'][:])
'''
rewards = pathlib.Path('rewards.txt')
for text in ('0.5\n', '0.5\n1.0\n'):
  rewards.write_text(text)
  subprocess.run([sys.executable, '-c', READ], check=True)
PY
recorded <<'SEEN'
reads [0.5]
[0.5]
SEEN
