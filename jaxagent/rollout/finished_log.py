"""A line for each rollout that finishes, with its texts: `rl/finished.jsonl`.

`jaxagent live` shows them during the run: an update writes its traces when it
has learned from them, which may be minutes later. Nothing else reads the file: where it
cannot be written, the run continues without it.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxagent.envs.step_env import truncate
from jaxagent.interactions import Credit
from jaxagent.records import codec
from jaxagent.rollout.tracked import TrackedRollout

FORMAT = 1
LOG = pathlib.Path('rl', 'finished.jsonl')  # in the work directory
TEXT_CHARS = 40_000  # of a text; head and tail are kept
# What the response says once more, or a grader alone reads.
_LEFT_OUT = ('args', 'entries', 'measured')


class FinishedLog:
  """Writes the lines. Called under the scheduler's lock.

  Args:
    path: of the file, which may be there.
    text: ids of a prompt -> the text that the policy was shown.
  """

  def __init__(self, path: pathlib.Path, text: Callable[[Sequence[int]], str]):
    self._path, self._text = path, text
    self._file: Any = None

  def write(
    self,
    member: TrackedRollout,
    credits: Mapping[int, Credit],
    turns: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
  ) -> None:
    """Writes a rollout that has finished.

    turns: as in the rollout's line. calls: when each was with its sampler or executor.
    """
    if self._file is False:  # given up
      return
    progress = member.progress
    shown = {
      call.call: completion
      for call, completion in (progress.completions if progress else ())
    }
    record = {
      'format': FORMAT,
      'prompt_id': member.prompt_id,
      'group_id': member.group.group_id,
      'restart': member.draws - 1,
      'turns': [
        {
          **turn,
          'prompt': self._prompt(shown.get(turn['call'])),
          'record': _record(credits[turn['call']]),
        }
        for turn in turns
      ],
      'calls': list(calls),
      'timestamp': time.time(),
    }
    try:
      self._append((json.dumps(record) + '\n').encode())
    except (OSError, ValueError, TypeError) as error:
      self._file = False
      print(
        f'{self._path}: {error}; the live page shows no texts of rollouts from now '
        'on. The run goes on.',
        file=sys.stderr,
      )

  def close(self) -> None:
    """Closes the file."""
    if self._file:
      self._file.close()
    self._file = False

  def _append(self, line: bytes) -> None:
    if self._file is None:
      self._path.parent.mkdir(parents=True, exist_ok=True)
      torn = self._path.exists() and not _ends_line(self._path)
      self._file = self._path.open('ab', buffering=0)
      line = b'\n' * torn + line
    if self._file.write(line) < len(line):
      raise OSError(28, 'no space left')

  def _prompt(self, completion: Any) -> str:
    if completion is None:
      return ''
    ids = [int(one) for one in completion.prompt_ids]
    return truncate(self._text(ids), TEXT_CHARS)


def _ends_line(path: pathlib.Path) -> bool:
  with path.open('rb') as file:
    size = file.seek(0, 2)
    file.seek(max(0, size - 1))
    return file.read() in (b'', b'\n')


def _record(credit: Credit) -> dict[str, Any] | None:
  """Returns the record's fields, long texts cut; None where there is none."""
  if credit.record is None:
    return None
  try:
    fields = codec.to_json(credit.record)
  except (codec.UnknownRecord, codec.DamagedRecord):
    return None  # the run says so itself, where it writes the traces
  return {
    name: truncate(value, TEXT_CHARS) if isinstance(value, str) else value
    for name, value in fields.items()
    if name not in _LEFT_OUT
  }
