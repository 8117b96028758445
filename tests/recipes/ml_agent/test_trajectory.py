"""Actions in turn: when a trajectory ends, and what each answer is worth."""

import dataclasses
import math
import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import types
from jaxagent.interactions import Execute, Generate, RolloutState, rows
from jaxagent.recipes.ml_agent.episodewise import EpisodewiseWorkflow
from jaxagent.recipes.ml_agent.trajectory import Action, Trajectory
from jaxagent.recipes.starts import Start
from tests import made

START = types.State('s0', 'task', {'train.py': ''}, 0.5, 0.5)


def _next(number: int) -> types.State:
  return types.State(f's{number}', 'task', {'train.py': ''}, 0.5, 0.5)


def _executed(number: int, last: bool = False) -> types.Executed:
  state = None if last else _next(number + 1)
  return types.Executed(
    types.Outcome.OK, 1.0 + number, state, record=made.step(step=number)
  )


def _completion(call: Generate) -> types.Completion:
  ids = np.array([7, 8], np.int32)
  return types.Completion(
    'r', call.prompt, ids, np.zeros(2, np.float32), ((0, 0, 2),), 'stop'
  )


def _prompt(state: types.State) -> np.ndarray:
  return np.array([1, int(state.state_id[1:])], np.int32)


def _walk(max_steps: int, final: int | None = None, **limits) -> RolloutState:
  """Drives one whose answer number `final` is its last by itself."""
  recipe = Trajectory(
    _prompt,
    lambda completion: 'text',
    max_steps=max_steps,
    **limits,
    reward=lambda executed: 0.1 * executed.record.step,
  )
  walk, n = RolloutState(recipe, START), 0
  while not walk.finished:
    (call,) = walk.open.values()
    if isinstance(call, Generate):
      walk.take(call.call, _completion(call))
    else:
      assert isinstance(call, Execute)
      action = call.request
      assert (action.state.state_id, action.response) == (f's{n}', 'text')
      assert [one.record.step for one in action.before] == list(range(n))
      # Executions took 1, 2, 3, ... seconds until here.
      assert (
        action.left_s == limits.get('time_limit_s', math.inf) - n * (n + 1) / 2
      )
      walk.take(call.call, _executed(n, last=n == final))
      n += 1
  return walk


@pytest.mark.parametrize(
  'max_steps, final, steps', [(1, None, 1), (1, 0, 1), (4, None, 4), (4, 2, 3)]
)
def test_it_ends_with_the_final_answer_or_the_last_step(
  max_steps, final, steps
):
  walk = _walk(max_steps, final)
  credits = walk.credits
  assert sorted(credits) == [2 * i for i in range(steps)]
  for i in range(steps):
    assert credits[2 * i].reward == pytest.approx(0.1 * i)
    assert credits[2 * i].exec_s == 1.0 + i
  made = rows(types.Prompt('p', 'p', START), walk.completions, credits)
  # Each prompt is built anew from its state: a row for each step.
  assert [r.prompt_ids.tolist() for r in made] == [[1, i] for i in range(steps)]
  total = sum(r.reward for r in made)
  assert made[0].reward + made[0].later_reward == pytest.approx(total)


def test_a_frozen_role_speaks_text_and_has_no_credit():
  recipe = Trajectory(
    lambda state: state, lambda said: said, max_steps=2, role='expert'
  )
  walk = RolloutState(recipe, START, roles=('expert',))
  (execute,) = walk.take(0, 'a response')
  assert execute.request == Action(START, 'a response', 'a response')
  assert not walk.take(execute.call, _executed(0, last=True))
  assert walk.finished and walk.credits == {}


@pytest.mark.parametrize(
  'limit, steps', [(0.5, 1), (1.0, 1), (3.5, 3), (99, 4)]
)
def test_it_ends_once_its_executions_have_taken_the_time(limit, steps):
  # They take 1, 2, 3, ... seconds.
  assert len(_walk(4, time_limit_s=limit).credits) == steps


def test_whole_trajectories_start_from_the_starters():
  """An epoch fills a batch; each step has its reward and those after it."""
  config = common.base()
  config.rl.batch_size = 6
  config.episode.max_steps = 3
  policy = stubs.SimpleNamespace(
    prompt_ids=_prompt, text=lambda completion: 'x'
  )
  starts = {
    name: Start(dataclasses.replace(START, task=name), 0.5) for name in 'ab'
  }
  recipe = EpisodewiseWorkflow(
    stubs.SimpleNamespace(config=config), starts, policy
  )
  source = recipe.source()
  assert source.size == 6
  tasks = [source.draw().prompts[0].payload.task for _ in range(6)]
  assert sorted(tasks) == ['a', 'a', 'a', 'b', 'b', 'b']
  recipe._reward = lambda executed: 1.0 + executed.record.step
  walk = RolloutState(recipe, START)
  for n in range(3):
    walk.take(2 * n, _completion(walk.open[2 * n]))
    walk.take(2 * n + 1, _executed(n))
  prompt = types.Prompt('0/0/0', '0/0', START)
  found = rows(prompt, walk.completions, walk.credits)
  assert [(s.reward, s.later_reward) for s in found] == [(1, 5), (2, 3), (3, 0)]
