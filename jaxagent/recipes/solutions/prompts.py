"""Prompts for whole solutions, and scripted programs to fine-tune on."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent.envs import solution, solution_prompts
from jaxagent.envs.operators import Shares
from jaxagent.envs.solution import Previous, Task
from jaxagent.envs.specs import task_data
from jaxagent.envs.tasks import PreparedTask
from jaxagent.errors import UserError
from jaxagent.stand_ins import function_programmer, grammar, programmer
from jaxagent.stand_ins.function_programmer import FunctionProgrammer
from jaxagent.stand_ins.programmer import Author
from jaxagent.training import sft
from jaxagent.training.policy import PolicySampler
from jaxagent.types import TaskSpec

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext


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
    return solution_prompts.ask(
      self._tasks[task.name], task, self._fits, style=self._style
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


@dataclasses.dataclass(frozen=True)
class _Written:
  """A program that a later one continues from."""

  design: Any
  shown: Previous


_MOST_WRITTEN = 8  # of a task, of which a crossover takes two


def written(context: RunContext) -> list[tuple[Task, str]]:
  """Returns `solution.programs` scripted programs, each with the task it answers.

  Operators have the shares of `solution.operators`, for each held-in task in turn: one
  revises the program before it, debugs a slip in it, joins it with an earlier one, or is
  from scratch. They depend on the seed alone.
  """
  config = context.config
  if not config.solution.programs:
    return []
  authors, shares = _authors(context), Shares.of(config.solution)
  pairs: list[tuple[Task, str]] = []
  earlier: dict[str, collections.deque[_Written]] = {}
  for number in range(config.solution.programs):
    name = context.heldin[number % len(context.heldin)]
    rng = random.Random(f'{config.seed} {name} {number}')
    own = earlier.setdefault(name, collections.deque(maxlen=_MOST_WRITTEN))
    asked = shares.drawn(rng.random())
    spec, author = context.spec(name), authors[name]
    task, response, design = _demonstrated(spec, author, own, asked, rng)
    pairs.append((task, response))
    output = author.output(design, rng)
    own.append(_Written(design, Previous(solution.parse(response), output)))
  return pairs


def _demonstrated(
  spec: TaskSpec,
  author: Author,
  earlier: Sequence[_Written],
  asked: str,
  rng: random.Random,
) -> tuple[Task, str, Any]:
  """(what is asked, the response, its design); the programs before it: the last is newest."""
  if asked == 'debug':
    return _debugged(spec, author, earlier, rng)
  if asked == 'crossover' and (found := _joined(spec, author, earlier, rng)):
    return found
  task, before = Task(spec.name), None
  if asked != 'draft' and earlier:
    last = earlier[-1]
    task, before = Task(spec.name, last.shown), last.design
  design = author.design(spec, rng, before)
  return task, author.write(spec, design, rng), design


def _debugged(
  spec: TaskSpec,
  author: Author,
  earlier: Sequence[_Written],
  rng: random.Random,
) -> tuple[Task, str, Any]:
  """The last program, or a new one, with a slip; the answer is the same without it."""
  design = earlier[-1].design if earlier else author.design(spec, rng)
  failed = author.failed(spec, design, rng)
  shown = Previous(
    solution.parse(failed.response),
    failed.output,
    failed.outcome.value,
    failed.reason,
  )
  response = author.write(spec, design, rng, slips=False)
  return Task(spec.name, shown, operator='debug'), response, design


def _joined(
  spec: TaskSpec,
  author: Author,
  earlier: Sequence[_Written],
  rng: random.Random,
) -> tuple[Task, str, Any] | None:
  """Parts of the last program and of the newest that gives something new with it.

  None where none does. Nothing is run here: the scores that a prompt shows are drawn
  between the starter's and the best known.
  """
  for other in list(earlier)[-2::-1]:
    last = earlier[-1]
    design = author.crossed(spec, last.design, other.design, rng)
    if design is None:
      continue
    ends = spec.m_init or 0.0, spec.m_best or 1.0
    first, second = (
      Previous(
        solution.parse(author.write(spec, one.design, rng, slips=False)),
        one.shown.output,
        score=rng.uniform(*ends),
      )
      for one in (last, other)
    )
    task = Task(spec.name, first, operator='crossover', second=second)
    return task, author.write(spec, design, rng), design
  return None


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
    return programmer.ScriptedProgrammer(grammar.columns_in(public))
  except (FileNotFoundError, ValueError):
    return None
