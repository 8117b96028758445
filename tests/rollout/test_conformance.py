"""What every engine keeps: one suite, the native one and a real vLLM server."""

from __future__ import annotations

import concurrent.futures
import time

import numpy as np
import pytest

from jaxagent.rollout.engine import RequestError
from tests.rollout.served import NEW, PROMPT, scaled, served

ENGINES = [
  'native',
  pytest.param('vllm', marks=[pytest.mark.vllm, pytest.mark.slow]),
]
NATS = 1e-4  # float32, two implementations of the same model


@pytest.fixture(scope='module', params=ENGINES)
def one(request, tmp_path_factory):
  if request.param == 'vllm':
    yield request.getfixturevalue('vllm_qwen2')
    return
  with served('native', 'qwen2', tmp_path_factory.mktemp('native')) as made:
    yield made


@pytest.fixture(autouse=True)
def _the_first_weights(request):
  """Each test begins with them."""
  if 'one' not in request.fixturenames:
    return
  one = request.getfixturevalue('one')
  if one.engine.version != 0:
    one.engine.update_weights(one.params, 0)


def _same(a, b):
  np.testing.assert_array_equal(a.token_ids, b.token_ids)
  np.testing.assert_allclose(a.logprobs, b.logprobs, atol=NATS)
  assert a.finish_reason == b.finish_reason


def test_a_seed_gives_its_tokens_whatever_is_beside(one):
  requests = [one.request(i, 3 + 40 * i) for i in range(6)]
  together = one.engine.generate(requests)
  backwards = one.engine.generate(requests[::-1])[::-1]
  for r, a, b in zip(requests, together, backwards):
    alone = one.engine.generate([r])[0]
    _same(a, alone)
    _same(b, alone)
    assert a.request_id == r.request_id
    np.testing.assert_array_equal(a.prompt_ids, r.prompt_ids)
    assert a.version_spans == ((0, 0, len(a.token_ids)),)


def test_n_samples_of_a_prompt_differ_and_repeat(one):
  same = [one.request(5, 130, seed=s) for s in range(8)]
  first, again = one.engine.generate(same), one.engine.generate(same)
  for a, b in zip(first, again):
    _same(a, b)
  assert len({d.token_ids.tobytes() for d in first}) == 8


@pytest.mark.parametrize('temperature', [1.0, 0.6, 1.7])
def test_log_probs_are_the_learners(one, temperature):
  requests = [one.request(i, 9, temperature=temperature) for i in range(4)]
  for done in one.engine.generate(requests):
    assert one.gap(done, temperature=temperature) < NATS


@pytest.mark.slow
@pytest.mark.parametrize('name', ENGINES)
def test_log_probs_of_another_kind_of_model(name, tmp_path):
  """Norms of queries and keys, no biases, an output head of its own."""
  with served(name, 'qwen3', tmp_path) as one:
    for version, by in ((0, 1.0), (1, 0.9), (2, 1.1), (3, 0.8)):
      params = scaled(one.params, by)
      one.engine.update_weights(params, version)
      for done in one.engine.generate([one.request(i, 150) for i in (1, 2)]):
        assert done.version == version and one.gap(done, params) < NATS


def test_greedy_is_the_argmax(one):
  greedy = [one.request(3, seed=s, temperature=0.0) for s in (1, 2)]
  a, b = one.engine.generate(greedy)
  np.testing.assert_array_equal(a.token_ids, b.token_ids)
  cut = one.engine.generate([one.request(3, top_k=1)], for_training=False)[0]
  np.testing.assert_array_equal(cut.token_ids, a.token_ids)


def test_stop_ids_end_and_are_kept(one):
  free = one.engine.generate([one.request(2)])[0]
  stop = int(free.token_ids[3])
  first = int(np.argmax(free.token_ids == stop))
  cut = one.engine.generate([one.request(2, stop_token_ids=(stop,))])[0]
  np.testing.assert_array_equal(cut.token_ids, free.token_ids[: first + 1])
  assert cut.finish_reason == 'stop' and len(cut.logprobs) == first + 1
  short = one.engine.generate([one.request(2, max_new_tokens=2)])[0]
  np.testing.assert_array_equal(short.token_ids, free.token_ids[:2])
  assert short.finish_reason == 'length'


