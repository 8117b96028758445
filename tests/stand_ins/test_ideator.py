"""Scripted Ideators: their answers, and the texts of a tiny policy."""

from __future__ import annotations

import collections
import dataclasses
import random

import pytest

from jaxagent.data.bpe import train
from jaxagent.envs.agents.implementer import idea_message
from jaxagent.envs.implementer_state import Effect, PastTurn, Program
from jaxagent.envs.model_line import step_names
from jaxagent.graders import METRICS
from jaxagent.recipes.ideator.parser import Idea, parse_idea, write_idea
from jaxagent.recipes.ideator.types_of import type_of_family
from jaxagent.stand_ins import ideator, moves
from jaxagent.stand_ins.editor import ScriptedEditor
from jaxagent.stand_ins.ideator import (
  BlindIdeator,
  ScriptedIdeator,
  as_another_task,
  compact_prompt,
  family_of,
  moves_said,
  tried_moves,
)
from jaxagent.stand_ins.implementer import ScriptedImplementer
from jaxagent.types import Outcome
from tests.stand_ins.test_implementer import (
  SPECS,
  SURE,
  after,
  initial,
  played,
  stuck,
)
from tests.subset import fast

TEACHER = ScriptedIdeator()


@pytest.mark.parametrize('name', SPECS)
def test_every_answer_is_an_idea_in_its_format(name):
  state, _ = played(name, [0.0])
  for one in (TEACHER, BlindIdeator()):
    for seed in range(60):
      items = one.items(state, SPECS[name], random.Random(seed))
      idea = Idea(*items)
      assert parse_idea(write_idea(idea)) == idea


def test_answers_depend_on_state_and_seed_alone():
  state = stuck()
  for one in (TEACHER, BlindIdeator()):
    again = [one.items(state, SPECS['wine'], random.Random(3)) for _ in '12']
    assert again[0] == again[1]
    many = {
      one.items(state, SPECS['wine'], random.Random(n)) for n in range(50)
    }
    assert len(many) > 25


def test_the_teacher_names_no_step_that_is_not_there_and_a_blind_one_does():
  state, spec = stuck('digits'), SPECS['digits']
  present = set(step_names(state.best.program.code))
  said = moves_said(spec.kind, spec.modality)

  def absent(one) -> int:
    drawn = [one.items(state, spec, random.Random(n)) for n in range(300)]
    named = [said[action.rstrip('.')] for _, action, _ in drawn]
    return sum(bool(m.needs) and not present & set(m.needs) for m in named)

  assert absent(TEACHER) == 0 and absent(BlindIdeator()) > 10


def test_the_teacher_does_not_repeat_an_idea_in_other_words():
  state, spec = stuck(), SPECS['wine']
  tried = []
  for seed in range(12):
    items = TEACHER.items(state, spec, random.Random(seed))
    tried.append(moves_said(spec.kind, spec.modality)[items[1].rstrip('.')])
    state = state.answered(idea_message(Idea(*items).text))
    text = ScriptedImplementer(SURE, max_steps=99).message(
      state, spec, random.Random(seed)
    )
    state = after(state, text, -0.1).with_step('seek_help', 'again')
    assert tried_moves(state, spec) >= set(tried)
  assert len(set(tried)) == len(tried)


def test_a_blind_idea_does_not_depend_on_the_state():
  states = [stuck(), initial('wine'), played('wine', [0.0, 1.0])[0]]
  for seed in range(30):
    answers = {
      BlindIdeator().items(state, SPECS['wine'], random.Random(seed))
      for state in states
    }
    assert len(answers) == 1


def test_several_answers_of_a_state_have_different_actions():
  answers = TEACHER.answers(stuck(), SPECS['wine'], random.Random(0), 6)
  assert len({action for _, action, _ in answers}) == len(answers) == 6


