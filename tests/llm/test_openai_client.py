"""The client against a loopback server that plays an endpoint's moods."""

from __future__ import annotations

import concurrent.futures
import http.server
import json
import logging
import threading
import time
from types import MappingProxyType

import pytest

from jaxagent.envs.interfaces import TextModelError
from jaxagent.llm.base import Refused, TextModel
from jaxagent.llm.client_options import ClientOptions
from jaxagent.llm.openai_client import OpenAIClient
from jaxagent.llm.room import TokenLimit

KEY = 'sk-loopback-0123456789'
ASK = [{'role': 'user', 'content': 'Hello'}]


def answer(text, prompt=100, completion=50):
  return 200, {
    'choices': [{'message': {'content': text}, 'finish_reason': 'stop'}],
    'usage': {'prompt_tokens': prompt, 'completion_tokens': completion},
  }


class Endpoint:
  """Answers with `script`, one item a request, the last one for ever.

  An item is (status, JSON value or bytes[, headers]) or a number of seconds
  to sleep before a good answer.
  """

  def __init__(self):
    self.script = [answer('Hi')]
    self.seen = []
    self.most_at_once = self._now = 0
    self._lock = threading.Lock()
    endpoint = self

    class Handler(http.server.BaseHTTPRequestHandler):
      protocol_version = 'HTTP/1.1'

      def log_message(self, *args):
        pass

      def do_POST(self):
        endpoint.serve(self)

    self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    self.server.daemon_threads = True
    threading.Thread(
      target=self.server.serve_forever, args=(0.02,), daemon=True
    ).start()
    self.url = f'http://127.0.0.1:{self.server.server_address[1]}/v1'

  def serve(self, handler):
    size = int(handler.headers['Content-Length'])
    body = json.loads(handler.rfile.read(size))
    with self._lock:
      index = min(len(self.seen), len(self.script) - 1)
      self.seen.append((handler.path, dict(handler.headers), body))
      self._now += 1
      self.most_at_once = max(self.most_at_once, self._now)
    item = self.script[index]
    if isinstance(item, float):
      time.sleep(item)
      item = answer('late')
    with self._lock:
      self._now -= 1
    data = item[1]
    if not isinstance(data, bytes):
      data = json.dumps(data).encode()
    try:
      handler.send_response(item[0])
      for name, value in (item[2] if len(item) > 2 else {}).items():
        handler.send_header(name, value)
      handler.send_header('Content-Length', str(len(data)))
      handler.end_headers()
      handler.wfile.write(data)
    except OSError:
      handler.close_connection = True  # the client had gone


@pytest.fixture
def endpoint(monkeypatch):
  monkeypatch.setenv('OPENAI_API_KEY', KEY)
  endpoint = Endpoint()
  yield endpoint
  endpoint.server.shutdown()
  endpoint.server.server_close()


def client_of(
  endpoint, cache_dir=None, limit=TokenLimit(), extra=MappingProxyType({}), sleep=time.sleep,
  **options,
):  # fmt: skip
  options = ClientOptions(**{'backoff_s': 0.0, **options})
  return OpenAIClient(
    endpoint.url, 'tiny', cache_dir, options, limit, extra=extra, sleep=sleep
  )


def test_request_and_answer(endpoint):
  client = client_of(endpoint)
  assert isinstance(client, TextModel) and not client.is_stand_in
  text = client.complete(
    ASK, max_tokens=7, temperature=0.5, stop=('X',), seed=3
  )
  assert text == 'Hi'
  path, headers, body = endpoint.seen[0]
  assert path == '/v1/chat/completions'
  assert headers['Authorization'] == f'Bearer {KEY}'
  assert body == {
    'model': 'tiny',
    'messages': ASK,
    'max_tokens': 7,
    'temperature': 0.5,
    'stop': ['X'],
    'seed': 3,
  }


def test_no_key_no_header(endpoint, monkeypatch):
  monkeypatch.delenv('OPENAI_API_KEY')
  client_of(endpoint).complete(ASK)
  assert 'Authorization' not in endpoint.seen[0][1]


def test_half_character_of_a_json_escape(endpoint):
  client_of(endpoint).complete([{'role': 'user', 'content': 'a\ud800'}])
  assert endpoint.seen[0][2]['messages'][0]['content'] == 'a?'


@pytest.mark.parametrize('status', [429, 500, 503])
def test_retries_then_answers(endpoint, status):
  endpoint.script = [(status, {'error': {'message': 'busy'}})] * 2 + [
    answer('Hi')
  ]
  client = client_of(endpoint)
  assert client.complete(ASK) == 'Hi'
  usage = client.usage()
  assert (usage.requests, usage.retries, usage.failures) == (3, 2, 0)


