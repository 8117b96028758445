"""Claims of paper 003 in miniature: figures 2, 7, 8, 9, 10 and table 4.

  python -m benchmarks.rl_for_mle_claims --seeds 3 [--json] [--keep] [--plot]

Whole solutions by the tiny policy (`configs/rl_for_mle.py`), real executions, in
four arms that differ in one option: duration weights or none, milestones or none,
half of the prompts to improve or all from scratch. A claim is shown where the 95 %
interval over seeds of what it says is above zero; whatever does not show is told as
such. Resumable: finished runs are reused.
"""

from __future__ import annotations

import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import claims
from benchmarks.arms import CURVES, Study, cell, main, smooth
from jaxagent.recipes.results import read_traces
from jaxagent.records import Evaluated
from jaxagent.report.progress import best_over_time
from jaxagent.runtime import kept
from jaxagent.types import Record

TASK = 'digits'  # that of the config
FAILED = -10.0  # what a solution without a valid submission counts (figure 10)
ARMS = {
  'as configured': (),
  'no duration weights': ('rl.weighting=none',),
  'no milestones': ('instrumenter.kind=none',),
  'from scratch only': ('solution.improve=0.0',),
}
COLUMNS = {
  'average': ('average, failures at -10', 2),
  'valid': ('valid', 2),
  'score': ('score of valid ones', 3),
  'exec_s': ('seconds an execution', 2),
  'timeouts': ('time-outs', 2),
  'rl_s': ('seconds of RL', 0),
}


def arms():
  """(names, options) of each arm."""
  for name, options in ARMS.items():
    yield {'arm': name}, options


def average(
  valid: Sequence[float], score: Sequence[float | None]
) -> list[float]:
  """Figure 10's: a failure counts FAILED, a valid solution its score."""
  return [
    FAILED if s is None else v * s + (1 - v) * FAILED
    for v, s in zip(valid, score)
  ]


def _final(work: pathlib.Path, summary: Mapping[str, Any]) -> dict[str, Any]:
  tables = summary['extra']['solutions']
  trained = read_traces(work / 'rl' / 'traces')
  before, after = (kept.evaluated(work, policy) for policy in ('sft', 'rl'))
  return {
    'solutions': {policy: table[TASK] for policy, table in tables.items()},
    'best_trained': best_over_time([turn.record for turn in trained]),
    'best_before': best_over_time(_programs(before)),
    'best_after': best_over_time(_programs(after)),
    'average_sft': _sampled(before),
    'average_rl': _sampled(after),
  }


def _programs(trajectories: Sequence[Evaluated]) -> list[Record]:
  return [step.record for one in trajectories for step in one.steps]


def _sampled(trajectories: Sequence[Evaluated]) -> float:
  """Of the final samples, from scratch and improved, on private rows."""
  scores = [one.score for one in trajectories if not one.missing]
  return float(np.mean([FAILED if s is None else s for s in scores]))


STUDY = Study(
  config='configs/rl_for_mle.py',
  options=('solution.samples=64',),
  shared=('tasks', 'tokenizer', 'sft'),
  curves={
    **CURVES,
    'valid': 'solution/valid_rate',
    'score': f'solution/score/{TASK}',
    'milestones': 'solution/milestones',
  },
  final=_final,
)


def _quarter(values: Sequence[float | None], which: int) -> float:
  """Mean of the first (0) or last (-1) quarter."""
  part = np.array_split(np.array(values, float), 4)[which]
  return float(np.nanmean(part))


def _average(run: Mapping[str, Any]) -> list[float]:
  return average(run['valid'], run['score'])


def _trend(run: Mapping[str, Any], name: str) -> float:
  return _quarter(run[name], -1) - _quarter(run[name], 0)


def _part(run: Mapping[str, Any], part: str) -> float:
  found = run['solutions']['rl'][part]
  return found['mean'] if found and found['mean'] is not None else math.nan


