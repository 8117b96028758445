"""Recipes of one turn: a prompt, a completion, an execution, a reward.

A subclass says what the prompts are, how a response is carried out and what is
recorded of it; its record's class gives the reward. `recipes/template` has one.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import metrics, types
from jaxagent.data.prompts import PromptSource
from jaxagent.envs.execution import Call as ScriptCall
from jaxagent.envs.execution import Outputs
from jaxagent.envs.solution_env import MAX_OUTPUT_CHARS
from jaxagent.envs.specs import label_sources
from jaxagent.envs.step_env import FLOOR_S, truncate
from jaxagent.errors import UserError, in_one_line
from jaxagent.files import modules
from jaxagent.interactions import (
  Call,
  Credit,
  Execute,
  Generate,
  RolloutState,
  Transition,
)
from jaxagent.recipes.evaluation import (
  Evaluation,
  split_of,
  steps_of,
  taken_step,
)
from jaxagent.recipes.rules import EQUATION_6_RULES
from jaxagent.recipes.starts import both_scores
from jaxagent.recipes.trained_policy import TrainedPolicy
from jaxagent.records import Evaluated, reward_of
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.training import rollouts
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from jaxagent.envs.execution import Run
  from jaxagent.training import sft

SCRIPT = 'solution.py'
# Raised by wrong code; what machines raise are OSError and RuntimeError.
_OWN_ERRORS = (
  ArithmeticError,
  AssertionError,
  AttributeError,
  ImportError,
  LookupError,
  NameError,
  NotImplementedError,
  RecursionError,
  SyntaxError,
  TypeError,
  ValueError,
)


@dataclasses.dataclass(frozen=True)
class Problem:
  """A prompt of one turn.

  task: name of the task that it is about.
  prompt: text that the policy is shown.
  data: whatever the recipe needs to carry a response out.
  """

  task: str
  prompt: str
  data: Any = None


@dataclasses.dataclass(frozen=True)
class Carried:
  """A response that was carried out.

  record: what is stored of it; gives the reward.
  run: the graded execution, None where nothing was run.
  """

  record: types.Record
  run: Run | None = None


class OneTurn(TrainedPolicy):
  """A policy that answers each prompt once."""

  stages = ('all', 'sft', 'evaluate')
  rules = EQUATION_6_RULES

  # What a subclass says -------------------------------------------------------

  @abc.abstractmethod
  def problems(self, tasks: Sequence[str]) -> Mapping[str, Problem]:
    """Returns name -> problem of these tasks; names are unique.

    RL draws from those of the held-in tasks; evaluation asks those of all tasks.
    """

  @abc.abstractmethod
  def carry_out(self, problem: Problem, response: str, job_id: str) -> Carried:
    """Carries out a response; any response, valid or not, ends in a record.

    Blocking; called from many threads at once. What it raises of its own code (a
    KeyError, say) ends the run with a message; an OSError or a RuntimeError counts as
    an infrastructure error, and the response is carried out again.

    job_id: of the execution, for `run_program`.
    """

  def demonstrations(self) -> Iterable[tuple[Problem, str]]:
    """Returns problems with responses that SFT learns from; none: no SFT."""
    return ()

  def validation_problems(self, tasks: Sequence[str]) -> Mapping[str, Problem]:
    """Returns name -> problem for validations during RL; none: no validation.

    tasks: the held-in ones. RL should not train on these problems.
    """
    return {}

  def metrics(self, records: Sequence[types.Record]) -> Mapping[str, float]:
    """Returns metrics of its own for the records of an update."""
    return {}

  # For use in `carry_out` -----------------------------------------------------

  def run_program(self, task: str, code: str, job_id: str) -> Run:
    """Runs a program in the sandbox and grades what it submits."""
    env = self.context.env
    return env.run_script(
      task,
      {SCRIPT: code},
      SCRIPT,
      ScriptCall(job_id=job_id, deadline=env.step_deadline()),
      Outputs(own_work=True),
    )

  def fields_of(self, task: str, run: Run) -> dict[str, Any]:
    """Returns what every record holds of an execution: outcome, score, seconds, ..."""
    execution = run.execution
    return {
      'task': task,
      'outcome': run.outcome,
      'score_after': run.score,
      'measured': run.measured,
      'observation': truncate(execution.output, MAX_OUTPUT_CHARS),
      'exec_s': execution.exec_s,
      'queue_s': execution.queue_s,
      'startup_s': execution.startup_s,
      'cpu_s': execution.cpu_s,
      'tier': execution.tier,
      'untrusted': label_sources.untrusted(
        self.context.spec(task), execution.tier
      ),
    }

  # The stages -----------------------------------------------------------------

  def prepare(self) -> None:
    self._shown = list(self.demonstrations())
    self._check_problems(self.problems(self.context.heldin))

  def _check_problems(self, found: Mapping[str, Problem]) -> None:
    """Raises UserError where RL cannot draw from problems; before any long work."""
    where = f'recipe {self.name!r}: {modules.place_of(type(self))}.problems'
    for name, problem in found.items():
      if not (isinstance(problem, Problem) and problem.prompt):
        raise UserError(
          f'{where} gives {problem!r:.80} for {name!r}; it must give a Problem with a '
          'prompt.'
        )
    rl = self.config.rl
    if self.runs_rl and len(found) * rl.group_size < rl.batch_size:
      raise UserError(
        f'config.rl.batch_size={rl.batch_size} is more than the {len(found)} problems '
        f'of {where}, config.rl.group_size={rl.group_size} responses to each; lower '
        'rl.batch_size, or give more tasks or problems.'
      )

  @property
  def fine_tunes(self) -> bool:
    return bool(self._shown)

  @property
  def validates(self) -> bool:
    own = type(self).validation_problems
    return own is not OneTurn.validation_problems

  def texts(self) -> Iterable[str]:
    for problem, response in self._shown:
      yield problem.prompt
      yield response
    for conversation in self.imported:
      yield conversation.prompt
      yield conversation.response
    tasks = self.context.heldin + self.context.heldout
    for problem in self.problems(tasks).values():
      yield problem.prompt

  def check_tokenizer(self, tokenizer: Any) -> None:
    most = self.config.rollout.max_prompt_tokens
    for name, problem in self.problems(self.context.heldin).items():
      if (length := len(tokenizer.encode_prompt(problem.prompt))) > most:
        raise UserError(
          f'config.rollout.max_prompt_tokens={most} is below the {length} tokens '
          f'of problem {name!r}; give --config.rollout.max_prompt_tokens={length} '
          'or more.'
        )

  def rows(self) -> list[sft.Row]:
    from jaxagent.training import sft

    made = sft.rows(
      ((ids_of(self.policy, p.prompt), text) for p, text in self._shown),
      self.policy,
    )
    if not made:
      raise UserError(
        f'config.rollout.max_new_tokens={self.policy.sampling.max_new_tokens} is '
        f'too short for every demonstration of recipe {self.name!r}; raise it.'
      )
    return made

  def workflow(self) -> OneTurnWorkflow:
    return OneTurnWorkflow(self, self.problems(self.context.heldin))

  def evaluate(self, label: str) -> None:
    OneTurnEvaluation(
      self,
      label,
      self.problems(self.context.heldin + self.context.heldout),
      self.config.eval.trajectories_per_task,
    ).run()

  def collected_plan(self, tasks: int) -> str:
    return 'demonstrations of the recipe'

  def evaluated_plan(self, tasks: int) -> str:
    runs = self.config.eval.trajectories_per_task
    return f'{runs} responses to each problem of {tasks} tasks'


def ids_of(policy: PolicySampler, prompt: str) -> np.ndarray:
  """Returns the ids of a prompt's text, int32 [P]; its beginning is cut if need be."""
  ids = policy.tokenizer.encode_prompt(prompt, policy.max_prompt_tokens)
  return np.asarray(ids, np.int32)


