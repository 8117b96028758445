#!/usr/bin/env bash
# tensorboard: the scalars that EventAccumulator reads of a run of 15,000 steps.
# One would expect: 15,000, or the last 10,000.
# What happens: 10,000 that are drawn at random from all of them, with gaps in the middle
#   and without a word: sums and counts of them are wrong.
#   size_guidance={'scalars': 0} reads all.
# Versions: tensorboard 2.21.0, tensorboardX 2.6.5, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages tensorboard==2.21.0 tensorboardX==2.6.5
program <<'PY'
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

with SummaryWriter('run') as writer:
  for step in range(15_000):
    writer.add_scalar('executions', 1.0, step)
for more in ({}, {'size_guidance': {'scalars': 0}}):
  events = EventAccumulator('run', **more).Reload().Scalars('executions')
  gaps = sum(b.step - a.step > 1 for a, b in zip(events, events[1:]))
  print(*more, len(events), 'from', events[0].step, 'to', events[-1].step, 'gaps', gaps > 0)
PY
recorded <<'SEEN'
10000 from 0 to 14999 gaps True
size_guidance 15000 from 0 to 14999 gaps False
SEEN
