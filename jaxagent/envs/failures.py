"""The reason that a program gave for its end, out of all that it printed."""

from __future__ import annotations

_TRACEBACK = 'Traceback (most recent call last):'
_MOST = 300  # characters


def last_words(output: str) -> str:
  """The exception of the last traceback, else the last line; '' where none is.

  One line of at most 300 characters.
  """
  _, found, raised = output.strip().rpartition(_TRACEBACK)
  lines = [line for line in raised.splitlines() if line.strip()]
  if found:
    # Indented lines quote the program; what follows them is the exception.
    at = next((i for i, line in enumerate(lines) if not line[:1].isspace()), 0)
    lines = lines[at:]
  else:
    lines = lines[-1:]
  text = ' '.join(' '.join(lines).split())
  return text if len(text) <= _MOST else f'{text[: _MOST - 3]}...'
