"""Who joins a run: names, patterns, and those that must be named."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from configs import stepwise_ppo
from jaxagent.config import task_checks
from jaxagent.config.tasks import choose_tasks, data_source, task_of
from jaxagent.errors import UserError
from tests.tasks import published

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
MASKS = {
  'metric': 'tgs-salt-identification-challenge',
  'kind': 'segmentation',
  'modality': 'image',
  'papers': {'001': 'train'},
  'source': {'kind': 'mlebench', 'id': 'tgs-salt-identification-challenge'},
}
MADE = {
  'metric': 'CLRS',
  'submission': {'path': 's.npy'},
  'modality': 'graph',
  'papers': {'002': 'evaluate', '000': 'evaluate'},
  'source': {'kind': 'mlagentbench', 'id': 'CLRS'},
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """wine of version 1, and three tasks of version 2."""
  home = tmp_path_factory.mktemp('tasks')
  shutil.copytree(TASKS / 'wine', home / 'wine')
  published.write(home, 'pizza')
  published.write(home, 'salt', **MASKS)
  published.write(home, 'clrs', sample_name='s.npy', **MADE)
  return home


def _config(folder, heldin=(), heldout=(), **options):
  config = stepwise_ppo.get_config('tiny').unlock()
  config.tasks_dir = str(folder)
  config.tasks.heldin, config.tasks.heldout = heldin, heldout
  for name, value in options.items():
    config.tasks[name] = value
  return config


def test_a_task_of_the_catalogue_never_joins_unnamed(folder):
  assert choose_tasks(_config(folder)) == (('wine',), ())


def test_a_name_twice_is_one_task(folder):
  assert choose_tasks(_config(folder, ('wine', 'wine')))[0] == ('wine',)


def test_patterns_that_meet_are_told_with_what_is_left_of_them(folder):
  """As those of paper 000, which evaluates on tasks that it trains on, too."""
  config = _config(folder, ('paper:003',), ('suite:mlebench', 'wine'))
  with pytest.raises(UserError, match=r"\['pizza'\] are both held-in") as said:
    choose_tasks(config)
  assert str(said.value).endswith(
    "--config.tasks.heldout=\"('salt','wine',)\"."
  )
  config = _config(folder, ('paper:003',), ('pizza',))
  with pytest.raises(UserError, match='heldin or heldout.$'):
    choose_tasks(config)


def test_a_task_of_the_catalogue_is_chosen_by_name(folder):
  assert choose_tasks(_config(folder, ('salt',), ('pizza',))) == (
    ('salt',),
    ('pizza',),
  )


@pytest.mark.parametrize(
  ('pattern', 'names'),
  [
    ('paper:000/train', {'pizza'}),
    ('paper:000', {'pizza', 'clrs'}),
    ('paper:003/train', {'pizza'}),
    ('paper:003/evaluate', {'pizza'}),
    ('paper:00[01]', {'pizza', 'clrs', 'salt'}),
    ('suite:mlebench', {'pizza', 'salt'}),
    ('suite:mlebench/low', {'pizza'}),
    ('suite:mlebench/medium', {'salt'}),
    ('suite:mlagentbench', {'clrs'}),
    ('kind:segmentation', {'salt'}),
    ('kind:classification', {'pizza', 'clrs', 'wine'}),
    ('modality:graph', {'clrs'}),
    ('name:*a*', {'pizza', 'salt'}),
    ('name:wine', {'wine'}),
  ],
)
def test_a_pattern_chooses_what_a_folder_says_of_itself(folder, pattern, names):
  heldin, heldout = choose_tasks(_config(folder, (pattern,)))
  assert set(heldin) == names and heldout == ()


def test_names_and_patterns_mix_and_nothing_is_chosen_twice(folder):
  config = _config(folder, ('wine', 'kind:segmentation', 'name:s*'))
  assert choose_tasks(config)[0] == ('wine', 'salt')


@pytest.mark.parametrize(
  ('pattern', 'message'),
  [
    ('kind:span', "'kind:span' matches no task; of kind there are: class"),
    ('paper:000/test', 'of paper there are: 000, 000/evaluate, 000/train'),
    ('suite:mlebench/easy', 'mlebench/low, mlebench/medium'),
    (
      'metric:rmse',
      'begins with one of paper:, suite:, kind:, modality:, name',
    ),
    ('salty', "unknown task 'salty'"),
  ],
)
def test_a_pattern_without_a_task_names_the_choices(folder, pattern, message):
  with pytest.raises(UserError, match=f'config.tasks.heldin: .*{message}'):
    choose_tasks(_config(folder, (pattern,)))


def test_a_task_that_two_patterns_choose_is_not_in_both_parts(folder):
  config = _config(folder, ('paper:003/train',), ('paper:003/evaluate',))
  with pytest.raises(UserError, match=r"\['pizza'\] are both"):
    choose_tasks(config)


def test_a_task_without_scores_is_refused_before_the_run(folder):
  complaint = task_checks.chosen_tasks(_config(folder, ('wine',), ('bare',)))
  assert 'unknown task' in complaint
  published.write(folder, 'bare', variants=None)
  complaint = task_checks.chosen_tasks(_config(folder, ('wine',), ('bare',)))
  assert 'bare lacks m_init' in complaint
  # With what gives m_best, too, and where the task lies.
  reference = folder / 'bare/solution/reference.py'
  assert f'write a stronger solution into {reference} and run `' in complaint
  command = f'`python -m jaxagent.tasks --tasks_dir {folder} measure bare`'
  assert command in complaint
  config = _config(folder, ('wine',), ('bare',), data='raw', data_dir='/data')
  assert task_checks.chosen_tasks(config) == ''
  shutil.rmtree(folder / 'bare')


def test_the_data_of_a_run_are_stand_ins_unless_a_folder_is_given(folder):
  assert data_source(_config(folder)).variant == 'standin'
  source = data_source(_config(folder, data='mlebench', data_dir='/data'))
  assert (source.variant, str(source.folder)) == ('mlebench', '/data')


@pytest.fixture
def repo(tmp_path):
  """A checkout of mle-bench with the texts of one competition."""
  home = tmp_path / 'mlebench/competitions/tgs-salt-identification-challenge'
  home.mkdir(parents=True)
  (home / 'description.md').write_text('Find the salt of a company.\n')
  (home / 'description_obfuscated.md').write_text('Find the masks.\n')
  return home


@pytest.mark.parametrize(
  ('kind', 'text'),
  [
    ('published', 'Find the salt of a company.'),
    ('obfuscated', 'Find the masks.'),
  ],
)
def test_published_texts_come_from_a_checkout(folder, repo, kind, text):
  where = str(repo.parents[2])
  config = _config(folder, ('salt',), description=kind, mlebench_repo=where)
  assert task_of(config, 'salt').research_problem == text
  own = _config(folder, ('salt',), mlebench_repo=where)
  assert task_of(own, 'salt').research_problem != text


def _damage(repo, how):
  path = repo / 'description.md'
  if how == 'gone':
    path.unlink()
  elif how == 'pointer':
    path.write_text(
      'version https://git-lfs.github.com/spec/v1\noid sha256:0\n'
    )
  elif how == 'empty':
    path.write_text(' \n')
  else:
    path.write_bytes(b'\xff\xfe\x00')


@pytest.mark.parametrize(
  ('how', 'message'),
  [
    ('gone', 'description.md is not there; update the checkout'),
    ('pointer', 'Git-LFS pointer, not the text'),
    ('empty', 'is empty'),
    ('binary', 'is no text'),
  ],
)
def test_a_text_that_cannot_be_used_is_refused_before_the_run(
  folder, repo, how, message
):
  _damage(repo, how)
  config = _config(
    folder,
    ('salt',),
    ('wine',),
    description='published',
    mlebench_repo=str(repo.parents[2]),
  )
  complaint = task_checks.chosen_tasks(config)
  assert message in complaint and '\n' not in complaint


def test_a_task_of_others_has_no_published_text(folder, repo):
  where = str(repo.parents[2])
  config = _config(folder, description='published', mlebench_repo=where)
  for name in ('wine', 'clrs'):
    with pytest.raises(ValueError, match=f'task {name} is none of mle-bench'):
      task_of(config, name)
  config.tasks.mlebench_repo = str(repo)
  with pytest.raises(
    ValueError, match='has no mlebench/competitions; give a check'
  ):
    task_of(config, 'salt')
