"""The vLLM engine over servers that fail as real ones do (doubles)."""

from __future__ import annotations

import asyncio
import http.server
import json
import math
import threading
import time

import numpy as np
import pytest

from jaxagent import types
from jaxagent.rollout.engine import (
  Ends,
  EngineError,
  RequestError,
  RequestLimits,
  mix_seed,
)
from jaxagent.rollout.engines import vllm_engine
from jaxagent.rollout.engines.vllm_api import Vllm
from jaxagent.rollout.engines.vllm_engine import VllmEngine
from jaxagent.testing.fake_vllm import FakeVllm


class Fleet:
  """Doubles; one that was closed comes back at its own address."""

  def __init__(self, n: int = 1, **options):
    self.options = options
    self.fakes = {f.url: f for f in (FakeVllm(**options) for _ in range(n))}
    self.urls = tuple(self.fakes)
    self.revived, self.closed = [], False

  def revive(self, url):
    self.revived.append(url)
    raise EngineError('gone for good')

  def hint(self):
    return 'look here'

  def close(self):
    self.closed = True
    for fake in self.fakes.values():
      fake.close()


class Sync:
  """Only the version travels."""

  def write(self, params, version):
    self.version = version

  async def push(self, server):
    await server.load_weights({'path': '/nowhere', 'tensors': []}, self.version)

  def close(self):
    pass


class Probe:
  request = types.Request('probe', np.arange(4), 0, types.Sampling(2))

  def check(self, completion, params, url):
    gap = np.abs(completion.logprobs + params / 100).max()
    if gap > 1e-6:
      raise EngineError(f'{url}: log-probs differ by {gap}')


def _engine(fleet, decode=None, **options):
  limits = RequestLimits(50, max_prompt_tokens=32, max_new_tokens=64)
  engine = VllmEngine(
    fleet, Sync(), Probe(), limits, Ends(decode=decode), **options
  )
  engine.update_weights(0, 0)  # the double's log-probs are -params / 100
  return engine


@pytest.fixture
def made():
  """(engine, fleet) makers; closed at the end."""
  engines = []

  def make(n=1, engine=None, **options):
    fleet = Fleet(n, **options)
    engines.append(_engine(fleet, **(engine or {})))
    return engines[-1], fleet

  yield make
  for engine in engines:
    engine.close()


def _request(i, n=8, **sampling):
  sampling = {'max_new_tokens': n, **sampling}
  prompt = np.arange(1 + i % 7, dtype=np.int32)
  return types.Request(f'r{i}', prompt, i, types.Sampling(**sampling))


def test_completions_in_order_each_once(made):
  engine, _ = made(3)
  requests = [_request(i, 1 + i % 5) for i in range(40)]
  done = engine.generate(requests)
  assert [c.request_id for c in done] == [r.request_id for r in requests]
  for r, c in zip(requests, done):
    assert len(c.token_ids) == r.sampling.max_new_tokens
    assert c.finish_reason == 'length'
    assert c.version_spans == ((0, 0, len(c.token_ids)),)
  engine.submit(requests)
  found = []
  while some := engine.poll():
    found += some
  assert sorted(c.request_id for c in found) == sorted(
    r.request_id for r in requests
  )


def test_a_server_has_no_more_than_its_places(made):
  engine, fleet = made(2, engine={'max_num_seqs': 3}, token_s=0.002)
  engine.generate([_request(i) for i in range(24)])
  assert [f.most for f in fleet.fakes.values()] == [3, 3]


def test_turns_of_one_text_go_to_one_server(made):
  engine, fleet = made(4)
  head = np.arange(32, dtype=np.int32) % 7
  for i in range(8):
    engine.generate([types.Request(f't{i}', head, i, types.Sampling(4))])
  generated = [
    f.calls.count('/inference/v1/generate') for f in fleet.fakes.values()
  ]
  assert sorted(generated) == [1, 1, 1, 9]  # a probe each


