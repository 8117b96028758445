"""Small folders laid out as mle-bench and the original downloads are.

Their rows are those of a stand-in's training set, which has labels: a test knows
which of them must be held out, and what the answers are.
"""

from __future__ import annotations

import io
import json
import pathlib
import pickle
import tarfile
import zipfile
from collections.abc import Mapping

import numpy as np
import pandas as pd

ROWS, HIDDEN = 260, 80
# Of the target in mle-bench's private file, where it is not as in train.csv.
ONE_HOT = {
  'spooky-author-identification': 'author',
  'leaf-classification': 'species',
}
INSULTS = 'detecting-insults-in-social-commentary'
NOMAD = 'nomad2018-predict-transparent-conductors'
TOXIC = 'jigsaw-toxic-comment-classification-challenge'
BIAS = 'jigsaw-unintended-bias-in-toxicity-classification'
CHAII = 'chaii-hindi-and-tamil-question-answering'
QUEST = 'google-quest-challenge'
# Column of train.csv -> the same in mle-bench's answers.
RENAMED = {
  BIAS: {'target': 'toxicity'},
  CHAII: {'answer_text': 'PredictionString'},
}


def cells(path: pathlib.Path) -> pd.DataFrame:
  return pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[])


def _zip(path: pathlib.Path, files: dict[str, bytes]) -> None:
  with zipfile.ZipFile(path, 'w') as archive:
    for name, data in files.items():
      archive.writestr(name, data)


def _csv(table: pd.DataFrame) -> bytes:
  return table.to_csv(index=False).encode()


def lay_out_mlebench(
  name: str, standin: pathlib.Path, folder: pathlib.Path
) -> pd.DataFrame:
  """Writes NAME/prepared/{public,private}; returns the labelled test rows."""
  table = cells(standin / 'train.csv')[: ROWS + HIDDEN]
  train, test = table[:ROWS], table[ROWS:].reset_index(drop=True)
  public = folder / name / 'prepared/public'
  private = folder / name / 'prepared/private'
  for path in (public, private):
    path.mkdir(parents=True)
  if name in ONE_HOT:
    hidden = [ONE_HOT[name]]
    sample = cells(standin / 'sample_submission.csv')
    answers = test[['id']].copy()
    for column in sample.columns[1:]:
      answers[column] = (test[hidden[0]] == column).astype(float)
  else:
    hidden = [c for c in table.columns if c not in cells(standin / 'test.csv')]
    answers = test
  if name == INSULTS:
    answers = test.assign(Usage='PrivateTest')
  if name in RENAMED:
    answers = test.rename(columns=RENAMED[name])
  if name == CHAII:
    answers = answers[['id', 'PredictionString']]
  if name == QUEST:
    answers = test[['qa_id', *hidden]]
  if name == BIAS:  # of the public and private board
    answers = answers.assign(split='private')
  train.to_csv(public / 'train.csv', index=False)
  test.drop(columns=hidden).to_csv(public / 'test.csv', index=False)
  other = name.startswith(('learning-agency', 'lmsys'))
  file = 'answers.csv' if other else 'test.csv'
  answers.to_csv(private / file, index=False)
  for part in ('images', 'train', 'test'):
    if (standin / part).is_dir():
      (public / part).mkdir()
      (public / part / 'one').write_bytes(b'as it was')
  return test.rename(columns=RENAMED.get(name, {}))


