"""`python -m jaxagent.why` names what became of each rollout."""

import json
import re

import pytest

from jaxagent import why
from jaxagent.rollout.rollout_log import LOG

TURN = {
  'call': 0, 'task': 'wine', 'action': 'Execute Script', 'outcome': 'ok',
  'reward': 0.75, 'reason': None, 'exec_s': 2.0, 'message': '',
}  # fmt: skip
RECORD = {
  'format': 1, 'prompt_id': '0/0/0', 'group_id': '0/0', 'restart': 0, 'task': 'wine',
  'fate': 'trained', 'update': 37, 'version': 37, 'outcome': 'ok', 'reward': 0.75,
  'reason': None, 'message': '', 'turns': [TURN], 'attempts': [],
  'seconds': {'generation': 1.0, 'execution': 2.0, 'waiting': 0.5, 'total': 3.5},
  'timestamp': 0.0,
}  # fmt: skip


@pytest.fixture
def work(tmp_path):
  killed = {
    'call': 1, 'attempt': 1, 'outcome': 'grader_error', 'seconds': 0.4,
    'message': 'the grader was killed by signal 9',
  }  # fmt: skip
  malformed = TURN | {
    'action': '', 'outcome': 'invalid_format', 'reward': 0.0,
    'message': 'The response has no Action.',
  }  # fmt: skip
  records = [
    RECORD | {'prompt_id': '0/0/0', 'update': 36, 'version': 36},
    RECORD | {'prompt_id': '0/1/0', 'attempts': [killed]},
    RECORD | {'prompt_id': '0/2/0', 'turns': [malformed], 'reward': 0.0},
    RECORD | {
      'prompt_id': '0/3/0', 'turns': [TURN | {'outcome': 'timeout', 'reward': 0.5}],
      'reward': 0.5,
    },
    RECORD | {
      'prompt_id': '0/4/0', 'fate': 'quarantined', 'update': None, 'reward': None,
      'reason': 'infrastructure', 'turns': [], 'task': None,
      'message': 'infrastructure 3 times: no space',
    },
  ]  # fmt: skip
  path = tmp_path / LOG
  path.parent.mkdir()
  path.write_text(''.join(json.dumps(r) + '\n' for r in records))
  return tmp_path


def _said(capsys, *arguments) -> str:
  assert why.main([str(a) for a in arguments]) == 0
  return capsys.readouterr().out


@pytest.mark.parametrize(
  'prompt, names',
  [
    ('0/1/0', ('grader_error', 'killed by signal 9', 'infrastructure error')),
    ('0/2/0', ('invalid_format', 'has no Action', 'reward 0')),
    ('0/3/0', ('timeout', 'reward 0.5')),
    (
      '0/4/0',
      ('quarantined', 'infrastructure 3 times: no space', 'not used again'),
    ),
  ],
)
def test_each_prompt_is_answered_by_name(work, capsys, prompt, names):
  said = _said(capsys, work, '--update', 37, '--prompt', prompt)
  assert all(name in said for name in names)


def test_an_update_shows_the_rollouts_that_ended_while_it_was_collected(
  work, capsys
):
  said = _said(capsys, work, '--update', 37)
  assert '0/4/0' in said and '0/0/0' not in said
  assert '3 trained' in said and '1 quarantined' in said


def test_json_is_the_records(work, capsys):
  said = _said(capsys, work, '--prompt', '0/1/0', '--json')
  assert json.loads(said)['attempts'][0]['outcome'] == 'grader_error'


@pytest.mark.parametrize(
  'arguments, problem',
  [
    (['--update', '5'], 'update 5 is not in .*; choose from: 36 to 37'),
    (
      ['--prompt', '9/9/9'],
      "prompt '9/9/9' is not among the 5 prompts .*; choose from: ",
    ),
    (
      ['--update', '36', '--prompt', '0/1/0'],
      'an ended rollout of update 36; choose from',
    ),
  ],
)
def test_an_unknown_update_or_prompt_is_refused_in_one_line(
  work, capsys, arguments, problem
):
  assert why.main([str(work), *arguments]) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert re.search(problem, error), error


def test_a_folder_without_a_run_is_refused_by_name(tmp_path, capsys):
  assert why.main([str(tmp_path / 'gone')]) == 2
  assert 'no such folder' in capsys.readouterr().err
  assert why.main([str(tmp_path)]) == 2
  assert 'RL has not started' in capsys.readouterr().err


def test_controls_in_a_message_do_not_reach_the_terminal(work, capsys):
  """A lone surrogate cannot even be printed."""
  odd = 'bad \x1b[2J\u202e\ud800\nline'
  with (work / LOG).open('a') as file:
    line = RECORD | {'prompt_id': '0/9/0', 'task': 'wi\x1bne', 'message': odd}
    file.write(json.dumps(line) + '\n')
  assert why.main([str(work), '--prompt', '0/9/0']) == 0
  said = capsys.readouterr().out
  assert 'wi\\x1bne' in said
  assert '  bad \\x1b[2J\\u202e\\ud800\nline\n' in said
