"""Claims of paper 000 in miniature: figures 4, 6, 9, tables 1, 2 and 10.

  python -m benchmarks.ml_agent_claims --seeds 3 [--json] [--keep] [--plot]

Step-wise PPO as the paper has it (`configs/ml_agent.py:stepwise-tiny`) on the
bundled tasks, with real executions, beside arms that differ in what one of its
comparisons is about. Episode-wise RL trains on as many steps an update (8
trajectories of 4, for 32 states). All arms of a seed share experts and SFT, but
for the one without thought, whose experts have none either. What is compared is
the reward of equation 6, whole, of every evaluated step, whatever reward an arm
was trained on; and best@K of the private relative gain. A claim is shown where
the 95 % interval over seeds of what it says is above zero; whatever does not show
is told as such. Resumable: finished runs are reused.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import claims, quickstart
from benchmarks.arms import CURVES, Study, cell, main, smooth
from configs import ml_agent
from jaxagent.analysis import evaluation

BASE = 'step-wise'
# Arm -> the variant of configs/ml_agent.py, and what else it needs here.
ARMS: Mapping[str, tuple[str, dict[str, Any]]] = {
  BASE: ('stepwise', {}),
  'episode-wise': ('episodewise', {'episode.max_steps': 4, 'rl.batch_size': 8}),
  'binary reward': ('binary-reward', {}),
  'no format reward': ('no-format-reward', {}),
  'no corner reward': ('no-corner-reward', {}),
  'half of the tasks': ('half-tasks', {}),
  # A third of what the others train on, each state once as there.
  'fewer states': ('fewer-states', {'rl.states': 256, 'rl.updates': 8}),
  'without thought': ('without-thought', {}),
}
COLUMNS = {
  'heldin_reward': ('held-in reward', 3),
  'heldout_reward': ('held-out reward', 3),
  'heldin_gain': ('held-in gain', 3),
  'heldout_gain': ('held-out gain', 3),
  'rl_s': ('seconds of RL', 0),
}
_RUNS = 12  # of a task


def arms():
  """(names, options) of each arm."""
  for arm, (variant, here) in ARMS.items():
    options = ml_agent.COMPARED[variant] | here
    yield {'arm': arm}, [f'{key}={value}' for key, value in options.items()]


def evaluated(work: pathlib.Path, policy: str) -> dict[str, Any]:
  """Of a policy's trajectories: `{split}_reward`, `{split}_gain`, `{split}_best`.

  reward: of a step. gain: relative, of a trajectory, averaged over tasks. best: K
  -> best@K of the gain.
  """
  records = json.loads((work / 'eval' / f'{policy}.json').read_text())
  starts = json.loads((work / 'eval' / 'starts.json').read_text())
  found: dict[str, Any] = {}
  for split in ('heldin', 'heldout'):
    own = [r for r in records if r['split'] == split and not r['missing']]
    rewards = [step['reward'] for r in own for step in r['steps']]
    gains: dict[str, list[float]] = {}
    for r in own:
      gain = gain_of(r, starts[r['task']]['private'])
      gains.setdefault(r['task'], []).append(gain)
    curves = [evaluation.best_curve(g) for g in gains.values()]
    found |= {
      f'{split}_reward': float(np.mean([r for r in rewards if r is not None])),
      f'{split}_gain': float(np.mean([np.mean(g) for g in gains.values()])),
      f'{split}_best': {
        k: float(np.mean([c[k] for c in curves if k in c])) for k in curves[0]
      },
    }
  return found


def gain_of(record: Mapping[str, Any], start: float) -> float:
  """Private, relative to the starter's; alpha's sign tells which way is better."""
  higher = record['steps'][0]['alpha'] > 0
  return evaluation.relative_gain(record['score'], start, higher)


def _final(work: pathlib.Path, summary: Mapping[str, Any]) -> dict[str, Any]:
  return {
    **evaluated(work, 'rl'),
    **{f'sft_{k}': v for k, v in evaluated(work, 'sft').items()},
  }


STUDY = Study(
  config='configs/ml_agent.py:stepwise-tiny',
  options=(
    'rl.value_warmup_epochs=1',
    f'eval.trajectories_per_task={_RUNS}',
    'eval.k=8',
  ),
  shared=quickstart.SHARED,
  curves=CURVES,
  final=_final,
  shares=lambda options: not any(o.startswith('agent=') for o in options),
)


def _learned(run: Mapping[str, Any], split: str = 'heldin') -> float:
  return run[f'{split}_reward'] - run[f'sft_{split}_reward']


def _over(arm: str, split: str = 'heldin'):
  """How much more the paper's arm ends at than another."""
  name = f'{split}_reward'
  return lambda runs: runs[BASE][name] - runs[arm][name]


