"""An Implementer's chat turns: one action each, read whatever the text is."""

from __future__ import annotations

import dataclasses
import random
import time

import pytest

from jaxagent.envs.agents import implementer
from jaxagent.envs.agents.implementer import (
  Briefing,
  Exchange,
  Query,
  Turn,
  chat,
  parse_turn,
  system,
  write_turn,
)

QUERY = Query('No gain.', '- a forest: 0.8\n- boosting: 0.81', 'Reach 0.85.')
HELP = write_turn(Turn('seek_help', query=QUERY))
IPYTHON = '<execute_ipython>\nprint(1)\n</execute_ipython>'
BASH = '<execute_bash>\nls data\n</execute_bash>'
FINISH = '<finish></finish>'
TURNS = (
  Turn('ipython', 'print(1)'),
  Turn('bash', 'ls data'),
  Turn('seek_help', query=QUERY),
  Turn('finish'),
)
BRIEFING = Briefing(
  'Predict y.',
  files=('data/train.csv',),
  packages=('numpy', 'pandas'),
  max_steps=7,
  time_limit_s=90.0,
  submission='out.csv',
)


@pytest.mark.parametrize('turn', TURNS, ids=lambda turn: turn.kind)
@pytest.mark.parametrize(
  'around',
  [
    '{}',
    'I try it.\n\n{}\n\nThen I look.',
    '<think>\n<execute_bash>rm -rf x</execute_bash>\n</think>\n{}',
    'The list `List<int>` and a < b > c.\n{}',
    'I do not use `<seek_help>` now.\n{}',
    'Once I ran\n```\n<execute_bash>pwd</execute_bash>\n```\nand now:\n{}',
    '~~~ text\n</finish>\n~~~\n{}',
  ],
)
def test_one_action_with_any_words_around_it_is_read(turn, around):
  assert parse_turn(around.format(write_turn(turn))) == turn


@pytest.mark.parametrize(
  'code',
  [
    'print("<seek_help>")',
    'print("</execute_ipython>")',
    'print("<execute_ipython></execute_ipython>")',
    'text = """\n<seek_help>\nGOAL:\nx\n</seek_help>\n"""',
    'a = "<finish></finish><execute_bash>ls</execute_bash>"',
    'text = """\n```\nx\n```\n"""',
    '  if a:\n    b()',
  ],
)
def test_tags_and_fences_inside_code_are_code(code):
  text = f'<execute_ipython>\n{code}\n</execute_ipython>'
  assert parse_turn(text) == Turn('ipython', code)


def test_a_fence_around_the_whole_code_of_an_action_is_taken_off():
  for fence in ('```python', '```', '``` py'):
    text = f'<execute_ipython>\n{fence}\nprint(1)\n```\n</execute_ipython>'
    assert parse_turn(text) == Turn('ipython', 'print(1)')


def test_a_here_document_may_hold_a_call_for_help():
  code = 'cat > a.txt <<EOF\n<seek_help>\nEOF'
  text = f'<execute_bash>\n{code}\n</execute_bash>'
  assert parse_turn(text) == Turn('bash', code)


def _without(name: str) -> str:
  return HELP.replace(f'{name}:', f'{name}')


