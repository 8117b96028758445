"""Evaluation from the starter: what counts, and against what."""

from __future__ import annotations

import dataclasses
import pathlib
import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import pause
from jaxagent.analysis import evaluation
from jaxagent.data.records import state_from_json
from jaxagent.envs.execution import StartError
from jaxagent.envs.grading import GradeResult
from jaxagent.envs.parser import format_response
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.step_env import StepResult
from jaxagent.envs.tasks import load_task
from jaxagent.errors import Interrupted, UserError
from jaxagent.recipes import scoring, starts
from jaxagent.recipes.ml_agent import evaluate
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import rollouts
from jaxagent.types import (
  Blob,
  Completion,
  Execution,
  Outcome,
  PastStep,
  Request,
)
from tests.runtime.test_kept import STATE

LOOK = format_response({}, 'List Files', {'dir_path': '.'})


class _Engine:
  """Answers each request at once with one token."""

  def submit(self, requests, put):
    for request in requests:
      ids, logprobs = np.ones(1, np.int32), np.zeros(1, np.float32)
      spans = ((0, 0, 1),)
      put(
        Completion(
          request.request_id, request.prompt_ids, ids, logprobs, spans, 'stop'
        )
      )

  def discard(self, ids):
    pass


class _IdlePolicy:
  """Lists files, whatever it is shown."""

  engine = _Engine()

  def prompt_ids(self, state):
    return np.zeros(1, np.int32)

  def request(self, prompt, request_id, seed):
    return Request(request_id, prompt, seed)

  def text(self, completion):
    return LOOK

  def prompt_text(self, state):
    return f'shown: {state.state_id}'


def _idle_step(state, text, *, split, job_id, most_s=0.0):
  return StepResult(
    Outcome.OK, 'List Files', {}, False, True, state, None, state.score, '.'
  )


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
  """No pause after an infrastructure error."""
  monkeypatch.setattr(rollouts, 'PAUSES_S', (0.0,))


@pytest.fixture
def idle_host(tmp_path):
  config = common.base()
  root = pathlib.Path(__file__).parents[3] / 'tasks'
  return stubs.SimpleNamespace(
    config=config,
    work=tmp_path,
    heldin=('wine',),
    heldout=('digits',),
    env=stubs.SimpleNamespace(
      step=_idle_step, act=_idle_step, store=Snapshots(':memory:')
    ),
    spec=lambda name: load_task(name, root),
    stop=StopFlag(),
    pool=stubs.SimpleNamespace(cancel=lambda job_id: None),
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
      scoring.runs_of(records, split),
      scoring.scales(idle_host, made),
      k=config.k,
    )
    for name in ('relative_gain', 'avg_at_k', 'best_at_k'):
      interval = section[name]
      assert [interval[key] for key in ('mean', 'low', 'high')] == [0, 0, 0]
      assert interval['n'] == config.trajectories_per_task
    assert section['mean_reward']['mean'] == 0.5  # and yet it is paid for
  wine = [s for r in records if r.task == 'wine' for s in r.steps]
  (prompt,) = {step.prompt for step in wine}
  shown = idle_host.env.store.get_bytes(Blob(*prompt)).decode()
  assert shown == f'shown: {made["wine"].state.state_id}'


def test_scales_are_private_against_private(idle_host):
  scale = scoring.scales(idle_host, _starts())['wine']
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


def _better_step(state, text, *, split, job_id, most_s=0.0):
  execution = Execution(
    job_id, Outcome.OK, 'T2', collected={'submission.csv': b'x'}
  )
  return dataclasses.replace(
    _idle_step(state, text, split=split, job_id=job_id),
    score=0.0,  # wine: lower is better
    execution=execution,
  )


@pytest.mark.parametrize(('times', 'missing'), [(2, ''), (3, 'worker died')])
def test_a_grader_that_fails_is_no_score_of_the_policy(
  idle_host, times, missing
):
  idle_host.env = stubs.SimpleNamespace(
    step=_better_step, store=Snapshots(':memory:')
  )
  idle_host.grader = _Grader(times)
  idle_host.heldout = ()
  idle_host.config.eval.trajectories_per_task = 1
  (record,) = evaluate.evaluate_policy(
    idle_host, _IdlePolicy(), 'rl', _starts()
  )
  assert record.missing == bool(missing)
  assert missing in record.reason
  assert record.score == (None if missing else 0.9)


