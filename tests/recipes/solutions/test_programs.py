"""Whole solutions of a task whose submission is a program."""

from __future__ import annotations

import types

import pytest

from jaxagent.errors import UserError
from jaxagent.recipes.solutions import prompts
from tests.envs import program_task


@pytest.fixture
def context(tmp_path):
  task = program_task.prepared(tmp_path)
  config = types.SimpleNamespace(
    seed=0,
    solution=types.SimpleNamespace(programs=3, improve=0.5),
    rollout=types.SimpleNamespace(prompt_style='full'),
  )
  return types.SimpleNamespace(
    config=config,
    heldin=('sums',),
    heldout=(),
    prepared={'sums': task},
    spec=lambda name: task.spec,
  )


def test_prompt_shows_the_sample_program(context):
  text = prompts.Prompts(context).text(prompts.Task('sums'))
  assert '`./submission.py` should have the following format' in text
  assert 'print(1)' in text


def test_what_only_a_model_can_write_is_refused_at_the_start(context):
  with pytest.raises(UserError, match='sums: only a model.*programs=0'):
    prompts.written(context)
