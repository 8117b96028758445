"""Writes the trace of each update; metrics of its turns."""

from __future__ import annotations

import json
import os
import pathlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxagent import audit, types
from jaxagent.analysis import behaviour
from jaxagent.errors import UserError
from jaxagent.records import TrainedTurn


def write(directory: pathlib.Path, update: int, samples) -> None:
  """Writes one file an update, atomically, so that a resume cannot double it."""
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f'update_{update:06d}.jsonl'
  temporary = path.with_suffix('.tmp')
  with temporary.open('w', encoding='utf-8') as file:
    turns = [turn.to_json() for turn in records(samples, update)]
    for record in audit.seal(turns, path.stem):
      file.write(json.dumps(record) + '\n')
  os.replace(temporary, path)


def records(samples: Sequence[types.Sample], update: int) -> list[TrainedTurn]:
  """Returns a record for each trained turn.

  Raises UserError where the recipe gave a turn none.
  """
  found = []
  for sample in samples:
    for turn in sample.steps():
      if turn.record is None:
        raise UserError(
          f'the recipe credited a call of prompt {sample.prompt_id} without a '
          'record: pass the record of its execution to Credit (record=...).'
        )
      found.append(
        TrainedTurn(
          record=turn.record,
          prompt_id=sample.prompt_id,
          update=update,
          version=turn.version,
          reward=turn.reward,
          prompt_tokens=len(sample.prompt_ids) + turn.start,
          tokens=turn.end - turn.start,
          finish_reason=turn.finish_reason,
        )
      )
  return found


def metrics(samples: Sequence[types.Sample], update: int) -> dict[str, float]:
  """Returns shares of outcomes, the sandbox's times and behaviour of one batch."""
  turns = [turn for sample in samples for turn in sample.steps()]
  n = max(1, len(turns))
  counts = Counter(t.outcome.value for t in turns)
  found = {f'sandbox/outcome/{k}': v / n for k, v in counts.items()}
  ran = [t.record for t in turns if t.ran]
  if ran:
    for name in ('queue_s', 'startup_s', 'cpu_s'):
      found[f'sandbox/{name}'] = float(np.mean([getattr(r, name) for r in ran]))
  figures = behaviour.figures([t.record for t in records(samples, update)])
  for name in (*behaviour.RATES, 'exec_s'):
    if (figure := figures[name]) is not None:
      found[f'sandbox/{name}'] = figure
  return found
