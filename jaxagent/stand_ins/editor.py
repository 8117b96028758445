"""Editor stand-in: carries out an edit instruction on the syntax tree.

It reads an instruction in plain English, clause by clause, finds the verb,
the scikit-learn classes and the parameters that it names, and rewrites the
`model = ...` line (and, for a few kinds, lines about the data and the
prediction). Of a program without such a line it writes functions anew that it knows
(`functions`). What it cannot do it refuses, as an editor model would fail; it
does not check whether the result will run.
"""

from __future__ import annotations

import math
import re
from typing import Any

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import model_line
from jaxagent.files import syntax
from jaxagent.stand_ins import (
  catalogue,
  data_edits,
  ensembles,
  functions,
  phrasing,
  pipeline,
  words,
)


class ScriptedEditor:
  """Editor stand-in; see the module's docstring."""

  name = 'scripted_editor'
  is_stand_in = True

  def can_change(self, script: str) -> bool:
    """Returns whether there is anything in a script that it could change."""
    return bool(model_line(script)) or functions.knows(script)

  def edit(self, script: str, instruction: str) -> str:
    """Returns the rewritten script; raises EditRefused."""
    if len(instruction) > 4000:
      raise EditRefused('the instruction is too long')
    # `1.` of an enumeration and the like carry nothing.
    text = re.sub(r'\s+', ' ', instruction).strip().rstrip('.')
    text = re.sub(r'(^|[.;:]\s)\d+[.)]\s(?=[A-Za-z])', r'\1', text)
    clauses = [c for c in words.clauses_of(text) if c.strip()]
    if not clauses:
      raise EditRefused('the instruction is empty')
    if functions.knows(script):
      result = functions.edited(script, clauses)
    else:
      target = pipeline.Script(script)
      for clause in clauses:
        self._carry_out(target, clause.strip())
      result = target.render()
    try:
      syntax.parse(result)
    except syntax.PARSE_ERRORS as error:
      raise EditRefused('the edit would break the syntax') from error
    return result

  def _carry_out(self, target: pipeline.Script, clause: str) -> None:
    if data_edits.data_edit(target, clause):
      return
    regression = catalogue.is_regression(
      [
        target.pipeline.names[-1],
        *pipeline.names_in(target.pipeline.expression()),
      ]
    )
    mentions = words.find_mentions(clause, regression)
    rest = words.mask(clause, mentions)
    settings = words.find_settings(rest)
    words.refuse_unknown(rest, clause)
    part = words.Clause(clause, rest, mentions, settings, regression)
    for rule in (
      ensembles.ensemble,
      ensembles.wrap,
      _remove,
      _set,
      _replace,
      _add_or_use,
      _set_anyhow,
    ):
      if rule(target, part):
        return
    raise EditRefused(f'do not know how to do: {clause[:80]}')


def _find_step(target: pipeline.Script, name: str) -> int:
  names = target.pipeline.names
  if name in names:
    return names.index(name)
  stem = re.sub(r'(Classifier|Regressor)$', '', name)
  for index, other in enumerate(names):
    if re.sub(r'(Classifier|Regressor)$', '', other) == stem:
      return index
  raise EditRefused(f'the pipeline has no step {name}')


def _remove(target: Any, part: words.Clause) -> bool:
  clause, rest, mentions = part.text, part.rest, part.mentions
  if not re.match(rf'\W*(?:please )?(?:{words.REMOVE})\b', clause, re.I):
    return False
  steps = target.pipeline.steps
  if mentions:
    indices = [_find_step(target, m.name) for m in mentions]
  else:
    named, role = words.subject(rest)
    index = target.pipeline.index_of_role(role) if role else None
    if not named or index is None:
      raise EditRefused('there is no such step to remove')
    indices = [index]
  for index in sorted(set(indices), reverse=True):
    if index == len(steps) - 1:
      raise EditRefused('the estimator cannot be removed, only replaced')
    del steps[index]
  return True