class OneTurnWorkflow:
  """Rollouts of one completion and one execution.

  recipe: carries responses out; its policy is bound.
  problems: name -> problem, the pool that RL draws from.
  """

  frozen_roles: Mapping[str, FrozenRole] = {}

  def __init__(self, recipe: OneTurn, problems: Mapping[str, Problem]):
    self.name = recipe.name
    self.record_type: type[types.Record] = recipe.record_type or types.Record
    self._recipe, self._problems = recipe, problems

  def start(self, payload: Problem) -> Transition:
    ids = ids_of(self._recipe.policy, payload.prompt)
    return Transition(payload, (Generate(0, ids),))

  def advance(self, state: Problem, call: Call, result: Any) -> Transition:
    if isinstance(call, Generate):
      response = self._recipe.policy.text(result)
      return Transition(state, (Execute(1, (state, response)),))
    record = result.made
    reward = reward_of(record)
    credit = Credit(reward, result.exec_s, result.outcome, record)
    return Transition(None, credits={0: credit})

  def source(self) -> PromptSource:
    config = self._recipe.config
    return PromptSource(
      self._problems, group_size=config.rl.group_size, seed=config.seed
    )

  def validation_prompts(self) -> Mapping[str, Problem]:
    return self._recipe.validation_problems(self._recipe.context.heldin)

  def request(self, ask: GenerationRequest) -> types.Request:
    seed = seed_of(self._recipe.config.seed, 'rl', ask.key)
    return self._recipe.policy.request(ask.call.prompt, str(ask.key), seed)

  def execute(self, work: ExecutionRequest) -> types.Executed:
    problem, response = work.call.request
    return _carried_out(self._recipe, problem, response, str(work.key))[0]

  def trained(self, samples: Sequence[types.Sample]) -> Mapping[str, float]:
    turns = (turn for sample in samples for turn in sample.steps())
    records = [turn.record for turn in turns if turn.record is not None]
    with own_code(self._recipe, 'metrics') as where:
      found = {k: float(v) for k, v in self._recipe.metrics(records).items()}
    try:
      metrics.check_names(found)
    except ValueError as error:
      raise UserError(
        f'{where}: {error} Those of a recipe of your own are described in its '
        'metric_names.'
      ) from error
    return found


