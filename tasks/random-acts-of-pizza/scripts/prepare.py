"""Prepares `random-acts-of-pizza`: whether a request for a pizza is answered.

The field `giver_username_if_known`, which the published test set has, names a giver
only where there was one; it is removed from both files. The test set lacks the
fields that were collected later.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='random-acts-of-pizza',
  url='https://www.kaggle.com/c/random-acts-of-pizza/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.json.zip', 'test.json.zip'),
)
LEAK = 'giver_username_if_known'
TARGET = 'requester_received_pizza'
TITLES = (
  '[REQUEST] {who} in the {place}, would love a pizza',
  '[Request] {plain} week, hungry {who}', '[REQUEST] Pizza for a {who}?',
)  # fmt: skip
# Reasons, and by how much each moves the odds.
REASONS = (
  ('my paycheck comes on friday and the rent took all i had', 0.9),
  ('my son and daughter have not had a treat since the move', 0.8),
  ('i was laid off from the {place} last month', 0.7),
  ('we have only {plain} rice left until payday', 0.6),
  ('i study for my exams at the {place}', 0.0),
  ('i {acted} the {thing} all day', -0.1),
  ('my friends and i play games tonight', -0.9),
  ('i am bored and do not want to cook', -0.8),
  ('it is my birthday and i want to party', -0.7),
)
PADDING = (
  'the {person} at the {place} {acted} my {thing}', 'anything would help',
  'my {person} is {plain}', 'i can show the {thing} as a proof',
)  # fmt: skip
THANKS = 'i will pay it forward as soon as i can'


def later(rng, now):
  return now + rng.randint(0, 200)


def request(rng, number, name):
  """One entry of the original's files, in the order of its fields."""
  chosen = [
    REASONS[k] for k in rng.permutation(len(REASONS))[: 1 + rng.randint(3)]
  ]
  texts = [text for text, _ in chosen]
  texts += [language.pick(rng, PADDING) for _ in range(rng.randint(1, 7))]
  odds = -1.35 + 1.1 * sum(weight for _, weight in chosen)
  if rng.rand() < 0.3:
    texts.append(THANKS)
    odds += 0.6
  age, posts = rng.gamma(1.2, 200.0), rng.poisson(12)
  here = rng.poisson(0.5)
  odds += (
    0.25 * (len(texts) - 5) + 0.9 * min(here, 2) - 0.45 + 0.3 * (age > 200)
  )
  given = bool(rng.rand() < 1 / (1 + np.exp(-odds)))
  rng.shuffle(texts)
  text = ' '.join(language.sentence(language.fill(rng, t)) for t in texts)
  words = {**language.LEXICON, 'who': ('student', 'family', 'mother', 'man')}
  votes, comments = rng.poisson(40), rng.poisson(30)
  when = 1297723000 + 7000 * number + rng.randint(7000)
  age = round(age, 6)
  edited = text + (' EDIT: thank you!' if given and rng.rand() < 0.3 else '')
  topics = sorted({language.pick(rng, language.PLACES) for _ in range(posts)})
  return {
    LEAK: f'giver{rng.randint(10**6)}' if given and rng.rand() < 0.3 else 'N/A',
    'number_of_downvotes_of_request_at_retrieval': int(rng.poisson(2)),
    'number_of_upvotes_of_request_at_retrieval': int(rng.poisson(4 + 3 * given)),
    'post_was_edited': edited != text,
    'request_id': f't3_{name}',
    'request_number_of_comments_at_retrieval': int(rng.poisson(2 + 3 * given)),
    'request_text': edited,
    'request_text_edit_aware': text,
    'request_title': language.fill(rng, language.pick(rng, TITLES), words),
    'requester_account_age_in_days_at_request': age,
    'requester_account_age_in_days_at_retrieval': later(rng, age),
    'requester_days_since_first_post_on_raop_at_request': float(here * 3),
    'requester_number_of_comments_at_request': int(comments),
    'requester_number_of_comments_at_retrieval': int(later(rng, comments)),
    'requester_number_of_comments_in_raop_at_request': int(here),
    'requester_number_of_posts_at_request': int(posts),
    'requester_number_of_posts_at_retrieval': int(later(rng, posts)),
    'requester_number_of_subreddits_at_request': len(topics),
    TARGET: given,
    'requester_subreddits_at_request': topics,
    'requester_upvotes_minus_downvotes_at_request': int(votes),
    'requester_upvotes_plus_downvotes_at_request': int(later(rng, votes)),
    'requester_user_flair': 'shroom' if given else None,
    'requester_username': f'user_{name[::-1]}',
    'unix_timestamp_of_request': when + 3600.0,
    'unix_timestamp_of_request_utc': float(when),
  }  # fmt: skip


def standin():
  rng = np.random.RandomState(122)
  count = 3600
  names = kit.opaque_ids(rng, count, 5, '0123456789abcdefghijklmnopqrstuvwxyz')
  rows = [request(rng, k, name) for k, name in enumerate(names)]
  rows = [rows[k] for k in rng.permutation(count)]
  hidden = {TARGET, 'post_was_edited', 'request_text', 'requester_user_flair'}
  fields = [
    k for k in rows[0] if not k.endswith('retrieval') and k not in hidden
  ]
  return parts(rows[:2200], rows[2200:], fields)


def as_json(rows, fields, as_published):
  kept = [field for field in fields if as_published or field != LEAK]
  return json.dumps([{k: r[k] for k in kept} for r in rows], indent=4).encode()


def parts(train, test, fields, as_published=False):
  """test: with the answers; fields: those of the public test set."""
  answers = pd.DataFrame(
    [(r['request_id'], int(r[TARGET])) for r in test],
    columns=['request_id', TARGET],
  )
  return kit.Parts(
    {
      'train.json': as_json(train, list(train[0]), as_published),
      'test.json': as_json(test, fields, as_published),
      'sampleSubmission.csv': answers.assign(**{TARGET: 0}),
    },
    answers,
    groups=list(answers['request_id']),
    classes=list(answers[TARGET]),
  )


def mlebench(public, private, as_published):
  train, test = (
    json.loads((public / f'{part}.json').read_text())
    for part in ('train', 'test')
  )
  answers = kit.texts(private / 'test.csv').set_index('request_id')[TARGET]
  known = [{**r, TARGET: answers[r['request_id']]} for r in test]
  return parts(train, known, list(test[0]), as_published)


def raw(folder, as_published):
  known, other = (
    json.load(kit.original(folder, f'{part}.json'))
    for part in ('train', 'test')
  )
  # The published test set has no answers; as large a share of the training set is
  # held out, as mle-bench does.
  share = len(other) / (len(known) + len(other))
  places = kit.hold_out(pd.DataFrame({'row': range(len(known))}), share)
  train, test = ([known[k] for k in part['row']] for part in places)
  return parts(train, test, list(other[0]), as_published)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw, leaks=True)
