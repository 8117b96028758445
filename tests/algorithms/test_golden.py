"""Every reference value in tests/golden/rl_formulas.json, with gradients."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import algorithms as alg
from tests.subset import fast

_PATH = pathlib.Path(__file__).parents[1] / 'golden' / 'rl_formulas.json'
_DATA = json.loads(_PATH.read_text())
_CASES = _DATA['cases']
_PRECISIONS = {
  'float64': (jnp.float64, 1e-6, 1e-9),
  'float32': (jnp.float32, 1e-4, 2e-6),
}


@contextlib.contextmanager
def _x64(enabled):
  before = jax.config.jax_enable_x64
  jax.config.update('jax_enable_x64', enabled)
  try:
    yield
  finally:
    jax.config.update('jax_enable_x64', before)


@pytest.fixture(params=sorted(_PRECISIONS))
def precision(request):
  dtype, rtol, atol = _PRECISIONS[request.param]
  with _x64(request.param == 'float64'):
    yield dtype, rtol, atol


def _close(actual, expected, precision):
  dtype, rtol, atol = precision
  assert jnp.asarray(actual).dtype == dtype
  np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def _inputs(case, dtype):
  out = {k: jnp.asarray(v, dtype) for k, v in case['inputs'].items()}
  out['group'] = jnp.asarray(case['inputs']['group'])
  return out


def _on_tokens(per_row, mask):
  return jnp.where(mask > 0, per_row[:, None], 0.0)


@pytest.mark.parametrize('case', fast(_CASES, first=1), ids=range(len(_CASES)))
def test_advantages(case, precision):
  x = _inputs(case, precision[0])
  for key in [k for k in case['expected'] if k.startswith('gae ')]:
    gamma, lam = (float(v) for v in re.findall(r'=([\d.]+)', key))
    want = case['expected'][key]
    a, r = alg.gae(x['rewards'], x['values'], x['mask'], gamma, lam)
    _close(a, want['advantages'], precision)
    _close(r, want['returns'], precision)
    _close(alg.whiten(a, x['mask']), want['advantages_whitened'], precision)
  scores = jnp.sum(x['rewards'], 1)
  for std in (True, False):
    got = alg.group_relative_advantages(scores, x['group'], normalize_std=std)
    got = _on_tokens(got, x['mask'])
    _close(got, case['expected'][f'grpo std={std}'], precision)
  got = alg.leave_one_out_advantages(scores, x['group'])
  got = _on_tokens(got, x['mask'])
  _close(got, case['expected']['rloo'], precision)


@pytest.mark.parametrize('case', _CASES, ids=range(len(_CASES)))
def test_kl_and_aggregation(case, precision):
  x = _inputs(case, precision[0])
  for kind in alg.KL_KINDS:
    got = alg.kl_estimate(x['logp'], x['ref_logp'], kind)
    _close(got, case['expected'][f'kl {kind}'], precision)
  for mode in alg.AGGREGATIONS[:3]:
    got = alg.aggregate(x['advantages'], x['mask'], mode)
    _close(got, case['expected'][f'agg {mode}'], precision)


@pytest.mark.parametrize('case', fast(_CASES, first=1), ids=range(len(_CASES)))
def test_policy_loss(case, precision):
  x = _inputs(case, precision[0])
  keys = [k for k in case['expected'] if k.startswith('policy ')]
  assert len(keys) == 12
  for key in keys:
    mode, low, high, dual, weighted = re.fullmatch(
      r'policy (\S+) clip=\((.+),(.+)\) dual=(\S+) is=(\w+)', key
    ).groups()
    weights = x['is_weights'] if weighted == 'yes' else None

    def loss_fn(logp, mode=mode, low=low, high=high, dual=dual, w=weights):
      return alg.policy_loss(
        logp,
        x['old_logp'],
        x['advantages'],
        x['mask'],
        alg.Clips(float(low), float(high), float(dual)),
        alg.Aggregation(mode),
        w,
      )

    (loss, metrics), grad = jax.value_and_grad(loss_fn, has_aux=True)(x['logp'])
    want = case['expected'][key]
    _close(loss, want['loss'], precision)
    _close(grad, want['grad_logp'], precision)
    _close(metrics['actor/pg_clipfrac'], want['clipfrac'], precision)
    _close(metrics['actor/ppo_kl'], want['kl'], precision)
    _close(
      metrics['actor/pg_clipfrac_lower'], want['clipfrac_lower'], precision
    )


@pytest.mark.parametrize('case', _CASES, ids=range(len(_CASES)))
def test_value_loss(case, precision):
  x = _inputs(case, precision[0])
  for mode in alg.AGGREGATIONS[:3]:
    want = case['expected'][f'value {mode} clip=0.5']

    def loss_fn(values, mode=mode):
      return alg.value_loss(
        values,
        x['values'],
        x['returns'],
        x['mask'],
        clip=0.5,
        aggregation=alg.Aggregation(mode),
      )

    (loss, metrics), grad = jax.value_and_grad(loss_fn, has_aux=True)(
      x['value_preds']
    )
    _close(loss, want['loss'], precision)
    _close(grad, want['grad'], precision)
    _close(metrics['critic/vf_clipfrac'], want['clipfrac'], precision)


def test_adaptive_kl():
  want = _DATA['adaptive_kl']
  controller = alg.AdaptiveKL(want['init'], want['target'], want['horizon'])
  for observed, coefficient in zip(want['observed'], want['coef']):
    got = controller.update(observed, want['n_steps'])
    assert got == pytest.approx(coefficient, rel=1e-12)
