"""Whole solutions (paper 003): a plan and a program, run and graded.

A prompt asks for a solution, or for a better one than one that was run before.
The program gets its marks by syntax, or by a frozen model that is asked first;
it is run and graded once, and the reward of section 3.2 is credited to it. What
was valid may be improved upon later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxagent import types
from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution import SolutionError, Task, parse
from jaxagent.envs.solution_env import SolutionEnvironment
from jaxagent.instrumentation import language_model
from jaxagent.interactions import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Step,
)
from jaxagent.loops import endpoints
from jaxagent.loops.policy import Policy, seed_of
from jaxagent.loops.text_models import Writer, answer_of
from jaxagent.rewards import mle
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.rollout.work import Ask, Work

INSTRUMENTER = 'instrumenter'


class Solutions:
  """One solution from one prompt.

  Args:
    config: of the run.
    env: carries out responses.
    source: prompts; gets the solutions that may be improved upon.
    prompt: Task -> its ids, int32 [P].
    author: who writes the programs: samples with the learner's parameters, or is a
      prompted model.
    ask: the frozen model that instruments: its prompt -> its answer, '' where it
      gives none; thread-safe. None where no model does.
    role: the author's; a frozen one earns nothing.
  """

  name = 'solution'

  def __init__(
    self,
    config,
    env: SolutionEnvironment,
    source: SolutionSource,
    prompt: Callable[[Task], np.ndarray],
    author: Policy | Writer,
    ask: Callable[[str], types.TextCompletion] | None = None,
    role: str = POLICY,
  ):
    self.env, self.ask, self.role = env, ask, role
    self._config, self._source = config, source
    self._prompt, self.author = prompt, author

  # The interaction -------------------------------------------------------------

  def start(self, payload: Task) -> Step:
    asked = Generate(0, self._prompt(payload), self.role)
    return Step((payload, ''), (asked,))

  def advance(self, state: tuple[Task, str], call: Call, result: Any) -> Step:
    if isinstance(call, Execute):
      reward = mle.reward_of(result.outcome, result.info)
      credit = Credit(reward, result.exec_s, result.outcome, result.info)
      return Step(None, credits={0: credit} if self.role == POLICY else {})
    task, response = state
    if call.role == INSTRUMENTER:
      request = (task, response, answer_of(result))
      return Step(state, (Execute(2, request),))
    response = self.author.text(result)
    code = _code(response) if self.ask else ''
    if code:
      question = language_model.prompt(code)
      return Step((task, response), (Generate(1, question, INSTRUMENTER),))
    return Step((task, response), (Execute(2, (task, response, None)),))

  # Its surroundings ------------------------------------------------------------

  def source(self) -> SolutionSource:
    return self._source

  def request(self, ask: Ask) -> types.Request:
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

  def execute(self, work: Work) -> types.Executed:
    task, response, answer = work.call.request
    told, _ = self.env.solve(task, response, answer, job_id=str(work.key))
    return told

  def trained(self, samples: Sequence[types.Sample]) -> dict[str, float]:
    """Keeps what may be improved upon; what the batch was like."""
    turns = [turn for sample in samples for turn in sample.steps()]
    for turn in turns:
      valid = turn.info['score_after'] is not None
      if valid or (
        self._config.solution.keep_failed and turn.info['valid_action']
      ):
        solution = parse(turn.info['response'])
        self._source.keep(turn.info['task'], solution, turn.info['observation'])
    return figures(turns)


def _code(response: str) -> str:
  try:
    return parse(response).code
  except SolutionError:
    return ''


def figures(turns: Sequence[types.Turn]) -> dict[str, float]:
  """Of one batch; a mean over nothing is left out."""
  infos = [turn.info for turn in turns]
  failed = [i for i in infos if i['score_after'] is None]
  ran = [i for i in infos if i['tier']]

  def mean(name: str, values) -> dict[str, float]:
    values = list(values)
    return {f'solution/{name}': float(np.mean(values))} if values else {}

  found = {
    **mean('valid_rate', (i['score_after'] is not None for i in infos)),
    **mean('improve_rate', (bool(i['improves']) for i in infos)),
    **mean('milestones', (len(i['milestones']) for i in failed)),
    **mean('refused_rate', (bool(i['refused']) for i in ran)),
  }
  for task in sorted({i['task'] for i in infos}):
    scores = [
      i['score_after']
      for i in infos
      if i['task'] == task and i['score_after'] is not None
    ]
    found |= mean(f'score/{task}', scores)
  return found
