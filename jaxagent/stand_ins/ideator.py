"""Ideators by script: a mediocre teacher, and one that looks at nothing.

An answer is its three items, (analysis, action, rationale). Ideas are the moves of
`moves`, in words that the scripted editor understands; none was executed before it is
written. Prompt and answer for a tiny policy are here, too: what the teacher writes is
what such a policy first imitates.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import re
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.envs.implementer_state import ImplementerState
from jaxagent.envs.model_line import model_line, step_names
from jaxagent.stand_ins import catalogue, moves, words
from jaxagent.stand_ins.implementer import one_line, shown, tries

Items = tuple[str, str, str]

# Of a family, how often it is drawn beside the others.
SHARE: Mapping[str, float] = {
  'estimator': 4.0,
  'set': 3.0,
  'vectorize': 2.0,
  'add': 1.5,
  'combo': 0.7,
}
_SAME, _OTHER = 'Keep refining the present model.', 'Leave the present model.'
_ANALYSIS: Mapping[str, str] = {
  'estimator': _OTHER,
  'combo': _OTHER,
  'vectorize': _OTHER,
}
_WHY: Mapping[str, tuple[str, ...]] = {
  'estimator': ('Another model may fit better.', 'Its bias is different.'),
  'set': ('This value may be better.', 'The parameter matters most.'),
  'relative': ('A larger step may help.', 'The range was not explored.'),
  'scale': ('Scaled features may help.', 'The units differ.'),
  'add': ('A new feature step may help.', 'The features limit it.'),
  'vectorize': ('Other text features may help.', 'Words alone are sparse.'),
  'remove': ('This step may hurt.', 'A simpler pipeline may do.'),
  'wrap': ('Many copies are more stable.', 'It lowers the variance.'),
  'ensemble': ('Several models may do better.', 'Their errors differ.'),
  'data': ('The data may need care.', 'The target needs care.'),
  'combo': ('Two changes may do more.', 'Both steps limit it.'),
  'function': (
    'Another way may be faster.',
    'Most of the time is spent there.',
  ),
  'constant': ('This value may be better.', 'It decides on the time.'),
}
MAX_TRIED, MAX_TRIED_CHARS, MAX_MODEL_CHARS = 4, 60, 160


class ScriptedIdeator:
  """The teacher: draws families first, then moves, the better ones more often.

  Args:
    quality: 0 draws moves whatever their worth, 1 strongly the good ones.
  """

  name = 'scripted_ideator'
  is_stand_in = True

  def __init__(self, quality: float = 0.35):
    if not 0 <= quality <= 1:
      raise ValueError(f'quality={quality!r} must be between 0 and 1.')
    self.quality = quality

  def items(
    self,
    state: ImplementerState,
    spec: types.TaskSpec,
    rng: random.Random,
  ) -> Items:
    """Returns one answer; a move that fits the program and was not tried on it."""
    return said(self._drawn(fitting(state, spec), rng), rng)

  def answers(
    self,
    state: ImplementerState,
    spec: types.TaskSpec,
    rng: random.Random,
    count: int,
  ) -> list[Items]:
    """Returns at most `count` answers with different actions, for SFT."""
    found: dict[str, Items] = {}
    for _ in range(4 * count):
      if len(found) == count:
        break
      one = self.items(state, spec, rng)
      found.setdefault(one[1], one)
    return list(found.values())

  def _drawn(
    self, fits: Sequence[moves.Move], rng: random.Random
  ) -> moves.Move:
    groups: dict[str, list[moves.Move]] = {}
    for move in fits:
      groups.setdefault(move.family, []).append(move)
    family = rng.choices(
      list(groups), [SHARE.get(name, 1.0) for name in groups]
    )[0]
    group = groups[family]
    weights = [10.0 ** (2 * self.quality * (m.worth - 0.5)) for m in group]
    return rng.choices(group, weights)[0]


class BlindIdeator(ScriptedIdeator):
  """Draws as the teacher does, for the task's kind alone.

  It looks neither at the program nor at what was tried.
  """

  name = 'blind_ideator'

  def items(
    self,
    state: ImplementerState,
    spec: types.TaskSpec,
    rng: random.Random,
  ) -> Items:
    """Returns one answer, whatever the state."""
    return said(self._drawn(stock(spec.kind, spec.modality), rng), rng)


def said(move: moves.Move, rng: random.Random) -> Items:
  """Returns the answer that proposes a move."""
  analysis = _ANALYSIS.get(move.family, _SAME)
  return analysis, f'{move.say(rng)}.', rng.choice(_WHY[move.family])


@functools.cache
def stock(kind: str, modality: str) -> tuple[moves.Move, ...]:
  """Returns the moves of a kind of task that the editor can carry out."""
  return tuple(
    move
    for move in moves.moves_for(kind, modality)
    if move.family != 'impossible'
  )


def fitting(state: ImplementerState, spec: types.TaskSpec) -> list[moves.Move]:
  """Returns the moves whose steps the program has, without those tried before.

  All moves of the task's kind where none is left.
  """
  present, tried = set(step_names(code_of(state))), tried_moves(state, spec)
  every = stock(spec.kind, spec.modality)
  fits = [
    move
    for move in every
    if (not move.needs or present & set(move.needs)) and move not in tried
  ]
  return fits or list(every)


def code_of(state: ImplementerState) -> str:
  """Returns the program of the best score; the present one where there is none."""
  program = state.best.program if state.best else state.current
  return program.code if program else ''


# The same state of another task --------------------------------------------------

_CLASSIFICATION = 'classification'
_DATA = ('image', 'tabular', 'timeseries')
# Metric -> whether higher is better.
_CLASSIFICATION_METRICS: Mapping[str, bool] = {
  'accuracy': True,
  'f1_macro': True,
  'roc_auc': True,
  'log_loss': False,
}
_REGRESSION_METRICS: Mapping[str, bool] = {'rmse': False, 'mae': False}
# Of classification and of regression: models that are alike, by parts of their names.
_ALIKE = (
  ('RidgeClassifier', 'Ridge'),
  ('LogisticRegression', 'ElasticNet'),
  ('GaussianNB', 'LinearRegression'),
  ('SVC', 'SVR'),
  ('Classifier', 'Regressor'),
)
_OTHER_SIDE = dict(_ALIKE) | {b: a for a, b in _ALIKE}
_NAMES = re.compile('|'.join(sorted(_OTHER_SIDE, key=len, reverse=True)))


def as_another_task(
  state: ImplementerState, spec: types.TaskSpec, rng: random.Random
) -> tuple[ImplementerState, types.TaskSpec]:
  """Returns a state as it would be read in a task of another kind, with its spec.

  Kind, data and metric are drawn anew, data other than text for what is not text; where
  the kind changes between classification and regression, models become those that are
  alike. Scores, and which were better, stay as they were: it is for prompts, nothing
  runs it. Tasks of functions have no other kind.
  """
  if spec.kind in moves.FUNCTION_KINDS:
    return state, spec
  was = spec.kind == _CLASSIFICATION
  classifies = rng.random() < 0.5
  metrics = _CLASSIFICATION_METRICS if classifies else _REGRESSION_METRICS
  metric = rng.choice(list(metrics))
  modality = spec.modality if spec.modality == 'text' else rng.choice(_DATA)
  kind = _CLASSIFICATION
  if not classifies:
    kind = rng.choice(
      ('regression', 'restoration')[: 1 + (modality == 'image')]
    )
  text = json.dumps(state.to_json())
  if name := re.escape(spec.metric):
    # As the query names it, also behind an escaped line break; 'log_loss' in quotes is a
    # parameter of a model.
    better = 'Higher' if metrics[metric] else 'Lower'
    text = re.sub(
      rf"(?:Higher|Lower)(?= {name}\b)|(?:(?<=\\n)|(?<!')\b){name}\b",
      lambda found: better if found[0] in ('Higher', 'Lower') else metric,
      text,
    )
  if was != classifies:
    text = _NAMES.sub(lambda found: _OTHER_SIDE[found[0]], text)
  state = ImplementerState.from_json(json.loads(text))
  return state, dataclasses.replace(
    spec,
    kind=kind,
    modality=modality,
    metric=metric,
    higher_is_better=metrics[metric],
  )


# What an idea is about ----------------------------------------------------------


def family_of(action: str, kind: str, modality: str) -> str:
  """Returns the family of an ACTION, by its words; '' where no rule knows it."""
  text = _plain(action)
  known = moves_said(kind, modality).get(text)
  return known.family if known else _by_rule(text)


@functools.cache
def moves_said(kind: str, modality: str) -> Mapping[str, moves.Move]:
  """Returns every way to say a move of a kind of task -> that move."""
  found: dict[str, moves.Move] = {}
  for move in moves.moves_for(kind, modality):
    values = dict(move.values)
    for phrase in moves.PHRASES[move.family]:
      found.setdefault(_plain(phrase.format(**values)), move)
  return found


def tried_moves(
  state: ImplementerState, spec: types.TaskSpec
) -> set[moves.Move]:
  """Returns the moves that a run has tried, in whatever words."""
  said = moves_said(spec.kind, spec.modality)
  found = (said.get(_plain(one.change)) for one in tries(state))
  return {move for move in found if move is not None}


def _plain(text: str) -> str:
  return one_line(text, 4000).rstrip('. ')


def _by_rule(text: str) -> str:
  try:
    clauses = [c for c in words.clauses_of(text) if c.strip()]
    named = words.find_mentions(text, False)
    settings = words.find_settings(words.mask(text, named))
  except Exception:  # noqa: BLE001 - no rule reads it
    return ''
  rest = words.mask(text, named)
  if words.has(words.VOTE, rest) and named:
    return 'ensemble'
  if words.has(words.WRAP, rest):
    return 'wrap'
  if len(clauses) > 1:
    return 'combo'
  if words.has('training|rows|target|predictions?|noise', rest):
    return 'data'
  if words.has(words.SCALE, rest):
    return 'relative'
  if words.has(words.REMOVE, rest):
    return 'remove'
  places = words.anchors(text, named)
  roles = [mention.role for mention in named if mention not in places]
  if settings and not words.has('before|front', rest):
    return 'set'
  if any(role in catalogue.ESTIMATOR_ROLES for role in roles):
    return 'estimator'
  if catalogue.VECTORIZER in roles:
    return 'vectorize'
  if catalogue.SCALER in roles:
    return 'scale'
  return 'add' if roles else ''


# Texts of a tiny policy ---------------------------------------------------------


def compact_prompt(state: ImplementerState, spec: types.TaskSpec) -> str:
  """Returns the prompt for a tiny policy: about 140 tokens of its own tokenizer.

  The task's kind, metric and data, the model's line of the best program, what was
  tried with its results, and the problem and goal of the query.
  """
  better = 'higher' if spec.higher_is_better else 'lower'
  score = 'none' if state.best is None else f'{state.best.score:.4g}'
  start = 'none' if state.start_score is None else f'{state.start_score:.4g}'
  line = model_line(code_of(state)).removeprefix('model = ')
  lines = [
    f'Task: {spec.modality} {spec.kind}',
    f'Metric: {spec.metric}, {better} is better',
    f'Score {score}, start {start}, step {len(state.steps)}',
    f'Model: {_cut(line or "unknown", MAX_MODEL_CHARS)}',
    'Tried:',
  ]
  for one in tries(state)[-MAX_TRIED:]:
    mark = '+' if one.gained else '-'
    lines.append(f'{mark} {_cut(one_line(shown(one)), MAX_TRIED_CHARS)}')
  if (query := state.query) is not None:
    lines.append(
      f'Problem: {_cut(one_line(query.problem_statement), MAX_TRIED_CHARS)}'
    )
    lines.append(f'Goal: {_cut(one_line(query.goal), MAX_TRIED_CHARS)}')
  return '\n'.join(lines) + '\n'


def _cut(text: str, most: int) -> str:
  """Head and tail: a model's first steps and estimator, a try and its result."""
  if len(text) <= most:
    return text
  head = most * 2 // 3
  return f'{text[:head]}...{text[-(most - head) :]}'
