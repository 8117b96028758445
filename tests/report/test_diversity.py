"""Verb and noun of instructions, those of paper 000 among them."""

import math

import pytest

from jaxagent.analysis import diversity
from jaxagent.analysis.diversity import verb_noun
from tests import made


@pytest.mark.parametrize(
  'text, pair',
  [
    ('Change the learning rate from 1e-4 to 1e-5.', ('change', 'rate')),
    ('Create new interaction features by multiplying', ('create', 'feature')),
    (
      'Increase the complexity of the U-Net model by adding two layers',
      ('increase', 'complexity'),
    ),
    (
      'Modify the feature extraction process to average the scores',
      ('modify', 'process'),
    ),
    ('Add text preprocessing steps before vectorization.', ('add', 'step')),
    ('Add 2 dropout layers', ('add', 'layer')),
    ('Replace it with a random forest', ('replace', 'forest')),
    ('In the train set, drop missing rows', ('drop', 'row')),
    ('Please use class weights', ('use', 'weight')),
    ('Set learning_rate=0.01', ('set', 'learning_rate')),
    ('Fine-tune all layers', ('fine-tune', 'layer')),
    ('Prune the tree', ('prune', 'tree')),  # the first word
    ('First, prune the tree', ('prune', 'tree')),
    ('To reduce overfitting, add dropout', ('add', 'dropout')),
    ('You need to change the batch size', ('change', 'size')),
    ('Analyses', None),
    ('add', None),
    ('Increase to 0.3', None),
    ('', None),
    ('12 %', None),
  ],
)
def test_verb_noun(text, pair):
  assert verb_noun(text) == pair


def test_counted_by_hand():
  got = diversity.counts(
    ['Add dropout', 'Add a dropout', 'Add two layers', 'Tune the lr', 'add']
  )
  assert got['nouns'] == {'add': {'dropout': 2, 'layer': 1}, 'tune': {'lr': 1}}
  assert (got['instructions'], got['parsed'], got['distinct']) == (5, 4, 3)
  by_hand = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
  assert got['entropy'] == pytest.approx(by_hand)


def test_policies_compare_by_as_many_instructions():
  said = [f'Add layer{i % 7}' for i in range(300)] + ['Tune the lr'] * 10
  got = diversity.figure8(said, seed=1, n=100)
  assert (got['instructions'], got['of']) == (100, 310)
  assert got['nouns'].keys() <= {'add', 'tune'} and got['nouns']['add'] == 7
  assert got == diversity.figure8(said, seed=1, n=100)
  assert diversity.figure8(said[:3], seed=1)['instructions'] == 3
  assert diversity.figure8([], seed=1) == {'instructions': 0, 'of': 0}


def test_one_pair_and_none():
  assert diversity.counts(['Add dropout'])['entropy'] == 0.0
  none = diversity.counts(['', 'add'])
  assert none['entropy'] is None and none['distinct'] == 0


@pytest.mark.parametrize('bad', [[], 'Add dropout', [None], [3]])
def test_instructions_that_are_no_list_of_texts_are_refused(bad):
  with pytest.raises(ValueError):
    diversity.counts(bad)


def test_instructions_of_edits_alone():
  def step(action, **args):
    return made.step(action=action, args=args)

  edit, other = 'Edit Script (AI)', 'Copy File'
  records = [
    made.evaluated(step(edit, edit_instruction='a'), step(other)),
    made.evaluated(step(other, edit_instruction='b'), step(edit)),
  ]
  assert diversity.instructions_of(records) == ['a']
