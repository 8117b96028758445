"""Whole trajectories of a policy on held-in and held-out tasks.

Every trajectory starts from the task's starter (paper 000, section 5.1). At
each step the policy sees validation scores; what it leaves behind (its best
script by validation, the starter where nothing was better) counts with its
score on the private rows.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.errors import in_one_line
from jaxagent.interactions import RolloutState, Transition
from jaxagent.recipes.evaluation import (
  Evaluation,
  split_of,
  steps_of,
  taken_step,
)
from jaxagent.recipes.ml_agent import steps
from jaxagent.recipes.ml_agent.trajectory import Action, Trajectory
from jaxagent.recipes.starts import Start, both_scores
from jaxagent.records import Evaluated
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.training import rollouts
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


@dataclasses.dataclass(frozen=True)
class Episode:
  """One trajectory of an evaluation, before it has run."""

  task: str
  index: int
  state: types.State

  @property
  def name(self) -> str:
    """Unique within the evaluation."""
    return f'{self.task}-{self.index}'


class Episodes:
  """The interaction of trajectories, from episodes instead of states."""

  def __init__(self, workflow: Trajectory):
    self._workflow = workflow
    self.advance = workflow.advance

  def start(self, payload: Episode) -> Transition:
    return self._workflow.start(payload.state)


class TrajectoryEvaluation(Evaluation):
  """Trajectories of every task from its starter.

  starts: task -> its starter.
  workflow: of a trajectory.
  prompt_text: state -> the text of its prompt.
  """

  def __init__(
    self,
    context: RunContext,
    label: str,
    starts: Mapping[str, Start],
    workflow: Trajectory,
    prompt_text: Callable[[types.State], str],
  ):
    runs = context.config.eval.trajectories_per_task
    self.episodes = {
      episode.name: episode
      for task in context.heldin + context.heldout
      for index in range(runs)
      for episode in (Episode(task, index, starts[task].state),)
    }
    count = len(self.episodes)
    steps_made = count * context.config.eval.max_steps
    super().__init__(context, label, f'evaluate {label}', count, steps_made)
    self.interaction = Episodes(workflow)
    self._starts, self._prompt_text = starts, prompt_text
    self._ended: dict[str, Evaluated] = {}

  def begin(self) -> None:
    _tell_of_older(self.context.work / 'eval' / f'{self.label}.steps.jsonl')
    for name, episode in self.episodes.items():
      self.feed.push(name, episode)

  def execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    return _execute(self.context, work, job_id, self._prompt_text)

  def ended(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    start = self._starts[prompt.payload.task]
    record = _record(self.context, prompt.payload, start, progress, error)
    self._ended[prompt.prompt_id] = record
    if error:
      self.missing.append(record)

  def records(self) -> list[Evaluated]:
    return [self._ended[name] for name in self.episodes]


def evaluate_policy(
  context: RunContext,
  policy: PolicySampler,
  label: str,
  starts: Mapping[str, Start],
) -> list[Evaluated]:
  """Runs every trajectory of `label`; returns and keeps their records."""
  workflow = Trajectory(
    policy.prompt_ids,
    policy.text,
    max_steps=context.config.eval.max_steps,
    time_limit_s=context.config.eval.time_limit_s,
    reward=steps.whole_reward,
  )

  def request(ask: GenerationRequest) -> types.Request:
    # The same seeds for every policy: common random numbers.
    seed = seed_of(context.config.seed, 'eval', *_place(ask))
    return policy.request(ask.call.prompt, str(ask.key), seed)

  made = TrajectoryEvaluation(
    context, label, starts, workflow, policy.prompt_text
  )
  made.policy = rollouts.PolicyRole(policy.engine, request)
  return made.run()


def _place(ask: GenerationRequest) -> tuple[str, int, int]:
  """Returns (task, index, number of the step) of an ask."""
  episode = ask.prompt.payload
  return episode.task, episode.index, ask.call.call // 2


def evaluate_text_model(
  context: RunContext,
  role: str,
  starts: Mapping[str, Start],
  answer: Callable[[types.State, str, int, int], types.TextCompletion],
  prompt_text: Callable[[types.State], str],
  max_concurrency: int,
) -> list[Evaluated]:
  """Evaluates, as `evaluate_policy` does, a frozen role that is shown states.

  answer: (state, task, index of the trajectory, number of the step) -> its answer.
  prompt_text: state -> the text of its prompt.
  """
  workflow = Trajectory(
    _same,
    text_of,
    max_steps=context.config.eval.max_steps,
    time_limit_s=context.config.eval.time_limit_s,
    role=role,
  )
  made = TrajectoryEvaluation(context, role, starts, workflow, prompt_text)
  made.frozen = {
    role: FrozenRole(
      lambda ask: answer(ask.call.prompt, *_place(ask)), max_concurrency
    )
  }
  return made.run()


def _same(value: Any) -> Any:
  return value


def text_of(completion: types.TextCompletion) -> str:
  """Returns the answer's text."""
  return completion.text


def _tell_of_older(older: pathlib.Path) -> None:
  """Prints that an unfinished evaluation of an older version is made anew."""
  if older.exists():
    print(
      f'{older} was written by a version before journals, whose last commit is '
      '275c38c: that one resumes it; here its trajectories are made again.'
    )


def _record(
  context: RunContext,
  episode: Episode,
  start: Start,
  progress: RolloutState | None,
  error: str,
) -> Evaluated:
  """Returns the record of a trajectory.

  One that an infrastructure error ended has no score, but a reason.
  """
  done = steps_of(progress)
  taken = tuple(map(taken_step, done))
  better = [step for step in taken if step.private is not None]
  left = better[-1] if better else start  # what it left behind
  return Evaluated(
    task=episode.task,
    index=episode.index,
    split=split_of(context, episode.task),
    score=None if error else left.private,
    whole=None if error else left.whole,
    steps=taken,
    missing=bool(error),
    reason=in_one_line(error),
  )


def _execute(
  context: RunContext,
  work: ExecutionRequest,
  job_id: str,
  prompt_text: Callable[[types.State], str],
) -> types.Executed:
  """Carries out one step; grades the best so far on the private rows."""
  action, task = work.call.request, work.prompt.payload.task
  state = action.state
  result = context.env.step(
    state,
    action.response,
    split='valid',
    job_id=job_id,
    most_s=action.left_s,
  )
  executed = steps.executed(context, state, action.response, result)
  if result.outcome.is_infrastructure:
    return executed
  found = {
    **steps.kept_files(context, state, result),
    **steps.completion_record(context, prompt_text(state), action.completion),
  }
  if result.score is not None and _is_best(context, task, action, result.score):
    found |= both_scores(context, task, result)
  return dataclasses.replace(executed, kept=found)


def _is_best(
  context: RunContext, task: str, action: Action, score: float
) -> bool:
  """Whether a validation score is above the starter's and those that counted."""
  best = action.state.start_score
  for one in action.before:
    if 'private' in one.kept:
      best = one.made.score_after
  return _better(context, task, score, best)


def _better(
  context: RunContext, task: str, score: float, best: float | None
) -> bool:
  if best is None:
    return True
  return score > best if context.spec(task).higher_is_better else score < best
