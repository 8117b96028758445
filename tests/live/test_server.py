"""The live server: what it answers, what it refuses, and bad input."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from jaxagent.live import __main__ as command
from jaxagent.live import found
from tests.live import written
from tests.live.written import EXECUTIONS, FINISHED, METRICS, ROLLOUTS, ROOT

pytest.importorskip('starlette', reason="needs pip install '.[live]'")
pytest.importorskip('uvicorn', reason="needs pip install '.[live]'")


@pytest.fixture(scope='module')
def server(tmp_path_factory):
  with written.served(tmp_path_factory.mktemp('runs')) as server:
    yield server


@pytest.fixture
def work(server, request):
  """A run's folder of its own, below the folder that is served."""
  folder = server.root / request.node.name.replace('[', '-').rstrip(']')
  folder.mkdir()
  return folder


def _named(server, work) -> str:
  return written.until(
    lambda: (
      any(run['name'] == work.name for run in server.ask('runs')['runs'])
      and work.name
    )
  )


def _state(server, work, so):
  name = _named(server, work)
  return written.until(
    lambda: (state := server.state(name)) and so(state) and state
  )


@pytest.mark.alone
def test_a_rollout_shows_within_three_seconds_of_its_line(server, work):
  written.whole(work, 4)
  _state(server, work, lambda state: state['rollouts'] == 4)
  for number in (4, 5, 6):
    written.add(work, FINISHED, written.finished(number))
    begun = time.monotonic()
    written.until(
      lambda n=number: server.rows(work.name)[0]['prompt_id'] == f'0/{n}/0'
    )
    assert time.monotonic() - begun < 3


def test_a_rollout_waits_until_its_line_says_what_became_of_it(server, work):
  written.add(work, FINISHED, written.finished(0))
  _state(server, work, lambda state: state['rollouts'] == 1)
  (row,) = server.rows(work.name)
  assert (row['fate'], row['reward'], row['age']) == ('waiting', 0.5, None)
  line = written.rollout(0, update=2)
  written.add(work, ROLLOUTS, line)
  _state(server, work, lambda state: state['counts']['fate'] == {'trained': 1})
  (row,) = server.rows(work.name)
  assert (row['update'], row['policy'], row['age']) == (2, 0, 2)


def test_a_rollout_that_a_resumed_run_finishes_is_the_newest_and_waits(
  server, work
):
  left = written.rollout(
    0, fate='unfinished', update=None, reward=None, turns=[]
  )
  written.add(work, ROLLOUTS, left, written.rollout(1))
  _state(server, work, lambda state: state['rollouts'] == 2)
  (row,) = server.rows(work.name, fate='unfinished')
  assert (row['prompt_id'], row['reward']) == ('0/0/0', None)
  written.add(work, FINISHED, written.finished(0))
  _state(server, work, lambda state: 'waiting' in state['counts']['fate'])
  row = server.rows(work.name)[0]
  assert (row['prompt_id'], row['fate'], row['reward']) == (
    '0/0/0',
    'waiting',
    0.5,
  )
  written.add(work, ROLLOUTS, written.rollout(0, update=3))
  _state(server, work, lambda state: state['counts']['fate'] == {'trained': 2})
  assert server.rows(work.name)[0]['update'] == 3


def test_a_rollout_in_full_has_prompt_code_output_score_reward_and_reason(
  server, work
):
  written.add(work, FINISHED, written.finished(0))
  line = written.rollout(0, reward=None, reason='no_scale', message='no scale')
  written.add(work, ROLLOUTS, line)
  _state(server, work, lambda state: state['rollouts'] == 1)
  (one,) = server.ask('rollout', run=work.name, id='0/0/0~0')['rollouts']
  (turn,) = one['shown']
  assert turn['prompt'] == 'Improve the script, prompt 0.'
  assert '+new = 2' in turn['diff'] and turn['output'] == 'it ran'
  assert (turn['score_before'], turn['score_after']) == (0.5, 0.75)
  assert (one['reward'], one['reason']) == (None, 'no_scale')


