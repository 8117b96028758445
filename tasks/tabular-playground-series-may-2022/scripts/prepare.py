"""Prepares `tabular-playground-series-may-2022`: a state from 31 columns.

The stand-in's label depends on products of columns and on the letters of f_27,
little on any column alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='tabular-playground-series-may-2022',
  url='https://www.kaggle.com/competitions/tabular-playground-series-may-2022/'
  'data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('tabular-playground-series-may-2022.zip (or train.csv)',),
)
WHOLE = (*range(7, 19), 29, 30)  # columns of whole numbers


def columns(rng, count):
  data = {}
  for k in range(31):
    name = f'f_{k:02d}'
    if k == 27:
      letters = rng.randint(0, 20, (count, 10))
      letters[:, 2:] %= 8
      data[name] = [''.join('ABCDEFGHIJKLMNOPQRST'[v] for v in row) for row in letters]
    elif k == 29:
      data[name] = (rng.rand(count) < 0.35).astype(int)
    elif k == 30:
      data[name] = rng.randint(0, 3, count)
    elif k in WHOLE:
      data[name] = rng.poisson(2.0 + 0.2 * (k - 7), count)
    elif k == 28:
      data[name] = rng.normal(0, 240, count).round(5)
    else:
      data[name] = rng.normal(0, 1 + 1.3 * (k >= 19), count).round(6)
  return pd.DataFrame(data)


def standin():
  rng = np.random.RandomState(108)
  count = 9000
  x = columns(rng, count)
  code = lambda place: x['f_27'].str[place].map(ord) - ord('A')
  score = (
    1.1 * np.sign(x['f_21']) * (np.abs(x['f_02']) > 0.7)
    + 0.8 * x['f_00'] * x['f_26'] / 2.3
    + 0.9 * (code(0) > 9) * np.sign(x['f_22'])
    + 0.55 * (x['f_27'].map(lambda t: len(set(t))) - 6.4)
    + 0.35 * (x['f_30'] - 1) * x['f_24']
    + 0.25 * (x['f_11'] - x['f_13'])
    + 0.0016 * x['f_28']
  )
  chance = 1 / (1 + np.exp(-1.5 * score.round(6)))
  x.insert(0, 'id', np.arange(count))
  x['target'] = (rng.rand(count) < chance).astype(int)
  return parts(x[:7000], x[7000:].reset_index(drop=True))


def parts(train, test):
  return kit.labelled(
    train, test, 'id', ['target'], {'target': 0.5}, stratify=True
  )


def mlebench(public, private):
  paths = public / 'train.csv', private / 'test.csv'
  return parts(*(kit.numbers(path) for path in paths))


def raw(folder):
  table = kit.numbers(kit.original(folder, 'train.csv'))
  train, test = kit.hold_out(table, min(100_000, len(table) // 4))
  # Ids anew, as mle-bench gives them.
  train['id'] = np.arange(len(train))
  test['id'] = np.arange(len(train), len(table))
  return parts(train, test)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
