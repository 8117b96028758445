"""Runs that differ in a few options of RL, side by side.

Runs of a seed share experts and SFT, and all share compiled programs. Resumable:
finished runs are reused, those of the work directory always and those of the
committed result with `--keep`; a seed is done with all its arms before the next
begins.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine, quickstart
from jaxagent.analysis.summary import load
from jaxagent.metrics import read_records

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


@dataclasses.dataclass(frozen=True)
class Study:
  """What all runs of a comparison have in common.

  config: the file, with its variant.
  options: 'KEY=VALUE' of config, for every run.
  shared: folders of a work directory that do not depend on RL.
  curves: figures of each update, by the name they are logged under.
  final: (work directory, summary) -> figures of the whole run.
  shares: options of a run -> whether it has these folders in common.
  """

  config: str
  options: Sequence[str]
  shared: Sequence[str]
  curves: Mapping[str, str]
  final: Callable[[pathlib.Path, Mapping[str, Any]], dict[str, Any]]
  shares: Callable[[Sequence[str]], bool] = lambda options: True


# A short evaluation and value warm-up: RL is what is compared.
QUICKSTART = Study(
  config='configs/stepwise_ppo.py',
  options=(
    'rl.value_warmup_epochs=1',
    'eval.trajectories_per_task=4',
    'eval.k=4',
    'eval.max_steps=1',
  ),
  shared=quickstart.SHARED,
  curves=CURVES,
  final=lambda work, summary: {
    'heldout_reward': summary['rl']['heldout']['mean_reward']['mean']
  },
)


def run(
  study: Study, work: pathlib.Path, seed: int, updates: int, options
) -> None:
  """One arm, unless it has finished. options: 'KEY=VALUE' of config."""
  given = (*study.options, f'rl.updates={updates}', *options)
  with open(work.with_suffix('.log'), 'ab') as log:
    quickstart.run(
      work,
      seed,
      [f'--config.{option}' for option in given],
      log,
      compiled=work.parent / 'compiled',
      config=study.config,
    )


def figures(study: Study, work: pathlib.Path) -> dict[str, Any]:
  """Each update's figures, the seconds of RL, and the whole run's."""
  records = [
    r
    for r in read_records(work / 'logs' / 'metrics.jsonl')
    if 'critic/score/mean' in r
  ]
  summary = load(work / 'summary.json')
  return {
    **{k: [r.get(name) for r in records] for k, name in study.curves.items()},
    # Not the stage's own clock, which a kill takes back to the last checkpoint.
    'rl_s': float(np.sum([r['timing_s/step'] for r in records])),
    **study.final(work, summary),
  }


Arm = tuple[dict[str, Any], Sequence[str]]  # names, options


def measure(
  base: pathlib.Path,
  arms: Sequence[Arm],
  seeds: int,
  updates: int,
  kept: Sequence[dict[str, Any]] = (),
  study: Study = QUICKSTART,
) -> Iterator[list[dict[str, Any]]]:
  """After each run all rows so far: one an arm, `runs` with one entry a seed.

  kept: rows of an earlier result; its runs with equal options are not run again.
  """
  base.mkdir(parents=True, exist_ok=True)
  rows = [{**names, 'runs': []} for names, _ in arms]
  speed = machine.speed_index()
  for seed in range(seeds):
    taught = None  # a run of this seed, for what its arms share
    for number, (names, options) in enumerate(arms):
      asked = {'seed': seed, 'updates': updates, 'options': list(options)}
      found = _kept(kept, names, asked)
      work = base / f'seed{seed}-{number}'
      shares = study.shares(options)
      if found is None:
        if taught is not None and shares:
          quickstart.seed_control(taught, work, study.shared)
        run(study, work, seed, updates, options)
        measured = figures(study, work)
        found = {**asked, 'speed_index': round(speed, 2), **measured}
      if taught is None and shares and (work / 'summary.json').exists():
        taught = work
      rows[number]['runs'].append(found)
      yield rows


def _kept(rows, names: dict[str, Any], asked: dict[str, Any]) -> dict | None:
  """The run of an earlier result that is what is asked for."""
  for row in rows:
    if all(row.get(k) == v for k, v in names.items()):
      for run_ in row['runs']:
        if all(run_.get(k) == v for k, v in asked.items()):
          return run_
  return None


def last_quarter(row: dict, name: str) -> list[float]:
  """Of each seed."""
  found = []
  for one in row['runs']:
    values = one[name]
    if isinstance(values, list):
      values = [v for v in values[-(len(values) // 4) :] if v is not None]
    found.append(float(np.mean(values)))
  return found


def mean_half(values: Sequence[float]) -> tuple[float, float]:
  """(mean, half the 95 % interval) of one value a seed; t distribution."""
  if len(values) < 2:
    return values[0] if values else math.nan, math.nan
  spread = np.std(values, ddof=1) / math.sqrt(len(values))
  half = sps.t.ppf(0.975, len(values) - 1) * spread
  return float(np.mean(values)), float(half)


def cell(row: dict, name: str, digits: int = 2) -> str:
  """Of a table: the mean, with its interval where there are seeds."""
  mean, half = mean_half(last_quarter(row, name))
  text = f'{mean:.{digits}f}'
  return text if math.isnan(half) else f'{text} ± {half:.{digits}f}'


def more(row: dict, than: dict, name: str, digits: int = 2) -> str:
  """As `cell`: how much more, seed by seed, than another row of equal seeds."""
  pairs = zip(last_quarter(row, name), last_quarter(than, name))
  mean, half = mean_half([a - b for a, b in pairs])
  text = f'{mean:+.{digits}f}'
  return text if math.isnan(half) else f'{text} ± {half:.{digits}f}'


def smooth(values: Sequence[float], window: int = 5) -> np.ndarray:
  """Means of up to `window` updates until then."""
  array = np.asarray(values, float)
  return np.array(
    [array[max(0, i + 1 - window) : i + 1].mean() for i in range(len(array))]
  )


def main(module: Any, *, name: str, seeds: int, updates: int) -> None:
  """The command line of a benchmark.

  module: has `arms()`, `table(result)`, `plot(rows, path)`, and `STUDY` where
    it is not the quickstart.
  name: of its result, of its figure in docs/img, and in its work directory.
  """
  parser = argparse.ArgumentParser(
    description=module.__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--seeds', type=int, default=seeds)
  parser.add_argument('--updates', type=int, default=updates)
  parser.add_argument('--work_dir', default=f'workdir/benchmark_{name}')
  parser.add_argument(
    '--json', action='store_true', help='save the result, after every run'
  )
  parser.add_argument(
    '--keep',
    action='store_true',
    help='what the saved result already holds is not run again',
  )
  parser.add_argument('--plot', action='store_true', help='docs/img')
  args = parser.parse_args()
  base = pathlib.Path(args.work_dir).resolve()
  arms = list(module.arms())
  saved = machine.RESULTS / f'{name}.json'
  kept = []
  if args.keep and saved.exists():
    kept = json.loads(saved.read_text())['rows']
  study = getattr(module, 'STUDY', QUICKSTART)
  for rows in measure(base, arms, args.seeds, args.updates, kept, study):
    result = {'updates': args.updates, 'rows': rows}
    if args.json:
      machine.save(name, result)
    print(sum(len(row['runs']) for row in rows), 'runs', flush=True)
  print(module.table(result))
  if args.plot:
    module.plot(rows, quickstart.ROOT / 'docs' / 'img' / f'{name}.svg')
