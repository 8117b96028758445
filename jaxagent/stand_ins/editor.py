"""Editor stand-in: carries out an edit instruction on the syntax tree.

It reads an instruction in plain English, clause by clause, finds the verb,
the scikit-learn classes and the parameters that it names, and rewrites the
`model = ...` line (and, for a few kinds, lines about the data and the
prediction). What it cannot do it refuses, as an editor model would fail; it
does not check whether the result will run.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.stand_ins import catalogue, phrasing, pipeline

_REMOVE = r'remove|drop|delete|take out|get rid of|omit|discard'
_REPLACE = r'replace|swap|switch|exchange|substitute|change'
_ADD = (
  r'add|insert|put|apply|include|prepend|append|introduce|standardi[sz]e|'
  r'scale|normali[sz]e|reduce the features|project|impute|expand'
)
_USE = r'use|try|train|fit|move to|go for|adopt'
_SET = (
  r'set|increase|decrease|raise|lower|reduce|tune|change|make|adjust|use|'
  r'limit|grow|enable|disable|turn on|turn off|bring'
)
_WRAP = r'wrap|bag|calibrate|boost the|decompose'
_VOTE = r'vote|voting|ensemble|combine|average|blend|stack|stacking'
_SCALE = r'double|halve|triple|multiply|divide'

_CLAUSE = re.compile(
  r'\.\s+(?=[A-Z])|;\s*|,?\s*\band then\b,?\s*|,?\s*\bthen\b,?\s*|'
  rf',?\s+and\s+(?=(?:{_REMOVE}|{_REPLACE}|{_ADD}|{_SET}|{_WRAP}|{_SCALE})\b)',
  re.I,
)
_ASSIGN = re.compile(
  r"(?<![\w'\"])([A-Za-z_]\w*)\s*(?:=|\bto\b|\bof\b|:|\bat\b)\s*"
  r"(\([^()]*\)|\[[^\[\]]*\]|'[^']*'|\"[^\"]*\"|-?[\w.+-]*[\w])"
)
_CAMEL = re.compile(r'\b[A-Z][A-Za-z]*[a-z][A-Za-z]*[A-Z]\w*\b|\b[A-Z]{2,}\w+')


@dataclasses.dataclass(frozen=True)
class Mention:
  """A class named in a clause: `text` is source of a call."""

  name: str
  text: str
  start: int
  end: int

  @property
  def entry(self) -> catalogue.Entry:
    return catalogue.ENTRIES[self.name]

  @property
  def role(self) -> str:
    return self.entry.role


def _has(words: str, clause: str) -> bool:
  return re.search(rf'\b(?:{words})\b', clause, re.I) is not None


def _balanced(text: str, start: int) -> int:
  """Index behind the parenthesis that closes the one at `start`."""
  depth, quote = 0, ''
  for index in range(start, len(text)):
    char = text[index]
    if quote:
      quote = '' if char == quote else quote
    elif char in '\'"':
      quote = char
    elif char in '([{':
      depth += 1
    elif char in ')]}':
      depth -= 1
      if depth == 0:
        return index + 1
  raise EditRefused('a parenthesis of the instruction is never closed')


def find_mentions(clause: str, regression: bool) -> list[Mention]:
  """Classes named in a clause, in order; nested ones belong to the outer."""
  found: list[Mention] = []

  def free(start: int, end: int) -> bool:
    return all(end <= m.start or start >= m.end for m in found)

  for match in re.finditer(r'\b[A-Z]\w*\b', clause):
    name = match.group()
    if name not in catalogue.ENTRIES or not free(*match.span()):
      continue
    end, text = match.end(), f'{name}()'
    if clause[end : end + 1] == '(':
      end = _balanced(clause, end)
      text = clause[match.start() : end]
    found.append(Mention(name, text, match.start(), end))
  for pattern, stem, pair in catalogue.ALIASES:
    for match in pattern.finditer(clause):
      if free(*match.span()):
        name = catalogue.paired_name(stem, regression) if pair else stem
        found.append(Mention(name, f'{name}()', *match.span()))
  return sorted(found, key=lambda m: m.start)


def _value(text: str) -> str | None:
  """Source of a literal, or None where the word is none."""
  words = {'true': 'True', 'false': 'False', 'none': 'None', 'on': 'True'}
  text = words.get(text.lower(), text)
  try:
    ast.literal_eval(text)
    return text
  except (TypeError, *pipeline.PARSE_ERRORS):  # TypeError: `{[]: 1}`
    return None


def _mask(clause: str, mentions: list[Mention]) -> str:
  """The clause with the mentions' own characters blanked."""
  chars = list(clause)
  for mention in mentions:
    for index in range(mention.start, mention.end):
      chars[index] = ' '
  return ''.join(chars)


