"""The native engine: determinism, stops, log-probs, refusals."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import nnx

from jaxagent import types
from jaxagent.models import ModelConfig, init_decoder, token_logprobs
from jaxagent.rollout.engine import RequestError, before_stop
from jaxagent.rollout.native_engine import NativeEngine
from jaxagent.rollout.sampling import truncate

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
    eos_ids=(1,),
    prompt_buckets=(8, 16),
    batch_buckets=(1, 4),
    new_buckets=(24,),
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


def test_same_tokens_alone_and_in_a_batch(engine):
  requests = [request(i, 3 + 2 * i) for i in range(4)]
  together = engine.generate(requests)
  backwards = engine.generate(requests[::-1])[::-1]
  for r, a, b in zip(requests, together, backwards):
    alone = engine.generate([r])[0]
    np.testing.assert_array_equal(a.token_ids, alone.token_ids)
    np.testing.assert_array_equal(a.token_ids, b.token_ids)
    assert a.request_id == r.request_id and a.finish_reason in (
      'stop',
      'length',
    )
    assert a.version_spans == ((engine.version, 0, len(a.token_ids)),)


@pytest.mark.parametrize('temperature', (1.0, 0.6))
def test_logprobs_are_the_learners(engine, temperature):
  done = engine.generate([request(9, temperature=temperature)])[0]
  model = nnx.merge(engine._graphdef, engine._params)
  tokens = np.concatenate([done.prompt_ids, done.token_ids])[None]
  hidden = model(tokens, np.arange(tokens.size)[None], np.ones_like(tokens))
  logp, _ = token_logprobs(
    hidden[:, :-1], model.unembed, tokens[:, 1:], temperature=temperature
  )
  want = np.asarray(logp)[0, len(done.prompt_ids) - 1 :]
  np.testing.assert_allclose(done.logprobs, want, atol=2e-5)


def test_n_samples_share_the_prefill(engine):
  same = [request(5, seed=s) for s in range(4)]
  shared = engine.generate(same)
  for r, done in zip(same, shared):
    alone = engine.generate([r])[0]
    np.testing.assert_array_equal(done.token_ids, alone.token_ids)
  assert len({d.token_ids.tobytes() for d in shared}) > 1


def test_stop_ids_and_limits(engine):
  free = engine.generate([request(2)])[0]
  stop = int(free.token_ids[3])
  first = int(np.argmax(free.token_ids == stop))
  cut = engine.generate([request(2, stop_token_ids=(stop,))])[0]
  np.testing.assert_array_equal(cut.token_ids, free.token_ids[: first + 1])
  assert cut.finish_reason == 'stop'
  short = engine.generate([request(2, max_new_tokens=2)])[0]
  np.testing.assert_array_equal(short.token_ids, free.token_ids[:2])
  assert short.finish_reason == 'length'


def _spell(ids):
  """Two letters a token, so that stop texts fall across tokens."""
  return ''.join(chr(97 + i % 26) + chr(65 + i // 26) for i in ids)


def test_stop_texts_cut_at_the_token_that_completes_them(engine, monkeypatch):
  free = engine.generate([request(2)])[0]
  monkeypatch.setattr(engine, '_decode', _spell)
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
  model = nnx.merge(engine._graphdef, engine._params)
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
  engine.generate([request(i) for i in range(3)])
  count, programs = engine.compiles, engine._loop._cache_size()
  engine.generate([request(i, 4, temperature=0.3) for i in range(4)])
  engine.generate([request(i, 8, max_new_tokens=3) for i in range(6, 10)])
  assert engine.compiles == count
  assert engine._loop._cache_size() == programs


@pytest.mark.parametrize(
  'bad, text',
  [
    (request(0, length=17), "'r0'.*17 tokens.*16"),
    (request(0, length=0), 'empty prompt'),
    (request(0, max_new_tokens=25), 'max_new_tokens=25'),
    (request(0, temperature=-1.0), 'temperature=-1'),
    (request(0, top_p=0.9), 'for_training=False'),
    (request(0, top_k=5), 'top_k=5'),
    (types.Request('x', np.array([3, 67], np.int32), 0), 'id 67.*vocabulary'),
    (types.Request('x', np.array([-1], np.int32), 0), 'id -1'),
  ],
)
def test_bad_requests_are_refused(engine, bad, text):
  with pytest.raises(RequestError, match=text):
    engine.generate([bad])


def test_top_k_one_is_greedy_where_allowed(engine):
  cut = engine.generate([request(3, top_k=1)], for_training=False)[0]
  greedy = engine.generate([request(3, temperature=0.0)])[0]
  np.testing.assert_array_equal(cut.token_ids, greedy.token_ids)
  np.testing.assert_allclose(cut.logprobs, 0, atol=1e-6)


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
    prompt_buckets=(8,),
    batch_buckets=(500,),
    new_buckets=(1,),
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
    NativeEngine(graphdef, params, CONFIG, prompt_buckets=(999,))
  with pytest.raises(ValueError, match='outside the vocabulary'):
    NativeEngine(
      graphdef,
      params,
      CONFIG,
      eos_ids=(67,),
      prompt_buckets=(8,),
      new_buckets=(8,),
    )
