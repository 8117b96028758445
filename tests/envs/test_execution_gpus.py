"""GPUs that a task asks for reach the job of each execution."""

from __future__ import annotations

import concurrent.futures

from jaxagent.envs.execution import Outputs, ScriptRunner
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
  # A process that was forked cannot begin to use a GPU.
  assert [job.zygote for job in pool.jobs] == [False, True]
