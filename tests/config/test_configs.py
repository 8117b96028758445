"""Every experiment's variants are valid, and say what differs."""

import pytest

from configs import evaluate, ml_agent, rl_for_mle, sft, stepwise_ppo
from jaxagent.config import checks, rules


def _leaves(variant: str) -> dict:
  return dict(checks.leaves(ml_agent.get_config(variant)))


@pytest.mark.parametrize('size', ['', '-tiny'])
@pytest.mark.parametrize('name', ml_agent.COMPARED)
def test_a_comparison_differs_in_what_it_compares(name, size):
  base, found = _leaves(f'stepwise{size}'), _leaves(f'{name}{size}')
  wanted = dict(ml_agent.COMPARED[name])
  if size and name in ('fewer-states', 'more-states'):
    states, updates = ml_agent._TINY_STATES[f'{name}-tiny']
    wanted |= {'rl.states': states, 'rl.updates': updates}
    wanted = {key: value for key, value in wanted.items() if value != base[key]}
  places = ('name', 'variant', 'work_dir')
  assert {
    key: value
    for key, value in found.items()
    if value != base[key] and key not in places
  } == wanted
  assert found['variant'] == f'{name}{size}'
  # The paper's own need a model and endpoints; the small ones run as they are.
  stages = ('config', 'run') if size else ('config',)
  assert rules.complaint(ml_agent.get_config(f'{name}{size}'), stages) == ''


@pytest.mark.parametrize(
  'module, variants',
  [
    (stepwise_ppo, ('tiny', 'qwen2.5-7b')),
    (ml_agent, ('collect', 'sft', 'evaluate')),
    (rl_for_mle, ('tiny', 'qwen2.5-3b')),
    (sft, ('',)),
    (evaluate, ('',)),
  ],
)
def test_the_others_are_valid(module, variants):
  for variant in variants:
    assert rules.complaint(module.get_config(variant), ('config',)) == ''
    assert f'{variant or "tiny"}' in module.__doc__ or not variant
