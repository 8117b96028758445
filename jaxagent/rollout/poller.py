"""Keeps samplers and executors busy while the loop's thread computes."""

from __future__ import annotations

import threading
from typing import Any

from jaxagent.rollout.scheduler import Scheduler


class BackgroundPoller:
  """`with BackgroundPoller(scheduler, version): ...` takes in and issues meanwhile.

  An exception of the scheduler ends its thread and is raised at the exit.
  """

  def __init__(self, scheduler: Scheduler, version: int):
    self._scheduler, self._version = scheduler, version
    self._stop = threading.Event()
    self._error: BaseException | None = None
    self._thread = threading.Thread(
      target=self._run, name='poller', daemon=True
    )

  def __enter__(self) -> BackgroundPoller:
    self._thread.start()
    return self

  def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
    self._stop.set()
    self._thread.join()
    if kind is None and self._error is not None:
      raise self._error

  def _run(self) -> None:
    try:
      while not self._stop.is_set():
        self._scheduler.work(self._version, timeout_s=0.02)
    except BaseException as error:  # noqa: BLE001 - raised at the exit
      self._error = error
