"""Whole solutions of a policy: from scratch, and improved (paper 003, 4.1).

`solution.samples` of each task are drawn from scratch, then as many that improve
upon those that were valid, chosen at random. A solution counts with its score on
the private rows; where a policy may do both, it is given the better of the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import audit, types
from jaxagent.analysis import evaluation
from jaxagent.data.prompts import Feed
from jaxagent.envs.solution import Previous, Task, parse
from jaxagent.errors import in_one_line
from jaxagent.interactions import Progress, Step
from jaxagent.metrics import Progress as ProgressBar
from jaxagent.recipes.ml_agent import evaluate
from jaxagent.recipes.solutions.workflow import SolutionWorkflow
from jaxagent.recipes.starts import private_score, write_json
from jaxagent.records import Evaluated, TakenStep
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.rollout.work import Ask, Work
from jaxagent.runtime import kept
from jaxagent.runtime.text_models import Writer
from jaxagent.training import rollouts
from jaxagent.training.policy import seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.host import Host

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

  def record(self, host: Host) -> Evaluated:
    """Returns its record for the evaluation's file."""
    return Evaluated(
      task=self.attempt.task.name,
      index=self.attempt.index,
      part=self.attempt.part,
      split=evaluate.split_of(host, self.attempt.task.name),
      score=None if self.error else self.private,
      steps=(self.step,) if self.step else (),
      missing=bool(self.error),
      reason=in_one_line(self.error),
    )


class Attempts:
  """The interaction of a recipe, from attempts instead of tasks."""

  def __init__(self, recipe: SolutionWorkflow):
    self._recipe = recipe
    self.advance = recipe.advance

  def start(self, payload: Attempt) -> Step:
    return self._recipe.start(payload.task)


def run(
  host: Host, recipe: SolutionWorkflow, label: str, *, samples: int = 0
) -> list[Evaluated]:
  """Draws and runs all solutions of `label`; returns and keeps their records.

  Those of a task that improve upon others begin once all from scratch have ended.

  samples: of each task and part; 0: `solution.samples`.
  """
  path = host.work / 'eval' / f'{label}.json'
  folder = rollouts.journal_of(host.work, label)
  if (records := kept.kept_json(path, kept.trajectories)) is not None:
    rollouts.forget(folder)  # a kill may have come in between
    return records
  tasks = host.heldin + host.heldout
  n = samples or host.config.solution.samples
  feed = Feed()
  ended: dict[tuple[str, str], dict[int, Ended]] = {}
  missing: list[Evaluated] = []
  total = 2 * n * len(tasks)

  def took(one: Ended) -> None:
    if one.error:
      missing.append(one.record(host))
    task, part = one.attempt.task.name, one.attempt.part
    of_part = ended.setdefault((task, part), {})
    of_part[one.attempt.index] = one
    if part == 'scratch' and len(of_part) == n:
      made = [of_part[index] for index in range(n)]
      for index, better in enumerate(_to_improve(host, task, made, n)):
        push(feed, Attempt(better, index, 'improved'))

  for task in tasks:
    for index in range(n):
      push(feed, Attempt(Task(task), index, 'scratch'))
  with ProgressBar(f'evaluate {label}', total) as bar:
    drive(
      host,
      recipe,
      label,
      feed,
      took,
      bar.update,
      lambda: evaluate.check_too_many(label, missing, total),
    )
  records = [
    one.record(host)
    for part in PARTS
    for task in tasks
    for _, one in sorted(ended.get((task, part), {}).items())
  ]
  evaluate.check_missing(label, records, len(records))
  sealed = audit.seal([r.to_json() for r in records], label)
  write_json(path, list(sealed))
  rollouts.forget(folder)
  return records


def push(feed: Feed, attempt: Attempt) -> None:
  """Adds an attempt to those that are to be run."""
  feed.push(attempt.name, attempt)


