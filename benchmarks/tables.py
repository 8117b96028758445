"""Writes the documentation's tables from `benchmarks/results/*.json`.

  python -m benchmarks.tables

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; what
lies between is replaced. `tests/test_docs.py` holds the pages to it.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

from benchmarks import (
  async_core,
  best_of,
  compiled_plans,
  decode,
  decode_bandwidth,
  duration_ablation,
  duration_bias,
  engines,
  first_page,
  ideator_claims,
  intervals,
  learner_against,
  learner_step,
  machine,
  mesh_memory,
  ml_agent_claims,
  rl_for_mle_claims,
  search_rules,
  shared_prompts,
  staleness,
  weight_sync,
)

ROOT = pathlib.Path(__file__).parents[1]
PAGES = (
  'README.md',
  'docs/best_of.md',
  'docs/duration_aware.md',
  'docs/ideator.md',
  'docs/learner.md',
  'docs/ml_agent.md',
  'docs/rl_for_mle.md',
  'docs/rollout.md',
  'docs/scaling.md',
  'docs/summary.md',
)
BLOCK = re.compile(
  r'(<!-- table: ([\w ]+) -->\n).*?(<!-- end of table -->)', re.DOTALL
)
# By name: the benchmarks whose results are read, and what makes a table of them.
TABLES: dict[str, tuple[str, Callable[..., str]]] = {
  'first page': (
    'quickstart async_core decode learner_step kill_resume',
    first_page.bullets,
  ),
  'seeds': ('quickstart', first_page.seeds_table),
  'throughput': ('async_core', async_core.targets_table),
  'bounds': ('async_core', async_core.bounds_table),
  'who enters': ('duration_bias', duration_bias.shares_table),
  'bias': (
    'duration_bias',
    lambda result: duration_bias.table(result, timeouts=('p95',)),
  ),
  'compiled plans': ('compiled_plans', compiled_plans.table),
  'mesh memory': ('mesh_memory', mesh_memory.table),
  'decode': ('decode', decode.table),
  'intervals': ('intervals', intervals.table),
  'best of digits': ('best_of', lambda r: best_of.table(r, 'digits')),
  'best of diabetes': ('best_of', lambda r: best_of.table(r, 'diabetes')),
  'bandwidth': ('decode_bandwidth', decode_bandwidth.table),
  'learner step': ('learner_step', learner_step.table),
  'learner against': ('learner_against', learner_against.table),
  'search rules': ('search_rules', search_rules.table),
  'shared prompts': ('shared_prompts', shared_prompts.table),
  'engines': ('engines', engines.table),
  'ablation': ('duration_ablation', duration_ablation.table),
  'staleness': ('staleness', staleness.table),
  'ml agent': ('ml_agent_claims', ml_agent_claims.table),
  'ideator claims': ('ideator_claims', ideator_claims.table),
  'whole solutions': ('rl_for_mle_claims', rl_for_mle_claims.table),
  'weight sync': ('weight_sync', weight_sync.table),
}


def fill(text: str) -> str:
  """The page with its tables as the results have them.

  Raises:
    KeyError: a name that is not in TABLES.
    FileNotFoundError: its benchmark has no result.
  """

  def replace(match: re.Match) -> str:
    benchmarks, make = TABLES[match[2]]
    table = make(*map(_result, benchmarks.split()))
    return f'{match[1]}{table.strip()}\n{match[3]}'

  return BLOCK.sub(replace, text)


def _result(benchmark: str) -> dict[str, Any]:
  return json.loads((machine.RESULTS / f'{benchmark}.json').read_text())


def main() -> None:
  for page in PAGES:
    path = ROOT / page
    path.write_text(fill(path.read_text()))


if __name__ == '__main__':
  main()
