"""What the Ideator is trained on: ideas to states of the pool, carried out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import types
from jaxagent.analysis import collapse
from jaxagent.data.prompts import PromptSource
from jaxagent.envs.implementer_env import ImplementerEnvironment
from jaxagent.envs.implementer_state import ImplementerState
from jaxagent.interactions import Call, Transition
from jaxagent.recipes.ideator import prompt as texts
from jaxagent.recipes.ideator import roles
from jaxagent.recipes.ideator.interaction import (
  IMPLEMENTER,
  HelpState,
  Ideas,
  execute,
  shown_state,
)
from jaxagent.recipes.ideator.pool import Pool
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.recipes.one_turn import ids_of
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.stand_ins.ideator import compact_prompt, family_of
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


def environment(context: RunContext) -> ImplementerEnvironment:
  """Returns the environment that carries an Implementer's programs out."""
  return ImplementerEnvironment(
    context.env, carry_mb=context.config.env.carry_mb
  )


def make_ideas(
  context: RunContext,
  prompt: Callable[[HelpState], np.ndarray],
  text: Callable[[Any], str],
) -> Ideas:
  """Makes the interaction of one idea, by `config.ideator`."""
  options = context.config.ideator

  def family(action: str, task: str) -> str:
    spec = context.spec(task)
    return family_of(action, spec.kind, spec.modality)

  return Ideas(
    prompt,
    text,
    before=options.before,
    margin=options.margin,
    first_score=options.first_score,
    family_of=family,
  )


class Prompts:
  """State -> the text of the policy's prompt.

  The compact style for tiny policies; the full one is appendix D's, with as much of
  the trace as `ideator.max_trace_tokens` takes.
  """

  def __init__(self, context: RunContext):
    self._context, self._template = context, roles.template_of(context)

  def text(
    self,
    state: ImplementerState,
    count: Callable[[str], int] = len,
    spec: types.TaskSpec | None = None,
  ) -> str:
    """Returns the prompt.

    count: number of tokens of a text. spec: what is said of the task; None: its own.
    """
    spec = spec or self._context.spec(state.task)
    options = self._context.config.ideator
    if self._context.config.rollout.prompt_style == 'compact':
      return compact_prompt(state, spec)
    return texts.prompt(
      shown_state(state, spec, options.before),
      count,
      max_trace_tokens=options.max_trace_tokens,
      template=self._template,
    )

  def ids(
    self,
    state: ImplementerState,
    policy: PolicySampler,
    spec: types.TaskSpec | None = None,
  ) -> np.ndarray:
    """Returns the ids of `text`, int32 [P]."""
    encode = policy.tokenizer.encode_prompt
    return ids_of(
      policy, self.text(state, lambda text: len(encode(text)), spec)
    )


class IdeaWorkflow:
  """Rollouts of one idea: a completion, one message of the Implementer, one execution.

  context: tasks, sandbox, environment.
  pool: states to train on, and to validate on.
  policy: samples with the learner's parameters.
  """

  name = 'ideator'
  record_type = IdeaRecord

  def __init__(self, context: RunContext, pool: Pool, policy: PolicySampler):
    self._context, self._pool, self._policy = context, pool, policy
    self._prompts = Prompts(context)
    self._env = environment(context)
    self._ideas = make_ideas(context, self._ids, policy.text)
    self._roles = {IMPLEMENTER: roles.implementer(context)}

  def _ids(self, item: HelpState) -> np.ndarray:
    return self._prompts.ids(item.state, self._policy)

  def start(self, payload: HelpState) -> Transition:
    return self._ideas.start(payload)

  def advance(self, state: Any, call: Call, result: Any) -> Transition:
    return self._ideas.advance(state, call, result)

  @property
  def frozen_roles(self) -> Mapping[str, FrozenRole]:
    return self._roles

  def source(self) -> PromptSource:
    config = self._context.config
    return PromptSource(
      {item.key: item for item in self._pool.train},
      group_size=config.rl.group_size,
      seed=config.seed,
    )

  def validation_prompts(self) -> Mapping[str, HelpState]:
    """Returns the pool's states of other runs than those it trains on."""
    return {item.key: item for item in self._pool.valid}

  def request(self, ask: GenerationRequest) -> types.Request:
    seed = seed_of(self._context.config.seed, 'rl', ask.key)
    return self._policy.request(ask.call.prompt, str(ask.key), seed)

  def execute(self, work: ExecutionRequest) -> types.Executed:
    return execute(self._env, work.call.request, str(work.key))

  def trained(self, samples: Sequence[types.Sample]) -> Mapping[str, float]:
    """Returns metrics of a batch; what is not known of it is left out."""
    groups: dict[str, list[float]] = {}
    records: list[IdeaRecord] = []
    for sample in samples:
      for turn in sample.steps():
        groups.setdefault(sample.group_id, []).append(turn.reward)
        if isinstance(turn.record, IdeaRecord):
          records.append(turn.record)
    return figures(list(groups.values()), records)


def figures(
  groups: Sequence[Sequence[float]], records: Sequence[IdeaRecord]
) -> dict[str, float]:
  """Returns `Ideator.metric_names` of a batch of ideas, by group and all together."""
  ideas = [r for r in records if r.valid_action]
  best = collapse.best_beside_mean(groups) or (None, None)
  found: dict[str, float | None] = {
    'mixed_groups': collapse.mixed_share(groups),
    'distinct_ideas': collapse.distinct_share(
      [str(r.entries.get('ACTION', '')) for r in ideas]
    ),
    'type_entropy': collapse.entropy([r.idea_type for r in ideas]),
    'best_of_8': best[0],
    'mean_of_8': best[1],
    'best_is_not_last': (
      sum(r.behind_best for r in records) / len(records) if records else None
    ),
  }
  for record in records:
    name = f'result/{record.result.value}'
    found[name] = (found.get(name) or 0.0) + 1 / len(records)
  return {f'ideator/{n}': v for n, v in found.items() if v is not None}
