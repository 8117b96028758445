"""Choice of a run's tasks."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from jaxagent.envs.tasks import list_tasks, task_names
from jaxagent.errors import UserError

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def choose_tasks(config: ConfigDict) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Returns the names of (held-in, held-out) tasks; an empty option means all.

  For whole solutions an empty `tasks.heldout` means none: a policy is trained for its
  task.
  """
  folder = pathlib.Path(config.tasks_dir)
  known = task_names(folder)

  def pick(names, split):
    names = tuple(names)
    unknown = [n for n in names if n not in known]
    if unknown:
      raise UserError(
        f'config.tasks.{split}: unknown task {unknown[0]!r}; choose from: '
        f'{", ".join(known)}.'
      )
    if names:
      return names
    return tuple(
      s.name
      for s in list_tasks(folder)
      if s.split == split and (s.m_init is not None or config.loop == 'agent')
    )

  heldin = pick(config.tasks.heldin, 'heldin')
  whole = config.loop in ('rl_for_mle', 'tree_search')
  heldout = (
    ()
    if whole and not config.tasks.heldout
    else pick(config.tasks.heldout, 'heldout')
  )
  both = sorted(set(heldin) & set(heldout))
  if both:
    raise UserError(
      f'config.tasks: {both} are both held-in and held-out; a task is either trained '
      'on or kept for evaluation. Take them out of config.tasks.heldin or heldout.'
    )
  if config.loop == 'agent':  # nothing is trained
    if not heldin + heldout:
      raise UserError(
        f'config.tasks: there is no task in {folder}; give another folder with '
        '--config.tasks_dir=DIR.'
      )
  elif not heldin:
    raise UserError(
      f'config.tasks.heldin: no held-in task to train on in {folder}; name some with '
      '--config.tasks.heldin.'
    )
  return heldin, heldout
