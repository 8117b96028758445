"""Prepares `nomad2018-predict-transparent-conductors`: two energies of crystals.

The stand-in has made-up lattices: cations on a jittered grid, whose energies
follow a formula of composition, volume, symmetry and bond lengths.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

TARGETS = ('formation_energy_ev_natom', 'bandgap_energy_ev')
SAMPLE = dict(zip(TARGETS, (0.1779, 1.8892)))
SOURCE = kit.Source(
  id='nomad2018-predict-transparent-conductors',
  url='https://www.kaggle.com/c/nomad2018-predict-transparent-conductors/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv.zip', 'train.zip (folders ID/geometry.xyz)'),
)
GROUPS = (12, 33, 167, 194, 206, 227)
SHIFT = dict(zip(GROUPS, (0.02, 0.00, 0.05, 0.03, -0.03, 0.06)))
ATOMS = (10, 20, 30, 40, 60, 80)
METALS = ('Al', 'Ga', 'In')
RADIUS = np.array([1.62, 1.83, 2.11])
GAP = np.array([5.6, 3.4, 1.5])


def crystal(rng):
  """(row without id, lines of geometry.xyz)."""
  group = GROUPS[rng.randint(len(GROUPS))]
  total = ATOMS[rng.randint(1, len(ATOMS))]
  metals = total * 2 // 5
  kinds = rng.choice(3, size=metals, p=rng.dirichlet((1.0, 1.0, 1.0)))
  share = np.bincount(kinds, minlength=3) / metals
  stretch = rng.uniform(0.94, 1.12)
  edge = (total * 9.2) ** (1 / 3) * stretch * (0.86 + 0.08 * share @ RADIUS)
  edges = (edge * rng.uniform(0.7, 1.4, 3)).round(4)
  angles = 90 + (group in (12, 194)) * rng.uniform(-1, 30, 3) * (0.02, 0.05, 1)
  cells = int(np.ceil(total ** (1 / 3)))
  sites = np.array(list(np.ndindex(cells, cells, cells)))
  sites = sites[rng.permutation(len(sites))[:total]]
  spread = rng.uniform(0.02, 0.16)
  places = (sites + 0.5 + rng.normal(0, spread, sites.shape)) / cells * edges
  names = [METALS[k] for k in kinds] + ['O'] * (total - metals)
  lines = ['#=======================================================']
  for k in range(3):
    vector = [f'{edges[k] if i == k else 0.0:.6f}' for i in range(3)]
    lines.append('lattice_vector ' + ' '.join(vector))
  for name, xyz in zip(names, places):
    lines.append('atom ' + ' '.join(f'{v:.6f}' for v in xyz) + f' {name}')
  strain = (stretch - 1.02) ** 2 * 22
  mixing = share[0] * share[2] * 0.42 + share[1] * share[2] * 0.2
  formation = 0.05 + SHIFT[group] + mixing + strain + 1.1 * spread
  gap = share @ GAP - 5.0 * (stretch - 1.0) - 7.0 * spread - 6 * SHIFT[group]
  row = {
    'spacegroup': group,
    'number_of_total_atoms': float(total),
    'percent_atom_al': share[0].round(4),
    'percent_atom_ga': share[1].round(4),
    'percent_atom_in': share[2].round(4),
    **{f'lattice_vector_{k + 1}_ang': edges[k] for k in range(3)},
    **{
      f'lattice_angle_{n}_degree': round(a, 4)
      for n, a in zip(('alpha', 'beta', 'gamma'), angles)
    },
    TARGETS[0]: round(max(formation + rng.normal(0, 0.012), 0.0), 4),
    TARGETS[1]: round(max(gap + rng.normal(0, 0.12), 0.05), 4),
  }
  return row, ('\n'.join(lines) + '\n').encode()


def standin():
  rng = np.random.RandomState(103)
  rows, files = zip(*(crystal(rng) for _ in range(1500)))
  table = pd.DataFrame(rows)
  train, test = table[:900].copy(), table[900:].copy()
  train.insert(0, 'id', range(1, 901))
  test.insert(0, 'id', range(1, 601))
  geometry = {}
  for part, ids, first in (('train', train['id'], 0), ('test', test['id'], 900)):
    for k, number in enumerate(ids):
      geometry[f'{part}/{number}/geometry.xyz'] = files[first + k]
  return parts(train, test.reset_index(drop=True), geometry)


def parts(train, test, geometry):
  tables = kit.labelled(train, test, 'id', TARGETS, SAMPLE)
  return kit.Parts(
    {**tables.public, **geometry}, tables.answers, tables.groups
  )


def mlebench(public, private):
  train, test = (
    kit.texts(p) for p in (public / 'train.csv', private / 'test.csv')
  )
  return parts(train, test, kit.copied(public, ('train', 'test')))


def raw(folder):
  train, test = kit.hold_out(kit.texts(kit.original(folder, 'train.csv')))
  geometry = {}
  home = kit.unpacked(folder, 'train')
  for part, table in (('train', train), ('test', test)):
    # Ids anew, as mle-bench gives them: the old ones tell which rows are held out.
    for number, old in enumerate(table['id'], 1):
      geometry[f'{part}/{number}/geometry.xyz'] = home / old / 'geometry.xyz'
    table['id'] = [str(k) for k in range(1, len(table) + 1)]
  return parts(train, test, geometry)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
