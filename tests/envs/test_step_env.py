"""One step: every action and outcome, with a fake pool and grader."""

from __future__ import annotations

import json
import pathlib

import pytest

from jaxagent import types
from jaxagent.clock import Deadline
from jaxagent.envs import actions, execution, parser, step_env, workspace
from jaxagent.envs.execution import ExecutionOptions
from jaxagent.envs.interfaces import EditRefused, TextModelError
from jaxagent.stand_ins.reader import NoHelper, ScriptedReader
from jaxagent.testing import fake_runs

START = '# fake: ok 2.0 0.5\nmodel = 1\n'
O = types.Outcome


def environment(tmp_path, limits=ExecutionOptions(), **rules):
  data = tmp_path / 'public'
  data.mkdir(exist_ok=True)
  (data / 'train.csv').write_text('id,y\n0,1\n')
  (tmp_path / 'secret.csv').write_text('label\n')
  spec = fake_runs.task_spec(
    root=pathlib.Path(tmp_path),
    limits=types.Limits(timeout_s=9),
    read_only_files=('data/*', 'fixed.py'),
  )
  prepared = fake_runs.FakePrepared(
    spec, data, {'train.py': START, 'fixed.py': 'x = 1\n'}
  )
  return step_env.StepEnvironment(
    {'t': prepared},
    fake_runs.FakePool(),
    fake_runs.FakeGrader(),
    step_env.TextModels(
      fake_runs.ReplaceEditor(EditRefused, TextModelError),
      ScriptedReader(),
      NoHelper(),
    ),
    step_env.StepRules(**{'actions': tuple(parser.ACTION_ARGS), **rules}),
    limits,
  )


@pytest.fixture
def env(tmp_path):
  return environment(tmp_path)


def say(action, **args):
  return parser.format_response(
    {n: 'x' for n in parser.ENTRIES[:4]}, action, args
  )


def edit(instruction, name='train.py', save='train.py'):
  return say(
    'Edit Script (AI)',
    script_name=name,
    edit_instruction=instruction,
    save_name=save,
  )


def test_start(env):
  state = env.initial_state('t', ideas=('one',))
  assert (state.score, state.start_score, state.step) == (0.5, 0.5, 0)
  (job,) = env.pool.jobs
  assert set(job.mounts) == {'data'} and job.limits.timeout_s == 9
  assert job.collect == ('submission.csv',)
  with pytest.raises(KeyError, match='not prepared'):
    env.initial_state('other')


def test_start_without_a_score(env):
  env.prepared['t'].starter_files['train.py'] = '# fake: script_error 1\n'
  with pytest.raises(execution.StartError, match='script_error'):
    env.initial_state('t')


def test_edit_runs_and_is_graded(env):
  state = env.initial_state('t')
  result = env.step(state, edit('2.0 0.5 -> 3.0 0.75'))
  assert result.outcome is O.OK and result.is_edit and result.valid_action
  assert (result.score_before, result.score, result.exec_s) == (0.5, 0.75, 3)
  assert '+# fake: ok 3.0 0.75' in result.diff
  assert result.state.score == 0.75 and result.state.step == 1
  (past,) = result.state.history
  assert (past.action, past.result) == ('Edit Script (AI)', 'ok 0.75')
  assert past.response == edit('2.0 0.5 -> 3.0 0.75')
  assert past.observation == result.observation
  # A state is a value: the old one is as it was, and may be forked.
  assert state.files['train.py'] == START
  again = env.step(state, edit('2.0 0.5 -> 3.0 0.75'))
  assert again.state.state_id == result.state.state_id
  assert env.grader.splits == ['valid'] * 3
  env.step(state, edit('0.5 -> 0.6'), split='private')
  assert env.grader.splits[-1] == 'private'


