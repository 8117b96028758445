"""The recipe of whole solutions: its calls, its credits, what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from configs import rl_for_mle
from jaxagent import types
from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution import Task
from jaxagent.instrumentation import language_model
from jaxagent.interactions import POLICY, Execute, Generate, RolloutState
from jaxagent.metrics import check_names
from jaxagent.options import as_dict
from jaxagent.recipes.solutions.workflow import INSTRUMENTER, SolutionWorkflow
from tests import made

CODE = 'import numpy\n'
RESPONSE = f'A plan.\n```python\n{CODE}```\n'
IDS = np.arange(3, dtype=np.int32)


class _Policy:
  """Completions are texts."""

  def text(self, completion) -> str:
    return completion


def _recipe(ask=None, **solution) -> SolutionWorkflow:
  config = rl_for_mle.get_config().unlock()
  config.solution.update(solution)
  shares = as_dict(config.solution.operators) or {'improve': 1.0}
  source = SolutionSource(('t',), operators=shares)
  return SolutionWorkflow(
    config, None, source, lambda task: IDS, _Policy(), ask
  )


def _executed(score=None, outcome=types.Outcome.OK, **fields) -> types.Executed:
  own = dict(
    task='t', response=RESPONSE, score_after=score, tier='T2', observation='out',
    exec_s=2.0,
  ) | fields  # fmt: skip
  return types.Executed(outcome, 2.0, record=made.solution(outcome, **own))


def test_one_completion_and_one_execution():
  walk = RolloutState(_recipe(), Task('t'))
  (call,) = walk.open.values()
  assert isinstance(call, Generate) and call.role == POLICY
  np.testing.assert_array_equal(call.prompt, IDS)
  (call,) = walk.take(0, RESPONSE)
  assert isinstance(call, Execute)
  assert call.request == (Task('t'), RESPONSE, None)
  walk.take(call.call, _executed(0.75))
  assert walk.credits[0].reward == 0.75 and walk.credits[0].exec_s == 2.0


def test_a_frozen_model_is_asked_between_the_two():
  recipe = _recipe(lambda question: types.TextCompletion('its answer'))
  roles = (POLICY, *recipe.frozen_roles)
  assert recipe.frozen_roles[INSTRUMENTER].max_concurrency == 8
  walk = RolloutState(recipe, Task('t'), roles=roles)
  (call,) = walk.take(0, RESPONSE)
  assert (call.role, call.prompt) == (
    INSTRUMENTER, language_model.prompt(CODE),
  )  # fmt: skip
  (call,) = walk.take(call.call, types.TextCompletion('its answer'))
  assert call.request == (Task('t'), RESPONSE, 'its answer')
  failed = _executed(outcome=types.Outcome.SCRIPT_ERROR, milestones=('a', 'b'))
  walk.take(call.call, failed)
  assert set(walk.credits) == {0}  # no other role learns
  assert walk.credits[0].reward == pytest.approx(-9.8)
  # What is no program goes to nobody.
  walk = RolloutState(recipe, Task('t'), roles=roles)
  (call,) = walk.take(0, 'no program')
  assert isinstance(call, Execute)


def _sample(told: types.Executed) -> types.Sample:
  return types.Sample(
    'p', 'g', IDS, IDS, np.ones(3, bool), np.zeros(3, np.float32), 0,
    told.outcome, 0.0, told.exec_s, told.record,
  )  # fmt: skip


@pytest.mark.parametrize('keep_failed', [False, True])
def test_what_may_be_improved_upon(keep_failed):
  recipe = _recipe(keep_failed=keep_failed)
  failed = _executed(outcome=types.Outcome.TIMEOUT, milestones=('a',))
  malformed = _executed(
    outcome=types.Outcome.INVALID_FORMAT, response='words', valid_action=False,
    tier=None,
  )  # fmt: skip
  metrics = recipe.trained([_sample(failed), _sample(malformed)])
  drawn = recipe.source().draw().prompts[0].payload
  assert bool(drawn.previous) == keep_failed
  check_names(metrics)
  assert metrics == {
    'solution/valid_rate': 0.0, 'solution/improve_rate': 0.0,
    'solution/milestones': 0.5, 'solution/refused_rate': 0.0,
    'solution/share/draft': 1.0, 'solution/share/improve': 0.0,
    'solution/share/debug': 0.0, 'solution/share/crossover': 0.0,
    'solution/valid/draft': 0.0,
  }  # fmt: skip
  metrics = recipe.trained([_sample(_executed(0.5, improves='x'))])
  drawn = recipe.source().draw().prompts[0].payload
  assert drawn.previous.solution.code in CODE and drawn.previous.output == 'out'
  assert metrics['solution/score/t'] == 0.5
  assert metrics['solution/improve_rate'] == 1.0


def test_failures_are_mended_and_valid_ones_are_joined():
  recipe = _recipe(operators={'debug': 1})
  failed = _executed(
    outcome=types.Outcome.INVALID_SUBMISSION, message='columns are wrong.'
  )
  malformed = _executed(
    outcome=types.Outcome.INVALID_FORMAT, response='words', valid_action=False
  )
  recipe.trained([_sample(malformed)])
  assert recipe.source().draw().prompts[0].payload.asked == 'debug'
  recipe.trained([_sample(failed)])
  task = recipe.source().draw().prompts[0].payload
  assert task.kind == 'debug' and task.previous.solution.code == CODE
  assert task.previous.outcome == 'invalid_submission'
  assert task.previous.reason == 'columns are wrong.'
  # Mended in vain: the chain goes on.
  again = _executed(
    outcome=types.Outcome.SCRIPT_ERROR, operator='debug',
    improves=task.previous_id, response=RESPONSE.replace('numpy', 'pandas'),
  )  # fmt: skip
  recipe.trained([_sample(again)])
  kept = recipe.source().state_dict()['failed']['kept']
  assert [record[-1] for record in kept] == [1, 2]

  recipe = _recipe(operators={'crossover': 1})
  for name, score in (('numpy', 3.0), ('pandas', 2.0)):
    told = _executed(
      score, response=RESPONSE.replace('numpy', name), higher_is_better=False
    )
    metrics = recipe.trained([_sample(told)])
  assert metrics['solution/new_best/draft'] == 1.0  # lower is better
  assert recipe.source().best('t') == -2.0
  task = recipe.source().draw().prompts[0].payload
  assert task.kind == 'crossover'
  assert {task.previous.score, task.second.score} == {2.0, 3.0}
