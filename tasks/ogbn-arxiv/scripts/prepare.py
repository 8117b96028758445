"""Prepares `ogbn-arxiv`: subjects of papers in a graph of citations.

The original's files have the labels of all nodes; those of the test nodes become -1.
What names the papers (`mapping/`) is left out: who knows them knows the labels. The
stand-in is a block graph in which papers cite earlier ones.
"""

from __future__ import annotations

import gzip
import pathlib

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='ogbn-arxiv',
  url='https://ogb.stanford.edu/docs/nodeprop/#ogbn-arxiv',
  rules='ODC-BY, with a citation of Hu et al. 2020',
  files=('arxiv.zip (or its folder arxiv)',),
  mlebench=False,
)
CLASSES, FEATURES = 40, 128
FILES = (
  'raw/edge.csv.gz', 'raw/node-feat.csv.gz', 'raw/node_year.csv.gz',
  'raw/num-node-list.csv.gz', 'raw/num-edge-list.csv.gz',
  'split/time/train.csv.gz', 'split/time/valid.csv.gz',
)  # fmt: skip
LABELS, TEST = 'raw/node-label.csv.gz', 'split/time/test.csv.gz'


def packed(rows, form='%d'):
  """A compressed table without a head, of numbers [N] or [N, K]."""
  rows = np.asarray(rows).reshape(len(rows), -1)
  lines = '\n'.join(','.join(form % v for v in row) for row in rows)
  return gzip.compress((lines + '\n').encode(), mtime=0)


def standin():
  rng = np.random.RandomState(125)
  count = 3600
  odds = 1.0 / (4 + np.arange(CLASSES))
  labels = rng.permutation(CLASSES)[
    rng.choice(CLASSES, count, p=odds / odds.sum())
  ]
  # A paper is near its subject, and that near another one.
  centres = rng.normal(0, 1, (CLASSES, FEATURES))
  centres[1::2] = 0.7 * centres[::2] + 0.7 * centres[1::2]
  features = 0.05 * (
    0.28 * centres[labels] + rng.normal(0, 1, (count, FEATURES))
  )
  years = np.sort(1995 + np.round(25 * rng.rand(count) ** 0.4)).astype(int)
  edges = set()
  members = [np.flatnonzero(labels == k) for k in range(CLASSES)]
  for paper in range(1, count):
    for _ in range(rng.randint(1, 8)):
      own = members[labels[paper]]
      pool = own if rng.rand() < 0.5 else range(paper)
      cited = pool[rng.randint(len(pool))]
      if cited < paper:
        edges.add((paper, int(cited)))
  order = rng.permutation(
    count
  )  # the number of a paper says nothing of its year
  place = np.argsort(order)
  years, labels = years[order], labels[order]
  pairs = np.array(sorted((place[a], place[b]) for a, b in edges))
  files = {
    'raw/edge.csv.gz': packed(pairs),
    'raw/node-feat.csv.gz': packed(features[order], '%.6f'),
    'raw/node_year.csv.gz': packed(years),
    'raw/num-node-list.csv.gz': packed([count]),
    'raw/num-edge-list.csv.gz': packed([len(pairs)]),
    'split/time/train.csv.gz': packed(np.flatnonzero(years <= 2017)),
    'split/time/valid.csv.gz': packed(np.flatnonzero(years == 2018)),
  }
  return parts(files, labels, np.flatnonzero(years >= 2019))


def parts(files, labels, test, as_published=False):
  known = labels.copy()
  if not as_published:
    known[test] = -1
  return kit.Parts(
    {
      **files,
      LABELS: packed(known),
      TEST: packed(test),
      'sample_submission.csv': pd.DataFrame({'0': np.zeros(len(test), int)}),
    },
    pd.DataFrame({'0': labels[test]}),
    groups=list(test),
    classes=kit.frequent(labels[test]),
  )


def column(path: pathlib.Path):
  return pd.read_csv(path, header=None)[0].to_numpy()


def raw(folder, as_published):
  home = kit.unpacked(folder, 'arxiv')
  files = kit.copied(home, [*FILES, LABELS, TEST])
  labels, test = column(files.pop(LABELS)), column(files.pop(TEST))
  return parts(files, labels, test, as_published)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw, leaks=True)
