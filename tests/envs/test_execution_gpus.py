"""GPUs that a task asks for reach the job of each execution."""

from __future__ import annotations

import concurrent.futures
import itertools

import pytest

from jaxagent.envs.execution import (
  Call,
  ExecutionOptions,
  Outputs,
  ScriptRunner,
)
from jaxagent.sandbox import SandboxPool
from jaxagent.tasks import check
from jaxagent.types import Execution, Outcome
from tests.tasks import published


class Pool:
  """Keeps the jobs that it is given."""

  def __init__(self):
    self.jobs = []

  def submit(self, job):
    self.jobs.append(job)
    done = concurrent.futures.Future()
    ran = Execution(job_id=job.job_id, outcome=Outcome.OK, tier='T3', output='')
    done.set_result(ran)
    return done


def test_a_task_has_the_gpus_of_its_limits_and_another_has_none(tmp_path):
  tasks = {
    'two': published.prepared(tmp_path, 'two', limits={'gpus': 2}),
    'none': published.prepared(tmp_path, 'none'),
  }
  pool = Pool()
  runner = ScriptRunner(tasks, pool, None)
  for name in tasks:
    runner.run_script(name, {}, 'train.py', outputs=Outputs(graded=False))
  assert [job.gpus for job in pool.jobs] == [2, 0]
  assert [check.script_job(tasks[name]).gpus for name in tasks] == [2, 0]
  # A process that was forked cannot begin to use a GPU.
  assert [job.zygote for job in pool.jobs] == [False, True]


# Prints what it may use, and when.
_LOOK = """
import os, time
begin = time.monotonic()
time.sleep(0.4)
print(os.environ['CUDA_VISIBLE_DEVICES'] or 'none', begin, time.monotonic())
"""


@pytest.mark.parametrize('devices', [['5'], ['5', '7']])
def test_four_at_once_have_one_device_each_and_wait_for_it(tmp_path, devices):
  """On made-up numbers of devices: one, which they wait for, and two."""
  tasks = {
    'one': published.prepared(tmp_path, 'one', limits={'gpus': 1}),
    'none': published.prepared(tmp_path, 'none'),
  }
  names = ['one', 'one', 'none', 'one', 'one']
  with (
    SandboxPool(5, min_tier='T1', zygote=False, gpus=devices) as pool,
    concurrent.futures.ThreadPoolExecutor(5) as threads,
  ):
    options = ExecutionOptions(zygote=False)
    runner = ScriptRunner(tasks, pool, None, options)
    runs = list(
      threads.map(
        lambda number: runner.run_script(
          names[number],
          {'train.py': _LOOK},
          'train.py',
          Call(job_id=f'look{number}'),
          Outputs(graded=False),
        ),
        range(len(names)),
      )
    )
  said = [run.execution.output.split() for run in runs]
  assert said[2][0] == 'none'
  held = [words for name, words in zip(names, said) if name == 'one']
  assert {words[0] for words in held} == set(devices)
  for device in devices:
    times = sorted(
      (float(begin), float(end)) for own, begin, end in held if own == device
    )
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(times)), times