def test_better_moves_are_drawn_more_often_with_quality():
  def worth(quality: float) -> float:
    one, state = ScriptedIdeator(quality), stuck()
    said = {
      phrase.format(**dict(m.values)): m.worth
      for m in ideator.stock('classification', 'tabular')
      for phrase in moves.PHRASES[m.family]
    }
    drawn = [
      said[one.items(state, SPECS['wine'], random.Random(n))[1][:-1]]
      for n in range(400)
    ]
    return sum(drawn) / len(drawn)

  assert worth(0.0) + 0.1 < worth(1.0)
  with pytest.raises(ValueError, match='between 0 and 1'):
    ScriptedIdeator(2.0)


@pytest.mark.parametrize('name', fast(SPECS, first=2))
def test_most_of_the_teachers_ideas_can_be_carried_out(name):
  state, spec = stuck(name), SPECS[name]
  editor, refused = ScriptedEditor(), 0
  for seed in range(25):
    action = TEACHER.items(state, spec, random.Random(seed))[1]
    try:
      assert editor.edit(state.best.program.code, action)
    except Exception:  # noqa: BLE001 - counted
      refused += 1
  assert refused <= 3


@pytest.mark.parametrize('name', SPECS)
def test_the_family_of_every_scripted_idea_is_known(name):
  spec = SPECS[name]
  for move in moves.moves_for(spec.kind, spec.modality):
    action = f'{move.say(random.Random(0))}.'
    found = family_of(action, spec.kind, spec.modality)
    assert found == move.family
    assert type_of_family(found)


@pytest.mark.parametrize(
  ('action', 'family'),
  [
    ('Use Ridge(alpha=77).', 'estimator'),
    ('Stack Ridge() and SVR()', 'ensemble'),
    ('Set alpha of Ridge to 77', 'set'),
    ('Wrap the estimator in BaggingRegressor(n_estimators=77)', 'wrap'),
    ('Insert MinMaxScaler() before Ridge', 'scale'),
    ('', ''),
    ('\x00 \ud800 (((', ''),
    ('Think harder.', ''),
  ],
)
def test_the_family_of_another_idea_is_told_by_its_words(action, family):
  assert family_of(action, 'regression', 'tabular') == family


@pytest.mark.parametrize('code', ['', '\x00', 'def (', 'model = 1', '(' * 3000])
def test_no_state_makes_an_ideator_raise(code):
  step = PastTurn('bash', code, '\ud800', Outcome.OK, 99.0)
  odd = initial('wine').after(Effect(step, None, Program('bash', code)))
  odd = odd.with_step('seek_help', code)
  for state in (odd, initial('wine')):
    for spec in SPECS.values():
      for one in (TEACHER, BlindIdeator()):
        items = one.items(state, spec, random.Random(0))
        assert parse_idea(write_idea(Idea(*items))) == Idea(*items)
      assert 'Tried:' in compact_prompt(state, spec)


def test_where_every_move_was_tried_ideas_begin_again():
  state, spec = stuck(), SPECS['wine']
  for move in ideator.stock(spec.kind, spec.modality):
    step = PastTurn('ipython', f'I carry out: {move.say()}\n', '')
    state = state.after(Effect(step))
  assert not set(ideator.stock(spec.kind, spec.modality)) - tried_moves(
    state, spec
  )
  assert TEACHER.items(state, spec, random.Random(0))


# The same state of another task --------------------------------------------------


def _others(name: str, count: int = 60):
  state = stuck(name)
  return [
    as_another_task(state, SPECS[name], random.Random(seed))
    for seed in range(count)
  ]


