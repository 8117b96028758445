"""ShareGPT files: what is written is read, and what is none is named."""

import json

import pytest

from jaxagent.data import conversations
from jaxagent.data.conversations import Conversation

ROWS = [
  Conversation('a\nb', 'c\u2028d'),
  Conversation('', '\U0001f600 "quoted"'),
  Conversation('a\nb', 'c\u2028d'),
]


@pytest.mark.parametrize('name', ['a.json', 'a.jsonl'])
@pytest.mark.parametrize('n', [1, 3])
def test_round_trip(tmp_path, name, n):
  path = tmp_path / name
  assert conversations.write(path, iter(ROWS[:n])) == n
  assert conversations.read(path) == ROWS[:n]
  assert [p.name for p in tmp_path.iterdir()] == [name]
  if name == 'a.json':
    first = json.loads(path.read_text())[0]
    assert first == {
      'conversations': [
        {'from': 'human', 'value': 'a\nb'},
        {'from': 'gpt', 'value': 'c\u2028d'},
      ]
    }


def test_equal_ones_once_in_their_order():
  assert list(conversations.distinct(ROWS)) == ROWS[:2]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
  path = tmp_path / 'a.json'
  conversations.write(path, ROWS)

  def broken():
    yield ROWS[0]
    raise ValueError('damaged')

  with pytest.raises(ValueError, match='damaged'):
    conversations.write(path, broken())
  assert conversations.read(path) == ROWS
  assert [p.name for p in tmp_path.iterdir()] == ['a.json']


def _turns(*turns, **more):
  return {'conversations': [{'from': a, 'value': b} for a, b in turns], **more}


GOOD = _turns(('human', 'x'), ('gpt', 'y'))


@pytest.mark.parametrize(
  'text, said',
  [
    ('', 'holds no conversation'),
    ('[]', 'holds no conversation'),
    ('[{', 'is no JSON'),
    ('[' * 100_000, 'is no JSON'),
    (json.dumps(GOOD) + '\n{', 'a.json:2 is no JSON'),
    ('{"conversations": 5}', 'a.json:1 has no list "conversations"'),
    (json.dumps([GOOD, 7]), 'entry 1 has no list'),
    (json.dumps([_turns()]), 'entry 0 has no gpt turn'),
    (json.dumps([_turns(('human', 'x'))]), 'has no gpt turn'),
    (json.dumps([_turns(('gpt', 'x'))]), 'other turns than human and then gpt'),
    (
      json.dumps([_turns(('human', 'x'), ('gpt', 'y'), ('human', 'z'))]),
      'not supported; split it',
    ),
    (json.dumps([_turns(('tool', 'x'))]), 'a turn is not'),
    (json.dumps([_turns(('human', 5))]), 'a turn is not'),
    (json.dumps([{'conversations': ['x']}]), 'a turn is not'),
    (
      json.dumps([_turns(*[('human', 'x'), ('gpt', 'y')], system='z')]),
      'system',
    ),
    (
      json.dumps([GOOD, _turns(('human', 'x'), ('gpt', '\ud83d'))]),
      'entry 1: its gpt turn holds a NUL or a lone surrogate',
    ),
    (
      json.dumps(_turns(('human', '\0'), ('gpt', 'y'))),
      'a.json:1: its human turn',
    ),
  ],
  ids=range(17),
)
def test_what_is_none_is_named(tmp_path, text, said):
  path = tmp_path / 'a.json'
  path.write_text(text)
  with pytest.raises(ValueError) as raised:
    conversations.read(path)
  assert said in str(raised.value) and str(path) in str(raised.value)


def test_bytes_that_are_no_text(tmp_path):
  path = tmp_path / 'a.json'
  path.write_bytes(b'\xff\xfe')
  with pytest.raises(ValueError, match='no UTF-8'):
    conversations.read(path)


def test_what_git_lfs_leaves_is_named(tmp_path):
  path = tmp_path / 'a.json'
  path.write_text(
    'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n'
  )
  with pytest.raises(
    ValueError, match='a.json: a Git LFS pointer, .*git lfs pull'
  ):
    conversations.read(path)


def test_an_empty_system_text_is_none(tmp_path):
  path = tmp_path / 'a.json'
  path.write_text(json.dumps([{**GOOD, 'system': ''}]))
  assert conversations.read(path) == [Conversation('x', 'y')]


def _beside(key, value, turn=None):
  entry = _turns(('human', 'x'), ('gpt', 'y'))
  (entry if turn is None else entry['conversations'][turn])[key] = value
  return entry


@pytest.mark.parametrize(
  'key, value, turn',
  [
    ('tools', '[{"name": "f"}]', None),
    ('tools', [{'name': 'f'}], None),
    ('function_call', {'name': 'f'}, 1),
    ('tool_calls', [{'id': 1}], 1),
    ('images', ['a.png'], None),
    ('image', 'a.png', 0),
    ('videos', ['a.mp4'], None),
    ('audios', ['a.wav'], None),
    ('kto_tag', False, None),
    ('label', False, None),
    ('kto_tag', 0, None),
    ('chosen', {'from': 'gpt', 'value': 'a'}, None),
    ('rejected', {'from': 'gpt', 'value': 'b'}, None),
    ('weight', 0, 1),
    ('weight', 0.5, 1),
    ('weight', 0, None),
    ('weight', 1, 0),
    ('train', False, 1),
    ('train', True, 0),
    ('loss', False, 1),
    ('train_detail', [{'begin_offset': 0}], 1),
    ('loss_mask', [0, 1], None),
    ('mask_history', True, None),
    ('messages', [{'role': 'user', 'content': 'x'}], None),
    ('output', 'z', None),
    ('reasoning_content', 'hm', 1),
  ],
  ids=repr,
)
def test_what_changes_the_lesson_is_refused_by_name(tmp_path, key, value, turn):
  path = tmp_path / 'a.json'
  path.write_text(json.dumps([GOOD, _beside(key, value, turn)]))
  with pytest.raises(
    ValueError, match=f'entry 1.* has "{key}": .*not supported'
  ) as no:
    conversations.read(path)
  assert '\n' not in str(no.value)


@pytest.mark.parametrize('text', ['', '  ', '\n\t'])
def test_an_empty_answer_is_refused(tmp_path, text):
  path = tmp_path / 'a.json'
  path.write_text(json.dumps([_turns(('human', 'x'), ('gpt', text))]))
  with pytest.raises(ValueError, match='entry 0: its gpt turn is empty'):
    conversations.read(path)


@pytest.mark.parametrize(
  'key, value, turn',
  [
    ('tools', '', None),
    ('tools', '[]', None),
    ('images', [], None),
    ('kto_tag', True, None),
    ('label', None, None),
    ('weight', 1, 1),
    ('weight', 0, 0),
    ('train', True, 1),
    ('id', 'a-1', None),
    ('source', 'hub', None),
  ],
  ids=repr,
)
def test_what_changes_nothing_is_read(tmp_path, key, value, turn, caplog):
  path = tmp_path / 'a.json'
  path.write_text(json.dumps([_beside(key, value, turn)]))
  assert conversations.read(path) == [Conversation('x', 'y')]
  assert not caplog.text


def test_other_keys_are_named_once(tmp_path, caplog):
  path = tmp_path / 'a.json'
  path.write_text(
    json.dumps([_beside('difficulty', 3), _beside('topic', 'a', 1)] * 2)
  )
  assert len(conversations.read(path)) == 4
  assert caplog.text.count('keys that are not read: difficulty, topic.') == 1
