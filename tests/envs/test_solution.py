"""Prompts and responses of whole solutions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jaxagent.envs import solution
from jaxagent.envs.solution import Previous, Solution, SolutionError
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
  assert described.problem == 'Predict y.'
  assert described.example == 'id,y\n0,0\n1,0'
  assert described.files['train.csv'].count('\n') == 7
  assert described.files['picture.bin'] == '(10 bytes)'
  assert 'sample_submission.csv' not in described.files


def _ask(described, room: int, previous=None, style='full') -> str:
  return solution.ask(
    described, previous, lambda text: len(text) <= room, style=style
  )


def test_the_papers_prompt_takes_what_fits(described):
  whole, bare = _ask(described, 10**6), _ask(described, 0)
  for part in (
    'Predict y.', '`train.csv`', '`./submission.csv`', '3-5 sentences', '`pandas`'
  ):  # fmt: skip
    assert part in whole and part in bare
  assert 'Data snippet' not in bare and whole.count('1,2,3') == 7
  room = len(bare) + 40
  assert len(bare) < len(_ask(described, room)) <= room


@pytest.mark.parametrize('style', ['full', 'compact'])
def test_to_improve_shows_plan_code_and_the_outputs_end(described, style):
  previous = Previous(Solution('My plan.', 'code = 1\n'), 'begin' * 50 + 'END')
  whole = _ask(described, 10**6, previous, style)
  for part in ('My plan.', 'code = 1', previous.output):
    assert part in whole
  brief = {'full': 900, 'compact': 0}  # the paper's own leaves the task out
  bare = _ask(described, brief[style], previous, style).replace('begin', '')
  assert 'code = 1' in bare and 'Predict y.' not in bare
  bare = _ask(described, len(bare.replace('END', '')), previous, style)
  some = _ask(described, len(bare) + 10, previous, style)
  assert 'END' in some and 'begin' * 50 not in some
  assert 'My plan' not in _ask(described, 10**6, None, style)


def test_what_is_too_long_loses_the_task_and_then_the_programs_middle(
  described,
):
  """Never what is asked for: as the paper's own prompt to improve (C.2)."""
  code = '\n'.join(f'x{i} = {i}' for i in range(200))
  previous = Previous(Solution('My plan.', code), 'output')
  alone = _ask(described, len(code) + 700, previous)
  assert 'Predict y.' not in alone and code in alone and 'output' in alone
  cut = _ask(described, 1000, previous)
  assert len(cut) <= 1000 and '# [...]' in cut
  for part in ('Revise the solution', 'My plan.', 'x0 = 0\n', 'x199 = 199'):
    assert part in alone and part in cut


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
  assert 'pillow' in solution.solve(told, None, lambda text: True)
  bundled = load_task('wine', default_folder())
  assert 'scikit-learn' in solution.packages_of(bundled)
  assert 'pillow' not in solution.packages_of(bundled)
