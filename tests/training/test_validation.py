"""Validations: their prompts, names, seeds, files and what a stop leaves of them."""

import json
import threading
import types as stubs
from collections import Counter

import numpy as np
import pytest

from configs import common
from jaxagent import audit, types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.errors import Interrupted, MachineryError, UserError
from jaxagent.interactions import Credit, Execute, Generate, Transition
from jaxagent.records import StepRecord
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import validation
from jaxagent.training.policy import seed_of
from tests import made

PROMPTS = {'a': 0.6, 'b': 0.7}


class Engine:
  """Answers at once with the request's seed, by the present version."""

  def __init__(self):
    self.version, self.seeds = 1, Counter()

  def submit(self, requests, *, put):
    for request in requests:
      self.seeds[request.request_id, request.seed] += 1
      ids = np.array([request.seed % 64], np.int32)
      spans = ((self.version, 0, 1),)
      put(
        types.Completion(
          request.request_id,
          request.prompt_ids,
          ids,
          np.zeros(1, np.float32),
          spans,
          'stop',
        )
      )

  def discard(self, ids):
    pass


class Workflow:
  """A completion and an execution, whose score is the prompt's."""

  name, record_type, frozen_roles = 'ours', StepRecord, {}

  def __init__(self, prompts=PROMPTS):
    self.jobs, self.fault, self.score = Counter(), None, 0.0
    self.before = lambda: None
    self.validation_prompts = lambda: prompts

  def start(self, payload):
    return Transition(payload, (Generate(0, np.ones(1, np.int32)),))

  def advance(self, state, call, result):
    if isinstance(call, Generate):
      return Transition(state, (Execute(1, state),))
    record = result.record
    credit = Credit(record.derive(), 1.0, result.outcome, record)
    return Transition(None, credits={0: credit})

  def request(self, ask):
    seed = seed_of(0, 'rl', ask.key)
    return types.Request(str(ask.key), ask.call.prompt, seed)

  def execute(self, work):
    self.jobs[str(work.key)] += 1
    self.before()
    if self.fault and self.fault in str(work.key):
      raise RuntimeError('the daemon is away')
    record = made.step(
      task='wine' if work.call.request == PROMPTS['a'] else 'diabetes',
      is_edit=True,
      score_before=0.5,
      score_after=work.call.request + self.score,
      alpha=1.0,
    )
    return types.Executed(record.outcome, 1.0, record=record)


class Stop(StopFlag):
  """Stops the run once that is `wanted`."""

  def __init__(self):
    super().__init__(within_s=None)
    self.wanted, self.stopped = threading.Event(), threading.Event()

  def check(self, saved=None):
    if self.wanted.is_set():
      self.stopped.set()
      raise Interrupted(saved)


def _host(tmp_path, **options):
  config = common.base()
  config.rl.validate_every, config.rl.validate_samples = 2, 3
  config.rl.updates = 5
  config.rl.update(options)
  return stubs.SimpleNamespace(
    config=config,
    work=tmp_path,
    stop=Stop(),
    pool=stubs.SimpleNamespace(cancel=lambda job: None),
  )


def _validator(host, workflow, engine=None):
  policy = stubs.SimpleNamespace(engine=engine or Engine())
  return validation.make(host, workflow, policy)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
  monkeypatch.setattr('jaxagent.training.rollouts.PAUSES_S', (0.0,))


def _reward(score: float) -> float:
  fields = dict(is_edit=True, score_before=0.5, score_after=score, alpha=1.0)
  return made.step(**fields).derive()


def test_it_is_due_every_few_updates_and_after_the_last(tmp_path):
  validator = _validator(_host(tmp_path), Workflow())
  assert [n for n in range(1, 6) if validator.is_due(n)] == [2, 4, 5]


def test_no_validations_are_wanted_where_the_option_is_0(tmp_path):
  assert _validator(_host(tmp_path, validate_every=0), Workflow()) is None


@pytest.mark.parametrize('prompts', [{}, None])
def test_a_workflow_without_prompts_is_refused_by_name(tmp_path, prompts):
  workflow = Workflow(prompts)
  if prompts is None:
    del workflow.validation_prompts
  with pytest.raises(
    UserError, match="needs validation prompts, and recipe 'ours' has none"
  ):
    _validator(_host(tmp_path), workflow)


def test_rewards_are_means_of_prompts_and_of_tasks(tmp_path):
  found = _validator(_host(tmp_path), Workflow()).run(2)
  a, b = _reward(0.6), _reward(0.7)
  assert found['val/reward/mean'] == pytest.approx((a + b) / 2)
  assert found['val-core/wine/reward/mean@3'] == pytest.approx(a)
  assert found['val-core/diabetes/reward/mean@3'] == pytest.approx(b)
  assert (found['val/rollouts'], found['val/missing']) == (6, 0)


def test_its_file_says_update_and_version_and_is_audited(tmp_path):
  engine = Engine()
  engine.version = 2
  _validator(_host(tmp_path), Workflow(), engine).run(2)
  turns = json.loads(validation.file_of(tmp_path, 2).read_text())
  assert [t['prompt_id'] for t in turns] == [
    f'validation/{name}/{i}' for name in 'ab' for i in range(3)
  ]
  assert {(t['update'], t['version']) for t in turns} == {(2, 2)}
  config = {'rl': {'validate_every': 2}, 'reward': {}}
  (tmp_path / 'config.json').write_text(json.dumps(config))
  found = audit.audit(tmp_path)
  assert found['sealed'] == 6 and found['differences'] == []
  config['reward'] = {'binary': True}  # as training's rewards are derived
  (tmp_path / 'config.json').write_text(json.dumps(config))
  assert len(audit.audit(tmp_path)['differences']) == 6