def test_stop_texts_are_cut_as_natively(made):
  def spell(ids):
    return ''.join(chr(97 + i % 26) for i in ids)

  engine, _ = made(engine={'decode': spell})
  free = engine.generate([_request(3, 20)])[0]
  text = spell(free.token_ids)
  stop = text[4:7]
  end = text.index(stop) + 3
  done = engine.generate([_request(3, 20, stop=(stop,))])[0]
  np.testing.assert_array_equal(done.token_ids, free.token_ids[:end])
  assert done.finish_reason == 'stop' and len(done.logprobs) == end
  assert done.version_spans == ((0, 0, end),)


def test_weights_come_in_mid_request_and_show_in_the_spans(made):
  engine, fleet = made(token_s=0.01)
  engine.submit([_request(1, 40)])
  time.sleep(0.15)
  engine.update_weights(5, 5)
  (done,) = engine.poll()
  (v0, a, b), (v1, c, d) = done.version_spans
  assert (v0, v1, a, d) == (0, 5, 0, 40) and b == c
  np.testing.assert_allclose(done.logprobs[b:], -0.05)
  (fake,) = fleet.fakes.values()
  order = [c.split('?')[0] for c in fake.calls]
  last = len(order) - order[::-1].index('/pause') - 1
  assert order[last : last + 6] == [
    '/pause',
    '/start_weight_update',
    '/update_weights',
    '/finish_weight_update',
    '/reset_prefix_cache',
    '/resume',
  ]


def test_abort_gives_partial_tokens_in_the_order_asked(made):
  engine, _ = made(engine={'max_num_seqs': 1}, token_s=0.01)
  engine.submit([_request(1, 60), _request(2, 60), _request(3, 2)])
  time.sleep(0.15)
  cut = engine.abort(['r2', 'nobody', 'r1'])
  assert [c.request_id for c in cut] == ['r2', 'r1']
  assert [c.finish_reason for c in cut] == ['abort', 'abort']
  assert len(cut[0].token_ids) == 0 < len(cut[1].token_ids) < 60
  assert [c.request_id for c in engine.poll()] == ['r3']
  assert engine.poll() == []


def test_discarded_ones_are_never_given(made):
  engine, _ = made(token_s=0.01)
  engine.submit([_request(1, 60), _request(2, 3)])
  engine.discard(['r1', 'nobody'])
  assert [c.request_id for c in engine.poll()] == ['r2']
  assert engine.poll() == []


def test_a_lost_server_s_requests_are_asked_of_another(made, caplog):
  engine, fleet = made(2, token_s=0.01)
  calm = {c.request_id: c for c in engine.generate(_many())}
  first, second = fleet.fakes.values()
  back = threading.Event()

  def revive(url):
    back.wait(30)
    again = FakeVllm(**fleet.options)
    # The double cannot take its old port while that is in TIME_WAIT.
    raise EngineError(f'{again.url}')

  fleet.revive = revive
  engine.submit(_many())
  time.sleep(0.1)
  first.close()
  found = {}
  while len(found) < len(calm):
    found |= {c.request_id: c for c in engine.poll()}
  back.set()
  assert engine.resubmitted > 1
  told = [r for r in caplog.records if 'was lost' in r.getMessage()]
  assert len(told) == 1
  for name, c in found.items():
    np.testing.assert_array_equal(c.token_ids, calm[name].token_ids)


def _many():
  return [_request(i, 20) for i in range(12)]


