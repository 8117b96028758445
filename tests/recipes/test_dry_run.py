"""`--dry_run`: the stages of each loop, and memory as `jaxagent.plan` tells it."""

import importlib
import json
import pathlib

import pytest

from configs import rl_for_mle, stepwise_ppo
from jaxagent import plan
from jaxagent.recipes import dry_run
from tests.tasks import published

COMPILED = (
  pathlib.Path(__file__).parents[2]
  / 'benchmarks'
  / 'results'
  / 'compiled_plans.json'
)


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


def _stages(config) -> str:
  return '\n'.join(dry_run._stages(config, ('a', 'b'), ('c',)))


def test_a_task_that_asks_for_more_than_a_limit_is_named(tmp_path):
  for name, hours in (('short', 0.001), ('long', 9)):
    published.write(tmp_path, name, limits={'hours': hours})
  config = stepwise_ppo.get_config('tiny').unlock()
  config.tasks_dir = str(tmp_path)
  config.eval.hours = 8.0
  found = dry_run._too_short(config, ['short', 'long'])
  keys = [line.split('=')[0].split()[-1] for line in found]
  assert keys[0] == 'config.sandbox.timeout_s'
  assert {
    'config.collect.time_limit_s',
    'config.eval.time_limit_s',
    'config.eval.hours',
  } < {*keys}
  assert 'short 3.6 s, long 32400 s' in found[0]
  assert all('short' not in line for line in found[1:])
  config.sandbox.timeout_s = 0.0  # each task's own
  assert 'sandbox' not in ''.join(dry_run._too_short(config, ['short']))


def test_a_search_has_stages_of_its_own():
  config = rl_for_mle.get_config()
  config.recipe = 'tree_search'
  config.search.runs, config.search.steps = 4, 10
  said = _stages(config)
  assert '2 samples    none' in said
  assert '3 search     12 searches of 10 programs each' in said
  assert "120 programs by the work directory's policy" in said
  for stage in ('collect', 'sft', ' rl ', 'evaluate', 'expert'):
    assert stage not in said
  config.writer.kind, config.writer.model = 'openai', 'some-model'
  config.writer.samples = 5
  said = _stages(config)
  assert '15 solutions from scratch, 15 improved' in said
  assert 'by some-model behind an endpoint' in said


def test_the_plan_shows_sft_of_whole_solutions_where_it_runs():
  config = rl_for_mle.get_config()
  assert '3 sft        2 epochs' in _stages(config)
  config.solution.programs = 0
  assert '3 sft        none' in _stages(config)
  config.sft.conversations = 'talks.jsonl'
  said = _stages(config)
  assert (
    '3 sft        2 epochs' in said and 'conversations of talks.jsonl' in said
  )


def test_the_papers_run_needs_what_the_formulas_say():
  found = dry_run.plan_of(stepwise_ppo.get_config('qwen2.5-7b'))
  assert found['need_bytes'] == pytest.approx(41.8e9, abs=0.05e9)


@pytest.mark.parametrize(
  'number', range(len(json.loads(COMPILED.read_text())['plans']))
)
def test_formulas_are_within_a_tenth_of_what_was_compiled(number):
  made = json.loads(COMPILED.read_text())['plans'][number]
  file, _, variant = made['config'].partition(':')
  config = importlib.import_module(
    file.removesuffix('.py').replace('/', '.')
  ).get_config(variant)
  config.mesh.update(made['mesh'])
  family = made['target'].split(':')[0]
  device = family if family in plan.PEAK_FLOPS else f'tpu-{family}'
  need = dry_run.plan_of(config, device=device)['need_bytes']
  fullest = max(one['total_gb'] for one in made['programs'].values())
  assert need / 1e9 == pytest.approx(fullest, rel=0.1)
