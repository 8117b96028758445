"""What is written for PEFT, read and trained by PEFT itself, where it is installed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxagent.models import hf, init_decoder, lora, token_logprobs
from tests.models.conftest import make_config, shake

peft = pytest.importorskip('peft')
torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

CONFIG = make_config(
  'qwen3', lora_rank=4, lora_alpha=8.0, lora_targets=('q', 'v', 'down')
)
IDS = np.random.default_rng(0).integers(0, 101, (2, 12)).astype(np.int32)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """(graphdef, adapters, base, PEFT's model of the written folders)."""
  work = tmp_path_factory.mktemp('peft')
  plain = CONFIG.replace(lora_rank=0)
  base = shake(init_decoder(plain, 0)[1])
  hf.save_hf(work / 'base', plain, base)
  config, graphdef, params = lora.add_lora(CONFIG, base, seed=1)
  adapters, frozen = lora.split_lora(params)
  adapters = shake(adapters, 5)
  params = nnx.merge_state(adapters, frozen)
  lora.save_peft(
    work / 'adapter', config, params, str(work / 'base'), 'a digest'
  )
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    work / 'base', dtype=torch.float32
  )
  theirs = peft.PeftModel.from_pretrained(
    theirs, work / 'adapter', is_trainable=True
  ).eval()
  return graphdef, adapters, frozen, theirs


def _logp(model, ids):
  index = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
  hidden = model(ids, index, jnp.ones_like(ids))
  return token_logprobs(hidden[:, :-1], model.unembed, ids[:, 1:])[0]


def _their_logp(model, ids):
  ids = torch.tensor(ids, dtype=torch.long)
  logp = torch.log_softmax(model(ids).logits[:, :-1], -1)
  return torch.gather(logp, -1, ids[:, 1:, None])[..., 0]


def test_log_probs_are_pefts_before_and_after_merging(saved):
  graphdef, adapters, base, theirs = saved
  got = _logp(nnx.merge(graphdef, adapters, base), IDS)
  with torch.no_grad():
    want = _their_logp(theirs, IDS).numpy()
  np.testing.assert_allclose(got, want, atol=1e-5)
  params = nnx.merge_state(adapters, base)
  _, plain, merged = lora.merge_lora(CONFIG, params)
  np.testing.assert_allclose(
    _logp(nnx.merge(plain, merged), IDS), want, atol=1e-5
  )


def test_gradients_of_adapters_are_pefts(saved):
  graphdef, adapters, base, theirs = saved

  def loss(adapters):
    return _logp(nnx.merge(graphdef, adapters, base), IDS).mean()

  grads = dict(nnx.to_flat_state(jax.grad(loss)(adapters)))
  theirs.zero_grad()
  _their_logp(theirs, IDS).mean().backward()
  found = {
    name.replace('.default', ''): p.grad.numpy().T
    for name, p in theirs.named_parameters()
    if p.grad is not None
  }
  names = lora._peft_names(CONFIG)
  assert len(found) == len(names)
  for name, path, _ in names:
    np.testing.assert_allclose(
      grads[path][...], found[name], atol=1e-5, err_msg=name
    )
