"""Every execution of a run is counted, whatever became of its result."""

import dataclasses
import pathlib
import threading
import types as stubs

import numpy as np
import pytest

from configs import common
from jaxagent import metrics, types
from jaxagent.analysis import summary
from jaxagent.envs import parser
from jaxagent.envs.interfaces import EditRefused, TextModelError
from jaxagent.envs.step_env import TextModels
from jaxagent.errors import UserError
from jaxagent.recipes import results, starts
from jaxagent.runtime import executions
from jaxagent.sandbox.recorded import RecordedPool
from jaxagent.stand_ins.reader import NoHelper, ScriptedReader
from jaxagent.testing import fake_runs
from jaxagent.training import traces
from tests import made

START = '# fake: ok 2.0 0.5\nmodel = 1\n'


def _environment(tmp_path, log):
  spec = fake_runs.task_spec(root=pathlib.Path(tmp_path))
  prepared = fake_runs.FakePrepared(spec, tmp_path, {'train.py': START})
  return executions.CountedEnvironment(
    {'t': prepared},
    fake_runs.FakePool(),
    fake_runs.FakeGrader(),
    TextModels(
      fake_runs.ReplaceEditor(EditRefused, TextModelError),
      ScriptedReader(),
      NoHelper(),
    ),
    log=log,
  )


def _say(action, **args):
  entries = {n: 'x' for n in parser.ENTRIES[:4]}
  return parser.format_response(entries, action, args)


def _edit(instruction):
  return _say(
    'Edit Script (AI)',
    script_name='train.py',
    edit_instruction=instruction,
    save_name='train.py',
  )


def test_each_attempt_counts_once_with_its_graded_outcome(tmp_path):
  log = tmp_path / 'logs' / 'executions.jsonl'
  env = _environment(tmp_path, log)
  state = env.initial_state('t')  # ok
  env.step(state, _edit('ok 2.0 0.5 -> timeout 9.0'))
  env.step(state, _edit('0.5 -> nonsense'))  # graded: invalid_submission
  env.step(state, _edit(' 0.5 -> '))  # no_submission
  env.step(state, _edit('ok -> infrastructure'))  # tried twice
  env.step(state, _say('Execute Script', script_name='train.py'))  # ok
  env.step(state, _say('List Files', dir_path='.'))  # executes nothing
  env.step(state, _edit('missing -> x'))  # refused: executes nothing
  env.step(state, 'malformed')
  assert executions.count(log) == {
    'ok': 2,
    'timeout': 1,
    'invalid_submission': 1,
    'no_submission': 1,
    'infrastructure': 2,
  }
  assert executions.count(log).total() == env.executions == len(env.pool.jobs)


def test_a_resumed_run_counts_what_ran_before(tmp_path):
  log = tmp_path / 'executions.jsonl'
  assert executions.count(log) == {}
  for _ in range(3):  # three sittings, each killed while it wrote a line
    _environment(tmp_path, log).initial_state('t')
    with log.open('a') as file:
      file.write('{"job_id": "start-t", "outc')
  assert executions.count(log) == {'ok': 3}
  log.write_bytes(log.read_bytes() + b'\xff\n[1]\n{"outcome": "lost"}\n')
  assert executions.count(log) == {'ok': 3}


