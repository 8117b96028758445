"""METRICS promises what is logged, and everything that is logged is in it."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from configs import common
from jaxagent import metrics, types
from jaxagent.data.batching import pack_conversations
from jaxagent.recipes.solutions import operators, workflow
from jaxagent.rollout.scheduler_stats import Stats
from jaxagent.training import traces, validation, weighting
from tests import made
from tests.learner.conftest import make_samples
from tests.learner.test_learner import _learner

PACKAGE = pathlib.Path(__file__).parents[2] / 'jaxagent'


def _step() -> types.Sample:
  record = made.step(
    queue_s=0.1, startup_s=0.1, cpu_s=0.1, is_edit=True, diff='+a', tier='T2'
  )
  return dataclasses.replace(make_samples(1)[0], record=record)


@pytest.fixture(scope='module')
def computed(model_config) -> set[str]:
  """Names that the producers of metrics really give."""
  names = set()
  in_reward = {'kl_in': 'reward', 'kl_kind': 'k1'}
  for options in ({}, in_reward | {'entropy_coef': 0.01}):
    learner = _learner(model_config, **options)
    names |= set(learner.rl_update(make_samples(8)))
  batches = pack_conversations(
    [(np.arange(9), np.arange(9) > 3)],
    row_tokens_buckets=(64,),
    max_tokens=4096,
  )
  names |= set(_learner(model_config).sft_step(batches))
  names |= set(Stats(0.0, slots=2).snapshot(1.0, [], 0, 0.0, bound=1))
  names |= set(traces.metrics([_step()], update=0))
  records = [made.solution(score_after=s, tier='T2') for s in (0.5, None)]
  names |= set(workflow.figures(records))
  of_each = [
    made.solution(
      operator=name, score_after=0.5, parent_score=0.4, start=0.2, best=0.9
    )
    for name in types.OPERATORS
  ]
  names |= set(operators.figures(of_each, {'wine': 0.1}))
  turns = traces.records([_step()], update=1)
  names |= set(validation.figures(turns, (turns[0].prompt_id,), samples=1))
  return names | set(weighting.step_weights(common.base().rl, [_step()])[1])


def test_all_that_is_logged_is_listed(computed):
  metrics.check_names(computed)


def test_all_that_is_listed_is_logged(computed):
  """By a producer's result, or by a name written where it is logged."""
  written = set()
  for path in PACKAGE.rglob('*.py'):
    if path.name != 'metrics.py' and 'report' not in path.parts:
      written |= set(re.findall(r"'([a-z_]+/[a-z0-9_/]+)'", path.read_text()))
  listed = {name for name in metrics.METRICS if not name.endswith('/')}
  unlogged = sorted(listed - computed - written)
  assert not unlogged, f'take out of METRICS, or log: {unlogged}'
  for prefix in set(metrics.METRICS) - listed:
    assert any(name.startswith(prefix) for name in computed), prefix
