"""Endpoints of Implementer, Ideator and classifier that misbehave, on the loopback."""

from __future__ import annotations

import functools
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from configs import common
from jaxagent import types
from jaxagent.data.prompts import Feed
from jaxagent.envs.agents.implementer import Query, Turn, write_turn
from jaxagent.envs.implementer_state import (
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)
from jaxagent.errors import MachineryError, UserError
from jaxagent.interactions import POLICY
from jaxagent.llm.client_options import ClientOptions
from jaxagent.recipes.ideator import classify, roles, types_of
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  HelpState,
  Ideas,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.rewards.ideator import IdeaResult
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime import text_models
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import rollouts
from tests.recipes.endpoint import serving

IDEA = Idea('It underfits.', 'Use a deeper tree.', 'Depth helps.')
PROGRAM = write_turn(Turn('ipython', code='print(1)'))
IDS = np.ones(1, np.int32)
GROUP = 4


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
  """Clients that try once, briefly; attempts of a call follow at once."""
  options = functools.partial(ClientOptions, timeout_s=0.5, max_retries=0)
  monkeypatch.setattr(text_models, 'ClientOptions', lambda **more: options())
  monkeypatch.setattr(rollouts, 'PAUSES_S', (0.0, 0.0))


def said(content, **message) -> dict:
  whole = {'role': 'assistant', 'content': content, **message}
  return {
    'choices': [{'index': 0, 'message': whole, 'finish_reason': 'stop'}],
    'usage': {'prompt_tokens': 900, 'completion_tokens': 10},
  }


def state(number: int = 0) -> HelpState:
  query = Query(f'Try {number} failed.', 'a model', 'a better score')
  text = write_turn(Turn('seek_help', query=query))
  asks = ImplementerState('task', True, {}).with_step('seek_help', text)
  return HelpState(f'state-{number}', 'run', asks)


def host_of(url: str, work, **options):
  config = common.base('ideator')
  for role in ('implementer', 'ideator', 'classifier'):
    config[role].kind, config[role].model = 'openai', 'any'
    config[role].base_url = url
  for key, value in options.items():
    role, _, name = key.partition('_')
    config[role][name] = value
  spec = SimpleNamespace(
    details=None,
    name='task',
    research_problem='A task.',
    submission='submission.csv',
    metric='accuracy',
  )
  return SimpleNamespace(
    config=config,
    work=work,
    stop=StopFlag(),
    pool=SimpleNamespace(cancel=lambda key: None),
    prepared={'task': SimpleNamespace(mounts={})},
    spec=lambda task: spec,
  )


def carried_out(work, job_id: str) -> types.Executed:
  request = work.call.request
  step = PastTurn('ipython', request.text, 'Status: ok', score=0.5)
  effect = Effect(step, program=Program('ipython', request.turn.code))
  return types.Executed(types.Outcome.OK, 0.1, state=effect.to_json())


def drawn(ask) -> types.Completion:
  spans = ((0, 0, 1),)
  return types.Completion(
    str(ask.key), IDS, IDS, np.zeros(1, np.float32), spans, 'stop'
  )


def group(host) -> list[tuple[object, str]]:
  """(record or None, error) of GROUP ideas to a state, as they end."""
  feed, ended = Feed(), []
  for number in range(GROUP):
    feed.push(f'idea-{number}', state(number))

  def deliver(prompt, progress, error):
    ended.append((None if error else progress.state, error))

  rollouts.run(
    host,
    host.work / 'journal',
    rollouts.RolloutStage(
      'ideas',
      feed,
      Ideas(lambda item: IDS, lambda completion: write_idea(IDEA)),
      execute=carried_out,
      deliver=deliver,
      frozen={
        POLICY: FrozenRole(drawn, GROUP),
        IMPLEMENTER: roles.implementer(host),
      },
    ),
  )
  return ended


def test_answers_with_thoughts_are_carried_out_without_them(tmp_path):
  def answer(body, number):
    if number % 2:
      return said(f'<think>I muse.</think>\n{PROGRAM}')
    return said(PROGRAM, reasoning_content='I muse.')

  with serving(answer) as (url, _):
    ended = group(host_of(url, tmp_path))
  assert [error for _, error in ended] == [''] * GROUP
  for record, _ in ended:
    assert record.result is IdeaResult.FIRST_SCORE
    assert 'muse' not in record.message
    assert record.implementer_thoughts == 'I muse.'


