"""Answers of a text model on disk, one file a request."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import tempfile
from typing import Any, NamedTuple

_log = logging.getLogger(__name__)


class Kept(NamedTuple):
  """A stored answer.

  tokens: that it took; None where they were not counted.
  thoughts: apart from the answer; None of a record from before they were.
  """

  answer: str
  tokens: dict[str, int] | None
  thoughts: str | None


class AnswerCache:
  """Request -> answer; safe with several threads and processes.

  A file is written beside its place and then moved there, so that a reader
  sees a whole file or none. A damaged file counts as absent.
  """

  def __init__(self, directory: pathlib.Path):
    self.directory = directory
    directory.mkdir(parents=True, exist_ok=True)

  def path(self, request: dict[str, Any]) -> pathlib.Path:
    """Returns the file of the answer to a request."""
    text = json.dumps(request, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return self.directory / digest[:2] / f'{digest}.json'

  def get(self, request: dict[str, Any]) -> Kept | None:
    """Returns the stored answer, None without one."""
    path = self.path(request)
    try:
      record = json.loads(path.read_text(encoding='utf-8'))
      if record['request'] == request and isinstance(record['answer'], str):
        return Kept(
          record['answer'], record.get('tokens'), record.get('thoughts')
        )
    except FileNotFoundError:
      return None
    except (OSError, ValueError, KeyError, TypeError):
      pass
    _log.warning('%s is damaged; the request is made again.', path)
    return None

  def put(
    self,
    request: dict[str, Any],
    answer: str,
    tokens: dict[str, int] | None = None,
    thoughts: str | None = None,
  ) -> None:
    """Stores an answer; the last writer wins."""
    record = {
      'request': request,
      'answer': answer,
      'tokens': tokens,
      'thoughts': thoughts,
    }
    path = self.path(request)
    path.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix='.tmp')
    try:
      with os.fdopen(handle, 'w', encoding='utf-8') as file:
        json.dump(record, file)
      os.replace(name, path)
    except BaseException:
      pathlib.Path(name).unlink(missing_ok=True)
      raise