def test_texts_come_from_the_traces_where_nothing_else_has_them(server, work):
  written.add(work, ROLLOUTS, *(written.rollout(i) for i in range(4)))
  file = 'rl/traces/update_000000.jsonl'
  written.add(work, file, *(written.trace(i) for i in range(4)))
  _state(server, work, lambda state: state['rollouts'] == 4)
  (one,) = server.ask('rollout', run=work.name, id='0/3/0~0')['rollouts']
  assert '+new = 2' in one['shown'][0]['diff']


def test_a_group_is_shown_whole(server, work):
  for number in range(3):
    written.add(work, FINISHED, written.finished(number) | {'group_id': 'g'})
  written.add(work, FINISHED, written.finished(3))
  _state(server, work, lambda state: state['rollouts'] == 4)
  found = server.ask('rollout', run=work.name, id='0/1/0~0', group=1)
  ids = [one['prompt_id'] for one in found['rollouts']]
  assert ids == ['0/0/0', '0/1/0', '0/2/0']


def test_filters_by_task_outcome_update_and_text(server, work):
  written.add(
    work, ROLLOUTS, written.rollout(0), written.rollout(1, task='iris'),
    written.rollout(2, outcome='timeout'), written.rollout(5),
  )  # fmt: skip
  special = 'Naïve "quoted" \\ line\nnext'
  written.add(work, FINISHED, written.finished(5, response=special))
  _state(server, work, lambda state: state['rollouts'] == 4)

  def ids(**wanted):
    return {row['prompt_id'] for row in server.rows(work.name, **wanted)}

  assert ids(task='iris') == {'0/1/0'}
  assert ids(outcome='timeout') == {'0/2/0'}
  assert ids(update=1) == {'0/5/0'}
  assert ids(text='naïVE "QUOTED" \\ line\nNext') == {'0/5/0'}
  assert ids(text='NAÏVE "q') == {'0/5/0'}
  assert ids(text='nowhere') == set()


def test_pages_go_on_where_the_last_one_ended(server, work):
  written.add(work, ROLLOUTS, *(written.rollout(i) for i in range(25)))
  _state(server, work, lambda state: state['rollouts'] == 25)
  seen, offset = [], 0
  while offset is not None:
    page = server.ask('rollouts', run=work.name, offset=offset, limit=10)
    seen += [row['prompt_id'] for row in page['rows']]
    offset = page['next']
  assert seen == [f'0/{i}/0' for i in reversed(range(25))]


def test_lanes_have_slots_decoding_learner_and_ages(server, work):
  written.whole(work, 8)
  _state(server, work, lambda state: state['rollouts'] == 8)
  lanes = server.ask('lanes', run=work.name, seconds=60)
  assert {one['slot'] for one in lanes['executions']} == {0, 1}
  one = lanes['executions'][0]
  assert one['end'] - one['begin'] == pytest.approx(2.0, abs=1e-3)
  assert one['rest_s'] == pytest.approx(0.2, abs=1e-6)
  assert len(lanes['decoding']) == 8
  assert [age for _, age, *_ in lanes['samples']] == [0] * 8
  whats = [phase['what'] for phase in lanes['learner']]
  assert {'log-probs', 'update', 'hand-over', 'checkpoint'} == {*whats}
  last = [p for p in lanes['learner'] if p['update'] == 1]
  assert [p['phase'] for p in last] == [
    'save_checkpoint', 'old_log_prob', 'update_actor', 'update_weights',
  ]  # fmt: skip


def test_curves_go_on_and_begin_anew_with_a_resumed_run(server, work):
  written.add(work, METRICS, *(written.metrics(i) for i in range(6)))
  _state(server, work, lambda state: state['updates'] == 6)
  curves = server.ask('curves', run=work.name)
  assert curves['rl']['steps'] == list(range(6))
  drawn = curves['rl']['columns']['critic/score/mean']
  assert drawn == pytest.approx([0.1 * i for i in range(6)])
  titles = {panel['title'] for panel in curves['panels']}
  assert {'Reward', 'KL to the reference', 'Malformed'} <= titles
  part = work / 'logs' / 'metrics.part'  # as metrics.truncate_records
  part.write_text(json.dumps(written.metrics(0)) + '\n')
  os.replace(part, work / METRICS)
  _state(server, work, lambda state: state['updates'] == 1)


