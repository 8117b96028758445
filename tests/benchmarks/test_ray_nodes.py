"""A run that loses a Ray node: what counts as a fault."""

import pytest

from benchmarks import ray_nodes

RUN = {
  'code': 0,
  'killed_after': 120,
  'lines': ['Ray node a (127.0.0.1) is gone (no reason given)'],
  'executions': 200,
  'samples': 208,
  'counts': {'trained': 208},
  'trained_once': True,
  'updates_recorded_once': True,
  'executed_again': 0,
  'audit_differences': 0,
}
TOKEN = {'code': 2, 'line': 'error: no token; RAY_AUTH_MODE and RAY_AUTH_TOKEN'}


def test_a_run_that_loses_nothing_has_no_fault():
  result = {'lost_node': RUN, 'missing_token': TOKEN}
  assert ray_nodes.faults(result, 200) == []


@pytest.mark.parametrize(
  'run, token',
  [
    ({'code': 1, 'log': 'x'}, {}),
    ({'lines': []}, {}),
    ({'lines': 2 * RUN['lines']}, {}),
    ({'executions': 199}, {}),
    ({'killed_after': None}, {}),
    ({'trained_once': False}, {}),
    ({'updates_recorded_once': False}, {}),
    ({'counts': {'trained': 207}}, {}),
    ({'executed_again': 1}, {}),
    ({'audit_differences': 1}, {}),
    ({}, {'code': 0}),
    ({}, {'line': 'error: no cluster answered'}),
  ],
)
def test_each_fault_is_named(run, token):
  result = {'lost_node': RUN | run, 'missing_token': TOKEN | token}
  assert len(ray_nodes.faults(result, 200)) == 1
