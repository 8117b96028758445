"""Does RL improve the policy? Seeds, and the shuffled-reward control.

  python -m benchmarks.quickstart --seeds 3 [--work_dir DIR] [--json FILE]

For each seed: the tiny variant from start to end; then a control from the
same experts and the same SFT policy, trained on the same rewards given to
the wrong actions. Resumable: finished runs are reused.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.machine import describe, speed_index
from jaxagent.analysis.summary import load
from jaxagent.metrics import read_records

ROOT = pathlib.Path(__file__).parents[1]
# Stages whose results do not depend on the rewards of RL.
SHARED = ('tasks', 'collect', 'snapshots.sqlite', 'tokenizer', 'sft')


def run(
  work: pathlib.Path,
  seed: int,
  extra: Sequence[str] = (),
  log=None,
  compiled: pathlib.Path | None = None,
  config: str = 'configs/stepwise_ppo.py',
) -> None:
  """One run of a config, unless it has finished; output into `log`.

  compiled: JAX's compilation cache; None for none, as a user's first run.
  """
  if (work / 'summary.json').exists():
    return
  subprocess.run(
    [
      sys.executable,
      '-m',
      'jaxagent.main',
      f'--config={config}',
      f'--config.seed={seed}',
      f'--work_dir={work}',
      *extra,
    ],
    cwd=ROOT,
    stdout=log,
    stderr=log,
    check=True,
    env=os.environ | _cache(compiled),
  )


def _cache(folder: pathlib.Path | None) -> dict[str, str]:
  if folder is None:
    return {'JAX_ENABLE_COMPILATION_CACHE': 'false'}
  return {'JAX_COMPILATION_CACHE_DIR': str(folder)}


def seed_control(
  source: pathlib.Path,
  target: pathlib.Path,
  shared: Sequence[str] = SHARED,
) -> None:
  """Gives the control the stages it shares with its run."""
  if target.exists():
    return
  part = target.with_suffix('.part')
  shutil.rmtree(part, ignore_errors=True)
  part.mkdir(parents=True)
  for name in shared:
    copy = shutil.copytree if (source / name).is_dir() else shutil.copy
    copy(source / name, part / name)
  (part / 'eval').mkdir()
  for name in ('starts.json', 'sft.json'):
    shutil.copy(source / 'eval' / name, part / 'eval' / name)
  part.rename(target)


def edits(path: pathlib.Path) -> dict:
  """Distribution of the estimators that a policy's edits ask for."""
  counts: collections.Counter[str] = collections.Counter()
  for record in json.loads(path.read_text()):
    for step in record['steps']:
      found = re.search(r'"edit_instruction": "([^"]*)', step['response'])
      if found:
        names = re.findall(r'\b[A-Z]\w*[a-z][A-Z]\w*', found.group(1))
        counts[names[0] if names else 'other'] += 1
  total = sum(counts.values())
  shares = {k: v / total for k, v in counts.most_common()} if total else {}
  return {
    'edits': total,
    'distinct': len(shares),
    'entropy_nats': -sum(p * math.log(p) for p in shares.values()),
    'top': dict(list(shares.items())[:8]),
  }


def figures(work: pathlib.Path) -> dict:
  """What the claim rests on, of one finished run."""
  summary = load(work / 'summary.json')
  records = read_records(work / 'logs' / 'metrics.jsonl')
  names = ('actor/entropy', 'actor/kl_loss', 'critic/score/mean')
  return {
    'policies': {p: summary[p] for p in ('starter', 'sft', 'rl')},
    'wall_s': summary['wall_s'],
    'outcomes': summary['outcomes'],
    'behaviour': summary['behaviour'],
    'evaluation': summary['evaluation'],
    'tier': summary['isolation_tier'],
    'stand_ins': summary['stand_ins'],
    'first_update': {n: records[0].get(n) for n in names},
    'last_update': {n: records[-1].get(n) for n in names},
    'edits': {p: edits(work / 'eval' / f'{p}.json') for p in ('sft', 'rl')},
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--seeds', type=int, default=3)
  parser.add_argument('--work_dir', default='workdir/benchmark_quickstart')
  parser.add_argument('--json', default='benchmarks/results/quickstart.json')
  options = parser.parse_args()
  base = pathlib.Path(options.work_dir).resolve()
  machine = {**describe(), 'speed_index': speed_index()}
  result: dict[str, Any] = {'machine': machine, 'seeds': {}, 'control': {}}
  for seed in range(options.seeds):
    own, control = base / f'seed{seed}', base / f'control{seed}'
    run(own, seed)
    seed_control(own, control)
    run(control, seed, ('--config.rl.shuffle_rewards=True',))
    result['seeds'][str(seed)] = figures(own)
    result['control'][str(seed)] = figures(control)
    path = pathlib.Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1))
    for name, work in (('rl', own), ('control', control)):
      for split in ('heldin', 'heldout'):
        part = load(work / 'summary.json')
        sft, rl = (part[p][split]['mean_reward'] for p in ('sft', 'rl'))
        print(
          f'seed {seed} {name:8} {split:8} sft {sft["mean"]:.3f} '
          f'[{sft["low"]:.3f}, {sft["high"]:.3f}] rl {rl["mean"]:.3f} '
          f'[{rl["low"]:.3f}, {rl["high"]:.3f}]'
        )


if __name__ == '__main__':
  main()
