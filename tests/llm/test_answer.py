"""What is an answer and what are thoughts, as servers and models write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxagent.llm import answer as answers

FINAL = 'Here:\n```python\nx = 2\n```'
DRAFT = '```python\nx = 1\n```\nNo, that is wrong.'


@pytest.mark.parametrize(
  'text',
  [
    f'<think>\n{DRAFT}\n</think>\n\n{FINAL}\n',
    f'\n <THINKING>{DRAFT}</THINKING>{FINAL}',
    f'{DRAFT}\n</think>\n\n{FINAL}',
    f'{DRAFT}</think>{FINAL}',
    f'[THINK]{DRAFT}[/THINK]{FINAL}',
    f'<seed:think>{DRAFT}</seed:think>{FINAL}',
    f'<thought>{DRAFT}</thought>\n{FINAL}',
    f'\u25c1think\u25b7{DRAFT}\u25c1/think\u25b7{FINAL}',
    f'<|START_THINKING|>{DRAFT}<|END_THINKING|><|START_RESPONSE|>{FINAL}'
    '<|END_RESPONSE|>',
    f'<|channel>thought\n{DRAFT}<channel|>{FINAL}',
    f'<think>{DRAFT}</think><answer>\n{FINAL}\n</answer>',
    f'<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final'
    f'<|message|>{FINAL}<|return|>',
    f'analysis{DRAFT}assistantfinal{FINAL}',
    f'<think>so <think>{DRAFT}</think> and so</think>\n{FINAL}',
    f'<think>a</think>\n{FINAL}\n<think>{DRAFT}</think>\n',
    f'<think>\nI write `</think>` at the end. {DRAFT}\n</think>\n{FINAL}',
    f"<think>\n```python\ns = '</think>'\n```\n{DRAFT}\n</think>\n{FINAL}",
    f"<think>\n```python\ns = '</think>'\nx = 1\n</think>\n{FINAL}",
    f'```python\nx = 1\n</think>\n{FINAL}',
  ],
  ids=range(19),
)
def test_thoughts_are_taken_off_and_kept(text):
  thoughts, answer, is_open = answers.split(text)
  assert answer == FINAL and not is_open
  assert 'x = 1' in thoughts or 'a' in thoughts
  assert 'x = 1' not in answer


@pytest.mark.parametrize(
  'text',
  [
    f'<think>\n{DRAFT}',
    '<think>',
    '[THINK]hm',
    f'<|channel|>analysis<|message|>{DRAFT}',
  ],
)
def test_thoughts_that_never_end_leave_no_answer(text):
  thoughts, answer, is_open = answers.split(text)
  assert is_open and answer == ''


@pytest.mark.parametrize(
  'text',
  [
    'plain',
    '',
    '  x\n',
    "```python\nre.sub('<think>.*</think>', '', s)\n```",
    '```python\nP = """\n<think>\n</think>\n"""\n```\n',
    '~~~\n</think>\n~~~',
    'It ends with `</think>`, which I remove:\n```python\nx = 2\n```',
    'There is a <think> tag in it.',
    '```\n<|channel|>analysis<|message|>x<|end|>\n```',
  ],
)
def test_a_text_about_the_tags_stays_as_it_is(text):
  assert answers.split(text) == ('', text, False)


def _read(message, end='stop'):
  return answers.read({'choices': [{'message': message, 'finish_reason': end}]})


@pytest.mark.parametrize(
  'message',
  [
    {'content': 'ok', 'reasoning_content': 'hm'},
    {'content': 'ok', 'reasoning': 'hm', 'reasoning_content': 'hm'},
    {'content': 'ok', 'reasoning_details': [{'type': 'reasoning.text', 'text': 'hm'}]},
    {'content': '<think>hm</think>ok'},
    {'content': [{'type': 'text', 'text': 'o'}, {'type': 'text', 'text': 'k'}],
     'reasoning': 'hm'},
    {'content': [{'type': 'thinking', 'thinking': [{'type': 'text', 'text': 'hm'}]},
                 {'type': 'text', 'text': 'ok'}]},
    {'content': [{'type': 'reasoning', 'text': 'hm'}, 'ok']},
    {'content': [{'type': 'image_url', 'image_url': {'url': 'x'}}, 'ok'],
     'thinking': 'hm'},
  ],
  ids=range(8),
)  # fmt: skip
def test_parts_and_fields_of_servers(message):
  reply = _read(message)
  assert (reply.text, reply.thoughts) == ('ok', 'hm') and reply.is_whole


def test_what_is_cut_empty_or_declined():
  for end in ('length', 'MAX_TOKENS', 'model_length'):
    assert _read({'content': 'x'}, end).is_cut
    assert not _read({'content': 'x'}, end).is_whole
  nothing = _read({'content': None, 'reasoning_content': 'hm'}, 'length')
  assert (nothing.text, nothing.thoughts) == ('', 'hm') and not nothing.is_whole
  assert not _read({'content': None}).is_whole
  assert _read({'content': None, 'refusal': 'not that'}).declined == 'not that'
  assert _read({'content': ''}, 'content_filter').declined == 'content_filter'
  assert (
    _read({'content': [{'type': 'refusal', 'refusal': 'no'}]}).declined == 'no'
  )


def test_an_answer_is_not_read_twice():
  found, is_cut = answers.proper('<think>a</think>b </think> c')
  assert answers.proper(found) == (found, False) and not is_cut


JSON = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
  lambda inner: st.lists(inner, max_size=3)
  | st.dictionaries(
    st.sampled_from(
      ['choices', 'message', 'content', 'type', 'text', 'reasoning', 'thinking',
       'refusal', 'finish_reason', 'reasoning_details', 'x']
    ),
    inner,
    max_size=5,
  ),
  max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(JSON, JSON, JSON)
def test_any_json_is_read_or_no_answer(whole, choice, message):
  for value in (
    whole,
    {'choices': whole},
    {'choices': [choice]},
    {'choices': [{'message': message, 'finish_reason': whole}]},
    {'choices': [{'message': {'content': message, 'reasoning': whole}}]},
  ):
    try:
      reply = answers.read(value)
    except ValueError as error:
      assert str(error) == 'no choices[0].message'
      continue
    assert isinstance(reply.text, str) and isinstance(reply.thoughts, str)


PIECES = st.lists(
  st.sampled_from(
    ['MARK', '\n', ' ', '```', '```python', '~~~', '`</think>`', 'x = 1 # MARK',
     '```python\nMARK\n```', "s = '</think>' # MARK", '<think>', '\r\n', '    ']
  ),
  max_size=12,
).map('\n'.join)  # fmt: skip
ENDS = ['x = 2', FINAL, '```\nx = 2\n```', "```python\ns = '</think>'\n```", '']


@settings(max_examples=500, deadline=None, derandomize=True)
@example("s = '</think>' # MARK\n```", 'x = 2', '\n</think>\n')
@example("s = '</think>' # MARK\n~~~", 'x = 2', '\n</think>\n')
@example('```MARK`</think>`MARK<think>', 'x = 2', '\n</think>\n')
@example('```python`</think>`<think>MARK\n```', 'x = 2', '\n</think>\n')
@given(
  PIECES, st.sampled_from(ENDS), st.sampled_from(['</think>', '\n</think>\n\n'])
)
def test_what_was_thought_is_never_in_the_answer(thoughts, end, shut):
  """Whatever drafts, quotes and fences left open it holds."""
  if shut == '</think>' and any(
    fence in thoughts + end for fence in ('```', '~~~')
  ):
    shut = '\n</think>\n'  # a tag behind a fence in its line is no model's
  found, answer, _ = answers.split(f'<think>\n{thoughts}{shut}{end}')
  assert 'MARK' not in answer
  assert thoughts.count('MARK') == found.count('MARK')


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(max_size=60) | PIECES)
def test_any_text_is_split(text):
  thoughts, answer, _ = answers.split(text)
  again = answers.split(answer)
  assert isinstance(thoughts, str) and (again[1] in answer)


@pytest.mark.parametrize(
  'piece',
  ['<think>', '</think>', '<think>x</think>', '```\n', '```x\n', '`', '~~~\n```\n',
   '<|channel|>a<|message|>', '[THINK]\n', '<answer>', '````\n```\n'],
)  # fmt: skip
def test_long_answers_are_read_in_seconds(piece):
  began = time.monotonic()
  answers.split(piece * 20_000)
  answers.split('<think>' + piece * 20_000)
  assert time.monotonic() - began < 10