def lay_out_raw(
  name: str, standin: pathlib.Path, folder: pathlib.Path
) -> pd.DataFrame:
  """Writes the original files; returns all their labelled rows in their order."""
  folder.mkdir()
  table = cells(standin / 'train.csv')[: ROWS * 2]
  if name == INSULTS:
    test = table[ROWS:].assign(Usage='PrivateTest')
    table[:ROWS].to_csv(folder / 'train.csv', index=False)
    test.to_csv(folder / 'test_with_solutions.csv', index=False)
    return table
  if name in (TOXIC, BIAS):
    test = table[ROWS:].rename(columns=RENAMED.get(name, {}))
    files = {'train': table[:ROWS], 'test_private_expanded': test}
    if name == TOXIC:
      shown = test[['id', 'comment_text']]
      labels = test.drop(columns='comment_text')
      files = {'train': table[:ROWS], 'test': shown, 'test_labels': labels}
    for part, rows in files.items():
      _zip(folder / f'{part}.csv.zip', {f'{part}.csv': _csv(rows)})
    return table.rename(columns=RENAMED.get(name, {}))
  if name == 'leaf-classification':
    rng = np.random.RandomState(0)  # of each species one at least
    table = cells(standin / 'train.csv').iloc[rng.permutation(990)]
    files = {f'images/{i}.jpg': f'leaf {i}'.encode() for i in table['id']}
    _zip(folder / 'images.zip', files)
  if name == NOMAD:
    table['id'] = [str(k) for k in range(1, len(table) + 1)]
    files = {
      f'train/{i}/geometry.xyz': f'crystal {i}'.encode() for i in table['id']
    }
    _zip(folder / 'train.zip', files)
  _zip(folder / 'train.csv.zip', {'train.csv': _csv(table)})
  return table.reset_index(drop=True).rename(columns=RENAMED.get(name, {}))


SALT = 'tgs-salt-identification-challenge'


def lay_out_salt(
  standin: pathlib.Path, mlebench: pathlib.Path, raw: pathlib.Path
) -> pd.DataFrame:
  """Writes both layouts of the salt images; returns all labelled rows."""
  table = cells(standin / 'train.csv')[:120]
  images = {
    f'{part}/{i}.png': (standin / f'train/{part}/{i}.png').read_bytes()
    for i in table['id']
    for part in ('images', 'masks')
  }
  raw.mkdir()
  _zip(
    raw / 'competition_data.zip',
    {
      'competition_data/train.csv': _csv(table),
      **{f'competition_data/train/{k}': v for k, v in images.items()},
    },
  )
  depths = table[['id']].assign(z='7')
  (raw / 'depths.csv').write_bytes(_csv(depths))
  public = mlebench / SALT / 'prepared/public'
  private = mlebench / SALT / 'prepared/private'
  private.mkdir(parents=True)
  for part in ('train/images', 'train/masks', 'test/images'):
    (public / part).mkdir(parents=True)
  for row, i in enumerate(table['id']):
    part = 'train' if row < 80 else 'test'
    path = public / f'{part}/images/{i}.png'
    path.write_bytes(images[f'images/{i}.png'])
    if part == 'train':
      path = public / f'train/masks/{i}.png'
      path.write_bytes(images[f'masks/{i}.png'])
  table[:80].to_csv(public / 'train.csv', index=False)
  depths[:80].to_csv(public / 'depths.csv', index=False)
  table[80:].to_csv(private / 'test.csv', index=False)
  return table


