"""Runs with an Ideator, and one idea in one step, by results made by hand."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from jaxagent import types
from jaxagent.data import codec
from jaxagent.envs import parser
from jaxagent.envs.agents.implementer import (
  Briefing,
  Query,
  Turn,
  write_turn,
)
from jaxagent.envs.implementer_state import (
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)
from jaxagent.interactions import POLICY, Execute, Generate, RolloutState
from jaxagent.recipes.ideator import interaction
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  Adviser,
  HelpState,
  Ideas,
  Question,
  Run,
  Runs,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.rewards.ideator import IdeaResult
from jaxagent.types import NoReward

O = types.Outcome
IDS = np.arange(1, 4, dtype=np.int32)
QUERY = Query('rmse stays', '- a tree: 60', 'a lower rmse')
HELP = write_turn(Turn('seek_help', query=QUERY))
FINISH = write_turn(Turn('finish'))
IDEA = Idea('Go on.', 'Use Ridge.', 'It is simple.')


def program(code: str = 'x = 1') -> str:
  return write_turn(Turn('ipython', code=code), 'I try.')


def state(**changes) -> ImplementerState:
  own = {'task': 't', 'higher_is_better': False, 'files': {'train.py': 'x'}}
  return ImplementerState(**own | changes)


def executed(
  code='x = 1', score=None, outcome=O.OK, exec_s=2.0, private=None
) -> types.Executed:
  """As an environment gives it, and as a journal gives it back."""
  step = PastTurn('ipython', program(code), 'out', outcome, score, exec_s)
  effect = Effect(step, {'train.py': 'y'}, Program('ipython', code), tier='T2')
  kept = {} if private is None else {'private': private, 'whole': private + 0.1}
  done = types.Executed(outcome, exec_s, state=effect.to_json(), kept=kept)
  return codec.decode(json.loads(json.dumps(codec.encode(done))))


def said(text: str, seconds: float = 0.0) -> types.TextCompletion:
  return types.TextCompletion(text, {'answer_s': seconds})


def sampled(text: str) -> types.Completion:
  """A completion whose ids are the bytes of its text."""
  ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
  logprobs = np.zeros(len(ids), np.float32)
  return types.Completion('r', IDS, ids, logprobs, ((0, 0, len(ids)),), 'stop')


def text_of(result) -> str:
  if isinstance(result, types.Completion):
    return bytes(result.token_ids.astype(np.uint8)).decode()
  return result.text


def runs(adviser: Adviser | None = Adviser(), steps=16, seconds=100.0) -> Runs:
  return Runs(max_steps=steps, time_limit_s=seconds, adviser=adviser)


def begun(interaction_: Runs, initial: ImplementerState | None = None):
  roles = (IMPLEMENTER, IDEATOR, POLICY)
  run = Run('run-0', initial or state())
  return RolloutState(interaction_, run, roles=roles)


def taken(progress: RolloutState, *results) -> RolloutState:
  for result in results:
    ((number, _),) = progress.open.items()
    progress.take(number, result)
  return progress


def open_call(progress: RolloutState):
  (call,) = progress.open.values()
  return call


def steps(progress: RolloutState):
  return progress.state.state.steps


# Runs ---------------------------------------------------------------------------


def test_a_program_is_carried_out_and_its_result_is_asked_about():
  walk = taken(begun(runs()), said(program('a'), 3.0))
  call = open_call(walk)
  assert isinstance(call, Execute)
  assert call.request.turn == Turn('ipython', code='a')
  assert call.request.most_s == 97.0  # the model's seconds count
  taken(walk, executed('a', 0.5))
  call = open_call(walk)
  assert isinstance(call, Generate) and call.role == IMPLEMENTER
  assert isinstance(call.prompt, Question) and call.prompt.calls_left == 2
  assert call.prompt.state.best.score == 0.5


def test_a_question_goes_to_the_ideator_with_the_whole_run():
  walk = taken(
    begun(runs()), said(program('a')), executed('a', 0.5), said(HELP)
  )
  call = open_call(walk)
  assert call.role == IDEATOR and call.prompt.state.query == QUERY
  assert len(call.prompt.state.steps) == 2
  taken(walk, said('<think>secret</think>' + write_idea(IDEA)))
  call = open_call(walk)
  assert call.role == IMPLEMENTER and call.prompt.calls_left == 1
  shown = call.prompt.state.steps[-1].observation
  assert 'Use Ridge.' in shown and 'secret' not in shown
  assert len(call.prompt.state.steps) == 2  # a question is one step


def test_an_answer_without_the_three_items_is_not_carried_out():
  walk = taken(begun(runs()), said(HELP), said('just use Ridge'))
  call = open_call(walk)
  assert isinstance(call, Generate) and call.role == IMPLEMENTER
  shown = steps(walk)[-1].observation
  assert 'no usable answer' in shown and 'ANALYSIS' in shown
  assert 'just use Ridge' not in shown


def test_after_the_last_answer_a_question_gets_none():
  walk = begun(runs(Adviser(max_calls=1)))
  taken(walk, said(HELP), said(write_idea(IDEA)), said(HELP))
  call = open_call(walk)
  assert call.role == IMPLEMENTER and call.prompt.calls_left == 0
  assert 'had your 1 answers' in steps(walk)[-1].observation


def test_a_fixed_sentence_answers_without_a_call():
  walk = taken(begun(runs(Adviser(role='', sentence='Go on.'))), said(HELP))
  assert open_call(walk).role == IMPLEMENTER
  assert 'Go on.' in steps(walk)[-1].observation


def test_without_an_ideator_a_question_is_no_action():
  walk = taken(begun(runs(None)), said(HELP))
  (step,) = steps(walk)
  assert (step.kind, step.outcome) == ('invalid', O.INVALID_FORMAT)
  assert open_call(walk).prompt.calls_left == 0


@pytest.mark.parametrize(
  'text', ['', 'no action', '<execute_python>x</execute_python>', '\x00', HELP * 2]
)  # fmt: skip
def test_a_message_without_one_action_costs_a_step_and_says_the_format(text):
  walk = taken(begun(runs()), said(text))
  (step,) = steps(walk)
  assert step.kind == 'invalid' and step.text == parser.plain(text)
  assert '<execute_ipython>' in step.observation
  assert open_call(walk).role == IMPLEMENTER


@pytest.mark.parametrize(
  'text',
  ['no action \ud800', f'<think>\ud800</think>{program()}', f'\0{program()}'],
)
def test_whatever_an_implementer_writes_an_ideators_tokenizer_can_read(text):
  walk = taken(begun(runs()), said(text))
  call = open_call(walk)
  if isinstance(call, Execute):
    assert parser.is_text(call.request.text)
  else:
    assert parser.is_text(steps(walk)[-1].text)
    assert steps(walk)[-1].kind == 'invalid'


def test_a_run_ends_by_finish_steps_or_time():
  assert taken(begun(runs()), said(FINISH)).finished
  walk = taken(begun(runs(steps=2)), said('nothing'), said('nothing'))
  assert walk.finished and len(steps(walk)) == 2
  walk = taken(begun(runs(seconds=10.0)), said(program(), 4.0))
  assert open_call(walk).request.most_s == 6.0
  taken(walk, executed(exec_s=6.0, outcome=O.TIMEOUT))
  assert walk.finished and walk.credits == {}


def test_the_policy_as_ideator_gets_no_reward_in_a_run():
  adviser = Adviser(POLICY, prompt=lambda at: IDS, text=text_of)
  walk = taken(begun(runs(adviser)), said(HELP))
  assert open_call(walk).role == POLICY
  taken(walk, sampled(write_idea(IDEA)), said(FINISH))
  assert walk.finished
  (credit,) = walk.credits.values()
  assert credit.reason is NoReward.NOT_CREDITED
  assert 'Use Ridge.' in steps(walk)[-1].observation


def test_scores_of_a_run_are_those_of_its_programs():
  walk = taken(
    begun(runs()),
    said(program('a')),
    executed('a', 0.5, private=0.6),
    said('nothing'),
    said(program('b')),
    executed('b', outcome=O.SCRIPT_ERROR),
    said(FINISH),
  )
  assert interaction.scores(walk) == [(0.5, 0.6), (None, None)]
  assert interaction.whole_scores(walk) == [pytest.approx(0.7), None]


def test_every_prefix_of_a_run_is_restored_by_its_results():
  results = [
    said('nothing'),
    said(program('a'), 1.0),
    executed('a', 0.5),
    said(HELP, 1.0),
    said(write_idea(IDEA), 2.0),
    said(program('b')),
    executed('b', 0.4),
    said(HELP),
    said('no idea'),
    said(FINISH),
  ]
  whole = taken(begun(runs()), *results)
  assert whole.finished
  for known in range(len(results)):
    again = begun(runs())
    again.fold([(c.call, r) for c, r in whole.results[:known]])
    taken(again, *results[known:])
    assert again.state == whole.state and again.credits == whole.credits


# Ideas --------------------------------------------------------------------------


def pooled(score: float | None = 0.5, last: float | None = None) -> HelpState:
  at = state()
  for code, value in (('x = 1', score), ('x = 2', last)):
    if value is not None:
      effect = Effect(
        PastTurn('ipython', code, 'out', O.OK, value, 1.0),
        None,
        Program('ipython', code),
      )
      at = at.after(effect)
  return HelpState('key', 'run', at.with_step('seek_help', HELP), noise=0.01)


def idea(item: HelpState, *results, **options) -> RolloutState:
  made = Ideas(lambda one: IDS, text_of, **options)
  walk = RolloutState(made, item, roles=(POLICY, IMPLEMENTER))
  return taken(walk, *results)


def credited(*results, item=None, **options):
  walk = idea(item or pooled(), *results, **options)
  assert walk.finished and set(walk.credits) == {0}
  credit = walk.credits[0]
  assert credit.record.derive() == credit.reward
  assert credit.record.result.value
  return credit


GOOD = sampled(write_idea(IDEA))


def test_an_idea_is_carried_out_in_one_message_and_one_execution():
  walk = idea(pooled(), GOOD)
  call = open_call(walk)
  assert call.role == IMPLEMENTER and 'Use Ridge.' in (
    call.prompt.state.steps[-1].observation
  )
  taken(walk, said(program('x = 3')))
  assert isinstance(open_call(walk), Execute)
  taken(walk, executed('x = 3', 0.4))
  record = walk.credits[0].record
  assert walk.credits[0].reward == 1.0 and walk.credits[0].exec_s == 2.0
  assert record.entries['ACTION'] == 'Use Ridge.' and record.tier == 'T2'
  assert (record.score_before, record.score_after) == (0.5, 0.4)
  assert '+x = 3' in record.diff


@pytest.mark.parametrize(
  ('results', 'reward', 'result'),
  [
    ([sampled('no idea')], -1.0, IdeaResult.FORMAT_ERROR),
    ([GOOD, said('nothing')], 0.0, IdeaResult.BAD_MESSAGE),
    ([GOOD, said(HELP)], 0.0, IdeaResult.BAD_MESSAGE),
    ([GOOD, said(FINISH)], 0.0, IdeaResult.BAD_MESSAGE),
    ([GOOD, said(program()), executed('z', 0.5)], 0.0, IdeaResult.NOT_BETTER),
    ([GOOD, said(program()), executed('z', 0.6)], 0.0, IdeaResult.NOT_BETTER),
    ([GOOD, said(program()), executed('x = 1', 0.4)], 0.0, IdeaResult.NO_OP),
    (
      [GOOD, said(program()), executed('z', None, O.NO_SUBMISSION)],
      0.0,
      IdeaResult.NO_SUBMISSION,
    ),
    (
      [GOOD, said(program()), executed('z', None, O.TIMEOUT)],
      0.0,
      IdeaResult.FAILED,
    ),
  ],
)
def test_what_an_idea_earns(results, reward, result):
  credit = credited(*results)
  assert credit.reward == reward and credit.record.result is result


def test_a_record_keeps_the_thoughts_and_no_role_is_shown_them():
  thoughtful = sampled('<think>mine</think>\n' + write_idea(IDEA))
  message = types.TextCompletion(program('z'), {'thoughts': 'its own'})
  walk = idea(pooled(), thoughtful)
  assert 'mine' not in open_call(walk).prompt.state.steps[-1].observation
  record = taken(walk, message, executed('z', 0.4)).credits[0].record
  assert (record.thoughts, record.implementer_thoughts) == ('mine', 'its own')


def test_an_idea_that_is_none_is_never_carried_out():
  walk = idea(pooled(), sampled('ACTION: Use Ridge.'))
  assert walk.finished and len(walk.results) == 1
  assert walk.credits[0].record.format_error


def test_programs_whose_difference_takes_minutes_to_find_have_none():
  marks = [chr(256 + number) for number in range(128)]
  made = lambda end: '\n'.join(
    m for n in range(6000) for m in (marks[n % 128], end)
  )
  old, new = made('('), made(')')
  at = state().after(Effect.from_json(executed(old, 0.5).state))
  item = HelpState('key', 'run', at.with_step('seek_help', HELP))
  began = time.monotonic()
  credit = credited(GOOD, said(program()), executed(new, 0.4), item=item)
  assert time.monotonic() - began < 10 and credit.record.diff == ''


def test_going_back_to_the_best_earns_nothing_but_with_last():
  item = pooled(0.5, last=0.7)  # lower is better: the last is behind
  results = [GOOD, said(program()), executed('x = 1', 0.5)]
  assert credited(*results, item=item).record.result is IdeaResult.NO_OP
  assert credited(*results, item=item, before='last').reward == 1.0


def test_a_first_score_earns_what_the_setting_says():
  item = pooled(None)
  results = [GOOD, said(program()), executed('z', 0.5)]
  for setting, reward in (
    ('1', 1.0),
    ('0', 0.0),
    ('leave_out', NoReward.NOT_CREDITED),
  ):
    assert credited(*results, item=item, first_score=setting).reward == reward


def test_a_gain_within_the_margin_is_none():
  results = [GOOD, said(program()), executed('z', 0.485)]
  assert credited(*results, margin=1.0).reward == 1.0
  assert credited(*results, margin=2.0).reward == 0.0


def test_an_unknown_before_names_the_choices():
  with pytest.raises(ValueError, match='best, last'):
    Ideas(lambda one: IDS, text_of, before='first')


def test_records_of_ideas_pass_through_a_journal():
  from jaxagent import records

  record = credited(GOOD, said(program()), executed('z', 0.4)).record
  again = records.from_json(json.loads(json.dumps(records.to_json(record))))
  assert again == record and again.derive() == 1.0


def test_the_family_of_a_scripted_idea_gives_its_type():
  results = [GOOD, said(program()), executed('z', 0.4)]
  record = credited(*results, family_of=lambda action, task: 'scale').record
  assert (record.family, record.idea_type) == ('scale', 'Feature Engineering')
  assert credited(*results).record.idea_type == ''


# What roles are shown -----------------------------------------------------------


def test_the_state_that_an_ideator_is_shown_is_that_of_the_paper():
  from jaxagent.testing import fake_runs

  spec = fake_runs.task_spec(research_problem='Predict.', metric='rmse')
  item = pooled(0.5, last=0.7)
  shown = interaction.shown_state(item.state, spec)
  assert (shown.task, shown.score, shown.code) == ('Predict.', 0.5, 'x = 1')
  assert shown.query == QUERY and len(shown.steps) == 2
  last = interaction.shown_state(item.state, spec, 'last')
  assert (last.score, last.code) == (0.7, 'x = 2')
  with pytest.raises(ValueError, match='does not end with a question'):
    interaction.shown_state(state(), spec)


def test_the_chat_of_an_implementer_loses_whole_steps_alone():
  at = pooled(0.5, last=0.7).state.answered('the idea')
  question = Question('run', at)
  whole = interaction.chat_of(question, Briefing('Predict.'))
  assert len(whole) == 2 + 2 * 3 and whole[-1]['content'] == 'the idea'
  cut = interaction.chat_of(
    question, Briefing('Predict.'), fits=lambda messages: len(messages) <= 4
  )
  assert [m['content'] for m in cut[2:]] == [HELP, 'the idea']