def _replace(target: Any, part: words.Clause) -> bool:
  rest, mentions, settings = part.rest, part.mentions, part.settings
  if not words.has(words.REPLACE, rest) or not mentions:
    return False
  steps = target.pipeline.steps
  new = mentions[-1]
  if (
    words.has('for|instead of', rest)
    and len(mentions) == 2
    and (
      words.has('swap|exchange|substitute', rest)
      and 'with' not in rest
      and re.search(r'\b(substitute|in)\b.*\bfor\b', rest, re.I)
    )
  ):
    new = mentions[0]
  others = [m for m in mentions if m is not new]
  if others:
    index = _find_step(target, others[0].name)
  else:
    named, role = words.subject(rest[: new.start])
    if role is None:
      index = len(steps) - 1
      if not named and not words.is_estimator(new):
        index = target.pipeline.index_of_role(new.role)
    else:
      index = target.pipeline.index_of_role(role)
    if index is None:
      raise EditRefused('there is no such step to replace')
  steps[index] = words.call_of(new, settings)
  return True


def _add_or_use(target: Any, part: words.Clause) -> bool:
  clause, rest, mentions, settings = (
    part.text,
    part.rest,
    part.mentions,
    part.settings,
  )
  if not mentions or not words.has(f'{words.ADD}|{words.USE}|with', rest):
    return False
  anchors = words.anchors(clause, mentions)
  new = [m for m in mentions if m not in anchors]
  if not new:
    return False
  for mention in new:
    own = [s for s in settings if words.owner_of(s[0], new) is mention]
    if words.is_estimator(mention):
      target.pipeline.steps[-1] = words.call_of(mention, own)
    else:
      _add_step(target, clause, mention, own, anchors)
  return True


def _add_step(
  target: Any, clause: str, mention: Any, settings: Any, anchors: Any
) -> None:
  steps = target.pipeline.steps
  call = words.call_of(mention, settings)
  if words.has('instead of|rather than|in place of', clause) and anchors:
    steps[_find_step(target, anchors[0].name)] = call
    return
  same = target.pipeline.index_of_role(mention.role)
  exclusive = mention.role in (catalogue.VECTORIZER, catalogue.SCALER)
  if same is not None and (
    exclusive
    and not words.has('before|after|first|end', clause)
    or target.pipeline.names[same] == mention.name
  ):
    steps[same] = call
    return
  if anchors:
    index = _find_step(target, anchors[0].name)
    if re.search(r'\b(after|following)\b', clause, re.I):
      index += 1
  elif words.has('first|at the start|at the beginning|front|prepend', clause):
    index = 0
  elif mention.role == catalogue.SCALER:
    vectorizer = target.pipeline.index_of_role(catalogue.VECTORIZER)
    index = 0 if vectorizer is None else vectorizer + 1
  elif mention.role in (catalogue.VECTORIZER, catalogue.IMPUTER):
    index = 0
  else:
    index = len(steps) - 1
  steps.insert(min(index, len(steps) - 1), call)
  target.pipeline.bare = False


def _owner(target: Any, name: str) -> int | None:
  """Returns the step of a parameter when the clause does not name it."""
  steps = target.pipeline.steps
  order = [len(steps) - 1, *range(len(steps) - 1)]
  for index in order:  # a step that already sets it comes first
    step = steps[index]
    if isinstance(step, cst.Call) and pipeline.keyword(step, name) is not None:
      return index
  for index in order:
    entry = catalogue.ENTRIES.get(target.pipeline.names[index])
    if entry and name in entry.params:
      return index
  return None


def _set_one(target: Any, index: int | None, name: str, value: str) -> None:
  step = target.pipeline.steps[index]
  if not isinstance(step, cst.Call):
    raise EditRefused('that step is no call, it takes no parameter')
  entry = catalogue.ENTRIES.get(target.pipeline.names[index])
  name = phrasing.fitting_name(entry, name, value)
  target.pipeline.steps[index] = pipeline.set_keyword(
    step, name, pipeline.parse_expression(value)
  )


