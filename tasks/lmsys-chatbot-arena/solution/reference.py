"""Preferences: length, steps, refusals and words of the question; differences."""

import json
import re

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

WINNERS = ['winner_model_a', 'winner_model_b', 'winner_tie']
REFUSED = re.compile(r'\b(sorry|cannot|language model|unable)\b')

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def words(text):
  return re.findall(r'\w{4,}', text.lower())


def figures(prompt, response):
  asked = set(words(' '.join(t or '' for t in json.loads(prompt))))
  turns = json.loads(response)
  text = '\n'.join(t or '' for t in turns)
  lines = [s for s in re.split(r'[.\n]+', text) if words(s)]
  near = sum(any(w in asked for w in words(s)) for s in lines)
  return [
    np.log1p(len(text)), len(lines), near, near / (len(lines) + 1),
    len(re.findall(r'^\d+\. ', text, re.M)) > 0,
    len(REFUSED.findall(text.lower())), sum(t is None for t in turns),
  ]  # fmt: skip


def features(table):
  a, b = (
    np.array([figures(*pair) for pair in zip(table['prompt'], table[name])])
    for name in ('response_a', 'response_b')
  )
  # Of a tie the size of the difference tells, not its sign.
  return a - b


difference = features(train)
label = train[WINNERS].to_numpy().argmax(axis=1)
# The two answers change places: the same talk, the other winner.
twice = np.vstack([difference, -difference])
labels = np.concatenate([label, np.array([1, 0, 2])[label]])

rank = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8))
rank.fit(twice[labels < 2], labels[labels < 2])


def led(x):
  lead = rank.decision_function(x)
  return np.column_stack([lead, np.abs(lead), np.abs(lead) ** 2])


model = make_pipeline(
  StandardScaler(), LogisticRegression(tol=1e-8, max_iter=500)
)
model.fit(led(twice), labels)
pred = model.predict_proba(led(features(test)))

submission = pd.DataFrame(pred, columns=WINNERS)
submission.insert(0, 'id', test['id'])
submission.to_csv('submission.csv', index=False)
