"""Validation: the rewards of a policy on prompts of their own, every few updates of RL.

It takes place between an update and its checkpoint. Its rollouts are those of the
recipe, drawn by the same engine and run in the same sandbox; prompts, journal and jobs
have names of their own. A prompt's seeds are the same after every update: common random
numbers. A validation that has ended is a file in `rl/validation/`, and a resumed run
reads it instead of drawing again.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jaxagent import audit, types
from jaxagent.checkpoint import CheckpointManager
from jaxagent.data.prompts import Feed
from jaxagent.errors import MachineryError, UserError, tolerated
from jaxagent.interactions import RolloutState
from jaxagent.records import TrainedTurn
from jaxagent.rollout.requests import ExecutionRequest
from jaxagent.runtime import kept
from jaxagent.training import rollouts
from jaxagent.training.workflow import RolloutWorkflow

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext
  from jaxagent.training.policy import PolicySampler

REWARD = 'val/reward/mean'  # what checkpoints are compared by


class ValidatedWorkflow(RolloutWorkflow, Protocol):
  """A workflow that has validation prompts."""

  def validation_prompts(self) -> Mapping[str, Any]:
    """Returns name -> payload of each prompt; names are the same in every run."""
    ...


def folder_of(work: pathlib.Path) -> pathlib.Path:
  """Returns the folder with a file for each validation."""
  return work / 'rl' / 'validation'


def file_of(work: pathlib.Path, step: int) -> pathlib.Path:
  """Returns the file of the validation after `step` updates."""
  return folder_of(work) / f'update_{step:06d}.json'


def make(
  context: RunContext, workflow: RolloutWorkflow, policy: PolicySampler
) -> Validator | None:
  """Returns what validates the policy; None where `rl.validate_every` is 0.

  Raises UserError where the recipe has no validation prompts.
  """
  if not context.config.rl.validate_every:
    return None
  made = getattr(workflow, 'validation_prompts', None)
  prompts: Mapping[str, Any] = made() if made is not None else {}
  if not prompts:
    raise UserError(
      f'config.rl.validate_every={context.config.rl.validate_every} needs validation '
      f'prompts, and recipe {workflow.name!r} has none; give its workflow '
      'validation_prompts, or set it to 0.'
    )
  return Validator(context, workflow, policy, prompts)


class Validator:
  """Validates a policy with the weights that its engine has.

  prompts: name -> payload. Each is drawn `rl.validate_samples` times.
  """

  def __init__(
    self,
    context: RunContext,
    workflow: RolloutWorkflow,
    policy: PolicySampler,
    prompts: Mapping[str, Any],
  ):
    self._context, self._workflow, self._policy = context, workflow, policy
    self._samples = context.config.rl.validate_samples
    self._asked = {
      f'validation/{name}/{sample}': payload
      for name, payload in prompts.items()
      for sample in range(self._samples)
    }

  def is_due(self, step: int) -> bool:
    """Whether there is a validation after `step` updates: after the last, too."""
    config = self._context.config.rl
    return step % config.validate_every == 0 or step == config.updates

  def run(self, step: int) -> dict[str, float]:
    """Validates the policy after `step` updates; returns the metrics.

    What was done before a kill is not done again.

    Raises:
      Interrupted: SIGTERM or Ctrl-C stopped the run.
      MachineryError: infrastructure errors ended more than a tenth of the rollouts.
      UserError: the journal is damaged, or a turn has no record.
    """
    began = time.monotonic()
    path = file_of(self._context.work, step)
    journal = path.with_suffix('.journal')
    turns = kept.kept_json(path, _turns)
    if turns is None:
      turns = self._draw(step, journal)
      _write(path, turns)
    rollouts.forget(journal)  # a kill may have come in between
    found = figures(turns, self._asked, self._samples)
    found['timing_s/testing'] = time.monotonic() - began
    return found

  def _draw(self, step: int, journal: pathlib.Path) -> list[TrainedTurn]:
    feed, title = Feed(), f'validation-{step}'
    for prompt_id, payload in self._asked.items():
      feed.push(prompt_id, payload)
    ended: dict[str, list[TrainedTurn]] = {}
    missing: list[str] = []

    def deliver(
      prompt: types.Prompt, progress: RolloutState | None, error: str
    ) -> None:
      if error or progress is None:
        missing.append(error)
      else:
        ended[prompt.prompt_id] = _turns_of(prompt, progress, step)

    rollouts.run(
      self._context,
      journal,
      rollouts.RolloutStage(
        title,
        feed,
        self._workflow,
        execute=self._execute,
        deliver=deliver,
        frozen=self._workflow.frozen_roles,
        policy=rollouts.PolicyRole(self._policy.engine, self._workflow.request),
      ),
      check=lambda: self._check_missing(title, missing),
    )
    return [t for name in self._asked for t in ended.get(name, ())]

  def _execute(self, work: ExecutionRequest, job_id: str) -> types.Executed:
    """Carries out an execution; the recipe names its job by the work's key."""
    prompt_id = job_id.removesuffix(str(work.key)) + work.key.prompt_id
    key = dataclasses.replace(work.key, prompt_id=prompt_id)
    return self._workflow.execute(dataclasses.replace(work, key=key))

  def _check_missing(self, title: str, missing: Sequence[str]) -> None:
    total = len(self._asked)
    if len(missing) > tolerated(total) or len(missing) == total:
      raise MachineryError(
        f'{title}: {len(missing)} of {total} rollouts were lost to infrastructure '
        f'errors; the last: {missing[-1]}. Fix the cause and rerun the same '
        'command; it resumes from the other rollouts.'
      )


