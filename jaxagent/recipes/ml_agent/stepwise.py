"""Step-wise RL (paper 000, section 4.2): one action from one expert state.

A state comes from the pool, the policy answers, the answer is carried out,
and the reward of equation 6 is credited to it. A trajectory has one step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxagent import types
from jaxagent.data.prompts import PromptSource
from jaxagent.recipes.ml_agent import steps
from jaxagent.recipes.ml_agent.trajectory import Trajectory
from jaxagent.records import StepRecord
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.training.policy import PolicySampler, seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


class StepwiseWorkflow(Trajectory):
  """Trajectories of one step.

  Args:
    context: tasks, sandbox, environment.
    pool: state id -> State, the training states.
    policy: samples with the learner's parameters.
    starts: task -> the state that validations start from, its starter's.
    max_steps, time_limit_s: of a trajectory.
  """

  name = 'stepwise'
  record_type = StepRecord

  def __init__(
    self,
    context: RunContext,
    pool: Mapping[str, types.State],
    policy: PolicySampler,
    *,
    starts: Mapping[str, types.State] = {},
    max_steps: int = 1,
    time_limit_s: float = math.inf,
  ):
    switches = steps.switches(context.config)
    super().__init__(
      policy.prompt_ids,
      policy.text,
      max_steps=max_steps,
      time_limit_s=time_limit_s,
      reward=lambda done: done.made.derive(switches),
    )
    self._context, self._pool, self._policy = context, pool, policy
    self._starts = starts

  def source(self) -> PromptSource:
    config = self._context.config
    return PromptSource(
      self._pool, group_size=config.rl.group_size, seed=config.seed
    )

  def validation_prompts(self) -> Mapping[str, types.State]:
    return self._starts

  def request(self, ask: GenerationRequest) -> types.Request:
    seed = seed_of(self._context.config.seed, 'rl', ask.key)
    return self._policy.request(ask.call.prompt, str(ask.key), seed)

  @property
  def frozen_roles(self) -> Mapping[str, FrozenRole]:
    return {}

  def execute(self, work: ExecutionRequest) -> types.Executed:
    action = work.call.request
    return steps.execute(
      self._context,
      action.state,
      action.response,
      job_id=str(work.key),
      most_s=action.left_s,
    )

  def trained(self, samples: Sequence[types.Sample]) -> Mapping[str, float]:
    return {}
