"""Configs of the Ideator that are refused before any work, in one line."""

from __future__ import annotations

import pathlib
import re
from types import SimpleNamespace

import pytest

from configs import ideator
from jaxagent.config import settings
from jaxagent.config.tasks import choose_tasks
from jaxagent.envs.tasks import load_task, task_names
from jaxagent.errors import UserError
from jaxagent.recipes import dry_run
from jaxagent.recipes.ideator.figures import board_file, board_in
from jaxagent.recipes.ideator.recipe import Ideator

ROOT = pathlib.Path(__file__).parents[3]
LFS = 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n'


def config_of(changes, variant='tiny'):
  config = ideator.get_config(variant).unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  with config.ignore_type():
    for key, value in changes.items():
      section, _, name = key.partition('.')
      config[section][name] = value
  return config


def refusal(changes) -> str:
  with pytest.raises(UserError) as error:
    settings.validate(config_of(changes))
  text = str(error.value)
  assert '\n' not in text
  return text


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'rl.group_size': 1}, ('rl.group_size=1', 'grpo')),
    (
      {'pool.train_per_task': 1, 'tasks.heldin': ('wine',)},
      ('pool.train_per_task=1', 'rl.batch_size=32'),
    ),
    ({'implementer.max_spend': 1.0}, ('implementer.max_spend=1', 'prices')),
    ({'ideator.prices': {'prompt': 1.0}}, ('ideator.prices', 'completion')),
    (
      {'ideator.prices': {'prompt': -1.0, 'completion': 1.0}},
      ('ideator.prices', '0 or more'),
    ),
    ({'implementer.also': ('scripted',)}, ('implementer.also', 'leave it out')),
    ({'implementer.extra': {'top_p': 0.9}}, ('implementer.extra', 'endpoint')),
    ({'classifier.kind': 'openai'}, ('classifier.model', 'rule')),
    ({'ideator.kind': 'openai'}, ('ideator.model', 'scripted')),
    ({'ideator.arms': ('openai',)}, ('ideator.model', 'leave openai out')),
    ({'ideator.extra': {'top_p': 0.9}}, ('ideator.extra', 'endpoint')),
    (
      {'ideator.boards': '/nowhere'},
      ("ideator.boards='/nowhere'", 'no folder'),
    ),
    ({'ideator.prompt': '/nowhere'}, ('ideator.prompt', '/nowhere')),
    (
      {'rollout.prompt_style': 'full'},
      ('ideator.augment=0.75', "'full'", 'set it to 0'),
    ),
  ],
)
def test_what_cannot_work_is_refused_with_its_remedy(changes, words):
  text = refusal(changes)
  assert all(word in text for word in words), text


@pytest.mark.parametrize(
  'board, words',
  [
    (LFS, 'Git-LFS pointer'),
    ('score\n0.5\n0.5\n', 'best and worst'),
    ('score\n0.5\n\n', 'wine.csv'),
    ('score\n0.1\nnan\n', 'without a score'),
    ('0.1\n0.2\n', 'no `score` column'),
    ('score\n0.9\n0.1\n', 'lower is better'),
  ],
)
def test_a_board_that_measures_nothing_is_refused_by_task_and_file(
  tmp_path, board, words
):
  (tmp_path / 'wine.csv').write_text(board)
  text = refusal({'ideator.boards': str(tmp_path)})
  assert 'task wine' in text and 'wine.csv' in text and words in text


def test_an_arm_behind_an_endpoint_may_have_more_in_its_requests():
  arm = {'ideator.arms': ('openai',), 'ideator.model': 'x'}
  settings.validate(config_of(arm | {'ideator.extra': {'top_p': 0.9}}))


def test_a_good_board_is_taken(tmp_path):
  (tmp_path / 'wine.csv').write_text('score\n0.1\n0.9\n')
  settings.validate(config_of({'ideator.boards': str(tmp_path)}))


def test_the_board_of_a_checkout_is_for_published_data_alone(tmp_path):
  path = tmp_path / 'random-acts-of-pizza/leaderboard.csv'
  path.parent.mkdir()
  path.write_text(LFS)
  changes = {
    'ideator.boards': str(tmp_path),
    'tasks.heldin': ('random-acts-of-pizza',),
  }
  spec = load_task('random-acts-of-pizza')
  assert board_file(config_of(changes), spec) is None
  changes |= {'tasks.data': 'mlebench', 'tasks.data_dir': str(tmp_path)}
  assert board_file(config_of(changes), spec) == path
  path.write_text('score\n1.0\n0.6\n0.47\n')
  assert 'giver_username' in board_in(path, spec).source


def test_speed_prices_and_arms_may_change_between_two_starts():
  one = settings.config_record(config_of({}))
  other = settings.config_record(
    config_of(
      {
        'implementer.max_concurrency': 99,
        'ideator.prices': {'prompt': 1.0, 'completion': 2.0},
        'ideator.max_spend': 5.0,
        'ideator.arms': ('none',),
        'implementer.also': ('scripted_relative',),
      }
    )
  )
  assert one == other
  assert one != settings.config_record(config_of({'ideator.max_calls': 3}))


def test_the_variants_of_single_stages_continue_the_run_of_the_default():
  whole = ideator.get_config()
  for stage in ('collect', 'evaluate'):
    one = ideator.get_config(stage)
    assert settings.config_record(one) == settings.config_record(whole)
    assert one.stage == stage and one.work_dir == whole.work_dir


def test_a_dry_run_of_the_paper_names_its_numbers(capsys):
  config = ideator.get_config('qwen3-8b').unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  config.dry_run = True
  settings.validate(config)
  dry_run.print_plan(config)
  said = capsys.readouterr().out
  for words in (
    '62 updates of 128 ideas (grpo',
    'KL 0',
    '900 runs of up to 50 messages',  # 90 of each of its ten tasks
    '1000 + 100 states',
    '16 states x 8 ideas, loss seq-mean-token-mean, checkpoint every 10',
    'trace of 32000 tokens',
    'left open by the paper: rl.policy_lr=1e-05, rl.clip_low=0.2',
    'rollout.temperature=1.0, rollout.max_new_tokens=4096',
    '128 slots',
  ):
    assert words in said, words
  heldin, heldout = choose_tasks(config)
  missing = re.findall('no folder of ([^ ,]+), on which the paper', said)
  assert len(heldin) == 10 and len(heldout) + len(set(missing)) == 51
  assert not set(missing) & set(task_names(ROOT / 'tasks'))


def test_a_task_whose_record_is_below_its_starter_is_refused_before_the_pool():
  """Else the arms, which are measured last, end the run."""
  spec = SimpleNamespace(m_best_private=0.8, higher_is_better=True)
  made = Ideator(config_of({}))
  made.context = SimpleNamespace(config=made.config, spec=lambda task: spec)
  made.starts = {'wine': SimpleNamespace(private=0.9)}
  with pytest.raises(UserError, match='task wine.*both 0.9.*tasks measure'):
    made.prepare()
