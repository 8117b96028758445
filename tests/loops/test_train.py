"""A completion becomes a sample, with all that the learner reports of it."""

import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import types
from jaxagent.data import codec
from jaxagent.envs.step_env import StepResult
from jaxagent.learner import figures
from jaxagent.loops import train
from jaxagent.loops.errors import MachineryError
from jaxagent.rollout.records import StalledError, Work

STATE = types.State('s0', 'task', {'train.py': ''}, 0.5, 0.5)


def _step(state, text, *, split, job_id):
  return StepResult(
    types.Outcome.OK, 'List Files', {}, False, True, state, None, 0.5, '.'
  )


def _sample(name: str, finish_reason: str) -> types.Sample:
  host = stubs.SimpleNamespace(
    config=common.base(),
    env=stubs.SimpleNamespace(step=_step),
    spec=lambda task: stubs.SimpleNamespace(alpha=1.0, exposed=''),
  )
  policy = stubs.SimpleNamespace(text=lambda completion: 'text')
  ids, logprobs = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)
  completion = types.Completion(
    name, ids, ids, logprobs, ((0, 0, 4),), finish_reason
  )
  work = Work(types.Prompt(name, name, STATE), completion)
  return train.Runner(host, policy)(work).sample


def test_a_response_cut_at_its_limit_counts_as_clipped():
  samples = [_sample('a', 'length'), _sample('b', 'stop'), _sample('c', 'stop')]
  # Kept in a checkpoint in between, as what is carried over.
  samples = [codec.decode(codec.encode(s)) for s in samples]
  table = np.ones((3, 4), np.float32)
  names = ('mask', 'rewards', 'old_logp', 'behaviour_logprobs')
  token = dict.fromkeys(('token_rewards', 'advantages', 'returns'), table)
  found = figures.data_metrics(
    samples, dict.fromkeys(names, table), token, critic=False
  )
  assert found['response_length/clip_ratio'] == pytest.approx(1 / 3)


def test_a_stall_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
  closed = []

  def stall(*parts):
    raise StalledError('nothing has moved for 300.0 s.')

  scheduler = stubs.SimpleNamespace(close=lambda: closed.append(True))
  monkeypatch.setattr(train, '_scheduler', lambda *parts: scheduler)
  monkeypatch.setattr(train, '_resume', lambda *parts: (3, {}))
  monkeypatch.setattr(train, '_loop', stall)
  engine = stubs.SimpleNamespace(update_weights=lambda params, version: None)
  with pytest.raises(
    MachineryError, match='moved for 300.0 s.*same command.*checkpoint'
  ):
    train.run(
      stubs.SimpleNamespace(config=common.base(), work=tmp_path),
      {},
      stubs.SimpleNamespace(policy_params=None),
      stubs.SimpleNamespace(engine=engine),
    )
  assert closed
