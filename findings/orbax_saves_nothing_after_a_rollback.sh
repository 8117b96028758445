#!/usr/bin/env bash
# orbax-checkpoint: after a step back, nothing is saved until the old end is passed.
# One would expect: a run that restored step 20 of 40 and goes on from there saves 30 and 40 anew,
#   or an error says that they exist.
# What happens: CheckpointManager.save returns False for every step that is not above the
#   greatest one in the folder, also for one that is not there. A killed run then restores
#   latest_step(), which is of the course that was given up.
# Versions: orbax-checkpoint 0.12.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os
import pathlib

os.environ['JAX_PLATFORMS'] = 'cpu'
import numpy as np
import orbax.checkpoint as ocp

manager = ocp.CheckpointManager(pathlib.Path('run').absolute())


def save(step, course):
  state = {'course': np.int32(course)}
  return manager.save(step, args=ocp.args.StandardSave(state))


for step in (10, 20, 40):
  save(step, 1)
manager.wait_until_finished()
manager.restore(20, args=ocp.args.StandardRestore())
for step in (25, 30, 40, 45):
  print(f'step {step} of the second course: saved {save(step, 2)}')
  manager.wait_until_finished()
  latest = manager.restore(
    manager.latest_step(), args=ocp.args.StandardRestore()
  )
  print(f'  the latest is {manager.latest_step()}, of course {latest["course"]}')
PY
recorded <<'SEEN'
step 25 of the second course: saved False
  the latest is 40, of course 1
step 30 of the second course: saved False
  the latest is 40, of course 1
step 40 of the second course: saved False
  the latest is 40, of course 1
step 45 of the second course: saved True
  the latest is 45, of course 2
SEEN