def find_settings(clause: str) -> list[tuple[str, str]]:
  """(parameter, source of its value) pairs that a clause names.

  Raises EditRefused for a value that nothing here understands.
  """
  clause = phrasing.with_names(clause)
  clause = re.sub(r'\bfrom\s+\S+\s+(?=to\b)', '', clause)
  # 'the C of the SVC to 10': the owner has been blanked already.
  clause = re.sub(
    r'\b(?:of|in|for|on)\s+(?:the\s+)?(?:estimator|model|'
    r'classifier|regressor|scaler|vectorizer|pipeline)?\s*'
    r'(?=(?:to|=)\s)',
    '',
    clause,
  )
  settings: list[tuple[str, str]] = []
  has_equals = '=' in clause

  def take(match: re.Match[str]) -> str:
    name, raw = match.groups()
    value = _value(raw)
    if value is None and re.fullmatch(r'[a-z_][\w-]*', raw):
      value = repr(raw)  # `kernel to rbf`: a bare word is a string
      if name not in _KNOWN_PARAMS:
        return match.group()
    if value is not None and (
      name in _KNOWN_PARAMS or name.isupper() or '_' in name or has_equals
    ):
      settings.append((name, value))
      return ' '
    return match.group()

  rest = _ASSIGN.sub(take, clause)
  said, rest = phrasing.spoken(rest, _KNOWN_PARAMS)
  if not _has(_SCALE, rest):  # 'multiply C by 10'
    phrasing.refuse_leftover(rest)
  return settings + said


_KNOWN_PARAMS = frozenset(
  p for e in catalogue.ENTRIES.values() for p in e.params
) | {'random_state'}


class ScriptedEditor:
  """Editor stand-in; see the module's docstring."""

  name = 'scripted_editor'
  is_stand_in = True

  def edit(self, script: str, instruction: str) -> str:
    """Returns the rewritten script; raises EditRefused."""
    if len(instruction) > 4000:
      raise EditRefused('the instruction is too long')
    target = pipeline.Script(script)
    # `1.` of an enumeration and the like carry nothing.
    text = re.sub(r'\s+', ' ', instruction).strip().rstrip('.')
    text = re.sub(r'(^|[.;:]\s)\d+[.)]\s(?=[A-Za-z])', r'\1', text)
    clauses = [c for c in _split(text) if c.strip()]
    if not clauses:
      raise EditRefused('the instruction is empty')
    for clause in clauses:
      self._carry_out(target, clause.strip())
    result = target.render()
    try:
      ast.parse(result)
    except pipeline.PARSE_ERRORS as error:
      raise EditRefused('the edit would break the syntax') from error
    return result

  def _carry_out(self, target: pipeline.Script, clause: str) -> None:
    if _data_edit(target, clause):
      return
    regression = catalogue.is_regression(
      [
        target.pipeline.names[-1],
        *pipeline.names_in(target.pipeline.expression()),
      ]
    )
    mentions = find_mentions(clause, regression)
    rest = _mask(clause, mentions)
    settings = find_settings(rest)
    _refuse_unknown(rest, clause)
    for rule in (
      _ensemble,
      _wrap,
      _remove,
      _set,
      _replace,
      _add_or_use,
      _set_anyhow,
    ):
      if rule(target, clause, rest, mentions, settings, regression):
        return
    raise EditRefused(f'do not know how to do: {clause[:80]}')


def _split(text: str) -> list[str]:
  """Clauses; what stands in parentheses or quotes is never split."""
  cuts, depth = [], 0
  marks = {m.start(): m.end() for m in _CLAUSE.finditer(text)}
  start = index = 0
  while index < len(text):
    char = text[index]
    depth += (char in '([{') - (char in ')]}')
    if depth <= 0 and index in marks and index >= start:
      cuts.append(text[start:index])
      start = index = marks[index]
      continue
    index += 1
  return cuts + [text[start:]]


