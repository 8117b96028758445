"""Converts results of environment steps to records and executions."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.config import task_checks
from jaxagent.config.agents import prompter_of
from jaxagent.envs.specs import label_sources
from jaxagent.errors import UserError
from jaxagent.records import StepRecord
from jaxagent.rewards import ml_agent

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.envs.step_env import StepResult
  from jaxagent.recipes.starts import Start
  from jaxagent.runtime.context import RunContext


def execute(
  context: RunContext,
  state: types.State,
  text: str,
  *,
  job_id: str,
  most_s: float = math.inf,
) -> types.Executed:
  """Carries out a response on the validation split.

  Its `state` is where the next step starts, None after Final Answer.
  """
  result = context.env.step(
    state,
    text,
    split='valid',
    job_id=job_id,
    most_s=most_s,
  )
  return executed(context, state, text, result)


def executed(
  context: RunContext, state: types.State, text: str, result: StepResult
) -> types.Executed:
  """Converts a StepResult to an Executed."""
  return types.Executed(
    outcome=result.outcome,
    exec_s=result.exec_s,
    state=result.state,
    message=result.message,
    record=record_of(context, state, text, result),
  )


def switches(config: ConfigDict) -> dict[str, bool]:
  """Returns the switches of the reward that RL trains on, of `config.reward`."""
  return {name: config.reward[name] for name in ml_agent.SWITCHES}


def whole_reward(executed: types.Executed) -> float | types.NoReward:
  """Returns the reward of equation 6 of paper 000 with all its terms."""
  return executed.made.derive()


def kept_files(
  context: RunContext, state: types.State, result: StepResult
) -> dict:
  """Returns the fields of `records.TakenStep` that name a step's files.

  `workspace_id` and `submission` (digest, bytes) are in the store of states.
  """
  store = context.env.store
  kept: dict[str, Any] = {'workspace_id': store.put(result.state or state)}
  execution = result.execution
  if execution is None:
    return kept
  data = execution.collected.get(context.spec(state.task).submission)
  if data is not None and (blob := store.put_bytes(data)) is not None:
    kept['submission'] = (blob.digest, blob.size)
  return kept


def completion_record(
  context: RunContext,
  prompt: str,
  result: types.Completion | types.TextCompletion | str,
) -> dict:
  """Returns the fields of `records.TakenStep` that a completion has.

  `prompt` (digest, bytes) is in the store of states.
  """
  found: dict[str, Any] = {}
  data = prompt.encode('utf-8', 'surrogatepass')
  if data and (blob := context.env.store.put_bytes(data)) is not None:
    found['prompt'] = (blob.digest, blob.size)
  if isinstance(result, types.Completion):
    found['prompt_tokens'] = len(result.prompt_ids)
    found['tokens'] = len(result.token_ids)
  if isinstance(result, types.TextCompletion):
    found |= result.cost
  return found


def record_of(
  context: RunContext, state: types.State, text: str, result: StepResult
) -> StepRecord:
  """Returns the record of a StepResult."""
  execution, spec = result.execution, context.spec(state.task)
  tier = execution.tier if execution else None
  return StepRecord(
    task=state.task,
    outcome=result.outcome,
    exec_s=result.exec_s,
    state_id=state.state_id,
    step=state.step,
    response=str(text),
    action=result.action,
    args=dict(result.args),
    entries=dict(result.entries),
    timestamp=time.time(),
    valid_action=result.valid_action,
    is_edit=result.is_edit,
    undone=result.undone,
    score_before=result.score_before,
    score_after=result.score,
    measured=result.measured,
    alpha=spec.alpha if spec.has_scale else None,
    diff=result.diff,
    observation=result.observation,
    tier=tier,
    untrusted=label_sources.untrusted(spec, tier),
    queue_s=execution.queue_s if execution else 0.0,
    startup_s=execution.startup_s if execution else 0.0,
    cpu_s=execution.cpu_s if execution else 0.0,
    recorded=bool(execution and execution.recorded),
    **{f'{role}_thoughts': said for role, said in result.thoughts.items()},
  )


def check_prompts(
  context: RunContext, tokenizer: Any, starts: Mapping[str, Start]
) -> None:
  """Raises UserError where even the shortest prompt would be cut."""
  prompter = prompter_of(context.config)
  shortest = min(
    len(
      tokenizer.encode_prompt(
        prompter.text(start.state, context.spec(task), lambda text: False)
      )
    )
    for task, start in starts.items()
  )
  if complaint := task_checks.too_short(context.config, shortest):
    raise UserError(complaint)
