"""Processes below one another, as Linux tells them."""

from __future__ import annotations

import pathlib


def children(pid: int) -> list[int]:
  """Returns the children of all threads of a process; [] if it is gone."""
  found: list[int] = []
  for task in pathlib.Path(f'/proc/{pid}/task').glob('*/children'):
    try:
      found += map(int, task.read_text().split())
    except OSError:
      continue  # it ended meanwhile
  return found


def below(pid: int) -> list[int]:
  """Returns all descendants of a process."""
  found = children(pid)
  for child in found:
    found += children(child)
  return found


def lives(pid: int) -> bool:
  """A process that has ended and is not waited for does not."""
  try:
    status = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


def name(pid: int) -> str:
  """Returns a process's command line, or its own name; '' if it is gone."""
  try:
    command = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
  except OSError:
    return ''
  return command.replace(b'\0', b' ').decode(errors='replace').strip()