def _refuse_unknown(rest: str, clause: str) -> None:
  for word in _CAMEL.findall(rest):
    if word.isupper() and len(word) < 9 or word in ('TruncatedSVD',):
      continue
    raise EditRefused(f'do not know {word}')
  if re.search(
    r'\b(xgboost|lightgbm|catboost|torch|keras|transformer model|'
    r'BERT|ResNet|CNN|GPU)\b',
    clause,
    re.I,
  ):
    raise EditRefused('this needs a library that is not there')


def _call(mention: Mention, settings=()) -> cst.BaseExpression:
  """The mention's call with extra settings and a seed where it takes one."""
  call = pipeline.parse_expression(mention.text)
  if not isinstance(call, cst.Call):
    raise EditRefused(f'cannot read {mention.text[:60]!r}')
  for name, value in settings:
    name = phrasing.fitting_name(mention.entry, name, value)
    call = pipeline.set_keyword(call, name, pipeline.parse_expression(value))
  return _seeded(call)


def _seeded(call: cst.Call) -> cst.Call:
  entry = catalogue.ENTRIES.get(pipeline.call_name(call))
  if entry and entry.seeded and pipeline.keyword(call, 'random_state') is None:
    call = pipeline.set_keyword(call, 'random_state', cst.Integer('0'))
  return call


def _is_estimator(mention: Mention) -> bool:
  return mention.role in catalogue.ESTIMATOR_ROLES or mention.name in (
    'BaggingClassifier',
    'BaggingRegressor',
    'VotingClassifier',
    'VotingRegressor',
    'StackingClassifier',
    'StackingRegressor',
    'TransformedTargetRegressor',
    'CalibratedClassifierCV',
    'OneVsRestClassifier',
    'OneVsOneClassifier',
    'MultiOutputRegressor',
    'GridSearchCV',
  )


_SUBJECTS = {
  'estimator': None,
  'model': None,
  'classifier': None,
  'regressor': None,
  'learner': None,
  'predictor': None,
  'scaler': catalogue.SCALER,
  'scaling': catalogue.SCALER,
  'vectorizer': catalogue.VECTORIZER,
  'reducer': catalogue.REDUCER,
  'dimensionality reduction': catalogue.REDUCER,
  'feature expansion': catalogue.FEATURES,
  'selector': catalogue.SELECTOR,
  'feature selection': catalogue.SELECTOR,
  'imputer': catalogue.IMPUTER,
}


def _subject(rest: str) -> tuple[bool, str | None]:
  """(named?, role or None for the estimator) of 'the scaler' and the like."""
  for word, role in _SUBJECTS.items():
    if re.search(rf'\b{word}\b', rest, re.I):
      return True, role
  return False, None


def _find_step(target: pipeline.Script, name: str) -> int:
  names = target.pipeline.names
  if name in names:
    return names.index(name)
  stem = re.sub(r'(Classifier|Regressor)$', '', name)
  for index, other in enumerate(names):
    if re.sub(r'(Classifier|Regressor)$', '', other) == stem:
      return index
  raise EditRefused(f'the pipeline has no step {name}')


def _remove(target, clause, rest, mentions, settings, regression) -> bool:
  if not re.match(rf'\W*(?:please )?(?:{_REMOVE})\b', clause, re.I):
    return False
  steps = target.pipeline.steps
  if mentions:
    indices = [_find_step(target, m.name) for m in mentions]
  else:
    named, role = _subject(rest)
    index = target.pipeline.index_of_role(role) if role else None
    if not named or index is None:
      raise EditRefused('there is no such step to remove')
    indices = [index]
  for index in sorted(set(indices), reverse=True):
    if index == len(steps) - 1:
      raise EditRefused('the estimator cannot be removed, only replaced')
    del steps[index]
  return True


