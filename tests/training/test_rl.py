"""A completion becomes a sample, with all that the learner reports of it."""

import signal
import types as stubs
from collections import Counter

import numpy as np
import pytest

from configs import common
from jaxagent import types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.data import codec
from jaxagent.envs.step_env import StepResult
from jaxagent.errors import Interrupted, MachineryError, UserError
from jaxagent.interactions import RolloutState, rows
from jaxagent.learner import figures
from jaxagent.recipes.ml_agent import stepwise
from jaxagent.records import StepRecord, UnknownRecord
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import StalledError
from jaxagent.rollout.requests import ExecutionRequest, Key
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import rl, validation
from tests import made

STATE = types.State('s0', 'task', {'train.py': ''}, 0.5, 0.5)


def _step(state, text, *, split, job_id, most_s):
  return StepResult(
    types.Outcome.OK, 'List Files', {}, False, True, state, None, 0.5, '.'
  )


def _sample(name: str, finish_reason: str) -> types.Sample:
  """What the step-wise recipe makes of one completion."""
  host = made.Host(
    config=common.base(),
    env=stubs.SimpleNamespace(step=_step),
    spec=lambda task: stubs.SimpleNamespace(
      alpha=1.0, exposed='', has_scale=True
    ),
  )
  ids, logprobs = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)
  policy = stubs.SimpleNamespace(
    text=lambda completion: 'text', prompt_ids=lambda state: ids
  )
  recipe = stepwise.StepwiseWorkflow(host, {'s0': STATE}, policy)
  progress = RolloutState(recipe, STATE)
  completion = types.Completion(
    name, ids, ids, logprobs, ((0, 0, 4),), finish_reason
  )
  (execute,) = progress.take(0, completion)
  prompt = types.Prompt(name, name, STATE)
  work = ExecutionRequest(Key(name, 1, execute.call), prompt, execute)
  assert not progress.take(execute.call, recipe.execute(work))
  (sample,) = rows(prompt, progress.completions, progress.credits)
  return sample


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

  scheduler = stubs.SimpleNamespace(
    close=lambda: closed.append(True), hold=lambda: None
  )
  monkeypatch.setattr(rl, '_scheduler', lambda *parts: scheduler)
  monkeypatch.setattr(rl, '_resume', lambda *parts: (3, {}))
  monkeypatch.setattr(rl, '_Loop', stall)
  engine = stubs.SimpleNamespace(update_weights=lambda params, version: None)
  with pytest.raises(
    MachineryError, match='moved for 300.0 s.*same command.*checkpoint'
  ):
    rl.run(
      made.Host(config=common.base(), work=tmp_path, stop=StopFlag()),
      stubs.SimpleNamespace(
        name='stepwise', frozen_roles={}, request=None, record_type=StepRecord
      ),
      stubs.SimpleNamespace(policy_params=None),
      stubs.SimpleNamespace(engine=engine, tokenizer=made.TOKENIZER),
    )
  assert closed


@pytest.mark.parametrize(
  'kind, said',
  [(None, 'lacks record_type'), (dict, 'must be a subclass of .*Record')],
)
def test_a_recipe_without_a_record_is_refused_before_any_work(
  tmp_path, kind, said
):
  recipe = stubs.SimpleNamespace(name='ours')
  if kind is not None:
    recipe.record_type = kind
  host = made.Host(config=common.base(), work=tmp_path)
  with pytest.raises(UserError, match=f"recipe 'ours'.*{said}"):
    rl.run(host, recipe, None, None)
  assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_version_ends_the_run_in_one_line(
  tmp_path, monkeypatch
):
  def resume(*parts):
    codec.decode({'__kind__': 'kept', 'value': {'kind': 'poem'}})

  scheduler = stubs.SimpleNamespace(close=lambda: None, hold=lambda: None)
  monkeypatch.setattr(rl, '_scheduler', lambda *parts: scheduler)
  monkeypatch.setattr(rl, '_resume', resume)
  recipe = stubs.SimpleNamespace(
    name='stepwise', frozen_roles={}, request=None, record_type=StepRecord
  )
  with pytest.raises(UserError, match="kind 'poem' is not known.*NEW") as e:
    rl.run(
      made.Host(config=common.base(), work=tmp_path, stop=StopFlag()),
      recipe,
      stubs.SimpleNamespace(policy_params=None),
      stubs.SimpleNamespace(engine=None, tokenizer=made.TOKENIZER),
    )
  assert '\n' not in str(e.value)
  assert isinstance(e.value.__cause__, UnknownRecord)


def _saver(save):
  return stubs.SimpleNamespace(
    save=save, finish=lambda: None, note=lambda step: None
  )


