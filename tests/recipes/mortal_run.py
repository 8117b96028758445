"""`python -m tests.recipes.mortal_run PLACE N ARGUMENTS`: a run that kills itself.

With SIGKILL, when it comes to a place for the N-th time:

- execution: an execution of a validation begins; those before it have ended
- stored: the file of a validation is written, no checkpoint has been begun
- committed: a checkpoint of RL is whole, the older ones are still there; a run that
  resumes from one comes here first
"""

import os
import signal
import sys

from jaxagent import main
from jaxagent.checkpoint import CheckpointManager
from jaxagent.training import validation


def _kill_before(owner, name: str, left: int) -> None:
  """Kills this process at call number `left` of a function."""
  made = getattr(owner, name)
  calls = iter(range(1, left + 1))

  def instead(*given, **named):
    if _is_rl(given[0]) and next(calls, left) == left:
      os.kill(os.getpid(), signal.SIGKILL)
    return made(*given, **named)

  setattr(owner, name, instead)


def _is_rl(what) -> bool:
  """Whether it is anything but the checkpoints of another stage."""
  folder = getattr(what, 'directory', None)
  return folder is None or folder.parent.name == 'rl'


def _kill_after_writing(left: int) -> None:
  made, calls = validation._write, iter(range(1, left + 1))

  def instead(*given):
    made(*given)
    if next(calls, left) == left:
      os.kill(os.getpid(), signal.SIGKILL)

  validation._write = instead


if __name__ == '__main__':
  place, number = sys.argv[1], int(sys.argv[2])
  if place == 'execution':
    _kill_before(validation.Validator, '_execute', number)
  elif place == 'stored':
    _kill_after_writing(number)
  else:
    _kill_before(CheckpointManager, 'remove_old', number)
  sys.argv = ['jaxagent', *sys.argv[3:]]
  main.cli()
