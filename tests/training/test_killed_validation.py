"""The loop of RL with validations, ended at any moment and started again.

Learner, engine and executions are doubles; scheduler, journals, checkpoints, metrics
and traces are the real ones. `tests/recipes/test_validation_run.py` kills processes.
"""

import random
import threading
import types as stubs
from collections import Counter

import numpy as np
import pytest

from configs import common
from jaxagent import audit, types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.data.prompts import PromptSource
from jaxagent.interactions import Credit, Execute, Generate, Transition
from jaxagent.metrics import MetricWriter, read_records
from jaxagent.records import StepRecord
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import rl, validation
from jaxagent.training.policy import seed_of
from tests import made

UPDATES, BATCH = 6, 4


class Killed(BaseException):
  """Ends a run at a moment of the test's choice."""


class Moments(StopFlag):
  """Counts moments; ends the run at the `at`-th, if at all."""

  def __init__(self, at=None):
    super().__init__(within_s=None)
    self.at, self.count = at, 0
    self.counting = threading.Lock()  # a checkpoint's thread counts, too

  def check(self, saved=None):
    with self.counting:
      self.count += 1
      reached = self.count == self.at
    if reached:
      raise Killed(saved)


class Learner:
  """One weight, which grows by the samples' tokens and rewards."""

  def __init__(self):
    self.w = np.zeros(1)

  @property
  def policy_params(self):
    return float(self.w[0])

  def rl_update(self, samples, weights, update):
    rewards = [s.reward for s in samples]
    tokens = [int(s.token_ids[0]) for s in samples]
    self.w = self.w + np.dot(rewards, tokens) % 1.0
    return {'critic/score/mean': float(np.mean(rewards))}

  def state(self):
    return {'w': self.w}

  def shapes(self):
    return self.state()

  def let_go(self):
    pass

  def misfit(self, state):
    return ''

  def load_state(self, tree):
    self.w = np.asarray(tree['w'])

  def host_state(self):
    return {}

  def load_host_state(self, state):
    pass


class Engine:
  """Answers at once with a token that depends on weight and seed."""

  def update_weights(self, params, version):
    self.params, self.version = params, version

  def submit(self, requests, *, put):
    for request in requests:
      token = seed_of(request.seed, f'{self.params:.9f}') % 50 + 1
      put(
        types.Completion(
          request.request_id,
          request.prompt_ids,
          np.array([token], np.int32),
          np.zeros(1, np.float32),
          ((self.version, 0, 1),),
          'stop',
        )
      )

  def discard(self, ids):
    pass


class Workflow:
  """A completion, whose token is the score of its execution."""

  name, record_type, frozen_roles = 'ours', StepRecord, {}

  def __init__(self, jobs):
    self.jobs = jobs

  def start(self, payload):
    return Transition(payload, (Generate(0, np.ones(1, np.int32)),))

  def advance(self, state, call, result):
    if isinstance(call, Generate):
      return Transition(state, (Execute(1, int(result.token_ids[0])),))
    record = result.record
    credit = Credit(record.derive(), 1.0, result.outcome, record)
    return Transition(None, credits={0: credit})

  def source(self):
    return PromptSource(list(range(8)), seed=0)

  def validation_prompts(self):
    return {'a': 0, 'b': 1}

  def request(self, ask):
    seed = seed_of(0, 'rl', ask.key)
    return types.Request(str(ask.key), ask.call.prompt, seed)

  def execute(self, work):
    self.jobs[str(work.key)] += 1
    score = 0.5 + work.call.request / 100
    fields = dict(is_edit=True, score_before=0.5, alpha=1.0)
    record = made.step(score_after=score, **fields)
    return types.Executed(record.outcome, 1.0, record=record)

  def trained(self, samples):
    return {}


def _config(rest):
  config = common.base()
  config.update(
    {
      'rl': {
        'updates': UPDATES,
        'batch_size': BATCH,
        'rest': rest,
        'weighting': 'none',
        'checkpoint_every': 2,
        'keep_checkpoints': 1,
        'validate_every': 3,
        'validate_samples': 2,
        'keep_best': True,
      }
    }
  )
  return config


