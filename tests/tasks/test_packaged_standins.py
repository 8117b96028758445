"""Stand-ins of files of packages, made of made-up files: form, and what goes where."""

from __future__ import annotations

import functools
import importlib.util
import io
import re
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.io import loadmat

from jaxagent.tasks import kit, language, lexicon, photographs
from tests.subset import fast
from tests.tasks import catalogue

CACTUS = 'aerial-cactus-identification'
SIGNS = 'multi-modal-gesture-recognition'
TOXIC = 'jigsaw-toxic-comment-classification-challenge'
BIAS = 'jigsaw-unintended-bias-in-toxicity-classification'
RATED = (
  ('grumbler', -1.5), ('grumblers', -1.5), ('wistfuller', -1.5), ('sneerer', -1.9),
  ('sneerers', -1.2), ('drizzly', -1.0), ('murky', -1.3), ('vilest', -3.0),
  ('breezy', 1.0), ('sunny', 1.3), ('divine', 3.1), ('$:', -1.5), ('stern', -2.0),
)  # fmt: skip


@functools.cache
def prepare_of(name):
  path = catalogue.TASKS / name / 'scripts/prepare.py'
  spec = importlib.util.spec_from_file_location('prepare', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def png(picture):
  out = io.BytesIO()
  Image.fromarray(picture).save(out, 'png')
  return out.getvalue()


def numbered(name):
  """A photograph whose pixels tell their place: red the row, green the column."""
  rows, columns = np.mgrid[:200, :240].astype(np.uint8)
  return png(np.stack([rows, columns, np.full_like(rows, len(name))], axis=2))


def textured():
  """A texture that is black above its line 320, and white below."""
  return png(
    np.where(np.arange(512) < 320, 0, 255)
    .astype(np.uint8)[:, None]
    .repeat(512, 1)
  )


def recorded(value):
  """Recordings of ten gestures, two of each, which all have one value."""
  lines = [f'{",".join(60 * [str(value)])}:{k % 10 + 1}' for k in range(20)]
  return '\n'.join(['@problemName x', '@data', *lines]).encode()


def files_of(name):
  """Made-up files in place of those of the package."""
  module = prepare_of(name)
  if name == 'cifar10':
    names = module.PHOTOGRAPHS
    paths = photographs.packaged(*names).files
    return {path: numbered(own) for path, own in zip(paths, names)}
  if name == CACTUS:
    paths = photographs.packaged(module.GROUND, module.BUSHES).files
    return {path: textured() for path in paths}
  if name == SIGNS:
    paths = module.RECORDED
    return {paths['TRAIN']: recorded(0.5), paths['TEST']: recorded(6.0)}
  rows = [f'{word}\t{rating}\t0.5\t[1]' for word, rating in RATED]
  return {lexicon.FILE: '\n'.join(rows).encode()}


@functools.cache
def made(name):
  return prepare_of(name).standin(files_of(name))


def form(content):
  """Columns and types of a table, shape of an array, or names within an archive."""
  if isinstance(content, pd.DataFrame):
    return [(column, str(kind)) for column, kind in content.dtypes.items()]
  if isinstance(content, bytes):
    array = np.load(io.BytesIO(content))
    return array.shape, str(array.dtype)
  if content.name.endswith('.gz'):
    with tarfile.open(content) as archive:
      return archive.getnames()
  with zipfile.ZipFile(content) as archive:
    return archive.namelist()


@pytest.mark.parametrize(
  'name', fast([TOXIC, 'cifar10', CACTUS, SIGNS, BIAS], first=2)
)
def test_it_has_the_names_columns_and_types_of_the_plain_stand_in(name):
  plain, own = prepare_of(name).standin(), made(name)
  assert {n: form(content) for n, content in own.public.items()} == {
    n: form(content) for n, content in plain.public.items()
  }
  assert form(own.answers) == form(plain.answers)


def test_no_pixel_of_a_photograph_is_in_images_of_train_and_of_hidden_rows():
  module = prepare_of('cifar10')
  shown, hidden = module.pools(np.random.RandomState(0), files_of('cifar10'))

  def places(pool):
    return {tuple(pixel) for tile in pool for pixel in tile.reshape(-1, 3)}

  for own, others in zip(shown, hidden):
    assert len(places(own)) == 20 * 36**2 and len(places(others)) == 10 * 36**2
    assert not places(own) & places(others)


def test_images_of_one_piece_of_a_photograph_are_in_one_half(tmp_path):
  parts = made('cifar10')
  kit.write(tmp_path / 'public', tmp_path / 'private', parts)
  answers = pd.read_csv(tmp_path / 'private/answers.csv')
  groups = pd.Series(parts.groups)
  assert (answers['split'].groupby(groups).nunique() == 1).all()
  # Ten pieces of each of ten photographs, and each piece of its own class.
  assert len(set(groups)) == 100
  assert (answers['label'].groupby(groups).nunique() == 1).all()


def test_ground_of_hidden_pictures_is_in_none_of_the_training_set():
  """The upper part of the textures is black, the lower one white."""
  light = {}
  for part in ('train', 'test'):
    with zipfile.ZipFile(made(CACTUS).public[f'{part}.zip']) as archive:
      light[part] = [
        np.median(np.asarray(Image.open(io.BytesIO(archive.read(name)))))
        for name in archive.namelist()
      ]
  assert max(light['train']) < 120 < 130 < min(light['test'])


def heights(archive):
  """How high above the shoulders a right hand is in an archive, at most, in mm."""
  most = []
  with tarfile.open(archive) as tar:
    for member in tar:
      with zipfile.ZipFile(io.BytesIO(tar.extractfile(member).read())) as inner:
        file = io.BytesIO(inner.read(inner.namelist()[0]))
      video = loadmat(file, squeeze_me=True, struct_as_record=False)['Video']
      joints = np.array([f.Skeleton.WorldPosition for f in video.Frames])
      most.append((joints[:, 11, 1] - joints[:, 2, 1]).max())
  return most


@pytest.mark.slow
def test_hidden_recordings_follow_other_gestures_than_those_of_train():
  """A value of 6 lifts the hand by a metre or more, one of 0.5 lowers it."""
  public = made(SIGNS).public
  assert max(heights(public['training1.tar.gz'])) < 600
  assert min(heights(public['test.tar.gz'])) > 700


def test_comments_have_words_of_the_lexicon_and_none_of_the_strong_ones():
  texts = ' '.join(made(TOXIC).public['train.csv']['comment_text']).lower()
  words = set(re.findall('[a-z]+', texts))
  assert {'sneerers', 'breezy', 'grumbler'} <= words
  strong = {'vilest', 'stern', 'divine', 'sneerer'}
  own = {*language.INSULTS, *language.BLAME, *language.PRAISE}
  assert not words & (strong | own)


def test_insults_of_the_lexicon_name_people_and_are_mild():
  words = lexicon.words(files_of(TOXIC))
  assert words['insult'] == ['grumbler']
  assert words['blame'] == ['sneerer', 'stern'] and words['praise'] == []
  mild = lexicon.words(files_of(TOXIC), every=2, strength=(1.0, 1.3))
  assert mild['blame'] == ['sneerers', 'murky'] and mild['praise'] == ['breezy']
