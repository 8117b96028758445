"""Tables of paper 001 in the numbers of a run: arms, ideas by type, calls by step."""

from __future__ import annotations

import math
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent.analysis import at_three, collapse
from jaxagent.analysis.boards import (
  HUMAN,
  REFERENCE,
  human_board,
  reference_board,
)
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.ideator import evaluate, types_of
from jaxagent.recipes.ideator.interaction import IDEATOR, IMPLEMENTER
from jaxagent.recipes.ideator.record import ImplementerStepRecord
from jaxagent.recipes.ideator.spending import money

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.analysis.boards import Board
  from jaxagent.recipes.starts import Start
  from jaxagent.records import Evaluated
  from jaxagent.runtime.context import RunContext
  from jaxagent.types import TaskSpec

# Figures of an arm that TensorBoard has, as ideator/arm/ARM/SPLIT/NAME.
LOGGED = (
  'avg_at_3',
  'best_at_3',
  'best_by_valid_at_3',
  'percentile_at_3',
  'valid',
  'improve',
  'distinct_ideas',
  'type_entropy',
  'calls',
  'steps',
)


def board_file(config: ConfigDict, spec: TaskSpec) -> pathlib.Path | None:
  """Returns the file of a task's human leaderboard; None where there is none.

  That of mle-bench's checkout is of published data: a stand-in has none there.
  """
  if not config.ideator.boards:
    return None
  folder = pathlib.Path(config.ideator.boards).expanduser()
  paths = [folder / f'{spec.name}.csv']
  if spec.details is not None and config.tasks.data in ('mlebench', 'raw'):
    paths.append(folder / spec.details.source.id / 'leaderboard.csv')
  return next((path for path in paths if path.exists()), None)


def board_in(path: pathlib.Path, spec: TaskSpec) -> Board:
  """Reads a task's human leaderboard. Raises ValueError as `human_board`."""
  known = spec.details.board if spec.details is not None else None
  return human_board(
    path,
    task=spec.name,
    higher_is_better=spec.higher_is_better,
    faults=known.faults if known else (),
  )


def boards_of(
  context: RunContext, starts: Mapping[str, Start]
) -> dict[str, Board]:
  """Returns task -> its board, on the private rows.

  The human one of `ideator.boards`; else the reference board of the starter and the
  best recorded solution. Raises ValueError for a board that cannot be used.
  """
  found = {}
  for task, start in starts.items():
    spec = context.spec(task)
    if (path := board_file(context.config, spec)) is not None:
      found[task] = board_in(path, spec)
      continue
    best = spec.m_best_private
    found[task] = reference_board(
      [] if best is None else [best],
      task=task,
      higher_is_better=spec.higher_is_better,
      starter=start.private,
    )
  return found


def arms(
  context: RunContext,
  starts: Mapping[str, Start],
  evaluated: Mapping[str, Sequence[Evaluated]],
) -> dict[str, Any]:
  """Returns label -> split -> figures, JSON-able; see `of_arm`."""
  boards = boards_of(context, starts)
  prices = {
    role: dict(context.config[role].prices) for role in (IMPLEMENTER, IDEATOR)
  }
  how = types_of.BY_RULE
  if context.config.classifier.kind == 'openai':
    how = types_of.BY_MODEL
  return {
    label: {
      split: {
        **of_arm(
          [r for r in present(records) if r.split == split],
          boards,
          prices=prices,
        ),
        'types_are': how,
      }
      for split in ('heldin', 'heldout')
      if any(r.split == split for r in records)
    }
    for label, records in evaluated.items()
  }


def logged(table: Mapping[str, Any]) -> dict[str, float]:
  """Returns the figures of `arms` that TensorBoard has, by name."""
  return {
    f'ideator/arm/{label}/{split}/{name}': row[name]
    for label, splits in table.items()
    for split, row in splits.items()
    for name in LOGGED
    if row[name] is not None
  }


def of_arm(
  records: Sequence[Evaluated],
  boards: Mapping[str, Board],
  *,
  prices: Mapping[str, Mapping[str, float]] = {},
) -> dict[str, Any]:
  """Returns figures of an arm on a split; None stands for what is not known.

  avg_at_3, best_at_3: means over tasks of normalised private scores of the last valid
    submission (None below three runs of a task); best_by_valid_at_3: Avg@3 of the
    best one by the validation rows; percentile_at_3: Avg@3 of ranks on the board.
  board, boards: what the scores are normalised on, in words and by task.
  valid: share of runs with a valid submission.
  improve, ideas: share of carried-out ideas that improve, and their number; types,
    effectiveness: by type. distinct_ideas, type_entropy: of all ideas.
  format_errors: answers of models that are no idea.
  calls, steps, exec_s: means of a run; prompt_tokens, tokens, answer_s: by role, of the
    runs where they were counted; money: of both roles, by `prices`.
  by_step: mean normalised score after each message; calls_by_step: share of the calls
    at each.
  """
  up = {task: board.higher_is_better for task, board in boards.items()}
  ideas = [one for r in records for one in evaluate.ideas_of(r, up[r.task])]
  given = [kind for r in records for kind, _ in _fates(r, up)]
  actions = [action for r in records for action in evaluate.actions_of(r)]
  runs = len(records)
  used = [boards[task] for task in sorted({r.task for r in records})]
  return {
    'board': _board_in_words([board.kind for board in used]),
    'boards': {board.task: f'{board.kind} {board.source}' for board in used},
    'runs': runs,
    'valid': sum(r.score is not None for r in records) / runs if runs else None,
    **_scores(records, boards),
    'ideas': len(ideas),
    'improve': sum(g for _, g in ideas) / len(ideas) if ideas else None,
    'types': types_of.shares(given),
    'effectiveness': types_of.effectiveness(ideas),
    'distinct_ideas': collapse.distinct_share(actions),
    'type_entropy': collapse.entropy(given),
    'format_errors': sum(
      bool(step.format_error) for r in records for step in _steps(r)
    ),
    **_costs(records, prices),
    **_by_step(records, boards),
  }


