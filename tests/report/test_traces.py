"""Records as MLAgentBench's trace.json, there and back."""

import dataclasses
import json

import pytest

from jaxagent import traces, types
from jaxagent.envs import parser
from jaxagent.envs.snapshots import Snapshots
from jaxagent.traces.__main__ import main
from tests import made

OLD, NEW = 'lr = 0.1\n', 'lr = 0.01\n'
EDIT = {
  'script_name': 'train.py',
  'edit_instruction': 'Lower the learning rate.',
  'save_name': 'train.py',
}
READ = {'file_name': './train.py', 'things_to_look_for': 'lr'}


def _step(action, args, outcome='ok', **more):
  return made.step(
    outcome, action=action, args=args, observation=f'{action} done', **more
  )


def _record(*steps):
  return made.evaluated(*steps, index=3)


def _low(*steps, workspaces=None):
  record = _record(*steps)
  trace = traces.mlagentbench_trace(record, 'Improve it.', workspaces)
  traces.check(trace)
  return [
    (s['action']['name'], s['action']['args'], s['observation'])
    for s in trace['low_level_steps']
  ]


def _edit(outcome='ok', **more):
  return _step('Edit Script (AI)', EDIT, outcome, **more)


LISTED = _step('List Files', {'dir_path': '.'})


def test_an_understood_file_is_read_and_an_edit_is_read_written_run():
  understood = _step('Understand File', READ)
  texts = [{'train.py': OLD}, {'train.py': NEW}]
  assert _low(understood, _edit(score_after=0.7), workspaces=texts) == [
    ('Read File', {'file_name': './train.py'}, OLD),
    ('Read File', {'file_name': 'train.py'}, OLD),
    (
      'Write File',
      {'file_name': 'train.py', 'content': NEW},
      'File train.py written successfully.',
    ),
    ('Execute Script', {'script_name': 'train.py'}, 'Edit Script (AI) done'),
  ]


@pytest.mark.parametrize(
  'kept, content', [(OLD, traces.NOT_RECORDED), (NEW, NEW)]
)
def test_what_a_failed_edit_wrote_is_known_where_it_was_kept(kept, content):
  texts = [{'train.py': OLD}, {'train.py': kept}]
  low = _low(LISTED, _edit('script_error'), workspaces=texts)
  assert low[2][1]['content'] == content


def test_no_file_is_taken_from_a_workspace_of_two_steps_ago():
  unknown = _step('Copy File', {'source': 'a', 'destination': 'train.py'})
  texts = [{'train.py': OLD}, None, {'train.py': NEW}]
  low = _low(LISTED, unknown, _edit(), workspaces=texts)
  read = ('Read File', {'file_name': 'train.py'}, traces.NOT_RECORDED)
  assert low[2] == read


@pytest.mark.parametrize(
  'step',
  [
    _step('Copy File', {'source': 'a', 'destination': 'b'}, 'invalid_action'),
    _step('', {}, 'invalid_format'),
    _step('Final Answer', {'final_answer': 'done'}),
    _step('Dance', {}),
  ],
)
def test_refused_and_final_steps_have_nothing_below(step):
  assert _low(step) == []


def test_the_research_log_is_a_file():
  log = {'file_name': 'research_log.log'}
  low = _low(
    _step('Append Summary to Research Log', {'content': 'x'}),
    _step('Reflection', {'things_to_reflect_on': 'x'}),
  )
  assert [s[:2] for s in low] == [
    ('Append File', {**log, 'content': 'x\n'}),
    ('Read File', log),
  ]


def test_low_level_steps_have_times_before_their_step():
  steps = [_edit(timestamp=t) for t in (5.0, 9.0)]
  trace = traces.mlagentbench_trace(_record(*steps), '')
  low = [s['timestamp'] for s in trace['low_level_steps']]
  assert low == sorted(low) and low[1] < 5.0 < low[2] < low[3] < 9.0
  assert [s['timestamp'] for s in trace['steps']] == [5.0, 9.0]
  assert 4.999 < low[0]


def test_an_older_record_has_its_response_alone():
  entries = dict.fromkeys(parser.ENTRIES[:4], 'x')
  text = parser.format_response(entries, 'Understand File', READ)
  old = made.step(response=text, action='Understand File')
  refused = made.step(response=text.replace('Underst', 'Withst'))
  trace = traces.mlagentbench_trace(_record(old, refused, made.step()), 'T')
  actions = [s['action'] for s in trace['steps']]
  assert actions == [
    {'name': 'Understand File', 'args': READ},
    {'name': 'Withstand File', 'args': {}},
    {'name': '', 'args': {}},
  ]
  assert [s['timestamp'] for s in trace['steps']] == [0.0, 1.0, 2.0]


