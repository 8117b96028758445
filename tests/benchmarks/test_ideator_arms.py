"""Figures of the scripted arms, by hand; the runs themselves are the benchmark's."""

from __future__ import annotations

import random

import pytest

from benchmarks import ideator_arms
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.types import Outcome
from tests.stand_ins.test_implementer import SPECS, after, initial, stuck


class _Bench:
  """Tasks without a sandbox; the starter has 0, the best recorded 100."""

  starts = {name: (0.0, 0.5) for name in SPECS}

  def spec(self, task: str):
    return SPECS[task]

  def tasks(self, split: str) -> list[str]:
    return ['wine', 'digits'] if split == 'heldin' else []


def _record(action: str, gained: bool) -> IdeaRecord:
  return IdeaRecord(
    task='wine',
    outcome=Outcome.OK,
    entries={'ACTION': action},
    score_before=1.0,
    score_after=0.5 if gained else 1.5,
    higher_is_better=False,
  )


def test_the_table_prefers_what_worked_before():
  good, bad = 'Use SVC(C=10) as the model.', 'Add StandardScaler() before the estimator.'  # fmt: skip
  state = stuck()
  tried = [(state, _record(good, True)), (state, _record(bad, False))] * 20
  table = ideator_arms.Table(tried, _Bench())
  moves = {m.say(): m for m in ideator_arms.ideator.stock('classification', 'tabular')}  # fmt: skip
  svc, scaler = (
    table.chance(SPECS['wine'], state, moves[name])
    for name in (
      'Replace the estimator with SVC(C=10)',
      'Add StandardScaler() before the estimator',
    )
  )
  assert scaler < 0.1 < 0.9 < svc
  families = [
    ideator_arms.family_of(
      table.items(state, SPECS['wine'], random.Random(n))[1],
      'classification',
      'tabular',
    )
    for n in range(20)
  ]
  assert set(families) == {'estimator'}


def test_an_idea_counts_as_improving_by_the_next_program_alone():
  state = initial('wine')
  script = ideator_arms.implementer.ScriptedImplementer(
    ideator_arms.implementer.Habits(slips=0.0)
  )
  state = stuck()
  idea = ideator_arms.Idea('Leave it.', 'Use SVC(C=10).', 'Why.')
  for gain in (0.5, -0.5):
    asked = state.answered(f'The adviser answers:\n\n{idea.text}')
    text = script.message(asked, SPECS['wine'], random.Random(0))
    done = after(asked, text, gain)
    done = after(done, text, 1.0)  # a later gain is not the idea's
    assert list(ideator_arms._ideas_of(done, SPECS['wine'])) == [
      ('estimator', gain > 0)
    ]


def _ended(task: str, score: float | None, index: int):
  return ideator_arms.Ended(
    task, index, 0, score, score, (score,), (('scale', True),), (3,), 7
  )


def test_figures_are_means_over_tasks_of_triples():
  bench = _Bench()
  one, two = bench.tasks('heldin')
  ended = [_ended(one, s, i) for i, s in enumerate((10.0, 20.0, 60.0))]
  ended += [_ended(two, s, i) for i, s in enumerate((None, None, 30.0))]
  found = ideator_arms.figures(bench, ended)
  assert found['heldin']['avg'] == pytest.approx((30 + 30) / 2)
  assert found['heldin']['best'] == pytest.approx((60 + 30) / 2)
  assert found['heldin']['improve'] == 1.0 and found['heldin']['steps'] == 7
  result = {
    'executions': 7,
    'wall_s': 2.0,
    'arms': {'teacher': found},
    'families': ideator_arms.by_family([('scale', True), ('scale', False)]),
  }
  assert found['heldout']['avg'] is None
  assert '| teacher | 30, 45 | ,  | 1.00,  |' in ideator_arms.table(result)
  assert 'scale 0.50 (2)' in ideator_arms.table(result)


def test_a_score_below_the_starter_is_zero_and_above_the_best_has_no_cut():
  normalised = ideator_arms.Bench.normalised
  bench, best = _Bench(), SPECS['wine'].m_best_private
  assert normalised(bench, 'wine', 0.9) == 0.0  # a loss
  assert normalised(bench, 'wine', best) == pytest.approx(100.0)
  assert normalised(bench, 'wine', best / 2) > 100.0
  assert normalised(bench, 'wine', None) is None
