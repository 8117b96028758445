"""Sentiment parts: how often a word is inside, and the best run of words."""

import collections
import re

import numpy as np
import pandas as pd

train = pd.read_csv('data/train.csv', keep_default_na=False)
test = pd.read_csv('data/test.csv', keep_default_na=False)


def plain(word):
  return re.sub(r'[^a-z@]', '', word.lower())


inside, all_of = collections.Counter(), collections.Counter()
for text, part, kind in zip(
  train['text'], train['selected_text'], train['sentiment']
):
  if kind == 'neutral' or text.strip() == part.strip():
    continue
  start = text.find(part)
  for found in re.finditer(r'\S+', text):
    key = kind, plain(found.group())
    all_of[key] += 1
    inside[key] += start <= found.start() < start + len(part)


def weight(kind, word):
  """Log odds of a word to be inside, with a few rows of the mean added."""
  key = kind, plain(word)
  share = (inside[key] + 0.5) / (all_of[key] + 2.5)
  return np.log(share / (1 - share))


def best(text, kind):
  words = text.split()
  if kind == 'neutral' or not words:
    return text.strip()
  sums = np.concatenate([[0], np.cumsum([weight(kind, w) for w in words])])
  runs = [
    (round(sums[j] - sums[i], 6), i, j)
    for i in range(len(words))
    for j in range(i + 1, len(words) + 1)
  ]
  _, i, j = max(runs, key=lambda run: (run[0], -run[1], -run[2]))
  return ' '.join(words[i:j])


pred = [best(text, kind) for text, kind in zip(test['text'], test['sentiment'])]
pd.DataFrame({'textID': test['textID'], 'selected_text': pred}).to_csv(
  'submission.csv', index=False
)
