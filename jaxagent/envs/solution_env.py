"""Whole solutions in the sandbox: instrumented, run, graded, recorded.

Partial credit comes from marks (`jaxagent.instrumentation`) or, in the verified
mode, from what the grader checks of the submission, outside of the program's
reach.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence

from jaxagent import types
from jaxagent.clock import NO_DEADLINE, Deadline
from jaxagent.envs.execution import Call, Outputs, Run, ScriptRunner
from jaxagent.envs.grading import credited
from jaxagent.envs.interfaces import MOST_THOUGHTS
from jaxagent.envs.solution import (
  Solution,
  SolutionError,
  Task,
  parse,
  solution_id,
)
from jaxagent.envs.specs import label_sources
from jaxagent.envs.step_env import FLOOR_S, truncate
from jaxagent.instrumentation import (
  Instrumented,
  SyntaxInstrumenter,
  language_model,
)
from jaxagent.records import SolutionRecord

SCRIPT = 'solution.py'
INSTRUMENTERS = ('syntax', 'openai', 'verified', 'none')
MAX_OUTPUT_CHARS = 6000  # of a trace
MOST_DIFFED = 50_000  # characters; a diff of more takes too long to find


class SolutionEnvironment:
  """Carries out responses; blocking and thread-safe.

  Args:
    runner: runs and grades scripts.
    instrumenter: of INSTRUMENTERS; where partial credit comes from.
    scale, failure: of `rewards.mle`, written into every record.
    key: makes the secret of one run of a program.
  """

  def __init__(
    self,
    runner: ScriptRunner,
    *,
    instrumenter: str = 'syntax',
    scale: str = 'bounded',
    failure: float = SolutionRecord.failure,
    key: Callable[[], bytes] = lambda: os.urandom(16),
  ):
    if instrumenter not in INSTRUMENTERS:
      raise ValueError(
        f'instrumenter={instrumenter!r}; choose one of '
        f'{", ".join(INSTRUMENTERS)}.'
      )
    self.runner, self.instrumenter, self.scale = runner, instrumenter, scale
    self.failure = failure
    self._key = key

  def solve(
    self,
    task: Task,
    response: str,
    answer: str | None = None,
    *,
    split: str = 'valid',
    job_id: str = 'job',
    deadline: Deadline = NO_DEADLINE,
  ) -> tuple[types.Executed, Run | None]:
    """Runs a response's program; any response ends in an outcome.

    answer: of the model that instruments, where one was asked. What it and a model
      that answered with `response` thought before is in their `thoughts`.

    Returns (the result for the interaction, the run if there was one).
    """
    try:
      solution = parse(response)
    except SolutionError as error:
      record = self._record(task, response, error)
      told = types.Executed(
        record.outcome, FLOOR_S, message=record.message, record=record
      )
      return told, None
    made = self._instrument(solution.code, answer)
    run = self.runner.run_script(
      task.name,
      {SCRIPT: made.code, **made.files},
      SCRIPT,
      Call(split, job_id, self.runner.step_deadline(deadline)),
      Outputs(own_work=True, optional=(made.collect,) if made.collect else ()),
    )
    record = self._record(task, response, run, answer, solution, made)
    told = types.Executed(
      run.outcome, record.exec_s, message=run.message, record=record
    )
    return told, run

  def _instrument(self, code: str, answer: str | None) -> Instrumented:
    if self.instrumenter == 'syntax':
      return SyntaxInstrumenter().instrument(code, self._key())
    if self.instrumenter == 'openai':
      return language_model.instrument(code, answer or '', self._key())
    return Instrumented(code)

  def _milestones(self, made: Instrumented, run: Run) -> Sequence[str]:
    """Names of what was reached; nothing for a copy of the sample."""
    if self.instrumenter == 'verified':
      return credited(run.passed)
    if run.outcome is types.Outcome.INVALID_SUBMISSION and not run.passed:
      return ()
    left = run.execution.collected.get(made.collect)
    return [mark.name for mark in made.reached(left)]

  def _record(
    self,
    task: Task,
    response: str,
    result: Run | SolutionError,
    answer: str | None = None,
    solution: Solution | None = None,
    made: Instrumented = Instrumented(''),
  ) -> SolutionRecord:
    """Returns the record for traces, report and audit.

    result: of the run, or why the response holds no solution to run.
    """
    run = result if isinstance(result, Run) else None
    spec = self.runner.task(task.name).spec
    code = solution.code if solution else ''
    before = task.previous.solution.code if task.previous else ''
    execution = run.execution if run else None
    tier = execution.tier if execution else None
    output = execution.output if execution else ''
    return SolutionRecord(
      task=task.name,
      outcome=run.outcome if run else types.Outcome.INVALID_FORMAT,
      exec_s=max(execution.exec_s, FLOOR_S) if execution else FLOOR_S,
      solution_id=solution_id(task.name, code) if solution else '',
      improves=task.previous_id,
      operator=task.kind,
      asked=task.asked,
      joins=task.second_id,
      parent_score=_parent_score(task, spec.higher_is_better),
      response=str(response),
      diff=_diff(before, code),
      valid_action=solution is not None,
      score_after=run.score if run else None,
      measured=run.measured if run else {},
      higher_is_better=spec.higher_is_better,
      scale=self.scale,
      start=spec.m_init,
      best=spec.m_best,
      failure=self.failure,
      milestones=tuple(self._milestones(made, run)) if run else (),
      placed=len(made.placed),
      refused=made.refused,
      message=run.message if run else str(result),
      observation=truncate(made.as_it_was(output, SCRIPT), MAX_OUTPUT_CHARS),
      tier=tier,
      untrusted=label_sources.untrusted(spec, tier),
      queue_s=execution.queue_s if execution else 0.0,
      startup_s=execution.startup_s if execution else 0.0,
      cpu_s=execution.cpu_s if execution else 0.0,
      recorded=bool(execution and execution.recorded),
      thoughts=_thoughts(response),
      instrumenter_thoughts=_thoughts(answer),
    )


def _parent_score(task: Task, higher_is_better: bool) -> float | None:
  """The better of the scores of the solutions that a prompt shows."""
  shown = [one.score for one in (task.previous, task.second) if one]
  scores = [score for score in shown if score is not None]
  better = max if higher_is_better else min
  return better(scores) if scores else None


def _thoughts(text: str | None) -> str:
  """Returns the thoughts that came before the answer `text`; '' if there are none."""
  return getattr(text, 'thoughts', '')[-MOST_THOUGHTS:]


def _diff(before: str, code: str) -> str:
  if len(code) > MOST_DIFFED:
    return ''
  lines = difflib.unified_diff(
    before.splitlines(), code.splitlines(), 'before', SCRIPT, lineterm=''
  )
  return '\n'.join(lines)