def test_an_edit_that_changes_nothing_is_valid_and_neutral(env):
  state = env.initial_state('t')
  result = env.step(state, edit('0.5 -> 0.5'))
  assert result.outcome is O.OK and result.is_edit and not result.diff
  assert result.score == result.score_before == 0.5
  assert actions.NO_CHANGE in result.observation


@pytest.mark.parametrize(
  'line, outcome',
  [
    ('script_error 1', O.SCRIPT_ERROR),
    ('timeout 9', O.TIMEOUT),
    ('oom 1', O.OOM),
    ('ok 1', O.NO_SUBMISSION),
    ('ok 1 rubbish', O.INVALID_SUBMISSION),
    ('ok 1 nan', O.INVALID_SUBMISSION),
    ('ok 1 inf', O.INVALID_SUBMISSION),
  ],
)
@pytest.mark.parametrize('on_failure', ['revert', 'keep'])
def test_failed_edits(tmp_path, line, outcome, on_failure):
  env = environment(tmp_path, on_failure=on_failure)
  state = env.initial_state('t')
  result = env.step(state, edit(f'ok 2.0 0.5 -> {line}'))
  assert result.outcome is outcome and result.score is None
  assert result.valid_action and result.state.score == 0.5
  assert result.state.last_outcome == outcome.value
  kept = result.state.files['train.py'] != START
  assert kept == (on_failure == 'keep') and result.undone != kept


def test_infrastructure_is_tried_again_and_changes_nothing(env):
  state = env.initial_state('t')
  for line in ('infrastructure 1', 'no such outcome'):
    env.pool.jobs.clear()
    result = env.step(state, edit(f'ok 2.0 0.5 -> {line}'), job_id='j')
    assert result.outcome is O.INFRASTRUCTURE and result.state is state
    assert [j.job_id for j in env.pool.jobs] == ['j', 'j']
  assert env.step(state, edit('down')).outcome is O.INFRASTRUCTURE


def test_a_step_has_a_deadline_of_its_own(tmp_path):
  env = environment(tmp_path, ExecutionOptions(step_timeout_s=60.0))
  state = env.initial_state('t')
  env.pool.deadlines.clear()
  env.step(state, edit('2.0 0.5 -> 2.0 0.6'))
  env.step(state, edit('2.0 0.5 -> 2.0 0.6'), deadline=Deadline.after(5.0))
  own, around = env.pool.deadlines
  assert 50.0 < own <= 60.0 and 0.0 < around <= 5.0


def test_nothing_is_tried_again_after_the_deadline(tmp_path):
  env = environment(tmp_path, ExecutionOptions(infrastructure_retries=5))
  state = env.initial_state('t')
  env.pool.jobs.clear()
  result = env.step(
    state, edit('ok 2.0 0.5 -> deadline 1'), deadline=Deadline.after(0.0)
  )
  assert result.outcome is O.DEADLINE and result.state is state
  assert len(env.pool.jobs) == 1
  env.step(state, edit('ok 2.0 0.5 -> deadline 1'))
  assert len(env.pool.jobs) == 1 + 6


def test_refused_edit_and_bad_response(env):
  state = env.initial_state('t')
  env.pool.jobs.clear()
  refused = env.step(state, edit('what?'))
  assert refused.outcome is O.INVALID_ACTION and refused.is_edit
  assert refused.valid_action and 'cannot do that' in refused.observation
  bad = env.step(state, 'Hello')
  assert bad.outcome is O.INVALID_FORMAT and not bad.valid_action
  unknown = env.step(state, say('Fly', to='x'))
  assert unknown.outcome is O.INVALID_ACTION and not unknown.valid_action
  half = env.step(state, say('Edit Script (AI)', script_name='train.py'))
  names = [result.action for result in (refused, bad, unknown, half)]
  assert names == ['Edit Script (AI)', '', 'Fly', 'Edit Script (AI)']
  assert not (half.is_edit or half.valid_action)
  for result in (refused, bad, unknown, half):
    assert result.exec_s == step_env.FLOOR_S and result.state.step == 1
    assert result.state.files == state.files
  assert not env.pool.jobs


