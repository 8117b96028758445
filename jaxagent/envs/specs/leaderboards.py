"""Leaderboards of mle-bench's competitions, out of a user's checkout.

`mlebench/competitions/ID/leaderboard.csv` there is a Git-LFS file: a plain clone holds
a pointer. Nothing here raises for a board that cannot be used: it says why.
"""

from __future__ import annotations

import dataclasses
import pathlib

from jaxagent.envs.specs.descriptions import COMPETITIONS
from jaxagent.graders import report
from jaxagent.types import TaskSpec


@dataclasses.dataclass(frozen=True)
class FoundBoard:
  """Thresholds of a task's leaderboard, and what is odd about it.

  thresholds: None where a score earns no medal; `note` then says why.
  """

  thresholds: report.Thresholds | None
  note: str = ''


def board_of(spec: TaskSpec, repo: str) -> FoundBoard:
  """Returns the leaderboard of the data that a task's scores are on.

  spec: of a prepared task. repo: a checkout of mle-bench; '' for none.
  """
  if spec.is_standin:
    return FoundBoard(None, 'its data is a stand-in: no score earns a medal')
  if spec.details is None or spec.details.source.kind != 'mlebench':
    return FoundBoard(None, 'no task of mle-bench: there is no leaderboard')
  if not repo:
    return FoundBoard(
      None,
      'no leaderboard: config.tasks.mlebench_repo names no checkout of mle-bench',
    )
  folder = pathlib.Path(repo).expanduser() / COMPETITIONS
  path = folder / spec.details.source.id / 'leaderboard.csv'
  try:
    scores = report.read_leaderboard(path)
  except FileNotFoundError:
    return FoundBoard(None, f'no leaderboard: {path} is not there')
  except (ValueError, OSError) as error:
    return FoundBoard(None, f'no leaderboard: {error}')
  return _checked(spec, path, scores)


def _checked(
  spec: TaskSpec, path: pathlib.Path, scores: list[float]
) -> FoundBoard:
  """The board, where it runs in the direction of the task's metric."""
  thresholds = report.Thresholds.of(scores)
  if scores[0] == scores[-1]:
    return FoundBoard(
      None,
      f'no leaderboard: best and worst of {path} are both {scores[0]:g}, so no score '
      'earns a medal',
    )
  if thresholds.lower_is_better is spec.higher_is_better:
    ends = f'{scores[0]:g} to {scores[-1]:g}'
    better = 'higher' if spec.higher_is_better else 'lower'
    return FoundBoard(
      None,
      f'no leaderboard: {path} runs from {ends}, and of {spec.metric} a {better} '
      'score is better',
    )
  marks = report.sentinels(scores)
  return FoundBoard(
    thresholds, report.marked(marks, len(scores)) if marks else ''
  )
