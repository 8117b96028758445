"""Arms of paper 001: whole runs of an Implementer, each with its Ideator.

A run starts from the task's starter files. Its last valid submission counts with its
score on the private rows; that of the best one by validation is reported beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.envs.implementer_state import (
  PROGRAMS,
  SEEK_HELP,
  ImplementerState,
)
from jaxagent.envs.step_env import FLOOR_S
from jaxagent.errors import in_one_line
from jaxagent.interactions import POLICY, Generate, RolloutState
from jaxagent.recipes.evaluation import Evaluation, split_of
from jaxagent.recipes.ideator import classify, collect
from jaxagent.recipes.ideator.interaction import (
  IMPLEMENTER,
  Adviser,
  Run,
  Runs,
  execute,
  scores,
  whole_scores,
)
from jaxagent.recipes.ideator.parser import Idea, parse_idea
from jaxagent.recipes.ideator.record import ImplementerStepRecord
from jaxagent.recipes.ideator.types_of import UNPARSED, type_of_family
from jaxagent.recipes.ideator.workflow import Prompts, environment
from jaxagent.records import Evaluated, TakenStep
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.stand_ins.ideator import family_of
from jaxagent.stand_ins.implementer import action_of
from jaxagent.training import rollouts
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext


COUNTED = ('prompt_tokens', 'tokens', 'answer_s')  # of an answer


class ArmEvaluation(Evaluation):
  """`eval.trajectories_per_task` runs of every task with one Ideator.

  arm: 'sft' or 'rl' of the policy, else of `ideator.arms`.
  policy: of the first two; None of an arm without one.
  implementer: kind of the Implementer; '': that of `config.implementer.kind`.
  """

  def __init__(
    self,
    context: RunContext,
    arm: str,
    starts: Mapping[str, Start],
    policy: PolicySampler | None = None,
    implementer: str = '',
  ):
    self._starts = starts
    self._runs = [
      (task, index)
      for task in context.heldin + context.heldout
      for index in range(context.config.eval.trajectories_per_task)
    ]
    count = len(self._runs)
    most = count * context.config.implementer.max_steps
    label = label_of(arm, implementer)
    super().__init__(context, label, f'evaluate {label}', count, most)
    self._env = environment(context)
    if policy is None:
      self.interaction = collect.runs_of(context, arm)
      self.frozen = collect.frozen_of(context, arm, implementer)
    else:
      self.interaction = self._advised_by(policy)
      # No other Ideator is asked.
      self.frozen = collect.frozen_of(context, 'null', implementer)
      self.policy = rollouts.PolicyRole(
        policy.engine, lambda ask: self._request(policy, ask)
      )
    self._text = policy.text if policy is not None else _text_of
    self._found: dict[str, Evaluated] = {}
    # (run, step) -> the idea that was given there, and the state that it was given in
    self._ideas: dict[tuple[str, int], tuple[ImplementerState, Idea]] = {}

  def _advised_by(self, policy: PolicySampler) -> Runs:
    options, prompts = self.context.config.implementer, Prompts(self.context)
    return Runs(
      max_steps=options.max_steps,
      time_limit_s=options.time_limit_s,
      adviser=Adviser(
        role=POLICY,
        prompt=lambda state: prompts.ids(state, policy),
        text=policy.text,
        max_calls=self.context.config.ideator.max_calls,
      ),
    )

  def _request(
    self, policy: PolicySampler, ask: GenerationRequest
  ) -> types.Request:
    # The same seeds for both policies: common random numbers.
    seed = seed_of(
      self.context.config.seed, 'eval', ask.prompt.prompt_id, ask.call.call
    )
    return policy.request(ask.call.prompt, str(ask.key), seed)

  def begin(self) -> None:
    for task, index in self._runs:
      name = f'{task}-{index}'
      initial = self._env.initial(task, self._starts[task].valid)
      self.feed.push(name, Run(name, initial))

  def execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    return execute(self._env, work.call.request, job_id, private=True)

  def ended(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    task, _, index = prompt.prompt_id.rpartition('-')
    steps: tuple[TakenStep, ...] = ()
    score = whole = None
    if progress is not None and not error:
      steps = self._steps(prompt.prompt_id, progress)
      if valid := [s for s in steps if s.private is not None]:
        score, whole = valid[-1].private, valid[-1].whole
    record = Evaluated(
      task=task,
      index=int(index),
      split=split_of(self.context, task),
      score=score,
      whole=whole,
      steps=steps,
      missing=bool(error),
      reason=in_one_line(error),
    )
    self._found[prompt.prompt_id] = record
    if error:
      self.missing.append(record)

  def _steps(self, run: str, progress: RolloutState) -> tuple[TakenStep, ...]:
    """Returns the messages of a run, those that ran nothing included."""
    state = progress.state.state
    graded, asked = iter(scores(progress)), iter(progress.state.asked)
    wholes = iter(whole_scores(progress))
    steps = []
    for number, (step, said) in enumerate(
      zip(state.steps, messages(progress, self._text))
    ):
      private = whole = None
      if step.kind in PROGRAMS:
        (_, private), whole = next(graded), next(wholes)
      family = kind = ''
      if step.kind == SEEK_HELP and said.idea is not None:
        self._ideas[run, number] = (next(asked), said.idea)
        spec = self.context.spec(state.task)
        family = family_of(said.idea.action, spec.kind, spec.modality)
        kind = type_of_family(family) if family else UNPARSED
      elif said.advice is not None:
        next(asked)  # it was answered with what is no idea
      record = ImplementerStepRecord(
        task=state.task,
        outcome=step.outcome,
        exec_s=max(step.exec_s, FLOOR_S),
        action=step.kind,
        response=step.text,
        observation=step.observation,
        score_after=step.score,
        measured=step.measured,
        valid_action=step.kind != 'invalid',
        family=family,
        idea_type=kind,
        format_error=said.error,
        **{f'advice_{k}': v for k, v in (said.advice or {}).items()},
      )
      steps.append(
        TakenStep(record=record, private=private, whole=whole, **said.cost)
      )
    return tuple(steps)

  def records(self) -> list[Evaluated]:
    if classify.is_asked(self.context):
      self._classify()
    return [self._found[f'{task}-{index}'] for task, index in self._runs]

  def _classify(self) -> None:
    """Puts the types that the classifier names into the records."""
    places = sorted(self._ideas)
    named = classify.types(self.context, [self._ideas[at] for at in places])
    for (run, number), kind in zip(places, named):
      steps = list(self._found[run].steps)
      record = steps[number].record
      assert isinstance(record, ImplementerStepRecord)  # `_steps` made it
      record = dataclasses.replace(record, idea_type=kind)
      steps[number] = dataclasses.replace(steps[number], record=record)
      self._found[run] = dataclasses.replace(
        self._found[run], steps=tuple(steps)
      )


def label_of(arm: str, implementer: str = '') -> str:
  """Returns the label of a pair; '' is the Implementer of the config."""
  return f'{arm}-{implementer}' if implementer else arm


def _text_of(result: Any) -> str:
  return result if isinstance(result, str) else result.text


@dataclasses.dataclass
class Message:
  """A message of the Implementer: its cost, and that of the answer to its question.

  Costs are of `prompt_tokens`, `tokens` and `answer_s`, those that were counted.

  advice: None where no model was asked.
  idea: None where there is none. error: why a model's answer is none.
  """

  cost: Mapping[str, Any]
  advice: Mapping[str, Any] | None = None
  idea: Idea | None = None
  error: str = ''


def messages(
  progress: RolloutState, text: Callable[[Any], str]
) -> list[Message]:
  """Returns the messages of a run, in order. text: of an Ideator's result."""
  found: list[Message] = []
  for call, result in progress.results:
    if not isinstance(call, Generate):
      continue
    if call.role == IMPLEMENTER:
      found.append(Message(_cost(result)))
      continue
    found[-1].advice = _cost(result)
    idea = parse_idea(text(result))
    if isinstance(idea, Idea):
      found[-1].idea = idea
    else:
      found[-1].error = idea.reason
  return found


