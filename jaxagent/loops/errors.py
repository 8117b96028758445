"""Errors that end a run with a sentence instead of a traceback."""

from __future__ import annotations


class UserError(Exception):
  """Something the user can mend; the message names value and remedy."""


class DiskFull(Exception):
  """A disk is full: what is saved is whole, the same command goes on."""


class Interrupted(Exception):
  """SIGTERM or Ctrl-C: everything is saved, the same command goes on."""


class MachineryError(Exception):
  """Our own parts fail again and again: what is saved is whole.

  Once they are mended, the same command goes on.
  """


def tolerated(total: int) -> int:
  """Of so many trajectories, those that a fault of ours may cut short.

  More end the run: what is left would not be what was asked for.
  """
  return max(1, total // 10)


def in_one_line(fault: str) -> str:
  """`fault` for records and terminals: ASCII, one line, 500 characters."""
  return ascii(' '.join(fault.split()))[1:-1][:500]