@pytest.mark.parametrize(
  'fault',
  [
    None,  # 400
    said(None),
    {'choices': []},
    said('', refusal='I will not.'),
    {
      'choices': [
        {'message': {'content': PROGRAM[:9]}, 'finish_reason': 'length'}
      ]
    },
  ],
  ids=['refused', 'null', 'no choice', 'declined', 'cut off'],
)
def test_a_member_without_an_answer_is_lost_and_the_others_count(
  tmp_path, fault
):
  def answer(body, number):
    text = json.dumps(body['messages'])
    return fault if 'Try 2 failed' in text else said(PROGRAM)

  with serving(answer) as (url, asked):
    ended = group(host_of(url, tmp_path))
  lost = [error for record, error in ended if record is None]
  assert len(lost) == 1 and lost[0].startswith('infrastructure 3 times')
  kept = [record for record, _ in ended if record is not None]
  assert [r.derive() for r in kept] == [1.0] * (GROUP - 1)  # and never a 0
  again = [b for b in asked if 'Try 2 failed' in json.dumps(b['messages'])]
  assert len(again) >= 3


def test_a_silent_endpoint_is_asked_again_and_then_counts_as_nothing(tmp_path):
  free = threading.Event()

  def answer(body, number):
    if 'Try 1 failed' in json.dumps(body['messages']):
      free.wait(20)
    return said(PROGRAM)

  with serving(answer) as (url, _):
    ended = group(host_of(url, tmp_path))
    free.set()
  lost = [error for record, error in ended if record is None]
  assert len(lost) == 1 and '0.5 s' in lost[0]


def test_an_endpoint_that_comes_back_loses_no_member(tmp_path):
  def answer(body, number):
    return None if number < GROUP else said(PROGRAM)

  with serving(answer) as (url, _):
    ended = group(host_of(url, tmp_path))
  assert [error for _, error in ended] == [''] * GROUP


def test_an_answer_is_kept_with_its_tokens_and_seconds(tmp_path):
  def answer(body, number):
    time.sleep(0.1)
    return said(write_idea(IDEA))

  with serving(answer) as (url, _):
    host = host_of(url, tmp_path)
    role = roles.ideator(host, 'openai')
    asked = SimpleNamespace(state=state().state)
    ask = SimpleNamespace(
      call=SimpleNamespace(prompt=asked, role=IDEATOR),
      prompt=SimpleNamespace(prompt_id='run-0'),
    )
    completion = role.draw(ask)
  assert completion.cost['tokens'] == 10
  assert completion.cost['prompt_tokens'] == 900
  assert completion.cost['answer_s'] >= 0.1


# Money ----------------------------------------------------------------------------

PRICES = {'prompt': 1e6, 'completion': 1e6}  # a token costs 1


def test_asking_stops_before_the_limit_and_a_higher_one_resumes(tmp_path):
  options = {
    'implementer_prices': PRICES,
    'implementer_max_tokens': 10,
    'implementer_max_concurrency': 1,
  }
  with serving(lambda body, number: said(PROGRAM)) as (url, asked):
    host = host_of(url, tmp_path, **options, implementer_max_spend=2000.0)
    with pytest.raises(UserError, match='config.implementer.max_spend=2000'):
      group(host)
    before = len(asked)
    assert 1 <= before <= 2  # after two, 180 are left for one of hundreds
    host = host_of(url, tmp_path, **options, implementer_max_spend=1e9)
    ended = group(host)
  assert len(ended) == GROUP and len(asked) == GROUP  # none was asked twice
  lines = (tmp_path / 'spending' / 'implementer.jsonl').read_text().splitlines()
  assert [json.loads(line)['cost'] for line in lines] == [910.0] * GROUP


def test_answers_that_were_cut_cost_money_though_they_are_of_no_use(tmp_path):
  cut = said(PROGRAM[:9])
  cut['choices'][0]['finish_reason'] = 'length'
  with serving(lambda body, number: cut) as (url, asked):
    host = host_of(url, tmp_path, implementer_prices=PRICES)
    ended = group(host)
  assert [record for record, _ in ended] == [None] * GROUP
  purse = roles.purse_of(host.config.implementer, IMPLEMENTER, tmp_path)
  assert purse.spent == 910.0 * len(asked)


# Types ----------------------------------------------------------------------------


def test_types_are_asked_for_and_nonsense_is_unparsed(tmp_path):
  def answer(body, number):
    text = json.dumps(body['messages'])
    if 'Use Ridge.' in text:
      return said('TYPE: Model Architecture\n\nRATIONALE: another model.')
    return said(None) if 'Stop.' in text else said('It is about trees.')

  ideas = [
    (state().state, Idea('a', action, 'c'))
    for action in ('Use Ridge.', 'Cut the tree.', 'Stop.')
  ]
  with serving(answer) as (url, asked):
    host = host_of(url, tmp_path)
    found = classify.types(host, ideas)
    count = len(asked)
    assert classify.types(host, ideas[:2]) == found[:2]
    assert len(asked) == count  # from the cache
  assert found == ['Model Architecture', types_of.UNPARSED, types_of.UNPARSED]


def test_a_classifier_that_is_down_ends_the_run_to_be_resumed(tmp_path):
  with serving(lambda body, number: said('x')) as (url, _):
    pass
  with pytest.raises(MachineryError, match='types of ideas: .*resumes'):
    classify.types(host_of(url, tmp_path), [(state().state, IDEA)])
