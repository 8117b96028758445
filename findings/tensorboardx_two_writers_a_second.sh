#!/usr/bin/env bash
# tensorboardX: a second SummaryWriter of a folder within one second empties the first's file.
# One would expect: a writer adds a file to its folder, as every viewer assumes; a job that
#   is restarted at once, or two short stages, lose nothing.
# What happens: the file's name holds the host and a whole second, and is opened anew:
#   the numbers of the first writer are gone, without a word.
# Versions: tensorboardX 2.6.5, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages tensorboardX==2.6.5
program <<'PY'
import pathlib
import time

from tensorboardX import SummaryWriter

time.sleep(1.05 - time.time() % 1)  # both within one second
for step in (1, 2):
  with SummaryWriter('logs') as writer:
    writer.add_scalar('reward', 0.5, step)
    writer.add_text('stage', f'stage number {step}')
files = list(pathlib.Path('logs').iterdir())
data = b''.join(f.read_bytes() for f in files)
print(len(files), 'file;', [f'stage number {i}'.encode() in data for i in (1, 2)])
PY
recorded <<'SEEN'
1 file; [False, True]
SEEN
