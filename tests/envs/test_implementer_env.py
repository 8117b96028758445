"""Steps of an Implementer: laid out, graded and carried on, and in a real sandbox."""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.agents.implementer import Turn
from jaxagent.envs.execution import ExecutionOptions, ScriptRunner
from jaxagent.envs.grading import Grader
from jaxagent.envs.implementer_env import SCRIPT, ImplementerEnvironment
from jaxagent.envs.implementer_state import Effect
from jaxagent.envs.tasks import load_task, prepare_task
from jaxagent.sandbox import SandboxPool
from jaxagent.testing import fake_runs

O = types.Outcome
TASKS = pathlib.Path(__file__).parents[2] / 'tasks'


def _env(tmp_path, **options):
  spec = fake_runs.task_spec(
    root=pathlib.Path(tmp_path), read_only_files=('fixed.py',)
  )
  starter = {'train.py': 'x = 1', 'fixed.py': 'y = 2'}
  prepared = {'t': fake_runs.FakePrepared(spec, tmp_path, starter)}
  runner = ScriptRunner(
    prepared,
    fake_runs.FakePool(),
    fake_runs.FakeGrader(),
    ExecutionOptions(**options),
  )
  return ImplementerEnvironment(runner)


def _ipython(line: str) -> Turn:
  return Turn('ipython', code=f'# fake: {line}')


def _after(env, state, done):
  return state.after(Effect.from_json(json.loads(json.dumps(done.state))))


def test_a_program_is_run_as_one_script_and_graded_outside(tmp_path):
  env = _env(tmp_path)
  state = env.initial('t', 0.5)
  done = env.execute(state, _ipython('ok 2.0 0.75'), 'the message', job_id='j')
  (job,) = env.runner.pool.jobs
  assert job.script == SCRIPT and job.files[SCRIPT] == '# fake: ok 2.0 0.75'
  assert job.files['train.py'] == 'x = 1' and job.job_id == 'j'
  after = _after(env, state, done)
  assert after.best.score == after.last.score == 0.75
  assert after.best.program.code == '# fake: ok 2.0 0.75'
  step = after.steps[-1]
  assert (step.text, step.kind, step.exec_s) == ('the message', 'ipython', 2.0)
  assert '0.75' in step.observation and 'first one' in step.observation
  assert env.runner.grader.splits == ['valid'] and done.kept == {}


def test_the_private_rows_are_graded_when_asked_and_never_in_the_state(
  tmp_path,
):
  env = _env(tmp_path)
  state = env.initial('t')
  done = env.execute(state, _ipython('ok 1 0.625'), 'm', private=True)
  assert env.runner.grader.splits == ['valid', 'private']
  assert done.kept == {'private': 0.625} and 'private' not in str(done.state)


def test_a_submission_from_before_is_not_there(tmp_path):
  env = _env(tmp_path)
  first = env.initial('t')
  state = _after(env, first, env.execute(first, _ipython('ok 1 0.9'), 'm'))
  assert 'submission.csv' in state.files
  done = env.execute(state, _ipython('no_submission 1'), 'm')
  assert 'submission.csv' not in env.runner.pool.jobs[-1].files
  after = _after(env, state, done)
  assert after.steps[-1].score is None and after.best.score == 0.9
  assert 'wrote no submission.csv' in after.steps[-1].observation


def test_read_only_files_are_as_they_were(tmp_path):
  env = _env(tmp_path)
  state = env.initial('t')
  files = {**state.files, 'fixed.py': 'changed'}
  changed = type(state)('t', True, files)
  env.execute(changed, _ipython('ok 1 0.9'), 'm')
  assert env.runner.pool.jobs[-1].files['fixed.py'] == 'y = 2'


def test_an_infrastructure_error_has_no_state_to_continue_from(tmp_path):
  env = _env(tmp_path, infrastructure_retries=0)
  done = env.execute(env.initial('t'), _ipython('infrastructure 1'), 'm')
  assert done.outcome is O.INFRASTRUCTURE and done.state is None


def test_a_program_that_no_sandbox_can_hold_is_an_invalid_action(tmp_path):
  env = _env(tmp_path)
  state = env.initial('t')
  for turn in (
    Turn('ipython', code='#' * (workspace.MAX_FILE_BYTES + 1)),
    Turn('bash', code='#' * (workspace.MAX_FILE_BYTES + 1)),
    Turn('ipython', code='\x00'),
    Turn('bash', code='\ud800'),
  ):
    done = env.execute(state, turn, 'm')
    assert done.outcome is O.INVALID_ACTION and not env.runner.pool.jobs
    after = _after(env, state, done)
    assert 'cannot be run' in after.steps[-1].observation
    assert after.files == state.files


def test_a_turn_without_a_program_is_refused(tmp_path):
  env = _env(tmp_path)
  for kind in ('seek_help', 'finish', 'invalid'):
    with pytest.raises(ValueError, match='ipython, bash'):
      env.execute(env.initial('t'), Turn(kind), 'm')


# In the sandbox -----------------------------------------------------------------


@pytest.fixture(scope='module')
def real(tmp_path_factory):
  home = tmp_path_factory.mktemp('implementer')
  task = prepare_task(load_task('wine', TASKS), home / 'tasks')
  hidden = (home, TASKS)
  with (
    SandboxPool(1, work_dir=home / 'sandbox', hidden=hidden) as pool,
    Grader({'wine': task}) as grader,
  ):
    yield ImplementerEnvironment(ScriptRunner({'wine': task}, pool, grader))


def _done(env, state, kind, code, **options):
  done = env.execute(state, Turn(kind, code=code), 'm', **options)
  return _after(env, state, done), done


@pytest.mark.slow
def test_in_the_sandbox_files_connect_one_step_with_the_next(real):
  state = real.initial('wine')
  starter = state.files['train.py']
  state, done = _done(real, state, 'ipython', starter, private=True)
  spec = real.runner.task('wine').spec
  assert state.best.score == pytest.approx(spec.m_init, abs=1e-5)
  assert done.kept['private'] == pytest.approx(0.597659, abs=1e-5)
  # A module of its own, written by one step and used by the next.
  state, done = _done(
    real, state, 'bash', "echo 'VALUE = 7' > mine.py && mkdir -p out && ls"
  )
  assert done.outcome is O.NO_SUBMISSION and 'train.py' in (
    state.steps[-1].observation
  )
  state, done = _done(real, state, 'ipython', 'import mine; print(mine.VALUE)')
  assert '7' in state.steps[-1].observation
  # Nothing else connects them: each is a process of its own.
  state, done = _done(real, state, 'ipython', 'print(VALUE)')
  assert done.outcome is O.SCRIPT_ERROR
  assert 'NameError' in state.steps[-1].observation
  # Commands may run a program that lies there, and it counts.
  state, done = _done(real, state, 'bash', 'python train.py')
  assert done.outcome is O.OK and state.last.program.kind == 'bash'
  assert state.last.score == state.best.score and len(state.steps) == 5


def test_in_the_sandbox_an_endless_program_has_timed_out(real):
  state = real.initial('wine')
  code = 'while True: pass'
  state, done = _done(real, state, 'ipython', code, most_s=1.0)
  assert done.outcome is O.TIMEOUT and 0.5 < done.exec_s < 10


def test_in_the_sandbox_long_output_is_cut_head_and_tail(real):
  state = real.initial('wine')
  code = 'print("begin", "x" * 40000, "end")'
  state, _ = _done(real, state, 'ipython', code)
  shown = state.steps[-1].observation
  assert len(shown) < 7000 and 'left out' in shown
  assert 'begin' in shown and 'end' in shown
