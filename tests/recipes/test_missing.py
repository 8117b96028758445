"""A work item that fails in evaluation does not end the run, nor counts."""

# ruff: noqa: F811, F401 - a fixture of another file

from __future__ import annotations

import collections
import dataclasses
import errno
import json

import pytest

from jaxagent.analysis import evaluation, summary
from jaxagent.errors import MachineryError, UserError
from jaxagent.recipes import scoring, stages, starts
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.ml_agent import evaluate
from jaxagent.records import Evaluated, StepRecord
from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.requests import ExecutionResult, Key
from jaxagent.training import rollouts
from jaxagent.types import Executed, Outcome
from tests.recipes.ml_agent.test_evaluate import (
  _idle_step,
  _IdlePolicy,
  _starts,
  idle_host,
  impatient,
)
from tests.recipes.test_results import _host
from tests.recipes.test_results import _starts as _wine_start
from tests.runtime.test_kept import RECORD


class _FailingStep:
  """The first `times` attempts at each step of the wine trajectories `indices` fail."""

  def __init__(self, fault, times: int, indices=(1, 3)):
    self.fault, self.times, self.indices = fault, times, indices
    self.calls: collections.Counter[str] = collections.Counter()

  def __call__(self, state, text, *, split, job_id, most_s):
    self.calls[job_id] += 1
    _, _, task, index = job_id.split('#')[0].split('-')
    result = _idle_step(state, text, split=split, job_id=job_id, most_s=most_s)
    if task != 'wine' or int(index) not in self.indices:
      return result
    if self.calls[job_id] > self.times:
      return result
    if self.fault is not Outcome.INFRASTRUCTURE:
      raise self.fault
    return dataclasses.replace(
      result, outcome=self.fault, message='the pool fell over'
    )


@pytest.mark.parametrize(
  'fault, reason',
  [
    (OSError('no space'), 'OSError: no space'),
    (Outcome.INFRASTRUCTURE, 'the pool fell over'),
  ],
)
def test_a_trajectory_whose_step_fails_three_times_is_missing(
  idle_host,
  capsys,
  fault,
  reason,
):
  step = idle_host.env.step = _FailingStep(fault, times=3)
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  kept = json.loads((idle_host.work / 'eval' / 'rl.json').read_text())
  assert [Evaluated.from_json(value) for value in kept] == records
  lost = [r for r in records if r.missing]
  assert [(r.task, r.index) for r in lost] == [('wine', 1), ('wine', 3)]
  for record in lost:
    assert record.reason == f'infrastructure 3 times: {reason}'
    assert record.score is None
  # It has ended with its first execution.
  assert [job for job in step.calls if 'wine-1#' in job] == [
    'eval-rl-wine-1#1.1'
  ]
  assert step.calls['eval-rl-wine-1#1.1'] == 3
  said = capsys.readouterr().out
  assert f'rl: 2 of {len(records)} trajectories were lost' in said
  assert reason in said


def test_a_full_disk_ends_the_evaluation_and_is_no_missing_trajectory(
  idle_host,
):
  asked = []

  def step(state, text, *, job_id, **call):
    asked.append(job_id)
    if len(asked) == 5:
      raise OSError(errno.ENOSPC, 'No space')
    return _idle_step(state, text, job_id=job_id, **call)

  idle_host.env.step = step
  with pytest.raises(OSError, match='No space'):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert not any(r.missing for r in records)


def test_an_evaluation_whose_hours_are_spent_resumes_once_they_are_raised(
  idle_host,
):
  """Only the executions that had not run are carried out then."""

  def half_an_hour(state, text, *, job_id, **call):
    asked.append(job_id)
    result = _idle_step(state, text, job_id=job_id, **call)
    return dataclasses.replace(result, exec_s=1800.0)

  asked: list[str] = []
  idle_host.env.step = half_an_hour
  idle_host.config.eval.hours = 2.0
  with pytest.raises(
    UserError, match=r'evaluate rl: config.eval.hours=2 .*Raise'
  ):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  at_once = 2 * idle_host.config.sandbox.slots  # threads
  assert 4 <= len(asked) < 4 + at_once
  first, asked = asked, []
  idle_host.config.eval.hours = 1000.0
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert not any(r.missing for r in records)
  steps = sum(len(r.steps) for r in records)
  assert len({*first, *asked}) == steps
  # What had run before the hours were spent is not run again, but for what was under
  # way when they were.
  assert len({*first} & {*asked}) < at_once


def test_a_missing_trajectory_is_in_no_mean(idle_host):
  idle_host.env.step = _FailingStep(OSError('x'), times=3)
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  runs = scoring.runs_of(records, 'heldin')
  per_task = idle_host.config.eval.trajectories_per_task
  assert len(runs) == per_task - 2 and len(present(records)) == (
    2 * per_task - 2
  )
  section = evaluation.section(runs, scoring.scales(idle_host, _starts()), k=2)
  assert section['relative_gain']['n'] == per_task - 2


