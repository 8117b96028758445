"""Layouts of real data that are files beside tables: images and notebooks."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import struct
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.io import loadmat

from jaxagent.tasks import pictures
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


def cells_of(answers):
  """Cells as text, numbers as the numbers they are."""
  rows = answers.drop(columns='split', errors='ignore').to_dict('records')
  return {
    tuple(
      (k, float(v) if re.fullmatch(r'[\d.]+', v) else v) for k, v in row.items()
    )
    for row in rows
  }


@pytest.mark.parametrize('name', layouts.FILES)
def test_files_of_mlebench_stay_and_their_answers_are_divided(name, tmp_path):
  public, truth = layouts.lay_out_prepared_files(name, tmp_path / 'mlebench')
  home = tmp_path / 'out'
  answers = prepared(name, home, '--mlebench', tmp_path / 'mlebench')
  assert set(answers['split']) == set(catalogue.HALVES)
  assert cells_of(answers) == cells_of(truth)
  for path in sorted(public.rglob('*')):
    mine = home / 'public' / path.relative_to(public)
    if path.suffix == '.json':
      assert json.loads(mine.read_text()) == json.loads(path.read_text())
    elif path.is_file():
      assert mine.read_bytes() == path.read_bytes()
  key = catalogue.record(name)['id']
  (sample,) = (home / 'public').glob('sample*')
  assert list(layouts.cells(sample)[key]) == list(truth[key])


def files_in(public):
  """Path in data/ -> content, archives opened."""
  out = {}
  for path in public.rglob('*'):
    if path.suffix == '.zip':
      with zipfile.ZipFile(path) as archive:
        for inner in archive.namelist():
          out[f'{path.stem}/{inner}'] = archive.read(inner)
    elif path.is_file():
      out[str(path.relative_to(public))] = path.read_bytes()
  return out


# The share that mle-bench holds out, where it draws rows at random.
HELD = {
  layouts.CACTUS: 0.19,
  layouts.CATS: 0.1,
  layouts.LEAVES: 0.1,
  layouts.PAGES: 0.2,
  layouts.RADAR: 0.2,
}


@pytest.mark.parametrize('name', HELD)
def test_original_files_are_held_out_as_mlebench_does(name, tmp_path):
  from sklearn.model_selection import train_test_split

  table = layouts.lay_out_files(name, tmp_path / 'raw')
  key = table.columns[0]
  if name in (layouts.CATS, layouts.PAGES):  # there by the sorted file names
    table = table.iloc[np.argsort([f'{k}.png' for k in table[key]])]
  train, test = train_test_split(table, test_size=HELD[name], random_state=0)
  answers = prepared(name, tmp_path / 'out', '--raw', tmp_path / 'raw')
  files = files_in(tmp_path / 'out/public')
  if name == layouts.CATS:
    assert list(answers['label']) == list(test['label'])
    for k, old in enumerate(test[key], 1):
      assert files[f'test/{k}.jpg'] == f'file {old}'.encode()
    assert len([f for f in files if f.startswith('train/dog.')]) == sum(
      train['label'] == '1'
    )
    return
  if name == layouts.PAGES:
    assert {i.split('_')[0] for i in answers['id']} == set(test['id'])
    assert len(answers) == 12 * len(test)
    first = answers[answers['id'].str.endswith('_1_1')]
    for i, value in zip(first['id'], first['value']):
      assert float(value) == pytest.approx(int(i.split('_')[0]) / 255)
    cleaned = [f for f in files if f.startswith('train_cleaned/')]
    assert len(cleaned) == len(train)
    return
  targets = list(table.columns[1:])
  assert (answers[targets].to_numpy() == test[targets].to_numpy()).all()
  if name == layouts.LEAVES:
    for k, old in enumerate(test[key]):
      assert files[f'images/Test_{k}.jpg'] == f'file {old}'.encode()
  else:
    assert list(answers['id']) == list(test['id'])
  if name == layouts.CACTUS:
    for part, rows in (('train', train), ('test', test)):
      for i in rows['id']:
        assert files[f'{part}/{i}'] == f'file {i}'.encode()
  if name == layouts.RADAR:
    hidden = json.loads(files['test.json'])
    assert [r['id'] for r in hidden] == list(test['id'])
    assert not any('is_iceberg' in r for r in hidden)
    kept = {r['inc_angle'] for r in json.loads(files['train.json'])}
    assert kept == {'na', 43.9239}


def test_whales_without_a_training_picture_are_new(tmp_path):
  """Held out is a picture of each whale that has two."""
  name = layouts.FLUKES
  table = layouts.lay_out_files(name, tmp_path / 'raw')
  answers = prepared(name, tmp_path / 'out', '--raw', tmp_path / 'raw')
  files = files_in(tmp_path / 'out/public')
  train = layouts.cells(tmp_path / 'out/public/train.csv')
  assert not set(train['Image']) & set(answers['Image'])
  assert sorted([*train['Image'], *answers['Image']]) == sorted(table['Image'])
  true = table.set_index('Image')['Id']
  counts = table['Id'].value_counts()
  assert {true[i] for i in answers['Image']} > set(counts.index[counts > 1])
  known = set(train['Id'])
  for image, label in zip(answers['Image'], answers['Id']):
    assert label == (true[image] if true[image] in known else 'new_whale')
    assert files[f'test/{image}'] == f'file {image}'.encode()
  assert any(true[i] not in known for i in answers['Image'])


def test_only_the_first_week_of_a_hidden_patient_is_told(tmp_path):
  """All weeks between are asked for; a patient's are in one half."""
  from sklearn.model_selection import train_test_split

  name = layouts.LUNGS
  table = layouts.lay_out_files(name, tmp_path / 'raw')
  answers = prepared(name, tmp_path / 'out', '--raw', tmp_path / 'raw')
  public = tmp_path / 'out/public'
  names = sorted(set(table['Patient']))
  _, want = train_test_split(names, test_size=0.1, random_state=0)
  assert set(answers['Patient']) == set(want)
  assert (answers.groupby('Patient')['split'].nunique() == 1).all()
  weeks = table['Weeks'].astype(int)[table['Patient'].isin(want)]
  assert len(answers) == len(want) * (weeks.max() - weeks.min() + 1)
  true = table.set_index(table['Patient'] + '_' + table['Weeks'])['FVC']
  for row, fvc in zip(answers['Patient_Week'], answers['FVC']):
    assert fvc == true.get(row, '')
  test = layouts.cells(public / 'test.csv')
  assert sorted(test['Patient']) == sorted(want)
  first = weeks.groupby(table['Patient']).min()
  assert list(first[test['Patient']]) == list(test['Weeks'].astype(int))
  assert {p.name for p in (public / 'test').iterdir()} == set(want)
  assert not set(layouts.cells(public / 'train.csv')['Patient']) & set(want)


