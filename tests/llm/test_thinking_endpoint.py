"""The client and the roles against servers whose models think, are cut, say nothing."""

# ruff: noqa: F811, F401 - a fixture of another file

from __future__ import annotations

import logging

import pytest

from jaxagent.envs.editing import AskedEditor
from jaxagent.envs.interfaces import NoText, TextModelError, thinking
from jaxagent.envs.workspace import ActionFailed
from jaxagent.llm.answer import Answer
from jaxagent.llm.base import Declined, Unfinished
from jaxagent.llm.model_editor import ModelEditor
from jaxagent.llm.room import TokenLimit
from tests.llm.test_openai_client import ASK, client_of, endpoint

CODE = '```python\nx = 2\n```'


def said(content, end='stop', **fields):
  message = {'content': content, **fields}
  return 200, {
    'choices': [{'message': message, 'finish_reason': end}],
    'usage': {'prompt_tokens': 10, 'completion_tokens': 5},
  }


NULL = said(None, 'length', reasoning_content='hm')


def test_thoughts_come_with_the_answer_and_from_the_cache(endpoint, tmp_path):
  endpoint.script = [said(f'<think>hm</think>{CODE}')]
  client = client_of(endpoint, tmp_path)
  for _ in range(2):
    found = client.complete(ASK)
    assert (found, found.thoughts) == (CODE, 'hm') and isinstance(found, Answer)
  assert len(endpoint.seen) == 1


def test_an_old_cache_is_read_as_answers_are(endpoint, tmp_path):
  client = client_of(endpoint, tmp_path)
  wanted = client._request(client._url, {'model': 'tiny', 'messages': ASK})
  client._cache.put(wanted, f'<think>hm</think>{CODE}')
  assert client._of_cache(client._cache.get(wanted)).thoughts == 'hm'
  client._cache.put(wanted, '<think>hm')
  assert client._of_cache(client._cache.get(wanted)) is None


@pytest.mark.parametrize(
  'first',
  [
    NULL,
    said('<think>\nhm', 'length'),
    said(CODE[:9], 'length'),
    said(None),
    said(''),
    said('<think>hm</think>'),
    said([{'type': 'thinking', 'thinking': 'hm'}]),
  ],
  ids=range(7),
)
def test_a_cut_or_empty_answer_is_asked_for_with_more_room(
  endpoint, tmp_path, first
):
  endpoint.script = [first, first, said(CODE)]
  client = client_of(endpoint, tmp_path)
  with client.meter() as tokens:
    assert client.complete(ASK, max_tokens=100) == CODE
  assert [body['max_tokens'] for _, _, body in endpoint.seen] == [100, 200, 400]
  assert tokens == {'prompt_tokens': 30, 'tokens': 15}
  with client.meter() as tokens:  # all of it, from the cache as well
    client.complete(ASK, max_tokens=100)
  assert (
    tokens == {'prompt_tokens': 30, 'tokens': 15} and len(endpoint.seen) == 3
  )


def test_after_so_much_room_the_key_is_named(endpoint, tmp_path):
  endpoint.script = [NULL]
  client = client_of(endpoint, tmp_path, TokenLimit('config.editor.max_tokens'))
  with pytest.raises(
    Unfinished, match='800 tokens.*Raise config.editor.max_tokens'
  ):
    client.complete(ASK, max_tokens=100)
  rooms = [body['max_tokens'] for _, _, body in endpoint.seen]
  assert rooms == [100, 200, 400, 800] and not list(tmp_path.rglob('*.json'))


def test_a_room_that_the_server_has_not_is_no_refusal_of_the_input(endpoint):
  endpoint.script = [NULL, (400, {'error': 'max_tokens is too large: 200'})]
  editor = AskedEditor(ModelEditor(client_of(endpoint), max_tokens=100))
  with pytest.raises(TextModelError, match='too large.*Raise max_tokens'):
    editor.edited('x = 1\n', 'set x to 2')


def test_a_model_that_will_not_answer_is_not_asked_again(endpoint):
  for answer in (said(None, refusal='not that'), said(None, 'content_filter')):
    endpoint.script, endpoint.seen = [answer], []
    with pytest.raises(Declined):
      client_of(endpoint).complete(ASK)
    assert len(endpoint.seen) == 1
    with pytest.raises(ActionFailed, match='refuses to answer'):
      AskedEditor(ModelEditor(client_of(endpoint))).edited(
        'x = 1\n', 'set x to 2'
      )


