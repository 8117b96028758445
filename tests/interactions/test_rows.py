"""Rows hold each sampled token once, after exactly what the policy was shown."""

import numpy as np
import pytest

from jaxagent.interactions import Credit, Generate, rows
from jaxagent.types import Completion, Outcome, Prompt

PROMPT = Prompt('0/3/1', '0/3', None)


def drawn(number, shown, ids, version=0):
  ids = np.asarray(ids, np.int32)
  completion = Completion(
    str(number),
    np.asarray(shown, np.int32),
    ids,
    -0.1 * ids.astype(np.float32),
    ((version, 0, len(ids)),),
    'stop',
  )
  return Generate(number, np.asarray(shown, np.int32)), completion


def test_one_turn():
  made = rows(
    PROMPT, [drawn(0, [1, 2], [5, 6], 7)], {0: Credit(0.5, 3.0, Outcome.OOM)}
  )
  (sample,) = made
  assert sample.prompt_id == '0/3/1' and sample.group_id == '0/3'
  assert sample.prompt_ids.tolist() == [1, 2]
  assert sample.token_ids.tolist() == [5, 6] and sample.loss_mask.all()
  assert (sample.reward, sample.exec_s, sample.version) == (0.5, 3.0, 7)
  assert sample.outcome is Outcome.OOM and sample.later_reward == 0
  (turn,) = sample.steps()
  assert (turn.start, turn.end, turn.finish_reason) == (0, 2, 'stop')


def test_a_turn_that_extends_the_one_before_goes_on_with_its_row():
  (sample,) = rows(
    PROMPT,
    [drawn(0, [1, 2], [5, 6], 3), drawn(2, [1, 2, 5, 6, 8, 8], [7], 2)],
    {0: Credit(1.0, 2.0), 2: Credit(2.0, 5.0)},
  )
  assert sample.token_ids.tolist() == [5, 6, 8, 8, 7]
  assert sample.loss_mask.tolist() == [True, True, False, False, True]
  assert [(t.start, t.end) for t in sample.turns] == [(0, 2), (4, 5)]
  assert [t.version for t in sample.turns] == [3, 2] and sample.version == 2
  assert sample.reward == 3.0 and sample.exec_s == 7.0


def test_a_prompt_that_leaves_something_out_begins_a_row():
  first, second, third = rows(
    PROMPT,
    [
      drawn(0, [1, 2], [5, 6]),
      drawn(2, [1, 2, 6, 8], [7]),
      drawn(4, [1, 9], [3]),
    ],
    {0: Credit(1.0, 1), 2: Credit(2.0, 1), 4: Credit(4.0, 1)},
  )
  assert second.prompt_ids.tolist() == [1, 2, 6, 8]
  assert [r.later_reward for r in (first, second, third)] == [6.0, 4.0, 0.0]


def test_a_fork_trains_what_it_shares_once():
  first, fork = rows(
    PROMPT,
    [
      drawn(0, [1], [5]),
      drawn(1, [1, 5, 8], [6]),
      drawn(2, [1, 5, 9], [7]),
    ],
    {i: Credit(1.0, 1) for i in range(3)},
  )
  assert first.token_ids.tolist() == [5, 8, 6]
  assert fork.prompt_ids.tolist() == [1, 5, 9]
  assert fork.token_ids.tolist() == [7]


def test_what_has_no_reward_is_observation():
  (sample,) = rows(
    PROMPT,
    [drawn(0, [1], [5]), drawn(1, [1, 5], [6])],
    {0: Credit(None, 1), 1: Credit(1.0, 1)},
  )
  assert sample.loss_mask.tolist() == [False, True]
  assert len(sample.turns) == 1
  assert rows(PROMPT, [drawn(0, [1], [5])], {0: Credit(None, 1)}) == ()


@pytest.mark.parametrize('seed', range(200))
def test_any_tree_of_calls(seed):
  """Prompts go on from anything said before, or from anything else."""
  rng = np.random.default_rng(seed)
  said, calls, credits = [np.array([1])], [], {}
  for number in range(rng.integers(1, 15)):
    base = said[rng.integers(len(said))]
    if rng.random() < 0.2:
      base = base[: max(1, len(base) - 1)]
    shown = np.concatenate([base, rng.integers(2, 4, rng.integers(0, 3))])
    # Ids of each call are its own, so that rows can be read back.
    ids = 100 * (number + 1) + np.arange(rng.integers(0, 4))
    calls.append(drawn(number, shown, ids, int(rng.integers(9))))
    said.append(np.concatenate([shown, ids]))
    reward = None if rng.random() < 0.2 else float(rng.integers(1, 9))
    credits[number] = Credit(reward, float(1 + rng.random()))
  made = rows(PROMPT, calls, credits)
  trained = []
  for sample in made:
    whole = np.concatenate([sample.prompt_ids, sample.token_ids])
    covered = np.zeros(len(sample.token_ids), bool)
    for turn in sample.steps():
      ids = sample.token_ids[turn.start : turn.end]
      number = int(ids[0]) // 100 - 1
      call, completion = calls[number]
      before = whole[: len(sample.prompt_ids) + turn.start]
      assert np.array_equal(before, call.prompt)
      assert np.array_equal(ids, completion.token_ids)
      logprobs = sample.behaviour_logprobs[turn.start : turn.end]
      assert np.array_equal(logprobs, completion.logprobs)
      assert turn.version == completion.version
      assert turn.reward == credits[number].reward
      assert turn.exec_s == credits[number].exec_s
      covered[turn.start : turn.end] = True
      trained.append(number)
    assert np.array_equal(covered, sample.loss_mask)
    assert sample.version == min(t.version for t in sample.turns)
  wanted = [
    c.call
    for c, completion in calls
    if len(completion.token_ids) and credits[c.call].reward is not None
  ]
  assert sorted(trained) == wanted
  total = sum(credits[n].reward for n in wanted)
  if made:
    assert made[0].reward + made[0].later_reward == pytest.approx(total)