def lay_out_notebooks(
  standin: pathlib.Path, mlebench: pathlib.Path, raw: pathlib.Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Writes both layouts of AI4Code; returns the orders and the ancestors."""
  orders = cells(standin / 'train_orders.csv')[:150]
  ancestors = cells(standin / 'train_ancestors.csv')
  ancestors = ancestors[ancestors['id'].isin(set(orders['id']))]
  files = {i: (standin / f'train/{i}.json').read_bytes() for i in orders['id']}
  raw.mkdir()
  _zip(
    raw / 'AI4Code.zip',
    {
      'train_orders.csv': _csv(orders),
      'train_ancestors.csv': _csv(ancestors),
      'test/other.json': b'{}',
      **{f'train/{i}.json': data for i, data in files.items()},
    },
  )
  public = mlebench / 'AI4Code/prepared/public'
  private = mlebench / 'AI4Code/prepared/private'
  private.mkdir(parents=True)
  for part in ('train', 'test'):
    (public / part).mkdir(parents=True)
  train, test = orders[:100], orders[100:]
  for part, table in (('train', train), ('test', test)):
    for i in table['id']:
      (public / f'{part}/{i}.json').write_bytes(files[i])
  train.to_csv(public / 'train_orders.csv', index=False)
  known = ancestors[ancestors['id'].isin(set(train['id']))]
  known.to_csv(public / 'train_ancestors.csv', index=False)
  test.to_csv(private / 'test_orders.csv', index=False)
  return orders, ancestors


def lay_out_batches(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
  """Writes CIFAR-10's archive of pickles; returns its test images and labels."""
  rng = np.random.RandomState(0)
  folder.mkdir()
  with tarfile.open(folder / 'cifar-10-python.tar.gz', 'w:gz') as tar:
    for name in (*(f'data_batch_{k}' for k in range(1, 6)), 'test_batch'):
      images = rng.randint(0, 256, (60, 32, 32, 3)).astype(np.uint8)
      labels = rng.permutation(np.arange(60) % 10)
      record = {
        b'batch_label': b'a batch',
        b'labels': labels.tolist(),
        b'data': images.transpose(0, 3, 1, 2).reshape(60, -1),
      }
      data = pickle.dumps(record, protocol=2)
      member = tarfile.TarInfo(f'cifar-10-batches-py/{name}')
      member.size = len(data)
      tar.addfile(member, io.BytesIO(data))
  return images, labels


# Tasks whose rows are files of their own; each is laid out with rows that have
# labels, and what mle-bench's public folder must keep.
CACTUS = 'aerial-cactus-identification'
CATS = 'dogs-vs-cats-redux-kernels-edition'
LEAVES = 'plant-pathology-2020-fgvc7'
PAGES = 'denoising-dirty-documents'
FLUKES = 'whale-categorization-playground'
RADAR = 'statoil-iceberg-classifier-challenge'
LUNGS = 'osic-pulmonary-fibrosis-progression'
TRAILS = 'identify-contrails'
BIRDS = 'mlsp-2013-birds'
FILES = (CACTUS, CATS, LEAVES, PAGES, FLUKES, RADAR, LUNGS, TRAILS, BIRDS)

# mle-bench's name of a task, where the folder has MLAgentBench's.
MLEBENCH = {TRAILS: 'google-research-identify-contrails-reduce-global-warming'}


def _put(folder: pathlib.Path, files: dict[str, bytes]) -> None:
  for name, data in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _both(columns: str, rows: list) -> pd.DataFrame:
  return pd.DataFrame(rows, columns=columns.split()).astype(str)


def small_png(value: int, shape: tuple[int, int] = (3, 4)) -> bytes:
  """A grey picture whose first pixel is `value`, the others white."""
  from PIL import Image

  grey = np.full(shape, 255, np.uint8)
  grey[0, 0] = value
  out = io.BytesIO()
  Image.fromarray(grey).save(out, 'png')
  return out.getvalue()


def labelled_files(name: str) -> tuple[pd.DataFrame, dict[str, bytes]]:
  """A table of labels, and a file for each of its rows by the row's id."""
  if name == CACTUS:
    table = _both(
      'id has_cactus', [[f'{k:032x}.jpg', k % 3 % 2] for k in range(90)]
    )
  elif name == LEAVES:
    kinds = np.eye(4, dtype=int)
    rows = [[f'Train_{k}', *kinds[k % 4]] for k in range(200)]
    table = _both('image_id healthy multiple_diseases rust scab', rows)
  elif name == FLUKES:
    names = ['new_whale', *(f'w_{k:07x}' for k in range(30))]
    rows = [
      [f'{k:08x}.jpg', names[k % 31 if k < 150 else 0]] for k in range(180)
    ]
    rows += [[f'{k:08x}.jpg', f'w_alone{k}'] for k in range(180, 240)]
    table = _both('Image Id', rows)
  elif name == CATS:
    rows = [
      [f'{("cat", "dog")[k % 2]}.{k // 2}.jpg', k % 2] for k in range(120)
    ]
    table = _both('name label', rows)
  elif name == LUNGS:
    columns = 'Patient Weeks FVC Percent Age Sex SmokingStatus'
    rows = [
      [
        f'ID{k:04d}',
        week,
        2000 + 7 * k - 5 * week,
        70.5,
        60,
        'Male',
        'Ex-smoker',
      ]
      for k in range(60)
      for week in (k % 4 - 2, 5, 9, 14)
    ]
    table = _both(columns, rows)
  elif name == TRAILS:
    rows = [[f'{10**18 + k}', f'{k + 1} 2', 8, 10] for k in range(60)]
    table = _both('record_id encoded_pixels height width', rows)
    table.loc[::3, 'encoded_pixels'] = '-'
  elif name == BIRDS:
    rows = [
      [k * 100 + j, int(j in birds_of(k))]
      for k in range(0, 40, 2)
      for j in range(19)
    ]
    table = _both('Id Probability', rows)
  elif name == RADAR:
    table = _both('id is_iceberg', [[f'{k:08x}', k % 2] for k in range(80)])
  else:
    table = _both('id', [[str(k)] for k in range(2, 52)])
  keys = table[table.columns[0]]
  return table, {key: f'file {key}'.encode() for key in keys}


def birds_of(number: int) -> list[int]:
  """Species that call in a recording; none in each fifth."""
  return [] if number % 5 == 0 else sorted({number % 19, number * 7 % 19})


def lay_out_birds(folder: pathlib.Path) -> None:
  """Writes the originals of the birds: 100 recordings, each fourth of fold 1."""
  folder.mkdir()
  numbers = range(100)
  lines = {
    'essential_data/CVfolds_2': [f'{k},{int(k % 4 == 3)}' for k in numbers],
    'essential_data/rec_id2filename': [f'{k},PC{k}' for k in numbers],
    'essential_data/rec_labels_test_hidden': [
      ','.join(map(str, [k, *(birds_of(k) if k % 4 < 3 else '?')]))
      for k in numbers
    ],
    'essential_data/species_list': ['0,BRCR,Brown Creeper'],
    'supplemental_data/histogram_of_segments': [f'{k},0,1' for k in numbers],
    'supplemental_data/segment_features': [f'{k},0,{k / 8}' for k in numbers],
    'supplemental_data/segment_rectangles': [f'{k},0,{k},9' for k in numbers],
  }
  heads = {
    'essential_data/CVfolds_2': 'rec_id,fold',
    'essential_data/rec_id2filename': 'rec_id,filename',
  }
  files = {
    f'{path}.txt': '\n'.join([heads.get(path, 'rec_id,[x]'), *rows]).encode()
    for path, rows in lines.items()
  }
  for k in numbers:
    files[f'essential_data/src_wavs/PC{k}.wav'] = f'sound {k}'.encode()
    files[f'supplemental_data/spectrograms/PC{k}.bmp'] = f'bmp {k}'.encode()
  whole = {f'mlsp_contest_dataset/{k}': v for k, v in files.items()}
  _zip(folder / 'mlsp_contest_dataset.zip', whole)


SIGNS = 'multi-modal-gesture-recognition'


def _sign_archive(ids: list[str]) -> bytes:
  """A .tar.gz of recordings whose `Video.Labels` name a sign and its frames."""
  from scipy.io import savemat

  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode='w:gz') as tar:
    for i in ids:
      labels = np.array(
        [('ok', 1, 2)], [(n, object) for n in 'Name Begin End'.split()]
      )
      mat, packed = io.BytesIO(), io.BytesIO()
      savemat(mat, {'Video': {'NumFrames': int(i), 'Labels': labels}})
      with zipfile.ZipFile(packed, 'w') as inner:
        inner.writestr(f'Sample0{i}_data.mat', mat.getvalue())
        inner.writestr(f'Sample0{i}_color.mp4', f'film {i}')
      member = tarfile.TarInfo(f'Sample0{i}.zip')
      member.size = len(packed.getvalue())
      tar.addfile(member, io.BytesIO(packed.getvalue()))
  return out.getvalue()


