"""Prepares `google-quest-challenge`: 30 scores of a question and an answer.

Scores are means of a few raters, with many equal ones; question_type_spelling is 0
almost everywhere. Answers to one question are in the same half.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='google-quest-challenge',
  url='https://www.kaggle.com/competitions/google-quest-challenge/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('google-quest-challenge.zip (or train.csv)',),
)
QUESTION = """asker_intent_understanding body_critical conversational
  expect_short_answer fact_seeking has_commonly_accepted_answer
  interestingness_others interestingness_self multi_intent not_really_a_question
  opinion_seeking type_choice type_compare type_consequence type_definition
  type_entity type_instructions type_procedure type_reason_explanation
  type_spelling well_written""".split()
ANSWER = """helpful level_of_information plausible relevance satisfaction
  type_instructions type_procedure type_reason_explanation well_written""".split()
TARGETS = [f'question_{n}' for n in QUESTION] + [f'answer_{n}' for n in ANSWER]
SPELLING = 'question_type_spelling'
# Kind of a question -> titles, and what else is likely of it.
KINDS = {
  'choice': (('Which {thing} is better for a {place}, {plain} or {plain}?',
              'Should I take the {thing} or the {thing}?'), ('opinion_seeking',)),
  'compare': (('What is the difference between a {thing} and a {thing}?',
               'Is a {thing} like a {thing}?'), ('fact_seeking',)),
  'consequence': (('What happens if the {thing} is {acted}?',
                   'Would a {plain} {thing} harm the {place}?'), ()),
  'definition': (('What does {thing} mean in a {place}?',
                  'What is a {plain} {thing}?'), ('expect_short_answer',)),
  'entity': (('Name of the {thing} in the {place}?',
              'Who {acted} the first {thing}?'), ('expect_short_answer',)),
  'instructions': (('How do I repair a {thing} in the {place}?',
                    'How can a {person} move a {thing}?'), ()),
  'procedure': (('How is a {thing} made in a {place}?',
                 'By which steps is a {thing} {acted}?'), ()),
  'reason_explanation': (('Why is the {thing} {plain}?',
                          'Why has the {person} {acted} the {thing}?'), ()),
  'spelling': (('Is it {thing} or {thing}s, one word or two?',
                'How is {thing} spelled?'), ('expect_short_answer',)),
}  # fmt: skip
ODDS = (0.14, 0.09, 0.08, 0.1, 0.1, 0.22, 0.1, 0.14, 0.03)
ANSWERS = {
  'instructions': 'first take the {thing} to the {place}, then open it',
  'procedure': 'it is {acted} in steps, from the {thing} to the {thing}',
  'reason_explanation': 'because the {thing} was {acted} by the {person}',
}
CHAT = ('hi all', 'i am curious', 'thanks in advance', 'what do you think?')
SITES = {
  'TECHNOLOGY': 'superuser', 'STACKOVERFLOW': 'stackoverflow', 'SCIENCE': 'physics',
  'CULTURE': 'english', 'LIFE_ARTS': 'cooking',
}  # fmt: skip


def rated(rng, level, raters=3):
  """Means of raters' scores between 0 and 1, around a level."""
  votes = np.clip(np.round(2 * (level + rng.normal(0, 0.22, raters))), 0, 2) / 2
  return round(float(votes.mean()), 6)


def prose(rng, good, extra):
  """Sentences of a quality from 0 to 1: better ones are longer and cleaner."""
  texts = list(extra)
  for _ in range(1 + rng.poisson(1 + 5 * good)):
    text = language.fill(
      rng, 'the {plain} {thing} {acted} a {person} in the {place}'
    )
    words = text.split()
    if rng.rand() > good:
      words = [
        language.misspelt(rng, w) if rng.rand() < 0.3 else w for w in words
      ]
    texts.append(' '.join(words))
  return ' '.join(language.sentence(text) for text in texts)


