"""Permits: what decodes, what executes and what is under way, each by itself."""

import numpy as np
import pytest

from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing.bandit import Bandit
from jaxagent.testing.fake_executor import Action, FakeExecutor
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.virtual_inbox import VirtualInbox


class Counting:
  """Counts what is with a sampler or an executor, at each instant."""

  def __init__(self, inner, inbox):
    self._inner, self.now, self.most = inner, set(), 0
    put = inbox.put

    def told(result):
      self.now.discard(result.key)
      put(result)

    inbox.put = told

  def __getattr__(self, name):
    return getattr(self._inner, name)

  def submit(self, given):
    some = given if isinstance(given, list) else [given]
    self.now.update(one.key for one in some)
    self.most = max(self.most, len(self.now))
    self._inner.submit(given)


def drive(turns=1, updates=6, slots=2, decode_s=10.0, exec_s=1.0, **permits):
  """(seconds an update, most decoding, most executing, the last stats)."""
  inbox = VirtualInbox(VirtualClock())
  executor = Counting(
    FakeExecutor(inbox, lambda work: Action(exec_s, 1.0), slots), inbox
  )
  sampler = Counting(ArmSampler(inbox, np.zeros(2), latency_s=decode_s), inbox)
  scheduler = Scheduler(
    PromptSource(range(64)),
    Bandit(turns),
    Workers(sampler, executor, inbox, inbox.clock),
    SchedulerConfig(16, max_staleness=None, **permits),
  )
  starts = []
  for version in range(updates):
    starts.append(inbox.clock.now())
    batch = scheduler.next_batch(version)
    scheduler.mark_trained(batch.prompt_ids, version)
  scheduler.ledger.check()
  per_update = (inbox.clock.now() - starts[1]) / (updates - 1)
  return per_update, sampler.most, executor.most, batch.stats


@pytest.mark.parametrize('turns', [1, 3])
def test_each_has_a_limit_of_its_own(turns):
  _, decoding, executing, stats = drive(turns, max_decoding=5, max_in_flight=9)
  assert (decoding, executing) == (5, 2)
  assert stats['buffer/in_flight'] <= 9
  assert stats['buffer/generating'] <= 5


def test_slow_decoding_is_hidden_by_more_in_flight():
  """20 that decode for 10 s feed two slots of 1 s each without a pause."""
  few, *_ = drive()
  many, decoding, executing, _ = drive(max_decoding=20, updates=20)
  assert few == pytest.approx(16 / 2 * 11, rel=0.15)
  assert many == pytest.approx(16 / 2 * 1, rel=0.15)
  assert (decoding, executing) == (20, 2)


def test_slow_executions_do_not_widen_the_queue():
  """Without a number: what decodes and what executes, no more."""
  _, decoding, _, stats = drive(decode_s=0.1, exec_s=30.0, max_decoding=4)
  assert stats['buffer/in_flight'] <= 4 + 2 and decoding <= 4


@pytest.mark.parametrize('name', ['max_decoding', 'max_in_flight'])
def test_a_permit_below_one_is_refused(name):
  for bad in (0, -1, 1.5):
    with pytest.raises(ValueError, match=f'{name}={bad}'):
      SchedulerConfig(8, **{name: bad})