def test_a_prompt_has_the_same_seeds_after_every_update(tmp_path):
  engine, workflow = Engine(), Workflow()
  validator = _validator(_host(tmp_path), workflow, engine)
  validator.run(2)
  validator.run(4)
  assert len(engine.seeds) == len({seed for _, seed in engine.seeds}) == 6
  assert set(engine.seeds.values()) == {2}
  # Jobs of their own, also where training has a prompt of that name.
  assert len(workflow.jobs) == 12
  assert all(job.startswith('validation-') for job in workflow.jobs)


def test_what_is_stored_is_read_again(tmp_path):
  workflow = Workflow()
  first = _validator(_host(tmp_path), workflow).run(2)
  again = _validator(_host(tmp_path), workflow).run(2)
  assert set(workflow.jobs.values()) == {1} and len(workflow.jobs) == 6
  for found in (first, again):
    del found['timing_s/testing']
  assert first == again


def test_a_damaged_file_is_drawn_again(tmp_path):
  workflow, path = Workflow(), validation.file_of(tmp_path, 2)
  _validator(_host(tmp_path), workflow).run(2)
  path.write_text(path.read_text()[:-20])
  _validator(_host(tmp_path), workflow).run(2)
  assert set(workflow.jobs.values()) == {2}
  assert path.with_name(path.name + '.damaged').exists()


@pytest.mark.parametrize('number', [1, 3, 6])
def test_a_stopped_one_repeats_nothing_that_has_ended(tmp_path, number):
  host, workflow, engine = _host(tmp_path), Workflow(), Engine()

  def stop():
    if workflow.jobs.total() >= number:
      host.stop.wanted.set()
      host.stop.stopped.wait(10)

  workflow.before = stop
  with pytest.raises(Interrupted):
    _validator(host, workflow, engine).run(2)
  path = validation.file_of(tmp_path, 2)
  assert not path.exists() and path.with_suffix('.journal').exists()
  events = path.with_suffix('.journal').glob('*.jsonl')
  lines = [json.loads(line) for p in events for line in p.open()]
  ended = {e['p'] for e in lines if e['e'] == 'executed'}
  host.stop.wanted.clear()
  workflow.before = lambda: None
  before = Counter(workflow.jobs)
  found = _validator(host, workflow, engine).run(2)
  assert found['val/rollouts'] == 6
  again = workflow.jobs - before
  assert len(again) <= 6 - len(ended)
  assert not [p for p in ended if any(p in job for job in again)]
  assert set(engine.seeds.values()) == {1}
  assert not path.with_suffix('.journal').exists()


def test_a_few_missing_rollouts_are_left_out_and_counted(tmp_path):
  workflow = Workflow()
  workflow.fault = 'validation/a/0#'
  found = _validator(_host(tmp_path), workflow).run(2)
  assert (found['val/rollouts'], found['val/missing']) == (5, 1)
  both = (_reward(0.6) + _reward(0.7)) / 2
  assert found['val/reward/mean'] == pytest.approx(both)


def test_many_missing_rollouts_end_the_run_and_are_tried_again(tmp_path):
  workflow = Workflow()
  workflow.fault = 'validation/a/'
  with pytest.raises(MachineryError, match='6 rollouts.*daemon.*same command'):
    _validator(_host(tmp_path), workflow).run(2)
  workflow.fault = None
  found = _validator(_host(tmp_path), workflow).run(2)
  assert found['val/rollouts'] == 6
  assert all(n == 1 for job, n in workflow.jobs.items() if '/b/' in job)


def test_turns_without_a_reward_count_nowhere():
  turns = [
    made.turn(prompt_id='validation/a/0', reward=0.5),
    made.turn(prompt_id='validation/a/0', reward=0.25),
    made.turn(prompt_id='validation/a/1', reward=None),
    made.turn(prompt_id='validation/b/0', reward=0.0),
    made.turn(prompt_id='validation/b/1', reward=1.0),
  ]
  rewards = validation.rewards_of(turns)
  assert rewards == {'validation/a': 0.75, 'validation/b': 0.5}


def test_the_summary_names_the_best_update_and_the_last(tmp_path):
  host, workflow = _host(tmp_path), Workflow()
  validator = _validator(host, workflow)
  checkpoints = CheckpointManager(tmp_path / 'checkpoints', keep=1)
  for step, score in ((2, 0.1), (4, 0.2), (5, 0.0)):
    workflow.score = score
    reward = validator.run(step)['val/reward/mean']
    checkpoints.save(step, {'w': np.zeros(1)}, score=reward)
  found = validation.summary(tmp_path, checkpoints)
  assert list(found['rewards']) == ['2', '4', '5']
  assert found['best'] == {'update': 4, 'reward': found['rewards']['4']}
  assert found['last'] == {'update': 5, 'reward': found['rewards']['5']}
  assert found['evaluated'] == 4