def _replace(target, clause, rest, mentions, settings, regression) -> bool:
  if not _has(_REPLACE, rest) or not mentions:
    return False
  steps = target.pipeline.steps
  new = mentions[-1]
  if (
    _has('for|instead of', rest)
    and len(mentions) == 2
    and (
      _has('swap|exchange|substitute', rest)
      and 'with' not in rest
      and re.search(r'\b(substitute|in)\b.*\bfor\b', rest, re.I)
    )
  ):
    new = mentions[0]
  others = [m for m in mentions if m is not new]
  if others:
    index = _find_step(target, others[0].name)
  else:
    named, role = _subject(rest[: new.start])
    if role is None:
      index = len(steps) - 1
      if not named and not _is_estimator(new):
        index = target.pipeline.index_of_role(new.role)
    else:
      index = target.pipeline.index_of_role(role)
    if index is None:
      raise EditRefused('there is no such step to replace')
  steps[index] = _call(new, settings)
  return True


def _add_or_use(target, clause, rest, mentions, settings, regression) -> bool:
  if not mentions or not _has(f'{_ADD}|{_USE}|with', rest):
    return False
  anchors = _anchors(clause, mentions)
  new = [m for m in mentions if m not in anchors]
  if not new:
    return False
  for mention in new:
    own = [s for s in settings if _owner_of(s[0], new) is mention]
    if _is_estimator(mention):
      target.pipeline.steps[-1] = _call(mention, own)
    else:
      _add_step(target, clause, mention, own, anchors)
  return True


def _owner_of(name: str, mentions: list[Mention]) -> Mention:
  """Last of several new steps that takes a parameter, else the last."""
  takers = [m for m in mentions if name in m.entry.params]
  return (takers or mentions)[-1]


def _anchors(clause: str, mentions: list[Mention]) -> list[Mention]:
  """Mentions that say where or instead of what: 'before the SVC'."""
  return [
    m
    for m in mentions
    if re.search(
      r'\b(before|after|instead of|rather than|in place of|following)'
      r'( the| a| an)?\s*$',
      clause[: m.start],
      re.I,
    )
  ]


def _add_step(target, clause, mention, settings, anchors) -> None:
  steps = target.pipeline.steps
  call = _call(mention, settings)
  if _has('instead of|rather than|in place of', clause) and anchors:
    steps[_find_step(target, anchors[0].name)] = call
    return
  same = target.pipeline.index_of_role(mention.role)
  exclusive = mention.role in (catalogue.VECTORIZER, catalogue.SCALER)
  if same is not None and (
    exclusive
    and not _has('before|after|first|end', clause)
    or target.pipeline.names[same] == mention.name
  ):
    steps[same] = call
    return
  if anchors:
    index = _find_step(target, anchors[0].name)
    if re.search(r'\b(after|following)\b', clause, re.I):
      index += 1
  elif _has('first|at the start|at the beginning|front|prepend', clause):
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


def _owner(target, name: str) -> int | None:
  """Which step a parameter belongs to when the clause does not say."""
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


def _set_one(target, index, name: str, value: str) -> None:
  step = target.pipeline.steps[index]
  if not isinstance(step, cst.Call):
    raise EditRefused('that step is no call, it takes no parameter')
  entry = catalogue.ENTRIES.get(target.pipeline.names[index])
  name = phrasing.fitting_name(entry, name, value)
  target.pipeline.steps[index] = pipeline.set_keyword(
    step, name, pipeline.parse_expression(value)
  )


def _set(target, clause, rest, mentions, settings, regression) -> bool:
  scaled = _relative(target, clause, rest, mentions)
  if scaled:
    return True
  verb = re.match(rf'\W*(?:please )?(?:{_SET})\b', clause, re.I)
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


def _apply_settings(target, mentions, settings, rest) -> None:
  index = None
  if mentions:
    index = _find_step(target, mentions[0].name)
  else:
    named, role = _subject(rest)
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


def _set_anyhow(target, clause, rest, mentions, settings, regression) -> bool:
  """Last resort: a clause that only names `p=v` pairs."""
  if not settings:
    return False
  _apply_settings(target, mentions, settings, rest)
  return True