def test_what_was_refused_is_read_in_its_response():
  entries = dict.fromkeys(parser.ENTRIES[:4], 'x')
  text = parser.format_response(entries, 'Understand File', READ)
  step = made.step('invalid_format', response=text)
  assert traces.action_of(step) == ('Understand File', READ)
  assert traces.entries_of(step)['Thought'] == 'x'


@pytest.mark.parametrize('time', [float('nan'), float('inf')])
def test_a_time_must_be_finite(time):
  step = _edit(timestamp=time)
  with pytest.raises(ValueError, match=r'wine/3: steps\[0\].timestamp'):
    traces.mlagentbench_trace(_record(step), '')


def test_written_is_read(tmp_path):
  trace = traces.mlagentbench_trace(_record(_edit()), 'Improve.')
  path = traces.write(tmp_path / 'env_log', trace)
  assert path == tmp_path / 'env_log' / 'trace.json'
  assert traces.read(path) == trace
  assert [p.name for p in path.parent.iterdir()] == ['trace.json']
  info = trace['action_infos']
  assert info['Edit Script (AI)']['function'] == 'edit_script'
  assert info['Copy File']['is_primitive']
  assert set(info) == set(parser.ACTION_ARGS)


def _set(trace, path, value):
  *into, last = path
  for key in into:
    trace = trace[key]
  trace[last] = value


@pytest.mark.parametrize(
  'path, value, said',
  [
    (('steps', 0, 'action', 'name'), 5, r'steps\[0\].action.name'),
    (('steps', 0, 'action', 'args'), 'x', r'steps\[0\].action.args'),
    (('steps', 0, 'timestamp'), True, r'steps\[0\].timestamp'),
    (('low_level_steps', 0), {}, r"low_level_steps\[0\] lacks 'action'"),
    (('steps', 0, 'more'), 1, r"steps\[0\] has no field 'more'"),
    (('action_infos', 'Copy File', 'usage'), 1, 'action_infos.Copy File.usage'),
    (('task_description',), None, 'task_description'),
  ],
)
def test_errors_name_file_and_field(tmp_path, path, value, said):
  trace = traces.mlagentbench_trace(_record(_edit()), '')
  _set(trace, path, value)
  file = tmp_path / 'trace.json'
  file.write_text(json.dumps(trace))
  with pytest.raises(ValueError, match=f'trace.json: {said}'):
    traces.read(file)
  with pytest.raises(ValueError, match=said):
    traces.write(tmp_path / 'other', trace)
  assert not (tmp_path / 'other').exists()


@pytest.mark.parametrize('text', ['', '[', 'NaN', '[' * 100_000])
def test_a_trace_that_is_not_json_is_refused(tmp_path, text):
  file = tmp_path / 'trace.json'
  file.write_text(text)
  with pytest.raises(ValueError, match='trace.json is not JSON'):
    traces.read(file)


def test_a_runs_trajectories_are_exported(tmp_path, capsys):
  run, tasks = tmp_path / 'run', tmp_path / 'tasks'
  (run / 'eval').mkdir(parents=True)
  (tasks / 'wine' / 'scripts').mkdir(parents=True)
  (tasks / 'wine/scripts/research_problem.txt').write_text('Improve it.')
  step = {
    'response': parser.format_response({}, 'List Files', {'dir_path': '.'}),
    'outcome': 'ok',
  }
  record = {
    'task': 'wine',
    'index': 3,
    'split': '',
    'score': None,
    'steps': [step],
  }
  assert main([str(run)]) == 2
  assert 'no trajectories below eval/ and collect/' in capsys.readouterr().err
  (run / 'eval' / 'rl.json').write_text(json.dumps([record]))
  (run / 'eval' / 'starts.json').write_text('{}')
  (run / 'collect').mkdir()
  (run / 'collect' / 'trajectories.jsonl').write_text(json.dumps(record) + '\n')
  assert main([str(run), f'--tasks_dir={tasks}']) == 0
  found = traces.read(run / 'mlagentbench/rl/wine/3/env_log/trace.json')
  assert found['task_description'] == 'Improve it.'
  assert found['steps'][0]['action']['name'] == 'List Files'
  expert = traces.read(run / 'mlagentbench/expert/wine/3/env_log/trace.json')
  assert expert['steps'] == found['steps']


