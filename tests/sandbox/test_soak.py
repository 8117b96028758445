"""Jobs, one in a hundred of each failure: nothing is left.

`python -m benchmarks.soak` is the long form.
"""

from __future__ import annotations

import pathlib
import tempfile

import pytest

from benchmarks import soak

JOBS = 1000


@pytest.mark.slow
@pytest.mark.alone
def test_a_thousand_jobs_leave_nothing():
  with tempfile.TemporaryDirectory(dir='/tmp') as folder:
    pathlib.Path(folder).chmod(0o755)
    result = soak.soak(
      JOBS, slots=4, seed=1, work_dir=pathlib.Path(folder), min_tier='T1'
    )
  assert soak.faults(result) == []
  assert sum(result['outcomes'].values()) == JOBS
  assert {name.split(':')[0] for name in result['outcomes']} == {
    'good',
    *soak.FAILURES,
  }
  assert result['launchers'] > 5 and result['retries'] >= 5


def test_leftovers_and_growth_of_a_soak_are_named():
  clean = dict.fromkeys(
    (
      'processes',
      'descriptors',
      'threads',
      'mounts',
      'cgroups',
      'files',
      'resident_mb',
      'launcher_descriptors',
      'launcher_mounts',
      'launcher_resident_mb',
    ),
    5,
  )
  result = {
    'wrong': [],
    'before': clean,
    'after': clean,
    'trail': [clean, dict(clean)],
  }
  assert soak.faults(result) == []
  result['trail'][1]['launcher_mounts'] = 6
  result['after'] = {**clean, 'cgroups': 7}
  result['wrong'] = ['error-1: ok: ']
  assert [line.split(':')[0] for line in soak.faults(result)] == [
    '1 jobs ended otherwise',
    'launcher_mounts grew in the run',
    'cgroups left behind',
  ]
