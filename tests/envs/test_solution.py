"""Descriptions of tasks for whole solutions, and responses."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jaxagent.envs import solution
from jaxagent.envs.solution import Solution, SolutionError
from jaxagent.envs.tasks import default_folder, load_task
from jaxagent.testing import fake_runs

GOOD = 'I fit a tree.\n```python\nimport x\nprint(1)\n```\n'


def test_a_plan_and_one_block():
  assert solution.parse(GOOD) == Solution(
    'I fit a tree.', 'import x\nprint(1)\n'
  )
  assert solution.parse('Plan\n```\ncode\n```').code == 'code\n'


@pytest.mark.parametrize(
  ('response', 'why'),
  [
    ('', 'no code block'),
    ('I would rather talk.', 'no code block'),
    ('plan\n```python\nx = 1\n', 'not closed'),
    (GOOD * 3, '3 code blocks'),
    (GOOD + '```', '1.5 code blocks'),
    ('```python\nx = 1\n```', 'no plan'),
    ('plan\n```\n```', 'empty'),
    ('plan\n```\n \n\n```', 'empty'),
    ('plan\n```\n' + 'x' * 1_000_001 + '\n```', 'are more than'),
    ('plan\n```\nx = "\ud800"\n```', 'lone surrogate'),
    ('pl\udfffan\n```\nx = 1\n```', 'lone surrogate'),
    ('plan\n```\nx = 1\0\n```', 'NUL'),
  ],
)
def test_anything_else_says_why(response, why):
  with pytest.raises(SolutionError, match=why):
    solution.parse(response)


def test_whatever_a_policy_writes_is_a_solution_or_says_why():
  rng = random.Random(0)
  parts = [
    '```',
    '\n',
    '```python\n',
    'x = 1',
    '\r\n',
    '\0',
    '\ud800',
    '`',
    ' ',
  ]
  for _ in range(3000):
    text = ''.join(rng.choices(parts, k=rng.randrange(12)))
    try:
      found = solution.parse(text)
    except SolutionError as error:
      assert '\n' not in str(error)
    else:
      assert found.plan and found.code.strip()


@pytest.fixture
def described(tmp_path):
  (tmp_path / 'train.csv').write_text('id,a,y\n' + '1,2,3\n' * 100)
  (tmp_path / 'picture.bin').write_bytes(b'\0\1' * 5)
  (tmp_path / 'sample_submission.csv').write_text('id,y\n0,0\n1,0\n2,0\n')
  spec = fake_runs.task_spec(research_problem='Predict y.\n')
  return solution.describe(spec, tmp_path)


def test_a_description(described):
  assert described.brief == (
    't: classification of tabular data, accuracy, higher is better\nid,y\n'
  )
  assert described.measure == 'accuracy, higher is better'
  assert described.problem == 'Predict y.'
  assert described.example == 'id,y\n0,0\n1,0'
  assert described.files['train.csv'].count('\n') == 7
  assert described.files['picture.bin'] == '(10 bytes)'
  assert 'sample_submission.csv' not in described.files


def test_the_sample_may_be_arrays_and_lie_in_a_folder(tmp_path):
  (tmp_path / 'more').mkdir()
  arrays = {'a': np.zeros((2, 3), np.float32), 'b': np.arange(4)}
  np.savez(tmp_path / 'more/sample_submission.npz', **arrays)
  np.save(tmp_path / 'guess.npy', arrays['a'])
  spec = fake_runs.task_spec()
  for sample, example in (
    ('guess.npy', 'an array of float32, shape [2, 3]'),
    (
      'more/sample_submission.npz',
      'a: an array of float32, shape [2, 3]\nb: an array of int64, shape [4]',
    ),
  ):
    described = solution.describe(spec, tmp_path, sample=sample)
    assert described.example == example
    assert sample not in described.files and len(described.files) == 1


def test_many_files_of_a_kind_are_counted(tmp_path):
  images = tmp_path / 'images'
  images.mkdir()
  for i in range(3000):
    (images / f'{i:04}.jpg').write_bytes(b'\0')
  (images / 'labels.csv').write_text('id,y\n')
  (tmp_path / 'sample_submission.csv').write_text('id,y\n0,0\n')
  spec = fake_runs.task_spec(research_problem='Predict y.')
  described = solution.describe(spec, tmp_path)
  assert described.example == 'id,y\n0,0'
  assert described.files == {
    'images/0000.jpg': '(1 bytes)',
    'images/0001.jpg': '(1 bytes)',
    'images/*.jpg': '(3000 files)',
    'images/labels.csv': 'id,y',
  }


def test_many_folders_beside_each_other_count_as_one(tmp_path):
  for i in range(300):
    folder = tmp_path / 'train' / f'{i}'
    folder.mkdir(parents=True)
    (folder / 'geometry.xyz').write_text('H 0 0 0\n')
  for i in range(30):
    (tmp_path / f'words.{i}').write_text('x')  # after train
  described = solution.describe(fake_runs.task_spec(), tmp_path)
  assert described.files['train/*/*.xyz'] == '(300 files)'
  assert len(described.files) <= 3 * solution.MOST_FILES
  assert described.files['...'].endswith('other kinds)')


def test_a_prompt_names_the_packages_of_its_task():
  spec = load_task('denoising-dirty-documents', default_folder())
  told = solution.describe(spec, spec.root / 'env')
  assert told.packages == spec.details.environment.packages
  bundled = load_task('wine', default_folder())
  assert 'scikit-learn' in solution.packages_of(bundled)
  assert 'pillow' not in solution.packages_of(bundled)
