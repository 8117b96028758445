"""Interfaces of the models that an environment asks: editor, expert, their errors.

`llm` implements them by language models, `stand_ins` by scripts. Every
implementation says by `is_stand_in` which of the two it is, so that every
output can name the stand-ins that took part in it.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from jaxagent import types


class EditRefused(Exception):
  """The editor could not carry out an instruction.

  Attributes:
    reason: one line for the agent's observation.
  """

  def __init__(self, reason: str):
    super().__init__(reason)
    self.reason = reason


class TextModelError(Exception):
  """A text model gave no answer (network, time-out, refusal, bad answer).

  It is an infrastructure failure: never charged to the policy.
  """


class NoText(TextModelError):
  """The model's answer is empty: counted against a model that is evaluated."""


_THOUGHTS: contextvars.ContextVar[dict[str, str] | None] = (
  contextvars.ContextVar('thoughts', default=None)
)
MOST_THOUGHTS = 100_000  # characters of a role that a trace keeps, the newest


@contextlib.contextmanager
def thinking() -> Iterator[dict[str, str]]:
  """Gathers role -> what its model thought before its answers, in this thread."""
  found: dict[str, str] = {}
  token = _THOUGHTS.set(found)
  try:
    yield found
  finally:
    _THOUGHTS.reset(token)


def thought(role: str, thoughts: str) -> None:
  """Notes what the model of a role thought, for who gathers it."""
  found = _THOUGHTS.get()
  if found is None or not thoughts:
    return
  whole = '\n\n'.join(filter(None, [found.get(role), thoughts]))
  found[role] = whole[-MOST_THOUGHTS:]


@runtime_checkable
class Editor(Protocol):
  """Carries out `Edit Script (AI)`."""

  name: str
  is_stand_in: bool

  def edit(self, script: str, instruction: str) -> str:
    """Returns the rewritten script; raises EditRefused or TextModelError."""
    ...


@runtime_checkable
class Expert(Protocol):
  """Acts in the environment; its trajectories are the SFT corpus."""

  name: str
  is_stand_in: bool

  def act(
    self,
    state: types.State,
    task: types.TaskSpec,
    rng: random.Random,
    ideas: Sequence[str] = (),
  ) -> str:
    """Returns the text of one response in the format of paper 000 table 6."""
    ...


@runtime_checkable
class Reader(Protocol):
  """Reads for the agent: Understand File, Reflection, the research log.

  Each answers with text, and raises TextModelError where none came.
  """

  name: str
  is_stand_in: bool

  def describe(self, text: str, wanted: str) -> str:
    """Returns what is `wanted` to be known of a file's text."""
    ...

  def reflect(self, problem: str, log: str, things: str) -> str:
    """Reflects on `things`, given the research log."""
    ...

  def retrieve(self, problem: str, log: str, plan: str) -> str:
    """Returns the parts of the research log that help with the current plan."""
    ...


@runtime_checkable
class Helper(Protocol):
  """Interface of the helper that answers Request Help."""

  name: str
  is_stand_in: bool

  def answer(self, request: str) -> str:
    """The answer; raises TextModelError where none came."""
    ...
