"""Whatever a policy writes is kept, or refused by name; nothing stops a run."""

from __future__ import annotations

import json
import queue
import types as stubs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxagent import audit, types
from jaxagent.data import codec
from jaxagent.envs import parser
from jaxagent.envs.solution import Task
from jaxagent.recipes.ml_agent import steps
from jaxagent.records import TrainedTurn
from jaxagent.rollout.requests import ExecutionRequest, Key
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.training import traces
from jaxagent.types import Outcome
from tests import made
from tests.envs import test_solution_env as solutions
from tests.learner.conftest import make_samples
from tests.records import strategies
from tests.runtime.test_executions import START, _environment

anything = (
  strategies.texts
  | strategies.values.map(json.dumps)
  | st.builds(
    lambda action, args: (
      f'Reflection: x\nThought: x\nAction: {action}\nAction Input: '
      + json.dumps(args)
    ),
    st.sampled_from(sorted(parser.ACTION_ARGS)) | strategies.texts,
    strategies.values,
  )
)
HUGE = '{"script_name": ' + '9' * 5000 + ', "edit_instruction": NaN}'


@pytest.fixture
def host(tmp_path):
  env = _environment(tmp_path, tmp_path / 'log.jsonl')
  return stubs.SimpleNamespace(env=env, spec=lambda task: env.task(task).spec)


def _kept(record: types.Record, folder) -> None:
  """The record goes through journal, trace and audit as it is."""
  executed = types.Executed(record.outcome, record.exec_s, record=record)
  text = json.dumps(codec.encode(executed))
  assert codec.decode(json.loads(text)) == executed
  reward = record.earned()
  sample = make_samples(1)[0]
  turn = types.Turn(0, 1, 0, record.outcome, reward, record.exec_s, record)
  sample = types.Sample(**{**vars(sample), 'turns': (turn,)})
  traces.write(folder, 0, [sample])
  (path,) = folder.glob('*.jsonl')
  (line,) = path.read_text().splitlines()
  assert TrainedTurn.from_json(json.loads(line)).record == record
  assert audit.audit(path)['differences'] == []


@strategies.patient
@given(anything)
@example('\ud800')
@example(
  f'Reflection: x\nThought: x\nAction: Edit Script (AI)\nAction Input: {HUGE}'
)
def test_a_step_of_any_response_is_kept(host, tmp_path_factory, text):
  state = types.State('s', 't', {'train.py': START}, 0.5, 0.5)
  executed = steps.execute(host, state, text, job_id='j')
  assert not executed.outcome.is_infrastructure
  _kept(executed.record, tmp_path_factory.mktemp('traces'))


@strategies.patient
@given(anything)
@example('```python\n"\ud800"\n```')
@example('```python\nx = ' + '9' * 5000 + '\n```')
def test_a_solution_of_any_response_is_kept(tmp_path_factory, text):
  folder = tmp_path_factory.mktemp('solutions')
  env = solutions._env(folder, solutions._Pool(Outcome.SCRIPT_ERROR))
  told, _ = env.solve(Task('t'), text)
  _kept(told.record, folder / 'traces')


def test_a_recipes_record_that_cannot_be_kept_is_a_failure_with_its_name():
  """Its prompt is tried again and quarantined; the run goes on."""
  results: queue.Queue = queue.Queue()
  inbox = stubs.SimpleNamespace(put=results.put, fail=results.put)
  record = made.step(args={'held': object()})
  executor = ThreadExecutor(
    inbox,
    lambda work: types.Executed(Outcome.OK, 1.0, record=record),
    threads=1,
    pauses_s=(0.0,),
  )
  executor.submit(ExecutionRequest(Key('p', 1, 1), None, None))
  result = results.get(timeout=10)
  executor.close()
  assert result.executed.outcome is Outcome.INFRASTRUCTURE
  assert 'DamagedRecord: step record: args is' in result.executed.message
