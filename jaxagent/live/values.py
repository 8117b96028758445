"""Values out of files that anybody may have written: text or numbers, or nothing."""

from __future__ import annotations

from typing import Any

from jaxagent.report.page import clean

NAME_CHARS = 200  # of a name: task, outcome, id
_MOST = 1e300  # of a number: sums and differences of some are finite, too


def number(value: Any) -> float | None:
  """Returns a float that is finite, and so far from infinity that sums are, too.

  None of anything else.
  """
  if type(value) is float:  # most are: large files are read in a moment
    return value if -_MOST < value < _MOST else None
  if isinstance(value, bool) or not isinstance(value, int | float):
    return None
  try:
    value = float(value)
  except OverflowError:
    return None
  return value if -_MOST < value < _MOST else None


def whole(value: Any) -> int | None:
  """Returns an int below 2**53, which a browser holds; None of anything else."""
  if type(value) is int and -(2**53) < value < 2**53:
    return value
  found = number(value)
  return int(found) if found is not None and abs(found) < 2**53 else None


def name(value: Any) -> str:
  """Returns a short text of one line, controls visible; '' of anything but a text."""
  if not isinstance(value, str):
    return ''
  if len(value) <= NAME_CHARS and value.isascii() and value.isprintable():
    return value
  return clean(value[:NAME_CHARS].replace('\n', '\\n').replace('\t', '\\t'))


def text(value: Any) -> str:
  """Returns a text as `report` shows it: controls visible, length bounded."""
  return clean(value) if isinstance(value, str) else ''


def mapping(value: Any) -> dict[str, Any]:
  """Returns the value where it is an object; else an empty one."""
  return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
  """Returns the objects of a list; none where it is no list."""
  return (
    [one for one in value if isinstance(one, dict)]
    if isinstance(value, list)
    else []
  )
