"""What SFT learns from: the experts' steps, or conversations of a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxagent.data import conversations
from jaxagent.data.conversations import Conversation
from jaxagent.loops import sft
from jaxagent.loops.errors import UserError


def imported(config) -> list[Conversation]:
  """Those of `config.sft.conversations`; [] without.

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
  """Prompts and responses, for a tokenizer to be trained on."""
  return itertools.chain.from_iterable((c.prompt, c.response) for c in found)


def rows_of_imported(found: Sequence[Conversation], policy) -> list[sft.Row]:
  """Of those that fit the policy's limits; how many do not is printed.

  Raises UserError where none does.
  """
  room = policy.max_prompt_tokens
  asked = (
    (np.asarray(policy.tokenizer.encode_prompt(c.prompt), np.int32), c.response)
    for c in found
  )
  rows = sft.rows(((ids, r) for ids, r in asked if len(ids) <= room), policy)
  limits = (
    f'config.rollout.max_prompt_tokens={room}, '
    f'max_new_tokens={policy.sampling.max_new_tokens}'
  )
  if found and not rows:
    raise UserError(
      f'config.sft.conversations: every one is longer than {limits}; raise them.'
    )
  if len(rows) < len(found):
    print(
      f'sft: {len(found) - len(rows)} of {len(found)} conversations are left out: '
      f'longer than {limits}'
    )
  return rows


def rows_of_steps(host, steps: Sequence[dict], policy) -> list[sft.Row]:
  """Of experts' steps, prompted as the policy will be."""
  rows = sft.rows(
    ((policy.prompt_ids(s['state']), s['response']) for s in steps), policy
  )
  return sft.distinct(rows) if host.config.sft.deduplicate else rows