@pytest.mark.parametrize(
  'path',
  [
    '/etc/passwd',
    '../secret.csv',
    'data/../../secret.csv',
    '',
    '..',
    'data/../../../x',
    'a\\b',
    'a\x00b',
    'x' * 300,
  ],
)
def test_paths_stay_inside(env, path):
  state = env.initial_state('t')
  for response in (
    say('Read File', file_name=path),
    say('Copy File', source='train.py', destination=path),
    edit('0.5 -> 0.6', save=path),
  ):
    assert env.step(state, response).outcome is O.INVALID_ACTION


def test_a_link_in_the_data_leads_nowhere(env, tmp_path):
  (tmp_path / 'public' / 'link').symlink_to(tmp_path / 'secret.csv')
  result = env.step(
    env.initial_state('t'), say('Read File', file_name='data/link')
  )
  assert result.outcome is O.INVALID_ACTION and 'label' not in json.dumps(
    result.observation
  )


@pytest.mark.parametrize(
  'name, why',
  [
    ('train.py/x', "'train.py' is a file"),
    ('lib', "'lib' is a folder"),
    ('fixed.py/x', 'read-only'),
    ('submission.csv/x', 'is a file'),
    ('.backup/train.py', 'read-only'),
    ('.backup', 'read-only'),
    ('.repl', 'read-only'),
    ('.repl/command.txt/x', 'read-only'),
    ('data', 'read-only'),
    ('new\n.py', 'not in the workspace'),
    ('é' * 150, 'not in the workspace'),
  ],
)
def test_names_that_no_sandbox_can_lay_out(tmp_path, name, why):
  """Refused before there is a job: it would come back as our fault."""
  env = environment(tmp_path)
  env.prepared['t'].starter_files['lib/a.py'] = START
  state = env.initial_state('t')
  env.pool.jobs.clear()
  for response in (
    edit('0.5 -> 0.6', save=name),
    say('Copy File', source='train.py', destination=name),
  ):
    result = env.step(state, response)
    assert result.outcome is O.INVALID_ACTION and why in result.observation
  assert not env.pool.jobs


def test_undo_copies_cannot_be_run(tmp_path):
  env = environment(tmp_path, on_failure='keep')
  state = env.step(env.initial_state('t'), edit('0.5 -> 0.6')).state
  result = env.step(
    state, say('Execute Script', script_name='.backup/train.py')
  )
  assert result.outcome is O.INVALID_ACTION


def test_long_names_and_blank_files_are_read(env):
  env.prepared['t'].starter_files['blank'] = ' \n'
  state = env.initial_state('t')
  result = env.step(state, say('Read File', file_name='data/' + 'é' * 190))
  assert result.outcome is O.INVALID_ACTION
  result = env.step(state, say('Read File', file_name='blank'))
  assert result.outcome is O.OK and result.message == ''


@pytest.mark.parametrize(
  'answer, why',
  [
    ('x' * (workspace.MAX_FILE_BYTES + 1), 'at most 262144 bytes'),
    ('a\x00', 'NUL'),
    ('\ud800', 'lone surrogate'),
  ],
)
def test_what_an_editor_writes_is_checked(env, answer, why):
  env.editor.edit = lambda script, instruction: answer
  result = env.step(env.initial_state('t'), edit('x'))
  assert result.outcome is O.INVALID_ACTION and why in result.observation
  result = env.step(env.initial_state('t'), edit('x' * 4001))
  assert 'at most 4000 characters' in result.observation


