"""Checkpoints of RL, written beside the next update.

`Saver.save` copies the learner's arrays into this process's memory and makes JSON of
everything else; a thread writes, hashes and commits both during the next update. One write
is under way at a time: the next `save` waits for it, and raises what it failed with. The
journal is cut only after a commit. So a run that is killed before one continues from the
checkpoint before it, as where `rl.checkpoint_every` is 2: batches that were handed out
since are handed out again, from the journal.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import logging
import time
from collections import Counter
from typing import Any

from jaxagent.checkpoint import CheckpointManager
from jaxagent.learner import Learner
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import multi_process

log = logging.getLogger(__name__)


class Saver:
  """Saves checkpoints of everything that changes, and prunes the journal to them.

  counts: outcomes of what was trained.
  recipe: its name.
  stop: waits for a checkpoint that is being written; its message names what is saved.
  """

  def __init__(
    self,
    checkpoints: CheckpointManager,
    journal: Journal,
    learner: Learner | multi_process.Leader,
    scheduler: Scheduler,
    counts: Counter,
    recipe: str,
    stop: StopFlag,
  ):
    self.counts = counts
    self.write_s = 0.0  # that the last checkpoint took, copy and write
    self._checkpoints, self._journal = checkpoints, journal
    self._learner, self._scheduler = learner, scheduler
    self._recipe, self._stop = recipe, stop
    # Journal segments of the newest checkpoints, as many as are kept.
    self._segments: collections.deque[int] = collections.deque(
      maxlen=checkpoints.keep
    )
    self._threads = concurrent.futures.ThreadPoolExecutor(1, 'checkpoint')
    self._under_way: tuple[concurrent.futures.Future, int] | None = None

  def save(self, step: int, score: float | None = None) -> None:
    """Begins an atomic checkpoint; `finish` waits until it counts.

    score: by which the best one is kept.

    Raises CheckpointError where the one before, or this one, could not be written.
    """
    self.finish()
    began = time.monotonic()
    scheduler = self._scheduler.checkpoint()
    host: dict[str, Any] = {
      'scheduler': scheduler,
      'learner': self._learner.host_state(),
      'outcomes': dict(self.counts),
      'recipe': self._recipe,
    }
    arrays = multi_process.copied(self._learner)
    if arrays is None:
      with self._stop.saving():
        multi_process.save(self._learner, self._checkpoints, step, host, score)
        self._saved(step, began)
      self._prune(scheduler['segment'])
      return
    text = json.dumps(
      host, sort_keys=True
    )  # now: what it holds goes on changing
    written = self._threads.submit(
      self._write, step, arrays, text, score, began
    )
    self._under_way = written, scheduler['segment']

  def finish(self) -> None:
    """Waits for the checkpoint that is under way; raises what it failed with."""
    if self._under_way is None:
      return
    written, segment = self._under_way
    self._under_way = None
    written.result()
    self._prune(segment)

  def close(self) -> None:
    """Waits for it where the run ends otherwise; its error is logged."""
    try:
      self.finish()
    except Exception as error:  # noqa: BLE001 - another one ends the run
      log.warning('%s', error)
    finally:
      self._threads.shutdown()

  def note(self, step: int) -> None:
    """Tells the stop flag how many updates are saved."""
    self._stop.saved = (
      f'update {step} is saved' if step else 'no update is saved yet'
    )

  def _write(
    self, step: int, arrays: Any, host: str, score: float | None, began: float
  ) -> None:
    with self._stop.saving():
      self._stop.raise_error()  # another run may have the folder by now
      self._checkpoints.save(step, arrays, host, score=score)
      self._saved(step, began)

  def _saved(self, step: int, began: float) -> None:
    self.write_s = time.monotonic() - began
    self.note(step)

  def _prune(self, segment: int) -> None:
    self._segments.append(segment)
    if len(self._segments) == self._segments.maxlen:
      self._journal.prune(self._segments[0])