def test_threads_do_not_lose_or_mix_lines(tmp_path):
  log = tmp_path / 'executions.jsonl'
  env = _environment(tmp_path, log)

  def work():
    for _ in range(50):
      env.initial_state('t')

  threads = [threading.Thread(target=work) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert len(log.read_text().splitlines()) == 400
  assert executions.count(log) == {'ok': 400}


def _sample(outcome, **fields):
  record = made.step(outcome, exec_s=6.0, **fields)
  return types.Sample(
    prompt_id='p',
    group_id='p',
    prompt_ids=np.zeros(1, np.int32),
    token_ids=np.zeros(3, np.int32),
    loss_mask=np.ones(3, bool),
    behaviour_logprobs=np.zeros(3, np.float32),
    version=0,
    outcome=outcome,
    reward=0.5,
    exec_s=6.0,
    record=record,
  )


def test_behaviour_is_logged_for_every_update():
  O = types.Outcome
  samples = [
    _sample(O.OK, is_edit=True, diff='--- \n+++ \n@@ @@\n+a\n', tier='T2'),
    _sample(O.TIMEOUT, is_edit=True, diff='--- \n+++ \n@@ @@\n+b\n', tier='T2'),
    _sample(O.OK),
    _sample(O.INVALID_FORMAT, valid_action=False),
  ]
  got = traces.metrics(samples, update=7)
  metrics.check_names(got)
  want = {
    'sandbox/edit_rate': 0.5,
    'sandbox/changed_rate': 0.25,
    'sandbox/distinct_edits': 1.0,
    'sandbox/malformed_rate': 0.25,
    'sandbox/timeout_rate': 0.5,
    'sandbox/valid_action_rate': 0.75,
    'sandbox/exec_s': 6.0,
    'sandbox/outcome/ok': 0.5,
  }
  assert {k: got[k] for k in want} == want
  idle = traces.metrics(samples[2:], update=7)
  assert idle['sandbox/edit_rate'] == 0.0
  assert not {'sandbox/timeout_rate', 'sandbox/distinct_edits'} & set(idle)


def test_a_written_trace_holds_what_behaviour_needs(tmp_path):
  samples = [_sample(types.Outcome.OK, is_edit=True), _sample(types.Outcome.OK)]
  for update in range(8):
    traces.write(tmp_path, update, samples)
  slow = made.evaluated(made.step('timeout', tier='T2'))
  evaluated = {policy: [slow] * 3 for policy in ('sft', 'rl')}
  built = summary.Summary(config_sha='a', isolation_tier='T2')
  trained = results.read_traces(tmp_path)
  for who, part, records in results.behaviour_parts(evaluated, trained):
    built.set_behaviour(who, part, results.behaviour.figures(records))
  held = built.build(complete=False)['behaviour']
  assert {w: tuple(parts) for w, parts in held.items()} == summary.BEHAVIOUR
  for quarter in held['train'].values():
    assert quarter['responses'] == 4 and quarter['edit_rate'] == 0.5
  assert held['rl']['heldin']['timeout_rate'] == 1.0
  assert held['sft']['heldin']['responses'] == 3
  assert held['sft']['heldout']['responses'] == 0


def test_a_call_that_was_credited_without_a_record_is_named():
  sample = dataclasses.replace(_sample(types.Outcome.OK), record=None)
  with pytest.raises(UserError, match='call of prompt p without a record'):
    traces.records([sample], 0)


def test_the_summary_counts_the_log(tmp_path):
  """Starts and what RL dropped have no record but this."""
  env = _environment(tmp_path, tmp_path / executions.LOG)
  pool = stubs.SimpleNamespace(submit=env.pool.submit, tier='T2', slots=1)
  env.pool = RecordedPool(pool, tmp_path / 'recorded.sqlite')
  state = env.initial_state('t')
  env.step(state, _edit('ok 2.0 0.5 -> timeout 9.0'))
  runs = [
    env.step(state, _say('Execute Script', script_name='train.py'))
    for _ in range(2)
  ]
  assert [run.execution.recorded for run in runs] == [False, True]
  start = starts.Start(state, 0.5)
  host = stubs.SimpleNamespace(
    config=common.base(),
    work=tmp_path,
    heldin=('t',),
    heldout=(),
    pool=stubs.SimpleNamespace(tier='T2'),
    stand_ins=[],
    standin_data=[],
    wall_s={},
    spec=lambda name: env.task(name).spec,
  )
  none = {'sft': [], 'rl': []}
  built = results._summary(
    host, {'t': start}, none, [], {'sft': 0, 'rl': 0}
  ).build()
  assert built['outcomes'] == {'ok': 3, 'timeout': 1}
  assert built['executions'] == 4
  assert built['extra']['recorded_executions'] == 1
  assert built['behaviour']['train']['last_quarter']['responses'] == 0
