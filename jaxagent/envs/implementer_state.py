"""States of an Implementer's run: workspace, programs, scores, and every step.

States are values with a JSON form: a pool keeps them, and a run that was stopped
continues from them. `types.State` keeps the last three steps, cut; an Ideator
(paper 001, section 3.2: s_t = (D, tau_1:t, p_t, C_t)) reads all of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jaxagent import types
from jaxagent.envs.agents.implementer import Query, parse_turn

SEEK_HELP, INVALID = 'seek_help', 'invalid'
PROGRAMS = ('ipython', 'bash')  # kinds of steps that run something


@dataclasses.dataclass(frozen=True)
class Program:
  """The whole code of one step. kind: of PROGRAMS."""

  kind: str
  code: str


@dataclasses.dataclass(frozen=True)
class Scored:
  """A program with a valid submission.

  score: on the validation rows. step: index of the step that ran it.
  """

  program: Program
  score: float
  step: int


@dataclasses.dataclass(frozen=True)
class PastTurn:
  """One step of an Implementer.

  kind: 'ipython', 'bash', 'seek_help' or 'invalid'.
  text: its message as it was written.
  observation: what it was answered; of an open question to the Ideator ''.
  outcome: of the run; OK where nothing ran.
  score: on the validation rows, of a submission that this very step wrote.
  exec_s: seconds of the execution clock; 0 where nothing ran.
  measured: CPU seconds of a program that was handed over, as of `types.Record`.
  """

  kind: str
  text: str
  observation: str = ''
  outcome: types.Outcome = types.Outcome.OK
  score: float | None = None
  exec_s: float = 0.0
  measured: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Effect:
  """Changes that one executed step makes.

  files: of the workspace afterwards; None where they stay as they were.
  program: what was to be run.
  tier, untrusted, queue_s, startup_s, cpu_s, recorded: as of `types.Record`.
  """

  step: PastTurn
  files: Mapping[str, str | types.Blob] | None = None
  program: Program | None = None
  tier: str | None = None
  untrusted: str = ''
  queue_s: float = 0.0
  startup_s: float = 0.0
  cpu_s: float = 0.0
  recorded: bool = False

  def to_json(self) -> dict[str, Any]:
    value = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    return value | {
      'step': _plain(self.step),
      'files': None if self.files is None else _files_to_json(self.files),
      'program': None if self.program is None else _plain(self.program),
    }

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> Effect:
    """Returns what `to_json` gave; raises ValueError for anything else."""
    try:
      files = value['files']
      return cls(
        **{
          **value,
          'step': _turn(value['step']),
          'files': None if files is None else _files(files),
          'program': _program(value['program']),
        }
      )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
      raise _damaged('effect of a step', error) from error


@dataclasses.dataclass(frozen=True)
class ImplementerState:
  """State of a run before its next message.

  task: its name.
  higher_is_better: of its scores.
  files: relative path -> content of the workspace, the task's data left out; what is
    no text is kept beside (`envs.snapshots`).
  start_score: of the task's starter on the validation rows; None where it is not
    known.
  current: the program that ran last, whatever came of it.
  best: the best valid submission so far by the validation rows.
  last: the last valid submission.
  steps: all of them, the oldest first.
  """

  task: str
  higher_is_better: bool
  files: Mapping[str, str | types.Blob]
  start_score: float | None = None
  current: Program | None = None
  best: Scored | None = None
  last: Scored | None = None
  steps: tuple[PastTurn, ...] = ()

  @property
  def state_id(self) -> str:
    """Content hash: 24 hexadecimal digits."""
    text = json.dumps(self.to_json(), sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:24]

  @property
  def asks(self) -> bool:
    """Whether the last step is a question that has no answer yet."""
    if not self.steps:
      return False
    last = self.steps[-1]
    return last.kind == SEEK_HELP and not last.observation

  @property
  def query(self) -> Query | None:
    """The open question to the Ideator; None where there is none."""
    return parse_turn(self.steps[-1].text).query if self.asks else None

  @property
  def calls(self) -> int:
    """Number of questions to the Ideator, an open one included."""
    return sum(step.kind == SEEK_HELP for step in self.steps)

  def improves(self, score: float, than: float | None) -> bool:
    """Whether a score is better than another; anything is better than none."""
    if than is None:
      return True
    return score > than if self.higher_is_better else score < than

  def after(self, effect: Effect) -> ImplementerState:
    """Returns the state after an executed step."""
    step, program = effect.step, effect.program
    last, best = self.last, self.best
    if program is not None and step.score is not None:
      last = Scored(program, step.score, len(self.steps))
      if self.improves(last.score, None if best is None else best.score):
        best = last
    return dataclasses.replace(
      self,
      files=self.files if effect.files is None else effect.files,
      current=program or self.current,
      best=best,
      last=last,
      steps=(*self.steps, step),
    )

  def with_step(
    self,
    kind: str,
    text: str,
    observation: str = '',
    outcome: types.Outcome = types.Outcome.OK,
  ) -> ImplementerState:
    """Returns the state after a step that ran nothing."""
    step = PastTurn(kind, text, observation, outcome)
    return dataclasses.replace(self, steps=(*self.steps, step))

  def answered(self, observation: str) -> ImplementerState:
    """Returns the state with an answer to its open question.

    Raises ValueError where it asks nothing.
    """
    if not self.asks:
      raise ValueError(
        'the last step asks nothing; there is nothing to answer.'
      )
    last = dataclasses.replace(self.steps[-1], observation=observation)
    return dataclasses.replace(self, steps=(*self.steps[:-1], last))

  def to_json(self) -> dict[str, Any]:
    """Returns the state as JSON values; digests stand for what is no text."""
    value = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    value['files'] = _files_to_json(self.files)
    for name in ('current', 'best', 'last'):
      if value[name] is not None:
        value[name] = _plain(value[name])
    value['steps'] = [_plain(step) for step in self.steps]
    return value

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> ImplementerState:
    """Returns what `to_json` gave; raises ValueError for anything else."""
    try:
      return cls(
        **dict(value)
        | {
          'files': _files(value['files']),
          'current': _program(value['current']),
          'best': _scored(value['best']),
          'last': _scored(value['last']),
          'steps': tuple(map(_turn, value['steps'])),
        }
      )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
      raise _damaged('state of a run', error) from error


def _plain(value: Any) -> dict[str, Any]:
  plain = dataclasses.asdict(value)
  if 'outcome' in plain:
    plain['outcome'] = value.outcome.value
  if not plain.get('measured', True):
    del plain['measured']  # states of other tasks keep their names
  return plain


def _files_to_json(files: Mapping[str, str | types.Blob]) -> dict[str, Any]:
  return {
    name: dataclasses.asdict(content)
    if isinstance(content, types.Blob)
    else content
    for name, content in files.items()
  }


def _files(value: Mapping[str, Any]) -> dict[str, str | types.Blob]:
  return {
    name: content if isinstance(content, str) else types.Blob(**content)
    for name, content in value.items()
  }


def _program(value: Mapping[str, Any] | None) -> Program | None:
  return None if value is None else Program(**value)


def _scored(value: Mapping[str, Any] | None) -> Scored | None:
  if value is None:
    return None
  return Scored(**{**value, 'program': Program(**value['program'])})


def _turn(value: Mapping[str, Any]) -> PastTurn:
  return PastTurn(**{**value, 'outcome': types.Outcome(value['outcome'])})


def _damaged(what: str, error: Exception) -> ValueError:
  return ValueError(f'{what} is damaged ({type(error).__name__}: {error}).')
