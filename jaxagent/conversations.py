"""Exports the expert steps of a run as conversations to fine-tune a model on.

  python -m jaxagent.conversations RUN FILE [--improved] [--keep_duplicates]

writes every step that ran of RUN/collect as one conversation in ShareGPT's layout
(`jaxagent/data/conversations.py`; FILE.jsonl: one a line): the prompt as the run's
agent is shown it, whole, and the expert's response. `--config.sft.conversations=FILE`
learns from such a file.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence

from jaxagent.config import settings
from jaxagent.config import tasks as task_choice
from jaxagent.config.agents import prompter_of
from jaxagent.data import conversations
from jaxagent.data.conversations import Conversation
from jaxagent.data.expert_steps import training_steps
from jaxagent.data.records import TrajectoryStore
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.tasks import load_task
from jaxagent.errors import UserError
from jaxagent.files import disk
from jaxagent.records import Collected


def steps_of(
  run: pathlib.Path,
  tasks_dir: pathlib.Path | None = None,
  *,
  improved: bool = False,
) -> Iterator[Conversation]:
  """One for each expert step that ran.

  tasks_dir: the folder of its tasks; None: that of the run's config.
  improved: of trajectories alone that were once better than their start.
  Raises ValueError, KeyError or UserError where the run has no trajectory or is
  damaged.
  """
  store = TrajectoryStore(run / 'collect' / 'trajectories.jsonl')
  # As SFT takes them, not as they happened to end.
  read = (Collected.from_json(value) for value in store.read())
  records = sorted(read, key=lambda r: (r.task, r.index))
  if not records:
    raise ValueError(f'{run} holds no trajectory of experts below collect/.')
  config = settings.recorded(run)
  prompter = prompter_of(config)
  folder = tasks_dir or task_choice.folder(config)
  specs = {r.task: load_task(r.task, folder) for r in records}
  kept = run / 'snapshots.sqlite'
  with contextlib.closing(
    Snapshots(kept if kept.exists() else ':memory:')
  ) as s:
    for state, record in training_steps(records, s.get, improved=improved):
      yield Conversation(
        prompter.text(state, specs[state.task]), record.response
      )


def main(argv: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.conversations',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('run', type=pathlib.Path)
  parser.add_argument('file', type=pathlib.Path)
  parser.add_argument(
    '--improved',
    action='store_true',
    help='of trajectories alone that were once better than their start',
  )
  parser.add_argument(
    '--keep_duplicates',
    action='store_true',
    help='equal prompts with equal responses as often as they were',
  )
  parser.add_argument(
    '--tasks_dir', type=disk.user_path, help="default: that of the run's config"
  )
  flags = parser.parse_args(argv)
  try:
    rows = steps_of(flags.run, flags.tasks_dir, improved=flags.improved)
    if not flags.keep_duplicates:
      rows = conversations.distinct(rows)
    n = conversations.write(flags.file, rows)
  except (ValueError, KeyError, OSError, UserError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  print(f'{n} conversations in {flags.file}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
