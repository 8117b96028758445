"""Runs of the quickstart that differ in a few options of RL, side by side.

Runs of a seed share experts and SFT, and all share compiled programs. Resumable:
finished runs are reused.
"""

from __future__ import annotations

import argparse
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine, quickstart
from jaxagent.metrics import read_records
from jaxagent.summary import load

# A short evaluation and value warm-up: RL is what is compared.
SMALL = (
  '--config.rl.value_warmup_epochs=1',
  '--config.eval.trajectories_per_task=4',
  '--config.eval.k=4',
  '--config.eval.max_steps=1',
)
# What is kept of each update, by the name it is logged under.
CURVES = {
  'reward': 'critic/score/mean',
  'exec_s': 'sandbox/exec_s',
  'timeouts': 'sandbox/timeout_rate',
  'weight_ess': 'actor/weight_ess',
  'age': 'staleness/mean',
  'age_max': 'staleness/max',
  'worker_use': 'scheduler/worker_use',
  'step_s': 'timing_s/step',
}


def run(work: pathlib.Path, seed: int, updates: int, options) -> None:
  """One arm, unless it has finished. options: 'KEY=VALUE' of config."""
  given = (f'rl.updates={updates}', *options)
  with open(work.with_suffix('.log'), 'ab') as log:
    flags = [*SMALL, *(f'--config.{option}' for option in given)]
    quickstart.run(work, seed, flags, log, compiled=work.parent / 'compiled')


def curves(work: pathlib.Path) -> dict[str, Any]:
  """Each update's figures, the seconds of RL, and the held-out reward."""
  records = [
    r
    for r in read_records(work / 'logs' / 'metrics.jsonl')
    if 'critic/score/mean' in r
  ]
  summary = load(work / 'summary.json')
  return {
    **{k: [r.get(name) for r in records] for k, name in CURVES.items()},
    'rl_s': summary['wall_s']['rl'],
    'heldout_reward': summary['rl']['heldout']['mean_reward']['mean'],
  }


def measure(
  base: pathlib.Path,
  arms: Sequence[tuple[dict[str, str], Sequence[str]]],
  seeds: int,
  updates: int,
  show: Callable[[dict[str, Any]], str],
) -> list[dict[str, Any]]:
  """A row for each arm; `runs` has one entry a seed.

  arms: (names of the arm, its options).
  """
  base.mkdir(parents=True, exist_ok=True)
  rows = []
  for number, (names, options) in enumerate(arms):
    runs = []
    for seed in range(seeds):
      work = base / f'seed{seed}-{number}'
      if number:
        quickstart.seed_control(base / f'seed{seed}-0', work)
      run(work, seed, updates, options)
      runs.append(curves(work))
    rows.append({**names, 'runs': runs})
    print(show(rows[-1]), flush=True)
  return rows


def last_quarter(row: dict, name: str) -> tuple[float, float]:
  """(mean, half the 95 % interval) over seeds; t distribution."""
  found = []
  for one in row['runs']:
    values = one[name]
    if isinstance(values, list):
      values = [v for v in values[-(len(values) // 4) :] if v is not None]
    found.append(float(np.mean(values)))
  if len(found) < 2:
    return found[0], math.nan
  spread = np.std(found, ddof=1) / math.sqrt(len(found))
  return (
    float(np.mean(found)),
    float(sps.t.ppf(0.975, len(found) - 1) * spread),
  )


def cell(row: dict, name: str, digits: int = 2) -> str:
  """Of a table: the mean, with its interval where there are seeds."""
  mean, half = last_quarter(row, name)
  text = f'{mean:.{digits}f}'
  return text if math.isnan(half) else f'{text} ± {half:.{digits}f}'


def smooth(values: Sequence[float], window: int = 5) -> np.ndarray:
  """Means of up to `window` updates until then."""
  array = np.asarray(values, float)
  return np.array(
    [array[max(0, i + 1 - window) : i + 1].mean() for i in range(len(array))]
  )


def main(module: Any, *, name: str, seeds: int, updates: int) -> None:
  """The command line of a benchmark.

  module: has `arms()`, `line(row)`, `table(result)` and `plot(rows, path)`.
  name: of its result, of its figure in docs/img, and in its work directory.
  """
  parser = argparse.ArgumentParser(
    description=module.__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--seeds', type=int, default=seeds)
  parser.add_argument('--updates', type=int, default=updates)
  parser.add_argument('--work_dir', default=f'workdir/benchmark_{name}')
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument('--plot', action='store_true', help='docs/img')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  arms = list(module.arms())
  rows = measure(base, arms, args.seeds, args.updates, module.line)
  result = {'seeds': args.seeds, 'updates': args.updates, 'rows': rows}
  print(module.table(result))
  if args.plot:
    module.plot(rows, quickstart.ROOT / 'docs' / 'img' / f'{name}.svg')
  if args.json:
    print(machine.save(name, result))