def _cost(result: Any) -> dict[str, Any]:
  if isinstance(result, types.Completion):
    return {
      'prompt_tokens': len(result.prompt_ids),
      'tokens': len(result.token_ids),
    }
  cost = getattr(result, 'cost', {})
  return {k: cost[k] for k in COUNTED if cost.get(k) is not None}


def fates(
  record: Evaluated, higher_is_better: bool
) -> dict[int, tuple[str, bool | None]]:
  """Returns step -> (type, improved) of the ideas of a run.

  An idea is carried out by the next program that the Implementer runs, and improves
  where that has the best score so far; None where none follows it.
  """
  found: dict[int, tuple[str, bool | None]] = {}
  best: float | None = None
  asked: int | None = None
  for number, step in enumerate(record.steps):
    made = step.record
    if not isinstance(made, ImplementerStepRecord):
      continue
    if made.action == SEEK_HELP:
      asked = None
      if made.idea_type:
        asked, found[number] = number, (made.idea_type, None)
    elif made.action in PROGRAMS:
      score = made.score_after
      gained = score is not None and (
        best is None or (score > best if higher_is_better else score < best)
      )
      if asked is not None:
        found[asked] = (found[asked][0], gained)
      asked, best = None, score if gained else best
  return found


def ideas_of(
  record: Evaluated, higher_is_better: bool
) -> list[tuple[str, bool]]:
  """Returns (type, improved) of the ideas that a run's next step carried out."""
  pairs = fates(record, higher_is_better).values()
  return [(kind, gained) for kind, gained in pairs if gained is not None]


def actions_of(record: Evaluated) -> list[str]:
  """Returns the ACTIONs of a run's ideas."""
  found = [
    action_of(step.record.observation)
    for step in record.steps
    if step.record.action == SEEK_HELP
  ]
  return [action for action in found if action is not None]


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