CLAIMS: claims.Claims = {
  'figure 2: without weights, executions get shorter (seconds)': lambda r: (
    -_trend(r['no duration weights'], 'exec_s')
  ),
  'figure 2: with weights they get longer (seconds)': lambda r: _trend(
    r['as configured'], 'exec_s'
  ),
  'figure 2: and valid solutions gain more than without (score)': lambda r: (
    _trend(r['as configured'], 'score')
    - _trend(r['no duration weights'], 'score')
  ),
  'figure 8: weights keep executions longer (seconds, last quarter)': lambda r: (
    _quarter(r['as configured']['exec_s'], -1)
    - _quarter(r['no duration weights']['exec_s'], -1)
  ),
  'figure 8: and valid solutions better (score, last quarter)': lambda r: (
    _quarter(r['as configured']['score'], -1)
    - _quarter(r['no duration weights']['score'], -1)
  ),
  'figure 9: milestones learn faster (average over all updates)': lambda r: (
    float(np.mean(_average(r['as configured'])))
    - float(np.mean(_average(r['no milestones'])))
  ),
  'figure 10: RL raises the average (last less first quarter)': lambda r: (
    _quarter(_average(r['as configured']), -1)
    - _quarter(_average(r['as configured']), 0)
  ),
  'figure 7: the best of as many samples is better after RL (score)': lambda r: (
    r['as configured']['best_after'][-1][1]
    - r['as configured']['best_before'][-1][1]
  ),
  'table 1: after RL samples are better than before (average)': lambda r: (
    r['as configured']['average_rl'] - r['as configured']['average_sft']
  ),
  'table 4: improving beats from scratch (score)': lambda r: (
    _part(r['as configured'], 'improved')
    - _part(r['from scratch only'], 'scratch')
  ),
}


def _arm_line(row: dict[str, Any]) -> str:
  for run in row['runs']:
    run['average'] = _average(run)
  cells = [cell(row, name, digits) for name, (_, digits) in COLUMNS.items()]
  return f'| {row["arm"]} | {" | ".join(cells)} |'


def table(result: dict[str, Any]) -> str:
  """Markdown: the arms, then the claims."""
  names = [name for name, _ in COLUMNS.values()]
  rows = result['rows']
  lines = [
    f'| arm | {" | ".join(names)} |',
    '|' + '---|' * (1 + len(names)),
    *map(_arm_line, rows),
    '',
    *claims.table(CLAIMS, rows),
  ]
  return '\n'.join(lines)


# What is drawn of the best scores: style and label.
_BEST = {
  'best_trained': ('-', 'in RL'),
  'best_before': ('--', 'samples before RL'),
  'best_after': (':', 'samples after RL'),
}


def plot(rows: list[dict], path: pathlib.Path) -> None:
  """Average, score and execution time over updates; best over seconds."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(2, 2, figsize=(11, 7))
  kinds = ('average', 'score', 'exec_s')
  for axis, kind in zip(axes.flat, kinds):
    for row in rows:
      curves = [
        _average(run) if kind == 'average' else run[kind] for run in row['runs']
      ]
      mean = np.nanmean(np.array(curves, float), 0)
      axis.plot(smooth(mean), label=row['arm'])
    axis.set_ylabel(COLUMNS[kind][0])
    axis.set_xlabel('updates')
  axes[0, 0].legend(fontsize=7)
  for number, run in enumerate(rows[0]['runs']):
    for name, (style, label) in _BEST.items():
      seconds, scores = np.array(run[name]).T
      axes[1, 1].step(
        seconds, scores, style, where='post', color=f'C{number}',
        label=label if number == 0 else None,
      )  # fmt: skip
  axes[1, 1].set_xlabel('seconds of executions')
  axes[1, 1].set_ylabel('best validation score')
  axes[1, 1].legend(fontsize=7)
  figure.tight_layout()
  figure.savefig(path)


if __name__ == '__main__':
  main(sys.modules[__name__], name='rl_for_mle_claims', seeds=3, updates=16)