def test_stop_texts_end_at_the_token_that_completes_them(one):
  decode = one.tokenizer.decode_response
  free = one.engine.generate([one.request(2, max_new_tokens=40)])[0]
  text = decode(free.token_ids)
  places = [i for i in range(len(text) - 3) if '\ufffd' not in text[i : i + 3]]
  for at in places[:: max(1, len(places) // 6)]:
    stop = text[at : at + 3]
    wanted = one.request(2, max_new_tokens=40, stop=('\0never', stop))
    done = one.engine.generate([wanted])[0]
    n = len(done.token_ids)
    np.testing.assert_array_equal(done.token_ids, free.token_ids[:n])
    assert stop in decode(done.token_ids)
    assert stop not in decode(done.token_ids[:-1])
    assert done.finish_reason == 'stop' and len(done.logprobs) == n
    assert done.version_spans == ((0, 0, n),)


@pytest.mark.parametrize(
  'bad, text',
  [
    ({'length': PROMPT + 1}, f"'r0'.*{PROMPT + 1} tokens.*{PROMPT}"),
    ({'length': 0}, 'empty prompt'),
    ({'max_new_tokens': NEW + 1}, f'max_new_tokens={NEW + 1}'),
    ({'temperature': -1.0}, 'temperature=-1'),
    ({'top_p': 0.9}, 'for_training=False'),
  ],
)
def test_bad_requests_are_refused_before_any_is_served(one, bad, text):
  good, wrong = one.request(1), one.request(0, **bad)
  with pytest.raises(RequestError, match=text):
    one.engine.generate([good, wrong])
  with pytest.raises(RequestError, match=text):
    one.engine.submit([good, wrong])
  assert one.engine.poll() == []


@pytest.mark.parametrize('token', [-1, 100_000])
def test_ids_outside_the_vocabulary_are_refused(one, token):
  wrong = one.request(0)
  wrong.prompt_ids[2] = token
  with pytest.raises(RequestError, match=f'id {token} is outside the vocab'):
    one.engine.generate([wrong])


def test_the_longest_prompt_and_response(one):
  whole = one.request(4, PROMPT, max_new_tokens=NEW)
  done = one.engine.generate([whole])[0]
  assert len(done.token_ids) == NEW or done.finish_reason == 'stop'
  assert one.gap(done) < NATS


def test_submit_and_poll_give_each_once(one):
  requests = [one.request(i, 3 + i, max_new_tokens=1 + i) for i in range(24)]
  alone = {c.request_id: c for c in one.engine.generate(requests)}
  for r in requests:
    one.engine.submit([r])
  found = []
  while some := one.engine.poll():
    found += some
  assert sorted(c.request_id for c in found) == sorted(alone)
  for c in found:
    _same(c, alone[c.request_id])
  assert one.engine.poll(0.0) == [] == one.engine.poll()


def test_64_callers_at_once(one):
  requests = [one.request(i, 2 + i % 9) for i in range(64)]
  whole = one.engine.generate(requests)
  with concurrent.futures.ThreadPoolExecutor(64) as pool:
    found = list(pool.map(lambda r: one.engine.generate([r])[0], requests))
  for a, b in zip(whole, found):
    _same(a, b)


def _long(one):
  """A request whose response is not ended by the end token."""
  for seed in range(50):
    wanted = one.request(8, seed=seed, max_new_tokens=NEW)
    whole = one.engine.generate([wanted])[0]
    if whole.finish_reason == 'length':
      return wanted, whole
  raise AssertionError('every response ends early')


def _in_mid_request(one, wanted, act, early, late):
  """The completion of `wanted`, `act` having fallen between its tokens.

  act: gives the completions that `poll` will not. early, late: whether it fell
  before or after. The wait is sought: an engine may be fast or slow.
  """
  wait = 0.02
  for _ in range(25):
    one.engine.submit([wanted])
    time.sleep(wait)
    done = [*act(), *one.engine.poll()][0]
    if not early(done) and not late(done):
      return done
    wait *= 1.5 if early(done) else 0.7
    one.engine.update_weights(one.params, 0)
  raise AssertionError('never in mid-request')


def test_new_weights_in_mid_request_show_in_the_spans(one):
  new = scaled(one.params, 0.8)

  def update():
    one.engine.update_weights(new, 7)
    return []

  wanted, whole = _long(one)
  done = _in_mid_request(
    one,
    wanted,
    update,
    early=lambda d: d.version == 7,
    late=lambda d: d.version_spans == ((0, 0, NEW),),
  )
  (old_version, start, seam), (new_version, at, end) = done.version_spans
  assert (old_version, start, new_version, at) == (0, 0, 7, seam)
  assert 0 < seam < end == len(done.token_ids)
  np.testing.assert_array_equal(done.token_ids[:seam], whole.token_ids[:seam])
  assert one.gap(done, tokens=slice(0, seam)) < NATS
  assert one.engine.version == 7
  after = one.engine.generate([one.request(8)])[0]
  assert after.version_spans == ((7, 0, len(after.token_ids)),)
  assert one.gap(after, new) < NATS < one.gap(after)


def test_abort_in_mid_request_gives_what_there_is(one):
  wanted, whole = _long(one)

  def abort():
    return one.engine.abort(['nobody', wanted.request_id])

  done = _in_mid_request(
    one,
    wanted,
    abort,
    early=lambda d: len(d.token_ids) == 0,
    late=lambda d: d.finish_reason != 'abort',
  )
  n = len(done.token_ids)
  np.testing.assert_array_equal(done.token_ids, whole.token_ids[:n])
  assert n < NEW and one.gap(done) < NATS
  assert one.engine.poll() == [] == abort()


def test_discarded_ones_are_never_given(one):
  one.engine.submit([one.request(1, max_new_tokens=NEW), one.request(2)])
  one.engine.discard(['r1', 'nobody'])
  assert [c.request_id for c in one.engine.poll()] == ['r2']
  assert one.engine.poll() == []
