"""Evaluation from the starter: what counts, and against what."""

from __future__ import annotations

import pathlib
import types as stubs

import pytest

from configs import common
from jaxagent import evaluation
from jaxagent.data.records import state_from_json
from jaxagent.envs.parser import format_response
from jaxagent.envs.step_env import StepResult
from jaxagent.envs.tasks import load_task
from jaxagent.loops import evaluate, host, starts
from jaxagent.types import Outcome
from tests.loops.test_kept import STATE

LOOK = format_response({}, 'List Files', {'dir_path': '.'})


class _IdlePolicy:
  """Lists files, whatever it is shown."""

  def sample(self, states, ids, seeds):
    return [LOOK] * len(states)

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
    env=stubs.SimpleNamespace(step=_idle_step),
    spec=lambda name: load_task(name, root),
    stop=host.StopFlag(),
  )


def _starts():
  state = state_from_json(STATE)
  return {'wine': starts.Start(state, 0.61), 'digits': starts.Start(state, 0.8)}


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
