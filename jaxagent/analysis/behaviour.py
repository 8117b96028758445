"""Shares of what a policy does: does it edit, or retreat into cheap actions?

Equation 6 of paper 000 pays 0.5 for a valid action that changes nothing, so
a policy may rise in reward by no longer trying. One function reads that out
of trace records; the metrics of every update, `summary.json` and the report
all take it from here. No jax here.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxagent.records import TrainedTurn
from jaxagent.types import Outcome, Record

COUNTS = ('responses', 'edits', 'executions')
RATES = (
  'edit_rate',
  'changed_rate',
  'distinct_edits',
  'malformed_rate',
  'timeout_rate',
  'valid_action_rate',
)
# Every key that `figures` gives.
FIGURES = COUNTS + RATES + ('exec_s',)


def figures(records: Sequence[Record]) -> dict[str, float | None]:
  """Shares over records, one a response.

  records: failures of the infrastructure among them are left out: what the
    response would have done is not known.

  Returns:
    responses, edits, executions: counts.
    edit_rate: edits over responses.
    changed_rate: responses that left another script than they found: an edit
      whose diff is not empty and whose run was ok (a failed one is undone).
    distinct_edits: different edits over edits. Two are the same where they
      write the same lines in the same task (without new lines: remove the
      same); what the script held around them does not tell them apart. An
      edit that writes nothing is none. Falls with the number of edits, so
      only sets of about the same size compare.
    malformed_rate: responses that do not parse, over responses.
    timeout_rate: executions that timed out, over executions.
    valid_action_rate: responses that parse and may run, over responses.
    exec_s: mean execution seconds of the executions.
    A figure over nothing is None.
  """
  known = [r for r in records if not r.outcome.is_infrastructure]
  edits = [r for r in known if r.is_edit]
  ran = [r for r in known if r.ran]
  changed = [r for r in edits if r.diff and r.outcome is Outcome.OK]
  written = {(r.task, _written(r.diff)) for r in edits if r.diff}

  def share(of: Sequence | set, among: Sequence) -> float | None:
    return len(of) / len(among) if among else None

  def outcome(wanted: Outcome, among: Sequence) -> float | None:
    return share([r for r in among if r.outcome is wanted], among)

  return {
    'responses': len(known),
    'edits': len(edits),
    'executions': len(ran),
    'edit_rate': share(edits, known),
    'changed_rate': share(changed, known),
    'distinct_edits': share(written, edits),
    'malformed_rate': outcome(Outcome.INVALID_FORMAT, known),
    'timeout_rate': outcome(Outcome.TIMEOUT, ran),
    'valid_action_rate': share([r for r in known if r.valid_action], known),
    'exec_s': sum(r.exec_s for r in ran) / len(ran) if ran else None,
  }


def quarters(
  turns: Sequence[TrainedTurn],
) -> tuple[list[TrainedTurn], list[TrainedTurn]]:
  """Turns of the first and of the last quarter of the updates.

  A quarter is rounded down, but one update at the least; with one update alone both
  are that one.
  """
  updates = sorted({turn.update for turn in turns})
  size = max(1, len(updates) // 4)
  first, last = set(updates[:size]), set(updates[-size:])
  return (
    [turn for turn in turns if turn.update in first],
    [turn for turn in turns if turn.update in last],
  )


def _written(diff: str) -> tuple[str, ...]:
  """Lines that a unified diff adds; those it removes where it adds none."""
  lines = diff.splitlines()
  if lines and lines[0].startswith('---'):
    lines = lines[2:]  # the names of the files
  lines = [line for line in lines if line.startswith(('+', '-'))]
  return tuple(x for x in lines if x[0] == '+') or tuple(lines)
