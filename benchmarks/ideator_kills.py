"""The Ideator's collection and RL, killed at random: what is lost, what differs?

  python -m benchmarks.ideator_kills [--json]

Two runs of the tiny variant of `configs/ideator.py` in the synchronous mode: one that
nobody disturbs, and one whose collection is killed with SIGKILL at 10 random moments
and its RL at 20: 14 at random, 2 in the midst of a validation, 2 between a validation
and its checkpoint, 2 between a checkpoint and the removal of the older ones. Weights,
metrics, states and the best checkpoint are compared, executions are counted. Resumable:
a finished run is reused, and a kill that has happened is not repeated.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import pathlib
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np
from safetensors import numpy as st

from benchmarks import kill_resume, machine
from jaxagent import audit
from jaxagent.checkpoint import CheckpointManager
from jaxagent.models import __main__ as models_cli
from jaxagent.recipes.ideator import pool as pools
from jaxagent.runtime import executions
from jaxagent.training import validation

NAME = 'ideator_kills'
UPDATES, EVERY, SLOTS, COLLECT_KILLS = 30, 5, 2, 10
OPTIONS = (
  '--config=configs/ideator.py',
  *kill_resume.SYNC,
  f'--config.sandbox.slots={SLOTS}',
  f'--config.rl.updates={UPDATES}',
  f'--config.rl.validate_every={EVERY}',
  '--config.ideator.arms=()',
  '--config.eval.trajectories_per_task=3',
)
RANDOM = 'random'
# Where RL is killed, in this order; see tests/recipes/mortal_run.py.
PLACES: Sequence[tuple[str, int]] = (
  *itertools.repeat((RANDOM, 0), 5),
  ('execution', 20),
  ('stored', 1),
  ('committed', 2),
  *itertools.repeat((RANDOM, 0), 5),
  ('execution', 5),
  ('stored', 1),
  ('committed', 2),
  *itertools.repeat((RANDOM, 0), 4),
)


def finish(work: pathlib.Path) -> None:
  """Runs to the end, unless it has ended."""
  if (work / 'summary.json').exists():
    return
  if code := kill_resume.start(work, OPTIONS).wait():
    raise RuntimeError(f'exit {code}: see {work.with_suffix(".log")}')


def _count(work: pathlib.Path, name: str) -> int:
  """Returns how many kills of a stage there were, by a file beside the run."""
  path = work.with_suffix(f'.{name}')
  return int(path.read_text()) if path.exists() else 0


def _note(work: pathlib.Path, name: str) -> None:
  path = work.with_suffix(f'.{name}')
  path.write_text(str(_count(work, name) + 1))


def _kill_after(process: subprocess.Popen, seconds: float) -> bool:
  """Kills a process after some seconds; False where it has ended before."""
  try:
    process.wait(seconds)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()
    return True
  if process.returncode:
    raise RuntimeError(f'exit {process.returncode}: see the log')
  return False


def kill_collection(work: pathlib.Path, whole_s: float) -> int:
  """Kills the collection at random moments; returns how often."""
  rng = random.Random(1)
  for _ in range(_count(work, 'collect_kills')):
    rng.random()
  pool = work / 'collect' / 'pool.jsonl'
  while _count(work, 'collect_kills') < COLLECT_KILLS and not pool.exists():
    process = _started(work, jobs)
    wait_s = rng.random() * 1.6 * whole_s / COLLECT_KILLS
    if not _kill_after(process, wait_s):
      break
    _note(work, 'collect_kills')
  return _count(work, 'collect_kills')


def _started(
  work: pathlib.Path, read: Callable[[pathlib.Path], object]
) -> subprocess.Popen:
  """Starts the run; returns once what `read` gives has changed, or it has ended."""
  before = read(work)
  process = kill_resume.start(work, OPTIONS)
  while read(work) == before and process.poll() is None:
    time.sleep(0.02)
  return process


def kill_rl(work: pathlib.Path, whole_s: float) -> int:
  """Kills RL at the moments of PLACES; returns how often."""
  while (done := _count(work, 'rl_kills')) < len(PLACES):
    place, number = PLACES[done]
    if place == RANDOM:
      process = _started(work, kill_resume.newest)
      wait_s = random.Random(done).random() * 1.2 * whole_s / len(PLACES)
      killed = _kill_after(process, wait_s)
    else:
      module = ('tests.recipes.mortal_run', place, str(number))
      killed = kill_resume.start(work, OPTIONS, module).wait() == -9
    if not killed:
      break
    _note(work, 'rl_kills')
  return _count(work, 'rl_kills')


def jobs(work: pathlib.Path) -> list[str]:
  """Returns the ids of executions that ended, in their order."""
  log = work / executions.LOG
  found = []
  for line in log.read_bytes().splitlines() if log.exists() else ():
    try:
      record = json.loads(line)
    except ValueError:
      continue  # a kill cut it
    if record['outcome'] != 'infrastructure':
      found.append(record['job_id'])
  return found


def _again(names: Sequence[str]) -> int:
  return sum(n - 1 for n in collections.Counter(names).values())


def _stage(job: str) -> str:
  for stage in ('start', 'collect-', 'eval-'):
    if job.startswith(stage):
      return stage.rstrip('-')
  return 'rl'


def states(work: pathlib.Path) -> list[tuple]:
  """Returns what the pool says of each state, in its order."""
  pool = pools.read(work / 'collect' / 'pool.jsonl')
  return [
    (split, one.key, one.run, [s.text for s in one.state.steps])
    for split in ('train', 'valid')
    for one in getattr(pool, split)
  ]


def weights(work: pathlib.Path, stage: str) -> dict[str, np.ndarray]:
  """Returns the weights that `models export --stage` writes."""
  with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / 'out'
    command = ['export', f'--model={work}', f'--out={out}', f'--stage={stage}']
    if models_cli.main(command):
      raise RuntimeError(f'{work}: no export of {stage}')
    return st.load_file(next(out.glob('*.safetensors')))


def compared(whole: pathlib.Path, killed: pathlib.Path) -> dict:
  """Returns what the killed run has in common with the undisturbed one."""
  ones, others = states(whole), states(killed)
  by_stage: dict[str, list[str]] = collections.defaultdict(list)
  for job in jobs(killed):
    by_stage[_stage(job)].append(job)
  found = {
    'states': len(others),
    'states_twice': len(others) - len({one[1] for one in others}),
    'states_equal': ones == others,
    'executions_again': {s: _again(names) for s, names in by_stage.items()},
    'metrics_equal': kill_resume.learned(whole) == kill_resume.learned(killed),
    'validations_equal': validation.rewards_by_step(whole)
    == validation.rewards_by_step(killed),
    'audit_differences': len(audit.audit(killed)['differences']),
  }
  for stage in ('rl', 'best'):
    one, other = weights(whole, stage), weights(killed, stage)
    found[f'weights_equal_{stage}'] = all(
      np.array_equal(one[name], other[name]) for name in one
    )
  best = [
    CheckpointManager(work / 'rl' / 'checkpoints').best_step()
    for work in (whole, killed)
  ]
  return found | {'best_checkpoints': best}


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    '--work_dir', default=f'workdir/benchmark_{NAME}', type=pathlib.Path
  )
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  base = args.work_dir.resolve()
  whole, killed = base / 'whole', base / 'killed'
  finish(whole)
  seconds = json.loads((whole / 'summary.json').read_text())['wall_s']
  print('undisturbed:', json.dumps(seconds), flush=True)
  result = {
    'updates': UPDATES,
    'wall_s': seconds,
    'collect_kills': kill_collection(killed, seconds['collect']),
    'rl_kills': kill_rl(killed, seconds['rl']),
  }
  finish(killed)
  result |= compared(whole, killed)
  print(json.dumps(result, indent=1))
  if args.json:
    print(machine.save(NAME, result))


if __name__ == '__main__':
  main()
