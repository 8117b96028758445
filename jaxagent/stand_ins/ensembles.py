"""Edits that put an estimator inside another: wrappers, votes and stacks."""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.stand_ins import catalogue, pipeline, words


def wrap(target: Any, part: words.Clause) -> bool:
  clause, rest, mentions, settings, regression = (
    part.text,
    part.rest,
    part.mentions,
    part.settings,
    part.regression,
  )
  steps = target.pipeline.steps
  inner = pipeline.one_line(steps[-1])
  kind = 'Regressor' if regression else 'Classifier'
  wrappers = [
    m
    for m in mentions
    if m.role == catalogue.META or m.name.startswith('AdaBoost')
  ]
  if words.has(words.WRAP, rest) or words.has('bagging|around', clause):
    if wrappers:
      mention = wrappers[0]
    elif words.has('bag|bagging', clause):
      mention = words.Mention(f'Bagging{kind}', f'Bagging{kind}()', 0, 0)
    elif words.has('boost', clause):
      mention = words.Mention(f'AdaBoost{kind}', f'AdaBoost{kind}()', 0, 0)
    elif words.has('calibrate', clause):
      name = 'CalibratedClassifierCV'
      mention = words.Mention(name, f'{name}()', 0, 0)
    else:
      return False
  else:
    return False
  copies = re.search(
    r'\b(\d+)\s+(?:copies|members|estimators|rounds|bags)', rest, re.I
  )
  if copies:
    settings = [*settings, ('n_estimators', copies.group(1))]
  slot = (
    'regressor' if mention.name == 'TransformedTargetRegressor' else 'estimator'
  )
  call = pipeline.parse_call(mention.text)
  if any(a.keyword is None for a in call.args) or pipeline.keyword(call, slot):
    steps[-1] = words.call_of(mention, settings)
    return True
  last = steps[-1]
  if isinstance(last, cst.Call) and pipeline.call_name(last) == mention.name:
    # It is wrapped so already: a second layer would multiply its fits.
    bare = last
  else:
    bare = pipeline.parse_call(f'{mention.name}({slot}={inner})')
  for arg in call.args:
    assert arg.keyword is not None  # any other was put in as a step
    bare = pipeline.set_keyword(bare, arg.keyword.value, arg.value)
  for name, value in settings:
    bare = pipeline.set_keyword(bare, name, pipeline.parse_expression(value))
  steps[-1] = words.seeded(bare)
  return True


def ensemble(target: Any, part: words.Clause) -> bool:
  rest, mentions, settings, regression = (
    part.rest,
    part.mentions,
    part.settings,
    part.regression,
  )
  if not words.has(words.VOTE, rest):
    return False
  members = [m for m in mentions if words.is_estimator(m)]
  if not members:
    raise EditRefused('an ensemble of what? name the estimators')
  if any(
    m.role == catalogue.META and 'estimators' in m.entry.params for m in members
  ):
    return False
  stacked = words.has('stack|stacking', rest)
  name = 'Stacking' if stacked else 'Voting'
  name += 'Regressor' if regression else 'Classifier'
  taken = catalogue.ENTRIES[name].params
  for key, _ in settings:
    if key not in taken:
      raise EditRefused(f'which member takes {key}? write it as a call')
  options = dict(settings)
  texts = [pipeline.one_line(words.call_of(m)) for m in members]
  if len(members) == 1 or words.has('current|existing|present', rest):
    inner, own = _inside(target.pipeline.steps[-1], name)
    texts, options = inner + texts, own | options
  if not stacked and not regression and 'voting' not in options:
    if words.has('soft', rest) or words.has('average|blend', rest):
      options['voting'] = "'soft'"
  pairs = ', '.join(
    f"('m{i}', {text})" for i, text in enumerate(dict.fromkeys(texts))
  )
  more = ''.join(f', {key}={value}' for key, value in options.items())
  target.pipeline.steps[-1] = pipeline.parse_expression(
    f'{name}([{pairs}]{more})'
  )
  return True


def _inside(current: Any, name: str) -> tuple[list[str], dict[str, str]]:
  """Members and options that an ensemble `name` takes over from `current`.

  One of its own kind gives its own: scikit-learn refuses a stack in a stack.
  """
  if pipeline.call_name(current) == name:
    if members := pipeline.named_values(current):
      named = [a for a in current.args if a.keyword is not None]
      return [pipeline.one_line(m) for m in members], {
        a.keyword.value: pipeline.one_line(a.value) for a in named
      }
  return [pipeline.one_line(current)], {}