def question(rng):
  kind = tuple(KINDS)[rng.choice(len(KINDS), p=ODDS)]
  titles, likely = KINDS[kind]
  good, chatty = rng.beta(2, 2), rng.rand() < 0.25
  chat = [language.pick(rng, CHAT) for _ in range(3)] if chatty else []
  title = language.fill(rng, language.pick(rng, titles))
  body = prose(rng, good, chat)
  level = {name: 0.15 for name in QUESTION}
  level |= {f'type_{k}': 0.9 * (k == kind) for k in KINDS}
  level |= dict.fromkeys(likely, 0.8)
  level |= {
    'asker_intent_understanding': 0.5 + 0.4 * good,
    'body_critical': 0.3 + 0.5 * good,
    'conversational': 0.7 * chatty,
    'opinion_seeking': 0.2 + 0.4 * chatty + 0.3 * (kind == 'choice'),
    'fact_seeking': 0.9 - 0.5 * chatty,
    'has_commonly_accepted_answer': 0.9 - 0.5 * (kind == 'choice'),
    'interestingness_others': 0.3 + 0.4 * good,
    'interestingness_self': 0.2 + 0.4 * good,
    'multi_intent': 0.6 * (len(body) > 450),
    'not_really_a_question': 0.5 * chatty * (1 - good),
    'well_written': 0.3 + 0.6 * good,
  }
  return kind, title, body, level


def answer(rng, kind):
  good = rng.beta(2, 2)
  how = kind if kind in ANSWERS and rng.rand() < 0.8 else ''
  extra = [language.fill(rng, ANSWERS[how]) for _ in range(2)] if how else []
  level = {f'type_{k}': 0.85 * (k == how) for k in ANSWERS}
  level |= {n: 0.35 + 0.5 * good for n in ANSWER if not n.startswith('type_')}
  return prose(rng, good, extra), level


def standin():
  rng = np.random.RandomState(128)
  users = kit.opaque_ids(rng, 400, 6)
  rows = []
  while len(rows) < 3000:
    kind, title, body, asked = question(rng)
    category = language.pick(rng, tuple(SITES))
    host = f'{SITES[category]}.example.com'
    number, asker = rng.randint(10**6), language.pick(rng, users)
    for _ in range(1 + (rng.rand() < 0.3)):
      text, answered = answer(rng, kind)
      writer = language.pick(rng, users)
      rows.append((
        title, body, asker, f'https://{host}/users/{asker}', text, writer,
        f'https://{host}/users/{writer}', f'http://{host}/questions/{number}',
        category, host, *(rated(rng, asked[n]) for n in QUESTION),
        *(rated(rng, answered[n]) for n in ANSWER),
      ))  # fmt: skip
  names = """question_title question_body question_user_name question_user_page
    answer answer_user_name answer_user_page url category host""".split()
  table = pd.DataFrame(rows, columns=[*names, *TARGETS])
  table.insert(0, 'qa_id', np.sort(rng.choice(9640, len(table), replace=False)))
  return parts(*kit.hold_out(table, 0.4))


def parts(train, test):
  pages = dict(zip(test['qa_id'], test['url']))
  rows = np.linspace(0, 1, len(test))
  found = kit.labelled(
    train, test, 'qa_id', TARGETS, dict.fromkeys(TARGETS, rows), group=pages.get
  )
  spelling = test[SPELLING].astype(float) > 0
  return kit.Parts(
    found.public, found.answers, found.groups, kit.frequent(spelling)
  )


def mlebench(public, private):
  test, answers = (
    kit.texts(public / 'test.csv'),
    kit.texts(private / 'test.csv'),
  )
  return parts(kit.texts(public / 'train.csv'), test.merge(answers, on='qa_id'))


def raw(folder):
  train, test = kit.hold_out(kit.texts(kit.original(folder, 'train.csv')))
  if test[SPELLING].nunique() == 1:
    # As mle-bench does: a column that is all alike has no correlation.
    other = train.index[train[SPELLING].astype(float) != 0][0]
    first = test.iloc[0].copy()
    test.iloc[0] = train.loc[other].copy()
    train.loc[other] = first
  return parts(train, test)


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
