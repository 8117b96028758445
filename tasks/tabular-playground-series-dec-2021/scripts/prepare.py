"""Prepares `tabular-playground-series-dec-2021`: kinds of forest.

Two kinds are as rare in the stand-in as in the original, one of them has a single
row; of a kind that has no two hidden rows neither half is promised one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='tabular-playground-series-dec-2021',
  url='https://www.kaggle.com/competitions/tabular-playground-series-dec-2021/'
  'data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('tabular-playground-series-dec-2021.zip (or train.csv)',),
)
AREAS, SOILS = 4, 40


def forests(rng, count):
  kind = rng.choice(7, count, p=(0.365, 0.54, 0.045, 0.006, 0.0, 0.014, 0.03))
  kind[count // 2] = 4  # the one row of its kind
  mean = np.array([3130, 2880, 2420, 2230, 2780, 2400, 3360])[kind]
  height = np.round(rng.normal(mean, 130)).astype(int)
  aspect = rng.randint(0, 360, count)
  slope = np.clip(np.round(rng.gamma(3.0, 5.0, count)), 0, 60).astype(int)
  dry = rng.normal(0, 1, count) + 0.8 * (kind == 0) - 0.4 * (kind == 1)
  sun = np.cos(np.radians(aspect - 180))
  whole = lambda values, low, high: (
    np.clip(np.round(values), low, high).astype(int)
  )
  road = whole(rng.exponential(1700, count), -50, 7500)
  data = {
    'Elevation': height + whole(0.08 * np.abs(road), 0, 400),
    'Aspect': aspect,
    'Slope': slope,
    'Horizontal_Distance_To_Hydrology': whole(270 + 150 * dry, 0, 1600),
    'Vertical_Distance_To_Hydrology': whole(50 + 30 * dry, -200, 600),
    'Horizontal_Distance_To_Roadways': road,
    'Hillshade_9am': whole(212 - 25 * sun + rng.normal(0, 12, count), 0, 280),
    'Hillshade_Noon': whole(221 - slope + rng.normal(0, 10, count), 0, 280),
    'Hillshade_3pm': whole(140 + 30 * sun + rng.normal(0, 14, count), -10, 280),
    'Horizontal_Distance_To_Fire_Points': whole(
      rng.exponential(1600, count) * (1 + 0.4 * (kind == 1)), 0, 7900
    ),
  }
  likes = np.array([[6, 2, 2, 0.2], [5, 1, 4, 0.2], [0.2, 0.2, 4, 6],
                    [0.1, 0.1, 1, 9], [2, 1, 6, 1], [0.2, 0.2, 6, 4],
                    [5, 2, 3, 0.2]])  # fmt: skip
  area = (rng.rand(count, 1) > np.cumsum(likes / likes.sum(1, keepdims=True), 1)[kind]).sum(1)
  for k in range(AREAS):
    data[f'Wilderness_Area{k + 1}'] = (area == k).astype(int)
  # A soil is a mark of its own, and some rows have none or two, as in the original.
  first = (kind * 5 + rng.randint(0, 9, count)) % SOILS
  second = rng.randint(0, SOILS, count)
  for k in range(SOILS):
    none = (first == k) & (rng.rand(count) < 0.8)
    also = (second == k) & (rng.rand(count) < 0.3)
    data[f'Soil_Type{k + 1}'] = (none | also).astype(int)
  return pd.DataFrame({'Id': np.arange(count), **data, 'Cover_Type': kind + 1})


def standin():
  rng = np.random.RandomState(109)
  table = forests(rng, 9000)
  return parts(table[:6500], table[6500:].reset_index(drop=True))


def parts(train, test):
  tables = kit.labelled(train, test, 'Id', ['Cover_Type'], {'Cover_Type': 2})
  return kit.Parts(
    tables.public,
    tables.answers,
    tables.groups,
    classes=kit.frequent(test['Cover_Type']),
  )


def mlebench(public, private):
  paths = public / 'train.csv', private / 'test.csv'
  return parts(*(kit.numbers(path) for path in paths))


def raw(folder):
  return parts(*kit.hold_out(kit.numbers(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
