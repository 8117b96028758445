"""The pool: split by run, with noise, kept on disk."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from jaxagent.interactions import Execute, RolloutState
from jaxagent.recipes.ideator import collect, pool
from jaxagent.recipes.ideator.interaction import Ideas, Run
from jaxagent.recipes.ideator.parser import write_idea
from jaxagent.types import Outcome
from tests.recipes.ideator.test_interaction import (
  HELP,
  IDEA,
  begun,
  executed,
  pooled,
  program,
  runs,
  said,
  state,
  taken,
)

IDEAS = Ideas(lambda one: np.ones(1, np.int32), str)


def items(*sizes: int, task: str = 't') -> list:
  """States of runs with so many states each."""
  return [
    dataclasses.replace(
      pooled(),
      key=f'{task}/{run}/{n}',
      run=f'{task}/{run}',
      state=dataclasses.replace(pooled().state, task=task),
    )
    for run, size in enumerate(sizes)
    for n in range(size)
  ]


def test_the_states_of_a_run_are_those_that_got_an_answer():
  walk = taken(
    begun(runs()),
    said(program('a')),
    executed('a', 0.5),
    said(HELP),
    said(write_idea(IDEA)),
    said(program('b')),
    executed('b', 0.4),
    said(HELP),
    said('no idea'),
    said(HELP),  # the third of two: no Ideator sees it
  )
  assert isinstance(walk.state.run, Run)
  found = pool.states_of('run-0', walk.state.asked)
  assert [item.key for item in found] == ['run-0/0', 'run-0/1']
  assert [item.state.best.score for item in found] == [0.5, 0.4]
  assert [len(item.state.steps) for item in found] == [2, 4]
  assert all(item.state.asks for item in found)


@pytest.mark.parametrize('seed', range(20))
def test_no_run_is_in_both_splits(seed):
  every = items(3, 1, 2, 2, 3, 1, 2, 4, 1, 1) + items(2, 2, 2, 2, task='u')
  made = pool.split(every, train_per_task=4, valid_per_task=2, seed=seed)
  for task in ('t', 'u'):
    train = [i for i in made.train if i.state.task == task]
    valid = [i for i in made.valid if i.state.task == task]
    assert (len(train), len(valid)) == (4, 2)
    assert not {i.run for i in train} & {i.run for i in valid}


def test_a_split_depends_on_seed_and_content_alone():
  every = items(*[2] * 12)
  made = [
    pool.split(given, train_per_task=8, valid_per_task=4, seed=seed)
    for given, seed in ((every, 0), (every[::-1], 0), (every, 1))
  ]
  assert made[0] == made[1] != made[2]


def test_too_few_states_name_the_task_and_what_there_is():
  with pytest.raises(
    pool.PoolError, match=r'task t: 2 states .* and 4 to train'
  ):
    pool.split(items(2, 2, 2), train_per_task=5, valid_per_task=2, seed=0)


def test_a_run_in_both_splits_is_refused_by_its_name():
  one, two = items(2)
  with pytest.raises(pool.PoolError, match='run t/0 is in both'):
    pool.Pool((one,), (two,))
  with pytest.raises(pool.PoolError, match='t/0/0 is in the pool twice'):
    pool.Pool((one, one), ())


def test_the_present_program_is_run_again():
  walk = RolloutState(pool.Remeasured(IDEAS, times=2), pooled(), roles=())
  for number, score in enumerate((0.5, 0.52)):
    ((call, opened),) = walk.open.items()
    assert isinstance(opened, Execute) and call == number
    assert opened.request.turn.code == 'x = 1'
    walk.take(call, executed('x = 1', score))
  assert walk.finished and walk.state == (0.5, 0.52) and walk.credits == {}
  assert RolloutState(pool.Remeasured(IDEAS), pooled(None), roles=()).finished
  with pytest.raises(ValueError, match='1 or more'):
    pool.Remeasured(IDEAS, times=0)


def test_a_failed_rerun_has_no_score():
  walk = RolloutState(pool.Remeasured(IDEAS), pooled(), roles=())
  walk.take(0, executed('x = 1', None, Outcome.SCRIPT_ERROR))
  assert walk.state == (None,)


def test_noise_is_the_spread_and_what_does_not_come_back_is_left_out():
  noisy = pool.with_noise(pooled(), 0.5, (0.5, 0.53, 0.49))
  assert noisy.noise == pytest.approx(0.04)
  assert pool.with_noise(pooled(), 0.5, (0.5,)).noise == 0.0
  assert pool.with_noise(pooled(), 0.5, (0.5, None)) is None
  assert pool.with_noise(pooled(), 0.5, (float('nan'),)) is None
  assert pool.with_noise(pooled(None), None, ()) == pooled(None)


def test_a_pool_is_read_as_it_was_written(tmp_path):
  made = pool.split(items(*[2] * 6), train_per_task=4, valid_per_task=2, seed=0)
  pool.write(tmp_path / 'a' / 'pool.jsonl', made)
  assert pool.read(tmp_path / 'a' / 'pool.jsonl') == made


@pytest.mark.parametrize(
  'line', ['', '{', '{}', '[]', '{"split": "test"}', '{"split": "train"}']
)
def test_a_damaged_line_is_named(tmp_path, line):
  path = tmp_path / 'pool.jsonl'
  pool.write(path, pool.Pool(tuple(items(1)), ()))
  path.write_text(path.read_text() + line + '\n')
  with pytest.raises(pool.PoolError, match=r'pool\.jsonl:2 is damaged'):
    pool.read(path)


def test_a_state_of_a_pool_needs_all_its_parts():
  good = pool.to_json(pooled())
  assert pool.from_json(good) == pooled()
  for name in good:
    with pytest.raises(ValueError, match='damaged'):
      pool.from_json({k: v for k, v in good.items() if k != name})
  assert state().asks is False


@pytest.mark.parametrize('split', ['train', 'valid'])
def test_a_pool_without_a_split_is_refused_by_its_file(tmp_path, split):
  path = tmp_path / 'pool.jsonl'
  parts = {'train': tuple(items(1)), 'valid': tuple(items(1, task='u'))}
  pool.write(path, pool.Pool(**{**parts, split: ()}))
  with pytest.raises(pool.PoolError, match=rf"pool\.jsonl holds .* '{split}'"):
    pool.read(path)


def test_a_kill_behind_the_pools_file_leaves_no_journal_for_good(tmp_path):
  made = pool.Pool(tuple(items(1)), tuple(items(1, task='u')))
  pool.write(tmp_path / 'collect' / 'pool.jsonl', made)
  left = [tmp_path / 'collect' / f'{n}.journal' for n in ('runs', 'noise')]
  for folder in left:
    folder.mkdir()
  context = types.SimpleNamespace(work=tmp_path)
  assert collect.run(context, {}) == made
  assert not any(folder.exists() for folder in left)
