"""Do validation and private scores agree on which of the good programs are better?

Measured on every program that the scripted programmer can write for a task, each run
once. Where they do not, the best of many by validation is the luckiest, not the best.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import task_data
from jaxagent.envs.tasks import PreparedTask
from jaxagent.stand_ins import grammar
from jaxagent.tasks import measure
from jaxagent.tasks.measure import Measured

LEAST = 10  # programs in the best tenth, below which nothing is said


def of(
  results: Iterable[Measured], higher_is_better: bool
) -> tuple[float | None, int]:
  """Returns (rank correlation among the best tenth by validation, programs in it).

  Spearman's, ties at their mean rank. None where the tenth has fewer than LEAST
  programs, or one of both scores is the same for all of them.
  """
  from scipy import stats

  ranked = sorted(results, key=lambda m: m.valid, reverse=higher_is_better)
  top = ranked[: len(ranked) // 10]
  valid, private = [m.valid for m in top], [m.private for m in top]
  if len(top) < LEAST or len(set(valid)) == 1 or len(set(private)) == 1:
    return None, len(top)
  found = float(stats.spearmanr(valid, private).statistic)
  return (found if math.isfinite(found) else None), len(top)


def measured(
  prepared: PreparedTask, grader: Grader, *, workers: int = 2
) -> list[Measured]:
  """Runs and grades every program of the grammar; those without a score are left out.

  Raises ValueError for a task of which none can be scripted.
  """
  scripts = grammar.scripts(prepared.spec, prepared.public_dir)
  runs = measure.measured(prepared, grader, scripts, workers=workers)
  return [found for _, found in runs if isinstance(found, Measured)]


def record(prepared: PreparedTask, found: float) -> None:
  """Writes it into task.yaml; of published data beside that."""
  spec = prepared.spec
  value = round(found, 4)
  if spec.version == 1:
    measure.update_yaml(spec.root / 'task.yaml', {'agreement': value})
    return
  folder = prepared.public_dir.parent
  scale = task_data.scale_of(spec, spec.variant, folder)
  measure.write_scale(prepared, dataclasses.replace(scale, agreement=value))


def said(name: str, found: float | None, top: int, programs: int) -> str:
  """Returns the line that the command prints."""
  if found is None:
    why = f'fewer than {LEAST}' if top < LEAST else 'with equal scores'
    return (
      f'{name}: agreement is not known: the best tenth of {programs} programs is '
      f'{top}, {why}'
    )
  return (
    f'{name}: agreement {found:.2f}, the rank correlation of validation and private '
    f'scores among the best {top} of {programs} programs'
  )
