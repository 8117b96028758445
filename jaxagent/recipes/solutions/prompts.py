"""Prompts for whole solutions, and scripted programs to fine-tune on."""

from __future__ import annotations

import csv
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.envs import solution
from jaxagent.envs.solution import Previous, Task
from jaxagent.envs.specs import task_data
from jaxagent.envs.tasks import PreparedTask
from jaxagent.errors import UserError
from jaxagent.stand_ins import function_programmer, programmer
from jaxagent.stand_ins.function_programmer import FunctionProgrammer
from jaxagent.stand_ins.programmer import Author
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
  authors = _authors(context)
  pairs: list[tuple[Task, str]] = []
  last: dict[str, tuple[Any, Previous]] = {}
  for number in range(config.solution.programs):
    name = context.heldin[number % len(context.heldin)]
    rng = random.Random(f'{config.seed} {name} {number}')
    spec, author = context.spec(name), authors[name]
    improves = rng.random() < config.solution.improve
    before, previous = (improves and last.get(name)) or (None, None)
    design = author.design(spec, rng, before)
    response = author.write(spec, design, rng)
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
  if len(made) < len(pairs):
    _tell_too_long(pairs, len(made), policy)
  return made


def _tell_too_long(
  pairs: Sequence[tuple[Task, str]], kept: int, policy: PolicySampler
) -> None:
  """Prints how many programs are longer than a policy may write.

  Raises UserError where all are.
  """
  most = max(len(policy.tokenizer.encode_response(text)) for _, text in pairs)
  limit = policy.sampling.max_new_tokens
  if not kept:
    raise UserError(
      f'config.rollout.max_new_tokens={limit} is too short for every program to learn '
      f'from; raise it ({most} for the longest), or set --config.solution.programs=0.'
    )
  print(
    f'programs     {len(pairs) - kept} of {len(pairs)} are left out of SFT, for they '
    f'have more tokens than config.rollout.max_new_tokens={limit} (the longest: {most})'
  )


def _sample(prepared: PreparedTask) -> str:
  """Path in `data/` of the sample submission that a prompt shows."""
  public = prepared.public_dir
  if prepared.spec.details is not None:
    path = task_data.sample_file(prepared.spec, public)
    if path is not None:
      return str(path.relative_to(public))
  return 'sample_submission.csv'


def _authors(context: RunContext) -> dict[str, Author]:
  """Returns who writes the held-in tasks' programs.

  Raises UserError for tasks of which no program can be scripted.
  """
  authors = {name: _author(context, name) for name in context.heldin}
  if others := [name for name, author in authors.items() if author is None]:
    raise UserError(
      f'config.tasks.heldin: {", ".join(others)}: only a model can write programs for '
      'what is neither in three tables, train.csv, test.csv and sample_submission.csv, '
      'with one column to predict, nor has a starter with a function that the scripted '
      'programmer knows (docs/tasks.md). Give --config.solution.programs=0, or '
      '--config.sft.conversations with such programs.'
    )
  return {name: author for name, author in authors.items() if author}


def _author(context: RunContext, name: str) -> Author | None:
  """Returns the author of a task's scripted programs; None where none can be scripted."""
  spec, public = context.spec(name), context.prepared[name].public_dir
  if function_programmer.can_write(spec):
    return FunctionProgrammer()
  try:
    return programmer.ScriptedProgrammer(columns_in(public))
  except (FileNotFoundError, ValueError):
    return None


def columns_in(public: pathlib.Path) -> programmer.Columns:
  """Reads the columns of a task's three tables.

  Raises FileNotFoundError or ValueError for other data.
  """
  heads = [_header(public / f'{table}.csv') for table in _TABLES]
  return programmer.columns_of(*heads)


def _header(path: pathlib.Path) -> list[str]:
  with path.open(encoding='utf-8', newline='') as file:
    return next(csv.reader(file), [])
