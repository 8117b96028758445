"""Episode-wise RL (paper 000, section 5.3 and figure 4): step-wise's baseline.

The policy rolls out whole trajectories from the task's starter. Every step has
the reward of equation 6; a step's return is their sum from there to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxagent.recipes.ml_agent.stepwise import StepwiseWorkflow
from jaxagent.recipes.starts import Start
from jaxagent.training.policy import PolicySampler

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


class EpisodewiseWorkflow(StepwiseWorkflow):
  """Trajectories of up to `config.episode.max_steps` steps.

  Args:
    context: tasks, sandbox, environment.
    starts: held-in task -> where its trajectories start.
    policy: samples with the learner's parameters.
  """

  name = 'episodewise'

  def __init__(
    self,
    context: RunContext,
    starts: Mapping[str, Start],
    policy: PolicySampler,
  ):
    config = context.config
    # An epoch of the source fills a batch, however few tasks there are.
    repeats = -(-config.rl.batch_size // (config.rl.group_size * len(starts)))
    pool = {
      f'{task}/{i}': start.state
      for task, start in starts.items()
      for i in range(repeats)
    }
    super().__init__(
      context,
      pool,
      policy,
      starts={task: start.state for task, start in starts.items()},
      max_steps=config.episode.max_steps,
      time_limit_s=config.episode.time_limit_s,
    )
