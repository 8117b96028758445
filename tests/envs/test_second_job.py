"""Whose fault it is where the job that measures a program does not end well."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxagent.clock import Deadline
from jaxagent.envs import programs
from jaxagent.envs._stopwatch import NOT_MEASURED
from jaxagent.envs.execution import Call, ScriptRunner
from jaxagent.envs.grading import GradeResult
from jaxagent.types import Execution, Outcome
from tests.envs import program_task

TIMES = {'program_s': [2.0], 'reference_s': [1.0]}
GOOD = {
  'measured.json': json.dumps({'reason': '', **TIMES}).encode(),
  'measured.npz': b'arrays',
}


class Pool:
  """First jobs hand over a program; second ones end as they are told to."""

  def __init__(self, *ends, handed_over=b'print(1)'):
    self.ends, self.jobs, self.handed_over = list(ends), [], handed_over
    self.deadlines = []

  def submit(self, job, deadline_s=None):
    self.jobs.append(job)
    self.deadlines.append(deadline_s)
    done = concurrent.futures.Future()
    ran = Execution(
      job.job_id,
      Outcome.OK,
      'T3',
      exec_s=1.5,
      collected={'submission.py': self.handed_over},
    )
    if job.script != 'train.py':
      end = self.ends.pop(0)
      if isinstance(end, Exception):
        done.set_exception(end)
        return done
      ran = dataclasses.replace(ran, **end)
    done.set_result(ran)
    return done


class OneScore:
  def __init__(self):
    self.asked = []

  def grade(self, task, data, split, *, own_work=False):
    self.asked.append((data, split))
    return GradeResult(1.0, Outcome.OK, '', 5)


def run(tmp_path, pool, **call):
  grader = OneScore()
  runner = ScriptRunner({'sums': program_task.prepared(tmp_path)}, pool, grader)
  found = runner.run_script('sums', {}, 'train.py', Call(**call))
  return found, grader


def test_the_measured_arrays_are_graded_and_the_seconds_kept(tmp_path):
  pool = Pool({'collected': GOOD})
  found, grader = run(tmp_path, pool)
  assert (found.outcome, found.score, found.passed) == (Outcome.OK, 1.0, 5)
  assert found.measured == TIMES and grader.asked == [(b'arrays', 'valid')]
  # The clock that training weighs steps by is that of the script itself.
  assert found.execution.exec_s == 1.5
  first, second = pool.jobs
  assert second.files['given.py'] == b'print(1)'
  assert second.job_id == first.job_id  # so that both can be cancelled


@pytest.mark.parametrize(
  'end',
  [
    {'outcome': Outcome.INFRASTRUCTURE, 'message': 'a node was lost'},
    {'outcome': Outcome.DEADLINE},
    {'outcome': Outcome.SCRIPT_ERROR, 'exit_code': NOT_MEASURED},
    RuntimeError('the pool is closed'),
  ],
)
def test_what_is_no_fault_of_the_program_is_tried_again(tmp_path, end):
  pool = Pool(end, {'collected': GOOD})
  found, _ = run(tmp_path, pool)
  assert found.outcome is Outcome.OK and len(pool.jobs) == 4
  pool = Pool(end, end)
  found, grader = run(tmp_path / 'again', pool)
  assert found.outcome.is_infrastructure and found.score is None
  assert grader.asked == []


@pytest.mark.parametrize(
  ('end', 'outcome'),
  [
    ({'outcome': Outcome.SCRIPT_ERROR, 'exit_code': 1}, 'invalid_submission'),
    ({'outcome': Outcome.SCRIPT_ERROR, 'signal': 9}, 'invalid_submission'),
    ({'outcome': Outcome.NO_SUBMISSION}, 'invalid_submission'),
    ({'outcome': Outcome.OOM}, 'oom'),
    ({'outcome': Outcome.TIMEOUT}, 'timeout'),
    ({'outcome': Outcome.KILLED}, 'killed'),
    ({'outcome': Outcome.DISK_LIMIT}, 'disk_limit'),
    ({'collected': {}}, 'invalid_submission'),
    ({'collected': {**GOOD, 'measured.json': b'['}}, 'invalid_submission'),
  ],
)
def test_what_the_program_did_is_charged_to_it_once(tmp_path, end, outcome):
  pool = Pool(end)
  found, _ = run(tmp_path, pool)
  assert (found.outcome.value, found.score) == (outcome, None)
  assert found.message and len(pool.jobs) == 2


def test_a_program_larger_than_the_task_allows_is_not_run(tmp_path):
  pool = Pool(handed_over=b'#' * 100_001)
  found, _ = run(tmp_path, pool)
  assert found.outcome is Outcome.INVALID_SUBMISSION
  assert '100001 bytes; at most 100000' in found.message
  assert len(pool.jobs) == 1


def test_what_is_left_of_a_trajectory_limits_the_first_job_alone(tmp_path):
  own = program_task.FOLDER['limits']['timeout_s']
  for most_s in (4.0, 1.6, math.inf):  # the first job takes 1.5 s
    pool = Pool({'collected': GOOD})
    found, _ = run(tmp_path / f'{most_s}', pool, most_s=most_s)
    limits = [job.limits.timeout_s for job in pool.jobs]
    assert limits == [min(most_s, own), own]
    assert found.score == 1.0


def test_both_jobs_have_the_deadline_of_their_step(tmp_path):
  pool = Pool({'collected': GOOD})
  run(tmp_path, pool, deadline=Deadline.after(60))
  assert all(0 < s <= 60 for s in pool.deadlines)
  assert pool.deadlines[1] <= pool.deadlines[0]


json_values = st.recursive(
  st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
  lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(
  st.binary()
  | st.just(b'[' * 60_000)
  | json_values.map(lambda v: json.dumps(v).encode())
  | st.fixed_dictionaries(
    {
      'reason': json_values,
      'program_s': json_values,
      'reference_s': json_values,
    }
  ).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_of_a_second_job_end_in_an_outcome(data):
  ran = Execution(
    'x', Outcome.OK, 'T3', collected={**GOOD, 'measured.json': data}
  )
  found = programs.read(ran)
  assert found.outcome in (Outcome.OK, Outcome.INVALID_SUBMISSION)
  assert (found.outcome is Outcome.OK) is bool(found.data)
