"""Reads an edit instruction: clauses, verbs, classes and settings.

The editor's reading part; it knows no script.
"""

from __future__ import annotations

import dataclasses
import re

import libcst as cst

from jaxagent.envs.interfaces import EditRefused
from jaxagent.files import syntax
from jaxagent.stand_ins import catalogue, phrasing, pipeline

REMOVE = r'remove|drop|delete|take out|get rid of|omit|discard'
REPLACE = r'replace|swap|switch|exchange|substitute|change'
ADD = (
  r'add|insert|put|apply|include|prepend|append|introduce|standardi[sz]e|'
  r'scale|normali[sz]e|reduce the features|project|impute|expand'
)
USE = r'use|try|train|fit|move to|go for|adopt'
SET = (
  r'set|increase|decrease|raise|lower|reduce|tune|change|make|adjust|use|'
  r'limit|grow|enable|disable|turn on|turn off|bring'
)
WRAP = r'wrap|bag|calibrate|boost the|decompose'
VOTE = r'vote|voting|ensemble|combine|average|blend|stack|stacking'
SCALE = r'double|halve|triple|multiply|divide'
_CLAUSE = re.compile(
  r'\.\s+(?=[A-Z])|;\s*|,?\s*\band then\b,?\s*|,?\s*\bthen\b,?\s*|'
  rf',?\s+and\s+(?=(?:{REMOVE}|{REPLACE}|{ADD}|{SET}|{WRAP}|{SCALE})\b)',
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


def has(words: str, clause: str) -> bool:
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


@dataclasses.dataclass(frozen=True)
class Clause:
  """Part of an instruction that one rule carries out.

  rest: its text without the mentions.
  settings: (parameter, value) of each `p=v`.
  regression: the pipeline's estimator is a regressor.
  """

  text: str
  rest: str
  mentions: list[Mention]
  settings: list[tuple[str, str]]
  regression: bool


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
    syntax.literal(text)
    return text
  except (TypeError, *syntax.PARSE_ERRORS):  # TypeError: `{[]: 1}`
    return None


def mask(clause: str, mentions: list[Mention]) -> str:
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
      if name not in KNOWN_PARAMS:
        return match.group()
    if value is not None and (
      name in KNOWN_PARAMS or name.isupper() or '_' in name or has_equals
    ):
      settings.append((name, value))
      return ' '
    return match.group()

  rest = _ASSIGN.sub(take, clause)
  said, rest = phrasing.spoken(rest, KNOWN_PARAMS)
  if not has(SCALE, rest):  # 'multiply C by 10'
    phrasing.refuse_leftover(rest)
  return settings + said


KNOWN_PARAMS = frozenset(
  p for e in catalogue.ENTRIES.values() for p in e.params
) | {'random_state'}


def clauses_of(text: str) -> list[str]:
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


def refuse_unknown(rest: str, clause: str) -> None:
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


def subject(rest: str) -> tuple[bool, str | None]:
  """(named?, role or None for the estimator) of 'the scaler' and the like."""
  for word, role in _SUBJECTS.items():
    if re.search(rf'\b{word}\b', rest, re.I):
      return True, role
  return False, None


def is_estimator(mention: Mention) -> bool:
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


def owner_of(name: str, mentions: list[Mention]) -> Mention:
  """Last of several new steps that takes a parameter, else the last."""
  takers = [m for m in mentions if name in m.entry.params]
  return (takers or mentions)[-1]


def anchors(clause: str, mentions: list[Mention]) -> list[Mention]:
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


def call_of(mention: Mention, settings=()) -> cst.BaseExpression:
  """The mention's call with extra settings and a seed where it takes one."""
  call = pipeline.parse_call(mention.text)
  for name, value in settings:
    name = phrasing.fitting_name(mention.entry, name, value)
    call = pipeline.set_keyword(call, name, pipeline.parse_expression(value))
  return seeded(call)


def seeded(call: cst.Call) -> cst.Call:
  entry = catalogue.ENTRIES.get(pipeline.call_name(call))
  if entry and entry.seeded and pipeline.keyword(call, 'random_state') is None:
    call = pipeline.set_keyword(call, 'random_state', cst.Integer('0'))
  return call
