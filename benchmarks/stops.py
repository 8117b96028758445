"""A whole small run stopped at random moments, and started twice at once.

  python -m benchmarks.stops [--stops 30] [--doubles 20] [--json]

Collecting, SFT, value warm-up, RL and evaluation of step-wise PPO, in which no digit
depends on a clock. First nobody disturbs it. Then it gets SIGTERM at random moments
and is started again: seconds from the signal to the end, exit statuses, what was said,
and whether the run that comes of it equals the undisturbed one
(`benchmarks.same_digits`). Then the same command is given twice on one work directory,
at random offsets: the second is to end with 2 and one line, the first undisturbed.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import random
import shutil
import signal
import subprocess
import time
from typing import Any

from benchmarks import machine, same_digits
from benchmarks.kill_resume import SYNC, start
from jaxagent import audit

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
LONGEST_S = 10.0  # beside a checkpoint's write


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--stops', type=int, default=30)
  parser.add_argument('--doubles', type=int, default=20)
  parser.add_argument('--work_dir', default='workdir/benchmark_stops')
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  shutil.rmtree(base, ignore_errors=True)
  rng, whole = random.Random(0), base / 'whole'
  began = time.monotonic()
  code = start(whole, OPTIONS).wait()
  if code:
    raise RuntimeError(f'exit {code}: see {whole.with_suffix(".log")}')
  whole_s = time.monotonic() - began
  result: dict[str, Any] = {'whole_s': whole_s}
  result['stopped'] = stopped(base, whole, args.stops, whole_s, rng)
  print(json.dumps(result['stopped']), flush=True)
  result['twice'] = twice(base, args.doubles, whole_s, rng)
  print(json.dumps(result['twice']), flush=True)
  if args.json:
    print(machine.save('stops', result))


def stopped(
  base: pathlib.Path,
  whole: pathlib.Path,
  stops: int,
  whole_s: float,
  rng: random.Random,
) -> dict[str, Any]:
  """Stops runs `stops` times; compares each run that ends with the undisturbed one."""
  seconds: list[float] = []
  codes: list[int] = []
  differences: list[str] = []
  stages: collections.Counter[str] = collections.Counter()
  runs = 0
  while len(seconds) < stops:
    work = base / f'stopped{runs}'
    runs += 1
    while not (work / 'summary.json').exists():
      process = start(work, OPTIONS)
      wait_s = rng.random() * whole_s / 3
      if len(seconds) == stops:
        wait_s = float('inf')
      stage = _ended(process, wait_s, work)
      if stage is None:
        continue  # it had come to its end
      seconds.append(stage[1])
      codes.append(process.returncode)
      stages[stage[0]] += 1
    differences += same_digits.compare(whole, work).differences
  return {
    'stops': len(seconds),
    'runs': runs,
    'longest_s': max(seconds),
    'median_s': sorted(seconds)[len(seconds) // 2],
    'exit_codes': dict(collections.Counter(map(str, codes))),
    'last_file_written': dict(stages),
    'differences': differences,
  }


def _ended(
  process: subprocess.Popen, wait_s: float, work: pathlib.Path
) -> tuple[str, float] | None:
  """Waits, stops; returns the folder last written to and the seconds it took."""
  try:
    process.wait(None if wait_s == float('inf') else wait_s)
    if process.returncode:
      raise RuntimeError(
        f'exit {process.returncode}: see {work.with_suffix(".log")}'
      )
    return None
  except subprocess.TimeoutExpired:
    pass
  newest = max(
    (path for path in work.rglob('*') if path.is_file()),
    key=lambda path: path.stat().st_mtime,
    default=work / 'nothing',
  )
  began = time.monotonic()
  process.send_signal(signal.SIGTERM)
  process.wait()
  return newest.relative_to(work).parts[0], time.monotonic() - began


def twice(
  base: pathlib.Path, doubles: int, whole_s: float, rng: random.Random
) -> dict[str, Any]:
  """Starts a run, and the same command again and again beside it."""
  seconds: list[float] = []
  codes: list[int] = []
  lines: list[int] = []
  runs: list[int] = []
  differences = 0
  while len(seconds) < doubles:
    work = base / f'twice{len(runs)}'
    log = work.with_suffix('.log')
    owner = start(work, OPTIONS)
    time.sleep(rng.random())  # both in one second
    while owner.poll() is None and len(seconds) < doubles:
      at, began = log.stat().st_size, time.monotonic()
      other = start(work, OPTIONS)
      while owner.poll() is None and other.poll() is None:
        time.sleep(0.02)
      if owner.returncode == 2:
        owner, other = other, owner  # the later one was first to claim
      if other.poll() is None:
        other.wait()
        break  # the owner ended meanwhile: the other one is a run of its own
      seconds.append(time.monotonic() - began)
      codes.append(other.returncode)
      lines.append(log.read_bytes()[at:].count(b'is in use by'))
      time.sleep(rng.random() * whole_s / 4)
    runs.append(owner.wait())
    differences += len(audit.audit(work)['differences'])
  return {
    'doubles': len(seconds),
    'longest_s': max(seconds),
    'exit_codes': dict(collections.Counter(map(str, codes))),
    'lines_that_name_the_owner': dict(collections.Counter(map(str, lines))),
    'exit_codes_of_the_owners': dict(collections.Counter(map(str, runs))),
    'audit_differences': differences,
  }


if __name__ == '__main__':
  main()