@contextlib.contextmanager
def own_code(
  recipe: OneTurn,
  method: str,
  kinds: tuple[type[Exception], ...] = _OWN_ERRORS,
) -> Iterator[str]:
  """Calls a method of a recipe; yields its place, for messages.

  Raises UserError, naming class, file and line, where its code is wrong: where one of
  `kinds` is raised in it, or in what it calls.
  """
  where = f'recipe {recipe.name!r}: {modules.place_of(type(recipe))}.{method}'
  try:
    yield where
  except kinds as error:
    file = getattr(sys.modules.get(type(recipe).__module__), '__file__', None)
    lines = traceback.extract_tb(error.__traceback__)
    line = next((l for l in reversed(lines) if l.filename == file), lines[-1])
    raise UserError(
      f'{where} raised {type(error).__name__}: {error} ({line.filename}, line '
      f'{line.lineno}). Fix it and rerun the same command; it resumes.'
    ) from error


def _carried_out(
  recipe: OneTurn, problem: Problem, response: str, job_id: str
) -> tuple[types.Executed, Run | None]:
  """Returns the execution of a response, and what it ran.

  Raises UserError, naming class and file, where `carry_out` has an error of its own, or
  does not return what it must.
  """
  with own_code(recipe, 'carry_out') as where:
    carried = recipe.carry_out(problem, response, job_id)
  wanted = recipe.record_type or types.Record
  record = getattr(carried, 'record', None)
  if not isinstance(carried, Carried) or not isinstance(record, wanted):
    raise UserError(
      f'{where} returned {carried!r:.80}; it must return '
      f'Carried({wanted.__qualname__}(...)). Fix it and rerun the same command; it '
      'resumes.'
    )
  executed = types.Executed(
    record.outcome,
    max(record.exec_s, FLOOR_S),
    message=record.observation,
    record=record,
  )
  return executed, carried.run


@dataclasses.dataclass(frozen=True)
class _Sampled:
  """One response of an evaluation, before it has run."""

  name: str
  problem: Problem
  index: int


class _Asked:
  """The interaction of a workflow, from the evaluation's prompts."""

  def __init__(self, workflow: OneTurnWorkflow):
    self._workflow = workflow
    self.advance = workflow.advance

  def start(self, payload: _Sampled) -> Transition:
    return self._workflow.start(payload.problem)


class OneTurnEvaluation(Evaluation):
  """The same number of responses to each of some problems.

  each: how many.
  """

  def __init__(
    self,
    recipe: OneTurn,
    label: str,
    problems: Mapping[str, Problem],
    each: int,
  ):
    self._recipe = recipe
    self._wanted = {
      f'{name}/{index}': _Sampled(name, problem, index)
      for name, problem in problems.items()
      for index in range(each)
    }
    count = len(self._wanted)
    super().__init__(recipe.context, label, f'evaluate {label}', count, count)
    self.interaction = _Asked(OneTurnWorkflow(recipe, problems))
    self.policy = rollouts.PolicyRole(recipe.policy.engine, self._request)
    self._found: dict[str, Evaluated] = {}

  def _request(self, ask: GenerationRequest) -> types.Request:
    # The same seeds for every policy: common random numbers.
    config = self._recipe.config
    seed = seed_of(config.seed, 'eval', ask.prompt.prompt_id)
    return self._recipe.policy.request(ask.call.prompt, str(ask.key), seed)

  def begin(self) -> None:
    for name, one in self._wanted.items():
      self.feed.push(name, one)

  def execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    problem, response = work.call.request
    executed, run = _carried_out(self._recipe, problem, response, job_id)
    if executed.outcome.is_infrastructure or run is None or run.score is None:
      return executed
    scores = both_scores(self.context, problem.task, run)
    return dataclasses.replace(executed, kept=scores)

  def ended(
    self, prompt: types.Prompt, progress: RolloutState | None, error: str
  ) -> None:
    done = steps_of(progress)
    steps = tuple(map(taken_step, done))
    problem = prompt.payload.problem
    record = Evaluated(
      task=problem.task,
      index=len(self._found),
      split=split_of(self.context, problem.task),
      score=steps[-1].private if steps and not error else None,
      whole=steps[-1].whole if steps and not error else None,
      steps=steps,
      missing=bool(error),
      reason=in_one_line(error),
    )
    self._found[prompt.prompt_id] = record
    if error:
      self.missing.append(record)

  def records(self) -> list[Evaluated]:
    return [
      dataclasses.replace(self._found[name], index=index)
      for index, name in enumerate(self._wanted)
    ]
