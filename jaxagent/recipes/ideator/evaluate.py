"""Arms of paper 001: whole runs of an Implementer, each with its Ideator.

A run starts from the task's starter files. Its last valid submission counts with its
score on the private rows; that of the best one by validation stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxagent import types
from jaxagent.envs.implementer_state import (
  PROGRAMS,
  SEEK_HELP,
  ImplementerState,
)
from jaxagent.envs.step_env import FLOOR_S
from jaxagent.errors import in_one_line
from jaxagent.interactions import POLICY, Progress
from jaxagent.recipes.evaluation import Evaluation, split_of
from jaxagent.recipes.ideator import collect
from jaxagent.recipes.ideator.interaction import (
  Adviser,
  Run,
  Runs,
  execute,
  scores,
)
from jaxagent.recipes.ideator.record import ImplementerStepRecord
from jaxagent.recipes.ideator.types_of import type_of_family
from jaxagent.recipes.ideator.workflow import Prompts
from jaxagent.records import Evaluated, TakenStep
from jaxagent.rollout.work import Ask, Work
from jaxagent.stand_ins.ideator import family_of
from jaxagent.stand_ins.implementer import action_of
from jaxagent.training import rollouts
from jaxagent.training.policy import Policy, seed_of

if TYPE_CHECKING:
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.host import Host


class ArmEvaluation(Evaluation):
  """`eval.trajectories_per_task` runs of every task with one Ideator.

  label: 'sft' or 'rl' of the policy, else of `ideator.arms`.
  policy: of the first two; None of an arm without one.
  """

  def __init__(
    self,
    host: Host,
    label: str,
    starts: Mapping[str, Start],
    policy: Policy | None = None,
  ):
    self._starts = starts
    self._runs = [
      (task, index)
      for task in host.heldin + host.heldout
      for index in range(host.config.eval.trajectories_per_task)
    ]
    count = len(self._runs)
    most = count * host.config.implementer.max_steps
    super().__init__(host, label, f'evaluate {label}', count, most)
    self._env = collect.environment(host)
    if policy is None:
      self.interaction = collect.runs_of(host, label)
      self.frozen = collect.frozen_of(host, label)
    else:
      self.interaction = self._advised_by(policy)
      self.frozen = collect.frozen_of(host, 'null')  # no other Ideator is asked
      self.policy = rollouts.PolicyRole(
        policy.engine, lambda ask: self._request(policy, ask)
      )
    self._found: dict[str, Evaluated] = {}

  def _advised_by(self, policy: Policy) -> Runs:
    options, prompts = self.host.config.implementer, Prompts(self.host)
    return Runs(
      max_steps=options.max_steps,
      time_limit_s=options.time_limit_s,
      adviser=Adviser(
        role=POLICY,
        prompt=lambda state: prompts.ids(state, policy),
        text=policy.text,
        max_calls=self.host.config.ideator.max_calls,
      ),
    )

  def _request(self, policy: Policy, ask: Ask) -> types.Request:
    # The same seeds for both policies: common random numbers.
    seed = seed_of(
      self.host.config.seed, 'eval', ask.prompt.prompt_id, ask.call.call
    )
    return policy.request(ask.call.prompt, str(ask.key), seed)

  def begin(self) -> None:
    for task, index in self._runs:
      name = f'{task}-{index}'
      initial = self._env.initial(task, self._starts[task].valid)
      self.feed.push(name, Run(name, initial))

  def execute(self, work: Work, job_id: str) -> types.Executed:
    return execute(self._env, work.call.request, job_id, private=True)

  def ended(
    self, prompt: types.Prompt, progress: Progress | None, error: str
  ) -> None:
    task, _, index = prompt.prompt_id.rpartition('-')
    steps: tuple[TakenStep, ...] = ()
    score = None
    if progress is not None and not error:
      steps = self._steps(progress.state.state, progress)
      valid = [s.private for s in steps if s.private is not None]
      score = valid[-1] if valid else None
    record = Evaluated(
      task=task,
      index=int(index),
      split=split_of(self.host, task),
      score=score,
      steps=steps,
      missing=bool(error),
      reason=in_one_line(error),
    )
    self._found[prompt.prompt_id] = record
    if error:
      self.missing.append(record)

  def _steps(
    self, state: ImplementerState, progress: Progress
  ) -> tuple[TakenStep, ...]:
    """Returns the messages of a run, those that ran nothing included."""
    graded = iter(scores(progress))
    spec = self.host.spec(state.task)
    steps = []
    for step in state.steps:
      private = None
      if step.kind in PROGRAMS:
        _, private = next(graded)
      family = ''
      if step.kind == SEEK_HELP and (action := action_of(step.observation)):
        family = family_of(action, spec.kind, spec.modality)
      record = ImplementerStepRecord(
        task=state.task,
        outcome=step.outcome,
        exec_s=max(step.exec_s, FLOOR_S),
        action=step.kind,
        response=step.text,
        observation=step.observation,
        score_after=step.score,
        valid_action=step.kind != 'invalid',
        family=family,
        idea_type=type_of_family(family) if family else '',
      )
      steps.append(TakenStep(record=record, private=private))
    return tuple(steps)

  def records(self) -> list[Evaluated]:
    return [self._found[f'{task}-{index}'] for task, index in self._runs]


def ideas_of(
  record: Evaluated, higher_is_better: bool
) -> list[tuple[str, bool]]:
  """Returns (type, improved) of the ideas that a run's next step carried out."""
  found: list[tuple[str, bool]] = []
  best: float | None = None
  asked = ''
  for step in record.steps:
    made = step.record
    if not isinstance(made, ImplementerStepRecord):
      continue
    if made.action == SEEK_HELP:
      asked = made.idea_type
    elif made.action in PROGRAMS:
      score = made.score_after
      gained = score is not None and (
        best is None or (score > best if higher_is_better else score < best)
      )
      if asked:
        found.append((asked, gained))
      asked, best = '', score if gained else best
  return found


def best_by_valid(record: Evaluated, higher_is_better: bool) -> float | None:
  """Returns the private score of the best submission by the validation rows."""
  sign = 1 if higher_is_better else -1
  graded = [
    (sign * step.record.score_after, step.private)
    for step in record.steps
    if step.private is not None and step.record.score_after is not None
  ]
  return max(graded, key=lambda pair: pair[0])[1] if graded else None


def by_step(record: Evaluated) -> Sequence[float | None]:
  """Returns the private score of the last valid submission after each message."""
  found: list[float | None] = []
  last: float | None = None
  for step in record.steps:
    last = last if step.private is None else step.private
    found.append(last)
  return found
