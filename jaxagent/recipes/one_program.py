"""Recipes of one program: a prompt, a completion, the program that it makes.

The shortest way to a recipe of one's own: a subclass says what the policy is asked and
what program a response stands for. What the program gains over the task's starter is the
reward; a subclass of `GainRecord` as `record_type` gives another.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from jaxagent.config.base import base
from jaxagent.envs import parser
from jaxagent.errors import UserError
from jaxagent.files import modules
from jaxagent.recipes.one_turn import Carried, OneTurn, Problem, own_code
from jaxagent.records import GainRecord
from jaxagent.types import Outcome

__all__ = ['OneProgram', 'Problem', 'base']


class OneProgram(OneTurn):
  """A policy whose one response makes a program, which is run and graded.

  prompt: what the policy is asked for each task, its name in the place of '{task}';
    `problems` asks more than that.
  responses: those that SFT learns from for each problem of the held-in tasks; none:
    no SFT. `demonstrations` shows other ones for each problem.
  """

  record_type = GainRecord
  prompt: ClassVar[str] = ''
  responses: ClassVar[Sequence[str]] = ()

  def problems(self, tasks: Sequence[str]) -> Mapping[str, Problem]:
    if not self.prompt:
      raise UserError(
        f'recipe {self.name!r}: {modules.place_of(type(self))} asks nothing; give it a '
        "`prompt`, such as 'for {task}: ', or a method `problems`."
      )
    return {
      task: Problem(task, self.prompt.replace('{task}', task)) for task in tasks
    }

  def demonstrations(self) -> Iterable[tuple[Problem, str]]:
    asked = (
      self.problems(self.context.heldin).values() if self.responses else ()
    )
    return [(problem, text) for problem in asked for text in self.responses]

  @abc.abstractmethod
  def program(self, problem: Problem, response: str) -> str | None:
    """Returns the program that a response stands for; None where it stands for none.

    It runs in the sandbox, and writes the submission that the task asks for. Any text
    may come as a response; an exception is an error of the recipe and ends the run.
    """

  def starter(self, task: str) -> str:
    """Returns the script that a task begins with."""
    state = self.starts[task].state
    return str(state.files[state.script])

  def carry_out(self, problem: Problem, response: str, job_id: str) -> Carried:
    """Runs the program of a response; see `OneTurn.carry_out`."""
    spec = self.context.spec(problem.task)
    kind = self.record_type
    assert issubclass(kind, GainRecord), f'{kind} is no GainRecord'
    with own_code(self, 'program', (Exception,)) as where:
      code = self.program(problem, response)
    if not isinstance(code, str | None):
      raise UserError(
        f'{where} returned {code!r:.80}; it must return the text of a program, or None.'
      )
    if code is None or not parser.is_text(code):
      return Carried(
        kind(
          task=problem.task,
          outcome=Outcome.INVALID_FORMAT,
          valid_action=False,
          response=response,
          observation='the response stands for no program'
          if code is None
          else 'the program holds a NUL or a lone surrogate',
          start=spec.m_init,
          best=spec.m_best,
        )
      )
    run = self.run_program(problem.task, code, job_id)
    return Carried(
      kind(
        response=response,
        start=spec.m_init,
        best=spec.m_best,
        **self.fields_of(problem.task, run),
      ),
      run,
    )