def test_waits_grow_and_retry_after_counts(endpoint):
  endpoint.script = [
    (503, b''),
    (503, b''),
    (429, b'', {'Retry-After': '7'}),
    (429, b'', {'Retry-After': '9999'}),
    answer('Hi'),
  ]
  waits = []
  client = client_of(
    endpoint, backoff_s=1.0, max_backoff_s=20.0, sleep=waits.append
  )
  client.complete(ASK)
  assert 0.5 <= waits[0] <= 1 and 1 <= waits[1] <= 2
  assert waits[2:] == [7.0, 20.0]


def test_gives_up(endpoint):
  endpoint.script = [(500, {'error': {'message': 'broken'}})]
  client = client_of(endpoint, max_retries=2)
  with pytest.raises(TextModelError, match='3 attempts.*HTTP 500 broken'):
    client.complete(ASK)
  assert client.usage().failures == 1 and client.usage().requests == 3


def test_time_out_is_retried(endpoint):
  endpoint.script = [0.6, answer('Hi')]
  client = client_of(endpoint, timeout_s=0.2)
  assert client.complete(ASK) == 'Hi'
  assert client.usage().retries == 1
  endpoint.script = [0.6]
  with pytest.raises(TextModelError, match='time-out after 0.2 s'):
    client_of(endpoint, timeout_s=0.2, max_retries=0).complete(ASK)


def test_a_closed_port_is_a_text_model_error():
  client = OpenAIClient(
    'http://127.0.0.1:9', 'tiny', options=ClientOptions(max_retries=0)
  )
  with pytest.raises(TextModelError, match='ConnectError'):
    client.complete(ASK)


@pytest.mark.parametrize(
  'status, says',
  [
    (401, 'valid key in OPENAI_API_KEY'),
    (404, 'base_url'),
    (400, 'accepted'),
    (302, 'accepted'),
  ],
)
def test_refusals_are_not_retried(endpoint, status, says):
  endpoint.script = [(status, {'error': {'message': f'no: {KEY}'}})]
  with pytest.raises(TextModelError, match=says) as raised:
    client_of(endpoint).complete(ASK)
  assert KEY not in str(raised.value) and len(endpoint.seen) == 1


@pytest.mark.parametrize(
  'status, refused',
  [(400, True), (413, True), (422, True), (401, False), (404, False),
   (500, False)],
)  # fmt: skip
def test_a_refused_request_is_distinguished_from_other_errors(
  endpoint, status, refused
):
  endpoint.script = [(status, {'error': 'no'})]
  with pytest.raises(TextModelError) as raised:
    client_of(endpoint, max_retries=0).complete(ASK)
  assert isinstance(raised.value, Refused) is refused


@pytest.mark.parametrize(
  'data, says',
  [
    (b'<html>hello</html>', 'no JSON'),
    (b'', 'no JSON'),
    (b'\xff\xfe', 'no JSON'),
    (b'[' * 100_000, 'no JSON'),
    ([], 'choices'),
    ({'choices': []}, 'choices'),
    ({'choices': [{'text': 'x'}]}, 'choices'),
    ({'choices': [{'message': 'x'}]}, 'choices'),
    ({'choices': [{'message': {'content': None}}]}, 'without text'),
    ({'choices': [{'message': {'content': ' '}}]}, 'without text'),
    ({'choices': [{'message': {'content': 5}}]}, 'without text'),
    ({'choices': [{'message': {'refusal': 'not that'}}]}, 'not that'),
  ],
)
def test_garbage_is_a_clear_error(endpoint, tmp_path, data, says):
  endpoint.script = [(200, data)]
  with pytest.raises(TextModelError, match=says):
    client_of(endpoint, tmp_path).complete(ASK)
  assert not list(tmp_path.rglob('*.json'))


def test_accounting(endpoint):
  endpoint.script = [
    answer('a', 1000, 500),
    (
      200,
      {
        'choices': [{'message': {'content': 'b'}}],
        'usage': {'prompt_tokens': -1},
      },
    ),
  ]
  client = client_of(
    endpoint, price_per_1k_prompt=2.0, price_per_1k_completion=4.0
  )
  client.complete(ASK)
  client.complete(ASK)
  usage = client.usage()
  assert (usage.prompt_tokens, usage.completion_tokens) == (1000, 500)
  assert usage.cost == pytest.approx(4.0) and usage.without_usage == 1
  assert usage.calls == 2


def test_cache(endpoint, tmp_path):
  client = client_of(endpoint, tmp_path)
  assert client.complete(ASK) == client.complete(ASK) == 'Hi'
  other = client_of(endpoint, tmp_path)
  assert other.complete(ASK) == 'Hi'
  assert len(endpoint.seen) == 1
  assert other.usage().cache_hits == 1 and other.usage().prompt_tokens == 0
  client.complete(ASK, seed=1)  # another request
  assert len(endpoint.seen) == 2
  client.complete(ASK, temperature=1.0)  # two samples must be able to differ
  client.complete(ASK, temperature=1.0)
  assert len(endpoint.seen) == 4
  client.complete(ASK, temperature=1.0, seed=5)
  client.complete(ASK, temperature=1.0, seed=5)
  assert len(endpoint.seen) == 5
  assert not list(tmp_path.rglob('*.tmp'))


