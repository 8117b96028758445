"""Our decoder against `transformers` (torch, float32), on every config."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxagent.models import (
  ModelConfig,
  cached,
  hf,
  init_decoder,
  token_logprobs,
)
from tests.models.conftest import make_config, shake

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')


def _theirs(config, folder):
  torch.set_num_threads(1)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32, attn_implementation='eager'
  )
  return model.eval()


def _rows(b=2, t=11, seed=0):
  tokens = np.random.default_rng(seed).integers(0, 101, (b, t)).astype('int32')
  positions = np.tile(np.arange(t, dtype=np.int32), (b, 1))
  return tokens, positions, np.ones((b, t), np.int32)


def test_layer_by_layer_and_logits_equal_transformers(config, tmp_path):
  graphdef, params = init_decoder(config, 0)
  params = shake(params)
  hf.save_hf(tmp_path / 'm', config, params, max_shard_bytes=20_000)
  rows = _rows()

  @jax.jit  # one program: op by op, compiling is most of the test's time
  def run(params):
    model = nnx.merge(graphdef, params)
    return model.trace(*rows), model(*rows) @ model.unembed.T

  trace, logits = run(params)
  with torch.no_grad():
    out = _theirs(config, tmp_path / 'm')(
      torch.tensor(rows[0]).long(), output_hidden_states=True
    )
  assert len(trace) == len(out.hidden_states)
  for mine, theirs in zip(trace, out.hidden_states):
    np.testing.assert_allclose(mine, theirs.numpy(), atol=1e-4, rtol=1e-4)
  np.testing.assert_allclose(logits, out.logits.numpy(), atol=1e-4, rtol=1e-4)


def test_import_of_what_transformers_saved(config, tmp_path):
  theirs = transformers.AutoModelForCausalLM.from_config(
    transformers.AutoConfig.for_model(**config.to_hf())
  ).eval()
  with torch.no_grad():
    for p in theirs.parameters():
      p.add_(0.1 * torch.randn(p.shape))
  theirs.save_pretrained(tmp_path / 'm', max_shard_size='20KB')
  got, graphdef, params = hf.load_hf(tmp_path / 'm', scan_layers=True)
  for name in ('head_dim', 'rope_theta', 'attention_bias', 'qk_norm'):
    assert getattr(got, name) == getattr(config, name)
  rows = _rows(seed=1)

  @jax.jit
  def run(params):
    model = nnx.merge(graphdef, params)
    return model(*rows) @ model.unembed.T

  logits = run(params)
  with torch.no_grad():
    want = theirs(torch.tensor(rows[0]).long()).logits.numpy()
  np.testing.assert_allclose(logits, want, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
  'family, scan',
  [
    ('qwen2', True),
    pytest.param('qwen2', False, marks=pytest.mark.slow),
    ('qwen3', False),
    pytest.param('qwen3', True, marks=pytest.mark.slow),
  ],
)
def test_cached_decode_equals_full_forward(family, scan):
  config = make_config(family, scan_layers=scan)
  graphdef, params = init_decoder(config, 0)
  model = nnx.merge(graphdef, shake(params))
  tokens, positions, segments = _rows(t=9)
  full = model(tokens, positions, segments)
  start = 4
  hidden, cache = model.prefill(
    tokens[:, :start], positions[:, :start], segments[:, :start]
  )
  np.testing.assert_allclose(hidden, full[:, :start], atol=1e-5)
  for t in range(start, 9):

    def attend(q, k, v, pair):
      k, v = (
        jnp.concatenate([old, new[:, :, None]], 2)
        for old, new in zip(pair, (k, v))
      )
      visible = jnp.ones((2, 1, k.shape[2]), bool)
      out = cached.attend_block(q[:, None], k.transpose(0, 1, 3, 2), v, visible)
      return out[:, 0], (k, v)

    step, cache = model.beside_cache(
      tokens[:, t], positions[:, t], cache, attend
    )
    np.testing.assert_allclose(step, full[:, t], atol=1e-5)


def test_packed_rows_equal_rows_alone():
  config = make_config('qwen3')
  graphdef, params = init_decoder(config, 0)
  model = nnx.merge(graphdef, shake(params))
  a, b = _rows(1, 7)[0], _rows(1, 5, seed=3)[0]
  packed = np.concatenate([a, b, np.zeros((1, 4), np.int32)], 1)
  segments = np.array([[1] * 7 + [2] * 5 + [0] * 4], np.int32)
  positions = np.array([[*range(7), *range(5), *range(4)]], np.int32)
  for kernel in ('blocks', 'mapped', 'xla'):
    other = config.replace(attention=kernel)
    m = nnx.merge(init_decoder(other, 0)[0], nnx.state(model))
    run = nnx.jit(lambda m, *rows: m(*rows))
    out = run(m, packed, positions, segments)
    assert np.isfinite(out).all()
    one = run(m, a, np.arange(7)[None], np.ones_like(a))
    two = run(m, b, np.arange(5)[None], np.ones_like(b))
    np.testing.assert_allclose(out[:, :7], one, atol=1e-5)
    np.testing.assert_allclose(out[:, 7:12], two, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
  'scan, remat',
  [
    (True, 'full'),
    *(
      pytest.param(scan, remat, marks=pytest.mark.slow)
      for scan in (False, True)
      for remat in ('none', 'full', 'dots', 'dots_no_batch', 'attention')
      if (scan, remat) != (True, 'full')
    ),
  ],
)
def test_scan_and_remat_change_no_gradient(scan, remat):
  base = make_config('qwen3')
  graphdef, params = init_decoder(base, 0)

  def loss(graphdef, params):
    model = nnx.merge(graphdef, params)
    rows = _rows()
    logp, _ = token_logprobs(
      model(*rows)[:, :-1], model.unembed, rows[0][:, 1:], chunk_rows=7
    )
    return logp.mean()

  grad_of = jax.jit(jax.value_and_grad(loss, 1), static_argnums=0)
  want, grad = grad_of(graphdef, params)
  other = base.replace(scan_layers=scan, remat=remat)
  graphdef, params = init_decoder(other, 0)
  got, grad2 = grad_of(graphdef, params)
  np.testing.assert_allclose(got, want, rtol=1e-6)
  a = sum(float((g**2).sum()) for g in jax.tree.leaves(grad))
  b = sum(float((g**2).sum()) for g in jax.tree.leaves(grad2))
  np.testing.assert_allclose(b, a, rtol=1e-5)


def test_config_survives_the_round_trip(config):
  assert ModelConfig.from_hf(config.to_hf()) == config
