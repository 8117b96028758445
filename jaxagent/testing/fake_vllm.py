"""A server that answers as vLLM does, without a model, and fails on demand.

Tokens are a function of seed, position and prompt alone; log-probs are minus the
version's number over a hundred, so that a test sees which weights it got. An adapter
is a folder with a file `value`, a number that is added to the version's.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import zlib
from collections.abc import Callable
from typing import Any


class FakeVllm:
  """Serves on a loopback port until `close`.

  Args:
    vocab_size: of the tokens that are drawn.
    max_model_len: reported on request.
    token_s: seconds a token.
    adapters: 'served', 'ignored' by what it computes, or '' (no such endpoint).
  """

  def __init__(
    self,
    *,
    vocab_size: int = 50,
    max_model_len: int = 4096,
    token_s: float = 0.0,
    adapters: str = 'served',
  ):
    self.vocab_size, self.max_model_len = vocab_size, max_model_len
    self.token_s, self.serves = token_s, adapters
    self.adapters: dict[str, float] = {}  # name -> value
    self.version = 'default'
    self.calls: list[str] = []  # paths, in their order
    # path -> (status, body) instead of the answer
    self.faults: dict[str, tuple[int, bytes]] = {}
    self.alter: Callable[[dict], object] = lambda answer: None
    self.most = 0  # requests at once, at most
    self._now = 0
    self._aborted: set[str] = set()
    self._moved = threading.Condition()
    self._paused = False
    self._server = http.server.ThreadingHTTPServer(
      ('127.0.0.1', 0), _handler(self)
    )
    self._server.daemon_threads = True
    self._server.block_on_close = False
    self.port = self._server.server_address[1]
    self.url = f'http://127.0.0.1:{self.port}'
    self._thread = threading.Thread(
      target=self._server.serve_forever, args=(0.01,), daemon=True
    )
    self._thread.start()

  def close(self) -> None:
    """Accepts no more connections and breaks open ones."""
    self._server.shutdown()
    self._server.server_close()
    with self._moved:
      self._aborted.add('')  # everything
      self._moved.notify_all()

  def answer(self, path: str, body: dict) -> tuple[int, object]:
    """(status, JSON) of a call."""
    self.calls.append(path)
    if path in self.faults:
      return self.faults[path]
    route = path.split('?')[0]
    if route == '/health':
      return 200, None
    if route == '/version':
      return 200, {'version': '0.32.0'}
    if route == '/v1/models':
      model = {'id': 'policy', 'max_model_len': self.max_model_len}
      return 200, {'data': [model]}
    if route == '/weight_info':
      return 200, {'weight_version': self.version}
    if route == '/inference/v1/generate':
      return self._generate(body)
    if route == '/inference/v1/abort_requests':
      with self._moved:
        self._aborted.update(body['request_ids'])
        self._moved.notify_all()
      return 200, None
    if route in ('/pause', '/resume'):
      with self._moved:
        self._paused = route == '/pause'
        self._moved.notify_all()
      return 200, {}
    if route == '/reset_prefix_cache':
      return 200, {'success': True}
    if route == '/finish_weight_update':
      self.version = body.get('weight_version', self.version)
      return 200, {}
    if route.startswith('/v1/') and self.serves:
      return self._change_adapters(route, body)
    if route in (
      '/init_weight_transfer_engine',
      '/start_weight_update',
      '/update_weights',
    ):
      return 200, {}
    return 404, {'detail': 'Not Found'}

  def _change_adapters(self, route: str, body: dict) -> tuple[int, object]:
    name = body['lora_name']
    if route == '/v1/unload_lora_adapter':
      known = self.adapters.pop(name, None) is not None
      return (200, 'removed') if known else (404, _missing(name))
    if name in self.adapters:
      return 400, {'error': {'message': f'{name} has already been loaded'}}
    folder = pathlib.Path(body['lora_path'])
    if not folder.is_dir():
      message = f'Loading lora {name} failed: No adapter found for {folder}'
      return 404, {'error': {'message': message, 'type': 'NotFoundError'}}
    value = float((folder / 'value').read_text())
    self.adapters[name] = value
    return 200, 'added'

  def _generate(self, body: dict) -> tuple[int, object]:
    model = body.get('model', 'policy')
    if model != 'policy' and model not in self.adapters:
      return 404, _missing(model)
    added = self.adapters.get(model, 0.0) if self.serves == 'served' else 0.0
    s, name = body['sampling_params'], f'generate-tokens-{body["request_id"]}'
    drawn: list[tuple[int, float]] = []
    spans: list[Any] = []
    reason = 'length'
    with self._moved:
      self._now += 1
      self.most = max(self.most, self._now)
    key = f'{s["seed"]},{body["token_ids"]}'
    for i in range(s['max_tokens']):
      with self._moved:
        self._moved.wait_for(lambda: not self._paused or self._gone(name))
        if not self._gone(name) and self.token_s:
          self._moved.wait_for(lambda: self._gone(name), self.token_s)
        if self._gone(name):
          reason = 'abort'
          break
      token = zlib.crc32(f'{key},{i}'.encode()) % self.vocab_size
      drawn.append((token, -(int(self.version) % 1000 + added) / 100))
      if not spans or spans[-1]['version'] != self.version:
        spans.append({'version': self.version, 'start': i, 'end': i})
      spans[-1]['end'] = i + 1
      if token in s['stop_token_ids']:
        reason = 'stop'
        break
    with self._moved:
      self._now -= 1
    choice = {
      'index': 0,
      'token_ids': [t for t, _ in drawn],
      'logprobs': {
        'content': [{'token_id': t, 'logprob': p} for t, p in drawn]
      },
      'finish_reason': reason,
      'weight_versions': spans,
    }
    answer = {'request_id': name, 'model': model, 'choices': [choice]}
    self.alter(answer)
    return 200, answer

  def _gone(self, name: str) -> bool:
    return name in self._aborted or '' in self._aborted


def _missing(name: str) -> dict:
  message = f'The model `{name}` does not exist.'
  return {'error': {'message': message, 'type': 'NotFoundError'}}


def _handler(fake: FakeVllm):
  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def do_GET(self):  # noqa: N802 - the name is the base class's
      self._reply({})

    def do_POST(self):  # noqa: N802
      length = int(self.headers.get('Content-Length', 0))
      self._reply(json.loads(self.rfile.read(length) or b'{}'))

    def _reply(self, body):
      status, answer = fake.answer(self.path, body)
      if '' in fake._aborted:  # closed meanwhile: the connection breaks
        self.close_connection = True
        self.connection.close()
        return
      data = (
        answer if isinstance(answer, bytes) else json.dumps(answer).encode()
      )
      self.send_response(status)
      self.send_header('Content-Length', str(len(data)))
      self.end_headers()
      self.wfile.write(data)

    def log_message(self, *args):
      pass

  return Handler
