"""Which objective raises the best of K programs, in the trainer itself?

  python -m benchmarks.best_of --seeds 8 [--json] [--keep] [--plot]

The tiny policy of `configs/rl_for_mle.py` with its own SFT, decoding and learner, in
groups of 16 and with duration weights where an arm does not say otherwise; failures on
the task's scale, at -1. Programs are executed for real, once: all runs share a file of
executions (`sandbox.recorded`, in `workdir/recorded`). Of K final samples from scratch
the one that validation chooses, its validation and its private score
(`analysis.chosen`), before and after RL, by seed; runs of a seed share SFT. Resumable:
finished runs are reused, those of the committed result with `--keep`.
"""

from __future__ import annotations

import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import claims
from benchmarks.arms import CURVES, Study, main, mean_half

TASK, OTHER = 'digits', 'diabetes'
K = 16  # of the figures that claims are about
MEAN, BEST, SHUFFLED = 'mean', 'best of 8', 'best of 8, shuffled rewards'
_BEST = (
  'rl.estimator=best_of',
  'rl.best_of=8',
  'rl.baseline=weighted',
)
ARMS: Mapping[str, tuple[str, Sequence[str]]] = {
  MEAN: (TASK, ('rl.estimator=rloo',)),
  'mean, no duration weights': (
    TASK,
    ('rl.estimator=rloo', 'rl.weighting=none'),
  ),
  'entropic': (TASK, ('rl.estimator=entropic',)),
  BEST: (TASK, _BEST),
  SHUFFLED: (TASK, (*_BEST, 'rl.shuffle_rewards=True')),
  f'{MEAN}, {OTHER}': (OTHER, ('rl.estimator=rloo',)),
  f'{BEST}, {OTHER}': (OTHER, _BEST),
}
HIGHER = {TASK: True, OTHER: False}


def arms():
  """(names, options) of each arm."""
  for name, (task, options) in ARMS.items():
    yield (
      {'arm': name, 'task': task},
      (
        f"tasks.heldin=('{task}',)",
        f'sandbox.recorded=workdir/recorded/{task}.sqlite',
        *options,
      ),
    )


def _final(work: pathlib.Path, summary: Mapping[str, Any]) -> dict[str, Any]:
  """Per policy: share of valid programs, K -> what is chosen from K."""
  tables = summary['extra']['solutions']
  found: dict[str, Any] = {
    'recorded': summary['extra'].get('recorded_executions', 0),
    'executions': summary['executions'],
  }
  for policy, tasks in tables.items():
    (table,) = tasks.values()
    part = table['scratch']
    found[policy] = {
      'valid': part['valid'],
      'exec_s': part['exec_s'],
      'chosen': {
        k: {name: row[name]['mean'] for name in ('validation', 'private')}
        for k, row in part['chosen'].items()
      },
    }
  return found


STUDY = Study(
  config='configs/rl_for_mle.py',
  options=(
    'instrumenter.kind=verified',
    'solution.samples=64',
    'solution.improve=0.0',
    'solution.scale=task',
    'solution.failure=-1.0',
    'rl.group_size=16',
  ),
  shared=('tasks', 'tokenizer', 'sft'),
  curves={**CURVES, 'valid': 'solution/valid_rate'},
  final=_final,
  # Another task has programs, and an SFT, of its own.
  shares=lambda options: f"tasks.heldin=('{TASK}',)" in options,
)


def chosen(run: Mapping[str, Any], policy: str, name: str, k: int = K) -> float:
  """Validation or private score of what is chosen from k; NaN where there is none."""
  value = run[policy]['chosen'].get(str(k), {}).get(name)
  return math.nan if value is None else value


def _more(arm: str, than: str, name: str, task: str = TASK):
  """How much better the chosen of `arm` is; `than` an arm, or 'sft'."""

  def of(runs: claims.Runs) -> float:
    sign = 1.0 if HIGHER[task] else -1.0
    mine = chosen(runs[arm], 'rl', name)
    if than == 'sft':
      return sign * (mine - chosen(runs[arm], 'sft', name))
    return sign * (mine - chosen(runs[than], 'rl', name))

  return of


