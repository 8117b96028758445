"""A run over real processes, to be killed: python -m tests.rollout.mortal FOLDER.

Prints `ready` when it has resumed and `done` at its end. FOLDER holds the
journal, the last checkpoint, and what each update trained.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys

from jaxagent.clock import RealClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.journal import Journal
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing import keyed
from jaxagent.testing.process_executor import ProcessExecutor

UPDATES, BATCH, TURNS, SLOTS = 4, 6, 15, 6
SCALE = 0.005  # seconds, the median of an execution


def _act(work):
  action = keyed.act(work)
  seconds = SCALE * action.duration_s
  return dataclasses.replace(action, duration_s=seconds), ''


def _replace(path: pathlib.Path, value) -> None:
  temporary = path.with_suffix('.tmp')
  temporary.write_text(json.dumps(value))
  os.replace(temporary, path)


def main(folder: pathlib.Path) -> None:
  journal = Journal(folder / 'journal')
  executor = ProcessExecutor(RealClock(), _act, SLOTS, 3, journal=journal)
  sampler = keyed.KeyedSampler(executor)
  scheduler = Scheduler(
    PromptSource(range(40)),
    keyed.Helped(TURNS),
    Workers(sampler, executor, executor, RealClock()),
    SchedulerConfig(BATCH, rest='wait', roles=keyed.Helped.roles),
    journal=journal,
  )
  saved = folder / 'checkpoint.json'
  step, state = json.loads(saved.read_text()) if saved.exists() else (0, None)
  scheduler.resume(state)
  print('ready', flush=True)
  for version in range(step, UPDATES):
    sampler.version = version
    batch = scheduler.next_batch(version)
    rows = [
      (s.prompt_id, s.token_ids.tolist(), s.loss_mask.tolist(), s.reward)
      for s in batch.samples
    ]
    _replace(folder / f'update_{version}.json', rows)
    scheduler.mark_trained(batch.prompt_ids, version)
    if version % 2:
      _replace(saved, [version + 1, scheduler.checkpoint()])
  scheduler.ledger.check()
  executor.close()
  print('done', flush=True)


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
