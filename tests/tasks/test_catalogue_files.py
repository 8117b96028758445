"""Layouts of real data that are files beside tables: images and notebooks."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest

from tests.tasks import catalogue, layouts

pytestmark = pytest.mark.slow


def standin(name, tmp_path):
  done = catalogue.prepare(name, tmp_path / 'standin', '--standin')
  assert done.returncode == 0, done.stderr
  return tmp_path / 'standin/public'


def prepared(name, home, *source):
  done = catalogue.prepare(name, home, *map(str, source))
  assert done.returncode == 0, done.stderr
  return layouts.cells(home / 'private/answers.csv')


def test_salt_of_mlebench_and_of_the_originals(tmp_path):
  mlebench, raw = tmp_path / 'mlebench', tmp_path / 'raw'
  public = standin(layouts.SALT, tmp_path)
  table = layouts.lay_out_salt(public, mlebench, raw)
  truth = table.set_index('id')['rle_mask']
  from sklearn.model_selection import train_test_split

  _, want = train_test_split(table, test_size=0.25, random_state=0)
  for source, folder, hidden in (
    ('--mlebench', mlebench, table['id'][80:]),
    ('--raw', raw, want['id']),
  ):
    home = tmp_path / source[2:] / 'out'
    answers = prepared(layouts.SALT, home, source, folder)
    assert list(answers['id']) == sorted(hidden)
    assert list(answers['rle_mask']) == list(truth[answers['id']])
    for half in catalogue.HALVES:
      masks = answers['rle_mask'][answers['split'] == half]
      assert '' in set(masks) and len(set(masks)) > 1
    images = {p.stem for p in (home / 'public/test/images').iterdir()}
    assert images == set(hidden)
    assert not (home / 'public/test/masks').exists()
    depths = layouts.cells(home / 'public/depths.csv')
    assert not set(depths['id']) & set(hidden) and len(depths)


def test_families_of_notebooks_are_in_one_half_or_in_training(tmp_path):
  mlebench, raw = tmp_path / 'mlebench', tmp_path / 'raw'
  public = standin('AI4Code', tmp_path)
  orders, ancestors = layouts.lay_out_notebooks(public, mlebench, raw)
  home = tmp_path / 'raw-out'
  answers = prepared('AI4Code', home, '--raw', raw)
  family = ancestors.set_index('id')['ancestor_id']
  assert 0 < len(answers) <= 50
  half = answers.groupby(family[answers['id']].to_numpy())['split'].nunique()
  assert (half == 1).all() and len(half) < len(answers)
  known = layouts.cells(home / 'public/train_ancestors.csv')
  assert not set(known['ancestor_id']) & set(family[answers['id']])
  truth = orders.set_index('id')['cell_order']
  assert list(answers['cell_order']) == list(truth[answers['id']])
  files = {p.stem for p in (home / 'public/test').iterdir()}
  assert files == set(answers['id'])
  home = tmp_path / 'mlebench-out'
  answers = prepared('AI4Code', home, '--mlebench', mlebench)
  assert list(answers['id']) == list(orders['id'][100:])
  sample = layouts.cells(home / 'public/sample_submission.csv')
  for name, order in zip(sample['id'], sample['cell_order']):
    record = json.loads((home / f'public/test/{name}.json').read_text())
    assert order.split() == list(record['cell_type'])


def test_pickled_batches_become_arrays_without_their_test_labels(tmp_path):
  images, labels = layouts.lay_out_batches(tmp_path / 'raw')
  answers = prepared('cifar10', tmp_path / 'out', '--raw', tmp_path / 'raw')
  public = tmp_path / 'out/public'
  assert list(answers['label'].astype(int)) == list(labels)
  assert (np.load(public / 'test_images.npy') == images).all()
  assert np.load(public / 'train_images.npy').shape == (300, 32, 32, 3)
  assert list(layouts.cells(public / 'test.csv').columns) == ['id']


class Sly:
  def __reduce__(self):
    return print, ('run while it was read',)


def test_a_batch_that_would_run_code_is_refused(tmp_path):
  layouts.lay_out_batches(tmp_path / 'raw')
  shutil.unpack_archive(
    tmp_path / 'raw/cifar-10-python.tar.gz', tmp_path / 'raw', filter='data'
  )
  batch = tmp_path / 'raw/cifar-10-batches-py/test_batch'
  batch.write_bytes(pickle.dumps({b'data': Sly(), b'labels': []}))
  done = catalogue.prepare(
    'cifar10', tmp_path / 'out', '--raw', str(tmp_path / 'raw')
  )
  assert done.returncode == 1 and 'builtins.print' in done.stderr
  assert 'run while' not in done.stdout + done.stderr
