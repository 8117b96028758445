"""Completions on threads: batches and faults."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jaxagent.envs.interfaces import TextModelError
from jaxagent.interactions import POLICY, Generate
from jaxagent.rollout.engine_sampler import RoleSampler
from jaxagent.rollout.inbox import JournalledInbox
from jaxagent.rollout.thread_sampler import ThreadSampler
from jaxagent.rollout.work import Ask, Key
from jaxagent.types import Completion, Prompt


def _ask(name: str, role: str = POLICY) -> Ask:
  call = Generate(0, np.zeros(1, np.int32), role)
  return Ask(Key(name, 1, 0), Prompt(name, name, None), call)


def _completion(ask: Ask, finish_reason: str = 'stop') -> Completion:
  ids = np.ones(1, np.int32)
  logprobs = np.zeros(1, np.float32)
  return Completion(
    str(ask.key), ids, ids, logprobs, ((0, 0, 1),), finish_reason
  )


def _take(inbox: JournalledInbox, n: int) -> list:
  results = []
  while len(results) < n:
    more = inbox.take(5.0)
    assert more, results
    results += more
  return results


def test_what_gathers_while_it_draws_is_drawn_in_one_call():
  inbox, gate, began, calls = JournalledInbox(), threading.Event(), [], []

  def draw(asks):
    calls.append([a.key.prompt_id for a in asks])
    if len(calls) == 1:
      began[0].set()
      gate.wait(5.0)
    return [_completion(a) for a in asks]

  began.append(threading.Event())
  sampler = ThreadSampler(inbox, draw)
  sampler.submit([_ask('a')])
  assert began[0].wait(5.0)
  sampler.submit([_ask('b')])
  sampler.submit([_ask('c'), _ask('d')])
  sampler.cancel(_ask('c').key)
  gate.set()
  results = _take(inbox, 3)
  assert calls == [['a'], ['b', 'd']]
  assert [r.key.prompt_id for r in results] == ['a', 'b', 'd']
  sampler.close()


def test_of_keys_that_it_has_not_got_nothing_is_kept():
  """A cancel goes to every role's sampler, whoever has it."""
  inbox = JournalledInbox()
  sampler = ThreadSampler(inbox, lambda asks: [_completion(a) for a in asks])
  sampler.cancel(_ask('never asked').key)
  sampler.submit([_ask('a'), _ask('b')])
  _take(inbox, 2)
  sampler.close()
  sampler.cancel(_ask('a').key)
  assert not sampler._unwanted and not sampler._open


def test_one_that_is_asked_again_while_it_draws_can_be_cancelled():
  inbox, gate, calls = JournalledInbox(), threading.Event(), []

  def draw(asks):
    calls.append([a.key.prompt_id for a in asks])
    yield _completion(asks[0], 'abort')
    gate.wait(5.0)
    yield from map(_completion, asks[1:])

  sampler = ThreadSampler(inbox, draw)
  sampler.submit([_ask('a'), _ask('b')])
  (fault,) = _take(inbox, 1)
  assert fault.key.prompt_id == 'a' and fault.completion is None
  sampler.submit([_ask('a')])
  sampler.cancel(_ask('a').key)
  gate.set()
  sampler.submit([_ask('c')])
  _take(inbox, 2)
  sampler.close()
  assert calls == [['a', 'b'], ['c']]


def test_roles_do_not_wait_for_each_other():
  inbox, gate = JournalledInbox(), threading.Event()

  def slow(asks):
    gate.wait(5.0)
    return [_completion(a) for a in asks]

  def quick(asks):
    return [_completion(a) for a in asks]

  sampler = RoleSampler(
    {POLICY: ThreadSampler(inbox, slow), 'helper': ThreadSampler(inbox, quick)}
  )
  sampler.submit([_ask('a'), _ask('b', 'helper')])
  (first,) = _take(inbox, 1)
  assert first.key.prompt_id == 'b'
  gate.set()
  (second,) = _take(inbox, 1)
  assert second.key.prompt_id == 'a'
  sampler.close()


def test_an_endpoint_that_fails_and_an_abort_are_faults_of_ours():
  def draw(asks):
    if asks[0].key.prompt_id == 'lost':
      raise TextModelError('helper: no answer')
    return [_completion(a, 'abort') for a in asks]

  inbox = JournalledInbox()
  sampler = ThreadSampler(inbox, draw)
  for name, error in (
    ('lost', 'helper: no answer'),
    ('cut', 'the engine gave it up'),
  ):
    sampler.submit([_ask(name)])
    (result,) = _take(inbox, 1)
    assert result.completion is None and result.error == error
  sampler.close()


def test_of_an_iterator_each_is_told_as_it_comes():
  """A slow one does not keep those before it, nor its failure."""
  inbox, gate = JournalledInbox(), threading.Event()

  def draw(asks):
    yield _completion(asks[0])
    gate.wait(5.0)
    raise TextModelError('helper: no answer')

  sampler = ThreadSampler(inbox, draw)
  sampler.submit([_ask('a'), _ask('b'), _ask('c')])
  (first,) = _take(inbox, 1)
  assert first.key.prompt_id == 'a' and first.completion is not None
  gate.set()
  rest = _take(inbox, 2)
  assert [r.key.prompt_id for r in rest] == ['b', 'c']
  assert all(r.error == 'helper: no answer' for r in rest)
  sampler.close()


@pytest.mark.parametrize('drawn', [0, 2])
def test_another_number_of_completions_ends_the_run(drawn):
  inbox = JournalledInbox()
  sampler = ThreadSampler(inbox, lambda asks: [_completion(asks[0])] * drawn)
  sampler.submit([_ask('a')])
  with pytest.raises(ValueError, match=f'{drawn} completions .* 1 asks'):
    inbox.take(5.0)
  sampler.close()