BAD = {
  'nothing': ('', 'holds no action'),
  'words alone': ('I am done.', 'holds no action'),
  'help that is not closed': (
    HELP.replace('</seek', '<'),
    'not closed by </seek',
  ),
  'help that is cut off': (HELP[:40], '<seek_help> is not closed'),
  'help inside code of Python': (
    f'<execute_ipython>\n{HELP}\n</execute_ipython>',
    'Your <seek_help> stands within <execute_ipython>',
  ),
  'help inside commands': (
    f'<execute_bash>\n{HELP}\n</execute_bash>',
    'Your <seek_help> stands within <execute_bash>',
  ),
  'help inside a fence': (f'```\n{HELP}\n```', 'stands in a code fence'),
  'help between backticks': ('`<seek_help>`', 'holds no action'),
  'an action inside a fence': (f'```\n{BASH}\n```', 'stands in a code fence'),
  'two actions': (f'{IPYTHON}\n{BASH}', 'holds two actions'),
  'an action twice': (f'{BASH}\n{BASH}', 'holds two actions'),
  'an action and the end': (f'{BASH}\n{FINISH}', 'holds two actions'),
  'an action and help': (f'{HELP}{BASH}', 'holds two actions'),
  'an unknown action': (
    '<execute_r>1</execute_r>',
    '<execute_r> is not a known',
  ),
  'an unknown action beside one': (
    f'{BASH}\n<execute_browse>x</execute_browse>',
    '<execute_browse> is not a known tag',
  ),
  'the tag of another agent': (
    '<execute>1</execute>',
    '<execute> is not a known tag',
  ),
  'an unknown tag alone': ('<tool_call>{}</tool_call>', '<tool_call> is not a'),
  'an action that is not closed': ('<execute_bash>ls', 'not closed by </exec'),
  'one closed by another tag': (
    '<execute_bash>ls</execute_ipython>',
    'not closed by </execute_bash>',
  ),
  'a closing tag alone': (
    'ls</execute_bash>',
    '</execute_bash> closes nothing',
  ),
  'an empty action': ('<execute_bash> \n </execute_bash>', 'is empty'),
  'an empty fence': ('<execute_bash>```\n```</execute_bash>', 'is empty'),
  'a query without its problem': (
    _without('PROBLEM_STATEMENT'),
    'In your <seek_help> PROBLEM_STATEMENT is missing',
  ),
  'a query without its attempts': (
    _without('ATTEMPTS_SO_FAR'),
    'ATTEMPTS_SO_FAR is missing',
  ),
  'a query without its goal': (_without('GOAL'), 'GOAL is missing'),
  'a query with an empty item': (
    HELP.replace('Reach 0.85.', ''),
    'GOAL is empty',
  ),
  'a query in another order': (
    '<seek_help>\nGOAL: a\nPROBLEM_STATEMENT: b\nATTEMPTS_SO_FAR: c</seek_help>',
    'the items stand in the order GOAL',
  ),
  'a query with words in front': (
    HELP.replace('<seek_help>', '<seek_help>\nPlease:'),
    'there is text in front of PROBLEM_STATEMENT',
  ),
  'thoughts that are left open': (f'<think>hm\n{BASH}', 'block is not closed'),
  'a NUL': (BASH.replace('ls', 'l\0s'), 'NUL or a lone surrogate'),
  'a lone surrogate': (BASH.replace('ls', '\udc00'), 'NUL or a lone surrogate'),
  'a megabyte': (BASH.replace('ls', 'x' * 1_000_000), 'the most is 200000'),
}


@pytest.mark.parametrize('case', BAD, ids=str)
def test_a_lost_step_is_told_why_and_the_format(case):
  text, why = BAD[case]
  turn = parse_turn(text)
  assert (turn.kind, turn.code, turn.query) == ('invalid', '', None)
  assert not turn.is_action
  assert why in turn.error
  for tag in implementer.TAGS.values():
    assert f'<{tag}>' in turn.error
  assert all(f'{name}:' in turn.error for name in implementer.QUERY_ITEMS)
  assert len(turn.error) < 500


def test_without_an_ideator_help_is_an_unknown_tag_that_no_sentence_names():
  turn = parse_turn(HELP, seek_help=False)
  assert turn.kind == 'invalid' and '<seek_help> is not a known' in turn.error
  lost = parse_turn('', seek_help=False)
  assert 'seek_help' not in lost.error and '<execute_bash>' in lost.error
  assert parse_turn(BASH, seek_help=False) == Turn('bash', 'ls data')


@pytest.mark.parametrize('value', [None, 3, b'ls', ['ls']])
def test_what_is_no_text_is_an_invalid_turn(value):
  assert parse_turn(value).kind == 'invalid'


def test_a_turn_that_would_be_read_as_another_is_not_written():
  for turn in (
    Turn('ipython', ''),
    Turn('bash', 'a</execute_bash>b <execute_bash>'),
    Turn('seek_help', query=dataclasses.replace(QUERY, goal='')),
    Turn('seek_help', query=dataclasses.replace(QUERY, goal='x\nGOAL: y')),
    Turn('seek_help'),
  ):
    with pytest.raises(ValueError, match='is read as'):
      write_turn(turn)
  with pytest.raises(ValueError, match="kind='invalid' cannot be written"):
    write_turn(Turn('invalid'))


