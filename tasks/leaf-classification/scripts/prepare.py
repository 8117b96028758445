"""Prepares `leaf-classification`: 99 species from shape, texture and margin.

The stand-in's leaves are drawn: a species is an outline, a margin of teeth and a
texture, of which each leaf is a version; the three descriptors are measured. With
`--packages DIR` the outline of a species is that of a real leaf, of the data set OSULeaf
that comes with aeon.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, pictures

CLASSES = tuple(
  """Acer_Capillipes Acer_Circinatum Acer_Mono Acer_Opalus Acer_Palmatum
  Acer_Pictum Acer_Platanoids Acer_Rubrum Acer_Rufinerve Acer_Saccharinum
  Alnus_Cordata Alnus_Maximowiczii Alnus_Rubra Alnus_Sieboldiana
  Alnus_Viridis Arundinaria_Simonii Betula_Austrosinensis Betula_Pendula
  Callicarpa_Bodinieri Castanea_Sativa Celtis_Koraiensis Cercis_Siliquastrum
  Cornus_Chinensis Cornus_Controversa Cornus_Macrophylla Cotinus_Coggygria
  Crataegus_Monogyna Cytisus_Battandieri Eucalyptus_Glaucescens
  Eucalyptus_Neglecta Eucalyptus_Urnigera Fagus_Sylvatica Ginkgo_Biloba
  Ilex_Aquifolium Ilex_Cornuta Liquidambar_Styraciflua
  Liriodendron_Tulipifera Lithocarpus_Cleistocarpus Lithocarpus_Edulis
  Magnolia_Heptapeta Magnolia_Salicifolia Morus_Nigra Olea_Europaea
  Phildelphus Populus_Adenopoda Populus_Grandidentata Populus_Nigra
  Prunus_Avium Prunus_X_Shmittii Pterocarya_Stenoptera Quercus_Afares
  Quercus_Agrifolia Quercus_Alnifolia Quercus_Brantii Quercus_Canariensis
  Quercus_Castaneifolia Quercus_Cerris Quercus_Chrysolepis Quercus_Coccifera
  Quercus_Coccinea Quercus_Crassifolia Quercus_Crassipes
  Quercus_Dolicholepis Quercus_Ellipsoidalis Quercus_Greggii
  Quercus_Hartwissiana Quercus_Ilex Quercus_Imbricaria
  Quercus_Infectoria_sub Quercus_Kewensis Quercus_Nigra Quercus_Palustris
  Quercus_Phellos Quercus_Phillyraeoides Quercus_Pontica Quercus_Pubescens
  Quercus_Pyrenaica Quercus_Rhysophylla Quercus_Rubra Quercus_Semecarpifolia
  Quercus_Shumardii Quercus_Suber Quercus_Texana Quercus_Trojana
  Quercus_Variabilis Quercus_Vulcanica Quercus_x_Hispanica Quercus_x_Turneri
  Rhododendron_x_Russellianum Salix_Fragilis Salix_Intergra Sorbus_Aria
  Tilia_Oliveri Tilia_Platyphyllos Tilia_Tomentosa Ulmus_Bergmanniana
  Viburnum_Tinus Viburnum_x_Rhytidophylloides Zelkova_Serrata
  """.split()
)
SOURCE = kit.Source(
  id='leaf-classification',
  url='https://www.kaggle.com/c/leaf-classification/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv.zip', 'images.zip'),
)
OUTLINES = 'aeon/datasets/data/OSULeaf/OSULeaf_TRAIN.ts'
PACKAGED = kit.Packaged(
  'aeon',
  '1.6.0',
  {OUTLINES: '86b9d6e860414ffd26cebc62fff84ffb37fa588ef3e5bf79e4094a437c36ddfc'},
)
ANGLES = np.arange(256) / 256 * 2 * np.pi
KEPT, HELD_OUT = 10, 6  # leaves of a species


def waves(rng, orders, decay):
  """Amplitudes and phases of a species' outline."""
  orders = np.array(orders)
  size = rng.normal(0, 1, len(orders)) / orders**decay
  return orders, size, rng.uniform(0, 2 * np.pi, len(orders))


