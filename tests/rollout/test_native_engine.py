"""The native engine, beyond what every engine keeps (test_conformance)."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time

import jax
import numpy as np
import pytest
from flax import nnx

from jaxagent import types
from jaxagent.models import ModelConfig, cached, init_decoder
from jaxagent.rollout.engine import Ends, EngineError, RequestError, before_stop
from jaxagent.rollout.engines import native_programs, prompt_rows, sampling
from jaxagent.rollout.engines.native_engine import NativeEngine, Shapes
from jaxagent.rollout.engines.sampling import truncate

# The fast subset has test_conformance.
pytestmark = pytest.mark.slow

CONFIG = ModelConfig(
  vocab_size=67,
  hidden_size=32,
  intermediate_size=48,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
  max_position_embeddings=128,
)


@pytest.fixture(scope='module')
def engine():
  graphdef, params = init_decoder(CONFIG, 0)
  params = jax.tree.map(lambda a: 4 * a, params)
  return NativeEngine(
    graphdef,
    params,
    CONFIG,
    Shapes((8, 16), (1, 4), max_new_tokens=24),
    Ends((1,)),
  )


def request(i, length=6, seed=None, **sampling):
  rng = np.random.default_rng(i)
  sampling = {'max_new_tokens': 20, **sampling}
  return types.Request(
    f'r{i}',
    rng.integers(2, 67, length).astype(np.int32),
    i if seed is None else seed,
    types.Sampling(**sampling),
  )


def _spell(ids):
  """Two letters a token, so that stop texts fall across tokens."""
  return ''.join(chr(97 + i % 26) + chr(65 + i // 26) for i in ids)


def test_stop_texts_cut_at_the_token_that_completes_them(engine, monkeypatch):
  free = engine.generate([request(2)])[0]
  monkeypatch.setattr(engine, '_ends', Ends((1,), _spell))
  text = _spell(free.token_ids)
  for at in range(len(text) - 3):
    stop = text[at : at + 3]
    end = -(-(text.index(stop) + 3) // 2)
    done = engine.generate([request(2, stop=('never', stop))])[0]
    np.testing.assert_array_equal(done.token_ids, free.token_ids[:end])
    np.testing.assert_array_equal(done.logprobs, free.logprobs[:end])
    assert done.finish_reason == 'stop'
    assert done.version_spans == ((engine.version, 0, end),)
    text_before = before_stop(_spell(done.token_ids), ('never', stop))
    assert text_before == text[: text.index(stop)]
  other = engine.generate([request(2, stop=('never',))])[0]
  np.testing.assert_array_equal(other.token_ids, free.token_ids)
  assert other.finish_reason == free.finish_reason


def test_stop_texts_need_a_decoder(engine):
  with pytest.raises(RequestError, match=r"stop=\('x',\).*decode="):
    engine.generate([request(2, stop=('x',))])


def test_greedy_is_the_argmax(engine):
  a = engine.generate([request(3, temperature=0.0, seed=1)])[0]
  b = engine.generate([request(3, temperature=0.0, seed=2)])[0]
  np.testing.assert_array_equal(a.token_ids, b.token_ids)
  model = engine._structure.merge(native_programs.leaves(engine._params))
  prompt = a.prompt_ids[None]
  hidden = model(prompt, np.arange(prompt.size)[None], np.ones_like(prompt))
  assert a.token_ids[0] == int(np.argmax(hidden[0, -1] @ model.unembed.T))


def test_weights_by_reference_and_versions(engine):
  old = engine._params
  new = jax.tree.map(lambda a: a * 0.5, old)
  before = engine.generate([request(4)])[0]
  engine.update_weights(new, 7)
  assert engine.version == 7 and engine._params is new
  after = engine.generate([request(4)])[0]
  assert after.version == 7
  assert before.token_ids.tobytes() != after.token_ids.tobytes()
  bad = jax.tree.map(lambda a: a[..., :-1], new)
  with pytest.raises(ValueError, match='version 8 do not fit.*embed'):
    engine.update_weights(bad, 8)
  assert engine.version == 7
  engine.update_weights(old, 0)


def test_no_recompile_after_warm_up(engine):
  def work(first):
    engine.generate([request(first + i) for i in range(3)])
    engine.generate([request(first + i, 4, temperature=0.3) for i in range(4)])
    short = [request(first + i, 8, max_new_tokens=3) for i in range(4)]
    engine.generate(short)

  for first in (0, 100):
    work(first)
  count, programs = (
    engine.compiles,
    native_programs.decode_program(False)._cache_size(),
  )
  for first in (200, 300, 400):
    work(first)
  assert engine.compiles == count
  assert native_programs.decode_program(False)._cache_size() == programs


def test_accelerators_settings_give_the_same_tokens(engine, monkeypatch):
  """Longer rounds, and more rows than there are slots."""
  requests = [request(i, 5) for i in range(3)]
  want = engine.generate(requests)
  with monkeypatch.context() as patch:
    patch.setattr(jax, 'default_backend', lambda: 'gpu')
    other = _fresh(batch_buckets=(1, 2))
  for a, b in zip(want, other.generate(requests), strict=True):
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
  other.close()


def test_truncate_keeps_the_head():
  logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
  for top_k, top_p, kept in ((2, 1.0, 2), (0, 0.7, 2), (0, 0.1, 1), (0, 1, 4)):
    out = truncate(logits, np.array([top_k]), np.array([top_p], np.float32))
    assert int(np.isfinite(out).sum()) == kept


def test_samples_follow_the_policy():
  """Chi-squared of 2,000 first tokens against the model's probabilities."""
  graphdef, params = init_decoder(CONFIG, 0)
  params = jax.tree.map(lambda a: 4 * a, params)
  engine = NativeEngine(
    graphdef,
    params,
    CONFIG,
    Shapes((8,), (500,), max_new_tokens=1),
  )
  n = 2000
  one = [request(1, seed=s, max_new_tokens=1) for s in range(n)]
  drawn = [int(c.token_ids[0]) for c in engine.generate(one)]
  model = nnx.merge(graphdef, params)
  ids = one[0].prompt_ids[None]
  hidden = model(ids, np.arange(ids.size)[None], np.ones_like(ids))
  probs = np.asarray(jax.nn.softmax(hidden[0, -1] @ model.unembed.T))
  seen = np.bincount(drawn, minlength=67)
  chi = ((seen - n * probs) ** 2 / (n * probs)).sum()
  assert chi < 66 + 4 * (2 * 66) ** 0.5


