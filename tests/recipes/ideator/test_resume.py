"""Runs under the scheduler: stopped and begun again, nothing is drawn or run twice."""

from __future__ import annotations

import collections
import math
import threading

import pytest

from jaxagent import types
from jaxagent.clock import RealClock
from jaxagent.data.prompts import Feed
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  Adviser,
  Run,
  Runs,
)
from jaxagent.recipes.ideator.parser import write_idea
from jaxagent.rollout.engine_sampler import RoleSampler
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.rollout.thread_sampler import ThreadSampler
from tests.recipes.ideator.test_interaction import (
  FINISH,
  HELP,
  IDEA,
  executed,
  program,
  state,
)

RUNS = 6


class _Stopped(Exception):
  pass


class _World:
  """Two roles and a sandbox, whose answers depend on the run and its step alone."""

  def __init__(self, stop_after: int | None):
    self.done: collections.Counter[str] = collections.Counter()
    self.ended: dict[str, object] = {}
    self._stop_after, self._lock = stop_after, threading.Lock()

  def _count(self, what: str) -> None:
    with self._lock:
      self.done[what] += 1

  def implementer(self, ask):
    asked = ask.call.prompt
    number = len(asked.state.steps)
    self._count(f'{asked.run} message {number}')
    texts = [program('a'), HELP, program('b'), 'nonsense', HELP, program('c')]
    return types.TextCompletion((texts + [FINISH])[number])

  def ideator(self, ask):
    asked = ask.call.prompt
    self._count(f'{asked.run} idea {len(asked.state.steps)}')
    return types.TextCompletion(write_idea(IDEA))

  def execute(self, work):
    action = work.call.request
    number = len(action.state.steps)
    self._count(f'{work.key} execution')
    return executed(action.turn.code, 0.5 - number / 100, private=0.25)

  def tick(self) -> None:
    if self._stop_after is not None:
      if self.done.total() >= self._stop_after:
        raise _Stopped


def _play(folder, world: _World) -> None:
  journal = Journal(folder)
  inbox = JournalledQueue(journal)
  samplers = {
    IMPLEMENTER: ThreadSampler(inbox, world.implementer, max_concurrency=2),
    IDEATOR: ThreadSampler(inbox, world.ideator, max_concurrency=2),
  }
  feed = Feed()
  for number in range(RUNS):
    feed.push(f'run-{number}', Run(f'run-{number}', state()))

  def deliver(prompt, progress, error) -> None:
    assert not error, error
    world.ended[prompt.payload.name] = progress.state

  executor = ThreadExecutor(inbox, world.execute, threads=2)
  scheduler = Scheduler(
    feed,
    Runs(max_steps=16, time_limit_s=100.0, adviser=Adviser()),
    Workers(RoleSampler(samplers), executor, inbox, RealClock()),
    SchedulerConfig(
      batch_size=1,
      watchdog_s=math.inf,
      max_in_flight=4,
      roles=tuple(samplers),
      max_concurrency={role: 2 for role in samplers},
    ),
    journal=journal,
    deliver=deliver,
  )
  try:
    scheduler.resume(None)
    scheduler.run_out(world.tick)
  finally:
    scheduler.close()
    journal.close()


@pytest.mark.parametrize('stop_after', [1, 9, 17, 30, 41])
def test_a_stopped_collection_continues_where_it_was(tmp_path, stop_after):
  whole = _World(None)
  _play(tmp_path / 'whole', whole)
  assert len(whole.ended) == RUNS and set(whole.done.values()) == {1}
  first = _World(stop_after)
  with pytest.raises(_Stopped):
    _play(tmp_path / 'cut', first)
  second = _World(None)
  _play(tmp_path / 'cut', second)
  assert {**first.ended, **second.ended} == whole.ended
  # What was answered before was not asked again, but for what the stop cut off.
  assert set(first.done) | set(second.done) == set(whole.done)
  assert sum((first.done + second.done).values()) == whole.done.total()
  for at in whole.ended.values():
    assert [s.kind for s in at.state.steps] == [
      'ipython', 'seek_help', 'ipython', 'invalid', 'seek_help', 'ipython',
    ]  # fmt: skip
    assert len(at.asked) == 2