def table(records: Sequence[Evaluated], higher: Mapping[str, bool]) -> dict:
  """Returns {task: {part: figures}}, with 'better' for the better of both parts.

  higher: task -> whether a higher score is better. Figures are of valid
  solutions: `n` drawn, `valid` share, `mean` and `best` private score (None
  where none is valid); and of all: mean execution seconds and mean reward, by
  which the better part is chosen, so that few lucky ones do not win.
  """
  found: dict[str, dict[str, Any]] = {}
  for task in sorted({r.task for r in records}):
    own = [r for r in evaluate.present(records) if r.task == task]
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
    'best': evaluation.best_at_k(scores, len(scores), higher)
    if scores
    else None,
    'exec_s': float(np.mean(ran)) if ran else None,
    'reward': float(np.mean(rewards)) if rewards else None,
  }


def _to_improve(
  host: Host, name: str, made: Sequence[Ended], n: int
) -> list[Task]:
  """Returns n tasks that improve upon valid solutions; [] where none is valid."""
  valid = [one for one in made if one.private is not None and not one.error]
  if not valid:
    return []
  rng = np.random.default_rng(seed_of(host.config.seed, 'improve', name))
  chosen = [valid[i] for i in rng.integers(len(valid), size=n)]
  return [
    Task(
      name,
      Previous(parse(one.step.record.response), one.step.record.observation),
      f'{one.attempt.part}-{one.attempt.index}',
    )
    for one in chosen
  ]


def drive(
  host: Host,
  recipe: SolutionWorkflow,
  label: str,
  feed: Feed,
  took: Callable[[Ended], None],
  ran: Callable[[], None],
  check: Callable[[], None],
) -> None:
  """Draws and runs the attempts that the feed gives.

  Seeds do not depend on `label`: common random numbers for every policy.

  Args:
    took: gets the result of each; may push more attempts into the feed.
    ran: called after each execution.
    check: called now and then; what it raises ends the evaluation.
  """

  def seed(ask: Ask) -> int:
    one: Attempt = ask.prompt.payload
    part = one.part + one.salt
    return seed_of(host.config.seed, 'eval', part, one.task.name, one.index)

  def execute(work: Work, job_id: str) -> types.Executed:
    executed = _execute(host, recipe, work, job_id)
    ran()
    return executed

  def deliver(
    prompt: types.Prompt, progress: Progress | None, error: str
  ) -> None:
    took(_ended(prompt.payload, progress, error))

  frozen, policy = dict(recipe.frozen_roles), None
  author = recipe.author
  if isinstance(author, Writer):
    frozen[recipe.role] = FrozenRole(
      lambda ask: author.complete(ask.call.prompt, seed(ask)),
      author.max_concurrency,
    )
  else:
    policy = rollouts.PolicyRole(
      author.engine,
      lambda ask: author.request(ask.call.prompt, str(ask.key), seed(ask)),
    )
  rollouts.run(
    host,
    rollouts.journal_of(host.work, label),
    feed,
    Attempts(recipe),
    execute=execute,
    deliver=deliver,
    name=f'eval-{label}',
    frozen=frozen,
    policy=policy,
    check=check,
  )


def _ended(attempt: Attempt, progress: Progress | None, error: str) -> Ended:
  done = [] if progress is None else evaluate.steps_of(progress)
  if not done:
    return Ended(attempt, None, None, error)
  step = evaluate.taken_step(done[-1])
  return Ended(attempt, step, step.private, error)


def _execute(
  host: Host, recipe: SolutionWorkflow, work: Work, job_id: str
) -> types.Executed:
  """Runs one solution and grades it on the private rows."""
  task, response, answer = work.call.request
  executed, run = recipe.env.solve(task, response, answer, job_id=job_id)
  if executed.outcome.is_infrastructure or run is None or run.score is None:
    return executed
  private = private_score(host, task.name, run)
  return dataclasses.replace(executed, kept={'private': private})
