"""Idea pools, the diverse ten, and the draw into a trajectory."""

from __future__ import annotations

import math
import pathlib
import random

import numpy as np
import pytest

from jaxagent.data import ideas
from jaxagent.envs.interfaces import TextModelError
from jaxagent.testing import fake_runs
from jaxagent.testing.fixed_text_model import FixedTextModel


def task(kind='classification', modality='tabular', root='.'):
  return fake_runs.task_spec(
    root=pathlib.Path(root),
    modality=modality,
    kind=kind,
    research_problem='Predict y.',
  )


def test_pool_fits_the_starter(tmp_path):
  (tmp_path / 'env').mkdir()
  (tmp_path / 'env' / 'train.py').write_text(
    'model = make_pipeline(StandardScaler(), LogisticRegression())\n'
  )
  pool = ideas.idea_pool(task(root=tmp_path))
  assert len(pool) == len(set(pool)) >= ideas.MIN_POOL
  assert any('LogisticRegression' in idea for idea in pool)


def test_parse_advice():
  text = 'Sure.\n[advice] 1. Use SVC\n- Scale\n\n2) Use SVC\n* Add PCA\nScale'
  assert ideas.parse_advice(text) == ['Use SVC', 'Scale', 'Add PCA']


@pytest.mark.parametrize(
  'line',
  [
    'Sure! Here are 25 advices:', '**Features:**', '## Models', '```', '---',
    'Half a smile \ud83d', 'x' * (ideas.MAX_IDEA_CHARS + 1),
  ],
  ids=range(7),
)  # fmt: skip
def test_what_stands_around_advice_is_none(line):
  assert ideas.parse_advice(f'{line}\n1. Use SVC: it is fast') == [
    'Use SVC: it is fast'
  ]


def test_model_pool_asks_until_there_are_enough():
  answers = [
    '[advice]\n' + '\n'.join(f'idea {i}' for i in range(s, s + 6))
    for s in (0, 3, 9)
  ]
  model = FixedTextModel(answers)
  pool = ideas.model_idea_pool(model, task(), 'x = 1', n=12)
  assert len(pool) == 15 and len(model.asked) == 3
  assert model.seeds == [0, 1, 2]
  assert 'Predict y.' in model.asked[0][0]['content']
  with pytest.raises(TextModelError, match='not 100'):
    ideas.model_idea_pool(FixedTextModel(['a']), task(), 'x', max_calls=2)


def test_tfidf_rows_have_unit_length():
  rows = ideas.tfidf(['use SVC', 'use PCA and SVC', ''])
  assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 0])


def test_select_diverse_takes_the_far_ones():
  near = [f'use a forest with {n} trees' for n in (10, 20, 30, 40)]
  far = ['scale features', 'clip predictions']
  chosen = ideas.select_diverse(near + far, 2)
  assert sorted(chosen) == sorted(far)
  # Against the definition, by an embedding of one's own.
  points = np.array([[1, 0], [1, 0.1], [0, 1], [-1, 0]], dtype=float)
  unit = points / np.linalg.norm(points, axis=1, keepdims=True)
  mean = (1 - unit @ unit.T).sum(axis=1) / 3
  names = list('abcd')
  got = ideas.select_diverse(names, 4, embed=lambda _: points)
  assert got == [names[i] for i in np.argsort(-mean)]
  for k in (0, 5):
    with pytest.raises(ValueError, match=f'k={k}'):
      ideas.select_diverse(names, k, embed=lambda _: points)


def test_draw_one_to_three_different():
  rng = random.Random(0)
  drawn = [ideas.draw('abcde', rng) for _ in range(300)]
  assert {len(d) for d in drawn} == {1, 2, 3}
  assert all(len(set(d)) == len(d) for d in drawn)
  assert len(ideas.draw('a', rng)) == 1


def test_entropy():
  assert ideas.entropy([5, 5, 0]) == pytest.approx(math.log(2))
  assert ideas.entropy([7]) == 0.0 and ideas.entropy([]) == 0.0
