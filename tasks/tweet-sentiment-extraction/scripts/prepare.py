"""Prepares `tweet-sentiment-extraction`: the part that carries the sentiment.

The stand-in's traps are the original's: one row without a text, quotes and commas,
and for neutral messages the whole text. With `--packages DIR` its words of praise and blame
are those of the lexicon that comes with vaderSentiment.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language, lexicon

SOURCE = kit.Source(
  id='tweet-sentiment-extraction',
  url='https://www.kaggle.com/competitions/tweet-sentiment-extraction/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('tweet-sentiment-extraction.zip (or train.csv)',),
)
KINDS = ('neutral', 'positive', 'negative')
# Of the words of a part, by sentiment.
PARTS = {
  'positive': (
    '{praise}', '{very} {praise}', 'i love it', 'thank you', '{praise} {thing}',
    'good luck', 'happy birthday', '{praise} and {praise}', 'i love the {thing}',
  ),
  'negative': (
    '{blame}', '{very} {blame}', 'i hate it', 'i miss', '{blame} {thing}',
    'not {praise}', 'sorry', '{blame} and {blame}', 'i hate the {thing}',
  ),
}  # fmt: skip
AROUND = (
  'i {acted} the {thing}', 'the {person} {acted} me', 'at the {place}',
  'with my {person}', 'is back from the {place}', 'just {acted} a {thing}',
  '@{person}_{thing}', 'today', 'the {plain} {thing}', 'where is my {thing}?',
  'on my way to the {place}', 'lol', 'http://{place}.example/{thing}',
)  # fmt: skip
JOINTS = (' ', ' ', ', ', '. ', '... ', ' - ', '! ')


def around(rng, most):
  out = [
    language.fill(rng, language.pick(rng, AROUND)) + language.pick(rng, JOINTS)
    for _ in range(rng.randint(0, most))
  ]
  return ''.join(out)


def message(rng, kind, words=language.LEXICON):
  """(text, selected text)."""
  before = around(rng, 4)
  if kind == 'neutral':
    text = (before + language.fill(rng, language.pick(rng, AROUND))).strip()
    return text, text
  part = language.fill(rng, language.pick(rng, PARTS[kind]), words)
  part += language.pick(rng, ('', '', '!', '!!', '...', '.'))
  if rng.rand() < 0.15:
    part = part.upper()
  after = ' ' + around(rng, 4).strip() if rng.rand() < 0.7 else ''
  if rng.rand() < 0.06:
    part = f'"{part}"'
  if rng.rand() < 0.12:  # a weak word of the other side, which is not the part
    after += ' not ' + language.pick(rng, words[OTHER[kind]])
  text = (before + part + after).strip()
  # Labellers cut too much or too little now and then.
  if rng.rand() < 0.08:
    part = text
  return text, part


OTHER = {'positive': 'blame', 'negative': 'praise'}


def standin(files=None):
  rng = np.random.RandomState(111)
  words = lexicon.words(files)
  count = 5000
  kinds = [KINDS[k] for k in rng.choice(3, count, p=(0.405, 0.312, 0.283))]
  texts = [message(rng, kind, words) for kind in kinds]
  table = pd.DataFrame(
    {
      'textID': kit.opaque_ids(rng, count, 10),
      'text': [text for text, _ in texts],
      'selected_text': [part for _, part in texts],
      'sentiment': kinds,
    }
  )
  table.loc[314, ['text', 'selected_text', 'sentiment']] = ['', '', 'neutral']
  return parts(table[:3800], table[3800:].reset_index(drop=True))


def parts(train, test):
  tables = kit.labelled(
    train, test, 'textID', ['selected_text'], {'selected_text': ''}
  )
  return kit.Parts(
    tables.public,
    tables.answers,
    tables.groups,
    classes=list(test['sentiment']),
  )


def mlebench(public, private):
  paths = public / 'train.csv', private / 'test.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=lexicon.PACKAGED
  )