def test_bad_set_up():
  graphdef, params = init_decoder(CONFIG, 0)
  with pytest.raises(ValueError, match='max_position_embeddings'):
    NativeEngine(graphdef, params, CONFIG, Shapes(prompt_buckets=(999,)))
  with pytest.raises(ValueError, match='outside the vocabulary'):
    NativeEngine(
      graphdef,
      params,
      CONFIG,
      Shapes(prompt_buckets=(8,), max_new_tokens=8),
      Ends((67,)),
    )


# Many callers -----------------------------------------------------------------


def _same(a, b):
  np.testing.assert_array_equal(a.token_ids, b.token_ids)
  np.testing.assert_allclose(a.logprobs, b.logprobs, atol=5e-5)
  assert a.finish_reason == b.finish_reason


def test_short_ones_leave_before_long_ones():
  engine = _fresh(Ends(), max_new_tokens=96)
  engine.submit([request(1, max_new_tokens=96), request(2, max_new_tokens=1)])
  found = engine.poll()
  while more := engine.poll():
    found += more
  assert [c.request_id for c in found] == ['r2', 'r1']
  engine.close()


def test_a_text_that_goes_on_is_not_prefilled_again(engine):
  """The next turn takes the last one's keys; its tokens are the same."""
  fresh = _fresh()
  first = request(1, 16 - 1, max_new_tokens=1)
  done = engine.generate([first])[0]
  turn = np.concatenate([first.prompt_ids, done.token_ids])[:16]
  again = types.Request('turn', turn, 5, types.Sampling(max_new_tokens=8))
  seated = []
  seat = engine._slots.seat
  engine._slots.seat = lambda prompts: seated.extend(seat(prompts)) or seated
  try:
    got = engine.generate([again])[0]
  finally:
    del engine._slots.seat
  assert seated[0].source is not None and seated[0].kept >= 14
  _same(got, fresh.generate([again])[0])
  fresh.close()


def test_batch_invariant_is_equal_to_the_last_bit():
  engine = _fresh(batch_invariant=True)
  requests = [request(i, 2 + i % 9) for i in range(9)]
  alone = [engine.generate([r])[0] for r in requests]
  together = engine.generate(requests)
  for a, b in zip(alone, together):
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
    np.testing.assert_array_equal(a.logprobs, b.logprobs)
  engine.close()


def _fresh(ends=Ends((1,)), **shapes):
  graphdef, params = init_decoder(CONFIG, 0)
  params = jax.tree.map(lambda a: 4 * a, params)
  shapes = {'batch_buckets': (1, 4), 'max_new_tokens': 24, **shapes}
  return NativeEngine(graphdef, params, CONFIG, Shapes((8, 16), **shapes), ends)


def _submit_and_hold(engine, requests):
  """Submits; the first round ends once a caller wants to hold the engine."""
  decode, begun = engine._decode_some, threading.Event()

  def first(*group):
    engine._decode_some = decode
    decode(*group)
    begun.set()
    while not engine._held:
      time.sleep(0.001)

  engine._decode_some = first
  engine.submit(requests)
  assert begun.wait(60)


