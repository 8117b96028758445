"""Phrases that stand for `parameter=value`: '300 trees', 'an rbf kernel'.

An editor that silently drops a value it was given teaches that values do
not matter. So a request is either understood here, or a number that is
left over makes the editor refuse.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from jaxagent.envs.interfaces import EditRefused
from jaxagent.stand_ins import catalogue

_N = r'(\d+)'
_OF = r'\s*(?:of|to|=|at)?\s*'
# Pattern -> (parameter, source of its value; None: the group).
_SAID: tuple[tuple[re.Pattern[str], str, str | None], ...] = tuple(
  (re.compile(pattern, re.I), name, value)
  for pattern, name, value in (
    (
      rf'\b{_N}\s+(?:more\s+)?(?:(?:decision|random|boosted)\s+)?(?:trees|'
      r'estimators|stages|boosting stages|boosting rounds|rounds|copies|'
      r'members|bags)\b',
      'n_estimators',
      None,
    ),
    (rf'\btrees\s+to\s+{_N}\b', 'n_estimators', None),
    (rf'\b{_N}\s+(?:nearest\s+)?neighbou?rs\b', 'n_neighbors', None),
    (rf'\bneighbou?rs\s+to\s+{_N}\b', 'n_neighbors', None),
    (rf'\b{_N}\s+(?:principal\s+)?components\b', 'n_components', None),
    (rf'\bcomponents\s+to\s+{_N}\b', 'n_components', None),
    (rf'\b{_N}\s+(?:iterations|epochs)\b', 'max_iter', None),
    (rf'\b{_N}\s+bins\b', 'n_bins', None),
    (rf'\b(?:polynomial\s+)?degree{_OF}{_N}\b', 'degree', None),
    (rf'\bdepth{_OF}{_N}\b', 'max_depth', None),
    (
      r'\b(?:uni-?grams?\s+(?:and|to)\s+)?bi-?grams?\b',
      'ngram_range',
      '(1, 2)',
    ),
    (
      r'\b(?:uni-?grams?\s+(?:and|to)\s+)?tri-?grams?\b',
      'ngram_range',
      '(1, 3)',
    ),
    (r'\bbalanced\s+class(?:es|_weights?)\b', 'class_weight', "'balanced'"),
    (r'\bdistance[ -]weight(?:s|ing|ed)\b', 'weights', "'distance'"),
  )
)
_WORDS = {
  'kernel': ('rbf', 'linear', 'poly', 'sigmoid', 'cosine', 'laplacian'),
  'penalty': ('l1', 'l2', 'elasticnet'),
  'solver': (
    'lbfgs',
    'liblinear',
    'newton-cg',
    'sag',
    'saga',
    'adam',
    'sgd',
    'svd',
    'eigen',
  ),
  'activation': ('relu', 'tanh', 'logistic', 'identity'),
  'weights': ('uniform', 'distance'),
  'criterion': (
    'gini',
    'entropy',
    'log_loss',
    'squared_error',
    'absolute_error',
  ),
  'loss': (
    'hinge',
    'log_loss',
    'modified_huber',
    'huber',
    'squared_error',
    'absolute_error',
    'squared_hinge',
  ),
  'metric': ('manhattan', 'euclidean', 'cosine', 'chebyshev', 'minkowski'),
  'max_features': ('sqrt', 'log2'),
  'class_weight': ('balanced',),
  'stop_words': ('english',),
}
_SYNONYMS = (
  (r'\bpolynomial\s+kernel\b', 'poly kernel'),
  (r'\b(l1|l2|elastic-?net)\s+regulari[sz]ation\b', r'\1 penalty'),
  (r'\belastic-net\b', 'elasticnet'),
  (r'\bmax(?:imum)?\s+features\b', 'max_features'),
)
_LITERAL = (
  r"\([\d\s.,]*\)|\[[\d\s.,]*\]|'[^']*'|\"[^\"]*\"|True\b|False\b|None\b|"
  r'-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)'
)
# Where a boosting class has no n_estimators, its rounds are iterations.
_OTHER_NAME = {
  'n_estimators': 'max_iter',
  'alpha': 'C',
  'learning_rate': 'learning_rate_init',
}


def with_names(text: str) -> str:
  """Replaces colloquial parameter names in a text by the real ones."""
  for alias, name in sorted(
    catalogue.PARAM_ALIASES.items(), key=lambda item: -len(item[0])
  ):
    text = re.sub(rf'\b(?:the )?{re.escape(alias)}\b', name, text, flags=re.I)
  return text


def _matched(
  take: Callable[[str, str], str],
  name: str,
  value: str | None,
  found: re.Match[str],
) -> str:
  return take(name, value or found.group(1))


def _worded(
  take: Callable[[str, str], str], name: str, found: re.Match[str]
) -> str:
  return take(name, repr((found.group(1) or found.group(2)).lower()))


def spoken(
  text: str, params: frozenset[str]
) -> tuple[list[tuple[str, str]], str]:
  """Returns (settings without an equals sign, the text without them).

  Args:
    text: a clause with its class names blanked, after `with_names`.
    params: all known parameters.
  """
  found: list[tuple[str, str]] = []

  def take(name: str, value: str) -> str:
    found.append((name, value))
    return ' '

  for pattern, to in _SYNONYMS:
    text = re.sub(pattern, to, text, flags=re.I)
  for said, name, value in _SAID:
    text = said.sub(functools.partial(_matched, take, name, value), text)
  for name, words in _WORDS.items():
    either = '|'.join(map(re.escape, words))
    text = re.sub(
      rf'\b({either})\s+{name}\b|\b{name}\s+({either})(?![\w-])',
      functools.partial(_worded, take, name),
      text,
      flags=re.I,
    )
  # `max_iter 500`: the name with the value right behind it.
  text = re.sub(
    rf'\b([A-Za-z_]\w*)\s+({_LITERAL})',
    lambda m: take(*m.groups()) if m.group(1) in params else m.group(),
    text,
  )
  return found, text


def refuse_leftover(text: str) -> None:
  """Raises EditRefused for a value that nothing has understood.

  `text` is a clause without its class names and its settings.
  """
  number = re.search(r'(?<![\w.])\d+(?:\.\d+)?', text)
  if number:
    raise EditRefused(f'do not know what {number.group()} is for')
  word = re.search(
    r'\bwith\s+(?:an?\s+|the\s+)?([\w-]+\s+(?:kernel|solver|activation))\b',
    text,
    re.I,
  )
  if word:
    raise EditRefused(f'do not know the {word.group(1)}')


def fitting_name(entry: catalogue.Entry | None, name: str, value: str) -> str:
  """Returns a class's own name of a parameter that was named loosely."""
  if entry is None:
    return name
  other = _OTHER_NAME.get(name)
  if name not in entry.params and other in entry.params:
    return other
  if (
    name == 'learning_rate'
    and other in entry.params
    and re.fullmatch(r'[\d.e-]+', value)
  ):
    return other  # a network's learning_rate is the name of a schedule
  return name