def _board_in_words(kinds: Sequence[str]) -> str:
  words = {
    HUMAN: 'human leaderboard',
    REFERENCE: 'reference: starter and best recorded solution',
  }
  return '; '.join(words[kind] for kind in sorted(set(kinds)))


def _fates(
  record: Evaluated, up: Mapping[str, bool]
) -> list[tuple[str, bool | None]]:
  return list(evaluate.fates(record, up[record.task]).values())


def _steps(record: Evaluated) -> list[ImplementerStepRecord]:
  made = [step.record for step in record.steps]
  return [one for one in made if isinstance(one, ImplementerStepRecord)]


def _scores(
  records: Sequence[Evaluated], boards: Mapping[str, Board]
) -> dict[str, float | None]:
  """Returns the figures of three runs, means over tasks."""
  by_task: dict[str, list[Evaluated]] = {}
  for record in records:
    by_task.setdefault(record.task, []).append(record)
  last, best, ranks = [], [], []
  for task, own in by_task.items():
    board = boards[task]
    last.append([board.normalised(r.score) for r in own])
    ranks.append([board.percentile(r.score) for r in own])
    best.append(
      [
        board.normalised(evaluate.best_by_valid(r, board.higher_is_better))
        for r in own
      ]
    )
  return {
    'avg_at_3': _mean(last, at_three.avg_at_three),
    'best_at_3': _mean(last, at_three.best_at_three),
    'best_by_valid_at_3': _mean(best, at_three.avg_at_three),
    'percentile_at_3': _mean(ranks, at_three.avg_at_three),
  }


def _mean(
  rows: Sequence[Sequence[float | None]],
  figure: Callable[[Sequence[float | None]], float],
) -> float | None:
  if not rows or any(len(row) < at_three.K for row in rows):
    return None
  return at_three.over_tasks([figure(row) for row in rows])


def _costs(
  records: Sequence[Evaluated], prices: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
  """Returns what a run takes, means over runs."""
  runs = len(records)
  asked = sum(s.action == 'seek_help' for r in records for s in _steps(r))
  found: dict[str, Any] = {
    'calls': asked / runs if runs else None,
    'steps': sum(len(r.steps) for r in records) / runs if runs else None,
    'exec_s': math.fsum(s.record.exec_s for r in records for s in r.steps)
    / runs
    if runs
    else None,
  }
  for name in evaluate.COUNTED:
    found[name] = {
      IMPLEMENTER: _a_run(
        [[getattr(s, name) for s in r.steps] for r in records]
      ),
      IDEATOR: _a_run(
        [[getattr(s, f'advice_{name}') for s in _steps(r)] for r in records]
      ),
    }
  spent = [
    money(
      prices[role],
      found['prompt_tokens'][role] or 0,
      found['tokens'][role] or 0,
    )
    for role in (IMPLEMENTER, IDEATOR)
    if prices.get(role)
  ]
  found['money'] = math.fsum(spent) if spent else None
  return found


def _a_run(rows: Sequence[Sequence[float | None]]) -> float | None:
  """Returns the mean sum of a row; None where nothing was counted."""
  counted = [value for row in rows for value in row if value is not None]
  return math.fsum(counted) / len(rows) if counted else None


def _by_step(
  records: Sequence[Evaluated], boards: Mapping[str, Board]
) -> dict[str, Any]:
  """Returns score and share of calls by step; a run that has ended keeps its score."""
  curves = [
    [boards[r.task].normalised(s) or 0.0 for s in evaluate.by_step(r)]
    for r in records
    if r.steps
  ]
  asked = Counter(
    n
    for r in records
    for n, step in enumerate(_steps(r))
    if step.action == 'seek_help'
  )
  most = max(map(len, curves), default=0)
  return {
    'by_step': [
      math.fsum(c[min(n, len(c) - 1)] for c in curves) / len(curves)
      for n in range(most)
    ],
    'calls_by_step': {
      str(n): count / asked.total() for n, count in sorted(asked.items())
    },
  }