def test_as_many_records_of_trails_are_held_out_as_validation_has(tmp_path):
  """Of a held-out record no mask is left; its runs go down the columns."""
  from sklearn.model_selection import train_test_split

  name = layouts.TRAILS
  table = layouts.lay_out_files(name, tmp_path / 'raw')
  answers = prepared(name, tmp_path / 'out', '--raw', tmp_path / 'raw')
  train, test = train_test_split(table, test_size=15, random_state=0)
  columns = list(table.columns)
  assert (answers[columns].to_numpy() == test.to_numpy()).all()
  files = files_in(tmp_path / 'out/public')
  records = json.loads(files['train_metadata.json'])
  assert [r['record_id'] for r in records] == list(train['record_id'])
  want = {}
  for part, rows in (('train', train), ('test', test)):
    for row in rows.to_dict('records'):
      for path, data in layouts.scene_files(row).items():
        if part == 'train' or 'mask' not in path:
          want[f'{part}/{path}'] = data
  kept = {k: v for k, v in files.items() if k.startswith(('train/', 'test/'))}
  assert kept == want
  assert len([f for f in files if f.startswith('validation/')]) == 15 * 11


def test_a_fifth_of_the_labelled_recordings_of_birds_is_hidden(tmp_path):
  """Recordings get new numbers; what is said of one stays with it."""
  layouts.lay_out_birds(tmp_path / 'raw')
  out = tmp_path / 'out'
  answers = prepared(layouts.BIRDS, out, '--raw', tmp_path / 'raw')
  old = [k for k in range(100) if k % 4 < 3]
  folds = pd.DataFrame({'rec_id': old})
  hidden = set(folds.sample(frac=0.2, random_state=0).index)
  files = files_in(out / 'public')

  def cells(path):
    lines = files[path].decode().splitlines()[1:]
    return {int(k): rest for k, *rest in (line.split(',') for line in lines)}

  names = cells('essential_data/rec_id2filename.txt')
  assert names == {new: [f'PC{k}'] for new, k in enumerate(old)}
  shown = cells('essential_data/rec_labels_test_hidden.txt')
  rectangles = cells('supplemental_data/segment_rectangles.txt')
  fold = cells('essential_data/CVfolds_2.txt')
  want = {}
  for new, k in enumerate(old):
    birds = list(map(str, layouts.birds_of(k)))
    assert shown[new] == (['?'] if new in hidden else birds)
    assert fold[new] == [str(int(new in hidden))]
    assert rectangles[new] == ['0', str(k), '9']
    wav = files[f'essential_data/src_wavs/PC{k}.wav']
    assert wav == f'sound {k}'.encode()
    assert files[f'supplemental_data/spectrograms/PC{k}.bmp'].endswith(wav[6:])
    if new in hidden:
      for j in range(19):
        want[str(new * 100 + j)] = str(int(str(j) in birds))
  assert dict(zip(answers['Id'], answers['Probability'])) == want
  half = answers.groupby(answers['Id'].astype(int) // 100)['split'].nunique()
  assert (half == 1).all() and len([f for f in files if '.wav' in f]) == 75


def test_labels_are_in_no_archive_of_hidden_signs(tmp_path):
  """The rest of a hidden recording stays, and so do the other archives."""
  name = layouts.SIGNS
  raw, mlebench = tmp_path / 'raw', tmp_path / 'mlebench'
  train, test = layouts.lay_out_signs(raw, mlebench)
  for source, folder in (('--raw', raw), ('--mlebench', mlebench)):
    home = tmp_path / f'{source}-out'
    answers = prepared(name, home, source, folder)
    assert cells_of(answers) == cells_of(test)
    assert set(answers['split']) == set(catalogue.HALVES)
    public = home / 'public'
    shown = {
      part: (public / f'{part}.tar.gz').read_bytes()
      for part in ('training1', 'test', 'validation3')
    }
    for i, recording in layouts.signs_in(shown['test']).items():
      assert recording == (int(i[-4:]), 0, f'film {i[-4:]}'.encode())
    names = sorted(layouts.signs_in(shown['test']))
    assert names == [f'Sample0{i}' for i in test['Id']]
    counts = {n for _, n, _ in layouts.signs_in(shown['training1']).values()}
    assert counts == {1}
    for part in ('training1', 'validation3'):
      assert shown[part] == (raw / f'{part}.tar.gz').read_bytes()
    kept = layouts.cells(public / 'training.csv')
    assert kept.to_numpy().tolist() == train.to_numpy().tolist()
    assert list(layouts.cells(public / 'test.csv')['Id']) == list(test['Id'])
  assert (tmp_path / '--mlebench-out/public/devel01-40.7z').exists()


def test_the_stand_in_of_trails_has_long_ids_and_empty_masks(tmp_path):
  public = standin(layouts.TRAILS, tmp_path)
  answers = layouts.cells(public.parent / 'private/answers.csv')
  assert set(answers['record_id'].str.len()) == {19}
  empty = answers['encoded_pixels'] == '-'
  assert 0 < empty.mean() < 0.5 and '' not in set(answers['encoded_pixels'])
  for name, told in zip(answers['record_id'], answers['encoded_pixels']):
    bands = {p.name for p in (public / 'test' / name).iterdir()}
    assert bands == {f'band_{k:02}.npy' for k in range(8, 17)}
    numbers = [int(n) for n in told.replace('-', '').split()]
    assert all(1 <= n <= 32 * 32 for n in numbers) and len(numbers) % 2 == 0
  counts = set()
  for home in (public / 'train').iterdir():
    single = np.load(home / 'human_individual_masks.npy')
    mask = np.load(home / 'human_pixel_masks.npy')
    band = np.load(home / 'band_08.npy')
    assert band.shape == (32, 32, 8) and band.dtype == np.float32
    assert (mask == (single.mean(axis=3) > 0.5)).all()
    counts.add(single.shape[3])
  assert len(counts) > 1


def test_the_stand_in_of_birds_has_silent_and_hidden_recordings(tmp_path):
  public = standin(layouts.BIRDS, tmp_path)
  text = (public / 'essential_data/rec_labels_test_hidden.txt').read_text()
  rows = [line.split(',') for line in text.splitlines()[1:]]
  hidden = {int(k) for k, *own in rows if own == ['?']}
  assert len(hidden) == 64 and any(len(row) == 1 for row in rows)
  answers = layouts.cells(public.parent / 'private/answers.csv')
  want = {k * 100 + j for k in hidden for j in range(19)}
  assert set(answers['Id'].astype(int)) == want
  assert (
    answers.groupby(answers['Id'].astype(int) // 100)['split']
    .nunique()
    .eq(1)
    .all()
  )


def test_labels_are_in_no_hidden_recording_of_the_stand_in(tmp_path):
  public = standin(layouts.SIGNS, tmp_path)
  answers = layouts.cells(public.parent / 'private/answers.csv')
  assert set(answers['Id'].str.len()) == {4} and answers['Id'][0][0] == '0'
  with tarfile.open(public / 'test.tar.gz') as tar:
    for member in tar:
      with zipfile.ZipFile(io.BytesIO(tar.extractfile(member).read())) as inner:
        (mat,) = inner.namelist()
        video = loadmat(io.BytesIO(inner.read(mat)))['Video'][0, 0]
      assert not video['Labels'].size and video['Frames'].size > 40


def test_the_last_pictures_of_animals_after_a_shuffle_are_hidden(tmp_path):
  """Neither their categories nor their boxes are left in a public file."""
  table, record = layouts.lay_out_animals(tmp_path / 'raw')
  out = tmp_path / 'out'
  answers = prepared(layouts.ANIMALS, out, '--raw', tmp_path / 'raw')
  shuffled = table.sample(frac=1, random_state=42)
  train, test = shuffled[:980], shuffled[980:]
  assert list(answers['id']) == list(test['id'])
  for text, told in zip(test['categories'], answers['categories']):
    assert [float(c) for c in told.split()] == json.loads(text)
  files = files_in(out / 'public')
  kept = layouts.cells(out / 'public/multilabel_classification/train.csv')
  assert kept.to_numpy().tolist() == train.to_numpy().tolist()
  boxes, hidden = (
    json.loads(files[f'object_detection/{part}.json'])
    for part in ('train', 'eval')
  )
  assert 'annotations' not in hidden and hidden['info'] == record['info']
  assert {i['file_name'][:-4] for i in hidden['images']} == set(test['id'])
  assert [i['id'] for i in boxes['images']] == list(range(1, 981))
  assert [m['id'] for m in boxes['annotations']] == list(range(1, 1961))
  widths = {i['id']: i['width'] for i in boxes['images']}
  for mark in boxes['annotations']:  # width is the picture's old number
    assert mark['category_id'] == widths[mark['image_id']] % 290 + 1
  assert not {f'u-{w:03}' for w in widths.values()} & set(test['id'])
  assert len([f for f in files if f.startswith('images/')]) == 1000


def test_slice_of_a_scan_is_read_as_dicom_lays_it_out():
  image = np.arange(12, dtype=np.uint16).reshape(3, 4) * 300
  data = pictures.dicom(image, 7)
  assert data[128:132] == b'DICM'
  found, at = {}, 132
  while at < len(data):
    group, tag, kind = struct.unpack_from('<HH2s', data, at)
    long = kind in (b'OW', b'OB')
    (size,) = struct.unpack_from(
      '<I' if long else '<H', data, at + 6 + 2 * long
    )
    at += 12 if long else 8
    found[group, tag] = data[at : at + size]
    at += size
  assert at == len(data) and list(found) == sorted(found)
  (length,) = struct.unpack('<I', found[2, 0])
  assert data[144 + length :].startswith(struct.pack('<HH', 8, 0x60))
  rows, columns = (struct.unpack('<H', found[0x28, k])[0] for k in (16, 17))
  pixels = np.frombuffer(found[0x7FE0, 0x10], '<u2').reshape(rows, columns)
  assert (pixels == image).all()