def lay_out_signs(
  raw: pathlib.Path, mlebench: pathlib.Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Writes both layouts of the signs; returns training and hidden rows."""
  parts = {f'training{k}': range(90 * k, 90 * k + 20) for k in (1, 2, 3, 4)}
  parts |= {f'validation{k}': range(900 + k, 902 + k) for k in (1, 2, 3)}
  data = {
    f'{part}.tar.gz': _sign_archive([f'{i:04}' for i in numbers])
    for part, numbers in parts.items()
  }
  rows = [
    [f'{i:04}', f'{i % 20 + 1} 3']
    for part, numbers in parts.items()
    if part.startswith('training')
    for i in numbers
  ]
  table = _both('Id Sequence', rows)
  _put(raw, {'training.csv': _csv(table), **data})
  home = mlebench / SIGNS / 'prepared'
  hidden = data.pop('training4.tar.gz')
  train, test = table[:60], table[60:].reset_index(drop=True)
  shown = {'training.csv': _csv(train), 'test.tar.gz': hidden, **data}
  _put(home / 'public', {**shown, 'devel01-40.7z': b'7z'})
  _put(home / 'private', {'test.csv': _csv(test)})
  return train, test


def signs_in(archive: bytes) -> dict[str, tuple[int, int, bytes]]:
  """Name of a recording -> its NumFrames, how many labels it has, its film."""
  from scipy.io import loadmat

  out = {}
  with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
    for member in tar:
      file = tar.extractfile(member)
      assert file is not None
      with zipfile.ZipFile(io.BytesIO(file.read())) as inner:
        name = member.name.removesuffix('.zip')
        mat = io.BytesIO(inner.read(f'{name}_data.mat'))
        video = loadmat(mat)['Video'][0, 0]
        film = inner.read(f'{name}_color.mp4')
      out[name] = int(video['NumFrames'].item()), video['Labels'].size, film
  return out


ANIMALS = 'fathomnet'


def lay_out_animals(folder: pathlib.Path) -> tuple[pd.DataFrame, dict]:
  """Writes the originals of the animals; returns their table and their boxes."""
  rows = [
    [f'u-{k:03}', f'[{k % 290 + 1}.0, {k % 7 + 1}.0]'] for k in range(1000)
  ]
  table = _both('id categories', rows)
  record = {
    'info': {'year': 2023},
    'images': [
      {'id': k + 1, 'file_name': f'u-{k:03}.png', 'width': k}
      for k in range(1000)
    ],
    'annotations': [
      {'id': k + 1, 'image_id': k // 2 + 1, 'category_id': k // 2 % 290 + 1}
      for k in range(2000)
    ],
    'categories': [{'id': 1, 'name': 'Worm', 'supercategory': 'Worm'}],
  }
  _put(
    folder,
    {
      'multilabel_classification/train.csv': _csv(table),
      'object_detection/train.json': json.dumps(record).encode(),
      'category_key.csv': b'id,name,supercat\n1,Worm,Worm\n',
      **{f'images/{i}.png': f'image {i}'.encode() for i in table['id']},
    },
  )
  return table, record


def radar_rows(table: pd.DataFrame) -> list[dict]:
  return [
    {
      'id': row['id'],
      'band_1': [-20.123456, k],
      'band_2': [-30.5, 1.0],
      'inc_angle': 'na' if k % 5 == 0 else 43.9239,
      'is_iceberg': int(row['is_iceberg']),
    }
    for k, row in enumerate(table.to_dict('records'))
  ]


def scene_files(row: Mapping[str, str]) -> dict[str, bytes]:
  """Bands and masks of a contrails record, by their paths below its part."""
  mask = np.zeros(80, dtype=np.int32)
  if row['encoded_pixels'] != '-':
    start, length = map(int, row['encoded_pixels'].split())
    mask[start - 1 : start - 1 + length] = 1
  file = io.BytesIO()
  np.save(file, mask.reshape(10, 8).T[..., None])
  name = row['record_id']
  files = {f'band_{k:02}.npy': f'{k} of {name}'.encode() for k in range(8, 17)}
  files['human_individual_masks.npy'] = b'of each'
  files['human_pixel_masks.npy'] = file.getvalue()
  return {f'{name}/{path}': data for path, data in files.items()}


def _put_scenes(folder: pathlib.Path, part: str, table: pd.DataFrame) -> None:
  """Writes records of contrails, with masks but for those of the test part."""
  for row in table.to_dict('records'):
    for path, data in scene_files(row).items():
      if part != 'test' or 'mask' not in path:
        _put(folder / part, {path: data})
  records = table[['record_id']].assign(timestamp=1.5).to_dict('records')
  if part != 'test':
    (folder / f'{part}_metadata.json').write_text(json.dumps(records))


def lay_out_files(name: str, folder: pathlib.Path) -> pd.DataFrame:
  """Writes the original files of a task of FILES; returns their labels."""
  folder.mkdir()
  table, files = labelled_files(name)
  if name in (CACTUS, LEAVES, FLUKES, LUNGS):
    (folder / 'train.csv').write_bytes(_csv(table))
  if name == LUNGS:
    _put(folder, {f'train/{k}/1.dcm': data for k, data in files.items()})
  elif name == LEAVES:
    _put(folder, {f'images/{k}.jpg': data for k, data in files.items()})
  elif name == TRAILS:
    other = table[:15].assign(
      record_id=[f'{9 * 10**18 + k}' for k in range(15)]
    )
    _put_scenes(folder, 'train', table)
    _put_scenes(folder, 'validation', other)
  elif name == RADAR:
    text = json.dumps(radar_rows(table))
    (folder / 'train.json').write_text(text)
  elif name == PAGES:
    for part, low in (('train', 100), ('train_cleaned', 0)):
      images = {f'{part}/{k}.png': small_png(low + int(k)) for k in table['id']}
      _zip(folder / f'{part}.zip', images)
  else:
    _zip(folder / 'train.zip', {f'train/{k}': v for k, v in files.items()})
  return table


def lay_out_prepared_files(
  name: str, folder: pathlib.Path
) -> tuple[pathlib.Path, pd.DataFrame]:
  """Writes what mle-bench makes of a task of FILES; (public folder, answers)."""
  home = folder / MLEBENCH.get(name, name) / 'prepared'
  public, private = home / 'public', home / 'private'
  public.mkdir(parents=True)
  private.mkdir()
  table, files = labelled_files(name)
  key = table.columns[0]
  train, test = table[:-40], table[-40:].reset_index(drop=True)
  if name in (CACTUS, LEAVES, FLUKES):
    (public / 'train.csv').write_bytes(_csv(train))
    (private / 'test.csv').write_bytes(_csv(test))
  if name == LEAVES:
    (public / 'test.csv').write_bytes(_csv(test[[key]]))
    _put(public, {f'images/{k}.jpg': data for k, data in files.items()})
  elif name == TRAILS:
    (private / 'answers.csv').write_bytes(_csv(test))
    for part, rows in (('train', train), ('validation', train[:3])):
      _put_scenes(public, part, rows)
    _put_scenes(public, 'test', test)
  elif name == BIRDS:
    test = table
    (private / 'answers.csv').write_bytes(_csv(test))
    _put(public / 'essential_data', {'src_wavs/a.wav': b'a', 'b.txt': b'b'})
    _put(public / 'supplemental_data', {'c.txt': b'c'})
  elif name == LUNGS:
    (public / 'train.csv').write_bytes(_csv(train))
    (public / 'test.csv').write_bytes(_csv(test[::4]))
    for part, rows in (('train', train), ('test', test)):
      _put(public, {f'{part}/{k}/1.dcm': files[k] for k in rows[key]})
    test.insert(0, 'Patient_Week', test['Patient'] + '_' + test['Weeks'])
    test['Confidence'] = '100'
    test.loc[1::8, ['FVC', 'Percent', 'Age', 'Sex', 'SmokingStatus']] = ''
    (private / 'test.csv').write_bytes(_csv(test))
    test = test[['Patient_Week', 'Patient', 'Weeks', 'FVC', 'Confidence']]
  elif name == FLUKES:
    for part, rows in (('train', train), ('test', test)):
      _put(public, {f'{part}/{k}': files[k] for k in rows[key]})
  elif name == RADAR:
    (private / 'test.csv').write_bytes(_csv(test))
    rows = radar_rows(table)
    bare = [{k: v for k, v in r.items() if k != 'is_iceberg'} for r in rows]
    (public / 'train.json').write_text(json.dumps(rows[:-40]))
    (public / 'test.json').write_text(json.dumps(bare[-40:]))
  elif name == PAGES:
    for part in ('train', 'train_cleaned', 'test'):
      _put(public, {f'{part}/1.png': small_png(9)})
    ids = [f'{k}_1_{c}' for k in range(60, 70) for c in range(1, 5)]
    test = _both('id value', [[i, k / 255] for k, i in enumerate(ids)])
    (private / 'answers.csv').write_bytes(_csv(test))
  else:
    if name == CATS:
      labels = test['label']
      test = pd.DataFrame({'id': range(1, 41), 'label': labels}).astype(str)
      (private / 'answers.csv').write_bytes(_csv(test))
    for part, rows in (('train', train), ('test', table[-40:])):
      _zip(public / f'{part}.zip', {k: files[k] for k in rows[key]})
  return public, test
