"""Diversity of a policy's edits: verbs and nouns of its instructions.

Paper 000, figure 8 counts the unique nouns of each verb over 100 sampled edit
instructions; its pairs come from spaCy. Here a small rule over words does,
which needs no model and errs the same way for every policy. No jax here.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from jaxagent import traces
from jaxagent.envs import parser
from jaxagent.records import Trajectory

VERBS = frozenset(
  'adapt add adjust adopt append apply augment average avoid build calculate '
  'change choose clip combine compute convert create decrease define delete '
  'disable drop duplicate enable encode engineer ensemble ensure evaluate '
  'extend extract fill fine-tune fit fix freeze generate handle implement '
  'import impute include increase initialize insert introduce keep load lower '
  'make merge modify move normalize optimize perform print raise reduce '
  'refactor remove rename reorder replace reset rewrite save scale select set '
  'shuffle simplify smooth split standardize stack stop swap switch train '
  'transform try tune update use utilize vectorize wrap write'.split()
)
# A word behind one of these is no imperative: 'in the train set, change ...'.
_BEFORE_NOUN = frozenset(
  'a an the this that these those of in on at for with from by each every its '
  'our your their and or before after during'.split()
)
_OPENING = frozenset('first then next now finally also please'.split())
# These end a noun phrase.
_ENDS = frozenset(
  'of in on at for with from by to into onto over under between as so and or '
  'but that which who where when while if than then using via before after '
  'during instead is are was be been per back up down out right'.split()
)
# These begin one, and are no head of it.
_SKIPPED = frozenset(
  'a an the this these those its our your their each every all any some more '
  'most new other another such both only also it them one two three four five '
  'six seven eight nine ten several multiple additional extra existing current '
  'different larger smaller higher lower better'.split()
)
_TOKEN = re.compile(r"[A-Za-z_][\w'’-]*(?:\.\w+)*|\d[\w.%-]*|[^\w\s]")


def verb_noun(text: str) -> tuple[str, str] | None:
  """Imperative verb and the head of its object, in lower case.

    verb_noun('Change the learning rate from 1e-4 to 1e-5.')
      == ('change', 'rate')

  verb: the first of VERBS that no article or preposition stands before, 'to'
    only where there is no other ('to reduce variance, add ...'); else the
    first word. noun: the last word of the first run of words after it that
    a preposition, a conjunction, a number behind a word or a mark ends;
    articles, numerals and a few adjectives do not count; plurals are cut.

  None where there is no verb or no noun. Limits: no tagger, so an unknown
  adjective alone is a noun, and of 'add and tune x' the verb is 'add'.
  Raises ValueError for what is no text.
  """
  if not isinstance(text, str):
    raise ValueError(f'an instruction is {text!r}, not a text.')
  words = [w.lower() for w in _TOKEN.findall(text)]
  place = _verb(words)
  if place is None:
    return None
  noun = _noun(words[place + 1 :])
  return None if noun is None else (words[place], noun)


def counts(instructions: Sequence[str]) -> dict[str, Any]:
  """Verb-noun pairs of a list of edit instructions.

  Returns:
    instructions, parsed: how many there are, and have a pair.
    nouns: verb -> noun -> count, most frequent verb first; the number of
      nouns of a verb is what figure 8 shows.
    distinct: different pairs.
    entropy: of the pairs, in nats; None where there are none.
  `distinct` and `entropy` grow with the number of instructions: only lists of
  one length compare (100 in figure 8). Raises ValueError for an empty list.
  """
  if isinstance(instructions, str) or not len(instructions):
    raise ValueError('diversity of no instructions; pass a list of some.')
  found = Counter(p for p in map(verb_noun, instructions) if p is not None)
  verbs: Counter[str] = Counter()
  for (verb, _), count in found.items():
    verbs[verb] += count
  order = sorted(verbs, key=lambda v: (-verbs[v], v))
  nouns: dict[str, dict[str, int]] = {verb: {} for verb in order}
  for (verb, noun), count in sorted(found.items()):
    nouns[verb][noun] = count
  total = found.total()
  shares = [count / total for count in found.values()]
  return {
    'instructions': len(instructions),
    'parsed': total,
    'nouns': nouns,
    'distinct': len(found),
    # abs: of one pair it is 0, not -0.
    'entropy': abs(sum(p * math.log(p) for p in shares)) if total else None,
  }


def figure8(
  instructions: Sequence[str], *, seed: int, n: int = 100
) -> dict[str, Any]:
  """`counts` of at most n instructions, drawn by the seed, so that policies compare.

  Returns what `counts` does, but for `nouns`: verb -> how many different nouns. `of`:
  how many there were to draw from. Without any: {'instructions': 0, 'of': 0}.
  """
  if not instructions:
    return {'instructions': 0, 'of': 0}
  drawn = random.Random(seed).sample(instructions, min(n, len(instructions)))
  found = counts(drawn)
  nouns = {verb: len(own) for verb, own in found['nouns'].items()}
  return found | {'nouns': nouns, 'of': len(instructions)}


def instructions_of(trajectories: Iterable[Trajectory]) -> list[str]:
  """Every edit instruction in trajectories, in their order."""
  found = []
  for trajectory in trajectories:
    for step in trajectory.steps:
      name, args = traces.action_of(step.record)
      instruction = args.get('edit_instruction')
      if name in parser.EDIT_ACTIONS and isinstance(instruction, str):
        found.append(instruction)
  return found


def _verb(words: Sequence[str]) -> int | None:
  """Index of the imperative, None where there is no word at all."""
  for barred in (_BEFORE_NOUN | {'to'}, _BEFORE_NOUN):
    noun_next = False
    for index, word in enumerate(words):
      if word in VERBS and not noun_next:
        return index
      # 'the train set': the noun may continue.
      noun_next = word in barred or (noun_next and word in VERBS)
  named = (i for i, w in enumerate(words) if w.isalpha() and w not in _OPENING)
  return next(named, None)


def _noun(words: Sequence[str]) -> str | None:
  head = None
  for word in words:
    named = word[0].isalpha() or word[0] == '_'
    if not named or word in _ENDS:
      if head is not None:
        break
    elif word not in _SKIPPED:
      head = word
  return None if head is None else _singular(head)


def _singular(word: str) -> str:
  """Plural endings cut by rule; what may be no plural is left."""
  if len(word) < 4 or word.endswith(('ss', 'us', 'is', "'s", 'as')):
    return word
  if word.endswith('ies'):
    return word[:-3] + 'y'
  if word.endswith(('ches', 'shes', 'sses', 'xes')):
    return word[:-2]
  return word.removesuffix('s')
