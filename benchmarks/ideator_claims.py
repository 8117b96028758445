"""Claims of paper 001 in miniature: tables 1 to 3, figures 2 to 4, and a control.

  python -m benchmarks.ideator_claims --seeds 3 [--runs 15] [--json] [--keep] [--plot]

The tiny variant of `configs/ideator.py` from pool to report, one run a seed, with arms
none, NULL, VAGUE and blind beside the policy before and after RL, each with a second
Implementer as well; beside each a control, trained from the same pool and SFT on
rewards that are given to the wrong ideas. Arms of a seed share tasks, run numbers and
random numbers, so differences are paired by seed, task and run; they are bootstrapped
within seed and task, the tasks fixed. A claim is shown where the pooled 95 % interval
is above zero and the sign is right in every seed. Resumable: finished runs are reused,
those of the work directory always and those of the committed result with `--keep`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import arms, machine, quickstart
from jaxagent.analysis import at_three
from jaxagent.analysis.boards import reference_board
from jaxagent.envs.tasks import load_task
from jaxagent.recipes.ideator import pool as pools
from jaxagent.rewards.ideator import IdeaResult

NAME = 'ideator_claims'
CONFIG = 'configs/ideator.py'
SECOND = 'scripted_relative'
MAIN, CONTROL = 'trained', 'shuffled rewards'
ARMS = ('none', 'null', 'vague', 'blind', 'sft', 'rl')
SPLITS = {'heldin': 'held-in', 'heldout': 'held-out'}
FIGURES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
  'Avg@3': at_three.avg_rows,
  'Best@3': at_three.best_rows,
}
CURVES = {
  'reward': 'critic/score/mean',
  'best_of_8': 'ideator/best_of_8',
  'mean_of_8': 'ideator/mean_of_8',
  'distinct_ideas': 'ideator/distinct_ideas',
  'type_entropy': 'ideator/type_entropy',
  'mixed_groups': 'ideator/mixed_groups',
  'step_s': 'timing_s/step',
  # No line where no idea of an update ended so.
  **{f'result_{r.value}': f'ideator/result/{r.value}' for r in IdeaResult},
}
# What is compared, and whether it counts as a claim of the paper's.
PAIRS = (
  ('rl', 'sft'),
  ('rl', 'blind'),
  ('sft', 'vague'),
  ('rl', 'none'),
)
DRAWS = 4000
Scores = Mapping[
  str, Mapping[str, Sequence[float | None]]
]  # arm -> task -> runs


def final(work: pathlib.Path, summary: Mapping[str, Any]) -> dict[str, Any]:
  """Returns of a finished run: normalised scores of every run, and its tables."""
  return {
    'scores': scores(work),
    'table': summary['extra']['ideator'],
    'noise': noise(work),
    'wall_s': summary['wall_s'],
  }


def noise(work: pathlib.Path) -> dict[str, int]:
  """Returns how many states the pool has, have a score, and moved when run again."""
  made = pools.read(work / 'collect' / 'pool.jsonl')
  spreads = [item.noise for item in (*made.train, *made.valid)]
  known = [spread for spread in spreads if spread is not None]
  moved = sum(spread > 0 for spread in known)
  return {'states': len(spreads), 'scored': len(known), 'moved': moved}


def scores(work: pathlib.Path) -> dict[str, dict[str, list[float | None]]]:
  """Returns arm -> 'SPLIT/TASK' -> normalised private score of each run, by number.

  None where a run has no valid submission; a run that infrastructure errors cut short
  is 'missing'.
  """
  starts = json.loads((work / 'eval' / 'starts.json').read_text())
  boards = {}
  for task, start in starts.items():
    spec = load_task(task, quickstart.ROOT / 'tasks')
    assert spec.m_best_private is not None  # of every bundled task
    boards[task] = reference_board(
      [spec.m_best_private],
      task=task,
      higher_is_better=spec.higher_is_better,
      starter=start['private'],
    )
  found: dict[str, dict[str, list[Any]]] = {}
  for path in sorted((work / 'eval').glob('*.json')):
    if path.name == 'starts.json':
      continue
    by_task = found.setdefault(path.stem, {})
    for record in sorted(json.loads(path.read_text()), key=_place):
      score = boards[record['task']].normalised(record['score'])
      row = by_task.setdefault(f'{record["split"]}/{record["task"]}', [])
      row.append('missing' if record['missing'] else score)
  return found


def _place(record: Mapping[str, Any]) -> tuple[str, int]:
  return record['task'], record['index']


def study(runs: int) -> arms.Study:
  """Returns what all runs have in common."""
  return arms.Study(
    config=CONFIG,
    options=(f'eval.trajectories_per_task={runs}', 'eval.k=3'),
    shared=quickstart.SHARED,
    curves=CURVES,
    final=final,
  )


# Arm -> options that it adds. The control has no use for the other Ideators.
RUNS: Mapping[str, Sequence[str]] = {
  MAIN: (f"implementer.also=('{SECOND}',)",),
  # The best of several validations on true rewards would look like a gain.
  CONTROL: (
    'rl.shuffle_rewards=True',
    'rl.keep_best=False',
    'ideator.arms=()',
  ),
}


def measure(
  base: pathlib.Path,
  options: argparse.Namespace,
  kept: Sequence[Mapping[str, Any]] = (),
) -> Iterator[list[dict[str, Any]]]:
  """Yields all rows so far after each run: `arm`, and `runs`, one a seed.

  Each seed has a control: what a training on noise drifts to depends on the seed.
  """
  base.mkdir(parents=True, exist_ok=True)
  made = study(options.runs)
  rows: list[dict[str, Any]] = [{'arm': arm, 'runs': []} for arm in RUNS]
  for seed in range(options.seeds):
    for row in rows:
      arm = row['arm']
      more = [*RUNS[arm], *options.set]
      asked = {
        'seed': seed,
        'updates': options.updates,
        'runs': options.runs,
        'options': more,
      }
      found = _kept(kept, arm, asked)
      if found is None:
        work = base / f'seed{seed}-{"control" if arm == CONTROL else "main"}'
        if arm == CONTROL:
          quickstart.seed_control(base / f'seed{seed}-main', work)
        arms.run(made, work, seed, options.updates, more)
        found = {**asked, **_figures(made, work)}
      row['runs'].append(found)
      yield rows


def _kept(
  rows: Sequence[Mapping[str, Any]], arm: str, asked: Mapping[str, Any]
) -> dict[str, Any] | None:
  """Returns the run of an earlier result that is what is asked for."""
  for row in rows:
    for run in row['runs'] if row['arm'] == arm else ():
      if all(run.get(name) == value for name, value in asked.items()):
        return run
  return None


def _figures(made: arms.Study, work: pathlib.Path) -> dict[str, Any]:
  speed = round(machine.speed_index(), 2)
  return {'speed_index': speed, **arms.figures(made, work)}


# Differences --------------------------------------------------------------------


def difference(
  seeds: Sequence[tuple[Scores, str, Scores, str]],
  split: str,
  figure: str,
  *,
  draws: int = DRAWS,
) -> dict[str, Any] | None:
  """Returns how much more one arm has than another, over seeds.

  seeds: of each (scores, arm, scores, the other arm). split: of SPLITS. figure: of
  FIGURES.

  mean, low, high: of the pooled difference, with its 95 % interval. by_seed: in each.
  None where a task has fewer than three runs that both have.
  """
  rng = np.random.default_rng(0)
  drawn, means = [], []
  for mine, arm, other, against in seeds:
    both = [
      _paired(mine[arm][task], other[against][task])
      for task in sorted(mine[arm])
      if task.startswith(f'{split}/')
    ]
    if not both or any(len(a) < at_three.K for a, _ in both):
      return None
    by_task = [
      _bootstrapped(a, b, FIGURES[figure], rng, draws) for a, b in both
    ]
    means.append(float(np.mean([mean for mean, _ in by_task])))
    drawn.append(np.mean([values for _, values in by_task], axis=0))
  low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
  return {
    'mean': float(np.mean(means)),
    'low': float(low),
    'high': float(high),
    'by_seed': means,
  }


def _paired(
  mine: Sequence[Any], other: Sequence[Any]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the runs that both have; NaN for one without a valid submission."""
  pairs = [(a, b) for a, b in zip(mine, other) if 'missing' not in (a, b)]
  rows = np.array(
    [[np.nan if v is None else v for v in pair] for pair in pairs], np.float64
  ).reshape(-1, 2)
  return rows[:, 0], rows[:, 1]


