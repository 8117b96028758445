"""Prepares `AI4Code`: where the markdown cells of a notebook belong.

A notebook's code cells stand in their order and its markdown cells after them,
shuffled. Notebooks that were made from one another are all in the training set or
all hidden, and then in the same half; mle-bench's folder does not tell which hidden
ones were, so with `--mlebench` each of those is a group of its own.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='AI4Code',
  url='https://www.kaggle.com/competitions/AI4Code/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=(
    'AI4Code.zip (or train/, train_orders.csv and train_ancestors.csv)',
  ),
)
HELD_OUT = 20_000
# A step of a notebook: what its code is, and what is written about it.
STEPS = (
  (('import pandas as pd\nimport numpy as np',
    'import matplotlib.pyplot as plt\nimport seaborn as sns'),
   ('# Libraries for {noun}', 'First the packages that we need',
    'Getting started with {noun}')),
  (('{df} = pd.read_csv("../input/{noun}.csv")',
    '{df} = pd.read_parquet("{noun}.parquet")'),
   ('## Loading the {noun} data', 'The file with the {noun} is read here',
    'Let us open the table of the {noun}')),
  (('{df}.head()', '{df}.info()', '{df}.shape', '{df}.describe()'),
   ('A first look at it', 'What does the {noun} look like?',
    '### Overview of the columns')),
  (('{df}["{col}"].hist(bins=50)', 'sns.countplot(x="{col}", data={df})'),
   ('## Exploration: the distribution of {col}', 'We plot {col}',
    'How is {col} spread?')),
  (('{df}["{col}"] = {df}["{col}"].fillna(0)', '{df} = {df}.dropna()'),
   ('## Missing values', 'Empty cells of {col} are filled',
    'Cleaning the {noun}')),
  (('{df}["{col}_log"] = np.log1p({df}["{col}"])',
    '{df} = pd.get_dummies({df}, columns=["{col}"])'),
   ('## Feature engineering', 'A new column made from {col}',
    'We transform {col}')),
  (('X_train, X_test, y_train, y_test = train_test_split({df}, y)',
    'folds = KFold(5, shuffle=True)'),
   ('## Validation', 'Splitting the {noun} for cross validation',
    'Part of the {noun} is held out')),
  (('{model} = RandomForestClassifier()\n{model}.fit(X_train, y_train)',
    '{model} = LGBMClassifier()\n{model}.fit(X_train, y_train)'),
   ('## Training', 'Now {model} is fitted', 'The model: {model}')),
  (('print(accuracy_score(y_test, {model}.predict(X_test)))',
    'confusion_matrix(y_test, {model}.predict(X_test))'),
   ('## Evaluation of {model}', 'How good is it?',
    'The score on the held out part')),
  (('sub["target"] = {model}.predict(test)\nsub.to_csv("submission.csv")',
    'pd.DataFrame(preds).to_csv("submission.csv", index=False)'),
   ('## Submission', 'Finally the predictions are written',
    'Thanks for reading, please upvote')),
)  # fmt: skip
TALK = (
  'the {person} {acted} the {thing}', 'as in the {place}', 'note the {thing}',
  '**{plain}** {thing}', 'see the {plain} {place}',
)  # fmt: skip


def notebook(rng):
  """[(kind, text)] in the right order."""
  name = lambda words: language.pick(rng, words)
  nouns = {'noun': name(language.THINGS), 'df': name(('df', 'train', 'data'))}
  columns = [name(language.PLAIN) + '_' + name(language.THINGS) for _ in range(4)]
  model = name(('clf', 'model', 'rf', 'gbm'))
  cells = []
  for place, (codes, texts) in enumerate(STEPS):
    if rng.rand() < 0.15:
      continue
    for _ in range(1 + (2 < place < 6) * rng.randint(0, 3)):
      words = {**nouns, 'col': columns[rng.randint(4)], 'model': model}
      if rng.rand() < 0.7:
        text = name(texts).format(**words)
        if rng.rand() < 0.4:
          text += '\n\n' + language.fill(rng, name(TALK))
        cells.append(('markdown', text))
      for _ in range(rng.randint(1, 3)):
        cells.append(('code', name(codes).format(**words)))
  return cells


def packed(rng, cells):
  """(bytes of the file, ids in the right order)."""
  ids = kit.opaque_ids(rng, len(cells), 8)
  code = [k for k, (kind, _) in enumerate(cells) if kind == 'code']
  rest = [k for k, (kind, _) in enumerate(cells) if kind == 'markdown']
  given = code + [rest[k] for k in rng.permutation(len(rest))]
  record = {
    'cell_type': {ids[k]: cells[k][0] for k in given},
    'source': {ids[k]: cells[k][1] for k in given},
  }
  return json.dumps(record).encode(), ' '.join(ids)


def standin():
  rng = np.random.RandomState(114)
  count = 360
  ids = kit.opaque_ids(rng, count, 14)
  orders, ancestors, files, cells = [], [], {}, []
  for k, name in enumerate(ids):
    # Each ninth was made from the one before: the same cells, but for some.
    fork = k % 9 == 8
    cells = [c for c in cells if rng.rand() > 0.1] if fork else notebook(rng)
    files[name], order = packed(rng, cells)
    family = ancestors[-1]['ancestor_id'] if fork else kit.opaque_ids(rng, 1, 8)[0]
    orders.append({'id': name, 'cell_order': order})
    ancestors.append({
      'id': name, 'ancestor_id': family,
      'parent_id': ids[k - 1] if fork else '',
    })  # fmt: skip
  orders, ancestors = pd.DataFrame(orders), pd.DataFrame(ancestors)
  return split(orders, ancestors, files, 150)


def split(orders, ancestors, sources, held_out):
  """Holds out whole families of notebooks, as mle-bench does.

  sources: id -> file, or its bytes.
  """
  order = ancestors.sample(frac=1, random_state=0).reset_index(drop=True)
  hidden = set()
  for _, members in order.groupby('ancestor_id', sort=False):
    if len(hidden) + len(members) <= held_out:
      hidden |= set(members['id'])
  test = orders[orders['id'].isin(hidden)].reset_index(drop=True)
  train = orders[~orders['id'].isin(hidden)]
  files = {
    f'{"test" if name in hidden else "train"}/{name}.json': sources[name]
    for name in orders['id']
  }
  family = ancestors.set_index('id')['ancestor_id']
  known = order[~order['id'].isin(hidden)]
  return kit.Parts(
    {
      'train_orders.csv': train,
      'train_ancestors.csv': known,
      'sample_submission.csv': sample(test['id'], files),
      **files,
    },
    test,
    groups=list(family[test['id']]),
  )


def sample(ids, files):
  """The cells in the order of the files."""
  orders = []
  for name in ids:
    content = files[f'test/{name}.json']
    data = content if isinstance(content, bytes) else content.read_bytes()
    orders.append(' '.join(json.loads(data)['cell_type']))
  return pd.DataFrame({'id': list(ids), 'cell_order': orders})


def mlebench(public, private):
  answers = kit.texts(private / 'test_orders.csv')
  names = ('train_orders.csv', 'train_ancestors.csv', 'train', 'test')
  files = {
    f'test/{name}.json': public / 'test' / f'{name}.json'
    for name in answers['id']
  }
  given = sample(answers['id'], files)
  return kit.Parts(
    {**kit.copied(public, names), 'sample_submission.csv': given},
    answers,
    groups=list(answers['id']),
  )


def raw(folder):
  orders, ancestors = (
    kit.texts(kit.original(folder, name))
    for name in ('train_orders.csv', 'train_ancestors.csv')
  )
  home = kit.unpacked(folder, 'train')
  sources = {name: home / f'{name}.json' for name in orders['id']}
  return split(orders, ancestors, sources, min(HELD_OUT, len(orders) // 3))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, mlebench, raw)