def figures(
  turns: Sequence[TrainedTurn], asked: Collection[str], samples: int
) -> dict[str, float]:
  """Returns the metrics of a validation; a mean over nothing is left out.

  asked: ids of its rollouts. samples: of each prompt.
  """
  there = {turn.prompt_id for turn in turns}
  found = {
    'val/rollouts': float(len(there)),
    'val/missing': float(len(set(asked) - there)),
  }
  rewards = rewards_of(turns)
  if rewards:
    found[REWARD] = _mean(rewards.values())
  for task in sorted({turn.record.task for turn in turns}):
    own = rewards_of([t for t in turns if t.record.task == task])
    if own:
      found[f'val-core/{task}/reward/mean@{samples}'] = _mean(own.values())
  return found


def rewards_of(turns: Iterable[TrainedTurn]) -> dict[str, float]:
  """Returns prompt -> mean reward of its rollouts, each the sum of its turns'.

  Turns without a reward count nowhere.
  """
  rollout: dict[str, float] = collections.defaultdict(float)
  for turn in turns:
    if turn.reward is not None:
      rollout[turn.prompt_id] += turn.reward
  by_prompt: dict[str, list[float]] = collections.defaultdict(list)
  for prompt_id, reward in rollout.items():
    by_prompt[prompt_id.rsplit('/', 1)[0]].append(reward)
  return {name: _mean(own) for name, own in by_prompt.items()}


def rewards_by_step(work: pathlib.Path) -> dict[int, float]:
  """Returns updates -> mean reward of the validation after them, in order."""
  found = {}
  for path in sorted(folder_of(work).glob('update_*.json')):
    turns = kept.kept_json(path, _turns)
    if turns and (rewards := rewards_of(turns)):
      found[int(path.stem.removeprefix('update_'))] = _mean(rewards.values())
  return found


def summary(
  work: pathlib.Path, checkpoints: CheckpointManager
) -> dict[str, Any]:
  """Returns what `summary.json` says of a run's validations.

  `rewards` by number of updates; `best`, the checkpoint that is kept as the best, or
  None; `last`, the newest checkpoint; `evaluated`, the updates of the policy whose
  evaluation the summary holds. A checkpoint is {update, reward}.
  """
  rewards, steps = rewards_by_step(work), checkpoints.steps()
  last, best = (steps[-1] if steps else None), checkpoints.best_step()

  def at(step: int | None) -> dict[str, Any] | None:
    if step is None:
      return None
    return {'update': step, 'reward': rewards.get(step)}

  return {
    'rewards': {str(step): reward for step, reward in rewards.items()},
    'best': at(best),
    'last': at(last),
    'evaluated': last if best is None else best,
  }


def _turns_of(
  prompt: types.Prompt, progress: RolloutState, step: int
) -> list[TrainedTurn]:
  """Returns a record for each call of the policy in a rollout.

  Raises UserError where the recipe gave a call none.
  """
  found = []
  for call, drawn in progress.completions:
    credit = (progress.credits or {})[call.call]
    if credit.record is None:
      raise UserError(
        f'the recipe credited a call of prompt {prompt.prompt_id} without a '
        'record: pass the record of its execution to Credit (record=...).'
      )
    found.append(
      TrainedTurn(
        record=credit.record,
        prompt_id=prompt.prompt_id,
        update=step,
        version=drawn.version,
        reward=None if credit.reason else credit.value,
        prompt_tokens=len(drawn.prompt_ids),
        tokens=len(drawn.token_ids),
        finish_reason=drawn.finish_reason,
      )
    )
  return found


def _write(path: pathlib.Path, turns: Sequence[TrainedTurn]) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  sealed = list(audit.seal([turn.to_json() for turn in turns], path.stem))
  temporary = path.with_suffix('.tmp')
  temporary.write_text(json.dumps(sealed, indent=1), encoding='utf-8')
  os.replace(temporary, path)


def _turns(value: Any) -> list[TrainedTurn]:
  """Reads the turns of a validation; raises where one is damaged."""
  if not isinstance(value, list) or not value:
    raise ValueError('no list of turns')
  return [TrainedTurn.from_json(one) for one in value]


def _mean(values: Iterable[float]) -> float:
  return float(np.mean(list(values)))
