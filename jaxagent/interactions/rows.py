"""Training rows of a finished interaction, from the sampled ids alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxagent.interactions.calls import Credit, Generate
from jaxagent.types import Completion, Prompt, Sample, Turn


class _Row:
  """Turns one after the other; what lies between two is observation."""

  def __init__(self, prompt_ids: np.ndarray):
    self.prompt_ids = np.asarray(prompt_ids, np.int32)
    self.ids: list[np.ndarray] = []
    self.mask: list[np.ndarray] = []
    self.logprobs: list[np.ndarray] = []
    self.turns: list[Turn] = []
    self.length = 0

  @property
  def whole(self) -> np.ndarray:
    return np.concatenate([self.prompt_ids, *self.ids])

  def observe(self, ids: np.ndarray) -> None:
    self._add(ids, np.zeros(len(ids), bool), np.zeros(len(ids), np.float32))

  def act(self, completion: Completion, credit: Credit) -> None:
    ids = np.asarray(completion.token_ids, np.int32)
    start = self.length
    learned = credit.reason is None
    logprobs = np.asarray(completion.logprobs, np.float32)
    self._add(ids, np.full(len(ids), learned), logprobs)
    if learned:
      self.turns.append(
        Turn(
          start=start,
          end=self.length,
          version=completion.version,
          outcome=credit.outcome,
          reward=credit.value,
          exec_s=credit.exec_s,
          record=credit.record,
          finish_reason=completion.finish_reason,
        )
      )

  def _add(
    self, ids: np.ndarray, mask: np.ndarray, logprobs: np.ndarray
  ) -> None:
    self.ids.append(np.asarray(ids, np.int32))
    self.mask.append(mask)
    self.logprobs.append(logprobs)
    self.length += len(ids)

  def sample(self, prompt: Prompt) -> Sample:
    last = self.turns[-1]
    return Sample(
      prompt_id=prompt.prompt_id,
      group_id=prompt.group_id,
      prompt_ids=self.prompt_ids,
      token_ids=np.concatenate(self.ids),
      loss_mask=np.concatenate(self.mask),
      behaviour_logprobs=np.concatenate(self.logprobs),
      version=min(t.version for t in self.turns),
      outcome=last.outcome,
      reward=sum(t.reward for t in self.turns),
      exec_s=sum(t.exec_s for t in self.turns),
      record=last.record,
      turns=tuple(self.turns),
    )


def rows(
  prompt: Prompt,
  completions: Sequence[tuple[Generate, Completion]],
  credits: Mapping[int, Credit],
) -> tuple[Sample, ...]:
  """Rows in which each token of a credited call is trained exactly once.

  A call whose prompt begins with all of an earlier row, prompt and responses,
  extends that row, and what its prompt adds is observation. Any other
  call (a template that leaves old turns out, a fork) begins a row, whose
  prompt is what the call was shown: nothing is tokenised again.

  A row's `later_reward` is the sum of the rewards in the rows after it, which
  its own returns would otherwise lack. Rows without a credited token are left
  out.
  """
  made: list[_Row] = []
  for call, completion in completions:
    if len(completion.token_ids) == 0:
      continue  # there is nothing to learn from no token
    shown = np.asarray(call.prompt, np.int32)
    row = _extended(made, shown)
    if row is None:
      row = _Row(shown)
      made.append(row)
    else:
      row.observe(shown[len(row.prompt_ids) + row.length :])
    row.act(completion, credits[call.call])
  return with_later_rewards([row.sample(prompt) for row in made if row.turns])


def with_later_rewards(samples: Sequence[Sample]) -> tuple[Sample, ...]:
  """The rows with each one's `later_reward` set from the rows after it.

  samples: those of an interaction in their order; there may be several ones.
  """
  later: dict[str, float] = {}
  done = []
  for sample in reversed(samples):
    rest = later.get(sample.prompt_id, 0.0)
    done.append(dataclasses.replace(sample, later_reward=rest))
    later[sample.prompt_id] = rest + sample.reward
  return tuple(reversed(done))


def _extended(made: Sequence[_Row], shown: np.ndarray) -> _Row | None:
  """The latest row that `shown` begins with, or None."""
  for row in reversed(made):
    length = len(row.prompt_ids) + row.length
    if length <= len(shown) and np.array_equal(row.whole, shown[:length]):
      return row
  return None
