"""The shuffled-reward control: what is permuted, and what is left alone."""

import dataclasses
from types import SimpleNamespace

import numpy as np

from jaxagent import types
from jaxagent.recipes.ml_agent import value_warmup
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import shuffled_rewards
from tests import made

ON = SimpleNamespace(shuffle_rewards=True)
OFF = SimpleNamespace(shuffle_rewards=False)


def _samples(n: int) -> tuple[types.Sample, ...]:
  return tuple(
    types.Sample(
      prompt_id=f'p{i}',
      group_id=f'p{i}',
      prompt_ids=np.arange(3, dtype=np.int32),
      token_ids=np.arange(2, dtype=np.int32),
      loss_mask=np.ones(2, bool),
      behaviour_logprobs=np.zeros(2, np.float32),
      version=0,
      outcome=types.Outcome.OK,
      reward=float(i),
      exec_s=1.0,
    )
    for i in range(n)
  )


def test_rewards_alone_are_permuted():
  before = _samples(32)
  after = shuffled_rewards.shuffled(before, ON, (0, 1, 77))
  assert [s.prompt_id for s in after] == [s.prompt_id for s in before]
  rewards = [s.reward for s in after]
  assert sorted(rewards) == [s.reward for s in before] != rewards
  assert [
    s.reward for s in shuffled_rewards.shuffled(before, ON, (0, 1, 77))
  ] == rewards
  other = [s.reward for s in shuffled_rewards.shuffled(before, ON, (0, 2, 77))]
  assert other != rewards
  back = [
    dataclasses.replace(a, reward=b.reward) for a, b in zip(after, before)
  ]
  assert back == list(before)


def test_turns_are_permuted_and_what_follows_is_summed_anew():
  """Three interactions of two rows, the first of two turns."""
  before = []
  for sample in _samples(3):
    base = 10 * sample.reward
    turns = tuple(
      types.Turn(i, i + 1, 0, types.Outcome.OK, base + i, 1.0) for i in range(2)
    )
    before.append(dataclasses.replace(sample, turns=turns, reward=2 * base + 1))
    before.append(dataclasses.replace(sample, reward=base + 2))
  after = shuffled_rewards.shuffled(before, ON, (0, 1, 77))
  given = [t.reward for s in after for t in s.steps()]
  own = [t.reward for s in before for t in s.steps()]
  assert sorted(given) == sorted(own) and given != own
  for first, last in zip(after[::2], after[1::2]):
    assert first.reward == sum(t.reward for t in first.turns)
    assert (first.later_reward, last.later_reward) == (last.reward, 0.0)


def test_without_the_flag_the_samples_are_the_same():
  samples = _samples(4)
  assert shuffled_rewards.shuffled(samples, OFF, (0, 1, 77)) is samples


def test_the_critic_of_a_control_never_sees_an_actions_own_rewards(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(value_warmup, '_samples', lambda *_: _samples(32))
  seen = {}
  for flag in (False, True):
    rl = SimpleNamespace(
      batch_size=16, value_warmup_epochs=2, shuffle_rewards=flag
    )
    host = made.Host(
      config=SimpleNamespace(rl=rl, seed=3),
      work=tmp_path / str(flag),
      stop=StopFlag(),
    )
    batches = []

    def value_update(batch, name, batches=batches):
      batches.append([(s.prompt_id, s.reward) for s in batch])
      return {'critic/vf_loss': 0.0}

    learner = SimpleNamespace(
      value_update=value_update, end_value_warmup=lambda: None
    )
    value_warmup.run(host, learner, None, [])
    seen[flag] = batches
  own = [all(p == f'p{int(r)}' for p, r in b) for b in seen[False]]
  assert own == [True] * 4
  for plain, mixed in zip(seen[False], seen[True], strict=True):
    assert [p for p, _ in mixed] == [p for p, _ in plain]
    assert sorted(r for _, r in mixed) == sorted(r for _, r in plain)
    assert sum(p == f'p{int(r)}' for p, r in mixed) < 8


def test_value_warmup_prints_that_the_steps_do_not_fill_a_batch(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(value_warmup, '_samples', lambda *_: _samples(8))
  rl = SimpleNamespace(batch_size=32, value_warmup_epochs=2)
  host = made.Host(config=SimpleNamespace(rl=rl, seed=3), work=tmp_path)
  value_warmup.run(host, None, None, [])
  assert (
    '8 steps do not fill config.rl.batch_size=32' in capsys.readouterr().out
  )