def test_version_spans_show_new_weights_in_the_middle_of_a_request():
  """Each span's log-probs are those of its own weights, given the keys that
  the earlier ones left."""
  engine = _fresh(Ends(), max_new_tokens=40)
  old = engine._params
  new = jax.tree.map(lambda a: a * 0.9, old)
  prompt = np.arange(2, 8, dtype=np.int32)
  request = types.Request('a', prompt, 3, types.Sampling(max_new_tokens=40))
  _submit_and_hold(engine, [request])
  engine.update_weights(new, 1)
  done = engine.poll()[0]
  seam = done.version_spans[0][2]
  assert 0 < seam < 40
  assert done.version_spans == ((0, 0, seam), (1, seam, 40))
  whole = _fresh(Ends(), max_new_tokens=40)
  before = whole.generate([request])[0]
  np.testing.assert_array_equal(before.token_ids[:seam], done.token_ids[:seam])
  # By hand: old keys up to the seam, then one step at a time with the new.
  fed = np.concatenate([prompt, done.token_ids])
  at = len(prompt) + seam - 1
  rows = prompt_rows.pack([fed[:at]], [0], 64, nobody=1)
  cache = native_programs.prefill(
    engine._structure,
    native_programs.leaves(old),
    native_programs.empty_cache(CONFIG, 1, 64),
    *dataclasses.astuple(rows),
  )
  model = engine._structure.merge(native_programs.leaves(new))
  for i in range(at, at + 6):

    def attend(q, k, v, pair, i=i):
      keys = pair[0].at[0, :, :, i].set(k[0])
      values = pair[1].at[0, :, i].set(v[0])
      visible = (np.arange(64) <= i)[None, None]
      out = cached.attend_block(q[None], keys, values, visible)
      return out[0], (keys, values)

    hidden, cache = model.beside_cache(
      fed[i : i + 1], np.array([i]), cache, attend
    )
    want = jax.nn.log_softmax(hidden[0] @ model.unembed.T)[fed[i + 1]]
    got = done.logprobs[i + 1 - len(prompt)]
    np.testing.assert_allclose(got, want, atol=5e-5)
  engine.close()
  whole.close()


def test_abort_gives_what_there_is_and_frees_the_place():
  engine = _fresh(Ends(), batch_buckets=(1,), max_new_tokens=96)
  long = [
    types.Request(
      f'a{i}',
      np.arange(2, 8, dtype=np.int32),
      i,
      types.Sampling(max_new_tokens=96),
    )
    for i in range(3)
  ]
  _submit_and_hold(engine, long)
  cut = engine.abort(['nobody', 'a2', 'a0'])
  assert [c.request_id for c in cut] == ['a2', 'a0']
  assert {c.finish_reason for c in cut} == {'abort'}
  assert len(cut[0].token_ids) == 0
  begun = cut[1].token_ids
  assert 0 < len(begun) < 96
  whole = engine.poll()
  assert [c.request_id for c in whole] == ['a1'] and engine.poll() == []
  np.testing.assert_array_equal(
    engine.generate(long[:1])[0].token_ids[: len(begun)], begun
  )
  engine.close()


def test_a_breakdown_reaches_every_caller(monkeypatch):
  engine = _fresh()

  def broken(*args):
    raise RuntimeError('no memory')

  monkeypatch.setattr(native_programs, 'decode', broken)
  with pytest.raises(EngineError, match='no memory'):
    engine.generate([request(1)])
  with pytest.raises(EngineError, match='no memory'):
    engine.submit([request(2)])
  engine.close()


def test_closing_ends_who_waits():
  engine = _fresh(max_new_tokens=96)
  with engine.paused(), concurrent.futures.ThreadPoolExecutor(1) as pool:
    waiting = pool.submit(engine.generate, [request(1)])
    while not engine._waiting:
      time.sleep(0.01)
    engine.close()
    with pytest.raises(EngineError, match='closed'):
      waiting.result(10)
  with pytest.raises(EngineError, match='closed'):
    engine.generate([request(1)])


@pytest.mark.parametrize('v', [3, 64, 67, 1000])
def test_inversion_finds_the_token_whose_share_holds_u(v):
  """Against numpy in float64; entries without mass are never drawn."""
  rng = np.random.default_rng(v)
  mass = rng.random((400, v)).astype(np.float32) ** 4
  mass[rng.random((400, v)) < 0.3] = 0
  mass[:, rng.integers(v)] += 1e-3
  u = rng.random(400).astype(np.float32)
  u[:3] = 0, np.nextafter(np.float32(1), np.float32(0)), 0.5
  token, total = sampling.invert(mass, u)
  upto = np.cumsum(mass.astype(np.float64), 1)
  np.testing.assert_allclose(total, upto[:, -1], rtol=1e-5)
  rows = np.arange(400)
  assert (mass[rows, token] > 0).all()
  t, slack = u * upto[:, -1], 1e-5 * upto[:, -1]
  assert (upto[rows, token] >= t - slack).all()
  assert (upto[rows, token] - mass[rows, token] <= t + slack).all()
