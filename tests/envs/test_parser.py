"""Responses: what is let through, what is refused and how."""

from __future__ import annotations

import json
import pathlib
import time

import pytest

from jaxagent.envs import parser
from jaxagent.types import Outcome

THOUGHTS = {n: f'about {n.lower()}' for n in parser.ENTRIES[:4]}
RUN = {'script_name': 'train.py'}
GOOD = parser.format_response(THOUGHTS, 'Execute Script', RUN)


def with_input(text, action='Execute Script'):
  head = GOOD.split('Action:')[0]
  return f'{head}Action: {action}\nAction Input: {text}'


@pytest.mark.parametrize('mode', ['strict', 'compatible'])
@pytest.mark.parametrize('action', parser.ACTION_ARGS)
def test_round_trip_of_every_action(action, mode):
  args = {n: f'{n} "quoted" \u00e9\nline' for n in parser.ACTION_ARGS[action]}
  text = parser.format_response(THOUGHTS, action, args)
  response = parser.parse_response(text, mode=mode)
  assert (response.action, response.args) == (action, args)
  assert response.entries['Thought'] == 'about thought'


def test_without_thought():
  text = parser.format_response({}, 'Execute Script', RUN)
  with pytest.raises(parser.FormatError, match='Reflection'):
    parser.parse_response(text)
  required = parser.ENTRIES_WITHOUT_THOUGHT
  assert parser.parse_response(text, required=required).args == RUN


def test_what_follows_the_observation_is_cut():
  text = GOOD + '\nObservation: 0.99\nAction: Final Answer'
  assert parser.parse_response(text).action == 'Execute Script'


def test_an_entry_name_inside_a_line_starts_nothing():
  entries = {**THOUGHTS, 'Thought': 'I choose Action: List Files'}
  text = parser.format_response(entries, 'Execute Script', RUN)
  assert parser.parse_response(text).entries['Thought'].endswith('List Files')


@pytest.mark.parametrize(
  'text, says',
  [
    ('', 'missing'),
    ('Hello', 'missing'),
    ('Hello\n' + GOOD, 'before the first'),
    (GOOD.replace('Reflection', 'Reflexion'), 'Reflection'),
    (GOOD.replace('about thought', ''), 'empty'),
    (GOOD + '\nThought: again', 'twice'),
    (with_input('train.py'), 'not valid JSON'),
    (with_input('{"script_name": "a"} and more'), 'not valid JSON'),
    (with_input('["train.py"]'), 'list'),
    (with_input('{"script_name": "a", "script_name": "b"}'), 'twice'),
    (with_input('{"script_name": NaN}'), 'constant'),
    (with_input('[' * 100_000), 'not valid JSON'),
  ],
)
def test_format_errors(text, says):
  with pytest.raises(parser.FormatError, match=says) as raised:
    parser.parse_response(text)
  assert raised.value.outcome is Outcome.INVALID_FORMAT


def test_order_matters_when_strict():
  lines = GOOD.split('\n')
  swapped = '\n'.join([lines[1], lines[0], *lines[2:]])
  with pytest.raises(parser.FormatError, match='in this order'):
    parser.parse_response(swapped)
  assert parser.parse_response(swapped, mode='compatible').args == RUN


@pytest.mark.parametrize(
  'text, says',
  [
    (with_input('{}', 'Launch Rocket'), 'Unknown action'),
    (with_input('{}'), "lacks 'script_name'"),
    (with_input('{"script_name": "a", "x": "b"}'), "no 'x'"),
    (with_input('{"script_name": null}'), 'must be a string'),
    (with_input('{"script_name": true}'), 'must be a string'),
    (with_input('{"script_name": {"a": 1}}'), 'must be a string'),
  ],
)
def test_action_errors(text, says):
  with pytest.raises(parser.ActionError, match=says) as raised:
    parser.parse_response(text)
  assert raised.value.outcome is Outcome.INVALID_ACTION


def test_allowed_actions_and_mode():
  with pytest.raises(parser.ActionError, match='choose one of: List Files'):
    parser.parse_response(GOOD, actions=('List Files',))
  with pytest.raises(ValueError, match="mode='lax'"):
    parser.parse_response(GOOD, mode='lax')


def test_compatible_forgives():
  text = (
    'Some words\nAction: [Execute Script]\n'
    'Action Input: ```json\n{"script_name": "a\nb", "x": 1}\n```'
  )
  response = parser.parse_response(text, mode='compatible')
  assert response.action == 'Execute Script'
  assert response.args == {'script_name': 'a\nb'}