def _sitting(work, jobs, at=None, rest='wait') -> Moments:
  """Runs until the end, or the `at`-th moment."""
  moments = Moments(at)
  host = made.Host(
    config=_config(rest),
    work=work,
    stop=moments,
    pool=stubs.SimpleNamespace(cancel=lambda job: None),
  )
  with pytest.MonkeyPatch.context() as patch:
    for owner, name in (
      (validation, '_write'),
      (validation.Validator, 'run'),
      (MetricWriter, 'write'),
      (rl.Saver, 'save'),
      (CheckpointManager, 'save'),  # in a thread, beside the next update
      (CheckpointManager, 'remove_old'),
    ):
      patch.setattr(owner, name, _between(moments, getattr(owner, name)))
    policy = stubs.SimpleNamespace(engine=Engine(), tokenizer=made.TOKENIZER)
    rl.run(host, Workflow(jobs), Learner(), policy)
  return moments


def _between(moments, made):
  """Returns a function with a moment before it and one after it."""

  def call(*given, **named):
    moments.check()
    result = made(*given, **named)
    moments.check()
    return result

  return call


def _result(work) -> dict:
  """What a run came to, without clocks."""
  checkpoints = CheckpointManager(work / 'rl' / 'checkpoints')
  names = ('step', 'critic/score/mean', validation.REWARD)
  records = read_records(work / 'logs' / 'metrics.jsonl')
  last = checkpoints.restore_latest({'w': np.zeros(1)})
  best = checkpoints.best_step()
  return {
    'metrics': [{n: r[n] for n in names if n in r} for r in records],
    'rewards': validation.rewards_by_step(work),
    'kept': checkpoints.steps(),
    'last': (last.step, last.arrays['w'].tolist()),
    'best': (best, checkpoints.read(best, {'w': np.zeros(1)})['w'].tolist()),
  }


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  work, jobs = tmp_path_factory.mktemp('whole'), Counter()
  moments = _sitting(work, jobs)
  return _result(work), jobs, moments.count


def test_a_run_validates_on_time_and_keeps_the_best(tmp_path):
  jobs = Counter()
  _sitting(tmp_path, jobs)
  result = _result(tmp_path)
  assert list(result['rewards']) == [3, 6]
  assert [validation.REWARD in m for m in result['metrics']] == [
    False, False, True, False, False, True
  ]  # fmt: skip
  best = max(result['rewards'], key=lambda n: (result['rewards'][n], -n))
  assert result['best'][0] == best
  kept = CheckpointManager(tmp_path / 'rl' / 'checkpoints').steps()
  assert kept == sorted({best, UPDATES})
  drawn = [job for job in jobs if job.startswith('validation-')]
  assert len(drawn) == 2 * 2 * 2 and set(jobs.values()) == {1}


def test_a_run_that_is_ended_at_any_moment_ends_as_an_undisturbed_one(
  whole, tmp_path
):
  """And then at other moments, before it gets there."""
  result, jobs, most = whole
  rng = random.Random(3)
  for attempt, first in enumerate(rng.sample(range(1, most), 12)):
    work, again, kills = tmp_path / str(attempt), Counter(), 0
    at = first
    while at:
      try:
        _sitting(work, again, at)
        break
      except Killed:
        kills += 1
        at = rng.choice((None, rng.randrange(1, 12), rng.randrange(1, 6)))
    else:
      _sitting(work, again)
    assert kills, first
    assert _result(work) == result, (first, kills)
    assert again == jobs, (first, kills)
    assert not audit.audit(work)['differences']


def test_what_is_carried_over_goes_on_during_a_validation(tmp_path):
  jobs = Counter()
  _sitting(tmp_path, jobs, rest='carry_over')
  assert list(validation.rewards_by_step(tmp_path)) == [3, 6]
  records = read_records(tmp_path / 'logs' / 'metrics.jsonl')
  assert len(records) == UPDATES and records[-1]['staleness/max'] >= 0
  assert not audit.audit(tmp_path)['differences']
