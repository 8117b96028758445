"""Draws docs/img/*.svg from benchmarks/results/{duration_bias,async_core}.json.

python -m benchmarks.plot_core
"""

from __future__ import annotations

import argparse
import json
import pathlib

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks import machine  # noqa: E402

IMG = pathlib.Path(__file__).parents[1] / 'docs' / 'img'


def bias(result) -> None:
  """Projection of the mean gradient, by rest policy and weighting."""
  names = [b['name'] for b in result['bandits']]
  figure, axes = plt.subplots(1, len(names), figsize=(11, 4), sharey=False)
  for axis, name in zip(axes, names):
    rows = [
      r
      for r in result['rows']
      if r['bandit'] == name and r['timeout'] == 'none'
    ]
    x = np.arange(len(rows))
    for i, w in enumerate(rows[0]['weightings']):
      y = np.array([r['weightings'][w]['along'] for r in rows])
      ci = np.array([r['weightings'][w]['along_ci95'] for r in rows])
      axis.errorbar(
        x + 0.15 * (i - 1.5),
        y,
        np.abs(ci.T - y),
        fmt='o',
        ms=5,
        capsize=3,
        label=w,
      )
    axis.axhline(1.0, color='grey', lw=1)
    axis.set_xticks(
      x, [r['scheduler'] for r in rows], rotation=25, ha='right', fontsize=8
    )
    axis.set_title(name, fontsize=10)
    axis.set_ylabel('mean gradient along the synchronous one')
  axes[0].legend(title='weighting')
  figure.tight_layout()
  figure.savefig(IMG / 'duration_bias.svg')


def learning(result) -> None:
  """P(best arm) over updates, twelve arms, no time-out."""
  name = result['bandits'][-1]['name']
  rows = [
    r for r in result['rows'] if r['bandit'] == name and r['timeout'] == 'none'
  ]
  figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True, sharey=True)
  for axis, row in zip(axes.ravel(), rows):
    for w, v in row['weightings'].items():
      y = v['learning']['curve']
      axis.plot(np.linspace(0, result['updates'], len(y)), y, label=w)
    axis.set_title(row['scheduler'], fontsize=10)
  axes[0, 0].legend()
  axes[1, 1].set_xlabel('updates')
  axes[0, 0].set_ylabel('P(best arm)')
  figure.tight_layout()
  figure.savefig(IMG / 'bandit_learning.svg')


def throughput(result) -> None:
  """Share of the ideal under each bound, lognormal durations."""
  figure, axis = plt.subplots(figsize=(8, 4))
  workers = sorted({r['workers'] for r in result['virtual']})
  for n, style in zip(workers, ('o-', 's--', '^:')):
    for on_stale, color in (('hold', 'C0'), ('drop', 'C1'), ('keep', 'C2')):
      rows = sorted(
        (
          r
          for r in result['virtual']
          if r['workers'] == n
          and r['durations'] == 'lognormal'
          and r['bound'] is not None
          and r['on_stale'] == on_stale
          and r['rest'] == 'carry_over'
          and r.get('turns', 1) == 1
          and not r['faults']
        ),
        key=lambda r: r['bound'],
      )
      axis.plot(
        [r['bound'] for r in rows],
        [r['of_ideal'] for r in rows],
        style,
        color=color,
        label=f'{on_stale}, {n} workers',
      )
  axis.set_xscale('log', base=2)
  axis.set_xlabel('staleness bound (updates)')
  axis.set_ylabel('throughput / ideal')
  axis.legend(fontsize=7, ncol=3)
  figure.tight_layout()
  figure.savefig(IMG / 'throughput.svg')


def main() -> None:
  argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  ).parse_args()
  IMG.mkdir(parents=True, exist_ok=True)
  for name, draws in (
    ('duration_bias', (bias, learning)),
    ('async_core', (throughput,)),
  ):
    path = machine.RESULTS / f'{name}.json'
    if not path.exists():
      print(f'{path} is not there: run python -m benchmarks.{name} --json')
      continue
    for draw in draws:
      draw(json.loads(path.read_text()))


if __name__ == '__main__':
  main()