CLAIMS: claims.Claims = {
  f'best of {K} after best_of, more than before (validation)': _more(
    BEST, 'sft', 'validation'
  ),
  'and its private score': _more(BEST, 'sft', 'private'),
  f'best of {K} after best_of, more than after the mean (validation)': _more(
    BEST, MEAN, 'validation'
  ),
  'and its private score, too': _more(BEST, MEAN, 'private'),
  f'best of {K} after the mean, more than before (validation)': _more(
    MEAN, 'sft', 'validation'
  ),
  'more valid programs after best_of than before (share)': lambda r: (
    r[BEST]['rl']['valid'] - r[BEST]['sft']['valid']
  ),
  f'best of {K} after shuffled rewards, more than before': _more(
    SHUFFLED, 'sft', 'validation'
  ),
  f'{OTHER}: best of {K} after best_of, better than before (validation)': _more(
    f'{BEST}, {OTHER}', 'sft', 'validation', OTHER
  ),
  f'{OTHER}: and its private score': _more(
    f'{BEST}, {OTHER}', 'sft', 'private', OTHER
  ),
}
_SHOWN = (1, 4, 16, 32)


def _cell(values: Sequence[float], digits: int = 4) -> str:
  mean, half = mean_half([v for v in values if not math.isnan(v)])
  text = f'{mean:.{digits}f}'
  return text if math.isnan(half) else f'{text} ± {half:.{digits}f}'


def _line(name: str, runs: Sequence[Mapping[str, Any]], policy: str) -> str:
  of = lambda kind, k: _cell([chosen(r, policy, kind, k) for r in runs])  # noqa: E731
  cells = [
    _cell([r[policy]['valid'] for r in runs], 2),
    *(of('validation', k) for k in _SHOWN),
    of('private', K),
    _cell([r[policy]['exec_s'] or math.nan for r in runs], 2),
  ]
  return f'| {name} | {" | ".join(cells)} |'


def table(result: dict[str, Any]) -> str:
  """Markdown: the arms, each task's SFT in front, then the claims."""
  lines = [
    '| after | valid | '
    + ' | '.join(f'best of {k}' for k in _SHOWN)
    + f' | private of the chosen of {K} | seconds |',
    '|---|' + '---|' * (len(_SHOWN) + 3),
  ]
  seen = set()
  for row in result['rows']:
    if not row['runs']:
      continue
    if row['task'] not in seen:
      seen.add(row['task'])
      lines.append(_line(f'SFT, {row["task"]}', row['runs'], 'sft'))
    lines.append(_line(row['arm'], row['runs'], 'rl'))
  return '\n'.join([*lines, '', *claims.table(CLAIMS, result['rows'])])


def plot(rows: list[dict], path: pathlib.Path) -> None:
  """Scores of the chosen by K, of each arm and before RL: a panel a task and score."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(2, 2, figsize=(11, 7))
  for line, task in zip(axes, HIGHER):
    own = [row for row in rows if row['task'] == task and row['runs']]
    for axis, name in zip(line, ('validation', 'private')):
      curves = [(row['arm'], row['runs'], 'rl') for row in own]
      for label, runs, policy in [('SFT', own[0]['runs'], 'sft'), *curves]:
        ks = sorted(map(int, runs[0][policy]['chosen']))
        means = [
          np.nanmean([chosen(run, policy, name, k) for run in runs]) for k in ks
        ]
        axis.plot(ks, means, '--' if policy == 'sft' else '-', label=label)
      axis.set_xscale('log', base=2)
      axis.set_xlabel('K')
      axis.set_ylabel(f'{task}: {name} score of the chosen')
    line[0].legend(fontsize=7)
  figure.tight_layout()
  figure.savefig(path)


if __name__ == '__main__':
  main(sys.modules[__name__], name='best_of_runs', seeds=8, updates=16)
