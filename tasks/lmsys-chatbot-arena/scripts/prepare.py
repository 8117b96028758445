"""Prepares `lmsys-chatbot-arena`: which of two answers a person liked better.

Texts are JSON lists, one entry a turn, and an answer may be null. The names of the
chatbots are in the training set only. In the stand-in a person likes an answer that
is about the question, is longer and has steps, and dislikes one that refuses.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='lmsys-chatbot-arena',
  url='https://www.kaggle.com/competitions/lmsys-chatbot-arena/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('lmsys-chatbot-arena.zip (or train.csv)',),
)
WINNERS = ('winner_model_a', 'winner_model_b', 'winner_tie')
# Name of a chatbot -> how good it is, how wordy.
MODELS = {
  'alder-7b': (-0.6, 3), 'birch-13b': (-0.2, 4), 'cedar-33b': (0.1, 6),
  'elm-chat': (0.0, 8), 'fir-large': (0.5, 7), 'oak-turbo': (0.8, 5),
}  # fmt: skip
ASKS = (
  'How do I repair a {plain} {thing}?', 'Who {acted} the {thing} of the {place}?',
  'Write a story about a {person} and a {thing}.', 'Is the {thing} older than the {place}?',
  'What does a {person} need a {thing} for?',
)  # fmt: skip
ABOUT = (
  'The {x} is best kept in the {place}', 'A {person} knows the {x} well',
  'First look at the {x} with care', 'The {x} was {acted} by a {person}',
)  # fmt: skip
ASIDE = (
  'The {person} {acted} a {plain} {thing}', 'There is a {thing} in the {place}',
  'It is {very} {praise}', 'Some {person} may think of the {place}',
)  # fmt: skip
REFUSALS = (
  'I am sorry, but I cannot help with that', 'As a language model I have no opinion',
)  # fmt: skip


def answer(rng, model, words):
  """(text, how much it is liked)."""
  good, wordy = MODELS[model]
  if rng.rand() < 0.04:
    return None, -2.5
  worth, lines = 0.5 * good, []
  if rng.rand() < 0.2:
    lines.append(language.pick(rng, REFUSALS) + '.')
    worth -= 1.6
  stepwise, close = rng.rand() < 0.35, rng.beta(2, 2)
  count = 1 + rng.poisson(wordy)
  for k in range(count):
    is_about = rng.rand() < close
    template = language.pick(rng, ABOUT if is_about else ASIDE)
    text = language.fill(
      rng, template.replace('{x}', language.pick(rng, words))
    )
    lines.append(f'{k + 1}. {text}' if stepwise else text + '.')
    worth += 0.3 if is_about else -0.05
  worth += 0.8 * stepwise
  return ('\n' if stepwise else ' ').join(lines), worth


def row(rng):
  models = [language.pick(rng, tuple(MODELS)) for _ in 'ab']
  prompts, texts, worth = [], ([], []), [0.0, 0.0]
  for _ in range(1 + (rng.rand() < 0.15)):
    prompts.append(language.fill(rng, language.pick(rng, ASKS)))
    asked = prompts[-1].lower().strip('?.').split()
    words = [w for w in asked if w in language.THINGS + language.PEOPLE]
    for k in range(2):
      text, liked = answer(rng, models[k], words)
      texts[k].append(text)
      worth[k] += liked
  lead = worth[0] - worth[1] + rng.normal(0, 0.6)
  winner = 2 if abs(lead) < 0.7 else int(lead < 0)
  return (
    *models,
    *(json.dumps(t, separators=(',', ':')) for t in (prompts, *texts)),
    *(int(winner == k) for k in range(3)),
  )  # fmt: skip


def standin():
  rng = np.random.RandomState(127)
  count, cut = 4200, 2800
  names = 'model_a', 'model_b', 'prompt', 'response_a', 'response_b'
  table = pd.DataFrame(
    [row(rng) for _ in range(count)], columns=[*names, *WINNERS]
  )
  table.insert(0, 'id', ids(rng, count))
  return parts(table[:cut], table[cut:].reset_index(drop=True))


def ids(rng, count):
  return [int('1' + i) for i in kit.opaque_ids(rng, count, 9, '0123456789')]


def parts(train, test):
  third = dict.fromkeys(WINNERS, 0.3333333333333333)
  found = kit.labelled(train, test, 'id', WINNERS, third)
  public = dict(found.public)
  public['test.csv'] = test[['id', 'prompt', 'response_a', 'response_b']]
  winner = test[list(WINNERS)].astype(int).to_numpy().argmax(axis=1)
  return kit.Parts(public, found.answers, found.groups, list(winner))


def mlebench(public, private):
  paths = public / 'train.csv', private / 'answers.csv'
  return parts(*(kit.texts(path) for path in paths))


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
