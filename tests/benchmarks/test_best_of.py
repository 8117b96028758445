"""The table of programs has all of the grammar, and the figures are exact."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from benchmarks import best_of, programs
from jaxagent.envs.tasks import load_task
from jaxagent.files import bundled
from jaxagent.stand_ins import grammar, programmer

DIGITS = load_task('digits', bundled.folder('tasks'))


def made(seed: int = 0, higher: bool = True):
  """A task of 18 programs with made-up scores; every seventh fails."""
  rng = np.random.default_rng(seed)
  models = {'A': 0.5, 'B': 0.25, 'C': 0.25}
  rows = []
  for i, (before, model, size) in enumerate(
    itertools.product(('', 'Scaled'), models, ('1', '2', '3'))
  ):
    row = {
      'options': [
        ['before', before],
        ['model', model],
        [f'{model} size', size],
      ]
    }
    if i % 7 == 6:
      row['failed'] = 'made up'
    else:
      row |= {
        'valid': round(rng.random(), 1),
        'private': rng.random(),
        'seconds': 0.1 + rng.random(),
      }
    rows.append(row)
  sizes = {'1': 0.6, '2': 0.3, '3': 0.1}
  return {
    'higher_is_better': higher,
    'm_init': 0.2,
    'm_best': 0.9,
    'start': {
      'before': {'': 0.7, 'Scaled': 0.3},
      'model': models,
      **{f'{m} size': sizes for m in models},
    },
    'programs': rows,
  }


def test_every_program_that_the_author_draws_is_written_once():
  known = [one.name for one in grammar.written(DIGITS)]
  assert len(known) == len(set(known))
  author = programmer.ScriptedProgrammer(
    programmer.Columns(('a',), 'b', ('b',)), p_slip=0
  )
  rng = random.Random(0)
  drawn = {', '.join(author.design(DIGITS, rng).calls) for _ in range(2000)}
  assert drawn <= set(known) and len(drawn) > 300


def test_a_choice_is_made_as_often_as_the_author_makes_it():
  start = programs.start(DIGITS)
  for chances in start.values():
    assert sum(chances.values()) == pytest.approx(1)
  rng = random.Random(1)
  author = programmer.ScriptedProgrammer(
    programmer.Columns(('a',), 'b', ('b',)), p_slip=0
  )
  firsts = [author.design(DIGITS, rng).rows[0] for _ in range(4000)]
  assert np.mean([one == 'MinMaxScaler' for one in firsts]) == pytest.approx(
    start['before']['MinMaxScaler'], abs=0.03
  )


@pytest.mark.parametrize('higher', [True, False])
def test_figures_are_those_of_all_pairs(higher):
  table = best_of.Table(made(higher=higher))
  found = table.figures(table.start)
  p = np.exp(table.log_probs(table.start)[1])
  assert p.sum() == pytest.approx(1)
  assert p[-1] == pytest.approx(best_of.SLIP)
  sign = 1 if higher else -1
  place = np.empty(len(p), int)
  place[table.rank] = np.arange(len(p))
  best = private = 0.0
  for i, j in itertools.product(range(len(p)), repeat=2):
    chosen = i if place[i] > place[j] else j
    assert sign * table.shown[chosen] >= sign * min(
      table.shown[[i, j]], key=lambda s: sign * s
    )
    best += p[i] * p[j] * table.shown[chosen]
    private += p[i] * p[j] * table.shown_private[chosen]
  assert found['best']['2'] == pytest.approx(best, abs=1e-12)
  assert found['private']['2'] == pytest.approx(private, abs=1e-12)
  assert found['valid'] == pytest.approx(p @ table.works)


def test_an_update_follows_the_gradient_of_the_mean(monkeypatch):
  """One update of a large batch moves each choice as its exact gradient says."""
  table = best_of.Table(made())
  monkeypatch.setattr(best_of, 'UPDATES', 1)
  monkeypatch.setattr(best_of, 'BATCH', 4096)
  monkeypatch.setattr(table, 'figures', lambda logits: logits - table.start)
  arm = best_of.Arm(best_of._mean, failure=-1.0)
  moved = best_of.trained(table, arm, 0.1, 0, 4096)
  pay = table.pay(arm)

  def value(logits):
    p = np.exp(table.log_probs(logits)[1])
    return p @ pay

  steps = 1e-5 * np.eye(len(table.start))
  exact = np.array(
    [(value(table.start + s) - value(table.start - s)) / 2e-5 for s in steps]
  )
  clear = np.abs(exact) > 0.02
  assert clear.sum() >= 4
  # Adam's first step is the sign of the gradient.
  np.testing.assert_allclose(
    moved[clear], 0.1 * np.sign(exact[clear]), rtol=1e-4
  )


def test_shuffled_rewards_are_those_of_others():
  table = best_of.Table(made())
  arms = best_of.ARMS
  shuffled = arms['best of 8, duration weights, shuffled rewards']
  gains = [
    best_of.trained(table, arm, 0.2, 0, 64)['best']['1']
    - table.figures(table.start)['best']['1']
    for arm in (shuffled, arms['best of 8, no weights'])
  ]
  assert gains[1] > 0.1 > gains[0]


def test_the_agreement_of_both_scores_is_among_the_best():
  """Of 120 programs 12; the others disagree."""
  rows = [
    {'valid': i, 'private': i if i >= 108 else -i, 'seconds': 1.0}
    for i in range(120)
  ]
  programs = [{'failed': 'why'}, *rows]
  task = {'higher_is_better': True, 'programs': programs}
  assert best_of.agreement(task) == pytest.approx(1)
