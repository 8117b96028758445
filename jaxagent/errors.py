"""Errors that end a run with a sentence instead of a traceback."""

from __future__ import annotations


class UserError(Exception):
  """An error that the user can fix; the message names the value and the fix."""


class DiskFull(Exception):
  """A disk is full. Saved files are intact; the same command resumes the run."""


class Interrupted(Exception):
  """SIGTERM or Ctrl-C stopped the run. The same command resumes it."""


class MachineryError(Exception):
  """Infrastructure errors ended the run: sandbox, engine, endpoint or grader.

  Saved files are intact. Once the cause is fixed, the same command resumes the run.
  """


STOPPED = 143  # exit status of a run that a signal stopped: 128 + SIGTERM
LOST = 75  # exit status of `ProcessLost`: EX_TEMPFAIL of sysexits.h


class ProcessLost(RuntimeError):
  """Another process of the run cannot be reached. The same command resumes it."""


def tolerated(total: int) -> int:
  """Returns how many of `total` trajectories infrastructure errors may cut short.

  More end the run: the rest would be too small a part of what was asked for.
  """
  return max(1, total // 10)


def in_one_line(fault: str) -> str:
  """Returns `fault` for records and terminals: ASCII, one line, 500 characters."""
  return ascii(' '.join(fault.split()))[1:-1][:500]
