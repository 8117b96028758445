"""A whole small run stopped at random moments, and started twice at once.

  python -m benchmarks.stops [--stops 30] [--doubles 20] [--work_dir DIR] [--json]

Collecting, SFT, value warm-up, RL and evaluation of step-wise PPO, in which no digit
depends on a clock. First nobody disturbs it, and what holding the work directory costs
is measured (`benchmarks.owner_cost`). Then it gets SIGTERM at random moments and is
started again: seconds from the signal to the end, exit statuses, what was said, and
whether the run that comes of it equals the undisturbed one (`benchmarks.same_digits`).
Then the same command is given twice on one work directory, at random offsets: the
second is to end with 2 and one line, the first undisturbed.

Exits 1 where something of it is otherwise, a line for each fault. Resumable: with the
same work directory it continues after the last stop, or the last run that was started
twice. Each start is noted with its commit; remove the folder to begin anew.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import machine, owner_cost, same_digits
from benchmarks.kill_resume import SYNC, start
from jaxagent import audit
from jaxagent.errors import STOPPED, UserError
from jaxagent.files import owner
from jaxagent.metrics import read_records

# Of a run of a minute; an SFT that leaves rewards which are not all 0.
SMALL = {
  'tasks.heldin': "('wine','diabetes')",
  'tasks.heldout': "('breast-cancer',)",
  'collect.trajectories_per_task': 12,
  'collect.max_steps': 4,
  'sft.epochs': 20,
  'sft.checkpoint_every': 10,
  'rollout.temperature': 0.5,
  'rollout.max_new_tokens': 128,
  'model.hf.num_hidden_layers': 2,
  'rl.updates': 6,
  'rl.batch_size': 8,
  'rl.value_warmup_epochs': 1,
  'rl.checkpoint_every': 2,
  'eval.trajectories_per_task': 4,
  'eval.k': 2,
}
OPTIONS = (
  *SYNC,
  *(f'--config.{key}={value}' for key, value in SMALL.items()),
)
LONGEST_S = 10.0  # beside a checkpoint's write; of a second run: in all
# An interpreter that has not come to its first line dies of the signal itself.
FIRST_LINE_S = 2.0
MOST_SHARE = 1e-3  # that a hold may be of a quickstart


class Progress:
  """Measurements so far, in a file that is whole at each moment.

  data: `begun`, the commit of each start of the benchmark; `whole_s`; `stops`, one for each
    signal; `differences` by run; `twice` by run.
  """

  def __init__(self, path: pathlib.Path):
    self._path = path
    self.data: dict[str, Any] = {
      'begun': [],
      'whole_s': None,
      'stops': [],
      'differences': {},
      'twice': {},
    }
    if path.exists():
      self.data |= json.loads(path.read_text())

  def save(self) -> None:
    part = self._path.with_suffix('.part')
    part.write_text(json.dumps(self.data, indent=1))
    os.replace(part, self._path)


def main(argv: Sequence[str] | None = None) -> int:
  """Measures; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--stops', type=int, default=30)
  parser.add_argument('--doubles', type=int, default=20)
  parser.add_argument('--work_dir', default='workdir/benchmark_stops')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args(argv)
  if args.stops < 1 or args.doubles < 1:
    parser.error('--stops and --doubles are 1 or more.')
  base = pathlib.Path(args.work_dir).resolve()
  base.mkdir(parents=True, exist_ok=True)
  progress = Progress(base / 'progress.json')
  progress.data['begun'].append(machine.describe()['commit'])
  progress.save()
  whole(base, progress)
  stopped(base, progress, args.stops)
  twice(base, progress, args.doubles)
  result = figures(base, progress.data)
  found = faults(result)
  result['faults'] = found
  print(json.dumps(result, indent=1))
  for fault in found:
    print(f'fault: {fault}', file=sys.stderr)
  if args.json:
    print(machine.save('stops', result))
  return int(bool(found))


def whole(base: pathlib.Path, progress: Progress) -> None:
  """Runs undisturbed, from start to end."""
  if progress.data['whole_s'] is not None:
    return
  work = base / 'whole'
  _anew(work)
  began = time.monotonic()
  if code := start(work, OPTIONS, ('benchmarks.owner_cost',)).wait():
    raise RuntimeError(f'exit {code}: see {work.with_suffix(".log")}')
  progress.data['whole_s'] = time.monotonic() - began
  progress.save()


