"""Agents: what their prompts hold, what their parsers take and refuse."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import time

import pytest

from jaxagent import types
from jaxagent.envs import parser
from jaxagent.envs.agents import (
  AGENTS,
  Prompter,
  agent,
  prompt_that_fits,
  research,
  style,
)
from jaxagent.envs.agents.research import Research
from tests.subset import fast

ACTIONS = parser.DEFAULT_ACTIONS
RUN = {'script_name': 'train.py'}
THOUGHTS = {n: f'about {n.lower()}' for n in parser.ENTRIES[:4]}
PLAN = '1. Run it. **done**\n2. Improve it.'
TASK = types.TaskSpec(
  name='t',
  root=pathlib.Path('t'),
  modality='tabular',
  kind='classification',
  metric='accuracy',
  higher_is_better=True,
  m_init=0.5,
  m_best=1.0,
  m_best_source='',
  split='heldin',
  limits=types.Limits(),
  research_problem='Improve the accuracy of train.py.',
  read_only_files=('data/train.csv',),
)


def past(i, **changes):
  entries = {**THOUGHTS, 'Research Plan and Status': f'{PLAN} {i}'}
  response = parser.format_response(entries, 'Execute Script', RUN)
  step = types.PastStep(
    'Execute Script', f'ok 0.{i}', response, f'output of {i}\nlast line'
  )
  return dataclasses.replace(step, **changes)


def state_of(*history, step=7, **changes):
  return dataclasses.replace(
    types.State('s', 't', {'train.py': 'a = 1\nb = 2\n'}, 0.5, 0.5),
    history=history,
    step=step,
    **changes,
  )


STATE = state_of(past(3), past(4), past(5), past(6), ideas=('use trees', 'bag'))


def prompt(name, state=STATE, **options):
  options = {'actions': ACTIONS, 'observation_chars': 1000, **options}
  return agent(name).prompt(state, TASK, **options)


def autogpt(name='Execute Script', args=RUN, **thoughts):
  words = ('text', 'reasoning', 'plan', 'criticism', 'speak')
  return json.dumps(
    {
      'thoughts': {**dict.fromkeys(words, 'x'), **thoughts},
      'command': {'name': name, 'args': args},
    }
  )


def written(name, action='Execute Script', args=RUN):
  """A good response of an agent."""
  if name == 'autogpt':
    return autogpt(action, args)
  thoughts = {'without_thought': {}, 'react': {'Thought': 'I run it.'}}
  return parser.format_response(thoughts.get(name, THOUGHTS), action, args)


def test_names():
  assert list(AGENTS) == [
    'research',
    'without_thought',
    'react',
    'autogpt',
    'random',
  ]
  for name, one in AGENTS.items():
    assert one.name == name and isinstance(one, style.AgentStyle)
  assert agent('react').stop == ('\nObservation:',)
  with pytest.raises(ValueError, match="agent='gpt' must be one of: research"):
    agent('gpt')


@pytest.mark.parametrize('name', AGENTS)
def test_every_prompt(name):
  text = prompt(name)
  for action in ACTIONS:
    assert f'{action}:' in text
  assert 'Undo Edit Script:' not in text
  problem = text.index(TASK.research_problem)
  assert problem < text.index('- use trees') < text.index('- bag')
  # The last three, in order, under the numbers they had.
  places = [text.index(f'output of {i}\nlast line') for i in (4, 5, 6)]
  assert text.index('- bag') < places[0] and places == sorted(places)
  assert 'output of 3' not in text
  assert 'last line' not in prompt(name, steps=0)
  assert 'output of 3' in prompt(name, steps=9)
  # It grows at its end alone, so that an engine's cache of it holds.
  assert text[:problem] == prompt(name, state_of())[:problem]
  with pytest.raises(ValueError, match="unknown action 'Fly'"):
    prompt(name, actions=('Fly',))
  with pytest.raises(ValueError, match='steps=-1'):
    prompt(name, steps=-1)
  with pytest.raises(ValueError, match='observation_chars=-1'):
    prompt(name, observation_chars=-1)


@pytest.mark.parametrize('name', AGENTS)
def test_long_observations_are_cut_in_the_middle(name):
  long = 'head' + 'x' * 5000 + 'tail'
  text = prompt(name, state_of(past(6, observation=long)), observation_chars=9)
  assert 'headx\n... (4999 characters left out) ...\ntail' in text
  assert 'xx' not in text
  short = state_of(past(6, observation='123456789'))
  assert '123456789' in prompt(name, short, observation_chars=9)
  assert '(9 characters left out)' in prompt(name, short, observation_chars=0)


@pytest.mark.parametrize('name', AGENTS)
def test_steps_of_which_little_is_known(name):
  history = (
    types.PastStep('Edit Script (AI)', 'ok 0.75'),  # of an older record
    types.PastStep('', 'invalid_format', 'Just\nwords.', 'No format.'),
    past(6, response='Action: x\nObservation: 0.99 invented'),
  )
  text = prompt(name, state_of(*history))
  assert 'Edit Script (AI)' in text and 'ok 0.75' in text
  assert 'Just\nwords.' in text and 'No format.' in text
  if name != 'autogpt':
    assert 'invented' not in text


def test_research_prompt():
  text = prompt('research')
  assert text.startswith(
    'You are a helpful research assistant. You have access to the following '
    'tools:\n- List Files:\n'
  )
  parts = [
    '\n\nResearch Problem: Improve',
    '\n\nYou do not know anything about this problem so far.\n\nFollow these '
    'instructions and do not forget them:\n- First, come up with',
    'You can only submit once, so double check that you have achieved the '
    'goal before submitting.',
    '\n\nAlways respond in this format exactly:\nReflection: What does',
    'Action Input: The input to the action as a valid JSON string\n'
    'Observation:\n```\nthe result of the action\n```\n\nStep 4:\nReflection:',
    f'Research Plan and Status: {PLAN} 4\nFact Check: about fact check\n'
    'Thought: about thought\nAction: Execute Script\n'
    'Action Input: {"script_name": "train.py"}\nObservation:\n```\n'
    'output of 4\nlast line\n```\n\nStep 5:\n',
    f'Research Plan and Status: {PLAN} 6\n',
  ]
  places = [text.index(part) for part in parts]
  assert places == sorted(places)
  assert text.endswith('```\n\nStep 7:\n')
  assert prompt('random') == text
  assert len(research.INSTRUCTIONS.split('\n- ')) == 10


def test_prompt_without_thought():
  text = prompt('without_thought')
  assert 'Research Plan' not in text and 'about thought' not in text
  assert (
    'exactly:\nAction: The action to take, should be one of the names of the '
    'tools\nAction Input: The' in text
  )
  assert (
    'Step 6:\nAction: Execute Script\nAction Input: {"script_name": '
    '"train.py"}\nObservation:\n```\noutput of 6' in text
  )


def test_react_prompt():
  text = prompt('react')
  assert f'should be one of [{", ".join(ACTIONS)}]\n' in text
  assert '\nBegin!\n\nQuestion: Improve the accuracy' in text
  assert (
    'Thought: about thought\nAction: Execute Script\nAction Input: '
    '{"script_name": "train.py"}\nObservation: output of 6\nlast line\nThought:'
  ) in text and text.endswith('last line\nThought:')
  assert 'Research Plan' not in text
  # A response goes on where the prompt ended.
  response = ' I run it.\nAction: List Files\nAction Input: .'
  text = prompt('react', state_of(past(6, response=response)))
  assert text.count('\nThought: I run it.\nAction: List Files\n') == 1


def test_autogpt_prompt():
  response = autogpt(plan='- the plan')
  text = prompt('autogpt', state_of(past(6, response=response)))
  places = [
    text.index(part)
    for part in (
      'GOALS:\n\n1. Improve the accuracy',
      '2. Improve accuracy (higher is better)',
      'Constraints:\n1.',
      'Commands:\n1. List Files: Use this to navigate the file system. Args: '
      '"dir_path": "<a valid',
      'Response Format:\n{\n    "thoughts": {',
      f'Step 6:\n{response}\n\nCommand Execute Script returned: output of 6',
      'Determine which next command to use',
    )
  ]
  assert places == sorted(places)


@pytest.mark.parametrize('name', AGENTS)
@pytest.mark.parametrize('action', parser.ACTION_ARGS)
def test_round_trip(name, action):
  args = {n: f'{n} "quoted" \u00e9\nline' for n in parser.ACTION_ARGS[action]}
  text = written(name, action, args)
  got = agent(name).parse(text, actions=tuple(parser.ACTION_ARGS))
  assert (got.action, got.args) == (action, args)
  with pytest.raises(parser.ActionError, match='Unknown action'):
    agent(name).parse(text, actions=('Fly',))


@pytest.mark.parametrize('name', AGENTS)
@pytest.mark.parametrize(
  'old, new, error',
  [
    ('"train.py"', '"\\ud800"', parser.ActionError),
    ('"train.py"', '"\\u0000"', parser.ActionError),
    ('train.py', '\ud800', parser.FormatError),
    ('train.py', '\x00', parser.FormatError),
    ('"train.py"', 'NaN', parser.FormatError),
    ('"train.py"', '-Infinity', parser.FormatError),
    ('"train.py"', '1e999', parser.ActionError),
    ('"train.py"', 'true', parser.ActionError),
    ('"train.py"', '9' * 5000, parser.FormatError),
    ('"train.py"', '[' * 2**20, parser.FormatError),
    ('"train.py"', '{"a":' * 2**18, parser.FormatError),
    ('"train.py"', '"a", "script_name": "b"', parser.FormatError),
    ('"train.py"', '"a", "b": "c"', parser.ActionError),
    ('"script_name"', '"script"', parser.ActionError),
    ('train.py', 'a\nb', parser.FormatError),
  ],
)
def test_what_every_parser_refuses(name, old, new, error):
  with pytest.raises(error) as raised:
    agent(name).parse(written(name).replace(old, new), actions=ACTIONS)
  assert type(raised.value) is error


@pytest.mark.parametrize('mode', parser.MODES)
@pytest.mark.parametrize('name', AGENTS)
def test_what_is_refused_names_its_action(name, mode):
  for action, args in (('Fly', RUN), ('Execute Script', {'script': 'x'})):
    with pytest.raises(parser.ResponseError) as raised:
      agent(name, mode=mode).parse(written(name, action, args), actions=ACTIONS)
    assert raised.value.action == action


def test_research_may_be_compatible():
  text = 'Words.\nAction: List Files\nAction Input: ```{"dir_path": "."}```'
  with pytest.raises(parser.FormatError):
    agent('research').parse(text, actions=ACTIONS)
  got = Research(mode='compatible').parse(text, actions=ACTIONS)
  assert got.args == {'dir_path': '.'}


@pytest.mark.parametrize(
  'text, action, args',
  [
    ('Action: List Files\nAction Input: .', 'List Files', {'dir_path': '.'}),
    (
      ' So.\nAction: List Files\nAction Input: "a b"\n',
      'List Files',
      {'dir_path': 'a b'},
    ),
    (
      'Thought: a\nb\nAction: Execute Script\nAction Input:\n'
      '{"script_name":\n"x"}\nObservation: no\nAction: y',
      'Execute Script',
      {'script_name': 'x'},
    ),
    (
      'I know.\nFinal Answer: It is\nbetter.',
      'Final Answer',
      {'final_answer': 'It is\nbetter.'},
    ),
  ],
)
def test_react_reads(text, action, args):
  got = agent('react').parse(text, actions=ACTIONS)
  assert (got.action, got.args) == (action, args)


@pytest.mark.parametrize(
  'text, says',
  [
    ('', 'entries are none'),
    ('Hello', 'in this order'),
    ('Action: List Files', 'in this order'),
    ('Action Input: .\nAction: List Files', 'in this order'),
    ('Action: List Files\nAction Input: .\nThought: b', 'in this order'),
    ('a\nThought: b\nAction: List Files\nAction Input: .', 'twice'),
    ('Action: List Files\nAction Input: .\nAction: x', 'twice'),
    ('Action: List Files\nAction Input: .\nFinal Answer: x', 'in this order'),
    ('Action: List Files\nAction Input: {.', 'not valid JSON'),
    ('Action: List Files\nAction Input: ""', 'empty'),
    ('Action: List Files\nAction Input:', 'empty'),
    ('Action: Copy File\nAction Input: a', 'not valid JSON'),
    ('Action: Copy File\nAction Input: ["a"]', 'list'),
  ],
)
def test_react_refuses(text, says):
  with pytest.raises(parser.FormatError, match=says):
    agent('react').parse(text, actions=ACTIONS)


@pytest.mark.parametrize(
  'around', ['{}', '```json\n{}\n```', 'So: {} {{"a": 1']
)
def test_autogpt_takes_the_first_object(around):
  text = around.format(autogpt(plan='- a\n- b'))
  got = agent('autogpt').parse(text, actions=ACTIONS)
  assert (got.action, got.args) == ('Execute Script', RUN)
  assert got.entries['plan'] == '- a\n- b'


@pytest.mark.parametrize(
  'text, says',
  [
    ('', 'no valid JSON object'),
    ('[1]', 'no valid JSON object'),
    ('{"a": 1}', 'just the keys thoughts, command'),
    ('{so} ' + autogpt(), 'no valid JSON object'),
    (autogpt().replace('"speak"', '"say"'), "'thoughts' must hold just"),
    (autogpt(plan=['a']), "'plan' must be a plain string"),
    (autogpt(plan='\x00'), "'plan' must be a plain string"),
    (autogpt(name=1), "'name' must be a string"),
    (autogpt(name=[1]), "'name' must be a string"),
    (autogpt(args=[1]), 'list, not a JSON object'),
    (autogpt().replace('"args"', '"arguments"'), "'command' must hold just"),
    (autogpt().replace('"text": "x"', '"text": "x", "text": "y"'), 'twice'),
    (autogpt()[:-1], 'no valid JSON object'),
  ],
)
def test_autogpt_refuses(text, says):
  with pytest.raises(parser.FormatError, match=says):
    agent('autogpt').parse(text, actions=ACTIONS)


FORGIVING = pytest.mark.parametrize('mode', ['compatible', 'mlagentbench'])
COPY = {'source': "a 'b'.py", 'destination': 'c\n\\d'}


@FORGIVING
@pytest.mark.parametrize(
  'given, action, args',
  [
    ('Execute Script\nAction Input: ```json\n{"script_name": "x"}\n```',
     'Execute Script', {'script_name': 'x'}),
    ('Execute Script\nAction Input: ```\nx\n```', 'Execute Script',
     {'script_name': 'x'}),
    ('[Execute Script]\nAction Input: `x`', 'Execute Script',
     {'script_name': 'x'}),
    ('Execute Script\nAction Input: {"script_name": "x",}', 'Execute Script',
     {'script_name': 'x'}),
    ('Execute Script\nAction Input: {"script_name": "x", "why": [1]}',
     'Execute Script', {'script_name': 'x'}),
    ('Copy File\nAction Input: {"source": "a \\\'b\\\'.py", '
     '"destination": "c\n\\d"', 'Copy File', COPY),
    ("Copy File\nAction Input: {'source': 'a \\'b\\'.py', "
     "'destination': 'c\n\\d', }\nSo.", 'Copy File', COPY),
    ('Execute Script\nAction Input: x\nThought: y\nAction: List Files\n'
     'Action Input: .\nFinal Answer: z', 'Execute Script',
     {'script_name': 'x'}),
  ],
)  # fmt: skip
def test_react_may_be_compatible(mode, given, action, args):
  text = f' I do.\nAction: {given}'
  got = agent('react', mode=mode).parse(text, actions=ACTIONS)
  assert (got.action, got.args) == (action, args)
  assert got.entries['Thought'] == 'I do.'
  # As it is written the strict one takes none of it, or not for the same.
  try:
    assert agent('react').parse(text, actions=ACTIONS).args != args
  except parser.ResponseError:
    pass


@FORGIVING
@pytest.mark.parametrize(
  'text, entries',
  [
    (autogpt(plan=['a', '- b', {'c': 1}]), {'plan': '- a\n- b\n- {"c": 1}'}),
    (autogpt(text=['a'], speak=7), {'text': '- a', 'speak': '7'}),
    ('{"command": {"name": "Execute Script", "args": {"script_name": '
     '"train.py"}}}', {'plan': None, 'text': None}),
    ('{"thoughts": ["a", "b"], "id": 1, "command": {"name": "Execute Script", '
     '"args": {"script_name": "train.py"}, "why": 1}}', {'text': '- a\n- b'}),
    (f'```json\n{autogpt(plan=None)}\n```', {'plan': None, 'text': 'x'}),
    (f'```json\n{autogpt()[:-1]}\n```', {'plan': 'x'}),
    (autogpt(plan='P').replace('"P"', '"a\nb"'), {'plan': 'a\nb'}),
    (autogpt().replace('"x"}', '"x",}'), {'plan': 'x'}),
    (autogpt().replace('"', "'"), {'plan': 'x'}),
    (autogpt(plan='P').replace('P', r"don\'t \_do\_"), {'plan': r"don't \_do\_"}),
  ],
)  # fmt: skip
def test_autogpt_may_be_compatible(mode, text, entries):
  got = agent('autogpt', mode=mode).parse(text, actions=ACTIONS)
  assert (got.action, got.args) == ('Execute Script', RUN)
  assert {name: got.entries.get(name) for name in entries} == entries
  with pytest.raises(parser.FormatError):
    agent('autogpt').parse(text, actions=ACTIONS)


@FORGIVING
@pytest.mark.parametrize(
  'name, text',
  [
    # What was cut off within a text is not acted on.
    ('react', 'Action: Copy File\nAction Input: {"source": "a", "destination": "b'),
    ('react', 'Action: Copy File\nAction Input: a'),
    ('react', 'Action: Execute Script'),
    ('react', 'Action: Execute Script\nAction Input: ``````'),
    ('autogpt', autogpt().removesuffix('.py"}}}')),
    ('autogpt', '{"thoughts": {"text": "x"}}'),
    ('autogpt', '{"command": "Execute Script"}'),
    ('autogpt', autogpt(plan=['\x00'])),
    ('autogpt', autogpt(args=['train.py'])),
    ('autogpt', autogpt().replace('"name"', '"name": "List Files", "name"')),
    ('autogpt', autogpt(plan='P').replace('"P"', '[' * 99_999)),
  ],
)  # fmt: skip
def test_what_no_mode_takes(name, mode, text):
  with pytest.raises(parser.FormatError):
    agent(name, mode=mode).parse(text, actions=ACTIONS)


def parse_or_refuse(name, text, mode='strict'):
  """Only ResponseError may come out. Returns whether it was refused."""
  try:
    got = agent(name, mode=mode).parse(text, actions=ACTIONS)
  except parser.ResponseError:
    return True
  assert got.action in ACTIONS
  assert set(got.args) == set(parser.ACTION_ARGS[got.action])
  assert all(parser.is_text(value) for value in got.args.values())
  return False


MODES = pytest.mark.parametrize('mode', ['strict', 'compatible'])


@MODES
@pytest.mark.parametrize('name', AGENTS)
def test_nothing_but_a_refusal_comes_out(name, mode):
  rng = random.Random(name)
  good = [written(n) for n in AGENTS]
  bits = [
    '\n',
    '"',
    '{',
    '}',
    '[',
    ':',
    'Action:',
    '\nThought:',
    '\x00',
    '\\',
    '\ud800',
    '\nObservation:',
    '```',
    'NaN',
    'null',
    '9' * 50,
    '\u2028',
  ]
  refused = 0
  for i in range(1500):
    if i % 3 == 0:
      raw = rng.randbytes(rng.randrange(200))
      text = raw.decode(rng.choice(['latin-1', 'utf-16']), 'replace')
      text = text if i % 2 else raw.decode('utf-8', 'surrogateescape')
    else:
      text = rng.choice(good)
      for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(bits) + text[at + rng.randrange(9) :]
    refused += parse_or_refuse(name, text, mode)
  assert 0 < refused < 1500


MEGABYTE = 2**20
LONG = {
  'blanks': ' ' * MEGABYTE,
  'lines': '\n' * MEGABYTE,
  'braces': '{' * MEGABYTE,
  'quotes': '"' * MEGABYTE,
  'slashes': '\\' * MEGABYTE,
  'backquotes': '`' * MEGABYTE,
  'thoughts': 'Thought:\n' * (MEGABYTE // 9),
  'actions': 'Action: \t' * (MEGABYTE // 9),
  'observations': 'x\nObservation' * (MEGABYTE // 13),
  'keys': '{"a":' * (MEGABYTE // 5),
}


@MODES
@pytest.mark.parametrize('name', AGENTS)
@pytest.mark.parametrize('what', fast(LONG, first=2))
def test_a_megabyte_within_a_second(name, what, mode):
  good, long = written(name), LONG[what]
  texts = [long, good + long, long + good, good.replace('train.py', long)]
  start = time.process_time()  # of this process: other work may go on
  for text in texts:
    parse_or_refuse(name, text, mode)
  assert time.process_time() - start < len(texts)


def test_the_random_agent_acts():
  one, rng = agent('random'), random.Random(0)
  actions = tuple(parser.ACTION_ARGS)
  texts = [one.act(STATE, TASK, actions, rng) for _ in range(1700)]
  again = random.Random(0)
  assert texts == [one.act(STATE, TASK, actions, again) for _ in range(1700)]
  count = dict.fromkeys(actions, 0)
  for text in texts:
    got = one.parse(text, actions=actions)
    count[got.action] += 1
    if got.action == 'Inspect Script Lines':
      first = int(got.args['start_line_number'])
      assert 1 <= first <= int(got.args['end_line_number']) <= 2
    if got.action == 'Read File':
      assert got.args['file_name'] in ('train.py', 'data/train.csv')
    if got.action == 'Edit Script (AI)':
      assert got.args['edit_instruction'] in STATE.ideas
  assert min(count.values()) > 60 and max(count.values()) < 140  # 100 each
  # Where the state has no file and no idea there is something to do, too.
  bare = types.State('s', 't', {}, None, None)
  for action in actions:
    one.parse(one.act(bare, TASK, (action,), rng), actions=actions)
  with pytest.raises(ValueError, match='must be names among'):
    one.act(STATE, TASK, (), rng)


def test_the_random_agent_does_not_see_undo_copies():
  files = {'train.py': 'a = 1\n', '.backup/000001/train.py': 'a = 0\n'}
  actions = ('Read File', 'Copy File', 'Execute Script')
  for seed in range(60):
    rng = random.Random(seed)
    text = agent('random').act(state_of(files=files), TASK, actions, rng)
    assert '.backup' not in text


@pytest.mark.parametrize('name', [n for n in AGENTS if n != 'random'])
def test_a_prompt_is_shortened_by_its_past_alone(name):
  """Where there is no room old observations go, then steps; tools never."""
  state = state_of(*(past(i, observation='o' * 9000) for i in (4, 5, 6)))
  bare = prompt(name, state, observation_chars=0, steps=0)
  lengths = []
  for room in (30_000, 9000, len(bare) + 900, len(bare), 0):
    text = prompt_that_fits(
      agent(name),
      state,
      TASK,
      actions=ACTIONS,
      fits=lambda t: len(t) <= room,  # noqa: B023
    )
    lengths.append(len(text))
    assert 'Edit Script (AI)' in text and TASK.research_problem in text
    assert len(text) <= room or text == bare
  assert lengths == sorted(lengths, reverse=True)
  assert lengths[0] > 18_000 and text == bare


@pytest.mark.parametrize('name', [n for n in AGENTS if n != 'random'])
def test_what_an_agent_writes_it_reads(name):
  args = {'script_name': 'train.py'}
  text = agent(name).write(THOUGHTS, 'Execute Script', args)
  found = agent(name).parse(text, actions=ACTIONS)
  assert (found.action, dict(found.args)) == ('Execute Script', args)
  if name != 'without_thought':
    assert THOUGHTS['Thought'] in found.entries.values()


def test_a_prompter_takes_known_styles_alone():
  assert 'Metric: accuracy' in Prompter('compact').text(STATE, TASK)
  assert 'Step 7' in Prompter('full').text(STATE, TASK)
  with pytest.raises(ValueError, match="style='short'; choose one of"):
    Prompter('short')
