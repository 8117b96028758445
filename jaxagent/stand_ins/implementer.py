"""Implementers by script: they play the starter, tune it, ask, and obey.

They answer in the texts of `envs.agents.implementer`, and know nothing but what a
model would be shown: their steps, the answers, the task. Tuning takes the moves that
need no idea: a parameter's value. What they cannot do, an Ideator must bring.

An answer without an ACTION is handled by a rule of the script, not by judgement: one
that offers nothing changes nothing, one that encourages buys three more tries.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re

from jaxagent import types
from jaxagent.envs import workspace
from jaxagent.envs.agents import implementer
from jaxagent.envs.agents.implementer import Query, Turn
from jaxagent.envs.editing import AskedEditor
from jaxagent.envs.implementer_state import ImplementerState, PastTurn
from jaxagent.envs.model_line import model_line, step_names
from jaxagent.envs.workspace import ActionFailed
from jaxagent.files import syntax
from jaxagent.stand_ins import moves
from jaxagent.stand_ins.editor import ScriptedEditor

STARTER = 'train.py'
VAGUE_TRIES = 3  # of its own, after encouragement
_STARTS = 3  # attempts at a first program
_DRAWS = 12  # moves that are drawn before it has none left
_TRY, _IDEA, _BACK, _FIRST = 'I try: ', 'I carry out: ', 'I go back', 'I run'
_ACTION = re.compile(
  r'^[ \t]*ACTION:[ \t]*\n?(.*?)(?=^[ \t]*RATIONALE:|\Z)', re.M | re.S
)
_NOTHING = re.compile(r'\b(?:cannot|can not|no) suggest', re.I)
_ENCOURAGES = re.compile(r'\b(?:better|improv\w*)\b', re.I)
_FENCED = re.compile(r'```[ \t]*[\w+-]*[ \t]*\n(.*?)```', re.S)
_SLIPS = (
  ("'data/train.csv'", "'train.csv'"),
  ('make_pipeline(', 'make_pipline('),
  ('import pandas as pd\n', ''),
  ('model.fit(x_train, y_train)', 'model.fit(x_train)'),
)


@dataclasses.dataclass(frozen=True)
class Habits:
  """Habits by which scripted Implementers differ.

  families: of moves, that it tunes with.
  patience: tries in a row without a gain, after which it asks.
  slips: share of its programs with a mistake.
  quality: 0 tunes blindly, 1 strongly prefers what is likely to help.
  """

  families: tuple[str, ...] = ('set', 'relative')
  patience: int = 2
  slips: float = 0.02
  quality: float = 0.35


HABITS = {
  'scripted': Habits(),
  'scripted_relative': Habits(families=('relative',), patience=1),
}


@dataclasses.dataclass(frozen=True)
class Try:
  """A program of its own or of an idea, and what came of it."""

  change: str
  score: float | None
  gained: bool
  own: bool


class ScriptedImplementer:
  """Implementer stand-in; see the module's docstring.

  Args:
    habits: see Habits.
    max_steps: messages that it has.
  """

  is_stand_in = True

  def __init__(
    self, habits: Habits = Habits(), *, max_steps: int = 16, name: str = ''
  ):
    self.name = name or 'scripted_implementer'
    self._habits, self._max_steps = habits, max_steps
    self._editor = AskedEditor(ScriptedEditor())

  def message(
    self,
    state: ImplementerState,
    spec: types.TaskSpec,
    rng: random.Random,
    calls_left: int = 0,
  ) -> str:
    """Returns its next message; never raises, whatever the state holds."""
    if state.best is None:
      return self._first(state, rng)
    best = state.best.program.code
    last = state.steps[-1]
    if last.text.startswith(_BACK) or len(state.steps) >= self._max_steps - 1:
      return self._close(state)
    if last.kind == implementer.SEEK_HELP:
      action = action_of(last.observation)
      if action is not None:
        return self._obey(best, action, rng)
    if self._is_stuck(state):
      if self._may_ask(state, calls_left):
        return _written(Turn(implementer.SEEK_HELP, query=query(state, spec)))
      return self._close(state)
    return self._tune(state, spec, rng, calls_left)

  def _first(self, state: ImplementerState, rng: random.Random) -> str:
    code = workspace.text(state.files, STARTER)
    if not code or len(state.steps) >= _STARTS:
      return _written(Turn(implementer.FINISH))
    return self._program(code, f'{_FIRST} the given program first.', rng)

  def _close(self, state: ImplementerState) -> str:
    """Ends the run; the last submission counts, so the best one is made again."""
    best, last = state.best, state.last
    assert best is not None and last is not None  # a program of its own has run
    went_back = state.steps[-1].text.startswith(_BACK)
    if went_back or last.score == best.score:
      return _written(Turn(implementer.FINISH))
    turn = Turn(best.program.kind, code=best.program.code)
    return _written(turn, f'{_BACK} to my best program.')

  def _obey(self, best: str, action: str, rng: random.Random) -> str:
    """The best program with an idea carried out on it.

    Code is run behind the program. What neither is code nor understood leaves the
    program as it is.
    """
    words = f'{_IDEA}{one_line(action)}'
    code = _code(action)
    if not code:
      try:
        return self._program(
          self._editor.edited(best, one_line(action, 4000)), words, rng
        )
      except ActionFailed:
        code = action if _is_program(action) else ''
    if not code:
      return self._program(best, f'{words} (I do not know how)', rng)
    return self._program(f'{best}\n{code}\n', words, rng)

  def _may_ask(self, state: ImplementerState, calls_left: int) -> bool:
    """Whether it may ask; an answer needs a message that carries it out."""
    has_room = len(state.steps) < self._max_steps - 2
    asked = state.steps[-1].kind == implementer.SEEK_HELP
    return calls_left > 0 and has_room and not asked

  def _is_stuck(self, state: ImplementerState) -> bool:
    """Whether it has tried in vain often enough to ask, or to end."""
    asked, tries = _last_help(state), _since_help(state)
    if asked is not None:
      answer = state.steps[asked].observation
      if _encourages(answer):
        if len(tries) < VAGUE_TRIES:
          return False
      elif not tries and action_of(answer) is None:
        return True  # it was stuck when it asked, and is no wiser
    vain = itertools.takewhile(lambda one: not one.gained, reversed(tries))
    return len(list(vain)) >= self._habits.patience

  def _tune(
    self,
    state: ImplementerState,
    spec: types.TaskSpec,
    rng: random.Random,
    calls_left: int,
  ) -> str:
    """A try of its own, on the best program; one that it has not made on it yet."""
    assert state.best is not None  # it has run
    best = state.best.program.code
    known = {one.change for one in _tries(state)[_of_best(state) :]}
    stock = [
      move
      for move in moves.moves_for(spec.kind, spec.modality)
      if move.family in self._habits.families
      and set(move.needs) & set(step_names(best))
      and move.say() not in known
    ]
    for _ in range(_DRAWS):
      if not stock:
        break
      weights = [
        10.0 ** (2 * self._habits.quality * (m.worth - 0.5)) for m in stock
      ]
      move = rng.choices(stock, weights)[0]
      stock.remove(move)
      try:
        code = self._editor.edited(best, move.say())
      except ActionFailed:
        continue
      if model_line(code) != model_line(best):
        return self._program(code, f'{_TRY}{move.say()}', rng)
    # It has no try left: as if it had tried in vain.
    if self._may_ask(state, calls_left):
      return _written(Turn(implementer.SEEK_HELP, query=query(state, spec)))
    return self._close(state)

  def _program(self, code: str, words: str, rng: random.Random) -> str:
    if rng.random() < self._habits.slips:
      slips = [slip for slip in _SLIPS if slip[0] in code]
      if slips:
        code = code.replace(*rng.choice(slips))
    return _written(
      Turn(implementer.IPYTHON, code=code.strip('\r\n').rstrip()), words
    )


def query(state: ImplementerState, spec: types.TaskSpec) -> Query:
  """Returns the question that its tries come to."""
  score = 'none' if state.best is None else f'{state.best.score:.4g}'
  better = 'higher' if spec.higher_is_better else 'lower'
  tries = _tries(state)
  vain = sum(not one.gained for one in tries[-4:])
  listed = '\n'.join(f'- {shown(one)}' for one in tries[-4:])
  return Query(
    f'{spec.metric} stays at {score} after {vain} tries in vain.',
    listed or '- nothing yet',
    f'{better.capitalize()} {spec.metric} than {score}.',
  )


def shown(one: Try) -> str:
  """Returns a try with its result, on one line."""
  result = 'failed' if one.score is None else f'{one.score:.4g}'
  return f'{one.change}: {result}'


def tries(state: ImplementerState) -> list[Try]:
  """Returns the programs of a run but its first one, of any Implementer."""
  return _tries(state)[1:]


def action_of(observation: str) -> str | None:
  """Returns the ACTION that an answer holds; None where it holds none."""
  found = _ACTION.search(observation)
  return (found[1].strip() or None) if found else None


def one_line(text: str, most: int = 160) -> str:
  return ' '.join(text.split())[:most]


def _encourages(observation: str) -> bool:
  return (
    action_of(observation) is None
    and not _NOTHING.search(observation)
    and bool(_ENCOURAGES.search(observation))
  )


def _tries(state: ImplementerState) -> list[Try]:
  """Every program that was run, with whether it was the best so far."""
  found, best = [], None
  for step in state.steps:
    if step.kind not in (implementer.IPYTHON, implementer.BASH):
      continue
    gained = step.score is not None and state.improves(step.score, best)
    if gained:
      best = step.score
    change, own = _change(step)
    found.append(Try(change, step.score, gained, own))
  return found


def _since_help(state: ImplementerState) -> list[Try]:
  """The programs since the last question; the first program is no try."""
  last = _last_help(state)
  if last is None:
    return _tries(state)[1:]
  before = sum(
    step.kind in (implementer.IPYTHON, implementer.BASH)
    for step in state.steps[:last]
  )
  return _tries(state)[before:]


def _last_help(state: ImplementerState) -> int | None:
  asked = [
    number
    for number, step in enumerate(state.steps)
    if step.kind == implementer.SEEK_HELP
  ]
  return asked[-1] if asked else None


def _of_best(state: ImplementerState) -> int:
  """Number of the try that made the best program."""
  gained = [n for n, one in enumerate(_tries(state)) if one.gained]
  return gained[-1] if gained else 0


def _change(step: PastTurn) -> tuple[str, bool]:
  """(what a step changed, whether on its own account), of its first words."""
  first = one_line(step.text.partition('<execute_')[0].split('\n')[0], 200)
  for words in (_TRY, _IDEA):
    if first.startswith(words):
      return first.removeprefix(words), words == _TRY
  return first or 'a program', True


def _code(action: str) -> str:
  """Returns the code of a block; '' for a sentence."""
  found = _FENCED.search(action)
  return found[1].strip('\n') if found else ''


def _is_program(action: str) -> bool:
  try:
    syntax.parse(action)
  except syntax.PARSE_ERRORS:
    return False
  return any(mark in action for mark in '(=')


def _written(turn: Turn, words: str = '') -> str:
  """Returns the message; the end of the run where it would be read otherwise."""
  try:
    return implementer.write_turn(
      turn, words.replace('<', ' ').replace('`', ' ')
    )
  except ValueError:
    return implementer.write_turn(Turn(implementer.FINISH))