def _relative(target, clause, rest, mentions) -> bool:
  """'Double n_estimators', 'multiply C by 10'."""
  match = re.search(rf'\b({_SCALE})\b', rest, re.I)
  if not match:
    return False
  words = rest
  for alias, name in catalogue.PARAM_ALIASES.items():
    words = re.sub(rf'\b{re.escape(alias)}\b', name, words, flags=re.I)
  params = [w for w in re.findall(r'[A-Za-z_]\w*', words) if w in _KNOWN_PARAMS]
  if not params:
    return False
  by = re.search(r'\bby\s+([\d.]+)', rest)
  try:
    amount = float(by.group(1).rstrip('.')) if by else 2.0
  except ValueError:
    raise EditRefused(f'{by.group(1)!r} is not a number') from None
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
    number = ast.literal_eval(pipeline.code(old))
    new = number * amount
    if isinstance(number, int):
      new = max(1, round(new))
    if not math.isfinite(new):
      raise EditRefused(f'{name} would be {new}')
  except (TypeError, *pipeline.PARSE_ERRORS) as error:
    raise EditRefused(f'{name} is not a number') from error
  _set_one(target, index, name, f'{new:.6g}')
  return True


def _wrap(target, clause, rest, mentions, settings, regression) -> bool:
  steps = target.pipeline.steps
  inner = pipeline.one_line(steps[-1])
  kind = 'Regressor' if regression else 'Classifier'
  wrappers = [
    m
    for m in mentions
    if m.role == catalogue.META or m.name.startswith('AdaBoost')
  ]
  if _has(_WRAP, rest) or _has('bagging|around', clause):
    if wrappers:
      mention = wrappers[0]
    elif _has('bag|bagging', clause):
      mention = Mention(f'Bagging{kind}', f'Bagging{kind}()', 0, 0)
    elif _has('boost', clause):
      mention = Mention(f'AdaBoost{kind}', f'AdaBoost{kind}()', 0, 0)
    elif _has('calibrate', clause):
      name = 'CalibratedClassifierCV'
      mention = Mention(name, f'{name}()', 0, 0)
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
  call = pipeline.parse_expression(mention.text)
  if any(a.keyword is None for a in call.args) or pipeline.keyword(call, slot):
    steps[-1] = _call(mention, settings)
    return True
  if pipeline.call_name(steps[-1]) == mention.name:
    # It is wrapped so already: a second layer would multiply its fits.
    bare = steps[-1]
  else:
    bare = pipeline.parse_expression(f'{mention.name}({slot}={inner})')
  for arg in call.args:
    bare = pipeline.set_keyword(bare, arg.keyword.value, arg.value)
  for name, value in settings:
    bare = pipeline.set_keyword(bare, name, pipeline.parse_expression(value))
  steps[-1] = _seeded(bare)
  return True


def _ensemble(target, clause, rest, mentions, settings, regression) -> bool:
  if not _has(_VOTE, rest):
    return False
  members = [m for m in mentions if _is_estimator(m)]
  if not members:
    raise EditRefused('an ensemble of what? name the estimators')
  if any(
    m.role == catalogue.META and 'estimators' in m.entry.params for m in members
  ):
    return False
  stacked = _has('stack|stacking', rest)
  name = 'Stacking' if stacked else 'Voting'
  name += 'Regressor' if regression else 'Classifier'
  taken = catalogue.ENTRIES[name].params
  for key, _ in settings:
    if key not in taken:
      raise EditRefused(f'which member takes {key}? write it as a call')
  options = dict(settings)
  texts = [pipeline.one_line(_call(m)) for m in members]
  if len(members) == 1 or _has('current|existing|present', rest):
    inner, own = _inside(target.pipeline.steps[-1], name)
    texts, options = inner + texts, own | options
  if not stacked and not regression and 'voting' not in options:
    if _has('soft', rest) or _has('average|blend', rest):
      options['voting'] = "'soft'"
  pairs = ', '.join(
    f"('m{i}', {text})" for i, text in enumerate(dict.fromkeys(texts))
  )
  own = ''.join(f', {key}={value}' for key, value in options.items())
  target.pipeline.steps[-1] = pipeline.parse_expression(
    f'{name}([{pairs}]{own})'
  )
  return True


def _inside(current, name: str) -> tuple[list[str], dict[str, str]]:
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


def _data_edit(target: pipeline.Script, clause: str) -> bool:
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
    target.insert_before_fit('y_train = np.concatenate([y_train, y_train])')
    _insert_noise(target, sigma)
    return True
  return False


def _insert_noise(target: pipeline.Script, sigma: str) -> None:
  target.insert_before_fit(
    'x_train = np.concatenate([x_train, x_train + '
    f'np.random.RandomState(0).normal(0, {sigma}, np.shape(x_train))])'
  )
