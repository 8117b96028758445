"""Prepares `spooky-author-identification`: which of three authors wrote a sentence.

The stand-in's authors are none of the three real ones: they share one vocabulary
and coin words of their own syllables, most of which occur once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

AUTHORS = ('EAP', 'HPL', 'MWS')
SHARES = (0.40, 0.29, 0.31)
SAMPLE = {
  'EAP': 0.403493538995863,
  'HPL': 0.287808366106543,
  'MWS': 0.308698094897594,
}
SOURCE = kit.Source(
  id='spooky-author-identification',
  url='https://www.kaggle.com/c/spooky-author-identification/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.zip (or train.csv)',),
)
# Syllables of coined words, half of them an author's own.
SHARED = ('mar', 'len', 'tor', 'bel', 'vin', 'ca', 'ri', 'so')
OWN = {
  'EAP': ('ulal', 'ume', 'lig', 'eia', 'ron', 'dre', 'valde', 'pha'),
  'HPL': ('yog', 'thu', 'nyar', 'gha', 'rlye', 'zath', 'shub', 'ogg'),
  'MWS': ('cler', 'val', 'eliz', 'ande', 'wal', 'just', 'ine', 'per'),
}
FRAMES = (
  'the {plain} {person} {acted} the {thing} near the {place}',
  'in the {place} of {coined} the {thing} {acted} nothing but {plain} silence',
  'a {person} from {coined} {acted} the {plain} {thing}',
  'there the {person} {acted} me, and {coined} was {plain} again',
  'i {acted} the {thing} of {coined} before the {plain} {place}',
)
# Plain words that an author takes in a third of the places.
PLAIN = {
  author: language.PLAIN[k::3] for k, author in enumerate(AUTHORS)
}
# Endings and joints that an author likes, beside those that all use.
JOINTS = {'EAP': ' -- ', 'HPL': '; ', 'MWS': ', and '}


def sentence(rng, author):
  def frame():
    lexicon = {**language.LEXICON}
    if rng.rand() < 1 / 3:
      lexicon['plain'] = PLAIN[author]
    template = language.pick(rng, FRAMES).replace('{coined}', '@')
    text = language.fill(rng, template, lexicon)
    own = SHARED if rng.rand() < 0.55 else OWN[author]
    pool = own + SHARED[:4]
    return text.replace('@', language.coined(rng, pool, 2, 3).capitalize())

  joint = JOINTS[author] if rng.rand() < 0.3 else language.pick(
    rng, tuple(JOINTS.values())
  )
  text = joint.join(frame() for _ in range(rng.randint(1, 4)))
  if rng.rand() < 0.15:
    text = f'"{language.sentence(text, ",")}" said the {language.pick(rng, language.PEOPLE)}'
  return language.sentence(text)


def standin():
  rng = np.random.RandomState(101)
  count = 3600
  authors = np.array(AUTHORS)[rng.choice(3, size=count, p=SHARES)]
  table = pd.DataFrame(
    {
      'id': ['id' + i for i in kit.opaque_ids(rng, count, 5, '0123456789')],
      'text': [sentence(rng, author) for author in authors],
      'author': authors,
    }
  )
  return parts(table[:2400], table[2400:].reset_index(drop=True))


def parts(train, test):
  answers = kit.one_hot(test['author'], AUTHORS)
  answers.insert(0, 'id', test['id'].to_numpy())
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test.drop(columns='author'),
      'sample_submission.csv': pd.DataFrame({'id': test['id'], **SAMPLE}),
    },
    answers,
    groups=list(test['id']),
    classes=list(test['author']),
  )


def mlebench(public, private):
  test = kit.texts(public / 'test.csv')
  answers = kit.texts(private / 'test.csv').set_index('id')
  values = answers.loc[test['id'], list(AUTHORS)].astype(float).to_numpy()
  test['author'] = np.array(AUTHORS)[values.argmax(axis=1)]
  return parts(kit.texts(public / 'train.csv'), test)


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
