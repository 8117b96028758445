"""`check` and `measure` of a task whose submission is a program."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pytest

from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import task_data
from jaxagent.tasks import check_programs as lib
from jaxagent.types import Execution, Outcome
from tests.envs import program_task

SLOW, FAST = b'slow', b'fast'
SECONDS = {SLOW: 0.8, FAST: 0.1}  # beside 0.1 of the reference: 3 and 0


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  return program_task.prepared(tmp_path_factory.mktemp('check'), rounds=5)


@pytest.fixture(scope='module')
def grader(task):
  with Grader({'sums': task}) as worker:
    yield worker


def bench(seconds=SECONDS, noise=0.02, believes=False):
  """Stands for a sandbox; believes: every program is as good as the slow one."""
  rng = np.random.default_rng(0)

  def run(job):
    if job.script == 'train.py':
      own = job.files['train.py'] == program_task.PROGRAM
      collected = {'submission.py': FAST if own else SLOW}
      return Execution(job.job_id, Outcome.OK, 'T3', collected=collected)
    plan, program = (
      json.loads(job.files['stopwatch.json']),
      job.files['given.py'],
    )
    if program not in seconds and not believes:
      said = {'reason': 'round 0: the program wrote no output.npy'}
      data = json.dumps(said).encode()
      return Execution(
        job.job_id, Outcome.OK, 'T3', collected={'measured.json': data}
      )
    base = {
      'program_s': seconds.get(program, 0.8),
      'reference_s': 0.1,
    }
    taken = {
      name: (s * (1 + noise * rng.random(len(plan['rounds'])))).tolist()
      for name, s in base.items()
    }
    outputs = {
      f'output_{k}': np.cumsum(np.load(io.BytesIO(job.files[name]))['x'])
      for k, name in zip(plan['rounds'], plan['inputs'])
    }
    arrays = {'round': np.array(plan['rounds']), **taken, **outputs}
    collected = {
      'measured.json': json.dumps({'reason': '', **taken}).encode(),
      'measured.npz': task_data.npz(arrays),
    }
    return Execution(job.job_id, Outcome.OK, 'T3', collected=collected)

  return run


def failures(task, grader, run, **levels):
  return lib.check_task(task, grader, run, levels).failures


def test_a_folder_that_holds_what_it_claims_passes(task, grader):
  report = lib.check_task(task, grader, bench(), {'no-avx2': bench()})
  assert report.failures == []
  assert report.figures['starter'] == pytest.approx(3.0, abs=0.1)
  assert report.figures['reference'] == pytest.approx(0.0, abs=0.1)
  assert report.figures['se'] > 3


@pytest.mark.parametrize(
  ('run', 'reason'),
  [
    (bench({SLOW: 0.11, FAST: 0.1}, noise=0.9), 'standard errors'),
    (bench({SLOW: 4.0, FAST: 0.1}), 'the starter scores 5'),
    (bench({SLOW: 0.8, FAST: 0.4}), 'm_best of task.yaml'),
    (bench({FAST: 0.1}), 'starter refused'),
    (bench({SLOW: 0.8}), 'reference refused'),
    (bench(believes=True), 'an early exit is not refused'),
  ],
)
def test_what_a_folder_claims_and_does_not_hold_is_found(
  task, grader, run, reason
):
  assert any(reason in failure for failure in failures(task, grader, run))


@pytest.mark.parametrize(
  ('right', 'wrong'), [({SLOW: 0.8}, 'reference'), ({FAST: 0.1}, 'starter')]
)
def test_a_program_that_is_wrong_at_another_cpu_level_is_found(
  task, grader, right, wrong
):
  (failure,) = failures(task, grader, bench(), **{'no-avx2': bench(right)})
  assert f'at cpu_level=no-avx2 {wrong} refused' in failure


def test_a_script_that_ends_badly_at_another_cpu_level_is_found(task, grader):
  def crashing(job):
    return Execution(
      job.job_id, Outcome.SCRIPT_ERROR, 'T3', message='no such instruction'
    )

  found = failures(task, grader, bench(), **{'no-avx2': crashing})
  assert [f.split(' ends')[0] for f in found] == [
    'at cpu_level=no-avx2 the starter', 'at cpu_level=no-avx2 the reference'
  ]  # fmt: skip
  assert all('script_error: no such instruction' in f for f in found)


def failing(run, outcome, times):
  """A sandbox whose second jobs end with `outcome` so many times each."""
  left = {}

  def other(job):
    if job.script == 'train.py':
      return run(job)
    key = job.files['given.py'], job.files['stopwatch.json']
    left[key] = left.get(key, times) - 1
    if left[key] >= 0:
      return Execution(job.job_id, outcome, 'T3', message='no room')
    return run(job)

  return other


@pytest.mark.parametrize('outcome', [Outcome.INFRASTRUCTURE, Outcome.TIMEOUT])
def test_a_sandbox_that_does_not_work_is_no_refusal(task, grader, outcome):
  found = failures(task, grader, failing(bench(), outcome, 99))
  said = [f for f in found if 'is not judged' in f]
  assert len(said) == 5  # each of the useless programs
  assert all(f'{outcome.value}: ' in f and 'no room' in f for f in said)


def test_a_job_is_repeated_where_the_sandbox_fails_and_only_there(task, grader):
  run = failing(bench(), Outcome.INFRASTRUCTURE, 2)
  assert failures(task, grader, run) == []
  assert failures(task, grader, failing(bench(), Outcome.OOM, 1)) != []


def test_a_hidden_input_that_is_public_is_found(task, grader, tmp_path):
  public = tmp_path / 'public'
  shutil.copytree(task.public_dir, public)
  with np.load(task.private_dir / task_data.INPUTS) as given:
    (public / 'example.npz').write_bytes(task_data.npz({'x': given['x'][3]}))
  leaking = lib.PreparedTask(
    task.spec, public, task.private_dir, task.starter_files, {'data': public}
  )
  assert failures(leaking, grader, None) == [
    'data/example.npz has x of a hidden round.'
  ]
  assert failures(task, grader, None) == []


def test_starter_and_reference_are_measured_on_both_halves(task, grader):
  starter, reference = lib.measure(task, grader, bench())
  assert (starter.pipeline, reference.pipeline) == ('', 'solution/reference.py')
  for score in (starter.valid, starter.private):
    assert score == pytest.approx(3.0, abs=0.1)
  assert starter.valid != starter.private  # each has seconds of its own
  with pytest.raises(ValueError, match='the starter: invalid_submission'):
    lib.measure(task, grader, bench({}))
