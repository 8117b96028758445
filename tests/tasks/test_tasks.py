"""Task folders: what is bundled, what is refused, how data is prepared."""

from __future__ import annotations

import shutil

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import task_yaml


def test_bundled_tasks_cover_what_the_quickstart_needs(tasks_dir):
  specs = [
    s for s in lib.list_tasks(tasks_dir, version=1) if s.m_init is not None
  ]
  heldin = [s for s in specs if s.split == 'heldin']
  heldout = [s for s in specs if s.split == 'heldout']
  assert len(specs) >= 8 and len(heldin) >= 5 and len(heldout) >= 3
  assert {s.modality for s in heldin} == set(task_yaml.MODALITIES)
  assert len({s.modality for s in heldout}) >= 3
  assert {s.kind for s in specs} == set(lib.KINDS)
  assert {s.higher_is_better for s in heldin} == {True, False}


def test_baselines_are_measured_and_point_the_right_way(tasks_dir):
  for spec in lib.list_tasks(tasks_dir, version=1):
    if spec.m_init is None:
      continue
    assert spec.m_best_source, spec.name
    assert (spec.alpha > 0) is spec.higher_is_better, spec.name


def test_every_starter_follows_the_convention(tasks_dir):
  for spec in lib.list_tasks(tasks_dir, version=1):
    text = lib.starter_files(spec.root)['train.py']
    assert text.count('\nmodel = make_pipeline(') == 1, spec.name
    assert '\nmodel.fit(x_train, y_train)\npred = ' in text, spec.name
    assert "'submission.csv'" in text, spec.name


@pytest.fixture
def copied(tasks_dir, tmp_path):
  shutil.copytree(tasks_dir / 'wine', tmp_path / 'wine')
  return tmp_path


def edit(folder, old, new):
  path = folder / 'wine' / 'task.yaml'
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    ('metric: log_loss', 'metric: logloss', 'logloss.*choose one of.*rmse'),
    ('modality: tabular', 'modality: table', "'table'.*image, tabular"),
    ('split: heldin', 'split: train', 'heldin, heldout'),
    ('higher_is_better: false', 'higher_is_better: true', 'better when lower'),
    ('timeout_s: 20', 'timeout_s: -1', 'greater than zero'),
    ('timeout_s: 20', 'timeout: 20', "'timeout'.*timeout_s"),
    ('kind: classification\n', '', 'missing kind'),
    ('kind: classification', 'kind: classification\nfoo: 1', "'foo'"),
    ('m_init: ', 'm_init: x', 'must be a number or null'),
    (
      'm_init: ',
      'submission: {path: s.csv}\nm_init: ',
      'must be the path of a',
    ),
    ('modality: tabular', 'modality: [', 'not readable as YAML'),
    ('hides: [', 'hides: [x, ', "hides='x' must be a folder inside"),
    ('hides: [', 'hides: [../x/y, ', r"hides='\.\./x/y' must be"),
    ('hides: [sklearn/datasets/data]', 'hides: a/b', 'must be a list'),
  ],
)
def test_wrong_yaml_names_value_and_choices(copied, old, new, message):
  edit(copied, old, new)
  with pytest.raises(ValueError, match=f'(?s){message}'):
    lib.load_task('wine', copied)


@pytest.mark.parametrize('relative', lib.REQUIRED_FILES)
def test_missing_file_is_named(copied, relative):
  (copied / 'wine' / relative).unlink()
  with pytest.raises(ValueError, match=f'{relative} is missing'):
    lib.load_task('wine', copied)


@pytest.mark.parametrize('name', ['nosuch', '../wine', '', 'wine/env'])
def test_unknown_task_lists_the_known_ones(copied, name):
  with pytest.raises(ValueError, match='choose one of: wine'):
    lib.load_task(name, copied)


def test_missing_folder():
  with pytest.raises(ValueError, match='is not a folder'):
    lib.list_tasks('/nonexistent/tasks')


def test_prepare_is_deterministic_and_cached(prepared, tasks_dir, tmp_path):
  spec = lib.load_task('wine', tasks_dir)
  first = prepared['wine']
  second = lib.prepare_task(spec, tmp_path)
  for name in lib.PUBLIC_FILES:
    assert (first.public_dir / name).read_bytes() == (
      second.public_dir / name
    ).read_bytes()
  stamp = (second.public_dir / 'train.csv').stat().st_mtime_ns
  third = lib.prepare_task(spec, tmp_path)
  assert third.public_dir == second.public_dir
  assert (third.public_dir / 'train.csv').stat().st_mtime_ns == stamp
  assert not [p for p in second.public_dir.rglob('*answers*')]


def test_failing_prepare_leaves_nothing(copied, tmp_path):
  script = copied / 'wine/scripts/prepare.py'
  script.write_text("raise SystemExit('boom')")
  home = tmp_path / 'out'
  with pytest.raises(ValueError, match='(?s)prepare.py failed.*boom'):
    lib.prepare_task(lib.load_task('wine', copied), home)
  assert list((home / 'wine').iterdir()) == []


def test_half_prepared_folder_is_made_again(tasks_dir, tmp_path):
  spec = lib.load_task('wine', tasks_dir)
  half = tmp_path / 'wine' / lib.content_hash(spec)
  (half / 'public').mkdir(parents=True)
  (half / 'public' / 'train.csv').write_text('id\n')
  again = lib.prepare_task(spec, tmp_path)
  assert len((again.public_dir / 'train.csv').read_text()) > 100
