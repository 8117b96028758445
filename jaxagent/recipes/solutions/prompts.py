"""Prompts for whole solutions, and scripted programs to fine-tune on."""

from __future__ import annotations

import csv
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxagent.envs import solution
from jaxagent.envs.solution import Previous, Task
from jaxagent.envs.specs import task_data
from jaxagent.envs.tasks import PreparedTask
from jaxagent.errors import UserError
from jaxagent.stand_ins import programmer
from jaxagent.stand_ins.programmer import Design
from jaxagent.training import sft
from jaxagent.training.policy import PolicySampler

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext

_TABLES = ('train', 'test', 'sample_submission')


class Prompts:
  """Task -> the text of its prompt.

  Args:
    context: its tasks are described.
    fits: whether a text is within the prompt's budget.
  """

  def __init__(
    self, context: RunContext, fits: Callable[[str], bool] = lambda text: True
  ):
    self._style, self._fits = context.config.rollout.prompt_style, fits
    self._tasks = {
      name: solution.describe(
        context.spec(name),
        context.prepared[name].public_dir,
        sample=_sample(context.prepared[name]),
      )
      for name in context.heldin + context.heldout
    }

  def text(self, task: Task) -> str:
    return solution.ask(
      self._tasks[task.name], task.previous, self._fits, style=self._style
    )


class PromptIds:
  """Task -> ids of its prompt, int32 [P].

  Raises UserError where a task's own description is too long.
  """

  def __init__(self, context: RunContext, policy: PolicySampler):
    self._policy = policy
    most = policy.max_prompt_tokens
    self._prompts = Prompts(
      context, lambda text: len(self._encode(text)) <= most
    )
    for name in context.heldin + context.heldout:
      length = len(self._encode(self._prompts.text(Task(name))))
      if length > most:
        raise UserError(
          f'config.rollout.max_prompt_tokens={most} is below the {length} '
          f'tokens that describe task {name!r}; give '
          f'--config.rollout.max_prompt_tokens={length} or more.'
        )

  def __call__(self, task: Task) -> np.ndarray:
    # A previous solution may be too long all the same: its beginning is cut.
    text = self._prompts.text(task)
    ids = self._policy.tokenizer.encode_prompt(
      text, self._policy.max_prompt_tokens
    )
    return np.asarray(ids, np.int32)

  def _encode(self, text: str) -> list[int]:
    return self._policy.tokenizer.encode_prompt(text)


def written(context: RunContext) -> list[tuple[Task, str]]:
  """Returns `solution.programs` scripted programs, each with the task it answers.

  The share `solution.improve` revises the program before it, the others are from
  scratch, for each held-in task in turn; they depend on the seed alone.
  """
  config = context.config
  if not config.solution.programs:
    return []
  author = programmer.ScriptedProgrammer()
  columns = _columns(context)
  pairs: list[tuple[Task, str]] = []
  last: dict[str, tuple[Design, Previous]] = {}
  for number in range(config.solution.programs):
    name = context.heldin[number % len(context.heldin)]
    rng = random.Random(f'{config.seed} {name} {number}')
    spec = context.spec(name)
    improves = rng.random() < config.solution.improve
    before, previous = (improves and last.get(name)) or (None, None)
    design = author.design(spec, rng, before)
    response = author.write(spec, columns[name], design, rng)
    pairs.append((Task(name, previous), response))
    output = author.output(design, rng)
    last[name] = design, Previous(solution.parse(response), output)
  return pairs


def texts(
  context: RunContext, pairs: Sequence[tuple[Task, str]]
) -> Iterator[str]:
  """Yields prompts and responses, for a tokenizer to be trained on."""
  prompts = Prompts(context)
  for task, response in pairs:
    yield prompts.text(task)
    yield response


def rows(
  pairs: Sequence[tuple[Task, str]],
  prompt_ids: PromptIds,
  policy: PolicySampler,
) -> list[sft.Row]:
  """Returns `sft.rows` of the pairs; raises UserError where none is left."""
  made = sft.rows(
    ((prompt_ids(task), response) for task, response in pairs), policy
  )
  if pairs and not made:
    raise UserError(
      'config.rollout.max_new_tokens='
      f'{policy.sampling.max_new_tokens} is too short for every program to '
      'learn from; raise it, or set --config.solution.programs=0.'
    )
  return made


def _sample(prepared: PreparedTask) -> str:
  """Path in `data/` of the sample submission that a prompt shows."""
  public = prepared.public_dir
  if prepared.spec.details is not None:
    path = task_data.sample_file(prepared.spec, public)
    if path is not None:
      return str(path.relative_to(public))
  return 'sample_submission.csv'


def _columns(context: RunContext) -> dict[str, programmer.Columns]:
  """Reads the columns of the held-in tasks' tables.

  Raises UserError for tasks of another form, for which no program can be scripted.
  """
  columns, others = {}, []
  for task in context.heldin:
    public = context.prepared[task].public_dir
    try:
      heads = [_header(public / f'{name}.csv') for name in _TABLES]
      columns[task] = programmer.columns_of(*heads)
    except (FileNotFoundError, ValueError):
      others.append(task)
  if others:
    raise UserError(
      f'config.tasks.heldin: {", ".join(others)}: only a model can write programs for '
      'what is not in three tables, train.csv, test.csv and sample_submission.csv, '
      'with one column to predict; the scripted programmer cannot. Give '
      '--config.solution.programs=0, or --config.sft.conversations with such programs.'
    )
  return columns


def _header(path: pathlib.Path) -> list[str]:
  with path.open(encoding='utf-8', newline='') as file:
    return next(csv.reader(file), [])
