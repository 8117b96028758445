"""Training rows of SFT: from the experts' steps, or from conversations of a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.config.agents import prompter_of
from jaxagent.data import conversations
from jaxagent.data.conversations import Conversation
from jaxagent.data.expert_steps import training_steps
from jaxagent.data.records import state_of
from jaxagent.errors import UserError
from jaxagent.records import Collected
from jaxagent.training import sft

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.runtime.context import RunContext
  from jaxagent.training.policy import PolicySampler


def imported(config: ConfigDict) -> list[Conversation]:
  """Returns the conversations of `config.sft.conversations`; [] if none are given.

  Raises UserError where the file is not what it should be.
  """
  path = config.sft.conversations
  if not path:
    return []
  try:
    found = conversations.read(path)
  except (ValueError, OSError) as error:
    raise UserError(f'config.sft.conversations: {error}') from error
  if config.sft.deduplicate:
    found = list(conversations.distinct(found))
  return found


def texts(found: Sequence[Conversation]) -> Iterator[str]:
  """Yields prompts and responses, for a tokenizer to be trained on."""
  return itertools.chain.from_iterable((c.prompt, c.response) for c in found)


def step_texts(
  context: RunContext, records: Sequence[Collected]
) -> Iterator[str]:
  """Yields prompts and responses of expert steps."""
  prompter = prompter_of(context.config)
  for record in records:
    for step in record.steps:
      state = state_of(step, context.env.store.get)
      yield prompter.text(state, context.spec(state.task))
      yield step.record.response


def rows_of_imported(
  found: Sequence[Conversation], policy: PolicySampler
) -> list[sft.Row]:
  """Returns the rows of the conversations that fit the policy's limits.

  Prints how many do not fit. Raises UserError where none does.
  """
  room = policy.max_prompt_tokens
  asked = (
    (np.asarray(policy.tokenizer.encode_prompt(c.prompt), np.int32), c.response)
    for c in found
  )
  rows = sft.rows(((ids, r) for ids, r in asked if len(ids) <= room), policy)
  _tell(
    len(rows), len(found), 'conversations', 'config.sft.conversations', policy
  )
  return rows


def rows_of_steps(
  context: RunContext, records: Sequence[Collected], policy: PolicySampler
) -> list[sft.Row]:
  """Returns the rows of the experts' steps, prompted as the policy will be.

  Prints how many do not fit the policy's limits. Raises UserError where SFT is asked
  for and none does.
  """
  config, total = context.config.sft, 0

  def asked() -> Iterator[tuple[np.ndarray, str]]:
    nonlocal total
    improved = config.steps == 'improved'
    for state, record in training_steps(
      records, context.env.store.get, improved=improved
    ):
      total += 1
      yield policy.prompt_ids(state), record.response

  rows = sft.rows(asked(), policy)
  if config.epochs:
    what = f"the experts' steps (config.sft.steps={config.steps})"
    _tell(len(rows), total, 'steps of the experts', what, policy)
  return sft.distinct(rows) if config.deduplicate else rows


def _tell(
  kept: int, total: int, kind: str, source: str, policy: PolicySampler
) -> None:
  """Prints how many are left out; raises UserError where all are."""
  limits = (
    f'config.rollout.max_prompt_tokens={policy.max_prompt_tokens}, '
    f'max_new_tokens={policy.sampling.max_new_tokens}'
  )
  if not kept:
    raise UserError(
      f'{source}: 0 of {total} {kind} fit within {limits}; raise these limits, or '
      'give others.'
    )
  if kept < total:
    print(
      f'sft: {total - kept} of {total} {kind} are left out: longer than {limits}'
    )