@pytest.mark.parametrize('name', ['wine', 'diabetes', 'unicode-script'])
def test_as_another_task_a_prompt_says_one_kind_metric_and_side(name):
  seen = set()
  for state, spec in _others(name):
    text = compact_prompt(state, spec)
    better = 'higher' if spec.higher_is_better else 'lower'
    assert text.startswith(
      f'Task: {spec.modality} {spec.kind}\nMetric: {spec.metric}, {better} is'
    )
    assert f'Problem: {spec.metric} stays at' in text
    assert f'Goal: {better.capitalize()} {spec.metric} than' in text
    other = 'Classifier' if spec.kind != 'classification' else 'Regressor'
    assert other not in text.split('Tried:')[0]
    assert (spec.metric in ('rmse', 'mae')) == (spec.kind != 'classification')
    assert (spec.modality == 'text') == (SPECS[name].modality == 'text')
    seen.add((spec.modality, spec.kind, spec.metric))
  assert len(seen) >= (6 if SPECS[name].modality == 'text' else 15)


def test_as_another_task_the_teacher_answers_for_that_one():
  for state, spec in _others('wine', 200):
    action = TEACHER.items(state, spec, random.Random(1))[1]
    assert ideator._plain(action) in moves_said(spec.kind, spec.modality)


def test_as_another_task_a_state_of_a_task_without_a_metric_keeps_its_words():
  spec = dataclasses.replace(SPECS['wine'], metric='')
  state = stuck('wine')
  for seed in range(10):
    other, _ = as_another_task(state, spec, random.Random(seed))
    for was, now in zip(state.steps, other.steps, strict=True):
      assert len(was.text.split()) == len(now.text.split())
      assert 'accuracy' not in now.text and 'rmse' not in now.text


def test_the_metrics_of_other_tasks_are_those_that_bundled_tasks_may_have():
  own = ideator._CLASSIFICATION_METRICS | ideator._REGRESSION_METRICS
  assert own == METRICS


def test_as_another_task_steps_and_scores_stay():
  state = stuck('wine')
  for other, _ in _others('wine'):
    assert [s.score for s in other.steps] == [s.score for s in state.steps]
    assert other.task == state.task and other.start_score == state.start_score
    assert len(step_names(ideator.code_of(other))) == len(
      step_names(ideator.code_of(state))
    )


def test_as_another_task_a_parameter_named_as_the_metric_stays():
  text = (
    "<execute_ipython>\nm = SGDClassifier(loss='log_loss')\n</execute_ipython>"
  )
  state = after(initial('wine'), text, 0.1)
  for seed in range(20):
    other, _ = as_another_task(state, SPECS['wine'], random.Random(seed))
    assert "(loss='log_loss')" in ideator.code_of(other)


# Texts of a tiny policy ---------------------------------------------------------


def test_the_prompt_holds_what_an_idea_may_depend_on():
  text = compact_prompt(stuck('diabetes'), SPECS['diabetes'])
  for part in (
    'tabular regression', 'rmse, lower is better', 'DecisionTreeRegressor',
    'Tried:', '- ', 'Problem: rmse stays at', 'Goal: Lower rmse',
  ):  # fmt: skip
    assert part in text, part
  for name in SPECS:
    assert name not in compact_prompt(stuck(name), SPECS[name])


@pytest.mark.slow
def test_prompt_and_answer_are_short_for_a_tokenizer_of_their_own():
  texts, lengths = [], collections.defaultdict(list)
  pairs = []
  for name, spec in SPECS.items():
    for seed in range(12):
      state = stuck(name)
      for items in TEACHER.answers(state, spec, random.Random(seed), 4):
        pairs.append((compact_prompt(state, spec), write_idea(Idea(*items))))
  for prompt, answer in pairs:
    texts += [prompt, answer]
  tokenizer = train(texts, 1024)
  for prompt, answer in pairs:
    lengths['prompt'].append(len(tokenizer.encode(prompt)))
    lengths['answer'].append(len(tokenizer.encode(answer)))
  assert sum(lengths['prompt']) / len(pairs) < 160 and max(lengths['prompt']) < 260  # fmt: skip
  assert sum(lengths['answer']) / len(pairs) < 70 and max(lengths['answer']) < 130  # fmt: skip