def test_damaged_cache_file_is_asked_again(endpoint, tmp_path, caplog):
  client = client_of(endpoint, tmp_path)
  client.complete(ASK)
  (file,) = tmp_path.rglob('*.json')
  for damage in (b'{"requ', b'[]', b'\xff'):
    file.write_bytes(damage)
    assert client.complete(ASK) == 'Hi'
  assert len(endpoint.seen) == 4 and 'damaged' in caplog.text


def test_concurrency_is_limited(endpoint):
  endpoint.script = [0.05]
  client = client_of(endpoint, max_concurrency=2)
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda i: client.complete(ASK, seed=i), range(8)))
  assert endpoint.most_at_once == 2 and client.usage().requests == 8


def test_the_key_is_nowhere(endpoint, tmp_path, caplog):
  caplog.set_level(logging.DEBUG)
  endpoint.script = [
    (429, {'error': {'message': KEY}}),
    answer(f'your key is {KEY}'),
  ]
  client = client_of(endpoint, tmp_path)
  text = client.complete(ASK)
  assert text == 'your key is [key]'
  stored = b''.join(p.read_bytes() for p in tmp_path.rglob('*.json'))
  for place in (repr(client), str(vars(client)), caplog.text, text):
    assert KEY not in place
  assert KEY.encode() not in stored and b'your key' in stored


def test_a_key_that_no_header_can_hold(endpoint, monkeypatch):
  monkeypatch.setenv('OPENAI_API_KEY', 'sk-\u00e9 x')
  with pytest.raises(TextModelError, match='OPENAI_API_KEY') as raised:
    client_of(endpoint).complete(ASK)
  assert 'sk-' not in str(raised.value) and not endpoint.seen


@pytest.mark.parametrize(
  'url', ['', 'localhost:8000', 'ftp://x/v1', 'http://u:pass123@x/v1']
)
def test_bad_address(url):
  with pytest.raises(ValueError, match='base_url') as raised:
    OpenAIClient(url, 'tiny')
  assert 'pass123' not in str(raised.value)


def test_bad_options():
  with pytest.raises(ValueError, match='model'):
    OpenAIClient('http://127.0.0.1/v1', '')
  with pytest.raises(ValueError, match='max_concurrency=0'):
    ClientOptions(max_concurrency=0)


def _vectors(*rows, order=None):
  items = [{'index': i, 'embedding': row} for i, row in enumerate(rows)]
  return 200, {
    'data': [items[i] for i in order or range(len(rows))],
    'usage': {'prompt_tokens': 7, 'total_tokens': 7},
  }


def test_vectors_in_the_order_of_the_texts(endpoint, tmp_path):
  endpoint.script = [(500, {}), _vectors([1, 0.5], [0, 2], order=(1, 0))]
  client = client_of(endpoint, tmp_path, price_per_1k_prompt=1.0)
  for _ in range(2):  # the second time from the cache
    found = client.embed(['a', 'b\ud800'])
    assert found.dtype == float and found.tolist() == [[1, 0.5], [0, 2]]
  path, headers, body = endpoint.seen[-1]
  assert path == '/v1/embeddings' and len(endpoint.seen) == 2
  assert headers['Authorization'] == f'Bearer {KEY}'
  assert body == {'model': 'tiny', 'input': ['a', 'b?']}
  used = client.usage()
  assert (used.cache_hits, used.retries, used.without_usage) == (1, 1, 0)
  assert (used.prompt_tokens, used.cost) == (7, pytest.approx(0.007))


@pytest.mark.parametrize(
  'answer',
  [
    _vectors([1.0]),
    _vectors([1.0], [1.0, 2.0]),
    _vectors([1.0], [float('nan')]),
    _vectors([], []),
    _vectors([1.0], ['x']),
    _vectors([1.0], [[1.0]]),
    (200, {'data': [{'index': 0, 'embedding': [1]}] * 2}),
    (200, {'data': [{'index': i, 'embedding': [1]} for i in (0, 'x')]}),
    (200, {'data': 5}),
    (200, []),
    (200, 'x' * 10_000),
    (200, b'<html>'),
    (404, {'error': 'no such model'}),
  ],
  ids=range(13),
)
def test_what_are_no_vectors_is_named(endpoint, tmp_path, answer):
  endpoint.script = [answer]
  client = client_of(endpoint, tmp_path)
  for _ in range(2):  # and never kept
    with pytest.raises(TextModelError) as raised:
      client.embed(['a', 'b'])
    assert len(str(raised.value)) < 600 and KEY not in str(raised.value)
  assert len(endpoint.seen) == 2
