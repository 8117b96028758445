"""Prepares `spaceship-titanic`: which passengers were transported.

`--raw` splits as papers 000 and 002 do (MLAgentBench: the last 20 % of the rows
of train.csv), `--mlebench` takes mle-bench's random tenth.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SPENT = ('RoomService', 'FoodCourt', 'ShoppingMall', 'Spa', 'VRDeck')
SOURCE = kit.Source(
  id='spaceship-titanic',
  url='https://www.kaggle.com/competitions/spaceship-titanic/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('spaceship-titanic.zip (or train.csv)',),
)
PLANETS = ('Earth', 'Europa', 'Mars')
ENDS = ('TRAPPIST-1e', '55 Cancri e', 'PSO J318.5-22')
NAMES = ('al', 'ber', 'ca', 'don', 'el', 'fi', 'gra', 'ho', 'in', 'ju', 'ko')


def name(rng):
  first, last = (language.coined(rng, NAMES, 2, 3) for _ in range(2))
  return f'{first.capitalize()} {last.capitalize()}'


def passenger(rng, group, place, planet, cabin, asleep_share):
  asleep = rng.rand() < asleep_share
  age = float(np.clip(rng.normal(29, 14), 0, 79).round())
  scale = {'Earth': 120, 'Europa': 900, 'Mars': 260}[planet]
  bills = np.where(rng.rand(5) < 0.62, rng.exponential(scale, 5), 0.0).round()
  if asleep or age < 13:
    bills[:] = 0.0
  end = ENDS[rng.choice(3, p=(0.7, 0.2, 0.1))]
  room, food, mall, spa, deck = np.log1p(bills)
  deck_letter, _, side = cabin.split('/')
  logit = (
    -0.2 + 2.1 * asleep + 0.9 * (planet == 'Europa') + 0.5 * (side == 'S')
    - 0.32 * room - 0.36 * spa - 0.34 * deck + 0.22 * food + 0.18 * mall
    + 0.8 * (deck_letter in 'BC') - 0.7 * (deck_letter in 'ET')
    + 0.9 * (age < 13) + 0.4 * (end == '55 Cancri e')
  )  # fmt: skip
  row = {
    'PassengerId': f'{group:04d}_{place:02d}',
    'HomePlanet': planet,
    'CryoSleep': asleep,
    'Cabin': cabin,
    'Destination': end,
    'Age': age,
    'VIP': bool(rng.rand() < 0.02),
    **dict(zip(SPENT, bills)),
    'Name': name(rng),
  }
  return row, 1.6 * logit


def standin():
  rng = np.random.RandomState(102)
  rows, logits = [], []
  for group in range(1, 3001):
    planet = PLANETS[rng.choice(3, p=(0.54, 0.25, 0.21))]
    decks = {'Earth': 'EFG', 'Europa': 'ABCDET', 'Mars': 'DEF'}[planet]
    letter = decks[rng.randint(len(decks))]
    cabin = f'{letter}/{rng.randint(0, 1500)}/{"PS"[rng.randint(2)]}'
    shared = rng.normal(0, 0.8)  # what a group has in common and no column says
    for place in range(1, 1 + rng.choice(5, p=(0, 0.55, 0.25, 0.12, 0.08))):
      row, logit = passenger(rng, group, place, planet, cabin, 0.36)
      rows.append(row)
      logits.append(logit + shared)
  table = pd.DataFrame(rows).astype(object)
  chance = 1 / (1 + np.exp(-np.round(logits, 6)))
  table['Transported'] = rng.rand(len(table)) < chance
  for column in table.columns[1:-1]:  # as many empty cells as the real ones have
    table.loc[rng.rand(len(table)) < 0.023, column] = np.nan
  cut = int(len(table) * 0.64)
  return parts(table[:cut], table[cut:].reset_index(drop=True))


def parts(train, test):
  return kit.labelled(
    train,
    test,
    'PassengerId',
    ['Transported'],
    {'Transported': False},
    group=lambda passenger: passenger.split('_')[0],
    stratify=True,
  )


def mlebench(public, private):
  return parts(*(kit.texts(p) for p in (public / 'train.csv', private / 'test.csv')))


def raw(folder):
  return parts(*kit.last_rows(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