MARKS = (
  *(f'<{tag}>' for tag in implementer.TAGS.values()),
  *(f'</{tag}>' for tag in implementer.TAGS.values()),
  *(f'{name}:' for name in implementer.QUERY_ITEMS),
  *('<execute_x>', '<think>', '</think>', '```', '```\n', '~~~', '`', '\n'),
  *('\r\n', ' ', '\0', '\ud800', 'x', '"', "'", '<<', '\u2028'),
)


def test_10000_mutated_messages_do_not_raise():
  rng = random.Random(64)
  stock = [write_turn(turn, 'Now.') for turn in TURNS]
  stock += [text for text, _ in BAD.values() if len(text) < 1000]
  seen = {kind: 0 for kind in implementer.KINDS}
  for _ in range(10_000):
    text = rng.choice(stock)
    for _ in range(rng.randint(1, 3)):
      a, b = sorted(rng.choices(range(len(text) + 1), k=2))
      if rng.random() < 0.7:
        b = a
      middle = ''.join(rng.choices(MARKS, k=rng.randint(1, 3)))
      text = text[:a] + middle + text[b:]
    turn = parse_turn(text)
    seen[turn.kind] += 1
    assert bool(turn.error) == (turn.kind == 'invalid')
    assert (turn.query is not None) == (turn.kind == 'seek_help')
  assert min(seen.values()) > 20, seen


@pytest.mark.slow
def test_a_long_message_of_anything_is_read_in_linear_time():
  """Seconds of this thread: 0.07 on a busy machine; what is quadratic takes many."""
  size = implementer.MOST_CHARACTERS
  for piece in (*MARKS, *(a + b for a in MARKS for b in MARKS)):
    text = (piece * (size // len(piece) + 1))[:size]
    begun = time.thread_time()
    parse_turn(text)
    assert time.thread_time() - begun < 1.0, ascii(piece)


# Its prompt --------------------------------------------------------------------


def test_the_system_prompt_names_all_that_the_briefing_says():
  text = system(BRIEFING)
  for part in ('`out.csv`', '7 messages', '1.5 minutes', 'numpy, pandas'):
    assert part in text
  for tag in implementer.TAGS.values():
    assert f'<{tag}>' in text
  assert 'Installed' not in system(dataclasses.replace(BRIEFING, packages=()))


def test_without_an_ideator_no_message_speaks_of_help():
  told = str(chat(BRIEFING, (), seek_help=False)).lower()
  assert 'help>' not in told and 'advis' not in told
  assert 'seek_help' in str(chat(BRIEFING, ()))


def test_the_examples_of_the_system_prompt_are_read_as_actions():
  """Each tag of the prompt, alone, is a turn of its kind."""
  text = system(BRIEFING)
  for kind, tag in implementer.TAGS.items():
    begin = text.index(f'<{tag}>')
    end = text.index(f'</{tag}>') + len(tag) + 3
    assert parse_turn(text[begin:end]).kind == kind


def test_a_chat_is_the_task_and_then_each_step_as_two_messages():
  steps = [Exchange(BASH, 'train.csv'), Exchange(IPYTHON, '')]
  messages = chat(BRIEFING, steps)
  assert [m['role'] for m in messages] == [
    'system', 'user', 'assistant', 'user', 'assistant', 'user'
  ]  # fmt: skip
  assert 'Predict y.' in messages[1]['content']
  assert '- data/train.csv' in messages[1]['content']
  assert [m['content'] for m in messages[2:]] == [
    BASH, 'train.csv', IPYTHON, '(no output)'
  ]  # fmt: skip


@pytest.mark.parametrize('room', range(0, 13))
def test_a_chat_is_cut_at_the_borders_of_steps_and_counts_what_is_gone(room):
  steps = [Exchange(f'm{n}', f'o{n}') for n in range(5)]
  messages = chat(BRIEFING, steps, fits=lambda found: len(found) <= room)
  kept = max(0, min(5, (room - 2) // 2))
  assert [m['content'] for m in messages[2:]] == [
    text for n in range(5 - kept, 5) for text in (f'm{n}', f'o{n}')
  ]
  gone = 5 - kept
  line = f'[The first {gone} step' in messages[1]['content']
  assert line == (gone > 0)
  assert ('1 step is left' in messages[1]['content']) == (gone == 1)


def test_an_idea_comes_to_the_implementer_as_an_observation():
  assert implementer.idea_message('ACTION:\nx\n').endswith(':\n\nACTION:\nx')
