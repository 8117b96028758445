"""Completions on threads: batches and faults."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jaxagent.envs.interfaces import TextModelError
from jaxagent.interactions import POLICY, Generate
from jaxagent.rollout.engine_sampler import RoleSampler
from jaxagent.rollout.requests import GenerationRequest, Key
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.rollout.thread_sampler import ThreadSampler
from jaxagent.types import Completion, Prompt


def _ask(name: str, role: str = POLICY) -> GenerationRequest:
  call = Generate(0, np.zeros(1, np.int32), role)
  return GenerationRequest(Key(name, 1, 0), Prompt(name, name, None), call)


def _completion(
  ask: GenerationRequest, finish_reason: str = 'stop'
) -> Completion:
  ids = np.ones(1, np.int32)
  logprobs = np.zeros(1, np.float32)
  return Completion(
    str(ask.key), ids, ids, logprobs, ((0, 0, 1),), finish_reason
  )


def _take(inbox: JournalledQueue, n: int) -> list:
  results = []
  while len(results) < n:
    more = inbox.take(5.0)
    assert more, results
    results += more
  return results


def test_an_answer_comes_when_it_is_there_not_when_all_are():
  inbox, gate = JournalledQueue(), threading.Event()

  def draw(ask):
    if ask.key.prompt_id == 'slow':
      gate.wait(5.0)
    return _completion(ask)

  sampler = ThreadSampler(inbox, draw, max_concurrency=2)
  sampler.submit([_ask('slow'), _ask('a'), _ask('b')])
  assert {r.key.prompt_id for r in _take(inbox, 2)} == {'a', 'b'}
  gate.set()
  assert [r.key.prompt_id for r in _take(inbox, 1)] == ['slow']
  sampler.close()


def test_a_large_limit_starts_no_more_threads_than_there_are_calls():
  inbox, before = JournalledQueue(), threading.active_count()
  sampler = ThreadSampler(inbox, _completion, max_concurrency=1_000_000)
  sampler.submit([_ask('a'), _ask('b')])
  assert len(_take(inbox, 2)) == 2
  assert threading.active_count() <= before + 2
  sampler.close()


@pytest.mark.parametrize('most', [1, 3])
def test_no_more_are_drawn_at_once_than_max_concurrency(most):
  inbox, lock = JournalledQueue(), threading.Lock()
  now, seen, gate = [0], [], threading.Barrier(most)

  def draw(ask):
    with lock:
      now[0] += 1
      seen.append(now[0])
    gate.wait(5.0)  # as many as are allowed do come together
    with lock:
      now[0] -= 1
    return _completion(ask)

  sampler = ThreadSampler(inbox, draw, max_concurrency=most)
  sampler.submit([_ask(str(i)) for i in range(6)])
  _take(inbox, 6)
  sampler.close()
  assert max(seen) == most


def test_max_concurrency_of_none_is_refused():
  with pytest.raises(ValueError, match='max_concurrency=0 must be 1 or more'):
    ThreadSampler(JournalledQueue(), _completion, max_concurrency=0)


def test_a_cancelled_ask_that_waits_is_not_drawn():
  inbox, gate, began = JournalledQueue(), threading.Event(), threading.Event()
  drawn = []

  def draw(ask):
    drawn.append(ask.key.prompt_id)
    began.set()
    gate.wait(5.0)
    return _completion(ask)

  sampler = ThreadSampler(inbox, draw)
  sampler.submit([_ask('a'), _ask('b'), _ask('c')])
  assert began.wait(5.0)
  sampler.cancel(_ask('b').key)
  gate.set()
  assert [r.key.prompt_id for r in _take(inbox, 2)] == ['a', 'c']
  sampler.close()
  assert drawn == ['a', 'c']


def test_keys_of_other_roles_are_not_remembered():
  """A cancel goes to every role's sampler."""
  inbox = JournalledQueue()
  sampler = ThreadSampler(inbox, _completion)
  sampler.cancel(_ask('never asked').key)
  sampler.submit([_ask('a'), _ask('b')])
  _take(inbox, 2)
  sampler.close()
  sampler.cancel(_ask('a').key)
  assert not sampler._unwanted and not sampler._open


def test_roles_do_not_wait_for_each_other():
  inbox, gate = JournalledQueue(), threading.Event()

  def slow(ask):
    gate.wait(5.0)
    return _completion(ask)

  sampler = RoleSampler(
    {
      POLICY: ThreadSampler(inbox, slow),
      'helper': ThreadSampler(inbox, _completion),
    }
  )
  sampler.submit([_ask('a'), _ask('b', 'helper')])
  (first,) = _take(inbox, 1)
  assert first.key.prompt_id == 'b'
  gate.set()
  (second,) = _take(inbox, 1)
  assert second.key.prompt_id == 'a'
  sampler.close()


def test_a_failed_endpoint_and_an_abort_are_infrastructure_errors():
  def draw(ask):
    if ask.key.prompt_id == 'lost':
      raise TextModelError('helper: no answer')
    return _completion(ask, 'abort')

  inbox = JournalledQueue()
  sampler = ThreadSampler(inbox, draw)
  for name, error in (
    ('lost', 'TextModelError: helper: no answer'),
    ('cut', 'the engine gave it up'),
  ):
    sampler.submit([_ask(name)])
    (result,) = _take(inbox, 1)
    assert result.completion is None and result.error == error
  sampler.close()


def test_any_other_error_ends_the_run():
  def draw(ask):
    raise ValueError('no such thing')

  inbox = JournalledQueue()
  sampler = ThreadSampler(inbox, draw)
  sampler.submit([_ask('a')])
  with pytest.raises(ValueError, match='no such thing'):
    inbox.take(5.0)
  sampler.close()