def _bootstrapped(
  mine: np.ndarray,
  other: np.ndarray,
  figure: Callable[[np.ndarray], np.ndarray],
  rng: np.random.Generator,
  draws: int,
) -> tuple[float, np.ndarray]:
  """Returns the difference of a task, and that of `draws` samples of its runs."""
  chosen = rng.integers(0, len(mine), (draws, len(mine)))
  mean = float(figure(mine[None])[0] - figure(other[None])[0])
  return mean, figure(mine[chosen]) - figure(other[chosen])


def is_shown(found: Mapping[str, Any] | None) -> bool:
  """Returns whether a difference counts: the interval, and the sign in every seed."""
  return (
    found is not None
    and found['low'] > 0
    and all(value > 0 for value in found['by_seed'])
  )


def claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
  """Returns each comparison: what, of which figure, its difference, is it shown.

  counts: whether it is a claim; what the control is compared with is only printed, and
  so is Best@3 held-out, for it saturates.
  """
  runs = {row['arm']: row['runs'] for row in rows}
  found = []
  for second in ('', f'-{SECOND}'):
    for arm, against in PAIRS:
      own = [
        (run['scores'], f'{arm}{second}', run['scores'], f'{against}{second}')
        for run in runs.get(MAIN, ())
      ]
      name = f'{arm} > {against}'
      name += ', second Implementer' if second else ''
      found += [_claim(name, own, *of) for of in _figures_of()] if own else []
  control = {run['seed']: run['scores'] for run in runs.get(CONTROL, ())}
  drift = [(own, 'rl', own, 'sft') for own in control.values()]
  beyond = [
    (run['scores'], 'rl', control[run['seed']], 'rl')
    for run in runs.get(MAIN, ())
    if run['seed'] in control
  ]
  for name, own, wanted in (
    ('shuffled rewards > sft', drift, False),
    ('rl > shuffled rewards', beyond, True),
  ):
    for split, figure in _figures_of() if own else ():
      one = _claim(name, own, split, figure)
      found.append(one | {'counts': False, 'wanted': wanted})
  return found


