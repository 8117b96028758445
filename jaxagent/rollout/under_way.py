"""Rollouts under way, read from a journal alone, and changed in it.

Neither the run's configuration nor its interaction is needed. The run itself must
have stopped.
"""

from __future__ import annotations

from jaxagent.rollout import events
from jaxagent.rollout.journal import Journal, JournalError
from jaxagent.rollout.requests import ExecutionResult
from jaxagent.rollout.tracker import is_lost


def executions(journal: Journal) -> dict[str, list[ExecutionResult]]:
  """Returns prompt id -> its executions that have a result, in order."""
  found: dict[str, list[ExecutionResult]] = {}
  for event in journal.events(repair=False):  # a run may be writing it
    if event['e'] == 'begun':
      found[event['p']] = []
    elif event['e'] in ('executed', 'replaced'):
      result = events.result_of(event)
      if isinstance(result, ExecutionResult) and not is_lost(result):
        _take(found.setdefault(event['p'], []), result)
  return found


def _take(known: list[ExecutionResult], result: ExecutionResult) -> None:
  """Appends a result, or puts it in its place: what came after is void."""
  numbers = [one.key.call for one in known]
  if result.key.call in numbers:
    del known[numbers.index(result.key.call) :]
  known.append(result)


def replace(journal: Journal, result: ExecutionResult) -> None:
  """Gives an execution another result, from which its rollout is resumed.

  Raises JournalError while a run writes the journal: it would not read that.
  """
  if journal.is_written:
    raise JournalError(f'{journal.directory}: its run goes on; stop it first.')
  journal.begin()
  try:
    journal.append(events.replaced(result))
  finally:
    journal.close()
