"""Inclusion weights against the scheduler itself, which decides who enters.

Two arms, drawn half and half: the second is slower, some answers are malformed
and take no time, some run into their time-out. Weighted, each kind's share of
the updates has to be its share of what was begun.
"""

import types as stubs

import numpy as np
import pytest

from jaxagent.testing.fake_executor import Action
from jaxagent.training import weighting
from jaxagent.types import Outcome
from tests.rollout.test_scheduler import build, config

SAMPLES, LIMIT_S = 10_000, 7.0
MEDIAN_S = (1.0, 2.0)
MALFORMED = 0.15


def _act(rng):
  def act(work):
    arm = work.call.request.arm
    if rng.random() < MALFORMED:
      return Action(1e-3, 0.0, Outcome.INVALID_FORMAT)
    seconds = MEDIAN_S[arm] * np.exp(0.8 * rng.standard_normal())
    if seconds > LIMIT_S:
      return Action(LIMIT_S, 0.5, Outcome.TIMEOUT)
    return Action(float(seconds), 1.0)

  return act


def _shares(slots, batch, **options):
  """{kind: (unweighted, weighted share)} of what was trained."""
  scheduler_config = config(batch, **options)
  rng = np.random.default_rng(3)
  scheduler = build(scheduler_config, _act(rng), slots=slots, pool=10 * batch)
  rl = stubs.SimpleNamespace(
    weighting='inclusion',
    rest=scheduler_config.rest,
    on_stale=scheduler_config.on_stale,
  )
  kinds, weights = [], []
  for version in range(SAMPLES // batch):
    scheduler._sampler.version = version
    batch = scheduler.next_batch(version)
    scheduler.mark_trained(batch.prompt_ids, version)
    w, logged = weighting.step_weights(rl, batch.samples, batch.sojourns)
    assert w.mean() == pytest.approx(1.0, rel=1e-4)
    assert logged['duration/inclusion_positivity_failures'] >= 0
    p = weighting.inclusion_probabilities(rl, batch.samples, batch.sojourns)
    raw = 1 / np.maximum(p, 1 / 20)
    np.testing.assert_allclose(w, raw / raw.mean(), rtol=1e-3)
    if version >= 20:
      # Over all batches: the mean over a small one is a biased estimate.
      weights += raw.tolist()
      kinds += [
        (s.token_ids[0] == 1, s.outcome is Outcome.INVALID_FORMAT)
        for s in batch.samples
      ]
  kinds, weights = np.array(kinds, float), np.array(weights)
  plain, weighted = kinds.mean(0), weights @ kinds / weights.sum()
  return {
    'slow': (plain[0], weighted[0]),
    'malformed': (plain[1], weighted[1]),
  }


# Small updates: the more there are in a race, the less a slow one can win, and
# what never enters no weight brings back.
@pytest.mark.slow
@pytest.mark.parametrize(
  'slots, batch, options',
  [
    (5, 4, dict(rest='cancel', oversample=1.25)),
    (10, 8, dict(rest='cancel', oversample=1.25, group_size=2)),
    (16, 32, dict(max_staleness=1, on_stale='drop')),
  ],
)
def test_what_was_begun_is_what_counts(slots, batch, options):
  shares = _shares(slots, batch, **options)
  for kind, truth in (('slow', 0.5), ('malformed', MALFORMED)):
    plain, weighted = shares[kind]
    assert abs(plain - truth) > 0.01, (kind, plain)  # there is a bias
    assert abs(weighted - truth) < 0.4 * abs(plain - truth), (kind, shares)


@pytest.mark.parametrize(
  'slots, options',
  [
    (32, dict(rest='wait')),
    pytest.param(64, dict(max_staleness=None), marks=pytest.mark.slow),
    pytest.param(64, dict(max_staleness=2), marks=pytest.mark.slow),
  ],
)
def test_where_nothing_is_lost_there_is_nothing_to_weigh(slots, options):
  for kind, truth in (('slow', 0.5), ('malformed', MALFORMED)):
    plain, weighted = _shares(slots, 32, **options)[kind]
    assert weighted == pytest.approx(plain)
    assert plain == pytest.approx(truth, abs=0.015)
