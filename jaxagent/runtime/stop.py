"""Signals that stop a run, acted on wherever it waits.

A stage calls `check` between units of work, and while it waits; there it ends, with
everything saved that is whole. What cannot be left in the middle (a program that
compiles, an update of minutes) is not waited for: WITHIN_S after the signal, and after
a checkpoint that is being written, the process ends as it is. Nothing is lost by that,
as nothing is lost when a run is killed: the journal and the newest checkpoint continue
it. A second signal ends the process at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from jaxagent import errors
from jaxagent.errors import Interrupted

# SIGUSR1 and SIGUSR2 are what schedulers are asked to send before a time limit.
SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2
WITHIN_S = 8.0  # and a second or two until the process is gone
# A scheduler may send one signal twice, to a process and to all of its job; a second
# Ctrl-C is meant.
_SAME_S: dict[int, float] = {signal.SIGINT: 0.2}
_SAME_OTHER_S = 5.0
_LAST_S = 1.0  # for the last line, and for what else is done before the end


class StopFlag:
  """Whether the run is to stop, by a signal or by an error of another thread.

  within_s: after which the process ends wherever it is; None: never, not by a second
    signal either.
  """

  def __init__(self, within_s: float | None = WITHIN_S):
    self.signal: int | None = None
    self.error: Exception | None = None
    self.saved = 'nothing was begun'  # what is kept, for the message
    # Called where the process ends as it is.
    self.farewells: list[Callable[[], None]] = []
    self.within_s = within_s
    self._before: dict[int, Any] = {}
    self._pipe: tuple[socket.socket, socket.socket] | None = None
    self._at = 0.0  # when the signal came
    self._left = False  # the run has ended, the process not yet
    self._asked = threading.Event()
    self._whole = threading.Lock()  # held while a checkpoint is written
    self._calls: list[Callable[[], None]] = []

  @property
  def asked(self) -> bool:
    """Whether the run is to stop."""
    return self.signal is not None or self.error is not None

  def install(self) -> None:
    """Takes the signals from here on; of the main thread."""
    self._pipe = socket.socketpair()
    self._pipe[1].setblocking(False)
    # A thread reads them: Python's own handlers wait for the main thread, which a
    # program on the device may keep for minutes.
    signal.set_wakeup_fd(self._pipe[1].fileno(), warn_on_full_buffer=False)
    for number in SIGNALS:
      self._before[number] = signal.getsignal(number)
    self.take_signals()
    threading.Thread(target=self._watch, name='stop', daemon=True).start()

  def take_signals(self) -> None:
    """Takes them once more: `jax.distributed` has a SIGTERM handler of its own."""
    for number in SIGNALS:
      signal.signal(number, lambda number, frame: None)

  def restore(self) -> None:
    """Gives the signals back, unless one has come: then the end is still watched."""
    self._left = True
    if self.asked or self._pipe is None:
      return
    signal.set_wakeup_fd(-1)
    for number, handler in self._before.items():
      signal.signal(number, handler)
    for end in self._pipe:
      end.close()

  @contextlib.contextmanager
  def telling(self, call: Callable[[], None]) -> Iterator[None]:
    """While it is entered, another thread makes `call` once the run is to stop."""
    self._calls.append(call)
    try:
      if self.asked:
        call()
      yield
    finally:
      self._calls.remove(call)

  def fail(self, error: Exception) -> None:
    """Stops the run with an error, as a signal would."""
    self.error = self.error or error
    self._begin()

  def check(self, saved: str | None = None) -> None:
    """Raises where the run is to stop; `saved` is the part on what is kept.

    Raises:
      Interrupted: after a signal.
      Exception: the one given to `fail`.
    """
    self.saved = saved or self.saved
    self.raise_error()
    if self.signal is not None:
      raise Interrupted(self._words())

  def raise_error(self) -> None:
    """Raises the error given to `fail`, after which nothing may be saved."""
    if self.error is not None:
      raise self.error

  @contextlib.contextmanager
  def saving(self) -> Iterator[None]:
    """While it is entered, the end waits: a checkpoint is written."""
    with self._whole:
      yield

  def _words(self) -> str:
    name = signal.Signals(self.signal or signal.SIGTERM).name
    return f'{name}: stopped; {self.saved}. Rerun the same command to resume.'

  def _watch(self) -> None:
    assert self._pipe is not None
    while True:
      try:
        got = self._pipe[0].recv(1)
      except OSError:
        return
      if not got:
        return
      if got[0] not in SIGNALS:
        continue
      self.ask(got[0])

  def ask(self, number: int) -> None:
    """Stops the run as a signal does; a second one ends it at once."""
    now = time.monotonic()
    if self.signal is None:
      self.signal, self._at = number, now
      self._begin()
    elif self.within_s is not None and (
      number != self.signal
      or now - self._at > _SAME_S.get(number, _SAME_OTHER_S)
    ):
      self._end()

  def _begin(self) -> None:
    if self._asked.is_set():
      return
    self._asked.set()
    for call in list(self._calls):
      call()
    if self.within_s is not None:
      limit = threading.Thread(
        target=self._limit,
        args=(self.within_s,),
        name='stop-limit',
        daemon=True,
      )
      limit.start()

  def _limit(self, within_s: float) -> None:
    time.sleep(within_s)
    with self._whole:
      self._end()

  def _end(self) -> None:
    """Ends the process as it is: no handler runs, no thread is waited for."""
    said = f'error: {self.error}' if self.signal is None else self._words()
    # Who has left says it by itself. Nobody may read, and nobody answer.
    for call, args in (
      (self._say, ('' if self._left else said,)),
      (self._part, ()),
    ):
      thread = threading.Thread(target=call, args=args, daemon=True)
      thread.start()
      thread.join(_LAST_S)
    os._exit(1 if self.signal is None else errors.STOPPED)

  def _say(self, line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
      sys.stdout.flush()
      if line:
        print(f'\n{line}', file=sys.stderr, flush=True)

  def _part(self) -> None:
    for farewell in self.farewells:
      farewell()
