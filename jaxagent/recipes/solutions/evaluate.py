"""Whole solutions of a policy: from scratch, and improved (paper 003, 4.1).

`solution.samples` of each task are drawn from scratch, then as many that improve
upon those that were valid, chosen at random. A solution counts with its score on
the private rows; where a policy may do both, it is given the better of the two.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import types
from jaxagent.analysis import chosen
from jaxagent.analysis import evaluation as statistics
from jaxagent.envs.solution import Previous, Task, parse
from jaxagent.errors import in_one_line
from jaxagent.interactions import RolloutState, Transition
from jaxagent.recipes import evaluation
from jaxagent.recipes.evaluation import Evaluation
from jaxagent.recipes.solutions.workflow import SolutionWorkflow
from jaxagent.recipes.starts import both_scores
from jaxagent.records import Evaluated, TakenStep
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime.text_models import ProgramModel
from jaxagent.training import rollouts
from jaxagent.training.policy import seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext

PARTS = ('scratch', 'improved')


@dataclasses.dataclass(frozen=True)
class Attempt:
  """One solution of an evaluation, before it has run.

  part: one of PARTS; of a search the kind of step. salt: of its seed, where the same
  part of a task is drawn again.
  """

  task: Task
  index: int
  part: str
  salt: str = ''

  @property
  def name(self) -> str:
    """Unique within the evaluation."""
    return f'{self.part}{self.salt.strip()}-{self.task.name}-{self.index}'


@dataclasses.dataclass(frozen=True)
class Ended:
  """Result of an attempt.

  step: None where it was not run. private: its score on the private rows.
  error: the infrastructure error that ended it, or ''.
  """

  attempt: Attempt
  step: TakenStep | None
  private: float | None = None
  error: str = ''

  def record(self, context: RunContext) -> Evaluated:
    """Returns its record for the evaluation's file."""
    return Evaluated(
      task=self.attempt.task.name,
      index=self.attempt.index,
      part=self.attempt.part,
      split=evaluation.split_of(context, self.attempt.task.name),
      score=None if self.error else self.private,
      whole=self.step.whole if self.step and not self.error else None,
      steps=(self.step,) if self.step else (),
      missing=bool(self.error),
      reason=in_one_line(self.error),
    )


class Attempts:
  """The interaction of a workflow, from attempts instead of tasks."""

  def __init__(self, workflow: SolutionWorkflow):
    self._workflow = workflow
    self.advance = workflow.advance

  def start(self, payload: Attempt) -> Transition:
    return self._workflow.start(payload.task)


