"""Counts memory, sockets, threads and children of processes, without cgroups.

Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def status(pid: int) -> tuple[int, int]:
  """(resident, page tables) of a process in bytes, in constant time.

  Resident is anonymous and shared memory, shared pages counted whole. Reading
  what was never written grows the page tables and nothing else.
  """
  found = {}
  try:
    with open(f'/proc/{pid}/status') as f:
      for line in f:
        name, _, rest = line.partition(':')
        if name in ('RssAnon', 'RssShmem', 'VmPTE'):
          found[name] = 1024 * int(rest.split()[0])
  except (OSError, ValueError, IndexError):
    pass
  resident = found.get('RssAnon', 0) + found.get('RssShmem', 0)
  return resident, found.get('VmPTE', 0)


def _proportional(pid: int, resident: int) -> int:
  """Returns `resident` with each page split among its users. A process that
  hides its maps is charged all of it. Slow where page tables are large."""
  try:
    with open(f'/proc/{pid}/smaps_rollup') as f:
      return 1024 * sum(
        int(line.split()[1])
        for line in f
        if line.startswith(('Pss_Anon:', 'Pss_Shmem:'))
      )
  except (OSError, ValueError):
    return resident


def memory(pids: Iterable[int], limit: int) -> int:
  """Bytes that processes hold together; shared pages are split only where the
  sum passes `limit` with them and not by page tables alone."""
  each = {pid: status(pid) for pid in pids}
  tables = sum(t for _, t in each.values())
  whole = sum(r for r, _ in each.values())
  if tables + whole <= limit or tables > limit:
    return tables + whole
  return tables + sum(_proportional(p, r) for p, (r, _) in each.items())


def sockets() -> int:
  """Open sockets of this network namespace."""
  try:
    with open('/proc/net/sockstat') as f:
      return int(f.readline().split()[2])
  except (OSError, ValueError, IndexError):
    return 0


def user_threads() -> int:
  """Threads of this process's user id, as RLIMIT_NPROC counts them."""
  total, uid = 0, os.geteuid()
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        if os.stat(f'/proc/{name}').st_uid == uid:
          total += len(os.listdir(f'/proc/{name}/task'))
      except OSError:
        continue
  return total


def descendants(namespaces: bool) -> list[int]:
  """Pids of the job: everyone else in the namespace, or the tree below us."""
  me = os.getpid()
  if namespaces:
    return [int(n) for n in os.listdir('/proc') if n.isdigit() and int(n) != me]
  found: list[int] = []
  below = children()
  queue = [me]
  while queue:
    for child in below.get(queue.pop(), ()):
      found.append(child)
      queue.append(child)
  return found


def children() -> dict[int, list[int]]:
  """{pid: those it is the parent of} of every process in sight."""
  found: dict[int, list[int]] = {}
  for name in os.listdir('/proc'):
    if name.isdigit():
      try:
        with open(f'/proc/{name}/stat', 'rb') as f:
          fields = f.read().rsplit(b')', 1)[1].split()
      except (OSError, IndexError):
        continue
      found.setdefault(int(fields[1]), []).append(int(name))
  return found