def test_a_task_s_own_name_of_its_submission_is_exported(tmp_path):
  run, task = tmp_path / 'run', tmp_path / 'tasks' / 'own'
  for name, text in {
    'env/train.py': 'x = 1',
    'scripts/research_problem.txt': 'Improve it.',
    'scripts/eval.py': 'def get_score(folder): return 1.0',
  }.items():
    (task / name).parent.mkdir(parents=True, exist_ok=True)
    (task / name).write_text(text)
  beside = tmp_path / 'tasks' / 'own.yaml'
  beside.write_text('higher_is_better: true\nsubmission: out.csv\n')
  store = Snapshots(run / 'snapshots.sqlite')
  kept = store.put_bytes(b'id,y\n')
  state = types.State('s', 'own', {'train.py': 'x = 1'}, 1.0, 1.0)
  step = {
    'outcome': 'ok',
    'workspace_id': store.put(state),
    'submission': [kept.digest, kept.size],
  }
  store.close()
  (run / 'eval').mkdir()
  record = {
    'task': 'own',
    'index': 0,
    'split': '',
    'score': None,
    'steps': [step],
  }
  (run / 'eval' / 'agent.json').write_text(json.dumps([record]))
  assert main([str(run), f'--tasks_dir={tmp_path / "tasks"}']) == 0
  left = run / 'mlagentbench/agent/own/0/env_log/traces/step_final_files'
  assert {path.name for path in left.iterdir()} == {'train.py', 'out.csv'}


def test_both_parts_of_whole_solutions_are_exported(tmp_path):
  (tmp_path / 'eval').mkdir()
  found = [
    made.evaluated(made.solution(), part=part).to_json()
    for part in ('scratch', 'improved')
  ]
  (tmp_path / 'eval' / 'rl.json').write_text(json.dumps(found))
  assert main([str(tmp_path)]) == 0
  for part in ('scratch', 'improved'):
    folder = tmp_path / 'mlagentbench/rl' / part / 'wine/0'
    assert (folder / 'env_log/trace.json').is_file()


def test_a_folder_is_what_the_original_s_runner_leaves(tmp_path):
  store = Snapshots(':memory:')
  files = {'train.py': 'x = 1\n', '.backup/000001/train.py': 'old'}
  state = types.State('s', 'wine', files, 1.0, 1.0)
  model = store.put_bytes(b'\x80\x00')
  later = dataclasses.replace(state, files={**files, 'out/model.bin': model})
  submission = store.put_bytes(b'id,y\n1,2\n')

  def left(state, **kept):
    key = store.put(state)
    return made.taken(made.step(exec_s=1.5), workspace_id=key, **kept)

  steps = [
    left(state),
    left(later, submission=(submission.digest, submission.size)),
    left(later),
  ]
  record = _record(*steps)
  path = traces.write_folder(
    tmp_path, record, 'T', store=store, workspaces='all'
  )
  assert path == tmp_path / 'env_log' / 'trace.json'

  def inside(name):
    folder = tmp_path / 'env_log' / 'traces' / name
    return {
      str(p.relative_to(folder)): p.read_bytes()
      for p in folder.rglob('*')
      if p.is_file()
    }

  assert inside('step_0_files') == {'train.py': b'x = 1\n'}
  whole = {
    'train.py': b'x = 1\n',
    'out/model.bin': b'\x80\x00',
    'submission.csv': b'id,y\n1,2\n',
  }
  # What a run has written stays until another writes it.
  assert [inside(f'step_{n}_files') for n in (1, 2, 'final')] == [whole] * 3
  # What `MLAgentBench/eval.py` opens beside.
  for name in ('log', 'agent_log/main_log', 'env_log/overall_time.txt'):
    assert (tmp_path / name).is_file()
  assert float((tmp_path / 'env_log/overall_time.txt').read_text()) == 4.5
  traces.write_folder(tmp_path, record, 'T', store=store)
  assert not (tmp_path / 'env_log/traces/step_0_files').exists()
  assert inside('step_final_files') == whole
  with pytest.raises(ValueError, match='workspaces='):
    traces.write_folder(tmp_path, record, 'T', store=store, workspaces='x')
  lost = dataclasses.replace(steps[1], workspace_id='nothing')
  record = _record(steps[0], lost)
  with pytest.raises(ValueError, match=r'wine/3: steps\[1\]: its files'):
    traces.write_folder(tmp_path, record, 'T', store=store)


def test_a_run_from_before_is_written_without_files(tmp_path):
  record = made.evaluated(made.step())
  traces.write_folder(tmp_path, record, '', workspaces='all')
  assert not (tmp_path / 'env_log/traces').exists()