def stopped(base: pathlib.Path, progress: Progress, stops: int) -> None:
  """Stops runs `stops` times; compares each that ends with the undisturbed one."""
  taken, compared = progress.data['stops'], progress.data['differences']
  whole_s = progress.data['whole_s']
  while len(taken) < stops or len(compared) <= taken[-1]['run']:
    run = len(compared)
    work = base / f'stopped{run}'
    _until_free(work)
    while not (work / 'summary.json').exists():
      rng = random.Random(len(taken))
      enough = len(taken) >= stops
      wait_s = None if enough else rng.random() * whole_s / 3
      if (stop := _stopped(work, wait_s)) is not None:
        taken.append({'run': run, **stop})
        progress.save()
        print(json.dumps(taken[-1]), flush=True)
    compared[work.name] = same_digits.compare(base / 'whole', work).differences
    progress.save()


def _stopped(work: pathlib.Path, wait_s: float | None) -> dict[str, Any] | None:
  """Starts a run and stops it after some seconds, if they are given.

  Returns what happened: the folder last written to, the seconds until the process had
  ended, its exit status and how many lines said so; None where it came to its end.
  """
  log = work.with_suffix('.log')
  process, at = start(work, OPTIONS), log.stat().st_size
  try:
    if process.wait(wait_s):
      raise RuntimeError(f'exit {process.returncode}: see {log}')
    return None
  except subprocess.TimeoutExpired:
    pass
  newest = _newest(work)
  began = time.monotonic()
  process.send_signal(signal.SIGTERM)
  process.wait()
  return {
    'after_s': wait_s,
    'last_file_written': newest,
    'seconds': time.monotonic() - began,
    'code': process.returncode,
    'lines': log.read_bytes()[at:].count(b'SIGTERM: stopped; '),
    'complete': (work / 'summary.json').exists(),
  }


def _newest(work: pathlib.Path) -> str:
  """Returns the file or folder of a work directory that was written to last."""
  found = [(0.0, 'nothing')]
  for folder, _, names in os.walk(work):
    for path in (pathlib.Path(folder, name) for name in names):
      with contextlib.suppress(OSError):  # files go as the run works
        top = path.relative_to(work).parts[0]
        found.append((path.stat().st_mtime, top))
  return max(found)[1]


def twice(base: pathlib.Path, progress: Progress, doubles: int) -> None:
  """Starts runs, and the same command again and again beside each."""
  runs = progress.data['twice']
  while (done := sum(len(run['tries']) for run in runs.values())) < doubles:
    work = base / f'twice{len(runs)}'
    _anew(work)
    runs[work.name] = _doubled(
      work, doubles - done, progress.data['whole_s'], random.Random(done)
    )
    progress.save()
    print(json.dumps(runs[work.name]), flush=True)


def _doubled(
  work: pathlib.Path, most: int, whole_s: float, rng: random.Random
) -> dict[str, Any]:
  """Starts a run, and up to `most` times the same command beside it."""
  tries: list[dict[str, Any]] = []
  log = work.with_suffix('.log')
  holder = start(work, OPTIONS)
  time.sleep(rng.random())  # both in one second
  late = 0
  while holder.poll() is None and len(tries) < most:
    at, began = log.stat().st_size, time.monotonic()
    other = start(work, OPTIONS)
    while holder.poll() is None and other.poll() is None:
      time.sleep(0.02)
    if holder.returncode == 2:
      holder, other = other, holder  # the later one was first to claim
    if other.poll() is None:
      late = other.wait()
      break  # the holder ended meanwhile: the other one is a run of its own
    tries.append(
      {
        'seconds': time.monotonic() - began,
        'code': other.returncode,
        'lines': log.read_bytes()[at:].count(b'is in use by'),
      }
    )
    time.sleep(rng.random() * whole_s / 4)
  return {
    'tries': tries,
    'code': holder.wait(),
    'code_of_one_after': late,
    'audit_differences': len(audit.audit(work)['differences']),
  }


def _until_free(work: pathlib.Path) -> None:
  """Waits for the run that a killed benchmark may have left."""
  while work.exists():
    try:
      return owner.check(work)
    except UserError:
      time.sleep(1.0)


def _anew(work: pathlib.Path) -> None:
  """Removes what a killed benchmark has left of a run."""
  _until_free(work)
  shutil.rmtree(work, ignore_errors=True)
  work.with_suffix('.log').unlink(missing_ok=True)


