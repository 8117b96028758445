"""`--dry_run` and `python -m jaxagent.plan` tell the same memory."""

import pytest

from configs import stepwise_ppo
from jaxagent import plan
from jaxagent.loops import dry_run


def _memory(lines) -> dict[str, str]:
  """role -> what is said of it."""
  rows = (line.split() for line in lines if line.endswith(' GB a device'))
  return {row[0]: row[1] for row in rows}


@pytest.mark.parametrize('variant', ['tiny', 'qwen2.5-7b'])
def test_one_sum_in_both(variant, capsys):
  dry_run.print_plan(stepwise_ppo.get_config(variant))
  dry = _memory(capsys.readouterr().out.splitlines())
  assert plan.main([f'--config=configs/stepwise_ppo.py:{variant}']) == 0
  assert _memory(capsys.readouterr().out.splitlines()) == dry
  parts = sum(float(size) for role, size in dry.items() if role != 'needed')
  assert parts == pytest.approx(float(dry['needed']), abs=0.005)


def test_the_papers_run_needs_what_the_formulas_say():
  found = dry_run.plan_of(stepwise_ppo.get_config('qwen2.5-7b'))
  assert found['need_bytes'] == pytest.approx(41.5e9, abs=0.05e9)