# Bad input ---------------------------------------------------------------------


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path):
  with written.served(tmp_path / 'later') as server:
    assert 'is not there yet' in server.ask('runs')['problem']
    written.whole(tmp_path / 'later' / 'one', 4)
    written.until(lambda: server.ask('runs')['runs'])
    written.until(lambda: len(server.rows('one')) == 4)


def test_a_run_is_served_as_the_folder_itself(tmp_path):
  written.whole(tmp_path, 4)
  with written.served(tmp_path) as server:
    assert [run['name'] for run in server.ask('runs')['runs']] == ['.']
    assert len(server.rows('.')) == 4


def test_a_half_written_line_waits_for_its_end(server, work):
  line = json.dumps(written.rollout(1)).encode() + b'\n'
  written.add(work, ROLLOUTS, written.rollout(0), line[:40])
  state = _state(server, work, lambda state: state['rollouts'] == 1)
  assert state['problems'] == []
  written.add(work, ROLLOUTS, line[40:])
  _state(server, work, lambda state: state['rollouts'] == 2)


def test_a_file_that_shrinks_is_read_anew(server, work):
  written.add(work, ROLLOUTS, *(written.rollout(i) for i in range(5)))
  _state(server, work, lambda state: state['rollouts'] == 5)
  (work / ROLLOUTS).write_text(json.dumps(written.rollout(9)) + '\n')
  _state(server, work, lambda state: state['rollouts'] == 1)
  assert [row['prompt_id'] for row in server.rows(work.name)] == ['0/9/0']


def test_a_run_that_goes_and_comes_back_is_said_so(server, work):
  written.whole(work, 4)
  name = _named(server, work)
  shutil.rmtree(work)
  written.until(lambda: 'no run' in server.state(name).get('error', ''))
  written.whole(work, 8)
  _state(server, work, lambda state: state['rollouts'] == 8)


def test_a_run_of_an_older_version_shows_its_traces(server, work):
  file = 'rl/traces/update_000000.jsonl'
  written.add(work, file, *(written.trace(i) for i in range(4)))
  written.add(work, EXECUTIONS, {'job_id': 'start-wine', 'outcome': 'ok'})
  state = _state(server, work, lambda state: state['rollouts'] == 4)
  assert sum('older version' in one for one in state['problems']) == 2
  (one,) = server.ask('rollout', run=work.name, id='0/2/0~0')['rollouts']
  assert '+new = 2' in one['shown'][0]['diff']


def test_lines_of_another_format_or_kind_are_counted(server, work):
  odd = {'format': 1, 'prompt_id': ['x'], 'restart': 0}
  sick = written.rollout(1) | {
    'turns': 7, 'seconds': [], 'reward': 'much', 'update': 1e99, 'task': {},
    'timestamp': float('nan'), 'outcome': 3,
  }  # fmt: skip
  written.add(work, ROLLOUTS, {'format': 99}, odd, sick, b'{]\n')
  state = _state(server, work, lambda state: state['rollouts'] == 1)
  text = ' '.join(state['problems'])
  assert '2 lines are of another format' in text and '1 line is no JSON' in text
  assert server.ask('rollout', run=work.name, id='0/1/0~0')['rollouts']
  assert server.ask('lanes', run=work.name)


def test_hostile_texts_are_cut_and_controls_are_shown(server, work):
  text = 'a\x00b\x1b[31m\u202ec\ud800' + 'x' * (2 << 20)
  written.add(work, FINISHED, written.finished(0, observation=text))
  state = _state(server, work, lambda state: state['rollouts'] == 1)
  assert 'over 1 MB; texts are cut' in ' '.join(state['problems'])
  (one,) = server.ask('rollout', run=work.name, id='0/0/0~0')['rollouts']
  output = one['shown'][0]['output']
  assert output.startswith('a\\x00b\\x1b[31m\\u202ec\\ud800x')
  assert 'characters left out' in output and len(output) < 21_000
  assert one['long'] is True