def outlines(series):
  """Amplitudes and phases of real leaves, as `waves`, one a line of values."""
  lines = series.decode().splitlines()
  orders = np.arange(1, 7)
  found = []
  for line in lines[lines.index('@data') + 1 :]:
    reach = np.array(line.rpartition(':')[0].split(','), dtype=float)
    turns = np.exp(2j * np.pi * np.outer(orders, np.arange(len(reach))) / len(reach))
    parts = (2 / len(reach) * (turns.conj() * reach).sum(axis=1)).round(6)
    found.append((orders, np.abs(parts), np.angle(parts)))
  return found


def curve(parts, turn=0.0):
  orders, size, phase = parts
  return (size[:, None] * np.cos(np.outer(orders, ANGLES + turn) + phase[:, None])).sum(0)


def histogram(values, low, high):
  counts = np.histogram(values.clip(low, high), bins=64, range=(low, high))[0]
  return counts / len(values)


def leaf(rng, species):
  """(64 of margin, 64 of shape, 64 of texture, picture) of one leaf."""
  outline, teeth, texture = species
  orders, size, phase = outline
  own = orders, size * rng.normal(1, 0.3, len(size)), phase + rng.normal(0, 0.33, len(size))
  shape = np.exp(0.28 * curve(own) + rng.normal(0, 0.02) )
  edge = curve((teeth[0], teeth[1] * rng.normal(1, 0.4, len(teeth[1])), teeth[2]))
  margin = edge + rng.normal(0, 0.5, 256)
  grain = np.sort(rng.gamma(texture[0], texture[1], 400)) * rng.normal(1, 0.15)
  reach = shape * (1 + 0.03 * edge)
  centre = reach.reshape(64, 4).mean(axis=1)
  centre = np.sqrt(centre / centre.sum() / 64) / 20 * rng.normal(1, 0.06, 64)
  size = 24.0 / reach.max()
  image = ~pictures.disc(60, 30.0, 30.0, size * reach)
  picture = pictures.encoded(np.where(image, 255, 0).astype(np.uint8), 'jpeg')
  return (
    histogram(margin, -3, 3), centre, histogram(grain, 0, 8), picture
  )  # fmt: skip


def standin(files=None):
  rng = np.random.RandomState(106)
  real = outlines(files[OUTLINES])[::2] if files else []
  rows, files = [], []
  for number, name in enumerate(CLASSES):
    drawn = waves(rng, range(1, 7), 0.7)
    species = (
      real[number] if real else drawn,
      waves(rng, (9, 14, 21, 33), 0.2),
      (rng.uniform(1, 8), rng.uniform(0.2, 0.8)),
    )
    for k in range(KEPT + HELD_OUT):
      margin, shape, texture, picture = leaf(rng, species)
      values = np.concatenate([margin, shape, texture]).round(6)
      rows.append([name, *values, k >= KEPT])
      files.append(picture)
  names = [f'{kind}{k}' for kind in ('margin', 'shape', 'texture') for k in range(1, 65)]
  table = pd.DataFrame(rows, columns=['species', *names, 'held'])
  order = rng.permutation(len(table))
  table = table.iloc[order].reset_index(drop=True)
  table.insert(0, 'id', np.arange(1, len(table) + 1))
  images = {
    f'images/{k + 1}.jpg': files[place] for k, place in enumerate(order)
  }
  held = table.pop('held').astype(bool)
  train = table[~held].reset_index(drop=True)
  return parts(train, table[held].reset_index(drop=True), images)


def parts(train, test, images):
  answers = kit.one_hot(test['species'], CLASSES)
  answers.insert(0, 'id', test['id'].to_numpy())
  sample = answers.copy()
  sample[list(CLASSES)] = 1 / len(CLASSES)
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test.drop(columns='species'),
      'sample_submission.csv': sample,
      **images,
    },
    answers,
    groups=list(test['id']),
    classes=kit.frequent(test['species']),
  )


def mlebench(public, private):
  test = kit.texts(public / 'test.csv')
  answers = kit.texts(private / 'test.csv').set_index('id')
  values = answers.loc[test['id'], list(CLASSES)].astype(float).to_numpy()
  test['species'] = np.array(CLASSES)[values.argmax(axis=1)]
  train = kit.texts(public / 'train.csv')
  return parts(train, test, kit.copied(public, ['images']))


def raw(folder):
  train, test = kit.hold_out(kit.texts(kit.original(folder, 'train.csv')))
  home = kit.unpacked(folder, 'images')
  images = {
    f'images/{number}.jpg': home / f'{number}.jpg'
    for number in [*train['id'], *test['id']]
  }
  return parts(train, test, images)


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=PACKAGED
  )
