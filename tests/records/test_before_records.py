"""What runs wrote before there were records is read as records.

`before_records.json` was written by the version before them.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import records
from jaxagent.data import codec
from jaxagent.records import SolutionRecord, StepRecord, TakenStep, TrainedTurn
from jaxagent.rewards.ml_agent import sigmoid
from jaxagent.rollout import events
from jaxagent.types import Outcome

OLD = json.loads(
  pathlib.Path(__file__).with_name('before_records.json').read_text()
)
REWARD = sigmoid(200.0 * 0.25)


def test_an_execution_in_a_journal():
  executed = events.result_of(OLD['executed']).executed
  record = executed.record
  assert isinstance(record, StepRecord)
  assert record.outcome is executed.outcome is Outcome.OK
  assert (record.exec_s, record.action) == (2.0, 'Edit Script (AI)')
  assert record.derive() == pytest.approx(REWARD)
  assert codec.decode(codec.encode(executed)) == executed


def test_a_solution_and_what_ran_nothing():
  solution = codec.decode(OLD['solution']).record
  assert isinstance(solution, SolutionRecord)
  assert solution.milestones == ('imported packages', 'loaded data')
  assert solution.derive() == pytest.approx(-9.8)
  assert codec.decode(OLD['nothing']).record is None
  # What is written now has all that was written then.
  then = OLD['solution']['fields']['info']
  assert then.items() <= records.to_json(solution).items()


def test_a_sample_in_a_checkpoint():
  sample = codec.decode(OLD['sample'])
  (turn,) = sample.steps()
  assert turn.finish_reason == 'length' and turn.ran
  assert turn.record == sample.record
  assert turn.record.derive() == pytest.approx(turn.reward)
  assert codec.decode(codec.encode(sample)).turns == sample.turns


def test_a_line_of_a_trace_and_a_step_of_a_trajectory():
  turn = TrainedTurn.from_json(OLD['trace'])
  assert (turn.update, turn.finish_reason) == (3, 'length')
  assert turn.record.derive() == pytest.approx(turn.reward)
  step = TakenStep.from_json(OLD['step'])
  assert (step.state, step.workspace_id, step.answer_s) == ('key', 'other', 0.5)
  assert step.record == turn.record
  # What is written now has all that was written then.
  assert OLD['trace'].items() <= turn.to_json().items()
  assert OLD['step'].items() <= step.to_json().items()
