"""Which objective raises the best of K programs? A policy of categoricals, exactly.

  python -m benchmarks.best_of --policy table [--tasks digits] [--seeds 40] [--group 64]
    [--json]
  python -m benchmarks.best_of [--seeds 8] [--json]   # the trainer: benchmarks.best_of_runs

The policy draws a program of the scripted author's grammar choice by choice, and a slip
in 35 % of them, as after SFT; each program's score and seconds are looked up in those of
`benchmarks.programs`, executed once. 16 updates of 64 programs by Adam; the rate of each
arm is chosen on seeds of its own, by the same figure. The best of K is computed from the
policy's own probabilities, so there is no error of sampling: the expected best validation
score, a failure counting as the worst program, and the expected private score of the
program that validation chooses. Intervals are of the mean over seeds, 95 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats as sps

from benchmarks import arms, best_of_runs, machine, programs
from jaxagent import algorithms
from jaxagent.rewards.mle import mle_reward
from jaxagent.tasks import agreement as tasks_agreement
from jaxagent.tasks.measure import Measured
from jaxagent.types import Outcome

NAME = 'best_of'
KS = (1, 2, 4, 8, 16, 32)
CHOSEN_BY = 16  # K of the figure that rates are chosen by
UPDATES, BATCH, K = 16, 64, 8
SLIP = 0.35  # share of programs that fail after SFT
MILESTONES = 3  # of a program that fails late
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
TUNING_SEEDS = tuple(range(1000, 1008))

Estimate = Callable[[np.ndarray, list[int], np.ndarray], np.ndarray]


def _best(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  return algorithms.best_of_advantages(r, groups, K)


def _best_weighted(r: np.ndarray, groups: list[int], d: np.ndarray):
  return algorithms.best_of_advantages(r, groups, K, baseline_weights=d)


def _mean(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  return algorithms.best_of_advantages(r, groups, 1)


def _mean_weighted(r: np.ndarray, groups: list[int], d: np.ndarray):
  return algorithms.best_of_advantages(r, groups, 1, baseline_weights=d)


def _pkpo(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  return algorithms.pkpo_advantages(r, groups, K)


def _max_rl(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  return algorithms.max_rl_advantages(r, groups, K)


def _entropic(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  return algorithms.entropic_advantages(r, groups)


def _grpo(r: np.ndarray, groups: list[int], d: np.ndarray) -> np.ndarray:
  found = algorithms.group_relative_advantages(
    jnp.asarray(r), jnp.asarray(groups)
  )
  return np.asarray(found, np.float64)


@dataclasses.dataclass(frozen=True)
class Arm:
  """estimate: of advantages; weighted: duration weights multiply them.

  failure, scale: as `rewards.mle.mle_reward` pays. shuffled: rewards are those of
  other programs of the batch.
  """

  estimate: Estimate
  weighted: bool = False
  failure: float = -10.0
  scale: str = 'bounded'
  shuffled: bool = False


_MILD: dict[str, Any] = {'failure': -1.0, 'scale': 'task'}
ARMS: Mapping[str, Arm] = {
  'mean, no weights': Arm(_mean),
  'mean, duration weights': Arm(_mean, True),
  'mean, duration weights, weighted baseline': Arm(_mean_weighted, True),
  'GRPO, no weights': Arm(_grpo),
  'entropic, no weights': Arm(_entropic),
  'entropic, duration weights': Arm(_entropic, True),
  'PKPO loo-1 of 8, duration weights': Arm(_pkpo, True),
  'MaxRL to 8, duration weights': Arm(_max_rl, True),
  'best of 8, no weights': Arm(_best),
  'best of 8, duration weights': Arm(_best, True),
  'best of 8, duration weights, weighted baseline': Arm(_best_weighted, True),
  'mean, duration weights, failure -1': Arm(_mean, True, **_MILD),
  'entropic, duration weights, failure -1': Arm(_entropic, True, **_MILD),
  'best of 8, duration weights, failure -1': Arm(_best, True, **_MILD),
  'best of 8, duration weights, weighted baseline, failure -1': Arm(
    _best_weighted, True, **_MILD
  ),
  'best of 8, duration weights, shuffled rewards': Arm(
    _best, True, shuffled=True
  ),
}


class Table:
  """The programs of a task, what each was worth, and a policy that writes them.

  Row i of `used` [programs, choices] tells which choices were made for program i, and of
  `taken` [programs, options] which options. The last program is a slip.
  """

  def __init__(self, task: Mapping[str, Any]):
    self.options = [
      (choice, option)
      for choice, chances in task['start'].items()
      for option in chances
    ]
    self.start = np.log(
      [task['start'][choice][option] for choice, option in self.options]
    )
    self.options += [('slip', 'no'), ('slip', 'yes')]
    self.start = np.append(self.start, np.log([1 - SLIP, SLIP]))
    choices = list(dict.fromkeys(choice for choice, _ in self.options))
    self.of_choice = np.array([choices.index(c) for c, _ in self.options])
    rows = [
      [*map(tuple, row['options']), ('slip', 'no')] for row in task['programs']
    ]
    index = {option: i for i, option in enumerate(self.options)}
    self.taken = np.zeros((len(rows) + 1, len(self.options)))
    for i, row in enumerate(rows):
      self.taken[i, [index[option] for option in row]] = 1
    self.taken[-1, index['slip', 'yes']] = 1
    member = np.eye(len(choices))[self.of_choice]
    self.used = self.taken @ member
    sign = 1.0 if task['higher_is_better'] else -1.0
    self.higher_is_better = task['higher_is_better']
    self.ends = (task['m_init'], task['m_best'])
    self.valid, self.private, self.seconds = (
      np.array(
        [row.get(key, np.nan) for row in task['programs']] + [np.nan], float
      )
      for key in ('valid', 'private', 'seconds')
    )
    self.works = np.isfinite(self.valid)
    worst = self.works & (sign * self.valid == np.nanmin(sign * self.valid))
    self.shown = np.where(self.works, self.valid, self.valid[worst][0])
    self.shown_private = np.where(
      self.works, self.private, self.private[worst][0]
    )
    self.rank = np.argsort(
      np.where(self.works, sign * self.valid, -np.inf), kind='stable'
    )
    # A program that fails early takes the time that importing takes.
    self.seconds = np.where(self.works, self.seconds, np.nanmin(self.seconds))

  def pay(self, arm: Arm) -> np.ndarray:
    """Returns the reward of each program, a slip's at the end."""
    paid = [
      mle_reward(
        Outcome.OK if works else Outcome.SCRIPT_ERROR,
        score=float(score) if works else None,
        higher_is_better=self.higher_is_better,
        milestones=MILESTONES,
        scale=arm.scale,
        start=self.ends[0],
        best=self.ends[1],
        failure=arm.failure,
      )
      for works, score in zip(self.works, self.valid)
    ]
    return np.array(paid, float)

  def log_probs(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns log p of each option [options] and of each program [programs]."""
    highest = np.full(self.used.shape[1], -np.inf)
    np.maximum.at(highest, self.of_choice, logits)
    shifted = logits - highest[self.of_choice]
    total = np.bincount(self.of_choice, np.exp(shifted))
    by_option = shifted - np.log(total)[self.of_choice]
    return by_option, self.taken @ by_option

  def figures(self, logits: np.ndarray) -> dict[str, Any]:
    """Expected figures of the policy's own distribution."""
    p = np.exp(self.log_probs(logits)[1])
    p /= p.sum()
    at_most = np.cumsum(p[self.rank])
    below = np.concatenate([[0.0], at_most[:-1]])
    best, private = {}, {}
    for k in KS:
      chosen = at_most**k - below**k
      best[str(k)] = float(chosen @ self.shown[self.rank])
      private[str(k)] = float(chosen @ self.shown_private[self.rank])
    return {
      'valid': float(p @ self.works),
      'seconds': float(p @ self.seconds),
      'best': best,
      'private': private,
    }


def trained(
  table: Table, arm: Arm, rate: float, seed: int, group: int
) -> dict[str, Any]:
  """Returns the figures of a policy after `UPDATES` updates."""
  rng = np.random.default_rng(seed)
  logits, pay = table.start.copy(), table.pay(arm)
  first, second = np.zeros_like(logits), np.zeros_like(logits)
  groups = [i // group for i in range(BATCH)]
  for update in range(1, UPDATES + 1):
    by_option, by_program = table.log_probs(logits)
    p = np.exp(by_program)
    drawn = rng.choice(len(p), BATCH, p=p / p.sum())
    rewards, seconds = pay[drawn], table.seconds[drawn]
    if arm.shuffled:
      rewards = rng.permutation(rewards)
    a = arm.estimate(rewards, groups, seconds)
    size = np.sqrt(np.mean(np.square(a)))
    a = a / size if size > 0 else a
    if arm.weighted:
      a = a * seconds / seconds.mean()
    pushed = a @ table.taken[drawn]
    times = a @ table.used[drawn]
    gradient = (pushed - times[table.of_choice] * np.exp(by_option)) / BATCH
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * np.square(gradient)
    step = (first / (1 - 0.9**update)) / (
      np.sqrt(second / (1 - 0.999**update)) + 1e-8
    )
    logits = logits + rate * step
  return table.figures(logits)


def chosen_rate(table: Table, name: str, arm: Arm, group: int) -> float:
  """Returns the rate of RATES with the best figure on seeds of its own."""
  sign = 1.0 if table.higher_is_better else -1.0

  def figure(rate: float) -> float:
    runs = [trained(table, arm, rate, seed, group) for seed in TUNING_SEEDS]
    return sign * float(np.mean([r['best'][str(CHOSEN_BY)] for r in runs]))

  return max(RATES, key=figure)


def summed(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Mean and half of the 95 % interval over seeds, of each figure."""

  def of(values: Sequence[float]) -> list[float]:
    n = len(values)
    half = 0.0
    if n > 1:
      half = float(sps.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / n**0.5)
    return [round(float(np.mean(values)), 6), round(half, 6)]

  return {
    'valid': of([r['valid'] for r in runs]),
    'seconds': of([r['seconds'] for r in runs]),
    **{
      kind: {str(k): of([r[kind][str(k)] for r in runs]) for k in KS}
      for kind in ('best', 'private')
    },
  }


def measure(task: Mapping[str, Any], seeds: int, group: int) -> dict[str, Any]:
  """Returns the figures of each arm, and of the policy that all begin with."""
  table = Table(task)
  rows = {'SFT': {'rate': None, **summed([table.figures(table.start)])}}
  print(_line('SFT', rows['SFT']), flush=True)
  for name, arm in ARMS.items():
    rate = chosen_rate(table, name, arm, group)
    runs = [trained(table, arm, rate, seed, group) for seed in range(seeds)]
    rows[name] = {'rate': rate, **summed(runs)}
    print(_line(name, rows[name]), flush=True)
  return rows


def agreement(task: Mapping[str, Any]) -> float:
  """Rank correlation of both scores among the best tenth of the programs."""
  rows = [
    Measured('', row['valid'], row['private'], 0.0)
    for row in task['programs']
    if 'valid' in row
  ]
  found, top = tasks_agreement.of(rows, task['higher_is_better'])
  if found is None:
    raise ValueError(
      f'the best tenth is {top} programs, or their scores are equal'
    )
  return found


def _line(name: str, row: Mapping[str, Any]) -> str:
  best = ' '.join(
    f'@{k} {row["best"][str(k)][0]:.4f}±{row["best"][str(k)][1]:.4f}'
    for k in KS
  )
  return (
    f'{name:58} valid {row["valid"][0]:.2f}  {best}  private of the chosen of '
    f'{CHOSEN_BY} {row["private"][str(CHOSEN_BY)][0]:.4f}'
  )


def table(record: Mapping[str, Any], task: str) -> str:
  """The docs' table of a task."""
  shown = (1, 4, 16, 32)
  lines = [
    '| arm | valid | '
    + ' | '.join(f'best of {k}' for k in shown)
    + f' | private of the chosen of {CHOSEN_BY} | seconds |',
    '|---|' + '---|' * (len(shown) + 3),
  ]
  for name, row in record[task]['arms'].items():
    cells = [_cell(row['best'][str(k)]) for k in shown]
    lines.append(
      f'| {name} | {row["valid"][0]:.2f} | {" | ".join(cells)} | '
      f'{_cell(row["private"][str(CHOSEN_BY)])} | {row["seconds"][0]:.2f} |'
    )
  return '\n'.join(lines)


def _cell(value: Sequence[float]) -> str:
  return f'{value[0]:.4f}' + (f' ± {value[1]:.4f}' if value[1] else '')


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--policy', choices=('table',), required=True)
  parser.add_argument('--tasks', nargs='+', default=programs.TASKS)
  parser.add_argument('--seeds', type=int, default=40)
  parser.add_argument(
    '--group', type=int, default=BATCH, help=f'a divisor of {BATCH}'
  )
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  if args.group <= K or BATCH % args.group:
    parser.error(
      f'--group={args.group} must divide {BATCH} and be more than {K}.'
    )
  path = machine.RESULTS / f'{programs.NAME}.json'
  if not path.is_file():
    parser.error(
      f'{path} is missing; python -m benchmarks.programs --json makes it.'
    )
  known = json.loads(path.read_text())['tasks']
  result: dict[str, Any] = {'seeds': args.seeds, 'group': args.group}
  for name in args.tasks:
    if name not in known:
      parser.error(f'{path} has no task {name!r}, but {", ".join(known)}.')
    print(f'{name}: agreement of the best tenth {agreement(known[name]):.2f}')
    result[name] = {
      'agreement': round(agreement(known[name]), 3),
      'arms': measure(known[name], args.seeds, args.group),
    }
  if args.json:
    print(machine.save(NAME, result))


if __name__ == '__main__':
  if '--policy' in sys.argv or {'-h', '--help'} & set(sys.argv):
    main()
  else:
    arms.main(best_of_runs, name='best_of_runs', seeds=8, updates=16)