def figures(base: pathlib.Path, data: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what was found, from what was measured of each stop and double."""
  stops = data['stops']
  seconds = sorted(stop['seconds'] for stop in stops)
  tries = [one for run in data['twice'].values() for one in run['tries']]
  records = read_records(base / 'whole' / 'logs' / 'metrics.jsonl')
  return {
    'commits': sorted(set(data['begun'])),
    'whole_s': data['whole_s'],
    'longest_checkpoint_s': max(
      record.get('timing_s/write_checkpoint', 0.0) for record in records
    ),
    'hold': hold(base, data['whole_s']),
    'stopped': {
      'stops': len(stops),
      'runs': len(data['differences']),
      'longest_s': seconds[-1],
      'median_s': seconds[len(seconds) // 2],
      'exit_codes': _counted(stop['code'] for stop in stops),
      'last_file_written': _counted(
        stop['last_file_written'] for stop in stops
      ),
      'each': stops,
      'differences': [d for ds in data['differences'].values() for d in ds],
    },
    'twice': {
      'doubles': len(tries),
      'runs': len(data['twice']),
      'longest_s': max(one['seconds'] for one in tries),
      'exit_codes': _counted(one['code'] for one in tries),
      'lines_that_name_the_owner': _counted(one['lines'] for one in tries),
      'exit_codes_of_the_owners': _counted(
        run['code'] for run in data['twice'].values()
      ),
      'exit_codes_of_those_after': _counted(
        run['code_of_one_after'] for run in data['twice'].values()
      ),
      'audit_differences': sum(
        run['audit_differences'] for run in data['twice'].values()
      ),
    },
  }


def hold(base: pathlib.Path, whole_s: float) -> dict[str, Any]:
  """Returns what holding the work directory cost, and as a share of runs.

  The quickstart is the shortest of `benchmarks/results/quickstart.json`.
  """
  path = (base / 'whole').with_suffix(owner_cost.SUFFIX)
  cost = json.loads(path.read_text())
  measured = json.loads((machine.RESULTS / 'quickstart.json').read_text())
  seeds = measured['seeds'].values()
  quickstart_s = min(sum(seed['wall_s'].values()) for seed in seeds)
  return {
    **cost,
    'share_of_this_run': owner_cost.share(cost, whole_s),
    'quickstart_s': quickstart_s,
    'share_of_quickstart': owner_cost.share(cost, quickstart_s),
  }


def _counted(values: Iterable[object]) -> dict[str, int]:
  return dict(collections.Counter(map(str, values)))


def faults(result: Mapping[str, Any]) -> list[str]:
  """Returns a line for each thing that is not as it should be."""
  found = []
  limit_s = LONGEST_S + result['longest_checkpoint_s']
  for number, stop in enumerate(result['stopped']['each']):
    name = f'stop {number} (run {stop["run"]}, after {stop["after_s"]:.1f} s)'
    if stop['seconds'] > limit_s:
      found.append(f'{name} took {stop["seconds"]:.1f} s of {limit_s:.1f}')
    if stop['code'] == STOPPED:
      if stop['lines'] != 1:
        found.append(f'{name}: {stop["lines"]} lines say that it stopped')
    elif not (
      (stop['code'] == 0 and stop['complete'])
      or (stop['code'] == -signal.SIGTERM and stop['after_s'] < FIRST_LINE_S)
    ):
      found.append(f'{name}: exit status {stop["code"]}, not {STOPPED}')
  found += [f'stopped: {line}' for line in result['stopped']['differences']]
  both = result['twice']
  if both['longest_s'] > LONGEST_S:
    found.append(f'a second run took {both["longest_s"]:.1f} s to be refused')
  for key, wanted in (
    ('exit_codes', {'2'}),
    ('lines_that_name_the_owner', {'1'}),
    ('exit_codes_of_the_owners', {'0'}),
    ('exit_codes_of_those_after', {'0', '2'}),
  ):
    if set(both[key]) - wanted:
      found.append(f'{key} of runs started twice: {both[key]}')
  if both['audit_differences']:
    found.append(f'audit of runs: {both["audit_differences"]} differences')
  if result['hold']['share_of_quickstart'] >= MOST_SHARE:
    found.append(
      f'a hold is {result["hold"]["share_of_quickstart"]:.2%} of a quickstart'
    )
  return found


if __name__ == '__main__':
  sys.exit(main())
