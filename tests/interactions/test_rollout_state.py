"""The contract between an interaction and what drives it."""

import numpy as np
import pytest

from jaxagent.interactions import (
  Credit,
  Execute,
  Generate,
  InteractionError,
  RolloutState,
  Transition,
)
from jaxagent.types import Completion, Executed, Outcome

PROMPT = np.arange(1, 4, dtype=np.int32)


def completion(number: int, n: int = 2) -> Completion:
  return Completion(
    request_id=str(number),
    prompt_ids=PROMPT,
    token_ids=np.full(n, 10 + number, np.int32),
    logprobs=np.full(n, -1.0, np.float32),
    version_spans=((0, 0, n),),
    finish_reason='stop',
  )


class Turns:
  """`n` pairs of a completion and an execution, a helper asked before each."""

  def __init__(self, n: int):
    self.n = n

  def start(self, payload):
    return Transition((payload, ()), (Generate(0, PROMPT, 'helper'),))

  def advance(self, state, call, result):
    payload, rewards = state
    if isinstance(call, Execute):
      rewards = (*rewards, result.exec_s)
      if len(rewards) == self.n:
        credits = {3 * i + 1: Credit(r, r) for i, r in enumerate(rewards)}
        return Transition(None, credits=credits)
      return Transition(
        (payload, rewards), (Generate(call.call + 1, PROMPT, 'helper'),)
      )
    if call.role == 'helper':
      return Transition(state, (Generate(call.call + 1, PROMPT),))
    return Transition(state, (Execute(call.call + 1, (payload, call.call)),))


def driven(progress: RolloutState, until: int = 1000) -> RolloutState:
  while progress.open and len(progress.results) < until:
    number, call = next(iter(progress.open.items()))
    if isinstance(call, Execute):
      result = Executed(Outcome.OK, 0.5 + number)
    else:
      result = completion(number)
    progress.take(number, result)
  return progress


def make(interaction, **options) -> RolloutState:
  return RolloutState(
    interaction, 'item', roles=('policy', 'helper'), **options
  )


def test_fifteen_turns_with_a_helper():
  progress = driven(make(Turns(15)))
  assert progress.finished and len(progress.results) == 45
  assert [c.call for c, _ in progress.completions] == list(range(1, 45, 3))
  assert progress.credits[43].reward == 0.5 + 44


@pytest.mark.parametrize('known', range(46))
def test_folding_what_is_known_restores_it(known):
  before = driven(make(Turns(15)), until=known)
  again = make(Turns(15))
  again.fold([(c.call, r) for c, r in before.results])
  assert list(again.open) == list(before.open)
  assert again.credits == before.credits
  whole, restored = driven(before), driven(again)
  assert whole.credits == restored.credits
  assert [c.call for c, _ in whole.results] == [
    c.call for c, _ in restored.results
  ]


class Broken:
  """Gives `first` at the start and `second` after the first result."""

  def __init__(self, first, second=None):
    self.first, self.second = first, second

  def start(self, payload):
    return self.first

  def advance(self, state, call, result):
    if callable(self.second):
      return self.second()
    return self.second


ASK = Transition(None, (Generate(0, PROMPT),))
NAN = float('nan')


@pytest.mark.parametrize(
  'first, second, words',
  [
    (Transition(None), None, 'no open call and gives no credits'),
    ('text', None, 'gave a str, not a Transition'),
    (Transition(None, ('call',)), None, 'asks for a str'),
    (Transition(None, (Generate(0, PROMPT, 'oracle'),)), None, "role 'oracle'"),
    (Transition(None, (Generate(0, PROMPT[:0]),)), None, 'an empty prompt'),
    (Transition(None, (Generate(0, None),)), None, 'an empty prompt, or'),
    (Transition(None, (Generate(0, 'text'),)), None, 'an empty prompt, or'),
    (Transition(None, ASK.calls * 2), None, 'makes call 0 twice'),
    (Transition(None, ASK.calls, {}), None, 'credits with calls [0] open'),
    (ASK, ASK, 'makes call 0 twice'),
    (
      ASK,
      Transition(None, credits={}),
      'credits calls []; the policy made [0]',
    ),
    (
      ASK,
      Transition(None, credits={0: Credit(1, 1), 7: Credit(1, 1)}),
      'credits calls [0, 7]',
    ),
    (ASK, Transition(None, credits={0: Credit(NAN, 1)}), 'the reward nan'),
    (ASK, Transition(None, credits={0: Credit(1, 0.0)}), 'exec_s=0.0'),
    (ASK, Transition(None, credits={0: Credit(1, NAN)}), 'exec_s=nan'),
    (ASK, lambda: 1 / 0, 'advance raised ZeroDivisionError'),
  ],
)
def test_a_broken_contract_is_named(first, second, words):
  with pytest.raises(InteractionError) as caught:
    make(Broken(first, second)).take(0, completion(0))
  assert words in str(caught.value) and 'Broken' in str(caught.value)


class Endless:
  def start(self, payload):
    return Transition(0, (Generate(0, PROMPT),))

  def advance(self, state, call, result):
    return Transition(state + 1, (Generate(state + 1, PROMPT),))


def test_one_that_never_ends_is_stopped():
  with pytest.raises(InteractionError, match='Endless makes more than 20'):
    driven(make(Endless(), max_calls=20))


def test_an_impure_one_is_found_when_restored():
  before = driven(make(Turns(3)), until=4)
  with pytest.raises(InteractionError, match='must be a pure function'):
    make(Broken(ASK, ASK)).fold([(c.call, r) for c, r in before.results[1:]])


def test_a_result_without_its_call():
  with pytest.raises(KeyError):
    make(Turns(1)).take(5, completion(5))


def test_a_state_is_forked_by_using_it_twice():
  turns = Turns(2)
  step = turns.start('item')
  step = turns.advance(step.state, step.calls[0], completion(0))
  step = turns.advance(step.state, step.calls[0], completion(1))
  ends = [
    turns.advance(step.state, step.calls[0], Executed(Outcome.OK, seconds))
    for seconds in (1.0, 2.0)
  ]
  assert [end.state[1] for end in ends] == [(1.0,), (2.0,)]
  assert {end.calls[0].call for end in ends} == {3}