@pytest.mark.parametrize(
  'damaged, whole',
  [
    ('{"a": "b",}', '{"a": "b"}'),
    ('So: {"a": ["b", 1 , ], } and {', '{"a": ["b", 1  ] }'),
    ('{"a": {"b": "c"', '{"a": {"b": "c"}}'),
    ('{"a": 1,\n', '{"a": 1}'),
    ("{'a': 'say \"b, }\"'}", '{"a": "say \\"b, }\\""}'),
    (r"""{"a": "\d \' \" \\ \n"}""", r"""{"a": "\\d ' \" \\ \n"}"""),
    # Left as it is: what was meant is not plain.
    ('{"a": "b', '{"a": "b}'),
    ('{"a": [1}', '{"a": [1}'),
    ('no brace', 'no brace'),
    ('{' * (parser.MAX_MENDED_CHARS + 1),) * 2,
  ],
)
def test_small_faults_of_json_are_mended(damaged, whole):
  assert parser.mended(damaged) == whole
  text = with_input(damaged).replace('"a"', '"script_name"')
  with pytest.raises(parser.FormatError):
    parser.parse_response(text)


def test_line_numbers_may_be_numbers():
  text = with_input(
    '{"script_name": "a", "start_line_number": 1, "end_line_number": "2"}',
    'Inspect Script Lines',
  )
  args = parser.parse_response(text).args
  assert args['start_line_number'] == '1'


@pytest.mark.parametrize('mode', ['strict', 'compatible'])
@pytest.mark.parametrize(
  'old, new, error',
  [
    ('train.py', '\\ud800', parser.ActionError),  # as JSON escapes
    ('train.py', '\\u0000', parser.ActionError),
    ('train.py', '\ud800', parser.FormatError),
    ('Thought: ', 'Thought: \x00', parser.FormatError),
    ('"train.py"', '9' * 5000, parser.FormatError),
    ('"train.py"', '1e999', parser.ActionError),
    ('"train.py"', '[' * 99_999, parser.FormatError),
  ],
)
def test_what_is_no_text_is_refused(mode, old, new, error):
  entries = {name: 'x' for name in parser.ENTRIES[:4]}
  text = parser.format_response(
    entries, 'Execute Script', {'script_name': 'train.py'}
  )
  assert parser.parse_response(text, mode=mode)
  with pytest.raises(error):
    parser.parse_response(text.replace(old, new), mode=mode)


def test_a_fence_is_forgiven_in_linear_time():
  text = 'Action: List Files\nAction Input: ```json\n{"dir_path": "."}\n```'
  options = {'mode': 'compatible'}
  assert parser.parse_response(text, **options).args == {'dir_path': '.'}
  blanks = text.replace('"."', '"."' + ' ' * 2**20 + 'x')
  with pytest.raises(parser.FormatError, match='not valid JSON'):
    parser.parse_response(blanks, **options)


PEER = json.loads(
  (
    pathlib.Path(__file__).parents[1] / 'golden/mlagentbench_observations.json'
  ).read_text()
)['parse_action_input']


@pytest.mark.parametrize('case', PEER, ids=lambda c: c['text'][:30])
def test_the_mode_of_the_original(case):
  text = with_input(case['text'], case['action'])
  if 'error' in case['peer']:
    with pytest.raises(parser.FormatError, match='does not hold'):
      parser.parse_response(text, mode='mlagentbench')
  else:
    response = parser.parse_response(text, mode='mlagentbench')
    assert (response.action, response.args) == (
      case['action'],
      case['peer']['ok'],
    )


def test_entries_of_the_original():
  parse = parser.parse_response
  # The last label counts, at a line's start or not; text may stand before.
  text = 'Hm.\n' + GOOD.replace('about thought', 'x Action: y')
  response = parse(text + '\nObservation: Action Input: z', mode='mlagentbench')
  assert response.args == RUN and response.entries['Thought'] == 'x Action: y'
  with pytest.raises(parser.FormatError, match='in this order'):
    parse(GOOD.replace('Fact Check', 'Fact'), mode='mlagentbench')
  with pytest.raises(parser.ActionError, match='Unknown action'):
    parse(with_input('{}', 'Launch Rocket'), mode='mlagentbench')
  with pytest.raises(parser.ActionError, match='must be a string'):
    parse(with_input('{"script_name": NaN}'), mode='mlagentbench')


@pytest.mark.parametrize(
  'part',
  ['"', '"file_name":', ',    "content":', ',"content":', '{', '[', ' ', '\\'],
)
def test_the_mode_of_the_original_takes_linear_time(part):
  text = with_input(part * (2**20 // len(part)), 'Write File')
  start = time.monotonic()
  try:
    parser.parse_response(text, mode='mlagentbench')
  except parser.ResponseError:
    pass
  assert time.monotonic() - start < 5  # quadratic: hours


@pytest.mark.parametrize('inner', ['"a", "script_name": "b"', 'NaN'])
def test_compatible_refuses_in_a_trailing_text_what_it_refuses_alone(inner):
  text = with_input('{"script_name": ' + inner + '} and more')
  with pytest.raises(parser.FormatError):
    parser.parse_response(text, mode='compatible')
