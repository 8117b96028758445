"""The ledger: what became of every prompt, exactly once.

A prompt is pending, running, finished, trained or quarantined. A finished
sample may go back to pending (it was dropped or cancelled and its prompt is
issued again); trained and quarantined are final. Trained prompts, which are
nearly all of them, cost four bytes each: ids of the form
`epoch/position/sample` are kept in arrays.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import pathlib
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jaxagent.data import codec


class Status(str, enum.Enum):
  """Stages of a prompt."""

  PENDING = 'pending'
  RUNNING = 'running'
  FINISHED = 'finished'
  TRAINED = 'trained'
  QUARANTINED = 'quarantined'


class LedgerError(RuntimeError):
  """A transition that would skip a prompt or train it twice."""


@dataclasses.dataclass
class Entry:
  """A prompt that is not trained yet (or never will be: quarantined)."""

  status: Status
  attempts: int = 0
  reason: str = ''


_ALLOWED = {
  Status.RUNNING: (Status.PENDING,),
  Status.FINISHED: (Status.RUNNING,),
  Status.PENDING: (Status.RUNNING, Status.FINISHED),
  Status.QUARANTINED: (Status.PENDING, Status.RUNNING, Status.FINISHED),
}


class Ledger:
  """Statuses by prompt id, with the update that trained each."""

  def __init__(self):
    self._live: dict[str, Entry] = {}
    self._trained: dict[tuple[int, int], np.ndarray] = {}
    self._other: dict[str, int] = {}  # trained ids of another form
    self._n_trained = 0

  # Transitions ---------------------------------------------------------------

  def add(self, prompt_id: str) -> None:
    """A prompt was drawn from the pool: pending."""
    status = self.status(prompt_id)
    if status is not None:
      raise LedgerError(
        f'prompt {prompt_id} was drawn twice (it is {status.value}).'
      )
    self._live[prompt_id] = Entry(Status.PENDING)

  def start(self, prompt_id: str) -> None:
    """Marks a prompt as running: it was handed to the executor."""
    self._move(prompt_id, Status.RUNNING)

  def finish(self, prompt_id: str) -> None:
    """Marks a prompt as finished: it has a valid reward."""
    self._move(prompt_id, Status.FINISHED)

  def requeue(self, prompt_id: str, failed: bool = False) -> int:
    """Marks a prompt as pending again; returns how often it has failed so far."""
    entry = self._move(prompt_id, Status.PENDING)
    entry.attempts += int(failed)
    return entry.attempts

  def quarantine(self, prompt_id: str, reason: str) -> None:
    """Marks a prompt as quarantined: it is never issued again."""
    self._move(prompt_id, Status.QUARANTINED).reason = reason

  def train(self, prompt_ids: Iterable[str], update: int) -> None:
    """Marks finished prompts as trained by update number `update` >= 0.

    All or nothing: every id is checked before any is moved.

    Raises:
      LedgerError: an id is not finished, or is given twice.
    """
    if update < 0:
      raise ValueError(f'update={update} must be zero or more.')
    ids = list(prompt_ids)
    if len(set(ids)) != len(ids):
      raise LedgerError(f'update {update} names a prompt twice: {sorted(ids)}')
    for prompt_id in ids:
      status = self.status(prompt_id)
      if status is not Status.FINISHED:
        raise LedgerError(
          f'prompt {prompt_id} cannot be trained by update {update}: it is '
          f'{status.value if status else "unknown"}'
          + (
            f' (by update {self.update_of(prompt_id)}).'
            if status is Status.TRAINED
            else '.'
          )
        )
    for prompt_id in ids:
      del self._live[prompt_id]
      self._set_trained(prompt_id, update)

  def _move(self, prompt_id: str, to: Status) -> Entry:
    entry = self._live.get(prompt_id)
    if entry is None or entry.status not in _ALLOWED[to]:
      status = self.status(prompt_id)
      raise LedgerError(
        f'prompt {prompt_id} is {status.value if status else "unknown"} and '
        f'cannot become {to.value}; that takes one of '
        f'{[s.value for s in _ALLOWED[to]]}.'
      )
    entry.status = to
    return entry

  def _set_trained(self, prompt_id: str, update: int) -> None:
    key = _split(prompt_id)
    self._n_trained += 1
    if key is None:
      self._other[prompt_id] = update
      return
    epoch, position, sample = key
    array = self._trained.get((epoch, sample))
    if array is None:
      array = np.full(64, -1, np.int32)
    if position >= len(array):
      size = max(2 * len(array), position + 1)
      array = np.concatenate([array, np.full(size - len(array), -1, np.int32)])
    array[position] = update
    self._trained[epoch, sample] = array

  # Questions -----------------------------------------------------------------

  def status(self, prompt_id: str) -> Status | None:
    """The stage of a prompt; None if it was never drawn."""
    entry = self._live.get(prompt_id)
    if entry is not None:
      return entry.status
    return None if self.update_of(prompt_id) is None else Status.TRAINED

  def update_of(self, prompt_id: str) -> int | None:
    """The update that trained it, or None."""
    key = _split(prompt_id)
    if key is None:
      return self._other.get(prompt_id)
    epoch, position, sample = key
    array = self._trained.get((epoch, sample))
    if array is None or position >= len(array) or array[position] < 0:
      return None
    return int(array[position])

  def attempts(self, prompt_id: str) -> int:
    """Returns how often this prompt met an infrastructure error."""
    entry = self._live.get(prompt_id)
    return entry.attempts if entry else 0

  def ids(self, status: Status) -> list[str]:
    """The ids in one stage, in order of drawing (trained: by position)."""
    status = Status(status)
    if status is Status.TRAINED:
      return [i for i, _ in self.trained()]
    return [i for i, e in self._live.items() if e.status is status]

  def trained(self) -> Iterator[tuple[str, int]]:
    """(prompt id, update) of every trained prompt."""
    for epoch, sample in sorted(self._trained):
      array = self._trained[epoch, sample]
      for position in np.flatnonzero(array >= 0):
        yield f'{epoch}/{position}/{sample}', int(array[position])
    yield from self._other.items()

  def quarantined(self) -> dict[str, str]:
    """Quarantined ids with the reason of each."""
    return {
      i: e.reason
      for i, e in self._live.items()
      if e.status is Status.QUARANTINED
    }

  def counts(self) -> dict[str, int]:
    """Number of prompts by stage."""
    counts = {s.value: 0 for s in Status}
    for entry in self._live.values():
      counts[entry.status.value] += 1
    counts[Status.TRAINED.value] = self._n_trained
    return counts

  def __len__(self) -> int:
    return len(self._live) + self._n_trained

  def check(self, drawn: Iterable[str] | None = None) -> None:
    """Verifies that every prompt stands in exactly one place.

    Args:
      drawn: all ids drawn so far, if known; each must be in the ledger and
        nothing else may be.

    Raises:
      LedgerError: names what is missing, extra or counted twice.
    """
    both = [i for i in self._live if self.update_of(i) is not None]
    if both:
      raise LedgerError(f'trained, and issued again: {both[:10]}')
    n = sum(int((a >= 0).sum()) for a in self._trained.values())
    if n + len(self._other) != self._n_trained:
      raise LedgerError(
        f'{self._n_trained} prompts were trained but {n + len(self._other)} '
        'are recorded.'
      )
    if drawn is None:
      return
    drawn = set(drawn)
    missing = sorted(i for i in drawn if self.status(i) is None)
    if missing:
      raise LedgerError(f'skipped: {missing[:10]} ({len(missing)} prompts)')
    if len(self) != len(drawn):
      raise LedgerError(
        f'{len(self)} prompts in the ledger, {len(drawn)} were drawn.'
      )

  # Saving --------------------------------------------------------------------

  def state_dict(self) -> dict[str, Any]:
    """JSON-able; about a byte for each trained prompt after compression."""
    return {
      'format': 1,
      'live': {
        i: [e.status.value, e.attempts, e.reason] for i, e in self._live.items()
      },
      'trained': {
        f'{e}/{s}': codec.encode_array(a) for (e, s), a in self._trained.items()
      },
      'other': dict(self._other),
      'n_trained': self._n_trained,
    }

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Replaces everything; running prompts become pending (issued again).

    Raises:
      LedgerError: the state contradicts itself.
    """
    self._live = {
      i: Entry(Status(s), int(n), r) for i, (s, n, r) in state['live'].items()
    }
    self._trained = {}
    for key, array in state['trained'].items():
      epoch, sample = key.split('/')
      self._trained[int(epoch), int(sample)] = codec.decode_array(array)
    self._other = {i: int(u) for i, u in state['other'].items()}
    self._n_trained = int(state['n_trained'])
    for entry in self._live.values():
      if entry.status is Status.RUNNING:
        entry.status = Status.PENDING
    self.check()

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes to a temporary file, fsyncs it, renames it over `path`."""
    data = zlib.compress(json.dumps(self.state_dict()).encode(), 1)
    write_atomic(path, data)

  @classmethod
  def load(cls, path: str | os.PathLike[str]) -> Ledger:
    """Reads what `save` wrote.

    Raises:
      LedgerError: the file is damaged; names it.
    """
    try:
      state = json.loads(zlib.decompress(pathlib.Path(path).read_bytes()))
    except (zlib.error, ValueError) as e:
      raise LedgerError(
        f'{path}: not a ledger, or damaged ({e}). Resume from the checkpoint '
        'before it.'
      ) from e
    ledger = cls()
    ledger.load_state_dict(state)
    return ledger


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
  """All of `data` at `path`, or what was there before; durable on return."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  fd, tmp = tempfile.mkstemp(prefix=f'.{path.name}.', dir=path.parent)
  try:
    with os.fdopen(fd, 'wb') as f:
      f.write(data)
      f.flush()
      os.fsync(f.fileno())
    os.replace(tmp, path)
  except BaseException:
    pathlib.Path(tmp).unlink(missing_ok=True)
    raise
  directory = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(directory)  # the rename itself must survive a power cut
  finally:
    os.close(directory)


def _split(prompt_id: str) -> tuple[int, int, int] | None:
  parts = prompt_id.split('/')
  # '07/1/0' would be read back as '7/1/0', so it is no canonical id.
  if len(parts) != 3 or not all(
    p.isascii() and p.isdigit() and (p == '0' or p[0] != '0') for p in parts
  ):
    return None
  epoch, position, sample = map(int, parts)
  return None if position > 50_000_000 else (epoch, position, sample)
