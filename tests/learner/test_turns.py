"""Rows of several turns against a reference that knows turns alone."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxagent.data import batching
from jaxagent.interactions import Credit, Generate, rows
from jaxagent.learner import Learner, LearnerConfig, advantages
from jaxagent.types import Completion, Outcome, Prompt
from tests.learner.conftest import make_samples
from tests.subset import fast

CONFIG = LearnerConfig(
  policy_lr=1e-3,
  value_lr=1e-5,
  ppo_epochs=1,
  kl_coef=0.0,
  entropy_metric=False,
  row_tokens=(64,),
  micro_batch_tokens=256,
)


def interactions(n: int = 4, *, split: bool = False, seed: int = 0):
  """n interactions of 3 turns: [one call's row alone] by turn, and merged.

  split: the second turn leaves something of the first out.
  """
  rng = np.random.default_rng(seed)
  alone, merged, weights = [], [], []
  for i in range(n):
    prompt = Prompt(f'0/{i}/0', f'0/{i // 2}', None)
    shown = rng.integers(1, 64, 5).astype(np.int32)
    calls, credits = [], {}
    for number in range(3):
      ids = rng.integers(1, 64, 4 + i).astype(np.int32)
      calls.append(
        (
          Generate(number, shown),
          Completion(
            f'{i}/{number}',
            shown,
            ids,
            rng.normal(-4.2, 0.1, len(ids)).astype(np.float32),
            ((number, 0, len(ids)),),
            'stop',
          ),
        )
      )
      credits[number] = Credit(float(rng.random()), float(1 + rng.random()))
      weights.append(float(0.5 + rng.random()))
      between = rng.integers(1, 64, 3).astype(np.int32)
      start = shown[1:] if split and number == 0 else shown
      shown = np.concatenate([start, ids, between])
      (one,) = rows(prompt, calls[-1:], {number: credits[number]})
      alone.append(dataclasses.replace(one, prompt_id=f'{i}/{number}'))
    merged.extend(rows(prompt, calls, credits))
  return alone, merged, np.array(weights, np.float32)


def _flat(params) -> np.ndarray:
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


@pytest.mark.parametrize('split', fast([True, False], first=1))
@pytest.mark.parametrize('level', fast(['token', 'sequence'], first=1))
def test_gradients_equal_those_of_the_turns_alone(model_config, split, level):
  """Baseline-free returns without whitening's coupling: GRPO's place taken by
  weights alone, so that the turn is all that matters."""
  alone, merged, weights = interactions(split=split)
  assert len(merged) == (8 if split else 4)
  # The same advantage for every token of an interaction, by construction.
  found = []
  for samples in (alone, merged):
    learner = Learner(
      model_config,
      dataclasses.replace(CONFIG, estimator='dr_grpo', importance_level=level),
      seed=1,
    )
    if samples is alone:
      samples = _with_totals(alone, merged)
    metrics = learner.rl_update(samples, weights)
    found.append((metrics, _flat(learner.policy_params)))
  (a, first), (b, second) = found
  for key in ('actor/pg_loss', 'actor/grad_norm'):
    assert a[key] == pytest.approx(b[key], rel=1e-4), key
  assert np.quantile(np.abs(first - second), 0.99) < 1e-5


def _with_totals(alone, merged):
  """Each turn's row given its interaction's whole reward and its group, so
  that it is compared as the interaction is."""
  totals = {s.prompt_id: 0.0 for s in merged}
  for sample in merged:
    totals[sample.prompt_id] += sample.reward
  ids = list(totals)
  made = []
  for i, sample in enumerate(alone):
    total = totals[ids[i // 3]]
    (turn,) = sample.turns
    made.append(
      dataclasses.replace(
        sample,
        reward=total,
        turns=(dataclasses.replace(turn, reward=total),),
      )
    )
  return made


def test_returns_cross_turns_and_rows():
  for split in (False, True):
    alone, merged, _ = interactions(2, split=split)
    width = max(len(s.token_ids) for s in merged)
    tables = batching.sample_tables(merged, width)
    found = advantages.returns_to_go(
      tables['rewards'] + tables['later'], tables['mask'], 1.0
    )
    # By turn: its own reward and those after it.
    rewards = np.array([s.reward for s in alone]).reshape(2, 3)
    wanted = iter(np.cumsum(rewards[:, ::-1], 1)[:, ::-1].ravel())
    for i, sample in enumerate(merged):
      for turn in sample.steps():
        np.testing.assert_allclose(
          found[i, turn.start : turn.end], next(wanted), rtol=1e-5
        )


def test_weights_lie_on_the_tokens_of_their_turn():
  _, merged, weights = interactions(2)
  width = max(len(s.token_ids) for s in merged)
  table = batching.spread_turns(merged, weights, width)
  given = iter(weights)
  for i, sample in enumerate(merged):
    for turn in sample.steps():
      np.testing.assert_array_equal(
        table[i, turn.start : turn.end], next(given)
      )
    np.testing.assert_array_equal(
      table[i, : len(sample.token_ids)] > 0, sample.loss_mask
    )


@pytest.mark.parametrize(
  'aggregation', ['token-mean', 'seq-mean-token-sum', 'seq-mean-token-mean']
)
def test_an_interaction_counts_once_whatever_its_rows(aggregation):
  """A split changes how many rows there are, not what a token weighs."""
  totals = []
  for split in (False, True):
    _, merged, _ = interactions(split=split)
    width = max(len(s.token_ids) for s in merged)
    mask = batching.sample_tables(merged, width)['mask']
    first = advantages.first_rows(merged)
    scale = advantages.token_scale(mask, aggregation, first)
    by_turn = [
      scale[i, t.start : t.end] for i, s in enumerate(merged) for t in s.steps()
    ]
    totals.append(np.concatenate(by_turn))
  np.testing.assert_allclose(*totals, rtol=1e-6)


def test_group_baselines_are_over_interactions():
  """Two interactions of a group, one of them in two rows."""
  _, merged, _ = interactions(2, split=True)
  whole = [interactions(2)[1][0], *merged[2:]]  # one row, then two
  width = max(len(s.token_ids) for s in whole)
  tables = batching.sample_tables(whole, width)
  tables['weights'] = np.ones_like(tables['mask'])
  tables['old_logp'] = tables['behaviour_logprobs']
  groups, first = np.zeros(3, np.int32), advantages.first_rows(whole)
  assert first.tolist() == [0, 1, 1]
  out = advantages.compute(
    *advantages.pad_tables(tables, groups, first),
    np.float32(0),
    config=dataclasses.replace(CONFIG, estimator='dr_grpo'),
  )
  scores = [whole[0].reward, whole[1].reward + whole[2].reward]
  half = (scores[0] - scores[1]) / 2
  got = np.asarray(out['advantages'])[:3, :width]
  for row, wanted in zip(range(3), (half, -half, -half)):
    np.testing.assert_allclose(
      got[row][tables['mask'][row] > 0], wanted, rtol=1e-4
    )


@pytest.mark.slow
def test_a_turn_without_a_finite_reward_rejects_its_row(model_config):
  learner = Learner(model_config, CONFIG, seed=1)
  samples = make_samples(4)
  turns = samples[0].steps()
  bad = dataclasses.replace(
    samples[0], turns=(dataclasses.replace(turns[0], reward=float('nan')),)
  )
  metrics = learner.rl_update([bad, *samples[1:]], np.ones(4))
  assert metrics['learner/rejected'] == 1
  assert bad.outcome is Outcome.OK
