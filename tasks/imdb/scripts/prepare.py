"""Prepares `imdb`: whether the writer of a review liked the film.

The original's test set stands label by label, so the number of a row would tell its
label: here rows are numbered in the order of a hash of their text. With `--packages DIR` the
stand-in's words of praise and blame are those of the lexicon that comes with vaderSentiment.
"""

from __future__ import annotations

import hashlib
import pathlib

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language, lexicon

SOURCE = kit.Source(
  id='imdb',
  url='https://ai.stanford.edu/~amaas/data/sentiment/',
  rules='free to use with a citation of Maas et al. 2011; the reviews belong to '
  'their authors',
  files=('aclImdb_v1.tar.gz (or its folder aclImdb)',),
  mlebench=False,
)
PARTS = (
  'scene',
  'plot',
  'cast',
  'ending',
  'music',
  'script',
  'dialogue',
  'film',
)
# `@` is a word of the writer's opinion, and `#` one of the other.
DIRECT = (
  'the {part} is {very} @', 'a @ {part} from start to end', 'what a @ {part}',
  'i found the {part} @', 'a @ film with a @ {part}',
)  # fmt: skip
NEGATED = (
  'the {part} was not # at all', 'hardly a # {part}',
  'it never feels #', 'nobody can call the {part} #',
  'i expected a # {part} and it was not', 'far from # , this {part}',
)  # fmt: skip
# Of the plot: words of both kinds that say nothing.
PLOT = (
  'the {praise} {person} {acted} a {blame} {thing}', 'a {blame} {person} in a {place}',
  'it is about a {praise} {thing} and a {blame} {thing}',
  'the {person} {acted} the {thing} in the {place}', 'a {person} finds a {thing}',
  'then the {person} is {blame} and the {thing} lost', 'my {person} lent me the {thing}',
)  # fmt: skip
SIDES = ('blame', 'praise')


def review(rng, label, given=language.LEXICON):
  words = {**given, 'part': PARTS}
  texts = []
  for _ in range(rng.randint(2, 6)):
    own = label if rng.rand() < 0.85 else 1 - label
    kind = DIRECT if rng.rand() < 0.65 else NEGATED
    text = language.fill(rng, language.pick(rng, kind), words)
    for sign, side in (('@', own), ('#', 1 - own)):
      while sign in text:
        text = text.replace(sign, language.pick(rng, words[SIDES[side]]), 1)
    texts.append(text)
  for _ in range(rng.randint(3, 9)):
    texts.append(language.fill(rng, language.pick(rng, PLOT), words))
  rng.shuffle(texts)
  texts = [language.sentence(text) for text in texts]
  at = rng.randint(1, len(texts))
  joint = '<br /><br />' if rng.rand() < 0.6 else ' '
  return ' '.join(texts[:at]) + joint + ' '.join(texts[at:])


def standin(files=None):
  rng = np.random.RandomState(123)
  words = lexicon.words(files, every=8)
  count, cut = 6000, 3600
  labels = (np.arange(count) % 2).astype(int)
  table = pd.DataFrame(
    {'text': [review(rng, label, words) for label in labels], 'label': labels}
  )
  return parts(table[:cut], table[cut:])


def parts(train, test, as_published=False):
  order = [hashlib.sha256(text.encode()).hexdigest() for text in test['text']]
  if not as_published:  # where the negative ones stand first
    test = test.iloc[np.argsort(order, kind='stable')].reset_index(drop=True)
  test.insert(0, 'idx', range(len(test)))
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test[['idx', 'text']],
      'sample_submission.csv': test[['idx']].assign(**{'0': 0.5, '1': 0.5}),
    },
    test[['idx', 'label']],
    groups=list(test['text']),
    classes=list(test['label']),
  )


def reviews(home: pathlib.Path, part):
  rows = [
    (path.read_text(encoding='utf-8'), label)
    for label, name in enumerate(('neg', 'pos'))
    for path in sorted((home / part / name).glob('*.txt'))
  ]
  if not rows:
    raise kit.DataMissing(f'{home / part} holds no neg/*.txt and pos/*.txt.')
  return pd.DataFrame(rows, columns=['text', 'label'])


def raw(folder, as_published):
  home = kit.unpacked_tar(folder, 'aclImdb_v1.tar.gz', 'aclImdb')
  return parts(reviews(home, 'train'), reviews(home, 'test'), as_published)


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, None, raw, leaks=True, packaged=lexicon.PACKAGED
  )