def _figures_of() -> list[tuple[str, str]]:
  return [(split, figure) for figure in FIGURES for split in SPLITS]


def _claim(
  name: str,
  seeds: Sequence[tuple[Scores, str, Scores, str]],
  split: str,
  figure: str,
) -> dict[str, Any]:
  found = difference(seeds, split, figure)
  return {
    'claim': name,
    'split': split,
    'figure': figure,
    'difference': found,
    'shown': is_shown(found),
    'counts': (split, figure) != ('heldout', 'Best@3'),
    'wanted': True,
  }


# Tables -------------------------------------------------------------------------


def table(result: Mapping[str, Any]) -> str:
  """Returns the result in Markdown: arms, types, collapse, claims."""
  rows = result['rows']
  (main,) = [row['runs'] for row in rows if row['arm'] == MAIN]
  lines = [*_arms_table(main), '', *_types_table(main), '']
  lines += [*_collapse_table(rows), '', *_results_table(rows), '']
  lines += [_noise_line(rows), '', *_claims_table(claims(rows))]
  return '\n'.join(lines)


def _arms_table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
  lines = [
    '| Implementer, Ideator | held-in Avg@3, Best@3 | held-out Avg@3, Best@3 | ideas '
    'that improve, held-in, held-out | calls, steps a run |',
    '|---|---|---|---|---|',
  ]
  for second in ('', f'-{SECOND}'):
    for arm in ARMS:
      own = [run['table'].get(f'{arm}{second}') for run in runs]
      if not own or None in own:
        continue
      ins, outs = ([one.get(split, {}) for one in own] for split in SPLITS)
      cells = [
        f'{"second" if second else "first"}, {arm}',
        f'{_mean(ins, "avg_at_3")}, {_mean(ins, "best_at_3")}',
        f'{_mean(outs, "avg_at_3")}, {_mean(outs, "best_at_3")}',
        f'{_mean(ins, "improve", 2)}, {_mean(outs, "improve", 2)}',
        f'{_mean(ins, "calls", 1)}, {_mean(ins, "steps", 1)}',
      ]
      lines.append(f'| {" | ".join(cells)} |')
  return lines


def _mean(
  parts: Sequence[Mapping[str, Any]], name: str, digits: int = 1
) -> str:
  values = [part[name] for part in parts if part.get(name) is not None]
  return f'{np.mean(values):.{digits}f}' if values else '-'


def _types_table(runs: Sequence[Mapping[str, Any]]) -> list[str]:
  """Table 3 and figure 4, held-in: shares of types and what they achieve."""
  lines = [
    '| type (held-in) | share before, after RL | improve before, after RL |',
    '|---|---|---|',
  ]
  kinds: list[str] = []
  for run in runs:
    for arm in ('sft', 'rl'):
      kinds += [
        kind
        for kind, share in run['table'][arm]['heldin']['types'].items()
        if share and kind not in kinds
      ]
  for kind in kinds:
    cells = [
      ', '.join(_of_type(runs, arm, kind)[part] for arm in ('sft', 'rl'))
      for part in (0, 1)
    ]
    lines.append(f'| {kind} | {" | ".join(cells)} |')
  return lines


