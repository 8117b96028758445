"""Whole solutions of tasks that are not three tables: what is shown and refused."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import types

import pytest

from jaxagent.envs import tasks as task_lib
from jaxagent.envs.solution import parse
from jaxagent.errors import UserError
from jaxagent.recipes.solutions import prompts
from tests.envs import program_task

TASKS = pathlib.Path(__file__).parents[3] / 'tasks'


def made(*tasks, programs=3, operators=None, style='full'):
  """A context of held-in prepared tasks."""
  prepared = {task.spec.name: task for task in tasks}
  config = types.SimpleNamespace(
    seed=0,
    solution=types.SimpleNamespace(
      programs=programs, improve=0.5, operators=operators or {}
    ),
    rollout=types.SimpleNamespace(prompt_style=style),
  )
  return types.SimpleNamespace(
    config=config,
    heldin=tuple(prepared),
    heldout=(),
    prepared=prepared,
    spec=lambda name: prepared[name].spec,
  )


@pytest.fixture
def context(tmp_path):
  return made(program_task.prepared(tmp_path))


@pytest.fixture(scope='module')
def published(tmp_path_factory):
  """Prepared stand-ins by name."""
  home = tmp_path_factory.mktemp('published')
  return {
    name: task_lib.prepare_task(task_lib.load_task(name, TASKS), home)
    for name in ('CLRS', 'babylm', 'house-price')
  }


def test_prompt_shows_the_sample_program(context):
  text = prompts.Prompts(context).text(prompts.Task('sums'))
  assert '`./submission.py` should have the following format' in text
  assert 'print(1)' in text


@pytest.mark.parametrize(
  ('name', 'shown'),
  [
    ('CLRS', 'an array of int64, shape [64, 64, 64]'),
    ('babylm', 'an array of float32, shape [2000, 256]'),
  ],
)
def test_prompt_shows_type_and_shape_of_a_sample_that_is_an_array(
  name, shown, published
):
  text = prompts.Prompts(made(published[name])).text(prompts.Task(name))
  assert '`./submission.npy` should have the following format' in text
  assert f'```\n{shown}\n```' in text


def test_prompt_shows_the_sample_that_task_yaml_names(published, tmp_path):
  task = published['house-price']
  public = tmp_path / 'public'
  shutil.copytree(task.public_dir, public)
  (public / 'more').mkdir()
  (public / 'sample_submission.csv').rename(public / 'more/guess.csv')
  details = dataclasses.replace(task.spec.details, sample='more/guess.csv')
  spec = dataclasses.replace(task.spec, details=details)
  task = dataclasses.replace(task, spec=spec, public_dir=public)
  text = prompts.Prompts(made(task)).text(prompts.Task('house-price'))
  head = (public / 'more/guess.csv').read_text().splitlines()[:3]
  assert '```\n' + '\n'.join(head) + '\n```' in text
  assert '`more/guess.csv`' not in text  # as a file to learn from


def test_what_only_a_model_can_write_is_refused_at_the_start(
  context, published
):
  """Nothing is written for the tasks beside it, either."""
  with pytest.raises(UserError, match='sums: only a model.*programs=0'):
    prompts.written(context)
  with pytest.raises(UserError, match='heldin: babylm: only a model'):
    prompts.written(made(*published.values()))


@pytest.mark.parametrize(
  ('name', 'text'),
  [
    ('test.csv', None),
    ('test.csv', ''),
    ('train.csv', 'Id,a,b,c\n'),  # of which the test has Id alone
  ],
)
def test_tables_that_do_not_name_one_target_are_refused(
  name, text, published, tmp_path
):
  task = published['house-price']
  public = tmp_path / 'public'
  shutil.copytree(task.public_dir, public)
  (public / 'test.csv').write_text('Id\n')
  (public / name).unlink()
  if text is not None:
    (public / name).write_text(text)
  task = dataclasses.replace(task, public_dir=public)
  with pytest.raises(UserError, match='house-price: only a model'):
    prompts.written(made(task))


def test_without_scripted_programs_no_table_is_read(published):
  assert prompts.written(made(*published.values(), programs=0)) == []


def test_three_tables_get_programs(published):
  pairs = prompts.written(made(published['house-price']))
  assert [task.name for task, _ in pairs] == ['house-price'] * 3
  assert all('SalePrice' in response for _, response in pairs)


FOUR = {'draft': 1, 'improve': 1, 'debug': 1, 'crossover': 1}


def test_demonstrations_have_the_operators_that_are_asked_for(published):
  task = published['house-price']
  pairs = prompts.written(made(task, programs=200, operators=FOUR))
  kinds = [task.kind for task, _ in pairs]
  # A crossover of programs that have nothing to give each other is an improvement.
  assert all(kinds.count(kind) > 25 for kind in FOUR)
  for asked, response in pairs:
    code = parse(response).code
    shown = [one.solution.code for one in (asked.previous, asked.second) if one]
    assert code not in shown
    if asked.kind == 'debug':
      differ = set(code.splitlines()) ^ set(shown[0].splitlines())
      assert len(differ) <= 2  # the slip's line alone
      assert asked.previous.outcome and asked.previous.reason
    if asked.kind == 'crossover':
      # Every line is of one of both, but for that which names the pipeline's parts.
      both = {line for text in shown for line in text.splitlines()}
      new = [x for x in code.splitlines() if x not in both]
      slipped = [x for x in new if not x.startswith('model = make_pipeline(')]
      assert len(new) <= 2 and len(slipped) <= 1
      assert None not in (asked.previous.score, asked.second.score)
  assert prompts.written(made(task, programs=200, operators=FOUR)) == pairs


@pytest.mark.parametrize('style', ['full', 'compact'])
def test_demonstrations_of_a_starter_with_functions_have_operators(
  published, style
):
  context = made(published['CLRS'], programs=60, operators=FOUR, style=style)
  pairs = prompts.written(context)
  kinds = {task.kind for task, _ in pairs}
  assert {'draft', 'improve', 'debug'} <= kinds
  shown = prompts.Prompts(context)
  for task, _ in pairs:
    text = shown.text(task)
    if task.kind == 'debug':
      assert task.previous.outcome in text and task.previous.reason in text
