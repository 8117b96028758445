"""Edits of lines about the data, the target and the prediction."""

from __future__ import annotations

import re

from jaxagent.stand_ins import pipeline


def data_edit(target: pipeline.Script, clause: str) -> bool:
  """Edits of lines about the data, the target and the prediction."""
  if re.search(r'\blog\b.*\b(target|labels?|y)\b', clause, re.I):
    inner = pipeline.one_line(target.pipeline.steps[-1])
    target.pipeline.steps[-1] = pipeline.parse_expression(
      f'TransformedTargetRegressor(regressor={inner}, func=np.log1p, '
      'inverse_func=np.expm1)'
    )
    return True
  if re.search(
    r'\b(scale|standardi[sz]e|normali[sz]e)\b.*\btarget\b', clause, re.I
  ):
    inner = pipeline.one_line(target.pipeline.steps[-1])
    target.pipeline.steps[-1] = pipeline.parse_expression(
      f'TransformedTargetRegressor(regressor={inner}, '
      'transformer=StandardScaler())'
    )
    return True
  if re.search(r'\bclip\b.*\bpredictions?\b', clause, re.I):
    name = target.target_of_prediction()
    target.insert_after_prediction(
      f'{name} = np.clip({name}, np.min(y_train), np.max(y_train))'
    )
    return True
  if re.search(r'\bround\b.*\bpredictions?\b', clause, re.I):
    name = target.target_of_prediction()
    target.insert_after_prediction(f'{name} = np.round({name})')
    return True
  if re.search(
    r'\b(half|third|quarter|tenth|subsample)\b.*\b(rows|training'
    r'|data|examples)\b',
    clause,
    re.I,
  ):
    words = {'half': 2, 'third': 3, 'quarter': 4, 'tenth': 10}
    every = next((n for w, n in words.items() if w in clause.lower()), 2)
    target.insert_before_fit(
      f'x_train, y_train = x_train[::{every}], y_train[::{every}]'
    )
    return True
  if re.search(r'\bnoise\b', clause, re.I):
    level = re.search(r'0?\.\d+', clause)
    sigma = level.group() if level else '0.1'
    # One statement: rows and labels are doubled together, or not at all.
    target.insert_before_fit(
      'x_train, y_train = np.concatenate([x_train, x_train + '
      f'np.random.RandomState(0).normal(0, {sigma}, np.shape(x_train))]), '
      'np.concatenate([y_train, y_train])'
    )
    return True
  return False