@pytest.mark.parametrize(
  'answer', [NULL, said(None), said('<think>hm', 'stop')]
)
def test_no_editors_silence_is_charged_to_the_policy(endpoint, answer):
  endpoint.script = [answer]
  with pytest.raises(TextModelError):
    AskedEditor(ModelEditor(client_of(endpoint))).edited(
      'x = 1\n', 'set x to 2'
    )


def test_an_editors_thoughts_are_gathered(endpoint):
  endpoint.script = [
    said('no code', reasoning='first'),
    said(CODE, reasoning='then'),
  ]
  with thinking() as found:
    assert (
      ModelEditor(client_of(endpoint)).edit('x = 1\n', 'set x to 2')
      == 'x = 2\n'
    )
  assert found == {'editor': 'first\n\nthen'}


def test_thoughts_that_a_stop_text_ended_are_asked_for_without_it(endpoint):
  endpoint.script = [
    said('<think>I write'),
    said('<think>I write\nEND</think>a\nEND b'),
  ]
  client = client_of(endpoint)
  assert client.complete(ASK, max_tokens=9, stop=('\nEND',)) == 'a'
  bodies = [body for _, _, body in endpoint.seen]
  assert ['stop' in body for body in bodies] == [True, False]
  assert [body['max_tokens'] for body in bodies] == [9, 9]


def test_a_measured_model_has_the_room_that_it_has(endpoint, caplog):
  """Cut with a text: its answer; without: it said nothing. Asked once."""
  caplog.set_level(logging.WARNING)
  client = client_of(
    endpoint, limit=TokenLimit('config.writer.max_tokens', is_measured=True)
  )
  endpoint.script = [said('<think>hm</think>half a pro', 'length')]
  found = client.complete(ASK)
  assert (found, found.thoughts) == ('half a pro', 'hm')
  assert caplog.text.count('config.writer.max_tokens') == 1
  for answer in (NULL, said(''), said('<think>hm', 'length')):
    endpoint.script, endpoint.seen = [answer], []
    with pytest.raises(NoText):
      client.complete(ASK)
    assert len(endpoint.seen) == 1


def test_extra_is_merged_and_none_takes_a_key_out(endpoint, tmp_path):
  extra = {
    'max_tokens': None,
    'max_completion_tokens': 50,
    'temperature': None,
    'stop': None,
    'chat_template_kwargs': {'enable_thinking': False},
  }
  endpoint.script = [said(None, 'length'), said('a END b')]
  client = client_of(endpoint, tmp_path, extra=extra)
  assert client.complete(ASK, temperature=0.7, stop=(' END',), seed=1) == 'a'
  assert [body for _, _, body in endpoint.seen] == [
    {
      'model': 'tiny',
      'messages': ASK,
      'max_completion_tokens': room,
      'seed': 1,
      'chat_template_kwargs': {'enable_thinking': False},
    }
    for room in (50, 100)
  ]


def test_cached_answers_depend_on_added_and_removed_keys(endpoint, tmp_path):
  endpoint.script = [said(str(i)) for i in range(9)]
  one = client_of(endpoint, tmp_path, extra={'seed': None})
  texts = [one.complete(ASK, temperature=0.7, seed=s) for s in (1, 2, 1)]
  assert texts == ['0', '1', '0'] and 'seed' not in endpoint.seen[0][2]
  other = client_of(endpoint, tmp_path, extra={'seed': None, 'top_p': 0.9})
  assert other.complete(ASK, temperature=0.7, seed=1) == '2'


@pytest.mark.parametrize(
  'extra, says',
  [
    ({'messages': []}, "'messages' is set by the client"),
    ({'stream': True}, "'stream' is set by the client"),
    ({1: 2}, 'must be a text'),
    ({'a': {1, 2}}, 'no JSON'),
    ({'a': float('nan')}, 'no JSON'),
    ('x', 'no dictionary'),
  ],
)
def test_what_cannot_be_added(endpoint, extra, says):
  with pytest.raises(ValueError, match=f'extra: .*{says}'):
    client_of(endpoint, extra=extra)


def test_more_room_has_more_time(endpoint):
  endpoint.script = [0.5]
  client = client_of(endpoint, timeout_s=0.1, s_per_token=0.1, max_retries=0)
  assert client.complete(ASK, max_tokens=50) == 'late'
  with pytest.raises(TextModelError, match='time-out after 0.2 s'):
    client.complete(ASK, max_tokens=2)