class SolutionEvaluation(Evaluation):
  """Attempts at whole solutions, whichever they are.

  Seeds do not depend on the label: common random numbers for every policy.

  workflow: of a solution; its author is the policy or a prompted model.
  """

  def __init__(
    self,
    context: RunContext,
    workflow: SolutionWorkflow,
    label: str,
    title: str,
    attempts: int,
  ):
    super().__init__(context, label, title, attempts, attempts)
    self.workflow = workflow
    self.interaction = Attempts(workflow)
    author, frozen = workflow.author, dict(workflow.frozen_roles)
    if isinstance(author, ProgramModel):
      frozen[workflow.role] = FrozenRole(
        lambda ask: author.complete(ask.call.prompt, self._seed(ask)),
        author.max_concurrency,
      )
    else:
      self.policy = rollouts.PolicyRole(
        author.engine,
        lambda ask: author.request(
          ask.call.prompt, str(ask.key), self._seed(ask)
        ),
      )
    self.frozen = frozen

  def _seed(self, ask: GenerationRequest) -> int:
    one: Attempt = ask.prompt.payload
    part = one.part + one.salt
    return seed_of(
      self.context.config.seed, 'eval', part, one.task.name, one.index
    )

  def push(self, attempt: Attempt) -> None:
    """Adds an attempt to those that are to be run."""
    self.feed.push(attempt.name, attempt)

  def execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    """Runs one solution and grades it on the private rows."""
    task, response, answer = work.call.request
    executed, run = self.workflow.env.solve(
      task, response, answer, job_id=job_id
    )
    if executed.outcome.is_infrastructure or run is None or run.score is None:
      return executed
    scores = both_scores(self.context, task.name, run)
    return dataclasses.replace(executed, kept=scores)

  def ended(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    one = _ended(prompt.payload, progress, error)
    if one.error:
      self.missing.append(one.record(self.context))
    self.took(one)

  @abc.abstractmethod
  def took(self, one: Ended) -> None:
    """Takes the result of an attempt; may push more."""


class _ScratchAndImproved(SolutionEvaluation):
  """So many from scratch of each task, then as many that improve upon them.

  Those of a task that improve upon others begin once all from scratch have ended.
  """

  def __init__(
    self,
    context: RunContext,
    workflow: SolutionWorkflow,
    label: str,
    samples: int,
  ):
    self.tasks, self._samples = context.heldin + context.heldout, samples
    attempts = 2 * samples * len(self.tasks)
    super().__init__(context, workflow, label, f'evaluate {label}', attempts)
    self._found: dict[tuple[str, str], dict[int, Ended]] = {}

  def begin(self) -> None:
    for task in self.tasks:
      for index in range(self._samples):
        self.push(Attempt(Task(task), index, 'scratch'))

  def took(self, one: Ended) -> None:
    task, part, n = one.attempt.task.name, one.attempt.part, self._samples
    of_part = self._found.setdefault((task, part), {})
    of_part[one.attempt.index] = one
    if part == 'scratch' and len(of_part) == n:
      made = [of_part[index] for index in range(n)]
      better = _to_improve(self.context, task, made, n)
      for index, improved in enumerate(better):
        self.push(Attempt(improved, index, 'improved'))

  def records(self) -> list[Evaluated]:
    return [
      one.record(self.context)
      for part in PARTS
      for task in self.tasks
      for _, one in sorted(self._found.get((task, part), {}).items())
    ]


def run(
  context: RunContext,
  workflow: SolutionWorkflow,
  label: str,
  *,
  samples: int = 0,
) -> list[Evaluated]:
  """Draws and runs all solutions of `label`; returns and keeps their records.

  samples: of each task and part; 0: `solution.samples`.
  """
  n = samples or context.config.solution.samples
  return _ScratchAndImproved(context, workflow, label, n).run()


def table(records: Sequence[Evaluated], higher: Mapping[str, bool]) -> dict:
  """Returns {task: {part: figures}}, with 'better' for the better of both parts.

  higher: task -> whether a higher score is better. Figures are of valid
  solutions: `n` drawn, `valid` share, `mean` and `best` private score (None
  where none is valid); of all: mean execution seconds and mean reward, by which the
  better part is chosen, so that few lucky ones do not win; and `chosen`, K -> what
  validation chooses from K (`analysis.chosen.curve`), up to half of the solutions.
  """
  found: dict[str, dict[str, Any]] = {}
  for task in sorted({r.task for r in records}):
    own = [r for r in evaluation.present(records) if r.task == task]
    parts = {p: [r for r in own if r.part == p] for p in PARTS}
    found[task] = {p: _figures(rs, higher[task]) for p, rs in parts.items()}
    valid = [f for f in found[task].values() if f['mean'] is not None]
    found[task]['better'] = max(valid, key=lambda f: f['reward'], default=None)
  return found


def _figures(records: Sequence[Evaluated], higher: bool) -> dict[str, Any]:
  scores = [r.score for r in records if r.score is not None]
  steps = [s for r in records for s in r.steps]
  ran = [s.record.exec_s for s in steps if s.record.ran]
  rewards = [s.reward for s in steps if s.reward is not None]
  return {
    'n': len(records),
    'valid': len(scores) / len(records) if records else None,
    'mean': float(np.mean(scores)) if scores else None,
    'best': statistics.best_at_k(scores, len(scores), higher)
    if scores
    else None,
    'exec_s': float(np.mean(ran)) if ran else None,
    'reward': float(np.mean(rewards)) if rewards else None,
    'chosen': _chosen(records, higher),
  }


def _chosen(records: Sequence[Evaluated], higher: bool) -> dict[str, Any]:
  validation = [
    r.steps[-1].record.score_after if r.steps else None for r in records
  ]
  # Of more than half of them there is one subset, or few: no interval holds.
  ks = [k for k in chosen.KS if 2 * k <= max(len(records), 2)]
  found = chosen.curve(validation, [r.score for r in records], higher, ks)
  return {str(k): figures for k, figures in found.items()}


def _to_improve(
  context: RunContext, name: str, made: Sequence[Ended], n: int
) -> list[Task]:
  """Returns n tasks that improve upon valid solutions; [] where none is valid."""
  valid = [one for one in made if one.private is not None and not one.error]
  if not valid:
    return []
  rng = np.random.default_rng(seed_of(context.config.seed, 'improve', name))
  chosen = [valid[i] for i in rng.integers(len(valid), size=n)]
  return [
    Task(
      name,
      Previous(parse(one.step.record.response), one.step.record.observation),
      f'{one.attempt.part}-{one.attempt.index}',
    )
    for one in chosen
  ]


def _ended(
  attempt: Attempt, progress: RolloutState | None, error: str
) -> Ended:
  done = evaluation.steps_of(progress)
  if not done:
    return Ended(attempt, None, None, error)
  step = evaluation.taken_step(done[-1])
  return Ended(attempt, step, step.private, error)
