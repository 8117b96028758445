"""What a policy is asked: a draft, an improvement, a mending, a crossover."""

from __future__ import annotations

import dataclasses

import pytest

from jaxagent.envs import solution, solution_prompts
from jaxagent.envs.operators import OPERATORS
from jaxagent.envs.solution import Previous, Solution, Task
from jaxagent.testing import fake_runs


@pytest.fixture
def described(tmp_path):
  (tmp_path / 'train.csv').write_text('id,a,y\n' + '1,2,3\n' * 100)
  (tmp_path / 'sample_submission.csv').write_text('id,y\n0,0\n1,0\n2,0\n')
  spec = fake_runs.task_spec(research_problem='Predict y.\n')
  return solution.describe(spec, tmp_path)


def _ask(described, room: int, previous=None, style='full') -> str:
  asked = previous if isinstance(previous, Task) else Task('t', previous)
  return solution_prompts.ask(
    described, asked, lambda text: len(text) <= room, style=style
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


def test_a_prompt_names_the_packages_of_its_task(described):
  told = dataclasses.replace(described, packages=('numpy', 'pillow'))
  assert '`numpy`, `pillow`' in _ask(told, 10**6)


FAILED = Previous(
  Solution('My plan.', 'code = 1\nx = cod\n'),
  'before\nTraceback (most recent call last):\n  x = cod\n'
  "NameError: name 'cod' is not defined\n",
  'script_error',
  'it exited with 1',
)
FIRST = Previous(
  Solution('A tree.', 'import a\nmodel = Tree(3)\nsave()\n'),
  'first said',
  score=0.912345678,
)
SECOND = Previous(
  Solution('A forest.', 'import a\nmodel = Forest()\nsave()\n'),
  'second said',
  score=0.9,
)
DEBUG = Task('t', FAILED, 'id', 'debug')
CROSSOVER = Task('t', FIRST, 'id', 'crossover', second=SECOND, second_id='id2')


@pytest.mark.parametrize('style', ['full', 'compact'])
def test_to_mend_shows_what_failed_and_the_error(described, style):
  whole = _ask(described, 10**6, DEBUG, style)
  for part in (
    'script_error: it exited with 1',
    'My plan.',
    'x = cod\n',
    "NameError: name 'cod' is not defined",
  ):
    assert part in whole
  assert ('before' in whole) == (style == 'full')  # the error alone in brief
  refused = dataclasses.replace(
    FAILED, outcome='invalid_submission', reason="columns are ['y'].", output=''
  )
  asked = dataclasses.replace(DEBUG, previous=refused)
  text = _ask(described, 10**6, asked, style)
  assert "invalid_submission: columns are ['y']." in text


@pytest.mark.parametrize(
  ('output', 'error'),
  [
    ('', ''),
    ('one\ntwo\n\n', 'two'),
    ('a\nValueError: bad names:\n- id\n\n', 'ValueError: bad names:\n- id'),
    ('ValueError: x\nduring\nkeras.OwnError: y\n', 'keras.OwnError: y'),
    ('KeyboardInterrupt', 'KeyboardInterrupt'),
  ],
)
def test_the_error_is_the_last_exception_and_what_follows(output, error):
  assert solution_prompts._error_of(output) == error


@pytest.mark.parametrize('style', ['full', 'compact'])
def test_to_join_shows_both_programs_with_their_scores(described, style):
  whole = _ask(described, 10**6, CROSSOVER, style)
  for part in (
    '0.91235', '0.9', 'A tree.', 'A forest.', 'model = Tree(3)', 'model = Forest()'
  ):  # fmt: skip
    assert part in whole
  full = style == 'full'
  assert ('validation rows: accuracy, higher is better.' in whole) == full
  # In brief the second has the lines alone that the first lacks.
  assert (
    whole.count('import a\n') == whole.count('save()') == (2 if full else 1)
  )
  assert ('first said' in whole) == ('second said' in whole) == full


def test_each_operator_has_words_of_its_own(described):
  tasks = (Task('t'), Task('t', FIRST), DEBUG, CROSSOVER)
  assert [task.kind for task in tasks] == list(OPERATORS)
  for style in ('full', 'compact'):
    texts = [_ask(described, 10**6, task, style) for task in tasks]
    assert len(set(texts)) == 4


def test_of_two_programs_that_are_too_long_the_second_loses_its_middle_first(
  described,
):
  codes = ['\n'.join(f'{x}{i} = {i}' for i in range(150)) for x in 'ab']
  one, two = (Previous(Solution('Plan.', code), 'said' * 50) for code in codes)
  asked = dataclasses.replace(CROSSOVER, previous=one, second=two)
  size = len(codes[0])
  alone = _ask(described, 2 * size + 800, asked)
  assert 'Predict y.' not in alone and all(code in alone for code in codes)
  for room in (2 * size, size + 1200):
    cut = _ask(described, room, asked)
    assert len(cut) <= room and codes[0] in cut and 'b0 = 0\n' in cut
    assert cut.count('# [...]') == 1 and 'b149 = 149' in cut
  cut = _ask(described, size, asked)
  assert len(cut) <= size and cut.count('# [...]') == 2
  assert 'a0 = 0\n' in cut and 'a149 = 149' in cut


@pytest.mark.parametrize('asked', [DEBUG, CROSSOVER])
@pytest.mark.parametrize('style', ['full', 'compact'])
def test_braces_in_a_program_are_no_template(described, asked, style):
  code = "out = {'id': ids}\nprint(f'{n}')\n"
  shown = dataclasses.replace(FAILED, solution=Solution('{plan}', code))
  asked = dataclasses.replace(asked, previous=shown)
  assert code.rstrip() in _ask(described, 10**6, asked, style)
