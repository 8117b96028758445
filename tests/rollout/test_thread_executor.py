"""Works on threads: when one has begun, and what a cancel leaves."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from jaxagent.errors import UserError
from jaxagent.interactions import Execute
from jaxagent.records import codec
from jaxagent.rollout.requests import ExecutionRequest, Key
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.thread_executor import ThreadExecutor
from jaxagent.types import Executed, Outcome, Prompt, Record

A, B, C = (Key(name, 1, 0) for name in 'abc')


def _work(key, attempt=1):
  prompt = Prompt(key.prompt_id, key.prompt_id, None)
  return ExecutionRequest(key, prompt, Execute(0, None), attempt)


def _until(holds):
  end = time.monotonic() + 5.0
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.001)


def test_a_work_begins_when_a_thread_takes_it():
  gates = {key: threading.Event() for key in (A, B)}

  def run(work):
    gates[work.key].wait(5.0)
    return Executed(Outcome.OK, 1.0)

  inbox, cancelled = JournalledQueue(), []
  executor = ThreadExecutor(
    inbox, run, threads=1, lookahead=1, cancel=cancelled.append
  )
  before = time.monotonic()
  executor.submit(_work(A))
  executor.submit(_work(B))
  _until(lambda: executor.begun(A) is not None)
  assert before <= executor.begun(A) <= time.monotonic()
  assert executor.begun(B) is None and executor.begun(C) is None

  executor.cancel(A)  # its thread is busy with it all the same
  assert cancelled == ['a#1.0']
  executor.submit(_work(A, attempt=2))
  assert executor.begun(A) is None
  gates[A].set()
  gates[B].set()
  results = []
  _until(lambda: results.extend(inbox.take(0.1)) or len(results) == 2)
  assert [(r.key, r.attempt) for r in results] == [(B, 1), (A, 2)]
  _until(lambda: executor.begun(A) is None and executor.begun(B) is None)
  executor.close()


def test_a_thread_pauses_longer_after_each_infrastructure_error():
  def run(work):
    ours = work.key in (A, B)
    return Executed(Outcome.INFRASTRUCTURE if ours else Outcome.OK, 1.0)

  inbox = JournalledQueue()
  executor = ThreadExecutor(inbox, run, threads=1, pauses_s=(0.5, 2.0, 60.0))
  took = []
  for work in (_work(C), _work(A), _work(A, attempt=2)):
    begun = time.monotonic()
    executor.submit(work)
    assert inbox.take(5.0)
    took.append(time.monotonic() - begun)
  assert took[0] < 0.5 <= took[1] < 2.0 <= took[2]
  executor.submit(_work(B, attempt=9))
  _until(lambda: executor.begun(B) is not None)
  begun = time.monotonic()
  executor.close()  # nobody waits for a pause
  assert time.monotonic() - begun < 5.0


def test_an_exception_is_an_infrastructure_error_and_warned_of_once_a_minute(
  caplog,
):
  def run(work):
    raise RuntimeError('no such pool')

  inbox = JournalledQueue()
  executor = ThreadExecutor(inbox, run, threads=1)
  executor.submit(_work(A))
  (result,) = inbox.take(5.0)
  assert result.executed.outcome is Outcome.INFRASTRUCTURE
  assert result.executed.message == 'RuntimeError: no such pool'
  executor.submit(_work(B))
  assert inbox.take(5.0)
  executor.close()
  assert [r.getMessage() for r in caplog.records] == [
    '1 execution failed through no fault of the policy and will be tried again, '
    'the last with: RuntimeError: no such pool'
  ]


def _ends(run) -> UserError:
  """Returns the error that ends a run whose executions are `run`."""
  inbox = JournalledQueue()
  executor = ThreadExecutor(inbox, run, threads=1)
  executor.submit(_work(A))
  with pytest.raises(UserError) as found:
    inbox.take(5.0)
  executor.close()
  return found.value


def test_an_error_of_the_users_ends_the_run_and_is_not_tried_again():
  tries = []

  def run(work):
    tries.append(work)
    raise UserError('give another model')

  assert str(_ends(run)) == 'give another model'
  assert len(tries) == 1


@pytest.mark.parametrize(
  'reward', (float('nan'), float('inf'), None, 'much', 'raises')
)
def test_a_record_whose_class_gives_no_reward_ends_the_run_by_name(
  monkeypatch, reward
):
  @dataclasses.dataclass(frozen=True, kw_only=True)
  class Odd(Record):
    KIND = 'odd'

    def derive(self, switches=None):
      return {}['gone'] if reward == 'raises' else reward

  monkeypatch.setattr(codec, '_known', {**codec._known, 'odd': Odd})
  record = Odd(outcome=Outcome.OK, task='wine')
  error = str(_ends(lambda work: Executed(Outcome.OK, 1.0, record=record)))
  what = 'KeyError' if reward == 'raises' else repr(reward)
  assert 'Odd in ' in error and __file__ in error and what in error
  assert '\n' not in error