def test_numbers_whose_sums_overflow_leave_the_run_readable(server, work):
  far = {'reward': 1e308, 'exec_s': 1e308}
  line = written.finished(0)
  line['turns'] = [line['turns'][0] | far] * 3
  written.add(work, FINISHED, line)
  spent = written.execution(1, timestamp=-1.7e308, queue_s=1.7e308)
  written.add(work, EXECUTIONS, spent)
  _state(server, work, lambda state: state['rollouts'] == 1)
  (row,) = server.rows(work.name)
  assert (row['reward'], row['exec_s']) == (None, 0.0)
  assert server.ask('rollout', run=work.name, id='0/0/0~0')['rollouts']
  assert server.ask('lanes', run=work.name)['executions'] == []


@pytest.mark.parametrize('value', ['nan', 'inf', '-inf', '1e999', 'x'])
@pytest.mark.parametrize('name', ['begin', 'end', 'seconds'])
def test_a_time_that_is_no_number_is_refused(server, work, name, value):
  written.whole(work, 4)
  asked = server.ask('lanes', run=_named(server, work), **{name: value})
  assert asked == {'error': 'begin, end and seconds must be numbers'}


@pytest.mark.parametrize(
  'restart', ['²', '9' * 5000, '', '-1'], ids=['digit', 'long', 'none', 'minus']
)
def test_an_id_without_a_rollout_is_answered_so(server, work, restart):
  written.whole(work, 4)
  asked = {'run': _named(server, work), 'id': f'0/0/0~{restart}'}
  assert 'no rollout' in server.ask('rollout', **asked)['error']


def test_a_folder_that_there_cannot_be_is_waited_for_with_the_reason(tmp_path):
  with written.served(tmp_path / ('x' * 300)) as server:
    assert 'name too long' in server.ask('runs')['problem']


def test_folders_without_permission_are_named(tmp_path, monkeypatch):
  def refused(path):
    if str(path).endswith('locked'):
      raise PermissionError(13, 'Permission denied')
    return scandir(path)

  scandir = os.scandir
  monkeypatch.setattr(os, 'scandir', refused)  # root may read everything
  (tmp_path / 'locked').mkdir()
  written.whole(tmp_path / 'open', 4)
  listed = found.Runs(tmp_path).listed()
  assert listed['unreadable'] == ['locked']
  assert [run['name'] for run in listed['runs']] == ['open']
  assert 'no permission' in found.Runs(tmp_path / 'locked').listed()['problem']


@pytest.mark.parametrize(
  'run', ['..', '../x', '/etc', '.git', '%00', 'a' * 9999]
)
def test_nothing_outside_the_folder_is_a_run(server, run):
  assert 'no run' in server.state(run)['error']


def test_links_are_not_followed(server, tmp_path):
  written.whole(tmp_path / 'else', 4)
  (server.root / 'link').symlink_to(tmp_path / 'else')
  time.sleep(1.2)
  assert 'link' not in [run['name'] for run in server.ask('runs')['runs']]


def _get(server, path='/', method='GET', **headers):
  host, _, port = server.url[7:].rstrip('/').partition(':')
  connection = http.client.HTTPConnection(host, int(port), timeout=10)
  connection.putrequest(method, path, skip_host=True)
  for name, value in headers.items():
    connection.putheader(name, value)
  connection.endheaders()
  answer = connection.getresponse()
  return answer.status, {k.lower(): v for k, v in answer.getheaders()}


@pytest.mark.parametrize(
  'host',
  ['evil.example', '127.0.0.1.evil.example', 'localhost.', '', '0.0.0.0'],
)
def test_other_host_names_are_refused(server, host):
  assert _get(server, Host=host)[0] == 421


@pytest.mark.parametrize('host', ['127.0.0.1', 'LOCALHOST:80', '[::1]:8765'])
def test_names_of_this_machine_are_answered(server, host):
  assert _get(server, Host=host)[0] == 200


