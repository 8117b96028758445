"""Memory and collectives of large runs, compiled without devices (docs/scaling.md).

  bash launch_scripts/plan_env.sh
  .venv-plan/bin/python -m benchmarks.compiled_plans [--only PART] [--json]

Runs `python -m jaxagent.plan --target=...` once for each of PLANS, or for those whose
name has PART; `--json` keeps them, each beside those that are kept already, in
`benchmarks/results/compiled_plans.json`. Compiling takes minutes a plan on two cores.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks import machine

ROOT = pathlib.Path(__file__).parents[1]
PLANS = (
  ('configs/stepwise_ppo.py:qwen2.5-7b', 'a100:1x1x8'),
  ('configs/stepwise_ppo.py:qwen2.5-7b', 'h100:1x2x8'),
  ('configs/stepwise_ppo.py:qwen2.5-7b', 'v5p:2x2x2'),
  ('configs/rl_for_mle.py:qwen2.5-3b', 'a100:1x1x8'),
  ('configs/ml_agent.py:stepwise', 'a100:1x1x8'),
)
_NAME = 'compiled_plans'


def compiled(config: str, target: str) -> dict[str, Any]:
  """The plan as `jaxagent.plan --json` has it. Raises RuntimeError where it is refused."""
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / 'plan.json'
    done = subprocess.run(
      [sys.executable, '-m', 'jaxagent.plan', f'--config={config}',
       f'--target={target}', f'--json={file}'],
      cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not file.exists():
      raise RuntimeError(f'{config} for {target}: {done.stderr.strip()[-500:]}')
    return json.loads(file.read_text())


def table(result: dict[str, Any]) -> str:
  """A row for each plan: its largest program, the policy's gradients, the verdict."""
  rows = [
    '| config | target | tokens a device | gradients of the policy, GB '
    '| their collectives, GB | worked out, GB | products / model | fullest moment, GB '
    '| usable, GB | fits |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for plan in result['plans']:
    programs = plan['programs']
    grads = programs['policy_grads']
    most = max(programs.values(), key=lambda one: one['total_gb'])
    kinds = ', '.join(
      f'{kind} {size:.1f}'
      for kind, size in sorted(grads['collectives_gb'].items())
      if size >= 0.05
    )
    rows.append(
      f'| `{plan["config"]}` | {plan["target"]} | {plan["row_tokens"]:,} '
      f'| {grads["memory_gb"]:.1f} | {kinds} | {grads["analytic_gb"]:.1f} '
      f'| {grads["products_over_model"]:.2f} | {most["total_gb"]:.1f} '
      f'| {plan["room_gb"]:.1f} | {"yes" if plan["fits"] else "no"} |'
    )
  return '\n'.join(rows)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--only', default='', help='part of a config or target')
  parser.add_argument('--json', action='store_true', help='keep the result')
  arguments = parser.parse_args()
  path = machine.RESULTS / f'{_NAME}.json'
  kept = json.loads(path.read_text())['plans'] if path.exists() else []
  plans = {(plan['config'], plan['target']): plan for plan in kept}
  for config, target in PLANS:
    if arguments.only in f'{config} {target}':
      plans[config, target] = compiled(config, target)
      print(table({'plans': [plans[config, target]]}), flush=True)
      if arguments.json:
        kept = [plans[key] for key in PLANS if key in plans]
        machine.save(_NAME, {'plans': kept})


if __name__ == '__main__':
  main()
