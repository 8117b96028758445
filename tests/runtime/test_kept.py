"""A damaged file of the work directory is said, set aside and made again."""

import json
import types

import pytest

from jaxagent.errors import Interrupted, UserError
from jaxagent.recipes import stages, starts
from jaxagent.records import Evaluated
from jaxagent.runtime import kept
from jaxagent.runtime.stop import StopFlag

STATE = dict(
  state_id='s',
  task='wine',
  files={'train.py': 'x\n'},
  score=0.5,
  start_score=0.5,
  last_outcome='ok',
  history=[],
  ideas=[],
  step=0,
  script='train.py',
)
RECORD = dict(task='wine', index=0, split='heldin', score=None, steps=[])


def _host(tmp_path):
  return types.SimpleNamespace(
    work=tmp_path, heldin=('wine',), heldout=(), wall_s={}
  )


@pytest.mark.parametrize('text', ['{', '', '[1]', '{"sft": "x"}', '\x00', '3'])
def test_damaged_wall_clock_does_not_end_a_run(tmp_path, text, capsys):
  path = tmp_path / 'wall_s.json'
  path.write_text(text)
  host = _host(tmp_path)
  with stages.timed(host, 'sft'):
    pass
  assert set(json.loads(path.read_text())) == {'sft'} == set(host.wall_s)
  assert (tmp_path / 'wall_s.json.damaged').read_text() == text
  said = capsys.readouterr().out
  assert 'wall_s.json is damaged' in said and said.count('\n') == 1


def test_an_undamaged_wall_clock_is_added_to(tmp_path, capsys):
  (tmp_path / 'wall_s.json').write_text('{"sft": 5.0, "rl": 2}')
  with stages.timed(_host(tmp_path), 'sft'):
    pass
  found = json.loads((tmp_path / 'wall_s.json').read_text())
  assert found['sft'] >= 5 and found['rl'] == 2
  assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
  'value',
  [[], [3], {'task': 'wine'}, [{k: 0 for k in RECORD if k != 'score'}]],
)
def test_damaged_evaluation_is_made_again(tmp_path, value):
  path = tmp_path / 'rl.json'
  path.write_text(json.dumps(value))
  assert kept.kept_json(path, kept.trajectories) is None
  assert not path.exists() and (tmp_path / 'rl.json.damaged').exists()


def test_whole_evaluation_is_kept(tmp_path):
  path = tmp_path / 'rl.json'
  assert kept.kept_json(path, kept.trajectories) is None
  path.write_text(json.dumps([RECORD]))
  (found,) = kept.kept_json(path, kept.trajectories)
  assert found == Evaluated(task='wine', index=0, split='heldin')
  assert path.exists()


def test_a_file_that_is_not_utf8_counts_as_damaged(tmp_path):
  path = tmp_path / 'a.json'
  path.write_bytes(b'"\xff"')
  assert kept.kept_json(path) is None


@pytest.mark.parametrize(
  'value',
  [
    {'wine': []},
    {'wine': {'state': STATE}},
    {'wine': {'state': {**STATE, 'extra': 1}, 'private': 0.5}},
    {'wine': {'state': {'task': 'wine'}, 'private': 0.5}},
  ],
)
def test_damaged_starts_are_made_again(tmp_path, value, monkeypatch):
  path = tmp_path / 'eval' / 'starts.json'
  path.parent.mkdir()
  path.write_text(json.dumps(value))
  made = starts.Start(starts.record_data.state_from_json(STATE), 0.25, 0.2)
  monkeypatch.setattr(starts, '_starter_scores', lambda *a: (0.25, 0.2))
  host = _host(tmp_path)
  host.stop = StopFlag()
  host.env = types.SimpleNamespace(initial_state=lambda task: made.state)
  assert starts.make_starts(host) == {'wine': made}
  assert path.with_name('starts.json.damaged').exists()
  monkeypatch.setattr(starts, '_starter_scores', None)
  assert starts.make_starts(host) == {'wine': made}  # what was written


def test_a_start_that_was_made_before_a_stop_is_not_made_again(
  tmp_path, monkeypatch
):
  host, made = _host(tmp_path), starts.record_data.state_from_json(STATE)
  host.heldout = ('iris',)
  ran = []

  def initial_state(task):
    ran.append(task)
    return made

  def stop(saved):
    raise Interrupted(saved)

  host.env = types.SimpleNamespace(initial_state=initial_state)
  host.stop = types.SimpleNamespace(check=stop)
  monkeypatch.setattr(starts, '_starter_scores', lambda *a: (0.25, 0.2))
  for expected in ['wine'], ['wine', 'iris']:
    with pytest.raises(Interrupted):
      starts.make_starts(host)
    assert ran == expected
  assert list(starts.make_starts(host)) == ['wine', 'iris']
  assert ran == ['wine', 'iris']


def _index(line):
  return line['task'] and line['index']


@pytest.mark.parametrize('name, value', [('kind', 'poem'), ('format', 2)])
def test_records_of_another_version_end_the_run_and_stay(tmp_path, name, value):
  step = {'outcome': 'ok', name: value}
  text = json.dumps({**RECORD, 'steps': [step]})
  path = tmp_path / 'rl.json'
  path.write_text(f'[{text}]')
  with pytest.raises(
    UserError, match=r'rl\.json: .*steps\[0\].*is not known|known is'
  ) as e:
    kept.kept_json(path, kept.trajectories)
  assert '\n' not in str(e.value) and 'the version of jaxagent' in str(e.value)
  path.write_text(text + '\n' + text + '\n')
  with pytest.raises(UserError, match=r'rl\.json:1: '):
    kept.mend_lines(path, Evaluated.from_json)
  assert [p.name for p in tmp_path.iterdir()] == ['rl.json']


def test_damaged_trajectories_leave_the_whole_ones(tmp_path, capsys):
  path = tmp_path / 't.jsonl'
  good = '{"task": "a", "index": 0}\n'
  torn = '{"task": "a", "ind\n[2]\n{"index": 1}\n\n'
  path.write_text(good + torn + good)
  assert kept.mend_lines(path, _index) == [0, 0]
  assert path.read_text() == good + good
  assert (tmp_path / 't.jsonl.damaged').read_text() == good + torn + good
  said = capsys.readouterr().out
  assert 'line 2' in said and '2 whole records are kept' in said
  assert kept.mend_lines(path, _index) == [0, 0]
  assert path.read_text() == good + good
  assert capsys.readouterr().out == ''
