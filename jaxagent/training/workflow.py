"""What RL trains on: prompts, rollouts, executions, records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jaxagent.data.prompts import Source
from jaxagent.interactions import Interaction
from jaxagent.rollout.requests import ExecutionRequest, GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.types import Executed, Record, Request, Sample


class RolloutWorkflow(Interaction, Protocol):
  """An interaction, with its prompts, samplers and executions.

  A recipe makes one for `training.rl.run`, which is the same for all. One that has
  validation prompts (`training.validation.ValidatedWorkflow`) can be validated.

  name: in checkpoints; a run resumes those of the same name alone.
  """

  name: str

  @property
  def record_type(self) -> type[Record]:
    """Class of its records, registered with `jaxagent.records.register`."""
    ...

  def request(self, ask: GenerationRequest) -> Request:
    """Returns the engine's request for a completion of the policy."""
    ...

  @property
  def frozen_roles(self) -> Mapping[str, FrozenRole]:
    """Returns frozen role -> how its answers are drawn."""
    ...

  def source(self) -> Source:
    """Returns the source of prompts."""
    ...

  def execute(self, work: ExecutionRequest) -> Executed:
    """Carries out one execution; blocking, called from many threads."""
    ...

  def trained(self, samples: Sequence[Sample]) -> Mapping[str, float]:
    """Runs after each update with its samples; returns metrics of its own.

    Called before the checkpoint: what it changes in its source is saved with it.
    """
    ...
