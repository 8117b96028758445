"""The policy's sampler: what an engine answers, and what it must not stop."""

from __future__ import annotations

import numpy as np
import pytest

from jaxagent.interactions import POLICY, Generate
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engine_sampler import EngineSampler, RoleSampler
from jaxagent.rollout.requests import GenerationRequest, Key
from jaxagent.rollout.result_queue import JournalledQueue
from jaxagent.types import Completion, Prompt, Request


class Engine:
  """Holds what it is asked until it is told to answer."""

  def __init__(self):
    self.asked, self.discarded = {}, []

  def submit(self, requests, *, put):
    self.asked |= {r.request_id: (r, put) for r in requests}

  def discard(self, ids):
    self.discarded += ids

  def answer(self, name, finish_reason='stop'):
    request, put = self.asked[name]
    put(
      Completion(
        name,
        request.prompt_ids,
        np.ones(1, np.int32),
        np.zeros(1, np.float32),
        ((0, 0, 1),),
        finish_reason,
      )
    )


def _ask(name, role=POLICY):
  call = Generate(0, np.zeros(1, np.int32), role)
  return GenerationRequest(Key(name, 1, 0), Prompt(name, name, None), call)


@pytest.fixture
def made():
  inbox, engine = JournalledQueue(), Engine()
  sampler = EngineSampler(
    inbox, engine, lambda ask: Request(str(ask.key), ask.call.prompt, 3)
  )
  return inbox, engine, sampler


def test_each_completion_comes_when_it_is_there(made):
  inbox, engine, sampler = made
  sampler.submit([_ask('a'), _ask('b')])
  assert inbox.take(0.0) == []
  engine.answer('b#1.0')
  (first,) = inbox.take(1.0)
  assert first.key.prompt_id == 'b' and first.completion.token_ids.size == 1
  engine.answer('a#1.0')
  (second,) = inbox.take(1.0)
  assert second.key.prompt_id == 'a'


def test_a_cancelled_completion_never_reaches_the_inbox(made):
  inbox, engine, sampler = made
  sampler.submit([_ask('a'), _ask('b')])
  sampler.cancel(_ask('a').key)
  sampler.cancel(_ask('never asked').key)
  assert engine.discarded == ['a#1.0']
  engine.answer('a#1.0')
  assert inbox.take(0.0) == []
  sampler.close()
  assert engine.discarded == ['a#1.0', 'b#1.0']


def test_an_abort_is_an_infrastructure_error_and_a_breakdown_ends_the_run(made):
  inbox, engine, sampler = made
  sampler.submit([_ask('a'), _ask('b')])
  engine.answer('a#1.0', 'abort')
  (result,) = inbox.take(1.0)
  assert result.completion is None and result.error == 'the engine gave it up'
  engine.asked['b#1.0'][1](EngineError('no memory'))
  with pytest.raises(EngineError, match='no memory'):
    inbox.take(1.0)


def test_roles_have_samplers_of_their_own(made):
  _, engine, policy = made
  asked = []

  class Other:
    def submit(self, asks):
      asked.extend(asks)

    def cancel(self, key):
      asked.clear()

    close = cancel

  sampler = RoleSampler({POLICY: policy, 'helper': Other()})
  sampler.submit([_ask('a'), _ask('b', 'helper'), _ask('c')])
  assert sorted(engine.asked) == ['a#1.0', 'c#1.0']
  assert [a.key.prompt_id for a in asked] == ['b']
  sampler.cancel(_ask('b', 'helper').key)
  assert not asked
