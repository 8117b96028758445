"""Grades submissions of mle-bench's and MLAgentBench's tasks (docs/tasks.md).

  python -m jaxagent.grade --jsonl FILE [--report [PATH]]
      [--leaderboards DIR] [--mode compat|strict] [--timeout_s S] [--memory_mb M]

Each line of FILE is {"competition", "submission", "answers", "mode"}; blank
lines and lines starting with # or // are skipped. In strict a "split" grades the
rows of that half alone (valid or private, a column of the answers); the answer then has
"whole", too, the source's own number of all rows, which is what medals are given for. "competition" may
also be accuracy, f1_macro, roc_auc, log_loss, rmse or mae, in strict, with the
columns "id" (a name) and "targets" (a list of names). Relative paths are looked
up from the working directory, then from FILE's folder. The same lines go to
standard output with "score" (a number or null; NaN where mle-bench gives NaN
in compat) and "reason". A line may name its "leaderboard" (a CSV with a
`score` column in rank order); --leaderboards DIR is looked in for
DIR/COMPETITION/leaderboard.csv. With one the answer has "medal": gold, silver, bronze
or ''. --report writes mle-bench's report, by
default to <time>_grading_report.json. A submission whose grading passes a limit
has no score.

Exit status: 0 where every line was read and graded, refused submissions
included; 1 where a line was itself faulty (its "reason" says how) or had a
leaderboard that cannot be read (its "note" says why; the score stands, without
medals). A leaderboard with marks in place of scores (999999) is used as it is, and
"board_note" says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from jaxagent import graders
from jaxagent.files import disk
from jaxagent.graders import limited
from jaxagent.graders import report as report_lib

_COMMENTS = ('#', '//')


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  """Numbered lines that hold something."""
  for number, line in enumerate(path.read_text('utf-8').splitlines(), 1):
    if line.strip() and not line.strip().startswith(_COMMENTS):
      yield number, line


def _find(name: str, folder: pathlib.Path) -> pathlib.Path:
  path = pathlib.Path(name)
  if path.exists() or path.is_absolute():
    return path
  return folder / path if (folder / path).exists() else path


def _parse(line: str, number: int, default_mode: str) -> dict[str, Any]:
  try:
    record = json.loads(line)
  except (json.JSONDecodeError, RecursionError) as error:
    raise ValueError(f'line {number} is not JSON: {error}') from error
  if not isinstance(record, dict):
    raise ValueError(f'line {number} is not a JSON object')
  missing = [
    key
    for key in ('competition', 'submission', 'answers')
    if not isinstance(record.get(key), str)
  ]
  if missing:
    raise ValueError(f'line {number} lacks {missing} (strings)')
  if not isinstance(record.get('leaderboard') or '', str):
    raise ValueError(
      f'line {number}: leaderboard={record["leaderboard"]!r} must be the path of a '
      'file'
    )
  record.setdefault('mode', default_mode)
  return record


def _scope(record: dict[str, Any], number: int) -> graders.Scope:
  """Rows and columns that a line names."""
  texts = {key: record.get(key, '') for key in ('split', 'id')}
  targets = record.get('targets', [])
  if not all(isinstance(v, str) for v in texts.values()) or not (
    isinstance(targets, list) and all(isinstance(v, str) for v in targets)
  ):
    raise ValueError(
      f'line {number}: split and id must be strings, targets a list of strings'
    )
  return graders.Scope(texts['split'], texts['id'], tuple(targets))


def _leaderboard(
  record: dict[str, Any], folder: pathlib.Path, boards: Any
) -> list[float] | None:
  """The line's own board, or the checkout's; None where there is neither."""
  if record.get('leaderboard'):
    return report_lib.read_leaderboard(_find(record['leaderboard'], folder))
  if boards is None:
    return None
  path = boards / record['competition'] / 'leaderboard.csv'
  return report_lib.read_leaderboard(path) if path.is_file() else None


def grade_line(
  line: str,
  number: int,
  folder: pathlib.Path,
  default_mode: str,
  boards: pathlib.Path | None,
  limits: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any] | None]:
  """The answered line, and its report (None where the line is faulty).

  limits: timeout_s and memory_mb of `limited.grade_files`.
  """
  record: dict[str, Any] = {'line': line}
  try:
    record = _parse(line, number, default_mode)
    submission = _find(record['submission'], folder)
    scope = _scope(record, number)

    def graded(mode: str, rows: graders.Scope) -> graders.Grade:
      answers = _find(record['answers'], folder)
      return limited.grade_files(
        record['competition'], submission, answers, mode, scope=rows, **limits
      )

    whole = grade = graded(record['mode'], scope)
    if scope.split and grade.score is not None:
      suffix = '' if submission.is_dir() else submission.suffix.lower()
      mode = graders.source_mode(record['competition'], suffix)
      whole = graded(mode, dataclasses.replace(scope, split=''))
  except (ValueError, OSError) as error:
    return {**record, 'score': None, 'reason': str(error)}, None
  board: list[float] | None = None
  note: dict[str, Any] = {}
  try:
    board = _leaderboard(record, folder, boards)
    if marks := report_lib.sentinels(board or []):
      note = {'board_note': report_lib.marked(marks, len(board or []))}
  except (ValueError, OSError) as error:
    note = {'note': str(error)}
  if whole is not grade:
    note['whole'] = whole.score
  if board:
    note['medal'] = report_lib.Thresholds.of(board).medal(whole.score)
  answered = {**record, 'score': grade.score, 'reason': grade.reason, **note}
  return answered, report_lib.competition_report(
    record['competition'], str(submission), whole, board
  )


def _between(kind: Any, least: Any, most: Any, text: str):
  try:
    value = kind(text)
  except ValueError:
    value = None
  if value is None or not least <= value <= most:
    raise argparse.ArgumentTypeError(
      f'{text!r} must be a number from {least} to {most}.'
    )
  return value


def _seconds(text: str) -> float:
  return _between(float, 0.001, 86400, text)


def _mib(text: str) -> int:
  return _between(int, 1024, 1 << 20, text)


def main(argv: Sequence[str] | None = None) -> int:
  """The command line; returns the exit status."""
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.grade',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--jsonl', required=True, type=disk.user_path)
  parser.add_argument('--report', nargs='?', const='', metavar='PATH')
  parser.add_argument('--leaderboards', type=disk.user_path, metavar='DIR')
  parser.add_argument('--mode', choices=graders.MODES, default='compat')
  parser.add_argument('--timeout_s', type=_seconds, default=600.0, metavar='S')
  parser.add_argument('--memory_mb', type=_mib, default=8192, metavar='M')
  args = parser.parse_args(argv)
  if not args.jsonl.is_file():
    parser.error(f'--jsonl {args.jsonl} is not a file.')
  limits = {'timeout_s': args.timeout_s, 'memory_mb': args.memory_mb}
  reports, faulty = [], 0
  try:
    lines = list(read_lines(args.jsonl))
  except (UnicodeDecodeError, OSError) as error:
    parser.error(f'--jsonl {args.jsonl} cannot be read as UTF-8 text: {error}.')
  for number, line in lines:
    answered, report = grade_line(
      line, number, args.jsonl.parent, args.mode, args.leaderboards, limits
    )
    print(json.dumps(answered), flush=True)
    faulty += report is None or 'note' in answered
    if report is not None:
      reports.append(report)
  if args.report is not None:
    stamp = time.strftime('%Y-%m-%dT%H-%M-%S-%Z', time.gmtime())
    path = disk.user_path(args.report or f'{stamp}_grading_report.json')
    try:
      path = report_lib.write_report(path, reports)
    except OSError as error:
      print(f'--report {path} cannot be written: {error}', file=sys.stderr)
      return 1
    print(f'Saved summary report to {path}', file=sys.stderr)
  return 1 if faulty else 0


if __name__ == '__main__':
  sys.exit(main())