def _best(run: Mapping[str, Any], split: str) -> float:
  """Of eight; keys of JSON are texts."""
  curves = run[f'{split}_best'], run[f'sft_{split}_best']
  own, before = ({int(k): v for k, v in c.items()} for c in curves)
  return own[8] - before[8]


CLAIMS: claims.Claims = {
  'table 1: RL learns, held-in (reward)': lambda r: _learned(r[BASE]),
  'table 1: and held-out (reward)': lambda r: _learned(r[BASE], 'heldout'),
  'figure 9: best of 8 after RL above before, held-in (gain)': lambda r: _best(
    r[BASE], 'heldin'
  ),
  'figure 9: and held-out (gain)': lambda r: _best(r[BASE], 'heldout'),
  'figure 4: step-wise learns faster than episode-wise (reward a minute of RL)': (
    lambda r: (
      60 * _learned(r[BASE]) / r[BASE]['rl_s']
      - 60 * _learned(r['episode-wise']) / r['episode-wise']['rl_s']
    )
  ),
  'figure 4: and ends higher after as many steps (reward)': _over(
    'episode-wise'
  ),
  'table 2: the size of a gain matters (reward)': _over('binary reward'),
  'table 2: the format reward matters (reward)': _over('no format reward'),
  'table 2: the corner-case reward matters (reward)': _over('no corner reward'),
  'figure 6: all tasks beat half, held-out (reward)': _over(
    'half of the tasks', 'heldout'
  ),
  'figure 6: half of the tasks beat none, held-out (reward)': lambda r: (
    _learned(r['half of the tasks'], 'heldout')
  ),
  'figure 9: 768 states beat 256, each once (reward)': _over('fewer states'),
  'table 10: thought helps (reward)': _over('without thought'),
}


def table(result: dict[str, Any]) -> str:
  """Markdown: the policy before RL, the arms, then the claims."""
  rows = result['rows']
  lines = [
    f'| arm | {" | ".join(name for name, _ in COLUMNS.values())} |',
    '|' + '---|' * (1 + len(COLUMNS)),
    _line('before RL', rows[0], 'sft_'),
    *(_line(row['arm'], row) for row in rows),
    '',
    *claims.table(CLAIMS, rows),
  ]
  return '\n'.join(lines)


def _line(name: str, row: dict[str, Any], of: str = '') -> str:
  cells = [
    '-' if of and key == 'rl_s' else cell(row, of + key, digits)
    for key, (_, digits) in COLUMNS.items()
  ]
  return f'| {name} | {" | ".join(cells)} |'


def plot(rows: Sequence[dict], path: pathlib.Path) -> None:
  """Held-out reward by arm, best@K before and after, reward over updates."""
  import matplotlib

  matplotlib.use('Agg')
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(1, 3, figsize=(13, 4))
  names = [row['arm'] for row in rows]
  for offset, split in ((-0.2, 'heldin'), (0.2, 'heldout')):
    means = [
      np.mean([r[f'{split}_reward'] for r in row['runs']]) for row in rows
    ]
    axes[0].barh(np.arange(len(rows)) + offset, means, 0.4, label=split)
    for of, style in (('', '-'), ('sft_', '--')):
      curves = [r[f'{of}{split}_best'] for r in rows[0]['runs']]
      ks = sorted(map(int, curves[0]))
      best = [np.mean([{int(k): v for k, v in c.items()}[n] for c in curves])
              for n in ks]  # fmt: skip
      label = f'{split}, {"before" if of else "after"} RL'
      axes[1].plot(ks, best, style, marker='o', label=label)
  axes[0].set_yticks(range(len(rows)), names, fontsize=7)
  axes[0].set_xlabel('reward of a step')
  axes[0].set_xlim(0, 0.8)  # room for the legend
  axes[1].set_xlabel('K')
  axes[1].set_ylabel('best@K, relative gain')
  axes[1].set_xscale('log', base=2)
  for row in rows:
    curve = np.nanmean(np.array([r['reward'] for r in row['runs']], float), 0)
    axes[2].plot(smooth(curve), label=row['arm'])
  axes[2].set_xlabel('updates')
  axes[2].set_ylabel('reward that it is trained on')
  for axis in axes:
    axis.legend(fontsize=6)
  figure.tight_layout()
  figure.savefig(path)


if __name__ == '__main__':
  main(sys.modules[__name__], name='ml_agent_claims', seeds=3, updates=24)
