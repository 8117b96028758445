"""Types of ideas: by rule from a family, or as a model names them."""

from __future__ import annotations

import random

import pytest

from jaxagent.recipes.ideator import types_of
from jaxagent.recipes.ideator.parser import Idea
from jaxagent.recipes.ideator.types_of import TYPES, UNPARSED, parse_type
from jaxagent.stand_ins import moves

IDEA = Idea('Keep it.', 'Scale the features.', 'They differ in size.')


def test_the_types_are_the_six_of_appendix_e():
  assert list(TYPES) == [
    'Data Preparation',
    'Feature Engineering',
    'Model Architecture',
    'Hyperparameter Tuning',
    'Model Training',
    'Others',
  ]


def test_every_family_of_the_stand_ins_has_a_type():
  assert set(types_of.FAMILIES) == set(moves.PHRASES)
  assert {types_of.type_of_family(name) for name in moves.PHRASES} == set(TYPES)
  assert types_of.type_of_family('no such family') == 'Others'


@pytest.mark.parametrize('name', TYPES)
@pytest.mark.parametrize(
  'answer',
  [
    'TYPE: {}\n\nRATIONALE: It is so.',
    'TYPE:\n{}\nRATIONALE:\nIt is so.',
    '\n TYPE: "{}"\n\nRATIONALE: It is so.\n',
    'TYPE: **{}**\nRATIONALE: It is so.',
    'TYPE: `{}`.\nRATIONALE: It is so.',
    '<think>TYPE: Others\nRATIONALE: no</think>\nTYPE: {}\nRATIONALE: It is so.',
  ],
)
def test_an_answer_that_names_a_type_is_read(name, answer):
  assert parse_type(answer.format(name)) == name
  assert parse_type(answer.format(name.lower())) == name


@pytest.mark.parametrize(
  'answer',
  [
    '',
    'Feature Engineering',
    'TYPE: Feature Engineering',
    'RATIONALE: x\nTYPE: Others',
    'TYPE: Features\nRATIONALE: x',
    'TYPE: Feature Engineering and Model Training\nRATIONALE: x',
    'TYPE:\nRATIONALE: x',
    'TYPE: Others\nTYPE: Others\nRATIONALE: x',
    'It is:\nTYPE: Others\nRATIONALE: x',
    '<think>TYPE: Others\nRATIONALE: x',
    'TYPE: Others\nRATIONALE: ' + 'x' * 1_000_000,
    None,
    7,
  ],
)
def test_a_nonsense_answer_is_unparsed(answer):
  assert parse_type(answer) == UNPARSED


def test_mutated_answers_give_a_type_or_unparsed():
  rng = random.Random(64)
  seen = set()
  for _ in range(5000):
    text = list(f'TYPE: {rng.choice([*TYPES])}\nRATIONALE: It is so.')
    for _ in range(rng.randint(0, 3)):
      text[rng.randrange(len(text))] = chr(rng.randrange(0x110000))
    seen.add(parse_type(''.join(text)))
  assert seen == {*TYPES, UNPARSED}


def test_the_question_shows_trace_and_idea_and_names_every_type():
  (message,) = types_of.question('STEP 1\nls', IDEA)
  assert message['role'] == 'user'
  for part in ('STEP 1\nls', IDEA.text, *TYPES, *TYPES.values()):
    assert part in message['content']


def test_shares_and_effectiveness_count_ideas_by_type():
  ideas = [
    ('Others', True),
    ('Others', False),
    (UNPARSED, False),
    ('Model Training', True),
  ]
  assert types_of.shares([kind for kind, _ in ideas]) == {
    **dict.fromkeys(TYPES, 0.0),
    'Model Training': 25.0,
    'Others': 50.0,
    UNPARSED: 25.0,
  }
  assert types_of.effectiveness(ideas) == {
    'Model Training': (1, 100.0),
    'Others': (2, 50.0),
    UNPARSED: (1, 0.0),
  }
  assert types_of.shares([]) == {} and types_of.effectiveness([]) == {}
