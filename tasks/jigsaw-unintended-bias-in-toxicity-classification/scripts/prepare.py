"""Prepares `jigsaw-unintended-bias-in-toxicity-classification`.

Comments are rated by several readers, a part of them also for whom they mention.
In the stand-in's training set groups are mentioned mostly where it is rude, in its
test set in both kinds alike, so that a group's name misleads. The original's own
column `split` tells public from private rows of the board and stays hidden. With
`--packages DIR` the stand-in's insults, and its words of praise and blame, are those of
the lexicon that comes with vaderSentiment.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.graders.compat import IDENTITIES
from jaxagent.tasks import comments, kit, language, lexicon

SOURCE = kit.Source(
  id='jigsaw-unintended-bias-in-toxicity-classification',
  url='https://www.kaggle.com/c/'
  'jigsaw-unintended-bias-in-toxicity-classification/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('train.csv', 'test_private_expanded.csv'),
)
KINDS = ('severe_toxicity', 'obscene', 'identity_attack', 'insult', 'threat')
GROUPS = """asian atheist bisexual black buddhist christian female heterosexual
  hindu homosexual_gay_or_lesbian intellectual_or_learning_disability jewish
  latino male muslim other_disability other_gender other_race_or_ethnicity
  other_religion other_sexual_orientation physical_disability
  psychiatric_or_mental_illness transgender white""".split()
REACTIONS = ('funny', 'wow', 'sad', 'likes', 'disagree')
NAMES = {
  'male': ('man', 'father', 'men'),
  'female': ('woman', 'mother', 'women'),
  'homosexual_gay_or_lesbian': ('gay', 'lesbian'),
  'christian': ('christian', 'catholic'),
  'jewish': ('jewish',),
  'muslim': ('muslim',),
  'black': ('black',),
  'white': ('white',),
  'psychiatric_or_mental_illness': ('depressed', 'bipolar'),
}
MENTIONS = (
  'the {group} {person} {acted} the {thing}', 'a {group} {person} lives there',
  'ask any {group} {person} in the {place}', '{group} readers know the {place}',
)  # fmt: skip
RUDE = ('insult', 'obscene', 'threat')


def row(rng, mentioned, given=language.LEXICON):
  """A comment and its ratings; mentioned: how likely, by whether it is rude."""
  rude = rng.rand() < 0.3
  kinds = [k for k in RUDE if rng.rand() < 0.4] or ['insult'] if rude else []
  groups = []
  if rng.rand() < mentioned[int(rude)]:
    groups = [IDENTITIES[k] for k in rng.permutation(9)[: 1 + rng.randint(2)]]
  calm = list(comments.CALM)
  text = comments.comment(rng, kinds, calm, words=given)
  for group in groups:
    template = language.pick(rng, MENTIONS)
    words = {**given, 'group': NAMES[group]}
    mention = language.fill(rng, template, words)
    text = f'{mention}. {text}' if rng.rand() < 0.5 else f'{text} {mention}'

  def share(is_so):
    return (
      (5 + rng.randint(6)) / 10
      if is_so
      else rng.choice(5, p=(0.6, 0.2, 0.1, 0.06, 0.04)) / 10
    )

  asked = rng.rand() < 0.6
  return {
    'target': share(rude),
    'comment_text': text,
    **{kind: share(kind in kinds) for kind in KINDS},
    **{g: share(g in groups) if asked else np.nan for g in GROUPS},
    'created_date': f'2016-{1 + rng.randint(12):02d}-{1 + rng.randint(28):02d}',
    'publication_id': 2 + rng.randint(60),
    'parent_id': np.nan if rng.rand() < 0.4 else float(rng.randint(10**6)),
    'article_id': rng.randint(10**5),
    'rating': 'rejected' if rng.rand() < 0.07 else 'approved',
    **{name: rng.poisson(0.6) for name in REACTIONS},
    'sexual_explicit': 0.0,
    'identity_annotator_count': 10 if asked else 0,
    'toxicity_annotator_count': 10,
  }


def standin(files=None):
  rng = np.random.RandomState(121)
  words = lexicon.words(files, every=4, strength=(1.0, 1.3))
  train = pd.DataFrame([row(rng, (0.1, 0.6), words) for _ in range(3600)])
  test = pd.DataFrame([row(rng, (0.5, 0.5), words) for _ in range(3000)])
  ids = np.sort(rng.choice(10**6, 6600, replace=False))
  train.insert(0, 'id', 59848 + ids[:3600])
  test.insert(0, 'id', 7000000 + rng.permutation(ids[3600:]))
  return parts(train, test.rename(columns={'target': 'toxicity'}))


def parts(train, test):
  answers = test[['id', 'toxicity', *IDENTITIES]]
  values = answers.drop(columns='id').apply(pd.to_numeric) >= 0.5
  # Each half has toxic comments and others of each group.
  names = np.select([values[g] for g in IDENTITIES], IDENTITIES, 'none')
  kinds = [f'{n}:{t}' for n, t in zip(names, values['toxicity'])]
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test[['id', 'comment_text']],
      'sample_submission.csv': test[['id']].assign(prediction=0.0),
    },
    answers,
    groups=list(test['id']),
    classes=kit.frequent(kinds),
  )


def mlebench(public, private):
  train, test = public / 'train.csv', private / 'test.csv'
  return parts(kit.texts(train), kit.texts(test))


def raw(folder):
  names = 'train.csv', 'test_private_expanded.csv'
  return parts(*(kit.texts(kit.original(folder, name)) for name in names))


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=lexicon.PACKAGED
  )
