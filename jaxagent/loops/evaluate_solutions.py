"""Whole solutions of a policy: from scratch, and improved (paper 003, 4.1).

`solution.samples` of each task are drawn from scratch, then as many that improve
upon those that were valid, chosen at random. A solution counts with its score on
the private rows; where a policy may do both, it is given the better of the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent import audit, evaluation, interactions
from jaxagent.envs.solution import Previous, Task, parse
from jaxagent.interactions import POLICY
from jaxagent.loops import evaluate, kept, walks
from jaxagent.loops.policy import Policy, seed_of
from jaxagent.loops.recipes.solution import INSTRUMENTER, Solutions
from jaxagent.loops.starts import private_score, write_json
from jaxagent.metrics import Progress
from jaxagent.records import Evaluated, TakenStep

PARTS = ('scratch', 'improved')


@dataclasses.dataclass
class Attempt(walks.Walk):
  """One solution under way. step: what came of it; None until it was run."""

  part: str = PARTS[0]
  private: float | None = None
  step: TakenStep | None = None

  def record(self, split: str) -> Evaluated:
    """As `evaluate.Episode.record`, with its part: one of PARTS."""
    return Evaluated(
      task=self.task,
      index=self.index,
      part=self.part,
      split=split,
      score=None if self.missing else self.private,
      steps=(self.step,) if self.step else (),
      missing=bool(self.missing),
      reason=self.missing,
    )


def run(
  host,
  recipe: Solutions,
  policy: Policy,
  label: str,
  *,
  role: str = POLICY,
  samples: int = 0,
) -> list[Evaluated]:
  """Draws and runs all solutions of `label`; returns and keeps their records.

  policy: or a `text_models.Writer`, whose role is not POLICY.
  samples: of each task and part; 0: `solution.samples`.
  """
  path = host.work / 'eval' / f'{label}.json'
  if (records := kept.kept_json(path, kept.trajectories)) is not None:
    return records
  tasks = host.heldin + host.heldout
  n = samples or host.config.solution.samples
  done: list[Attempt] = []
  with Progress(f'evaluate {label}', 2 * n * len(tasks)) as progress:
    for part in PARTS:
      attempts = [
        Attempt(
          task.name,
          index,
          interactions.Progress(recipe, task, roles=(role, *recipe.draws)),
          part=part,
        )
        for name in tasks
        for index, task in enumerate(_asked(host, name, part, done, n))
      ]
      drive(
        host,
        recipe,
        policy.complete,
        f'{label}-{part}',
        attempts,
        lambda: progress.update(1),
        role,
      )
      done += attempts
  records = [
    a.record('heldin' if a.task in host.heldin else 'heldout') for a in done
  ]
  evaluate.check_missing(label, records, len(records))
  sealed = audit.seal([r.to_json() for r in records], label)
  write_json(path, list(sealed))
  return records


def table(records: Sequence[Evaluated], higher: Mapping[str, bool]) -> dict:
  """{task: {part: figures}}, with 'better' for the better of both parts.

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


def _asked(
  host, name: str, part: str, done: Sequence[Attempt], n: int
) -> list[Task]:
  """The n tasks of a part; none to improve where nothing was valid."""
  if part == 'scratch':
    return [Task(name)] * n
  valid = [a for a in done if a.task == name and a.private is not None]
  if not valid:
    return []
  rng = np.random.default_rng(seed_of(host.config.seed, 'improve', name))
  chosen = [valid[i] for i in rng.integers(len(valid), size=n)]
  return [
    Task(
      name,
      Previous(parse(a.step.record.response), a.step.record.observation),
      f'{a.part}-{a.index}',
    )
    for a in chosen
  ]


def drive(
  host,
  recipe: Solutions,
  complete: Callable[..., Sequence[Any]],
  label: str,
  attempts: Sequence[Attempt],
  done: Callable[[], None],
  role: str = POLICY,
  salt: str = '',
) -> None:
  """Draws and runs attempts.

  complete: (prompts, names of the requests, seeds) -> what `role` answers. The
    seeds do not depend on `label`: common random numbers for every policy.
  salt: of the seeds, where the same part of a task is drawn again.
  """

  def name(a: Attempt) -> str:
    return f'eval-{label}-{a.task}-{a.index}'

  def draw(waiting: Sequence[Attempt], step: int):
    return complete(
      [a.call.prompt for a in waiting],
      [name(a) for a in waiting],
      [
        seed_of(host.config.seed, 'eval', a.part + salt, a.task, a.index)
        for a in waiting
      ],
    )

  def ask(waiting: Sequence[Attempt], step: int):
    return recipe.ask([a.call.prompt for a in waiting])

  def act(attempt: Attempt, step: int, suffix: str) -> str:
    return _act(host, recipe, attempt, name(attempt) + suffix)

  walks.drive(host, attempts, {role: draw, INSTRUMENTER: ask}, act, done)


def _act(host, recipe: Solutions, attempt: Attempt, job_id: str) -> str:
  """One execution; '', or what failed for no fault of the policy."""
  task, response, answer = attempt.call.request
  told, run = recipe.env.solve(task, response, answer, job_id=job_id)
  if told.outcome.is_infrastructure:
    return f'{told.outcome.value}: {told.message}'
  if run is not None and run.score is not None:
    attempt.private = private_score(host, attempt.task, run)
  attempt.step = TakenStep.of(told.record)
  attempt.progress.take(attempt.call.call, told)
  return ''