def test_a_connection_that_idled_is_not_used_again():
  """uvicorn closes it after 5 s, perhaps just as a request goes out."""

  class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    last = math.inf

    def do_POST(self):  # noqa: N802 - the name is the base class's
      self.rfile.read(int(self.headers['Content-Length']))
      if time.monotonic() - self.last > 1.0:
        self.close_connection = True
        self.connection.close()
        return
      choice = {
        'token_ids': [], 'logprobs': None, 'finish_reason': 'abort',
        'weight_versions': [],
      }  # fmt: skip
      data = json.dumps({'choices': [choice]}).encode()
      self.send_response(200)
      self.send_header('Content-Length', str(len(data)))
      self.end_headers()
      self.wfile.write(data)
      self.last = time.monotonic()

    def log_message(self, *args):
      pass

  async def ask(url):
    api = Vllm(url)
    for i, pause in enumerate((0.0, 0.2, 1.3)):
      await asyncio.sleep(pause)
      await api.generate(_request(i), 0, f'{i}')
    await api.close()

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  try:
    asyncio.run(ask(f'http://127.0.0.1:{server.server_port}'))
  finally:
    server.shutdown()
    server.server_close()


def test_every_caller_gets_an_error_when_no_server_comes_back(made):
  engine, fleet = made(token_s=0.01)
  engine.submit([_request(1, 60)])
  time.sleep(0.05)
  for fake in fleet.fakes.values():
    fake.close()
  with pytest.raises(EngineError, match='gone for good'):
    engine.poll()
  with pytest.raises(EngineError, match='gone for good'):
    engine.generate([_request(2)])


def test_weights_that_are_not_the_trainers_stop_the_run(made):
  engine, fleet = made()
  (fake,) = fleet.fakes.values()

  def stale(answer):
    for c in answer['choices'][0]['logprobs']['content']:
      c['logprob'] = -0.5

  fake.alter = stale
  with pytest.raises(EngineError, match='log-probs differ'):
    engine.update_weights(1, 1)


def test_a_refused_update_says_why_and_resumes(made):
  engine, fleet = made()
  (fake,) = fleet.fakes.values()
  fake.faults['/update_weights'] = 500, b'{"error": "names do not fit"}'
  with pytest.raises(EngineError, match='500 .*names do not fit'):
    engine.update_weights(1, 1)
  assert fake.version == '0' and fake.calls[-1] == '/resume'


LOST = 500, b'{"error": {"message": "EngineCore encountered an issue."}}'


@pytest.mark.parametrize(
  'path', ['/update_weights', '/inference/v1/generate', '/resume']
)
def test_one_lost_over_an_update_gets_the_weights_when_it_is_back(made, path):
  engine, fleet = made(2)
  first, second = fleet.fakes.values()
  fleet.revive = lambda url: first.faults.clear()
  first.faults[path] = LOST
  engine.update_weights(1, 1)
  assert engine.version == 1
  done = engine.generate(_many())
  assert {c.version_spans[0][0] for c in done} == {1}
  end = time.monotonic() + 30
  while first.version != '1' and time.monotonic() < end:
    time.sleep(0.01)
  assert first.version == second.version == '1'


def _wait_for(condition):
  end = time.monotonic() + 30
  while not condition():
    assert time.monotonic() < end, 'it did not happen in time'
    time.sleep(0.01)


def test_one_lost_again_as_it_comes_back_is_tried_again(made):
  engine, fleet = made(2)
  first, _ = fleet.fakes.values()
  revived = []

  def revive(url):
    revived.append(url)
    if len(revived) > vllm_engine._RETRIES:
      first.faults.clear()

  fleet.revive = revive
  first.faults['/update_weights'] = LOST
  engine.update_weights(1, 1)
  _wait_for(lambda: first.version == '1')
  assert revived == [first.url] * 4
  done = engine.generate(_many())
  assert {c.version_spans[0][0] for c in done} == {1}


def test_a_server_lost_again_each_time_it_returns_ends_the_run(made):
  engine, fleet = made(2)
  first, _ = fleet.fakes.values()
  revived = []
  fleet.revive = revived.append
  first.faults['/update_weights'] = LOST
  engine.update_weights(1, 1)
  _wait_for(lambda: engine._broken is not None)
  assert revived == [first.url] * 4
  with pytest.raises(EngineError, match='EngineCore'):
    engine.generate([_request(1)])