def test_more_than_a_tenth_missing_ends_the_run_which_then_resumes(idle_host):
  """An outage must not leave a result of what happened to be done."""
  idle_host.config.eval.trajectories_per_task = 6
  idle_host.env.step = first = _FailingStep(OSError('gone'), times=3)
  with pytest.raises(MachineryError, match='2 of 12 .* OSError: gone'):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert not (idle_host.work / 'eval' / 'rl.json').exists()
  idle_host.env.step = again = _FailingStep(
    OSError('gone'), times=0, indices=()
  )
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert len(records) == 12 and not any(r.missing for r in records)
  # Carried out again are only the executions that had failed.
  assert {job for job in again.calls if job in first.calls} == {
    f'eval-rl-wine-{index}#1.1' for index in (1, 3)
  }


def test_an_evaluation_ends_once_too_much_is_missing(idle_host):
  """An endpoint that is gone is not asked for every trajectory first."""
  idle_host.config.eval.trajectories_per_task = 40
  idle_host.env.step = gone = _FailingStep(
    OSError('gone'), times=3, indices=range(40)
  )
  with pytest.raises(MachineryError, match='of 80 .* OSError: gone'):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert len([job for job in gone.calls if '-wine-' in job]) < 20


def test_a_record_whose_reward_is_not_finite_ends_the_evaluation_by_name(
  idle_host, monkeypatch
):
  monkeypatch.setattr(StepRecord, 'derive', lambda *given: float('nan'))
  with pytest.raises(
    UserError, match=r'StepRecord.derive gives nan; .*it resumes'
  ):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  monkeypatch.undo()
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert not any(r.missing for r in records)


def test_a_journal_that_a_kill_left_behind_stored_results_is_removed(idle_host):
  made = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  left = rollouts.journal_of(idle_host.work, 'rl')
  Journal(left).begin()
  again = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert again == made and not left.exists()


def test_a_journal_with_a_record_of_another_version_is_named(idle_host):
  journal = Journal(rollouts.journal_of(idle_host.work, 'rl'))
  journal.begin()
  journal.append(events.drawn('wine-0', 'wine-0'))
  journal.append(events.begun('wine-0', 1))
  record = StepRecord(outcome=Outcome.OK)
  result = ExecutionResult(
    Key('wine-0', 1, 1), 1, Executed(Outcome.OK, 1.0, record=record)
  )
  text = json.dumps(events.of_result(result)).replace('"step"', '"later"')
  journal.append(json.loads(text))
  journal.close()
  with pytest.raises(
    UserError, match="rl.journal: its kind 'later' is not known"
  ):
    evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())


def test_a_step_that_fails_once_is_tried_again(idle_host, capsys):
  idle_host.env.step = _FailingStep(OSError('x'), times=1)
  records = evaluate.evaluate_policy(idle_host, _IdlePolicy(), 'rl', _starts())
  assert not any(r.missing for r in records)
  steps = {len(r.steps) for r in records}
  assert steps == {idle_host.config.eval.max_steps}  # none twice, none lost
  assert 'missing' not in capsys.readouterr().out


def test_a_private_grade_that_fails_leaves_no_half_step(
  idle_host,
  monkeypatch,
):
  def improved(state, text, **call):
    result = _idle_step(state, text, **call)
    return dataclasses.replace(result, score=1e9, score_before=0.5)

  asked = []

  def private(host, task, result):
    asked.append(task)
    if len(asked) == 1:
      raise ValueError('the grader is closed.')
    return 0.25

  idle_host.env.step = improved
  idle_host.heldin, idle_host.heldout = ('digits',), ()
  idle_host.config.eval.trajectories_per_task = 1
  idle_host.config.eval.max_steps = 1
  monkeypatch.setattr(starts, 'private_score', private)
  (record,) = evaluate.evaluate_policy(
    idle_host, _IdlePolicy(), 'rl', _starts()
  )
  assert len(asked) == 2 and len(record.steps) == 1
  assert record.score == 0.25 and not record.missing


@pytest.mark.parametrize('lost', [1, 12, 16])
def test_the_summary_lists_missing_trajectories(tmp_path, capsys, lost):
  rows = [
    {**RECORD, 'index': i, 'score': None, 'missing': True, 'reason': 'x'}
    if i < lost
    else {**RECORD, 'index': i, 'score': 0.3}
    for i in range(16)
  ]
  starts.write_json(tmp_path / 'eval' / 'rl.json', rows)
  host = _host(tmp_path, **{'eval.policies': ('rl',)})
  stages.finish(host, _wine_start())
  found = summary.load(tmp_path / 'summary.json')
  assert found['extra']['missing_trajectories'] == {'rl': lost}
  assert found['rl']['heldin']['relative_gain']['n'] == 16 - lost
  wanted = {1: host.config.eval.k, 12: 4, 16: host.config.eval.k}[lost]
  assert found['evaluation']['k'] == wanted
  assert (f'best@k with k={wanted}, not' in capsys.readouterr().out) == (
    lost == 12
  )
