"""Prepared bundled tasks and one grader for the whole session."""

from __future__ import annotations

import pathlib

import pytest

from jaxagent.envs.grading import Grader
from jaxagent.envs.tasks import load_task, prepare_task

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
SMALL = ('wine', 'diabetes', 'digits')  # quick to prepare; three kinds


@pytest.fixture(scope='session')
def tasks_dir():
  return TASKS


@pytest.fixture(scope='session')
def prepared(tmp_path_factory):
  home = tmp_path_factory.mktemp('tasks')
  return {name: prepare_task(load_task(name, TASKS), home) for name in SMALL}


@pytest.fixture(scope='session')
def grader(prepared):
  with Grader(prepared) as worker:
    yield worker
