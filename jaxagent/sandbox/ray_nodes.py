"""What Ray says: why a cluster cannot be joined, and which nodes go and come."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

_MOST_SHOWN = 5  # jobs of a lost node that are named
# "[2026-01-31 12:00:00,000 W 17 17] (process) file.cc:210: ", as Ray's core writes.
_MARK = re.compile(r'^\[[^\]]*\s[WEFC]\s[^\]]*\]\s(?:\(\w+\)\s)?[\w./]+:\d+: ')


def last_words(text: str) -> str:
  """Returns the last warning or error of Ray's core in what a process wrote, or ''."""
  marked = [line for line in text.splitlines() if _MARK.match(line)]
  return ' '.join(_MARK.sub('', marked[-1]).split())[:400] if marked else ''


def remedy(problem: str, python: str, ray: str) -> str:
  """Returns what to do where joining failed for a reason that Ray gave.

  python, ray: versions here.
  """
  if 'token' in problem.lower():
    return (
      'Give this process the token of the cluster: RAY_AUTH_MODE=token, and the token '
      "in RAY_AUTH_TOKEN or in ~/.ray/auth_token, as on the cluster's head (`ray "
      'get-auth-token` prints it there).'
    )
  return (
    f'Start a node of the cluster on this machine with Python {python} and Ray {ray} '
    '(ray start --address=HOST:PORT), or leave the address empty for a private one.'
  )


class Nodes:
  """Nodes of a cluster as they were last seen; names the changes.

  Args:
    held: id of a node -> number of the slots that were there, jobs that ran there.
  """

  def __init__(self, held: Callable[[str], tuple[int, Collection[str]]]):
    self._held = held
    self._alive: dict[str, str] | None = None  # id -> name and address

  def changes(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a line for each node that is gone or has come since the last call.

    records: of `ray.nodes()`. The first call returns none.
    """
    alive = {r['NodeID']: _place(r) for r in records if r.get('Alive')}
    before, self._alive = self._alive, alive
    if before is None:
      return []
    reasons = {r['NodeID']: r.get('DeathReasonMessage') for r in records}
    lines = []
    for node, place in before.items():
      if node not in alive:
        lines.append(self._gone(node, place, reasons.get(node)))
    sizes = {r['NodeID']: r.get('Resources', {}).get('CPU', 0) for r in records}
    for node, place in alive.items():
      if node not in before:
        lines.append(
          f'Ray node {place} has joined with {sizes[node]:g} CPUs; slots that are lost '
          'elsewhere may start there.'
        )
    return lines

  def _gone(self, node: str, place: str, reason: str | None) -> str:
    slots, jobs = self._held(node)
    names = sorted(jobs)[:_MOST_SHOWN] + ['...'] * (len(jobs) > _MOST_SHOWN)
    ran = f' ({", ".join(names)})' if names else ''
    why = ' '.join((reason or 'no reason given').split())[:200]
    return (
      f'Ray node {place} is gone ({why}): its {slots} slots start on other nodes; '
      f'{len(jobs)} jobs that ran there{ran} are run again.'
    )


def _place(record: Mapping[str, Any]) -> str:
  host = record.get('NodeManagerHostname') or record.get('NodeName') or '?'
  return f'{host} ({record.get("NodeManagerAddress", "?")})'
