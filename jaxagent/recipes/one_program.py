"""Recipes of one program: a prompt, a completion, the program that it makes.

The shortest way to a recipe of one's own: a subclass says what the prompts are and what
program a response stands for. What the program gains over the task's starter is the
reward; a subclass of `GainRecord` as `record_type` gives another.
"""

from __future__ import annotations

import abc

from jaxagent.envs import parser
from jaxagent.errors import UserError
from jaxagent.recipes.one_turn import Carried, OneTurn, Problem, own_code
from jaxagent.records import GainRecord
from jaxagent.types import Outcome

__all__ = ['OneProgram', 'Problem']


class OneProgram(OneTurn):
  """A policy whose one response makes a program, which is run and graded."""

  record_type = GainRecord

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