@pytest.mark.parametrize('path', ['/', '/api/runs', '/static/main.js', '/none'])
def test_every_answer_has_the_strict_policy(server, path):
  _, headers = _get(server, path, Host='localhost')
  policy = headers['content-security-policy']
  assert "default-src 'none'" in policy and "script-src 'self';" in policy
  assert 'unsafe' not in policy
  assert headers['x-content-type-options'] == 'nosniff'


@pytest.mark.parametrize('method', ['POST', 'PUT', 'DELETE', 'OPTIONS'])
def test_nothing_but_reading_is_allowed(server, method):
  assert _get(server, '/api/runs', method, Host='localhost')[0] == 405


def test_the_page_names_no_other_site_and_holds_no_script(server):
  with urllib.request.urlopen(server.url) as answer:
    page = answer.read().decode()
  assert 'http:' not in page and 'https:' not in page
  assert (
    '<style' not in page
    and ' style=' not in page
    and ' on' not in (page.replace(' one ', ' '))
  )
  assert page.count('<script') == page.count('<script src=') + page.count(
    '<script type="module" src='
  )


def test_a_port_that_is_taken_is_one_line_and_status_2(server, tmp_path):
  port = server.url.rstrip('/').rpartition(':')[2]
  done = subprocess.run(
    [sys.executable, '-m', 'jaxagent.live', str(tmp_path), '--port', port],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.returncode == 2
  assert done.stderr.count('\n') == 1
  assert f'port {port} of 127.0.0.1 is taken' in done.stderr


def test_a_file_in_place_of_a_folder_is_refused(tmp_path, capsys):
  file = tmp_path / 'file'
  file.touch()
  assert command.main([str(file)]) == 2
  assert 'is no folder' in capsys.readouterr().err


def test_a_missing_library_is_one_line_with_the_command(
  tmp_path, capsys, monkeypatch
):
  monkeypatch.setitem(sys.modules, 'uvicorn', None)
  assert command.main([str(tmp_path)]) == 2
  assert capsys.readouterr().err == (
    "error: the live page needs uvicorn: pip install 'jaxagent[live]'\n"
  )


def test_an_address_of_another_machine_is_one_line(tmp_path, capsys):
  assert command.main([str(tmp_path), '--host=192.0.2.1']) == 2
  assert 'cannot listen on 192.0.2.1' in capsys.readouterr().err


@pytest.mark.parametrize('host', ['..', 'a' * 80])
def test_a_host_that_is_no_name_is_one_line(tmp_path, capsys, host):
  assert command.main([str(tmp_path), f'--host={host}']) == 2
  assert capsys.readouterr().err == (
    f'error: cannot listen on {host}, port 8765: no name of a host; give others with '
    '--host and --port.\n'
  )


def test_serving_changes_nothing_in_the_folder(tmp_path):
  written.whole(tmp_path / 'one', 8)

  def seen():
    return {
      path: (path.stat().st_mtime_ns, path.stat().st_size)
      for path in sorted(tmp_path.rglob('*'))
    }

  before = seen()
  with written.served(tmp_path) as server:
    written.until(lambda: len(server.rows('one')) == 8)
    for what in ('state', 'curves', 'lanes', 'rollouts'):
      server.ask(what, run='one')
    held = os.listdir(f'/proc/{server.process.pid}/fd')
    names = [
      os.path.realpath(f'/proc/{server.process.pid}/fd/{f}') for f in held
    ]
    assert not [name for name in names if name.startswith(str(tmp_path))]
  assert seen() == before


def test_a_second_reader_is_answered_while_the_first_waits(server, work):
  written.whole(work, 4)
  _named(server, work)
  host, _, port = server.url[7:].rstrip('/').partition(':')
  with socket.create_connection((host, int(port))) as idle:
    idle.sendall(b'GET /api/runs HTTP/1.1\r\nHost: localhost\r\n')  # no end
    assert server.state(work.name)['rollouts'] == 4
