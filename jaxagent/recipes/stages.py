"""Parts of the stages that every experiment shares: wall clock, summary, report."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxagent.recipes import results
from jaxagent.recipes.starts import Start, write_json
from jaxagent.runtime import kept
from jaxagent.runtime.context import RunContext


@contextlib.contextmanager
def timed(context: RunContext, stage: str) -> Iterator[None]:
  """Adds the stage's wall seconds to those of earlier attempts."""
  path = context.work / 'wall_s.json'
  began = time.monotonic()
  try:
    yield
  finally:
    walls = kept.kept_json(path, kept.seconds) or {}
    walls[stage] = walls.get(stage, 0.0) + time.monotonic() - began
    write_json(path, walls)
    context.wall_s.update(walls)


def evaluate(
  context: RunContext, policy, learner, label: str, run: Callable[[], Any]
) -> None:
  """Runs the evaluation `label`, if it is wanted, of the learner's weights."""
  if label not in context.config.eval.policies:
    return
  with timed(context, f'evaluate_{label}'):
    set_aside_older(context.work, label, learner.updates)
    policy.engine.update_weights(learner.policy_params, policy.engine.version)
    run()


def set_aside_older(work: pathlib.Path, label: str, updates: int) -> None:
  """Renames results of `label`'s policy after another number of RL updates.

  A run may be evaluated on its way and trained further. `eval/LABEL.updates` says
  whose the records are; where it is not there they are taken as they are.
  """
  mark = work / 'eval' / f'{label}.updates'
  before = mark.read_text() if mark.exists() else str(updates)
  for kind in ('json', 'journal'):
    path = mark.with_name(f'{label}.{kind}')
    if before != str(updates) and path.exists():
      aside = _free(path.with_name(f'{path.name}.after_{before}'))
      os.replace(path, aside)
      print(f'{path} was made after update {before}: renamed {aside.name}.')
  mark.parent.mkdir(parents=True, exist_ok=True)
  mark.write_text(str(updates))


def _free(path: pathlib.Path) -> pathlib.Path:
  """Returns the path, or with a number behind it where something has it."""
  number, free = 1, path
  while free.exists():
    number, free = number + 1, path.with_name(f'{path.name}.{number + 1}')
  return free


def finish(
  context: RunContext,
  starts: Mapping[str, Start],
  labels: Sequence[str] = ('sft', 'rl'),
  extra: Mapping[str, Any] = {},
  how: Mapping[str, Any] = {},
) -> None:
  """Writes summary and report from the files of the stages.

  labels: the policies that may have been evaluated.
  extra, how: see `results.write`.
  """
  with timed(context, 'report'):
    evaluated = {
      label: kept.evaluated(context.work, label)
      for label in labels
      if label in context.config.eval.policies
    }
    traces = results.read_traces(context.work / 'rl' / 'traces')
  results.write(context, starts, evaluated, traces, extra, how)
