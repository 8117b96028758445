"""Types of ideas (paper 001, appendix E): by a question to a model, or by rule.

The rule reads the family of a scripted idea, so it holds for the stand-ins alone; a
report names which of the two gave its types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxagent.envs.agents import items
from jaxagent.recipes.ideator.parser import Idea

# Appendix E's, in its order, with what each covers.
TYPES: Mapping[str, str] = {
  'Data Preparation': (
    'missing values, errors and outliers in the data; more data made from it'
  ),
  'Feature Engineering': (
    'new features, features transformed (scaled, encoded) or selected'
  ),
  'Model Architecture': (
    'a model of another kind, or another structure of the present one, such as its '
    'layers'
  ),
  'Hyperparameter Tuning': (
    'a search for better settings of the model, such as its learning rate or depth'
  ),
  'Model Training': (
    'another way to train or to evaluate, such as a loss, cross-validation or a '
    'metric'
  ),
  'Others': 'whatever clearly fits none of the others',
}
UNPARSED = 'unparsed'
BY_RULE, BY_MODEL = 'by rule from the family', 'by a model'
FAMILIES: Mapping[str, str] = {
  'estimator': 'Model Architecture',
  'ensemble': 'Model Architecture',
  'combo': 'Model Architecture',
  'function': 'Others',
  'constant': 'Hyperparameter Tuning',
  'wrap': 'Model Training',
  'scale': 'Feature Engineering',
  'add': 'Feature Engineering',
  'vectorize': 'Feature Engineering',
  'remove': 'Feature Engineering',
  'set': 'Hyperparameter Tuning',
  'relative': 'Hyperparameter Tuning',
  'data': 'Data Preparation',
  'impossible': 'Others',
}
MOST_CHARACTERS = 20_000  # of an answer
MAX_TOKENS = 512  # of an answer

_ITEMS = ('TYPE', 'RATIONALE')
_AROUND = re.compile(r'[\s"\'`*<>.\u201c\u201d\u2018\u2019]+')
_NAMES = {re.sub(r'\W', '', name).lower(): name for name in TYPES}


def type_of_family(family: str) -> str:
  """Returns the type of a scripted idea by its family; Others for an unknown one.

  Two steps at once ('combo': a feature step, then another estimator) are counted by
  the estimator, which has the larger effect.
  """
  return FAMILIES.get(family, 'Others')


def question(trace: str, idea: Idea) -> list[dict[str, str]]:
  """Returns the messages that ask a model for an idea's type.

  trace: as the Ideator was shown it.
  """
  kinds = '\n'.join(f'* {name}: {covers}.' for name, covers in TYPES.items())
  names = ', '.join(f'"{name}"' for name in TYPES)
  text = (
    'You know machine learning. An agent works on a task and was stuck; it was given '
    'the idea below. Say of which type the idea is.\n\n'
    f'{trace.strip()}\n\n## The idea\n\n{idea.text}\n\n## What to do\n\n'
    'Read what the agent has tried, then the idea, and choose the one type that says '
    f'best what the idea is about:\n\n{kinds}\n\n'
    'Answer with *exactly two items*, in this form, and nothing else:\n\n'
    f'TYPE: <one of {names}>\n\n'
    'RATIONALE: <in short, why it is of this type>\n'
  )
  return [{'role': 'user', 'content': text}]


def parse_type(answer: str) -> str:
  """Returns the type that an answer names, or UNPARSED; never raises.

  Case, quotes and emphasis around a name make no difference.
  """
  if not isinstance(answer, str):
    return UNPARSED
  _, rest, is_open = items.take_off_thoughts(answer)
  if is_open or len(rest) > MOST_CHARACTERS:
    return UNPARSED
  read = items.split_items(rest, _ITEMS)
  if isinstance(read, str):
    return UNPARSED
  name = _AROUND.sub(' ', read['TYPE']).strip()
  return _NAMES.get(re.sub(r'\W', '', name).lower(), UNPARSED)


def shares(types: Sequence[str]) -> dict[str, float]:
  """Returns the share of each type in percent, as table 3; UNPARSED is one of them.

  Empty where there is none.
  """
  if not types:
    return {}
  names = [*TYPES, UNPARSED]
  return {name: 100 * types.count(name) / len(types) for name in names}


def effectiveness(
  ideas: Sequence[tuple[str, bool]],
) -> dict[str, tuple[int, float]]:
  """Returns type -> (ideas, share in percent that improved), as figure 4.

  ideas: (type, did the score improve). A type without ideas is left out.
  """
  found: dict[str, tuple[int, float]] = {}
  for name in [*TYPES, UNPARSED]:
    own = [improved for kind, improved in ideas if kind == name]
    if own:
      found[name] = (len(own), 100 * sum(own) / len(own))
  return found