def test_a_starter_that_cannot_be_graded_is_refused(idle_host):
  idle_host.env = stubs.SimpleNamespace(
    step=_better_step, act=_better_step, store=Snapshots(':memory:')
  )
  idle_host.grader = _Grader(1)
  with pytest.raises(UserError, match='wine.*starter.*the worker died'):
    starts._starter_scores(idle_host, _starts()['wine'].state)


def test_a_starter_that_fails_is_named(idle_host):
  def broken(task):
    raise StartError(f'task {task}: the starter script gave no score.')

  idle_host.env = stubs.SimpleNamespace(initial_state=broken)
  with pytest.raises(UserError, match='task wine: the starter script gave no'):
    starts.make_starts(idle_host)


class _Counting:
  """Each step writes a file with its number; the third ends a trajectory."""

  def __init__(self):
    self.store = Snapshots(':memory:')
    self.jobs: list[str] = []
    self.seen: list[dict] = []

  def step(self, state, text, *, split, job_id, most_s):
    self.jobs.append(job_id)
    self.seen.append(dict(state.files))
    after = dataclasses.replace(
      state,
      files={**state.files, f'step{state.step}': job_id},
      step=state.step + 1,
      history=(PastStep('List Files', 'ok', text, '.'),),
    )
    result = _idle_step(state, text, split=split, job_id=job_id)
    return dataclasses.replace(result, state=None if state.step == 2 else after)


class _Stop(StopFlag):
  """As a signal does, once `after` steps were carried out."""

  def __init__(self, env: _Counting, after: int):
    super().__init__(within_s=None)
    self.env, self.after = env, after

  def check(self, saved=None):
    if len(self.env.jobs) >= self.after:
      raise Interrupted('stopped')


def _untimed(records):
  """Without time stamps."""

  def untimed(step):
    record = dataclasses.replace(step.record, timestamp=0.0)
    return dataclasses.replace(step, record=record)

  return [
    dataclasses.replace(r, steps=tuple(map(untimed, r.steps))) for r in records
  ]


@pytest.mark.parametrize('after', [1, 7, 33, 60])
def test_a_stopped_evaluation_resumes(idle_host, tmp_path, after):
  idle_host.config.eval.trajectories_per_task = 12
  idle_host.config.eval.max_steps = 5
  idle_host.env = _Counting()
  whole = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert len(idle_host.env.jobs) == 2 * 12 * 3
  idle_host.env, idle_host.work = _Counting(), tmp_path / 'other'
  idle_host.stop, running = _Stop(idle_host.env, after), idle_host.stop
  with pytest.raises(Interrupted):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  journal = rollouts.journal_of(idle_host.work, 'rl')
  with max(journal.iterdir()).open('a') as file:
    file.write('{"e":"executed","p":"wi')  # a line that the kill cut off
  idle_host.stop = running
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert _untimed(records) == _untimed(whole)
  # Those under way when it came are finished before the stop, none run twice.
  assert len(set(idle_host.env.jobs)) == len(idle_host.env.jobs) == 2 * 12 * 3
  assert not journal.exists()


def test_an_evaluation_resumes_from_what_a_person_changed_and_marks_it(
  idle_host,
):
  idle_host.config.eval.trajectories_per_task = 1
  idle_host.config.eval.max_steps = 5
  idle_host.env = _Counting()
  idle_host.stop, running = _Stop(idle_host.env, 2), idle_host.stop
  with pytest.raises(Interrupted):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  path = rollouts.journal_of(idle_host.work, 'rl')
  folder = idle_host.work / 'out'
  pause.check_out(path, idle_host.env.store, 'wine', 0, folder)
  (folder / 'files/train.py').write_text('by hand\n')
  (folder / 'files/step0').unlink()
  (folder / 'response.txt').write_text('Research Plan and Status: mine\n')
  pause.check_in(path, idle_host.env.store, 'wine', 0, folder)
  idle_host.stop = running
  idle_host.env.seen.clear()
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  seen = [files for files in idle_host.env.seen if 'train.py' in files]
  assert any(f['train.py'] == 'by hand\n' and 'step0' not in f for f in seen)
  (wine,) = [r for r in records if r.task == 'wine']
  (edited,) = [s.edited for s in wine.steps if s.edited]
  changed = idle_host.env.store.get(edited)
  assert changed.history[-1].response == 'Research Plan and Status: mine\n'
