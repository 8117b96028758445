"""Whole solutions (paper 003): a plan and a program, run and graded.

A prompt asks for a solution, or for a better one than one that was run before.
The program gets its marks by syntax, or by a frozen model that is asked first;
it is run and graded once, and the reward of section 3.2 is credited to it. What
was valid may be improved upon later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import types
from jaxagent.config import endpoints
from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution import Previous, SolutionError, Task, parse
from jaxagent.envs.solution_env import SolutionEnvironment
from jaxagent.instrumentation import language_model
from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Transition,
)
from jaxagent.options import as_dict
from jaxagent.recipes.solutions import operators
from jaxagent.records import SolutionRecord
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime import text_models
from jaxagent.runtime.text_models import ProgramModel, answer_of
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.runtime.context import RunContext

INSTRUMENTER = 'instrumenter'


class SolutionWorkflow:
  """One solution from one prompt.

  Args:
    config: of the run.
    env: carries out responses.
    source: prompts; gets the solutions that may be improved upon.
    prompt: Task -> its ids, int32 [P], or of a prompted model its text.
    author: writes the programs: the policy, sampled with the learner's parameters, or a
      prompted model.
    ask: the frozen model that instruments: its prompt -> its answer, '' where it
      gives none; thread-safe. None where no model does.
    role: the author's; a frozen one gets no credit.
  """

  name = 'solution'
  record_type = SolutionRecord

  def __init__(
    self,
    config: ConfigDict,
    env: SolutionEnvironment,
    source: SolutionSource,
    prompt: Callable[[Task], Any],
    author: PolicySampler | ProgramModel,
    ask: Callable[[str], types.TextCompletion] | None = None,
    role: str = POLICY,
  ):
    self.env, self.ask, self.role = env, ask, role
    self._config, self._source = config, source
    self._prompt, self.author = prompt, author

  # The interaction -------------------------------------------------------------

  def start(self, payload: Task) -> Transition:
    asked = Generate(0, self._prompt(payload), self.role)
    return Transition((payload, ''), (asked,))

  def advance(
    self, state: tuple[Task, str], call: Call, result: Any
  ) -> Transition:
    if isinstance(call, Execute):
      record: SolutionRecord = result.record
      credit = Credit(record.derive(), result.exec_s, result.outcome, record)
      return Transition(
        None, credits={0: credit} if self.role == POLICY else {}
      )
    task, response = state
    if call.role == INSTRUMENTER:
      request = (task, response, answer_of(result))
      return Transition(state, (Execute(2, request),))
    response = self.author.text(result)
    code = _code(response) if self.ask else ''
    if code:
      question = language_model.prompt(code)
      return Transition(
        (task, response), (Generate(1, question, INSTRUMENTER),)
      )
    return Transition((task, response), (Execute(2, (task, response, None)),))

  # Its surroundings ------------------------------------------------------------

  def source(self) -> SolutionSource:
    return self._source

  def validation_prompts(self) -> Mapping[str, Task]:
    """Returns each task of the source, to be solved from scratch."""
    return {name: Task(name) for name in self._source.tasks}

  def request(self, ask: GenerationRequest) -> types.Request:
    if isinstance(self.author, ProgramModel):
      raise ValueError('a prompted model is not trained; it has no requests.')
    seed = seed_of(self._config.seed, 'rl', ask.key)
    return self.author.request(ask.call.prompt, str(ask.key), seed)

  @property
  def frozen_roles(self) -> Mapping[str, FrozenRole]:
    if self.ask is None:
      return {}
    ask = self.ask
    return {
      INSTRUMENTER: FrozenRole(
        lambda asked: ask(asked.call.prompt),
        endpoints.max_concurrency(self._config, INSTRUMENTER),
      )
    }

  def execute(self, work: ExecutionRequest) -> types.Executed:
    task, response, answer = work.call.request
    told, _ = self.env.solve(task, response, answer, job_id=str(work.key))
    return told

  def trained(self, samples: Sequence[types.Sample]) -> dict[str, float]:
    """Keeps solutions that may be improved upon; returns metrics of the batch."""
    turns = [turn for sample in samples for turn in sample.steps()]
    records = [
      turn.record for turn in turns if isinstance(turn.record, SolutionRecord)
    ]
    best = {r.task: self._source.best(r.task) for r in records}
    found = figures(records) | operators.figures(records, best)
    for record in records:
      if record.valid_action:
        self._keep(record)
    return found

  def _keep(self, record: SolutionRecord) -> None:
    """Lets a program be improved upon, or a failure be debugged."""
    shown, task = shown_of(record), record.task
    if shown.score is not None or self._config.solution.keep_failed:
      self._source.keep(
        task, shown.solution, shown.output, record.merit, shown.score
      )
    if shown.score is None:
      parent = record.improves if record.kind == 'debug' else ''
      self._source.fail(task, shown, parent)


def shown_of(record: SolutionRecord) -> Previous:
  """Returns a solution that was run, as prompts show it."""
  return Previous(
    parse(record.response),
    record.observation,
    record.outcome.value,
    record.message,
    record.score_after,
  )


def make_workflow(
  context: RunContext,
  author: PolicySampler | ProgramModel,
  prompt: Callable[[Task], Any],
  role: str = POLICY,
) -> SolutionWorkflow:
  """Makes the workflow of a run.

  prompt: task -> what the author is shown.
  """
  config = context.config
  options = config.solution
  env = SolutionEnvironment(
    context.env,
    instrumenter=config.instrumenter.kind,
    scale=options.scale,
    failure=options.failure,
  )
  source = SolutionSource(
    context.heldin,
    group_size=config.rl.group_size,
    # An epoch fills a batch, be it of a single task.
    repeats=-(
      -config.rl.batch_size // (config.rl.group_size * len(context.heldin))
    ),
    improve=options.improve,
    operators=as_dict(options.operators),
    most=options.kept,
    parents=options.parents,
    seed=config.seed,
  )
  ask = text_models.make_instrumenter(config, context.work)
  return SolutionWorkflow(config, env, source, prompt, author, ask, role)


def _code(response: str) -> str:
  try:
    return parse(response).code
  except SolutionError:
    return ''


def figures(records: Sequence[SolutionRecord]) -> dict[str, float]:
  """Returns the metrics of one batch; a mean over nothing is left out."""
  failed = [r for r in records if r.score_after is None]
  ran = [r for r in records if r.ran]

  def mean(name: str, values) -> dict[str, float]:
    values = list(values)
    return {f'solution/{name}': float(np.mean(values))} if values else {}

  found = {
    **mean('valid_rate', (r.score_after is not None for r in records)),
    **mean('improve_rate', (bool(r.improves) for r in records)),
    **mean('milestones', (len(r.milestones) for r in failed)),
    **mean('refused_rate', (bool(r.refused) for r in ran)),
  }
  for task in sorted({r.task for r in records}):
    scores = [
      r.score_after
      for r in records
      if r.task == task and r.score_after is not None
    ]
    found |= mean(f'score/{task}', scores)
  return found
