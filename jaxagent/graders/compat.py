"""Scores equal to the sources' graders, quirks included.

Sources: mle-bench (commit 783b15a) and, in the second part, MLAgentBench
(5d71205), whose `eval.py` often pairs rows by position and looks at no id.

Each grader takes (submission, answers) as data frames, or as arrays by name,
and returns a number, or raises anything at all for a refusal: mle-bench turns
every exception into "no score", MLAgentBench's evaluation breaks off. The rules
on columns, rows and ids differ between competitions there, and a policy can use
that; rewards use `strict` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.graders import metrics
from jaxagent.graders.tables import InvalidSubmission

if TYPE_CHECKING:
  import pandas as pd


def _need(table: pd.DataFrame, columns: Sequence[str]) -> None:
  missing = [name for name in columns if name not in table.columns]
  if missing:
    raise InvalidSubmission(f'columns are missing: {missing}')


def _exactly(table: pd.DataFrame, columns: Sequence[str]) -> None:
  if set(table.columns) != set(columns):
    raise InvalidSubmission(
      f'columns are {list(table.columns)}, expected {sorted(columns)}'
    )


def _same_length(submission: pd.DataFrame, answers: pd.DataFrame) -> None:
  if len(submission) != len(answers):
    raise InvalidSubmission(f'{len(submission)} rows, expected {len(answers)}')


def _aligned(submission: pd.DataFrame, answers: pd.DataFrame, id_column: str):
  """Both sorted by id, if the sorted ids agree."""
  submission = submission.sort_values(id_column)
  answers = answers.sort_values(id_column)
  ours, theirs = submission[id_column].tolist(), answers[id_column].tolist()
  if ours != theirs:
    raise InvalidSubmission(
      f'the values of {id_column!r} are not those of the test set'
    )
  return submission, answers


def _unit_interval(values: pd.DataFrame) -> None:
  """All in [0, 1]; NaN is not."""
  if not ((values >= 0) & (values <= 1)).to_numpy().all():
    raise InvalidSubmission('probabilities must be between 0 and 1')


def probability_auc(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """ROC AUC of one column of probabilities."""
  import pandas as pd

  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  pd.to_numeric(submission[target])
  if submission[target].min() < 0 or submission[target].max() > 1:
    raise InvalidSubmission('probabilities must be between 0 and 1')
  submission, answers = _aligned(submission, answers, id_column)
  return metrics.roc_auc(answers[target], submission[target])


def column_auc(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean ROC AUC over columns, exact columns, no range (plant-pathology)."""
  _exactly(submission, [id_column, *targets])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  columns = list(targets)
  return metrics.roc_auc(
    answers[columns].to_numpy(), submission[columns].to_numpy()
  )


