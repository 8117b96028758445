"""Evaluation from the starter: what counts, and against what."""

from __future__ import annotations

import dataclasses
import pathlib
import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import evaluation, interactions
from jaxagent.data.records import state_from_json
from jaxagent.envs.execution import StartError
from jaxagent.envs.grading import GradeResult
from jaxagent.envs.parser import format_response
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.step_env import StepResult
from jaxagent.envs.tasks import load_task
from jaxagent.loops import evaluate, host, starts, walks
from jaxagent.loops.errors import UserError
from jaxagent.loops.recipes.trajectory import Trajectory
from jaxagent.types import Execution, Outcome
from tests.loops.test_kept import STATE

LOOK = format_response({}, 'List Files', {'dir_path': '.'})


class _IdlePolicy:
  """Lists files, whatever it is shown."""

  def prompt_ids(self, state):
    return np.zeros(1, np.int32)

  def complete(self, prompts, ids, seeds):
    return [LOOK] * len(prompts)

  def text(self, completion):
    return completion


def _idle_step(state, text, *, split, job_id):
  return StepResult(
    Outcome.OK, 'List Files', {}, False, True, state, None, state.score, '.'
  )


@pytest.fixture
def idle_host(tmp_path):
  config = common.base()
  root = pathlib.Path(__file__).parents[2] / 'tasks'
  return stubs.SimpleNamespace(
    config=config,
    work=tmp_path,
    heldin=('wine',),
    heldout=('digits',),
    env=stubs.SimpleNamespace(
      step=_idle_step, act=_idle_step, store=Snapshots(':memory:')
    ),
    spec=lambda name: load_task(name, root),
    stop=host.StopFlag(),
  )


def _starts():
  state = state_from_json(STATE)
  return {'wine': starts.Start(state, 0.61), 'digits': starts.Start(state, 0.8)}


def _walk():
  """One that waits for its first execution."""
  policy = _IdlePolicy()
  recipe = Trajectory(
    policy.prompt_ids, policy.text, max_steps=2, reward=lambda executed: 0.0
  )
  walk = interactions.Progress(recipe, _starts()['wine'].state)
  walk.take(0, LOOK)
  return walk


def test_a_policy_that_does_nothing_gains_exactly_nothing(idle_host):
  made = _starts()
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', made)
  config = idle_host.config.eval
  assert len(records) == 2 * config.trajectories_per_task
  for split in ('heldin', 'heldout'):
    section = evaluation.section(
      evaluate.runs_of(records, split),
      evaluate.scales(idle_host, made),
      k=config.k,
      seed=0,
    )
    for name in ('relative_gain', 'avg_at_k', 'best_at_k'):
      interval = section[name]
      assert [interval[key] for key in ('mean', 'low', 'high')] == [0, 0, 0]
      assert interval['n'] == config.trajectories_per_task
    assert section['mean_reward']['mean'] == 0.5  # and yet it is paid for


def test_scales_are_private_against_private(idle_host):
  scale = evaluate.scales(idle_host, _starts())['wine']
  spec = idle_host.spec('wine')
  assert scale == evaluation.Scale(0.61, spec.m_best_private, False)
  assert spec.m_best_private != spec.m_best


class _Grader:
  """Fails `times` times, then scores."""

  def __init__(self, times: int):
    self.times = times

  def grade(self, task, submission, split):
    assert split == 'private'
    self.times -= 1
    if self.times >= 0:
      return GradeResult(None, Outcome.GRADER_ERROR, 'the worker died')
    return GradeResult(0.9, Outcome.OK, '')


def _better_step(state, text, *, split, job_id):
  execution = Execution(
    job_id, Outcome.OK, 'T2', collected={'submission.csv': b'x'}
  )
  return dataclasses.replace(
    _idle_step(state, text, split=split, job_id=job_id),
    score=0.0,  # wine: lower is better
    execution=execution,
  )


@pytest.mark.parametrize(('times', 'missing'), [(1, ''), (2, 'worker died')])
def test_a_grader_that_fails_is_no_score_of_the_policy(
  idle_host, times, missing
):
  idle_host.env = stubs.SimpleNamespace(
    step=_better_step, store=Snapshots(':memory:')
  )
  idle_host.grader = _Grader(times)
  start = _starts()['wine']
  episode = evaluate.Episode(
    'wine', 0, _walk(), best_valid=0.5, private=start.private
  )

  def act(e, step, suffix):
    return evaluate._act(idle_host, e, f'job-{step}{suffix}')

  walks._attempt(act, episode, 0)
  record = episode.record('heldin')
  assert record['missing'] == bool(missing)
  assert missing in record.get('reason', '')
  assert record['score'] == (None if missing else 0.9)


def test_a_starter_that_cannot_be_graded_says_so(idle_host):
  idle_host.env = stubs.SimpleNamespace(
    step=_better_step, act=_better_step, store=Snapshots(':memory:')
  )
  idle_host.grader = _Grader(1)
  with pytest.raises(UserError, match='wine.*starter.*the worker died'):
    starts._starter_private(idle_host, _starts()['wine'].state)


def test_a_starter_that_fails_is_named(idle_host):
  def broken(task):
    raise StartError(f'task {task}: the starter script gave no score.')

  idle_host.env = stubs.SimpleNamespace(initial_state=broken)
  with pytest.raises(UserError, match='task wine: the starter script gave no'):
    starts.make_starts(idle_host)
