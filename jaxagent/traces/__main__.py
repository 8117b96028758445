"""Every trajectory of a run as MLAgentBench's runner would leave it.

  python -m jaxagent.traces RUN [--out FOLDER] [--workspaces none|final|all]

writes FOLDER/POLICY/TASK/INDEX/, laid out as `jaxagent/traces/folders.py` says, of
what was evaluated, and FOLDER/expert/TASK/INDEX/ of what was collected. Of whole
solutions it is FOLDER/POLICY/FROM/TASK/INDEX/, FROM being scratch or improved.
No jax here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from jaxagent import records
from jaxagent.envs import tasks
from jaxagent.envs.snapshots import Snapshots
from jaxagent.files import disk
from jaxagent.records import Collected, Evaluated, Trajectory
from jaxagent.traces import folders
from jaxagent.types import TaskSpec


def export(
  run: pathlib.Path,
  out: pathlib.Path,
  tasks_dir: pathlib.Path,
  workspaces: str = 'final',
) -> list[pathlib.Path]:
  """Writes every trajectory of `run`; the paths of the traces.

  Raises ValueError where there is none, or one is damaged.
  """
  written = []
  kept = run / 'snapshots.sqlite'
  with contextlib.ExitStack() as stack:
    store = None
    if kept.exists():
      store = Snapshots(kept)
      stack.callback(store.close)
    for name, record in _trajectories(run):
      task = tasks_dir / record.task
      told = task / 'scripts' / 'research_problem.txt'
      whose = out / name / getattr(record, 'part', '')
      written.append(
        folders.write_folder(
          whose / record.task / str(record.index),
          record,
          told.read_text(encoding='utf-8') if told.exists() else '',
          store=store,
          workspaces=workspaces,
          submission=_submission(record.task, tasks_dir),
        )
      )
  if not written:
    raise ValueError(f'{run} holds no trajectories below eval/ and collect/.')
  return written


def _submission(task: str, tasks_dir: pathlib.Path) -> str:
  """The file that its scripts write; the usual one where the task is gone."""
  try:
    spec = tasks.load_task(task, tasks_dir)
  except ValueError:
    return TaskSpec.submission
  return spec.submission_file


def _trajectories(run: pathlib.Path) -> Iterator[tuple[str, Trajectory]]:
  """(whose, trajectory) of all; raises ValueError for a damaged file."""
  for path in sorted((run / 'eval').glob('*.json')):
    found = _json(path, path.read_text(encoding='utf-8'))
    if isinstance(found, list):  # starts.json is none
      for value in found:
        yield path.stem, _read(path, Evaluated, value)
  path = run / 'collect' / 'trajectories.jsonl'
  if path.exists():
    for line in path.read_text(encoding='utf-8').splitlines():
      yield 'expert', _read(path, Collected, _json(path, line))


def _read(
  path: pathlib.Path, kind: type[Evaluated] | type[Collected], value: Any
) -> Trajectory:
  try:
    return kind.from_json(value)
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from error


def _json(path: pathlib.Path, text: str) -> Any:
  try:
    return json.loads(text)
  except ValueError as error:
    raise ValueError(f'{path} is damaged: {error}') from error


def main(argv: Sequence[str] | None = None) -> int:
  flag_parser = argparse.ArgumentParser(
    prog='python -m jaxagent.traces',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  flag_parser.add_argument('run', type=pathlib.Path)
  flag_parser.add_argument(
    '--out', type=disk.user_path, help='default: RUN/mlagentbench'
  )
  flag_parser.add_argument(
    '--tasks_dir', type=disk.user_path, default=tasks.default_folder()
  )
  flag_parser.add_argument(
    '--workspaces', choices=folders.WORKSPACES, default='final'
  )
  flags = flag_parser.parse_args(argv)
  out = flags.out or flags.run / 'mlagentbench'
  try:
    records.load_noted(flags.run)
    written = export(flags.run, out, flags.tasks_dir, flags.workspaces)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  print(f'{len(written)} traces below {out}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
