"""Prompt sources: a pool, drawn without replacement epoch by epoch, and a feed.

The order of an epoch depends on (seed, epoch) and on the pool's keys at the
start of that epoch, so a resumed run draws what the first would have drawn.
A pool may grow while an epoch runs; newcomers wait for the next epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jaxagent.types import Prompt


@dataclasses.dataclass(frozen=True)
class Drawn:
  """One pool item drawn for `group_size` samples."""

  key: Any  # JSON-able; `restore` finds the payload by it
  group_id: str
  prompts: tuple[Prompt, ...]


class Source(Protocol):
  """Interface of a prompt source, as the scheduler uses it."""

  group_size: int

  @property
  def size(self) -> int:
    """Pool items in the present epoch."""
    ...

  def draw(self) -> Drawn | None:
    """The next item, or None where the source is exhausted."""
    ...

  def restore(self, key: Any, prompt_id: str) -> Prompt:
    """The prompt again, after a resume. KeyError if its item is gone."""
    ...

  def state_dict(self) -> dict[str, Any]: ...

  def load_state_dict(self, state: dict[str, Any]) -> None: ...


class PromptSource:
  """Draws payloads from a mapping or a sequence.

  Args:
    pool: key -> payload (a dict or anything with `keys()` and `[]`, such as a
      state pool), or a sequence of payloads.
    group_size: samples of each item (GRPO); prompt ids are
      `epoch/position/sample`, group ids `epoch/position`.
    seed: seeds the order.
    epochs: None for no end.
  """

  def __init__(
    self,
    pool: Mapping[str, Any] | Sequence[Any],
    *,
    group_size: int = 1,
    seed: int = 0,
    epochs: int | None = None,
  ):
    if group_size < 1:
      raise ValueError(f'group_size={group_size} must be 1 or more.')
    if len(pool) == 0:
      raise ValueError('the prompt pool is empty.')
    self.group_size = group_size
    self._pool: Any = pool  # of keys or of indices
    self._keyed = hasattr(pool, 'keys')
    self._seed = seed
    self._epochs = epochs
    self._begin(0)

  @property
  def size(self) -> int:
    return len(self._order)

  @property
  def epoch(self) -> int:
    return self._epoch

  @property
  def position(self) -> int:
    return self._position

  def draw(self) -> Drawn | None:
    if self._position >= len(self._order):
      self._begin(self._epoch + 1)
    if self._epochs is not None and self._epoch >= self._epochs:
      return None
    index = int(self._order[self._position])
    key = self._keys[index] if self._keyed else index
    group_id = f'{self._epoch}/{self._position}'
    self._position += 1
    payload = self._pool[key]
    prompts = tuple(
      Prompt(f'{group_id}/{i}', group_id, payload)
      for i in range(self.group_size)
    )
    return Drawn(key, group_id, prompts)

  def restore(self, key: Any, prompt_id: str) -> Prompt:
    try:
      payload = self._pool[key]
    except (KeyError, IndexError) as e:
      raise KeyError(
        f'prompt {prompt_id}: item {key!r} is no longer in the pool.'
      ) from e
    return Prompt(prompt_id, prompt_id.rsplit('/', 1)[0], payload)

  def state_dict(self) -> dict[str, Any]:
    return {
      'seed': self._seed,
      'epoch': self._epoch,
      'position': self._position,
      'n': len(self._order),
      'keys': list(self._keys) if self._keyed else None,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Continues from where `state` was taken.

    Raises:
      ValueError: another seed, or a pool that has shrunk.
    """
    if state['seed'] != self._seed:
      raise ValueError(
        f'prompt source: the checkpoint was made with seed={state["seed"]}, '
        f'this run has seed={self._seed}; the order would differ.'
      )
    if not self._keyed and len(self._pool) < state['n']:
      raise ValueError(
        f'prompt source: the pool has {len(self._pool)} items, the checkpoint '
        f'was made with {state["n"]}.'
      )
    self._epoch = int(state['epoch'])
    self._keys = list(state['keys']) if self._keyed else []
    self._order = self._permutation(self._epoch, int(state['n']))
    self._position = int(state['position'])

  def _begin(self, epoch: int) -> None:
    self._epoch = epoch
    self._position = 0
    self._keys = sorted(self._pool.keys()) if self._keyed else []
    self._order = self._permutation(epoch, len(self._pool))

  def _permutation(self, epoch: int, n: int) -> np.ndarray:
    return np.random.default_rng([self._seed, epoch]).permutation(n)


class Feed:
  """Prompts that are pushed one by one, each drawn once, in that order.

  For rollouts without a learner: what is pushed may depend on what others have come
  to. Groups are of one prompt and share its id.
  """

  group_size = 1

  def __init__(self):
    self._waiting: dict[str, Any] = {}

  @property
  def size(self) -> int:
    return len(self._waiting)

  def push(self, prompt_id: str, payload: Any) -> None:
    """Adds a prompt; ids are unique among those that wait."""
    self._waiting[prompt_id] = payload

  def draw(self) -> Drawn | None:
    """The next prompt; None where none waits now."""
    return self.recall(next(iter(self._waiting), None))

  def recall(self, prompt_id: str | None) -> Drawn | None:
    """The waiting prompt of that id, out of turn; None where it does not wait."""
    if prompt_id not in self._waiting:
      return None
    prompt = Prompt(prompt_id, prompt_id, self._waiting.pop(prompt_id))
    return Drawn(prompt_id, prompt_id, (prompt,))