def toxic_auc(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean column AUC by *position* of the columns; rows marked -1 left out."""
  _need(submission, [id_column, *targets])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  keep = (answers[list(targets)].sum(axis=1) >= 0).to_numpy()
  scores = submission.drop(columns=[id_column]).to_numpy()[keep]
  return metrics.roc_auc(
    answers.drop(columns=[id_column]).to_numpy()[keep], scores
  )


IDENTITIES = (
  'male',
  'female',
  'homosexual_gay_or_lesbian',
  'christian',
  'jewish',
  'muslim',
  'black',
  'white',
  'psychiatric_or_mental_illness',
)


def unintended_bias(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Bias AUC of predictions cut at 0.5 (NaN counts as below)."""
  _need(submission, [id_column])
  name = 'prediction' if 'prediction' in submission.columns else 'toxicity'
  _need(submission, [name])
  submission, answers = _aligned(submission, answers, id_column)
  return metrics.bias_auc(
    answers['toxicity'].to_numpy() >= 0.5,
    (submission[name].to_numpy() >= 0.5).astype(float),
    answers[list(IDENTITIES)].to_numpy() >= 0.5,
  )


def binary_log_loss(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Log loss of one column of probabilities; ids compared as sets."""
  (target,) = targets
  _need(submission, [id_column, target])
  if set(submission[id_column]) != set(answers[id_column]):
    raise InvalidSubmission(f'the values of {id_column!r} differ')
  _same_length(submission, answers)
  _unit_interval(submission[[target]])
  submission = submission.sort_values(id_column)
  answers = answers.sort_values(id_column)
  return metrics.binary_log_loss(answers[target], submission[target])


def _one_hot_log_loss(
  submission: pd.DataFrame, answers: pd.DataFrame, id_column: str
):
  columns = [name for name in answers.columns if name != id_column]
  _need(submission, [id_column, *columns])
  submission, answers = _aligned(submission, answers, id_column)
  return metrics.log_loss(
    answers[columns].to_numpy(), submission[columns].to_numpy()
  )


def _rows_sum_to_one(values: pd.DataFrame) -> None:
  if not np.isclose(values.sum(axis=1).to_numpy(float), 1, atol=1e-6).all():
    raise InvalidSubmission('each row of probabilities must sum to one')


def leaf_log_loss(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Log loss of exactly the classes' columns."""
  _exactly(submission, [id_column, *targets])
  _same_length(submission, answers)
  _rows_sum_to_one(submission[list(targets)])
  _unit_interval(submission[list(targets)])
  return _one_hot_log_loss(submission, answers, id_column)


def spooky_log_loss(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Log loss; the checks read all columns after the first by position."""
  if submission.shape != (len(answers), len(targets) + 1):
    raise InvalidSubmission(
      f'shape {submission.shape}, expected {(len(answers), len(targets) + 1)}'
    )
  _rows_sum_to_one(submission.iloc[:, 1:])
  _unit_interval(submission.iloc[:, 1:])
  return _one_hot_log_loss(submission, answers, id_column)


def arena_log_loss(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Log loss; other columns are ignored, sums rounded to 6 decimals."""
  columns = [id_column, *targets]
  _need(submission, columns)
  _same_length(submission, answers)
  _unit_interval(submission[list(targets)])
  if not submission[list(targets)].sum(axis=1).round(6).eq(1).all():
    raise InvalidSubmission('each row of probabilities must sum to one')
  return _one_hot_log_loss(submission[columns], answers[columns], id_column)


def label_accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of one column of labels."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  if submission[target].isna().any():
    raise InvalidSubmission(f'{target!r} has empty cells')
  return metrics.accuracy(
    answers[target].to_numpy(), submission[target].to_numpy()
  )


def essay_kappa(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Quadratic kappa of one column of integer scores."""
  (target,) = targets
  _need(submission, [id_column, target])
  submission, answers = _aligned(submission, answers, id_column)
  if submission.empty or submission[target].isna().any():
    raise InvalidSubmission(f'{target!r} has empty cells')
  return metrics.quadratic_kappa(
    answers[target].to_numpy(), submission[target].to_numpy()
  )


def pixel_rmse(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """RMSE of one column."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  return metrics.rmse(answers[target], submission[target])


def conductor_rmsle(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean RMSLE of two columns, row by row: the ids are not looked at."""
  _need(submission, targets)
  _same_length(submission, answers)
  return float(
    np.mean([metrics.rmsle(answers[t], submission[t]) for t in targets])
  )


def quest_spearman(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean Spearman, rows paired by sorted order: ids need not agree."""
  _exactly(submission, [id_column, *targets])
  _same_length(submission, answers)
  submission = submission.sort_values(id_column)
  answers = answers.sort_values(id_column)
  columns = list(targets)
  return metrics.mean_spearman(
    answers[columns].to_numpy(), submission[columns].to_numpy()
  )


def patent_pearson(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Pearson's r of one column; NaN is returned as a score."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  return metrics.pearson(answers[target], submission[target])


def fibrosis_likelihood(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Likelihood of each patient's last three known weeks, those submitted."""
  import pandas as pd

  _need(submission, [id_column, *targets])
  unknown = ~submission[id_column].isin(answers[id_column])
  if unknown.any():
    raise InvalidSubmission(f'{int(unknown.sum())} unknown {id_column} values')
  for target in targets:
    if not pd.api.types.is_numeric_dtype(submission[target]):
      raise InvalidSubmission(f'{target!r} must be numeric')
  known = answers.dropna(subset=['FVC'])
  weeks = known[id_column].map(lambda name: int(name.split('_')[-1]))
  known = known.assign(week=weeks).sort_values('week')
  known = known.groupby('Patient').tail(3).sort_values(id_column)
  submission = submission[submission[id_column].isin(known[id_column])]
  submission = submission.sort_values(id_column)
  known = known[known[id_column].isin(submission[id_column])]
  return metrics.laplace_log_likelihood(
    known['FVC'].to_numpy(),
    submission['FVC'].to_numpy(),
    submission['Confidence'].fillna(0).to_numpy(),
  )


def question_jaccard(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean word Jaccard; an empty cell is an empty text, two empty ones 0."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  scores = []
  for mine, true in zip(
    submission[target].fillna(''), answers[target].fillna('')
  ):
    both_empty = not mine.split() and not true.split()
    scores.append(0.0 if both_empty else metrics.word_jaccard(mine, true))
  return float(np.mean(scores))


def tweet_jaccard(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean word Jaccard; two empty texts are an error."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  pairs = zip(
    submission[target].fillna('').astype(str),
    answers[target].fillna('').astype(str),
  )
  return float(np.mean([metrics.word_jaccard(a, b) for a, b in pairs]))


def gesture_distance(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Edit distance of integer sequences over the total true length."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)

  def sequences(table):
    return [[int(v) for v in str(s).split()] for s in table[target]]

  return metrics.edit_error_rate(sequences(answers), sequences(submission))


def cell_order_tau(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Kendall's tau of cell orders."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  if set(submission[id_column]) != set(answers[id_column]):
    raise InvalidSubmission(f'the values of {id_column!r} differ')
  mine = submission.sort_values(id_column)[target]
  true = answers.sort_values(id_column)[target]
  mine, true = ([str(v).split() for v in column] for column in (mine, true))
  if [len(order) for order in mine] != [len(order) for order in true]:
    raise InvalidSubmission('an order has too few or too many cells')
  return metrics.kendall_tau(mine, true)


SALT_SHAPE = (101, 101)


def salt_masks(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """(truth, prediction) masks [N, 101, 101], rows paired by id."""
  (target,) = targets
  _exactly(submission, [id_column, target])
  _same_length(submission, answers)
  tables = []
  for table in _aligned(submission, answers, id_column):
    column = table[target].fillna('')
    ids = table[id_column]
    if not all(isinstance(v, str) for v in (*column, *ids)):
      raise InvalidSubmission('ids and masks must be text')
    tables.append(
      np.array([metrics.decode_rle(v, *SALT_SHAPE) for v in column])
    )
  return tables[1], tables[0]


def salt_precision(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean precision over IoU thresholds.

  Quirk: an empty prediction for a mask that is not empty counts as covering
  the whole image (a histogram of constant values puts them in its last bin).
  """
  scores = []
  for truth, mine in zip(*salt_masks(submission, answers, id_column, targets)):
    if truth.any() and not mine.any():
      mine = np.ones_like(mine)
    scores.append(metrics.mask_precision(truth, mine))
  return float(np.mean(scores))


def whale_precision(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """MAP@5 of ranked labels separated by blanks."""
  (target,) = targets
  _exactly(submission, [id_column, target])
  _same_length(submission, answers)
  if set(submission[id_column]) != set(answers[id_column]):
    raise InvalidSubmission(f'the values of {id_column!r} differ')
  mine = submission.sort_values(id_column)[target]
  true = answers.sort_values(id_column)[target]
  scores = [
    metrics.average_precision_at(set(str(t).split(' ')), str(m).split(' '), 5)
    for m, t in zip(mine, true)
  ]
  return float(np.mean(scores))


def contrail_dice(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Dice of all images' pixels together (mle-bench); NaN where all are empty."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  submission = submission.sort_values(id_column)
  answers = answers.sort_values(id_column)
  # As arrays: ids that became floats are compared as floats.
  if (submission[id_column].to_numpy() != answers[id_column].to_numpy()).any():
    raise InvalidSubmission(f'the values of {id_column!r} differ')
  sizes = list(zip(answers['height'], answers['width']))
  if len(set(sizes)) > 1:
    raise InvalidSubmission('images of several sizes')

  def masks(table):
    texts = table[target].replace('-', '')
    if not all(isinstance(text, str) for text in texts):
      raise InvalidSubmission('masks must be text')
    return [
      metrics.decode_rle(text, int(height), int(width))
      for text, (height, width) in zip(texts, sizes)
    ]

  return metrics.dice(masks(answers), masks(submission))


# MLAgentBench


def _index_rows(submission: pd.DataFrame, ids, wanted) -> np.ndarray:
  """Positions of the rows that `.loc[id]` finds, one each, else a refusal."""
  import pandas as pd

  index = pd.Index(ids)
  types = pd.api.types
  if not types.is_numeric_dtype(index) or types.is_bool_dtype(index):
    raise InvalidSubmission('the ids are not numbers')
  index, known = pd.Series(np.arange(len(index)), index), pd.Index(wanted)
  found = index[index.index.isin(known)]
  if not found.index.is_unique or not known.isin(found.index).all():
    raise InvalidSubmission('an id is missing or occurs twice')
  return found.loc[known].to_numpy()


def largest_column(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of the place of each row's largest column, whatever its name.

  Quirks: columns count by position, further ones too; rows of other ids are
  not looked at; NaN is less than any number, and a row of NaN is wrong.
  """
  import pandas as pd

  if id_column != 'idx':  # index_col=0
    id_column = submission.columns[0]
  ids = submission[id_column]
  scores = submission.drop(columns=[id_column])
  is_bool = [pd.api.types.is_bool_dtype(dtype) for dtype in scores.dtypes]
  is_number = map(pd.api.types.is_numeric_dtype, scores.dtypes)
  if len(set(is_bool)) != 1 or not all(is_number):
    raise InvalidSubmission('the columns are not all numbers')
  rows = _index_rows(submission, ids, answers.iloc[:, 0])
  values = scores.to_numpy()[rows]
  empty = pd.isna(values)
  if empty.any():
    values = np.where(empty, -np.inf, values)
  places = np.where(empty.all(axis=1), -1, np.argmax(values, axis=1))
  return float(np.mean(places == answers['label'].to_numpy()))


def row_accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of the only column, row by row (OGB's evaluator)."""
  given, true = submission.to_numpy(), answers[list(targets)].to_numpy()
  if given.dtype == object:
    raise InvalidSubmission('labels must be numbers')
  if given.shape != true.shape:
    raise InvalidSubmission(f'shape {given.shape}, expected {true.shape}')
  return float(np.mean(given == true))


def position_accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of one column, row by row: the ids are not looked at."""
  (target,) = targets
  _need(submission, [target])
  same = submission[target] == answers[target]
  return same.sum() / len(submission)


def thresholded_accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Accuracy of one column of probabilities or labels, cut at 0.5."""
  (target,) = targets
  _need(submission, [id_column, target])
  _same_length(submission, answers)
  _unit_interval(submission[[target]])
  submission, answers = _aligned(submission, answers, id_column)
  given = submission[target].to_numpy() >= 0.5
  return float(np.mean(given == (answers[target].to_numpy() >= 0.5)))


def price_mae(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """MAE, row by row, ids not looked at; NaN where the lengths differ."""
  (target,) = targets
  _need(submission, [target])
  return sum(abs(submission[target] - answers[target])) / len(answers)


def essay_mcrmse(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """MCRMSE of six columns, row by row: the ids are not looked at."""
  import pandas as pd

  columns = list(targets)
  _need(submission, columns)
  _same_length(submission, answers)
  dtypes = submission[columns].dtypes
  if submission.empty or not all(map(pd.api.types.is_numeric_dtype, dtypes)):
    raise InvalidSubmission('there are no rows, or not of numbers')
  return metrics.mcrmse(answers[columns], submission[columns])


def rating_smape(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """SMAPE + 1, row by row: the ids are not looked at."""
  (target,) = targets
  _need(submission, [target])
  _same_length(submission, answers)
  return metrics.smape_plus_one(answers[target], submission[target])


def category_precision(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """MAP@20 of numbers separated by blanks.

  The source takes the mean of this and 2 AUC - 1 of labels that it draws at
  random at each call; that half is not rebuilt, but what breaks it off is.
  """
  import pandas as pd
  from pandas.api.types import is_numeric_dtype

  (target,) = targets
  _exactly(submission, [id_column, target, 'osd'])
  _same_length(submission, answers)
  submission, answers = _aligned(submission, answers, id_column)
  osd = pd.to_numeric(submission['osd']).to_numpy(float)
  if len(osd) < 2 or not np.isfinite(osd).all():
    raise InvalidSubmission('osd must hold numbers, two rows or more')
  mine = submission[target]
  if is_numeric_dtype(mine.dtype) or not all(isinstance(v, str) for v in mine):
    raise InvalidSubmission('the categories must be text')
  scores = [
    metrics.average_precision_at(set(str(t).split(' ')), m.split(' '), 20)
    for m, t in zip(mine, answers[target])
  ]
  return float(np.mean(scores))


CONTRAIL_SHAPE = (256, 256)


def contrail_sizes(answers: pd.DataFrame) -> list[tuple[int, int]]:
  """(height, width) of each answer; 256 x 256 where it has none."""
  if 'height' not in answers.columns:
    return [CONTRAIL_SHAPE] * len(answers)
  return [(int(h), int(w)) for h, w in zip(answers['height'], answers['width'])]


def _lenient_mask(text: str, height: int, width: int) -> np.ndarray:
  """Mask of runs that may overlap and stand in any order."""
  mask = np.zeros(height * width, dtype=bool)
  if text != '-':
    parts = text.split()
    starts, lengths = (
      np.asarray(p, dtype=int) for p in (parts[::2], parts[1::2])
    )
    starts -= 1
    for lo, hi in zip(starts, starts + lengths):
      mask[lo:hi] = True
  return mask.reshape((height, width), order='F')


def contrail_image_dice(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean of the images' Dice (MLAgentBench); two empty masks give 1."""
  (target,) = targets
  _need(submission, [id_column, target])
  rows = _index_rows(submission, submission[id_column], answers[id_column])
  mine = submission[target].to_numpy()[rows]
  scores = [
    metrics.dice(
      [_lenient_mask(true, *size)], [_lenient_mask(given, *size)], 1e-6
    )
    for given, true, size in zip(mine, answers[target], contrail_sizes(answers))
  ]
  return float(np.mean(scores))


# Arrays by name. MLAgentBench computes these from a checkpoint that it loads.


def pointer_accuracy(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Share of equal pointers, mean over the arrays (CLRS's `score`)."""
  return np.mean(
    [np.mean(submission[name] == true) for name, true in answers.items()]
  )


def pointer_mse(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Mean squared difference of pointers, mean over the arrays."""
  errors = [
    np.mean(np.square(np.asarray(submission[name], float) - true))
    for name, true in answers.items()
  ]
  return np.mean(errors)


def symbol_perplexity(
  submission: pd.DataFrame,
  answers: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
):
  """Perplexity of the symbols that came, [N], under weights [N, V]."""
  ((name, symbols),) = answers.items()
  return metrics.perplexity(symbols, submission[name])