def _of_type(
  runs: Sequence[Mapping[str, Any]], arm: str, kind: str
) -> tuple[str, str]:
  parts = [run['table'][arm]['heldin'] for run in runs]
  share = np.mean([part['types'].get(kind, 0.0) for part in parts])
  own = [part['effectiveness'].get(kind) for part in parts]
  seen = [(n, good) for n, good in filter(None, own)]
  count = sum(n for n, _ in seen)
  if not count:
    return f'{share:.0f} %', '-'
  good = sum(n * share_ for n, share_ in seen) / count
  return f'{share:.0f} %', f'{good:.0f} % of {count}'


def _collapse_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
  """Whether ideas become alike: first and last quarter of training."""
  lines = [
    '| training | mean reward | best of 8 | distinct ideas | entropy of types | mixed '
    'groups |',
    '|---|---|---|---|---|---|',
  ]
  order = (
    'mean_of_8',
    'best_of_8',
    'distinct_ideas',
    'type_entropy',
    'mixed_groups',
  )
  for row in rows:
    for part in ('first', 'last') if row['runs'] else ():
      cells = [_quarter(row['runs'], name, part) for name in order]
      lines.append(f'| {row["arm"]}, {part} quarter | {" | ".join(cells)} |')
  return lines


def _quarter(runs: Sequence[Mapping[str, Any]], name: str, part: str) -> str:
  values = []
  for run in runs:
    size = max(1, len(run[name]) // 4)
    own = run[name][:size] if part == 'first' else run[name][-size:]
    values += [value for value in own if value is not None]
  return f'{np.mean(values):.2f}' if values else '-'


def _results_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
  """What became of the ideas that were drawn: first and last quarter of training."""
  lines = [
    f'| training | {" | ".join(r.value for r in IdeaResult)} |',
    f'|---{"|---" * len(IdeaResult)}|',
  ]
  for row in rows:
    for part in ('first', 'last') if row['runs'] else ():
      shares = [
        _share(row['runs'], f'result_{r.value}', part) for r in IdeaResult
      ]
      cells = [f'{row["arm"]}, {part} quarter', *shares]
      lines.append(f'| {" | ".join(cells)} |')
  return lines


def _share(runs: Sequence[Mapping[str, Any]], name: str, part: str) -> str:
  # A result that no idea of an update had was not logged: its share is 0.
  known = [{name: [value or 0.0 for value in run[name]]} for run in runs]
  return _quarter(known, name, part)


def _noise_line(rows: Sequence[Mapping[str, Any]]) -> str:
  (runs,) = [row['runs'] for row in rows if row['arm'] == MAIN]
  found = [run['noise'] for run in runs]  # the control's pool is the same
  states, scored, moved = (
    sum(one[name] for one in found) for name in ('states', 'scored', 'moved')
  )
  return (
    f'Programs of the pool, run again: the score of {moved} of {scored} changed '
    f'({states} states, {states - scored} of them without a score).'
  )


def _claims_table(found: Sequence[Mapping[str, Any]]) -> list[str]:
  lines = [
    '| claim | figure | difference | in each seed | shown |',
    '|---|---|---|---|---|',
  ]
  for one in found:
    cells = [one['claim'], f'{one["figure"]} {SPLITS[one["split"]]}']
    gap = one['difference']
    if gap is None:
      cells += ['-', '-', 'too few runs']
    else:
      cells += [
        f'{gap["mean"]:+.1f} [{gap["low"]:+.1f}, {gap["high"]:+.1f}]',
        ', '.join(f'{value:+.1f}' for value in gap['by_seed']),
        _verdict(one),
      ]
    lines.append(f'| {" | ".join(cells)} |')
  return lines


def _verdict(one: Mapping[str, Any]) -> str:
  shown = 'yes' if one['shown'] else 'no'
  if not one['wanted']:
    return f'{shown} (a control: it must not)'
  return shown if one['counts'] else f'{shown} (printed alone)'


def plot(rows: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
  """Draws figure 2 (score by step, calls by step), rewards, and figures 3 and 4."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  (runs,) = [row['runs'] for row in rows if row['arm'] == MAIN]
  figure, axes = plt.subplots(2, 3, figsize=(14, 8))
  for axis, second in ((axes[0, 0], ''), (axes[0, 1], f'-{SECOND}')):
    _plot_by_step(axis, runs, second)
  axes[0, 0].set_title('first Implementer', fontsize=9)
  axes[0, 1].set_title('second Implementer', fontsize=9)
  _plot_calls(axes[0, 2], runs)
  for row in rows:
    for name, style in (('mean_of_8', '-'), ('best_of_8', '--')):
      curves = [
        [np.nan if v is None else v for v in run[name]] for run in row['runs']
      ]
      if curves:
        curve = arms.smooth(_mean_known(curves).tolist())
        axes[1, 0].plot(curve, style, label=f'{row["arm"]}, {name}')
  axes[1, 0].set_xlabel('update')
  axes[1, 0].set_ylabel('reward')
  _plot_types(axes[1, 1], runs, _given, 'share of ideas, in percent')
  _plot_types(axes[1, 2], runs, _effective, 'ideas that improve, in percent')
  for axis in axes[0]:
    axis.xaxis.get_major_locator().set_params(integer=True)
  for axis in axes.flat:
    axis.legend(fontsize=6)
  figure.tight_layout()
  figure.savefig(path)


def _plot_by_step(
  axis: Any, runs: Sequence[Mapping[str, Any]], second: str
) -> None:
  for arm in ARMS:
    own = [run['table'].get(f'{arm}{second}') for run in runs]
    if not own or None in own:
      continue
    curves = [one['heldin']['by_step'] for one in own]
    most = max(map(len, curves))
    full = [curve + curve[-1:] * (most - len(curve)) for curve in curves]
    axis.plot(range(1, most + 1), np.mean(full, axis=0), label=arm)
  axis.set_xlabel('message of the Implementer')
  axis.set_ylabel('normalised score, held-in')


def _plot_calls(axis: Any, runs: Sequence[Mapping[str, Any]]) -> None:
  for arm in ('blind', 'sft', 'rl'):
    calls = [run['table'][arm]['heldin']['calls_by_step'] for run in runs]
    most = max((int(n) for one in calls for n in one), default=0)
    shares = [
      np.mean([one.get(str(n), 0.0) for one in calls]) for n in range(most + 1)
    ]
    axis.plot(range(1, most + 2), shares, label=arm)
  axis.set_xlabel('message of the Implementer')
  axis.set_ylabel('share of the calls, held-in')


def _mean_known(curves: Sequence[Sequence[float]]) -> np.ndarray:
  """Returns the mean over curves of what is known, NaN where nothing is."""
  known = np.ma.masked_invalid(np.array(curves, float))
  return np.ma.filled(known.mean(axis=0), np.nan)


def _given(row: Mapping[str, Any], kind: str) -> float:
  return row['types'].get(kind, 0.0)


def _effective(row: Mapping[str, Any], kind: str) -> float:
  return row['effectiveness'].get(kind, (0, 0.0))[1]


def _plot_types(
  axis: Any,
  runs: Sequence[Mapping[str, Any]],
  figure: Callable[[Mapping[str, Any], str], float],
  name: str,
) -> None:
  kinds = sorted(
    {kind for run in runs for kind in run['table']['rl']['heldin']['types']}
  )
  for offset, arm in ((-0.2, 'sft'), (0.2, 'rl')):
    means = [
      np.mean([figure(run['table'][arm]['heldin'], kind) for run in runs])
      for kind in kinds
    ]
    axis.barh(np.arange(len(kinds)) + offset, means, 0.4, label=arm)
  axis.set_yticks(range(len(kinds)), kinds, fontsize=7)
  axis.set_xlabel(name)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--seeds', type=int, default=3)
  parser.add_argument('--runs', type=int, default=15, help='of a task and arm')
  parser.add_argument('--updates', type=int, default=75)
  parser.add_argument('--work_dir', default=f'workdir/benchmark_{NAME}')
  parser.add_argument(
    '--set',
    action='append',
    default=[],
    metavar='KEY=VALUE',
    help='of the config, for every run; a miniature to try the benchmark',
  )
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
  if args.runs < at_three.K:
    parser.error(f'--runs={args.runs}: Avg@3 and Best@3 need 3 or more.')
  saved, kept = machine.RESULTS / f'{NAME}.json', []
  if args.keep and saved.exists():
    kept = json.loads(saved.read_text())['rows']
  for rows in measure(pathlib.Path(args.work_dir).resolve(), args, kept):
    result = {'updates': args.updates, 'runs': args.runs, 'rows': rows}
    if args.json:
      machine.save(NAME, result | {'claims': claims(rows)})
    print(sum(len(row['runs']) for row in rows), 'runs', flush=True)
  print(table(result))
  if args.plot:
    plot(rows, quickstart.ROOT / 'docs' / 'img' / f'{NAME}.svg')


if __name__ == '__main__':
  main()