def _set(target: Any, part: words.Clause) -> bool:
  clause, rest, mentions, settings = (
    part.text,
    part.rest,
    part.mentions,
    part.settings,
  )
  scaled = _relative(target, clause, rest, mentions)
  if scaled:
    return True
  verb = re.match(rf'\W*(?:please )?(?:{words.SET})\b', clause, re.I)
  if not verb or not settings:
    return False
  if mentions and mentions[0].text.endswith('()') is False:
    return False  # 'use SVC(C=1)' is a replacement
  if mentions and re.match(r'\W*(?:change|use)\b', clause, re.I):
    # 'use SVC with C=10' names a new step; 'use C=10 in SVC' sets one.
    first = re.search(rf'\b{re.escape(settings[0][0])}\b', rest)
    if first is None or first.start() > mentions[0].start:
      return False
  _apply_settings(target, mentions, settings, rest)
  return True


def _apply_settings(
  target: Any, mentions: Any, settings: Any, rest: str
) -> None:
  index = None
  if mentions:
    index = _find_step(target, mentions[0].name)
  else:
    named, role = words.subject(rest)
    if named:
      index = (
        len(target.pipeline.steps) - 1
        if role is None
        else target.pipeline.index_of_role(role)
      )
      if index is None:
        raise EditRefused('the pipeline has no such step')
  for name, value in settings:
    if target.has_constant(name):
      target.set_constant(name, value)
      continue
    where = _owner(target, name) if index is None else index
    if where is None:
      raise EditRefused(f'no step takes the parameter {name}')
    _set_one(target, where, name, value)


def _set_anyhow(target: Any, part: words.Clause) -> bool:
  """Last resort: a clause that only names `p=v` pairs."""
  rest, mentions, settings = part.rest, part.mentions, part.settings
  if not settings:
    return False
  _apply_settings(target, mentions, settings, rest)
  return True


def _relative(target: Any, clause: str, rest: str, mentions: Any) -> bool:
  """'Double n_estimators', 'multiply C by 10'."""
  match = re.search(rf'\b({words.SCALE})\b', rest, re.I)
  if not match:
    return False
  said = rest
  for alias, name in catalogue.PARAM_ALIASES.items():
    said = re.sub(rf'\b{re.escape(alias)}\b', name, said, flags=re.I)
  params = [
    w for w in re.findall(r'[A-Za-z_]\w*', said) if w in words.KNOWN_PARAMS
  ]
  if not params:
    return False
  by = re.search(r'\bby\s+([\d.]+)', rest)
  given = by.group(1) if by else '2'
  try:
    amount = float(given.rstrip('.'))
  except ValueError:
    raise EditRefused(f'{given!r} is not a number') from None
  amount = {'double': 2.0, 'halve': 0.5, 'triple': 3.0}.get(
    match.group(1).lower(), amount
  )
  if match.group(1).lower() == 'divide':
    amount = 1.0 / amount if amount else 1.0
  name = params[0]
  index = (
    _find_step(target, mentions[0].name) if mentions else _owner(target, name)
  )
  step = target.pipeline.steps[index] if index is not None else None
  old = pipeline.keyword(step, name) if isinstance(step, cst.Call) else None
  if old is None:
    raise EditRefused(f'{name} is not set in the script, give its value')
  try:
    number = syntax.literal(pipeline.code(old))
    new = number * amount
    if isinstance(number, int):
      new = max(1, round(new))
    if not math.isfinite(new):
      raise EditRefused(f'{name} would be {new}')
  except (TypeError, *syntax.PARSE_ERRORS) as error:
    raise EditRefused(f'{name} is not a number') from error
  _set_one(target, index, name, f'{new:.6g}')
  return True