def test_the_journal_holds_what_the_kept_checkpoints_need(tmp_path):
  journal = Journal(tmp_path / 'journal')
  journal.begin()
  scheduler = stubs.SimpleNamespace(
    checkpoint=lambda: {'segment': journal.begin()}
  )
  learner = stubs.SimpleNamespace(
    state=lambda: {'w': np.zeros(1)}, host_state=dict
  )
  checkpoints = CheckpointManager(tmp_path / 'checkpoints', keep=2)
  saver = rl.Saver(
    checkpoints,
    journal,
    learner,
    scheduler,
    Counter(),
    'stepwise',
    StopFlag(),
  )
  left = []
  for step in range(1, 5):
    saver.save(step)
    saver.finish()
    left.append(sorted(int(p.stem) for p in journal.directory.iterdir()))
  assert left == [[0, 1], [1, 2], [2, 3], [3, 4]]
  assert checkpoints.steps() == [3, 4]
  journal.close()


@pytest.mark.parametrize(
  'every, best, saved',
  [
    (1, False, [(1, None), (2, None), (3, None)]),
    (2, False, [(2, None), (3, None)]),
    (9, False, [(3, None)]),
    (9, True, [(1, 0.5), (3, 0.25)]),
  ],
)
def test_what_the_last_update_left_is_saved_and_what_may_be_the_best(
  every, best, saved, tmp_path, monkeypatch
):
  config = common.base()
  config.rl.updates, config.rl.checkpoint_every = 3, every
  config.rl.keep_best = best
  host = made.Host(
    config=config,
    work=tmp_path,
    stop=StopFlag(),
  )
  steps, rewards = [], {1: 0.5, 3: 0.25}
  validator = stubs.SimpleNamespace(
    is_due=lambda step: step in rewards,
    run=lambda step: {validation.REWARD: rewards[step]},
  )
  loop = rl._Loop(
    host,
    None,
    None,
    None,
    stubs.SimpleNamespace(work=lambda version, timeout_s: 0),
    _saver(lambda *given: steps.append(given)),
    validator,
  )
  metrics = {'critic/score/mean': 0.5, 'duration/trained/mean': 1.0}
  monkeypatch.setattr(loop, '_update', lambda update: dict(metrics))
  loop.run(0)
  assert steps == saved


@pytest.mark.parametrize('error', [None, MachineryError('the folder is gone')])
def test_a_stopped_run_saves_its_update_unless_the_folder_is_lost(
  error, tmp_path, monkeypatch
):
  config = common.base()
  config.rl.checkpoint_every = 9
  stop = StopFlag(within_s=None)
  host = made.Host(config=config, work=tmp_path, stop=stop)
  saved = []
  loop = rl._Loop(
    host,
    None,
    None,
    None,
    None,
    _saver(lambda *given: saved.append(given)),
  )

  def update(number):
    stop.fail(error) if error else stop.ask(signal.SIGTERM)
    return {'critic/score/mean': 0.5, 'duration/trained/mean': 1.0}

  monkeypatch.setattr(loop, '_update', update)
  with pytest.raises(Interrupted if error is None else MachineryError):
    loop.run(0)
  assert saved == ([(1, None)] if error is None else [])


def test_another_recipes_checkpoint_is_refused(tmp_path):
  restored = stubs.SimpleNamespace(host={'recipe': 'stepwise'}, step=3)
  checkpoints = stubs.SimpleNamespace(
    latest=lambda: restored, directory=tmp_path
  )
  learner = None  # is not asked
  with pytest.raises(
    UserError, match='by the stepwise recipe, not by episodewise.*work_dir'
  ):
    rl._resume(checkpoints, None, learner, None, 'episodewise')


def test_a_best_checkpoint_without_its_journal_is_not_continued(tmp_path):
  """As where all later ones are damaged: other prompts would be trained twice."""
  checkpoints = CheckpointManager(tmp_path / 'checkpoints', keep=1)
  journal = Journal(tmp_path / 'journal')
  for step in (1, 2, 3):
    scheduler = {'segment': journal.begin()}
    host = {'recipe': 'ours', 'scheduler': scheduler}
    score = {1: 1.0}.get(step)
    checkpoints.save(step, {'w': np.zeros(1)}, host, score=score)
  journal.prune(2)
  (checkpoints.path(3) / 'host.json').write_text('{}')
  with pytest.raises(UserError, match='step_00000001 cannot.*host.*evaluate'):
    rl._resume(checkpoints, journal, None, None, 'ours')
  journal.close()
  for damaged in (tmp_path / 'journal').iterdir():
    damaged.unlink()  # by a person, where a segment was damaged
  assert not journal.is_cut(0)
