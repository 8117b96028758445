"""Answers in Hindi and Tamil: runs of words by their neighbours, as they were asked.

What stands left and right of an answer, and how a question ends, are counted on the
training set; a run of words near words of the question, with likely neighbours, wins.
"""

import collections
import math
import re

import pandas as pd

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
LONGEST = 3


words_of = train['question'].str.split().explode().value_counts()
often = set(words_of[words_of >= 0.01 * len(train)].index)


def asked_for(question):
  """The frequent words of a question, which tell what kind of answer it wants."""
  return ' '.join(word for word in question.split() if word in often)


def shape(words):
  kinds = ('9' if w.isdigit() else 'w' for w in words)
  return ''.join(kinds)


def spans(context, question):
  """(run of words, its clues, words shared with the question)."""
  asked, kind = question.rstrip('?').split(), asked_for(question)
  sentences = [s.split() for s in re.split(r'[।.]', context)]
  shares = [sum(w in words for w in asked) for words in sentences]
  for words, shared in zip(sentences, shares):
    if shared < max(shares) - 1:  # only what is near to the question
      continue
    words = ['<', *words, '>']
    for i in range(1, len(words) - 1):
      for j in range(i + 1, min(i + LONGEST, len(words) - 1) + 1):
        run = words[i:j]
        clues = (
          ('left', kind, words[i - 1] if words[i - 1] not in asked else '@'),
          ('right', kind, words[j] if words[j] not in asked else '@'),
          ('shape', kind, shape(run)),
          ('inside', any(w in asked for w in run)),
        )
        yield ' '.join(run), clues, shared


good, every = collections.Counter(), collections.Counter()
for row in train.to_dict('records'):
  for run, clues, _ in spans(row['context'], row['question']):
    hit = run == str(row['answer_text'])
    for clue in clues:
      every[clue] += 1
      good[clue] += hit


def worth(clues, shared):
  total = 2.0 * shared
  for clue in clues:
    total += math.log((good[clue] + 0.01) / (every[clue] + 1.0))
  return round(total, 6)


def best(context, question):
  found = [(worth(c, n), run) for run, c, n in spans(context, question)]
  top = max(score for score, _ in found)
  return next(run for score, run in found if score == top)


pred = [best(*pair) for pair in zip(test['context'], test['question'])]
pd.DataFrame({'id': test['id'], 'PredictionString': pred}).to_csv(
  'submission.csv', index=False
)
