"""`new NAME`: a small task that works, to be changed into one's own."""

from __future__ import annotations

import pathlib
import re

_NAME = re.compile(r'[a-z0-9][a-z0-9-]*')

TASK_YAML = """# What the data is and where it comes from.
modality: tabular  # image | tabular | text | timeseries
kind: regression  # classification | regression | restoration
metric: rmse  # accuracy | f1_macro | roc_auc | log_loss | rmse | mae
higher_is_better: false
split: heldin  # heldin (trained on) | heldout (evaluation only)
# Measured by `python -m jaxagent.tasks measure {name} --search`.
# Where the labels lie in packages that scripts may read: covered while they run.
hides: []  # such as [sklearn/datasets/data]
m_init: null
m_best: null
m_best_source: ''
limits:
  timeout_s: 20
  memory_mb: 2048
"""
PROBLEM = """Say what the rows of data/train.csv are, which column is to be
predicted, what train.py does now, which columns submission.csv needs, and the
metric. Do not change the files in data/.
"""
TRAIN = '''"""Starter of `{name}`: deliberately simple."""

import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train = train.drop(columns=['id', 'target'])
x_test = test.drop(columns=['id'])
y_train = train['target']

model = make_pipeline(DecisionTreeRegressor(max_depth=2, random_state=0))
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({{'id': test['id'], 'target': pred}}).to_csv(
  'submission.csv', index=False
)
'''
PREPARE = '''"""Prepares `{name}`: replace `rows` by your own data.

Usage: python prepare.py --public DIR --private DIR
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pandas as pd


def rows() -> pd.DataFrame:
  """Features and the column `target`; here two hills and a little noise."""
  rng = np.random.RandomState(0)
  x = rng.uniform(-3, 3, (800, 4)).round(4)
  y = np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.normal(size=len(x))
  frame = pd.DataFrame(x, columns=['a', 'b', 'c', 'd'])
  return frame.assign(target=y.round(4))


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--public', type=pathlib.Path, required=True)
  parser.add_argument('--private', type=pathlib.Path, required=True)
  args = parser.parse_args()
  args.public.mkdir(parents=True, exist_ok=True)
  args.private.mkdir(parents=True, exist_ok=True)
  frame = rows().sample(frac=1.0, random_state=0).reset_index(drop=True)
  frame.insert(0, 'id', np.random.RandomState(1).permutation(len(frame)))
  half = len(frame) // 2
  train, test = frame[:half], frame[half:]
  # Rows of the two hidden splits must not be told apart from outside.
  split = np.random.RandomState(2).permutation(len(test)) % 2
  answers = test[['id', 'target']].assign(
    split=np.where(split == 0, 'valid', 'private')
  )
  train.to_csv(args.public / 'train.csv', index=False)
  test.drop(columns='target').to_csv(args.public / 'test.csv', index=False)
  test[['id']].assign(target=0.0).to_csv(
    args.public / 'sample_submission.csv', index=False
  )
  answers.to_csv(args.private / 'answers.csv', index=False)


if __name__ == '__main__':
  main()
'''
EVAL = '''"""Metric of `{name}`: root of the mean squared error."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas as pd


def score(submission: pd.DataFrame, answers: pd.DataFrame) -> float:
  """Metric of rows that are already aligned by id and checked."""
  error = submission['target'].to_numpy(float) - answers['target'].to_numpy(float)
  return float(np.sqrt(np.mean(error**2)))


def get_score(
  submission_folder: str | pathlib.Path,
  answers: str | pathlib.Path = 'answers.csv',
  split: str = 'valid',
) -> float:
  """Scores `submission.csv` of a folder (MLAgentBench's entry point)."""
  folder = pathlib.Path(submission_folder)
  got = pd.read_csv(folder / 'submission.csv').set_index('id')
  want = pd.read_csv(answers).set_index('id')
  want = want[want['split'] == split]
  return score(got.loc[want.index], want)
'''
READ_ONLY = 'data/train.csv\ndata/test.csv\ndata/sample_submission.csv\n'


def write_template(name: str, tasks_dir: pathlib.Path) -> pathlib.Path:
  """Writes `tasks_dir/name`. Raises ValueError: bad name, or it exists."""
  if not _NAME.fullmatch(name):
    raise ValueError(
      f'name={name!r}: use lower-case letters, digits and hyphens only.'
    )
  root = tasks_dir / name
  if root.exists():
    raise ValueError(f'{root} is already there; choose another name.')
  (root / 'env').mkdir(parents=True)
  (root / 'scripts').mkdir()
  files = {
    'task.yaml': TASK_YAML.format(name=name),
    'env/train.py': TRAIN.format(name=name),
    'scripts/research_problem.txt': PROBLEM,
    'scripts/prepare.py': PREPARE.format(name=name),
    'scripts/eval.py': EVAL.format(name=name),
    'scripts/read_only_files.txt': READ_ONLY,
  }
  for relative, text in files.items():
    (root / relative).write_text(text, encoding='utf-8')
  return root