def test_a_server_that_never_answers_the_probe_counts_as_lost(
  made, monkeypatch
):
  """Its health is well; the weights' lock is not held for ever."""
  engine, fleet = made()
  (fake,) = fleet.fakes.values()
  answers, revived = threading.Event(), []
  fake.alter = lambda answer: answers.wait(30)

  def revive(url):
    revived.append(url)
    monkeypatch.setattr(vllm_engine, '_PROBE_S', 30.0)
    answers.set()

  fleet.revive = revive
  monkeypatch.setattr(vllm_engine, '_PROBE_S', 0.2)
  engine.update_weights(1, 1)
  (done,) = engine.generate([_request(1)])
  assert revived == [fake.url] and done.version_spans[0][0] == 1


def test_one_lost_at_its_first_weights_says_where_to_look():
  fleet = Fleet()
  (fake,) = fleet.fakes.values()
  fake.faults['/inference/v1/generate'] = LOST
  with pytest.raises(
    EngineError, match=r'first weights .*EngineCore.*look here'
  ):
    _engine(fleet)


@pytest.mark.parametrize(
  'path, fault, text',
  [
    ('/version', (404, b'{}'), 'has no /version: start it with'),
    ('/weight_info', (404, b'{}'), 'VLLM_SERVER_DEV_MODE=1'),
    ('/v1/models', (200, b'{"data": []}'), 'does not answer as vLLM'),
    ('/v1/models', (200, b'<html>'), 'no JSON but'),
    ('/v1/models', (401, b''), 'VLLM_API_KEY'),
  ],
)
def test_a_server_that_does_not_answer_as_needed_is_refused_at_once(
  path, fault, text
):
  fleet = Fleet()
  for fake in fleet.fakes.values():
    fake.faults[path] = fault
  with pytest.raises(EngineError, match=text):
    _engine(fleet)
  assert fleet.closed


def test_a_context_that_is_too_short():
  with pytest.raises(EngineError, match='context of 80 tokens.*need 96'):
    _engine(Fleet(max_model_len=80))


@pytest.mark.parametrize(
  'spoil, text',
  [
    (lambda c: c.pop('token_ids'), 'an answer of'),
    (lambda c: c.update(logprobs=None), 'do not belong together'),
    (lambda c: c['token_ids'].append(3), 'do not belong together'),
    (lambda c: c.update(weight_versions=[]), 'do not belong together'),
    (lambda c: c.update(finish_reason='error'), 'do not belong together'),
    (
      lambda c: c['logprobs']['content'][0].update(logprob=-9999.0),
      'not finite',
    ),
  ],
)
def test_an_answer_that_does_not_hold_together(made, spoil, text):
  engine, fleet = made()
  for fake in fleet.fakes.values():
    fake.alter = lambda answer: spoil(answer['choices'][0])
  with pytest.raises(EngineError, match=text):
    engine.generate([_request(1)])


@pytest.mark.parametrize(
  'bad, text',
  [
    ({'prompt_ids': np.arange(33)}, '33 tokens'),
    ({'prompt_ids': np.array([50])}, 'id 50'),
    ({'sampling': types.Sampling(65)}, 'max_new_tokens=65'),
    ({'sampling': types.Sampling(4, top_p=0.5)}, 'top_p=0.5'),
    ({'sampling': types.Sampling(4, stop=('x',))}, 'decode='),
  ],
)
def test_bad_requests_are_refused(made, bad, text):
  engine, _ = made()
  whole = {'request_id': 'x', 'prompt_ids': np.arange(3), 'seed': 0, **bad}
  with pytest.raises(RequestError, match=text):
    engine.generate([types.Request(**whole)])


def test_closing_ends_who_waits(made):
  engine, fleet = made(token_s=0.05)
  engine.submit([_request(1, 60)])
  engine.close()
  assert fleet.closed
  with pytest.raises(EngineError, match='closed'):
    engine.poll()
  with pytest.raises(EngineError, match='closed'):
    engine.submit([_request(2)])


def test_a_seed_is_the_engines_and_the_requests():
  assert mix_seed(0, 1) != mix_seed(1, 0)
