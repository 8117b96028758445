"""What a policy does, counted by hand."""

from jaxagent import metrics
from jaxagent.analysis import behaviour
from tests import made

A = '--- \n+++ \n@@ -1,2 +1,2 @@\n import os\n-model = 1\n+model = 2\n'
# The same line written over another one, elsewhere in another script.
A_ELSEWHERE = '--- \n+++ \n@@ -7,2 +7,2 @@\n x = 3\n-model = 9\n+model = 2\n'
B = '--- \n+++ \n@@ -1,2 +1,2 @@\n import os\n-model = 1\n+model = 3\n'
GONE = '--- \n+++ \n@@ -1,2 +1 @@\n import os\n-model = 1\n'
DASHES = '--- \n+++ \n@@ -1,2 +1 @@\n import os\n--- model\n'


def _record(outcome='ok', **changes):
  return made.step(outcome, **{'exec_s': 1e-3, **changes})


def _edit(diff=A, outcome='ok', **changes):
  ran = {'is_edit': True, 'diff': diff, 'tier': 'T2', 'exec_s': 2.0}
  return _record(outcome, **(ran | changes))


LIST_FILES = _record()
MALFORMED = _record('invalid_format', valid_action=False)


def test_counted_by_hand():
  got = behaviour.figures(
    [
      _edit(A),
      _edit(B, exec_s=4.0),
      _edit(A_ELSEWHERE),
      _edit('', exec_s=3.0),  # wrote what was there
      _edit(GONE, 'timeout', exec_s=9.0),  # undone
      LIST_FILES,
      LIST_FILES,
      MALFORMED,
      _edit(A, 'infrastructure'),  # ours: left out
      _edit(A, 'grader_error'),
    ]
  )
  assert got == {
    'responses': 8,
    'edits': 5,
    'executions': 5,
    'edit_rate': 5 / 8,
    'changed_rate': 3 / 8,
    'distinct_edits': 3 / 5,  # A, B, GONE
    'malformed_rate': 1 / 8,
    'timeout_rate': 1 / 5,
    'valid_action_rate': 7 / 8,
    'exec_s': 4.0,
  }
  assert tuple(got) == behaviour.FIGURES


def test_time_outs_are_of_executions_not_of_responses():
  got = behaviour.figures([_edit(A, 'timeout')] + [LIST_FILES] * 9)
  assert got['timeout_rate'] == 1.0 and got['exec_s'] == 2.0
  assert got['edit_rate'] == 0.1 and got['changed_rate'] == 0.0


def test_a_retreat_into_valid_actions_is_seen():
  before = behaviour.figures([_edit(A), _edit(B), LIST_FILES, MALFORMED])
  after = behaviour.figures([LIST_FILES] * 4)
  assert after['valid_action_rate'] > before['valid_action_rate']
  assert after['edit_rate'] == 0.0 < before['edit_rate']
  assert after['changed_rate'] == 0.0 < before['changed_rate']
  assert after['distinct_edits'] is None and after['exec_s'] is None


def test_distinct_edits_differ_in_task_or_in_written_text():
  def distinct(*edits):
    return behaviour.figures(edits)['distinct_edits']

  assert distinct(_edit(A), _edit(A_ELSEWHERE)) == 1 / 2
  assert distinct(_edit(A), _edit(A, task='digits')) == 1.0
  assert distinct(_edit(A), _edit(B)) == 1.0
  assert distinct(_edit(GONE), _edit(DASHES)) == 1.0
  assert distinct(_edit(''), _edit('')) == 0.0


def test_nothing_gives_no_figure():
  got = behaviour.figures([])
  assert [got[k] for k in behaviour.COUNTS] == [0, 0, 0]
  assert all(got[k] is None for k in (*behaviour.RATES, 'exec_s'))


def test_quarters_are_of_updates():
  turns = [made.turn(update=u) for u in range(10, 19) for n in range(2)]
  first, last = behaviour.quarters(turns)
  assert {turn.update for turn in first} == {10, 11} and len(first) == 4
  assert {turn.update for turn in last} == {17, 18} and len(last) == 4
  one = [made.turn(update=3)]
  assert behaviour.quarters(one) == (one, one)
  assert behaviour.quarters([]) == ([], [])


def test_every_share_is_a_metric():
  for name in (*behaviour.RATES, 'exec_s'):
    assert f'sandbox/{name}' in metrics.METRICS
