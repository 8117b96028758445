"""Attention to a cache against a loop over rows."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent.models import cached

ROWS, KV, GROUP, H, COLUMNS = 5, 2, 3, 8, 40


def _case(dtype=jnp.float32):
  rng = np.random.default_rng(0)

  def normal(*shape):
    return jnp.asarray(rng.normal(size=shape), dtype)

  held = np.array([1, 7, 32, 2, 33])
  # What lies beyond what is held must not count, however large.
  beyond = np.arange(COLUMNS) >= 34
  keys = jnp.where(beyond, 1e4, normal(ROWS, KV, H, COLUMNS))
  values = jnp.where(beyond[:, None], 1e4, normal(ROWS, KV, COLUMNS, H))
  return normal(ROWS, KV * GROUP, H), keys, values, held


def _by_hand(q, keys, values, held) -> np.ndarray:
  q, keys, values = (np.asarray(a, np.float64) for a in (q, keys, values))
  out = np.zeros(q.shape)
  for b, head in np.ndindex(q.shape[:2]):
    k, n = head // GROUP, held[b]
    p = np.exp(q[b, head] @ keys[b, k, :, :n] * H**-0.5)
    out[b, head] = p @ values[b, k, :n] / p.sum()
  return out


@pytest.mark.parametrize('dtype, atol', [('float32', 1e-5), ('bfloat16', 3e-2)])
def test_one_token_a_row(dtype, atol):
  q, keys, values, held = _case(jnp.dtype(dtype))
  visible = np.arange(COLUMNS) < held[:, None]
  flat = (a.reshape(-1, *a.shape[2:]) for a in (keys, values))
  out = cached.attend_one(q, *flat, visible)
  assert out.dtype == dtype
  want = _by_hand(q, keys, values, held)
  np.testing.assert_allclose(np.asarray(out, np.float64), want, atol=atol)


def test_several_tokens_a_row():
  q, keys, values, held = _case()
  several = jnp.stack([q, 2 * q], 1)
  upto = np.stack([held, held + 1], 1)  # the second sees one more
  visible = np.arange(COLUMNS) < upto[..., None]
  out = cached.attend_block(several, keys, values, visible)
  for t in range(2):
    want = _by_hand(several[:, t], keys, values, upto[:, t])
    np.testing.assert_allclose(out[:, t], want, atol=1e-5)