def test_a_fault_inside_a_stand_in_editor_is_its_refusal(env, caplog):
  def faulty(script, instruction):
    return {}[instruction]

  env.editor.edit = faulty
  for number in range(3):
    result = env.step(env.initial_state('t'), edit(f'{number}'))
    assert result.outcome is O.INVALID_ACTION and result.is_edit
    assert 'refused: the editor failed (KeyError)' in result.observation
  (record,) = caplog.records  # seen, once
  assert 'replace_editor' in record.getMessage() and record.exc_info
  env.editor.is_stand_in = False  # of a real model it says nothing
  assert env.step(env.initial_state('t'), edit('x')).outcome is O.INFRASTRUCTURE


@pytest.mark.parametrize(
  'target', ['data/train.csv', 'fixed.py', 'submission.csv', './fixed.py']
)
def test_read_only(env, target):
  state = env.initial_state('t')
  result = env.step(state, edit('0.5 -> 0.6', save=target))
  assert result.outcome is O.INVALID_ACTION


def test_reading_actions(env):
  state = env.initial_state('t')
  env.pool.jobs.clear()
  told = {
    say('List Files', dir_path='.'): 'data/\nfixed.py\ntrain.py',
    say('List Files', dir_path='data'): 'train.csv',
    say('Read File', file_name='data/train.csv'): 'id,y\n0,1\n',
    say(
      'Inspect Script Lines',
      script_name='train.py',
      start_line_number='2',
      end_line_number='2',
    ): 'Lines 2-2 of 3:\nmodel = 1',
    say(
      'Understand File', file_name='train.py', things_to_look_for='x'
    ): '3 lines. Relevant lines:\n2: model = 1',
  }
  for response, text in told.items():
    result = env.step(state, response)
    assert result.outcome is O.OK and result.observation == text
    assert not result.is_edit and result.score is None
    assert result.state.score == 0.5
  for start, end in (('0', '1'), ('3', '2'), ('a', '2'), ('1', '101')):
    assert (
      env.step(
        state,
        say(
          'Inspect Script Lines',
          script_name='train.py',
          start_line_number=start,
          end_line_number=end,
        ),
      ).outcome
      is O.INVALID_ACTION
    )
  assert not env.pool.jobs


def test_copy_execute_undo_final(tmp_path):
  env = environment(tmp_path, on_failure='keep')
  state = env.initial_state('t')
  state = env.step(
    state, say('Copy File', source='train.py', destination='b.py')
  ).state
  assert state.files['b.py'] == START
  result = env.step(state, say('Execute Script', script_name='b.py'))
  assert result.score == 0.5 and not result.is_edit
  assert 'ran b.py' in result.observation and result.state.script == 'b.py'
  state = env.step(state, edit('0.5 -> 0.6')).state
  assert '0.6' in state.files['train.py']
  assert all(not f.startswith('.backup') for f in env.pool.jobs[-1].files)
  state = env.step(state, say('Undo Edit Script', script_name='train.py')).state
  assert state.files['train.py'] == START
  assert (
    env.step(state, say('Undo Edit Script', script_name='train.py')).outcome
    is O.INVALID_ACTION
  )
  final = env.step(state, say('Final Answer', final_answer='done'))
  assert final.done and final.outcome is O.OK


def test_segment(env):
  state = env.initial_state('t')
  result = env.step(
    state,
    say(
      'Edit Script Segment (AI)',
      script_name='train.py',
      start_line_number='2',
      end_line_number='2',
      edit_instruction='1 -> 2',
      save_name='train.py',
    ),
  )
  assert result.outcome is O.OK
  assert result.state.files['train.py'] == START.replace('= 1', '= 2')


def test_without_execution_after_an_edit(tmp_path):
  env = environment(tmp_path, after_edit='nothing')
  result = env.step(env.initial_state('t'), edit('0.5 -> 0.6'))
  assert result.outcome is O.OK and result.score is None
  assert env.executions == 1


def test_truncate_and_options(tmp_path):
  text = step_env.truncate('a' * 9000, 1000)
  assert '8000 characters left out' in text and len(text) < 1100
  with pytest.raises(ValueError, match='on_failure'):
    environment(tmp_path, on_failure='x')
