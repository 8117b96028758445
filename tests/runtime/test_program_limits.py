"""A step has room for both jobs of a program, or the run is refused."""

from __future__ import annotations

import types

import pytest

from jaxagent.errors import UserError
from jaxagent.runtime import context
from tests.envs import program_task
from tests.tasks import published


def test_a_step_that_ends_before_a_program_is_measured_is_refused(tmp_path):
  tasks = {'sums': program_task.prepared(tmp_path)}  # measured within 10 s
  for first, room in ((3.0, 13.0), (0, 20.0)):  # 0: as long as the task's own
    box = types.SimpleNamespace(timeout_s=first, step_timeout_s=room)
    with pytest.raises(UserError, match=f'above {room:g} s.*task sums'):
      context._check_programs(tasks, box)
    box.step_timeout_s = room + 1
    context._check_programs(tasks, box)


def test_other_tasks_have_one_job_and_need_no_such_room(tmp_path):
  tasks = {'pizza': published.prepared(tmp_path)}
  box = types.SimpleNamespace(timeout_s=3.0, step_timeout_s=3.0)
  context._check_programs(tasks, box)
