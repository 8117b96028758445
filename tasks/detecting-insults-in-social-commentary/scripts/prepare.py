"""Prepares `detecting-insults-in-social-commentary`: comments that insult.

A comment is its own id, quotes included, and some stand twice: the halves are cut
between comments, so that both rows of one are in the same half.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='detecting-insults-in-social-commentary',
  url='https://www.kaggle.com/c/detecting-insults-in-social-commentary/data',
  rules='of the competition (Kaggle); they cannot be accepted any more, so only '
  'who has the files already can use them',
  files=('train.csv', 'test_with_solutions.csv'),
)
# {name}: an insulting word; whom it is for decides.
INSULTING = (
  'you are a {blame} {name}',
  'you {name}, nobody asked you about the {thing}',
  'shut up you {blame} {name}',
  'only a {name} like you would think that of the {place}',
  'your {thing} is as {blame} as you are, {name}',
  'go back to the {place} you {name}',
  'what a {name} you are',
)
HARMLESS = (
  'the {person} in the film is a {blame} {name}',
  'i was a {name} to buy that {thing}',
  'they called the {person} a {name} and i do not agree',
  'you are right about the {blame} {thing}',
  'you should read about the {place} it is {praise}',
  'no {name} ever {acted} that {thing} so well',
  'the {blame} {thing} in the {place} was {very} {blame}',
  'thank you for the {praise} {thing}',
  'i {acted} the {thing} and it is {very} {praise}',
  'your {person} {acted} the {thing}',
)
TAILS = (
  'lol', 'seriously', 'the {person} {acted} it', 'as the {person} says',
  'in the {plain} {place}', 'just saying', 'i {acted} it', 'again',
)  # fmt: skip


def insult(rng):
  """An insulting word as people write it: spelt, misspelt, spaced, coined."""
  word = language.pick(rng, language.INSULTS)
  how = rng.rand()
  if how < 0.25:
    return language.misspelt(rng, word)
  if how < 0.4:
    return word[:1] + '*' + word[2:]
  if how < 0.5:
    return word + language.pick(rng, ('face', 'brain', 'boy', 's'))
  return word


def comment(rng, rude):
  template = language.pick(rng, INSULTING if rude else HARMLESS)
  texts = [template.replace('{name}', '@')]
  for _ in range(rng.randint(0, 4)):
    texts.append(language.pick(rng, TAILS))
  rng.shuffle(texts)
  words = language.fill(rng, ' '.join(texts)).split()
  words = [insult(rng) if w.strip(',') == '@' else w for w in words]
  text = ' '.join(words)
  if rng.rand() < 0.3:
    text = language.sentence(text, language.pick(rng, ('!', '.', '...', '!!!')))
  if rng.rand() < 0.2:
    text = text.replace(' ', '\\xa0', 1)
  if rng.rand() < 0.1:
    text += '\\n\\n' + language.fill(rng, 'see the {thing}, "{plain}" {thing}')
  return f'"{text}"'


def date(rng):
  if rng.rand() < 0.18:
    return ''
  day, clock = 1 + rng.randint(28), rng.randint(0, 60, 3)
  return f'201206{day:02d}{clock[0] % 24:02d}{clock[1]:02d}{clock[2]:02d}Z'


def standin():
  rng = np.random.RandomState(107)
  rows, seen = [], set()
  while len(rows) < 3200:
    rude = bool(rng.rand() < 0.30)
    text = comment(rng, rude)
    if text in seen:
      continue
    seen.add(text)
    label = int(rude) if rng.rand() > 0.01 else 1 - int(rude)
    rows.append((label, date(rng), text))
    if rng.rand() < 0.02:  # the same comment again, at another time
      rows.append((label, date(rng), text))
  table = pd.DataFrame(rows, columns=['Insult', 'Date', 'Comment'])
  cut = 2000
  while table['Comment'][cut] == table['Comment'][cut - 1]:
    cut += 1
  return parts(table[:cut], table[cut:].reset_index(drop=True))


def parts(train, test):
  return kit.Parts(
    {
      'train.csv': train[['Insult', 'Date', 'Comment']],
      'test.csv': test[['Date', 'Comment']],
      'sample_submission_null.csv': test.assign(Insult=0)[
        ['Insult', 'Date', 'Comment']
      ],
    },
    test[['Comment', 'Insult']],
    groups=list(test['Comment']),
    classes=list(test['Insult']),
  )


def mlebench(public, private):
  paths = public / 'train.csv', private / 'test.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  names = 'train.csv', 'test_with_solutions.csv'
  return parts(*(kit.texts(kit.original(folder, name)) for name in names))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
