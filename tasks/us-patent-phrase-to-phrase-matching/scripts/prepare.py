"""Prepares `us-patent-phrase-to-phrase-matching`: how alike two phrases are.

The stand-in has a made-up vocabulary of technical words: synonyms share no
letters, and a word may have another sense, and other synonyms, in another class of
patents.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='us-patent-phrase-to-phrase-matching',
  url='https://www.kaggle.com/competitions/'
  'us-patent-phrase-to-phrase-matching/data',
  rules='of the competition, to be accepted on its page (Kaggle); the data has '
  'the licence CC BY 4.0',
  files=('us-patent-phrase-to-phrase-matching.zip (or train.csv)',),
)
SYLLABLES = tuple(
  """bra tor lin vex mod cal fer nit sol gan pry dex hul rim tas ket jun wob
  zin mar pel cro dul fip gre hax""".split()
)
HEADS = (
  'device', 'element', 'member', 'assembly', 'layer', 'unit', 'method',
  'surface', 'circuit', 'material', 'body', 'system',
)  # fmt: skip
# Heads that mean nearly the same.
ALIKE = {
  'device': 'unit', 'unit': 'device', 'element': 'member', 'member': 'element',
  'assembly': 'system', 'system': 'assembly', 'layer': 'surface',
  'surface': 'layer', 'body': 'material', 'material': 'body',
}  # fmt: skip
CONTEXTS = tuple(
  f'{section}{number:02d}'
  for section in 'ABCFGH'
  for number in (1, 16, 23, 47, 61)
)
FAMILIES, SENSES, WORDS = 45, 2, 4


def vocabulary(rng):
  """Sense -> its synonyms; a word has one sense in A to C and another in F to H."""
  words = list(
    dict.fromkeys(language.coined(rng, SYLLABLES, 2, 3) for _ in range(400))
  )[: FAMILIES * WORDS]
  return [
    np.array(words)[rng.permutation(len(words))].reshape(FAMILIES, WORDS)
    for _ in range(SENSES)
  ]


def plural(rng, text):
  return text + 's' if rng.rand() < 0.5 else 'the ' + text


def pair(rng, senses, anchor, context):
  """(target, score) for an anchor of two words in a context."""
  first, head = anchor
  table = senses[int(context[0] in 'FGH')]
  family, place = (int(v[0]) for v in np.nonzero(table == first))
  synonym = table[family, (place + 1 + rng.randint(WORDS - 1)) % WORDS]
  relative = language.pick(rng, table[(family + 1) % FAMILIES])
  stranger = language.pick(rng, table[(family + 7 + rng.randint(20)) % FAMILIES])
  other = language.pick(rng, [h for h in HEADS if h not in (head, ALIKE.get(head))])
  # Of the other sense: looks like a synonym to who does not read the context.
  away = senses[1 - int(context[0] in 'FGH')]
  family, place = (int(v[0]) for v in np.nonzero(away == first))
  decoy = away[family, (place + 1) % WORDS]
  choices = (
    (plural(rng, f'{first} {head}'), 4),
    (f'{synonym} {head}', 3),
    (f'{first} {ALIKE.get(head, head)} structure', 3),
    (f'{synonym} {ALIKE.get(head, other)}', 2),
    (f'{synonym} {other}', 2),
    (f'{relative} {head}', 1),
    (f'{relative} {other}', 1),
    (f'{first} {other}', 1),
    (f'{decoy} {head}', 0),
    (f'{stranger} {head}', 0),
    (f'{stranger} {other}', 0),
    (f'{decoy} {other}', 0),
  )
  target, score = choices[rng.choice(
    len(choices), p=(0.06, 0.16, 0.06, 0.10, 0.14, 0.1, 0.08, 0.08, 0.07, 0.06, 0.05, 0.04)
  )]
  if rng.rand() < 0.06:
    score = int(np.clip(score + rng.choice((-1, 1)), 0, 4))  # raters differ
  return target, score / 4


def standin():
  rng = np.random.RandomState(110)
  senses = vocabulary(rng)
  words = sorted(senses[0].ravel())
  rows, seen = [], set()
  anchors = [
    (language.pick(rng, words), language.pick(rng, HEADS)) for _ in range(330)
  ]
  while len(rows) < 6200:
    anchor = anchors[rng.randint(len(anchors))]
    context = language.pick(rng, CONTEXTS)
    target, score = pair(rng, senses, anchor, context)
    key = ' '.join(anchor), target, context
    if key not in seen:
      seen.add(key)
      rows.append((*key, score))
  table = pd.DataFrame(rows, columns=['anchor', 'target', 'context', 'score'])
  table.insert(0, 'id', kit.opaque_ids(rng, len(table), 16))
  return parts(table[:5000], table[5000:].reset_index(drop=True))


def parts(train, test):
  return kit.labelled(train, test, 'id', ['score'], {'score': 0}, stratify=True)


def mlebench(public, private):
  paths = public / 'train.csv', private / 'test.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
