"""A run that is watched: its files, read as they grow, and what they say."""

from __future__ import annotations

import itertools
import os
import pathlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jaxagent.files.owner import OWNER, STALE_S
from jaxagent.files.tail import Tail, object_of, read_at
from jaxagent.live import values
from jaxagent.live.curves import Curves
from jaxagent.live.executions import Executions
from jaxagent.live.rollouts import Filter, Rollouts, Row
from jaxagent.rollout import finished_log, rollout_log

METRICS = pathlib.Path('logs', 'metrics.jsonl')
SFT_METRICS = pathlib.Path('logs', 'sft', 'metrics.jsonl')
EXECUTIONS = pathlib.Path('logs', 'executions.jsonl')  # runtime/executions.py
EVERY_S = 0.3  # between two looks at the files
_SLICE_S = 0.1  # that a request reads; what is left is read beside it
_FEW = 10_000  # rollouts that are counted at every question
_RECOUNT_S = 1.0  # and so many times this of so many times more
_NEWEST_BYTES = 512 << 10  # a first look, where there is much to read
_SEARCH_S = 0.4  # for a text, in one request
_CONFIG_BYTES = 1 << 20


class Run:
  """A run below the folder that is served. Thread-safe.

  name: its path below that folder. folder: the run's.
  """

  def __init__(self, name: str, folder: pathlib.Path):
    self.name, self.folder = name, folder
    self.lock = threading.Lock()
    self.rollouts = Rollouts(folder)
    self.curves, self.sft = Curves(), Curves()
    self.executions = Executions()
    rollouts, executions = self.rollouts, self.executions
    # The newest first: finished.jsonl has a rollout before rollouts.jsonl has.
    self._tails = {
      str(path): Tail(folder / path, take, reset)
      for path, take, reset in (
        (METRICS, self.curves.take, self.curves.clear),
        (SFT_METRICS, self.sft.take, self.sft.clear),
        (EXECUTIONS, executions.take, executions.clear),
        (finished_log.LOG, rollouts.take_texts, self._rollouts_anew),
        (rollout_log.LOG, rollouts.take_line, self._rollouts_anew),
      )
    }
    self._looked = -EVERY_S
    self._reader: threading.Thread | None = None
    self._first: Rollouts | None = None  # the newest, until all are read
    self._anew = False
    self._facts: tuple[int, dict[str, str]] = (-1, {})
    self._counted: tuple[int, float, dict[str, Counter[str]]] = (-1, 0.0, {})

  # Reading --------------------------------------------------------------------

  def refresh(self) -> None:
    """Looks at the files, unless that was just done; returns within a moment."""
    with self.lock:
      now = time.monotonic()
      if self._reader is not None or now - self._looked < EVERY_S:
        return
      self._looked = now
      while more := self._read_some():
        if time.monotonic() - now > _SLICE_S:
          break
      if more:
        self._first = self._first_look()
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        self._reader.start()

  def _read_some(self) -> bool:
    """Reads a piece of each file; returns whether there is more."""
    more = [tail.read() for tail in self._tails.values()]
    if self._anew:
      self._begin_anew()
      return True
    if not self._tails[str(rollout_log.LOG)].there:
      self.rollouts.take_traces()
    return any(more)

  def _read_on(self) -> None:
    more = True
    while more:
      with self.lock:
        more = self._read_some()
        if not more:
          self._reader = self._first = None
      time.sleep(0.002)  # requests are answered in between

  def _rollouts_anew(self) -> None:
    self._anew = True

  def _begin_anew(self) -> None:
    """One of the two files of rollouts changed its past: both are read again."""
    self._anew = False
    self.rollouts.clear()
    for path in (finished_log.LOG, rollout_log.LOG):
      self._tails[str(path)].rewind()

  def _first_look(self) -> Rollouts | None:
    """Returns the newest rollouts alone, for a page that waits for the rest."""
    found = Rollouts(self.folder)
    tail = self._tails[str(rollout_log.LOG)]
    for line, *place in tail.newest(_NEWEST_BYTES):
      found.take_line(line, *place)
    return found if found.rows else None

  # Asking ---------------------------------------------------------------------

  @property
  def shown(self) -> Rollouts:
    """The rollouts that a page is shown: all, or the newest while they are read."""
    return self._first or self.rollouts

  def state(self) -> dict[str, Any]:
    """Returns what a page asks for every second: what changed, and what is wrong."""
    with self.lock:
      shown, tails = self.shown, self._tails.values()
      size = sum(tail.size for tail in tails)
      left = sum(tail.left for tail in tails)
      return {
        'name': self.name,
        'status': status(self.folder),
        'stamps': {
          'rollouts': [id(shown) % 100_000, shown.changes],
          'curves': [self.curves.changes, self.sft.changes],
          'executions': self.executions.changes,
        },
        'read': 1.0 - left / size if size else 1.0,
        'rollouts': len(shown.rows),
        'updates': len(self.curves.steps),
        'reward': self.curves.last('critic/score/mean'),
        'counts': self._counts(shown),
        'problems': self._problems(),
      }

  def _counts(self, shown: Rollouts) -> dict[str, Counter[str]]:
    changes, at, counts = self._counted
    now = time.monotonic()
    n = len(shown.rows)
    fresh = n > _FEW and now - at < _RECOUNT_S * n / _FEW
    stamp = shown.changes + id(shown) % 1_000_003
    if stamp != changes and not (fresh and counts):
      counts = shown.count()
      self._counted = stamp, now, counts
    return counts

  def _problems(self) -> list[str]:
    """Returns a line for each thing that keeps the page from being whole."""
    found = []
    for name, tail in self._tails.items():
      if tail.problem:
        found.append(f'{name}: {tail.problem}.')
      if tail.damaged:
        found.append(f'{name}: {_lines(tail.damaged)} no JSON, left out.')
      if tail.long:
        found.append(f'{name}: {_lines(tail.long)} over 1 MB; texts are cut.')
      if tail.left_out:
        found.append(f'{name}: {_lines(tail.left_out)} over 16 MB, left out.')
    shown = self.rollouts
    if shown.unknown:
      found.append(
        f'{_lines(shown.unknown)} of another format than this version of jaxagent '
        'reads, left out.'
      )
    if shown.from_traces:
      found.append(
        f'a run of an older version: no {rollout_log.LOG}; rollouts are those of '
        'rl/traces, which an update learned from.'
      )
    if self.executions.untimed and not self.executions.spans:
      found.append(
        'a run of an older version: its logs/executions.jsonl has no times, so there '
        'are no lanes of executions.'
      )
    return found

  def page(self, wanted: Filter, offset: int, limit: int) -> dict[str, Any]:
    """Returns rows, newest first, from `offset` of what the filter admits.

    With a text: looks for a while; `offset` and `next` count what was looked at.
    """
    with self.lock:
      shown = self.shown
      if wanted.text:
        return self._searched(shown, wanted, offset, limit)
      if wanted == Filter():
        chosen: Sequence[Row] = shown.rows
      else:
        chosen = [row for row in shown.rows if wanted.admits(row)]
      matched = len(chosen)
      end = max(0, matched - offset)
      rows = chosen[max(0, end - limit) : end][::-1]
      more = end > limit
      return {
        'rows': [row.to_json() for row in rows],
        'matched': matched,
        'total': len(shown.rows),
        'next': offset + limit if more else None,
      }

  def _searched(
    self, shown: Rollouts, wanted: Filter, offset: int, limit: int
  ) -> dict[str, Any]:
    rows: list[Row] = []
    needles, begun, looked = wanted.needles, time.monotonic(), 0
    ended = True
    for row in shown.newest(wanted):
      looked += 1
      if looked <= offset:
        continue
      if shown.has_text(row, needles):
        rows.append(row)
      if len(rows) >= limit or time.monotonic() - begun > _SEARCH_S:
        ended = False
        break
    return {
      'rows': [row.to_json() for row in rows],
      'matched': None,
      'looked': looked,
      'total': len(shown.rows),
      'next': None if ended else looked,
    }

  def lanes(
    self, begin: float | None, end: float | None, seconds: float, most: int
  ) -> dict[str, Any]:
    """Returns executions, decoding, learner and samples between two times.

    end: None for the newest that there is; begin: None for `seconds` before it.
    """
    with self.lock:
      first, last = self._extent()
      if last is None or first is None:
        return {'begin': None, 'end': None}
      end = last if end is None else end
      begin = max(first, end - seconds) if begin is None else begin
      spans = self.executions.between(begin, end, most)
      calls = [
        [a, b, row.policy, f'{row.prompt_id}~{row.restart}']
        for a, b, kind, row in self.rollouts.calls
        if kind == 'policy' and a < end and b > begin
      ]
      samples = [
        [row.at, row.age, row.outcome, f'{row.prompt_id}~{row.restart}']
        for row in reversed(self.shown.rows[-MOST_SAMPLES:])
        if row.at is not None and begin <= row.at <= end
      ]
      return {
        'begin': begin,
        'end': end,
        'first': first,
        'last': last,
        'executions': [span.to_json() for span in spans],
        'cut': len(spans) >= most,
        'decoding': calls[-most:],
        'learner': self.curves.phases(begin, end)[-most:],
        'samples': samples[:most],
      }

  def _extent(self) -> tuple[float | None, float | None]:
    """Returns the first and the last time that anything is known of."""
    spans, rows = self.executions.spans, self.shown.rows
    calls = self.rollouts.calls
    times = [one for one in self.curves.times[-1:] if one == one]
    times += [one for one in self.curves.times[:1] if one == one]
    if spans:
      times += [spans[0].begin, spans[-1].end]
    times += [call[0] for call in itertools.islice(calls, 1)]
    times += [row.at for row in (*rows[:1], *rows[-1:]) if row.at is not None]
    return (min(times), max(times)) if times else (None, None)

  def facts(self) -> dict[str, Any]:
    """Returns what `config.json` says of the run: variant, seed, sizes."""
    path = self.folder / 'config.json'
    try:
      stamp = path.stat().st_mtime_ns
      if stamp == self._facts[0]:
        return self._facts[1]
      line = read_at(path, 0, _CONFIG_BYTES)
    except OSError:
      return {}
    config = object_of(line) or {}
    rl = values.mapping(config.get('rl'))
    found = {
      'variant': config.get('variant'),
      'seed': config.get('seed'),
      'updates': rl.get('updates'),
      'batch': rl.get('batch_size'),
      'group': rl.get('group_size'),
    }
    known = {
      key: values.text(str(value))
      for key, value in found.items()
      if isinstance(value, str | int)
    }
    self._facts = stamp, known
    return known


MOST_SAMPLES = 20_000


def status(folder: pathlib.Path) -> str:
  """Returns 'running', 'complete', 'stopped' or 'gone', from the files' dates."""
  try:
    claim = (folder / OWNER).stat()
    if claim.st_size and abs(time.time() - claim.st_mtime) < STALE_S:
      return 'running'
  except OSError:
    if not os.path.isdir(folder):
      return 'gone'
  complete = os.path.isfile(folder / 'summary.json')
  return 'complete' if complete else 'stopped'


def _lines(n: int) -> str:
  return '1 line is' if n == 1 else f'{n} lines are'
