"""Identities that hold for any input, and what bad input does."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import algorithms as alg


@pytest.fixture
def rng():
  return np.random.default_rng(7)


MEAN = alg.Aggregation('token-mean')


def _batch(rng, b=4, t=9):
  mask = (rng.random((b, t)) < 0.8).astype(np.float32)
  mask[:, 0] = 1
  fields = ('logp', 'old', 'adv', 'values', 'rewards')
  batch = {k: rng.normal(size=(b, t)).astype(np.float32) for k in fields}
  batch['logp'] = batch['old'] + 0.2 * batch['logp']
  batch['rewards'] *= mask
  return dict(batch, mask=mask)


def _policy(logp, batch, mode, **aggregation):
  return alg.policy_loss(
    logp,
    batch['old'],
    batch['adv'],
    batch['mask'],
    alg.Clips(0.2, 0.28, dual_clip=3.0),
    alg.Aggregation(mode, **aggregation),
  )


def test_observation_tokens_change_no_advantage_of_a_model_token(rng):
  b = _batch(rng)
  b['mask'][:] = 1
  a, r = alg.gae(b['rewards'], b['values'], b['mask'], 0.99, 0.95)
  at = [0, 3, 3, 7]  # observations go in before these tokens
  ins = lambda x, v: np.insert(x, at, v, axis=1)  # noqa: E731
  mask = ins(b['mask'], 0)
  a2, r2 = alg.gae(
    ins(b['rewards'], 0), ins(b['values'], 123.0), mask, 0.99, 0.95
  )
  rows, width = b['mask'].shape
  np.testing.assert_allclose(np.asarray(a2)[mask > 0].reshape(rows, width), a)
  np.testing.assert_allclose(np.asarray(r2)[mask > 0].reshape(rows, width), r)
  w, w2 = alg.whiten(a, b['mask']), alg.whiten(a2, mask)
  np.testing.assert_allclose(
    np.asarray(w2)[mask > 0].reshape(rows, width), w, rtol=1e-4, atol=1e-6
  )


@pytest.mark.parametrize('mode', alg.AGGREGATIONS)
def test_gradient_does_not_depend_on_the_micro_batch_split(rng, mode):
  b = _batch(rng)
  b['mask'][2] = 0  # an empty row must not count
  grad = jax.grad(lambda x, bb, **k: _policy(x, bb, mode, **k)[0])
  whole = grad(b['logp'], b)
  total = alg.aggregation_denominator(b['mask'], mode)
  for cut in (1, 3):
    parts = []
    for rows in (slice(0, cut), slice(cut, 4)):
      part = {k: v[rows] for k, v in b.items()}
      parts.append(grad(part['logp'], part, denominator=total))
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-7)


@pytest.mark.parametrize('mode', alg.AGGREGATIONS)
def test_gradient_does_not_depend_on_packing(rng, mode):
  b = _batch(rng)
  pack = lambda x: x.reshape(2, -1)  # noqa: E731 two samples a row
  packed = {k: pack(v) for k, v in b.items()}
  segments = pack(np.arange(4)[:, None] % 2 + np.ones((4, 9), np.int32))
  length = {'norm_length': 9.0}
  grad = jax.grad(lambda x, bb, **k: _policy(x, bb, mode, **k)[0])
  one = grad(b['logp'], b, **length)
  two = grad(packed['logp'], packed, segment_ids=segments, **length)
  np.testing.assert_allclose(two.reshape(4, 9), one, atol=1e-7)
  a, r = alg.gae(b['rewards'], b['values'], b['mask'], 0.99, 0.95)
  args = (packed['rewards'], packed['values'], packed['mask'], 0.99, 0.95)
  a2, r2 = alg.gae(*args, segment_ids=segments)
  keep = b['mask'] > 0
  np.testing.assert_allclose(np.reshape(a2, (4, 9))[keep], a[keep], rtol=1e-5)
  np.testing.assert_allclose(np.reshape(r2, (4, 9))[keep], r[keep], rtol=1e-5)
  is_args = dict(level='sequence', cap=2.0)
  w = alg.importance_weights(b['logp'], b['old'], b['mask'], **is_args)
  w2 = alg.importance_weights(
    packed['logp'],
    packed['old'],
    packed['mask'],
    segment_ids=segments,
    **is_args,
  )
  np.testing.assert_allclose(np.reshape(w2, (4, 9)), w, rtol=1e-5)


def test_what_is_masked_out_never_matters_not_even_nan(rng):
  b = _batch(rng)
  dirty = {k: v.copy() for k, v in b.items()}
  off = b['mask'] == 0
  for name, value in (
    ('logp', np.nan),
    ('old', -np.inf),
    ('adv', np.nan),
    ('values', np.inf),
    ('rewards', np.nan),
  ):
    dirty[name][off] = value
  for mode in alg.AGGREGATIONS:
    grad = jax.grad(lambda x, bb, m=mode: _policy(x, bb, m)[0])
    np.testing.assert_array_equal(
      grad(dirty['logp'], dirty), grad(b['logp'], b)
    )
  a = alg.gae(dirty['rewards'], dirty['values'], dirty['mask'], 0.9, 0.9)[0]
  clean = alg.gae(b['rewards'], b['values'], b['mask'], 0.9, 0.9)[0]
  np.testing.assert_array_equal(a, clean)
  assert np.isfinite(alg.whiten(dirty['adv'], b['mask'])).all()
  for level in alg.IMPORTANCE_LEVELS:
    w = alg.importance_weights(
      dirty['logp'], dirty['old'], b['mask'], level=level, cap=2.0
    )
    assert np.isfinite(w).all() and (np.asarray(w)[off] == 0).all()
    assert float(jnp.max(w)) <= 2.0


def test_an_empty_mask_gives_zero(rng):
  b = _batch(rng)
  b['mask'][:] = 0
  for mode in alg.AGGREGATIONS:
    (loss, metrics), grad = jax.value_and_grad(
      lambda x, m=mode: _policy(x, b, m), has_aux=True
    )(b['logp'])
    assert loss == 0 and not np.asarray(grad).any()
    assert all(np.isfinite(v) for v in metrics.values())
  assert np.isfinite(alg.whiten(b['adv'], b['mask'])).all()


def test_small_groups_and_failures_get_zero():
  scores = np.array([5.0, 1.0, 2.0, np.nan, 7.0, 9.0], np.float32)
  groups = ['a', 'b', 'b', 'b', 'c', 'c']
  valid = np.array([1, 1, 1, 0, 1, 0], bool)
  for estimator in (
    alg.group_relative_advantages,
    functools.partial(alg.group_relative_advantages, normalize_std=False),
    alg.leave_one_out_advantages,
  ):
    got = np.asarray(estimator(scores, groups, valid=valid))
    assert (got[[0, 3, 4, 5]] == 0).all()
    assert got[1] < 0 < got[2] and got[1] == -got[2]
  same = alg.group_relative_advantages(np.full(4, 0.3, np.float32), [0] * 4)
  np.testing.assert_allclose(same, 0, atol=1e-6)
  gradless = jax.grad(
    lambda s: jnp.sum(alg.group_relative_advantages(s, jnp.zeros(4, int)))
  )
  assert gradless(jnp.ones(4)).shape == (4,)


def test_equal_durations_change_nothing_and_the_unit_does_not_matter(rng):
  same = alg.duration_weights(np.full(4, 0.37, np.float32))
  np.testing.assert_array_equal(same, np.ones(4))
  d = rng.lognormal(size=4).astype(np.float32)
  w = alg.duration_weights(d)
  assert float(jnp.mean(w)) == pytest.approx(1.0, abs=1e-6)
  for unit in (1e-3, 1000.0, 3.6e6):
    np.testing.assert_allclose(alg.duration_weights(d * unit), w, rtol=1e-5)
  np.testing.assert_allclose(w, d / d.mean(), rtol=1e-6)
  jitted = jax.jit(alg.duration_weights)
  np.testing.assert_allclose(jitted(d), w, rtol=1e-6)
  assert np.isfinite(jitted(np.array([1.0, np.nan, -1.0, 0.0]))).all()


def test_steps_of_one_trajectory_are_weighted_apart():
  durations = np.array([[1.0, 3.0], [8.0, 1.0]], np.float32)
  valid = np.array([[1, 1], [1, 0]], bool)  # mean of 1, 3, 8 is 4
  got = alg.duration_weights(durations, valid=valid)
  np.testing.assert_allclose(got, [[0.25, 0.75], [2, 0]], rtol=1e-6)


def test_capped_weights_by_hand():
  w = np.array([0.25, 0.25, 0.5, 3.0], np.float32)
  # Cut at 2 the sum is 3: everything over 0.75.
  want = [1 / 3, 1 / 3, 2 / 3, 8 / 3]
  np.testing.assert_allclose(alg.capped_weights(w, 2), want, rtol=1e-6)
  # Of the valid ones 0.25, 0.5 and 2 remain; their mean is 11 / 12.
  valid = np.array([1, 0, 1, 1], bool)
  got = alg.capped_weights(w, 2, valid)
  np.testing.assert_allclose(got, [3 / 11, 0, 6 / 11, 24 / 11], rtol=1e-6)
  # Steps of trajectories: one mean over [B, K].
  got = alg.capped_weights(w.reshape(2, 2), 2.0)
  np.testing.assert_allclose(got, np.reshape(want, (2, 2)), rtol=1e-6)


def test_capped_weights_keep_mean_order_and_the_small_ones_ratios(rng):
  w = np.asarray(alg.duration_weights(rng.lognormal(0, 2, 64)))
  for cap in (1, 1.5, 3):
    got = np.asarray(alg.capped_weights(w, cap))
    assert got.mean() == pytest.approx(1.0, abs=1e-5)
    below = w < cap
    assert 0 < below.sum() < 64
    np.testing.assert_allclose(
      got[below] / w[below], got.max() / cap, rtol=1e-5
    )
    np.testing.assert_allclose(got[~below], got.max(), rtol=1e-6)
    assert got.max() < w.max()
    jitted = jax.jit(lambda x, c=cap: alg.capped_weights(x, c))(w)
    np.testing.assert_allclose(jitted, got, rtol=1e-6)
  np.testing.assert_array_equal(alg.capped_weights(w, 0), w)
  np.testing.assert_allclose(alg.capped_weights(w, 1e9), w, rtol=1e-5)


def test_a_cap_leaves_equal_weights_and_invalid_entries_alone():
  for value in (1.0, 0.1, 7.0):
    same = alg.capped_weights(np.full(7, value, np.float32), 3)
    np.testing.assert_array_equal(same, np.ones(7))
  valid = np.array([True, True, False, False])
  w = np.array([0.5, 1.5, np.nan, 50.0], np.float32)
  for cap in (0, 3):
    got = jax.jit(lambda x, v, c=cap: alg.capped_weights(x, c, v))(w, valid)
    np.testing.assert_allclose(got, [0.5, 1.5, 0, 0], rtol=1e-6)
  none = alg.capped_weights(w, 3, np.zeros(4, bool))
  np.testing.assert_array_equal(none, np.zeros(4))


def test_inclusion_weights_are_one_where_all_are_kept(rng):
  d = rng.lognormal(size=8).astype(np.float32)
  w, _ = _inclusion_weights(d, 8, 8, d)
  np.testing.assert_array_equal(w, np.ones(8))


def _inclusion_weights(d, kept, started, reference, finished=None, cap=20.0):
  """Weights of durations d and metrics, F estimated from `reference`."""
  atoms, masses = alg.kaplan_meier(reference, finished)
  p = alg.inclusion_probabilities(d, kept, started, atoms, masses)
  return alg.inverse_probability_weights(p, cap=cap)


def _kept_share(rng, started, kept, updates, weighted):
  """Weighted share of 20 s actions, of which the policy draws half."""
  shares, raw = [], []
  finished = np.arange(started) < kept

  @jax.jit
  def weigh(d):  # those cancelled are known to exceed the longest kept
    seen = jnp.pad(d, (0, started - kept), constant_values=jnp.max(d))
    return _inclusion_weights(d, kept, started, seen, finished)[0]

  for _ in range(updates):
    drawn = np.where(rng.random(started) < 0.5, 1.0, 20.0)
    first = np.sort(drawn)[:kept].astype(np.float32)
    w = np.asarray(weigh(first)) if weighted else np.ones(kept)
    shares.append(np.mean(w * (first > 5)))
    raw.append(np.mean(first > 5))
  return np.mean(shares), np.std(shares) / updates**0.5, np.mean(raw)


@pytest.mark.parametrize(('m', 'enters'), [(1.25, 0.375), (1.5, 0.25)])
def test_inclusion_weights_undo_first_n_of_m(rng, m, enters):
  share, error, raw = _kept_share(rng, int(64 * m), 64, 150, True)
  assert raw == pytest.approx(enters, abs=0.02)
  assert abs(share - 0.5) < 4 * error + 0.01


def test_inclusion_probability_is_the_binomial_tail():
  from scipy.stats import binom

  atoms = np.array([1.0, 20.0])
  masses = np.array([0.5, 0.5])
  got = alg.inclusion_probabilities(atoms, 6, 9, atoms, masses)
  fast = sum(  # exact, ties broken at random
    binom.pmf(k, 8, 0.5) * min(1.0, 6 / (k + 1)) for k in range(9)
  )
  slow = sum(binom.pmf(k, 8, 0.5) * max(0, 6 - k) / (9 - k) for k in range(9))
  np.testing.assert_allclose(got, [fast, slow], rtol=2e-5)
  expected_kept = 9 * float(jnp.sum(got * masses))
  assert expected_kept == pytest.approx(6, rel=1e-5)


def test_inclusion_positivity_failures_are_counted():
  d = np.concatenate([np.full(7, 1.0), [50.0]]).astype(np.float32)
  history = np.concatenate([np.full(990, 1.0), np.full(10, 50.0)])
  w, metrics = _inclusion_weights(d, 8, 16, history.astype(np.float32), cap=5.0)
  assert metrics['duration/inclusion_positivity_failures'] == 1
  assert float(jnp.mean(w)) == pytest.approx(1.0, abs=1e-5)
  assert float(w[-1] / w[0]) <= 5.0 + 1e-4


def test_kaplan_meier_with_censoring():
  d = np.array([3.0, 1.0, 2.0, 2.0], np.float32)
  finished = np.array([True, True, True, False])
  atoms, masses = alg.kaplan_meier(d, finished)
  np.testing.assert_array_equal(atoms, [1, 2, 2, 3])
  np.testing.assert_allclose(masses, [0.25, 0.25, 0, 0.5], atol=1e-6)


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda x: alg.aggregate(x, x, 'mean'), 'aggregation .mean.*token-mean'),
    (lambda x: alg.Aggregation('mean'), 'aggregation .mean.*token-mean'),
    (lambda x: alg.kl_estimate(x, x, 'k4'), 'KL estimator .k4'),
    (
      lambda x: alg.importance_weights(x, x, x, level='word', cap=2),
      'level .word',
    ),
    (
      lambda x: alg.importance_weights(x, x, x, level='token', cap=0),
      'cap=0',
    ),
    (lambda x: alg.duration_weights([1.0, 0.0]), r'durations_s\[1\]=0.0'),
    (lambda x: alg.duration_weights([1.0, np.nan]), 'finite'),
    (lambda x: alg.capped_weights(x[0], 0.5), r'cap=0.5 must be 0 \(no cap'),
    (lambda x: alg.capped_weights(x[0], -1), 'cap=-1 must be'),
    (lambda x: alg.capped_weights(x[0], np.nan), 'cap=nan must be'),
    (lambda x: alg.AdaptiveKL(0.1, 0.0, 10), 'target=0.0'),
    (
      lambda x: alg.value_loss(x, x, x, x, clip=0, aggregation=MEAN),
      'clip=0',
    ),
    (
      lambda x: alg.policy_loss(x, x, x, x, alg.Clips(1.5, 1), MEAN),
      'clip_low=1.5',
    ),
  ],
)
def test_errors_name_value_and_choices(call, message):
  with pytest.raises(ValueError, match=message):
    call(np.ones((2, 5), np.float32))


def test_everything_runs_under_jit(rng):
  b = {k: jnp.asarray(v) for k, v in _batch(rng).items()}

  @jax.jit
  def update(b):
    a, returns = alg.gae(b['rewards'], b['values'], b['mask'], 1.0, 0.95)
    a = alg.whiten(a, b['mask'])
    a = a * alg.duration_weights(jnp.arange(1.0, 5.0))[:, None]
    w = alg.importance_weights(
      b['old'], b['logp'], b['mask'], level='token', cap=2.0
    )
    loss, _ = _policy(b['logp'], dict(b, adv=a), 'token-mean')
    extra, _ = alg.value_loss(
      b['values'],
      b['values'],
      returns,
      b['mask'],
      clip=0.2,
      aggregation=MEAN,
    )
    kl = alg.aggregate(
      alg.kl_estimate(b['logp'], b['old'], 'k3'),
      b['mask'],
      'seq-mean-token-mean',
    )
    group = alg.group_relative_advantages(w.sum(1), jnp.array([0, 0, 1, 1]))
    d = jnp.arange(1.0, 5.0)
    inclusion, _ = _inclusion_weights(d, 4, 6, jnp.append(d, d[-2:]))
    return loss + extra + kl, group, inclusion

  for part in jax.tree.leaves(update(b)):
    assert np.isfinite(part).all()
