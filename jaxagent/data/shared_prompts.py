"""Packing of samples whose equal prompts are computed once.

A block of a row holds a prompt without its last token, then one branch for each of
its samples: the prompt's last token, from which the first of the response is
predicted, and the response. Branches see the prompt and themselves
(`models.attention`), at the positions that they have alone. So logits, and gradients
but for the order of additions, are those of samples that lie apart. NumPy only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxagent.data.batching import Packing, pack_tokens


@dataclasses.dataclass(frozen=True)
class SharedPacking:
  """Places of N samples, whose tails alone are their own.

  tails: of the samples, each from the last token of its prompt on.
  prompts: of K prompts without their last tokens; a prompt stands once in each block.
  branch: int [N], 1, 2, .. within its block.
  prompt_of: int [N], index into `prompts`.
  """

  tails: Packing
  prompts: Packing
  branch: np.ndarray
  prompt_of: np.ndarray

  @property
  def n_micro(self) -> int:
    """Micro-batches."""
    return self.tails.n_micro

  @property
  def row_tokens(self) -> int:
    """Tokens of a row."""
    return self.tails.row_tokens

  @property
  def texts(self) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the texts that are computed, and tokens that each sees before it."""
    heads, own = self.prompts.length, self.tails.length
    before = np.concatenate([np.zeros_like(heads), heads[self.prompt_of]])
    return np.concatenate([heads, own]), before

  @property
  def efficiency(self) -> float:
    """Real tokens over padded tokens."""
    return float(self.texts[0].sum()) / float(np.prod(self.tails.shape))

  def unpack(
    self, packed: np.ndarray, skip: np.ndarray, width: int
  ) -> np.ndarray:
    """Unpacks as `Packing` does; of a tail one token, not `skip`, is prompt."""
    return self.tails.unpack(packed, np.ones_like(skip), width)

  def scatter(self, values: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """Scatters as `Packing` does; of a tail one token, not `skip`, is prompt."""
    return self.tails.scatter(values, np.ones_like(skip))

  def arrays(
    self, sequences: Sequence[np.ndarray], skip: np.ndarray, pad_id: int
  ) -> dict[str, np.ndarray]:
    """Sequences that were planned -> int32 [M, B, T] each, by name."""
    _, one = np.unique(self.prompt_of, return_index=True)
    heads = [sequences[i][: skip[i] - 1] for i in one]
    shared = pack_tokens(self.prompts, heads, pad_id)
    own = [s[n - 1 :] for s, n in zip(sequences, skip)]
    tails = pack_tokens(self.tails, own, pad_id)
    # Either is 0 where the other lies, tokens apart.
    branches = self._spread(self.branch)
    return {
      'tokens': np.where(branches > 0, tails[0], shared[0]),
      'positions': shared[1] + tails[1] + self._spread(skip - 1),
      'segment_ids': shared[2] + tails[2],
      'branches': branches,
    }

  def _spread(self, values: np.ndarray) -> np.ndarray:
    """[N] -> int32 [M, B, T], each over its sample's tail."""
    table = np.repeat(values[:, None], self.tails.length.max(), axis=1)
    return self.tails.scatter(table.astype(np.int32), np.zeros_like(values))


def plan_shared(
  sequences: Sequence[np.ndarray],
  skip: np.ndarray,
  *,
  plan: Callable[[np.ndarray], Packing],
  longest: int,
) -> SharedPacking:
  """Lays samples out so that those with the same prompt lie behind one copy of it.

  sequences: int32, prompt and response of each of the N samples.
  skip: int [N], tokens of each prompt, at least 1.
  plan: lays blocks of given lengths out (`batching.plan_packing`, `plan_flat`).
  longest: tokens of a block with several samples; more of a prompt become blocks of
    their own.
  """
  skip = np.asarray(skip, np.int64)
  own = np.array([len(s) for s in sequences], np.int64) - skip + 1
  blocks = _blocks([s[:n] for s, n in zip(sequences, skip)], own, longest)
  heads = np.array([skip[b[0]] - 1 for b in blocks])
  laid = plan(np.array([h + own[b].sum() for h, b in zip(heads, blocks)]))
  prompt_of, branch, start = (np.zeros(len(own), np.int64) for _ in range(3))
  for k, members in enumerate(blocks):
    prompt_of[members] = k
    branch[members] = np.arange(len(members)) + 1
    ends = np.cumsum(own[members])
    start[members] = laid.start[k] + heads[k] + ends - own[members]
  tails = dataclasses.replace(
    laid,
    micro=laid.micro[prompt_of],
    row=laid.row[prompt_of],
    start=start.astype(np.int32),
    length=own.astype(np.int32),
    segment=laid.segment[prompt_of],
  )
  prompts = dataclasses.replace(laid, length=heads.astype(np.int32))
  return SharedPacking(tails, prompts, branch, prompt_of)


def _blocks(
  prompts: Sequence[np.ndarray], own: np.ndarray, longest: int
) -> list[np.ndarray]:
  """Indices of the samples of each block, in the order of their first samples."""
  blocks: list[list[int]] = []
  last: dict[bytes, int] = {}  # prompt -> its newest block
  used: list[int] = []
  for i, prompt in enumerate(prompts):
    k = last.get(prompt.tobytes())
    if k is None or used[k] + own[i] > longest:
      k = last[prompt.tobytes()] = len(blocks)
      blocks.append([])
      used.append(len(prompt) - 1)
    blocks[k].append(i)
    used[k] += int(own[i])
  return [np.array(block) for block in blocks]
