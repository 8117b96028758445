"""What was trained, in files; and what it says of one update."""

from __future__ import annotations

import json
import os
import pathlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxagent import audit, behaviour, types


def write(directory: pathlib.Path, update: int, samples) -> None:
  """One file an update, replaced atomically, so a resume cannot double it."""
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f'update_{update:06d}.jsonl'
  temporary = path.with_suffix('.tmp')
  with temporary.open('w', encoding='utf-8') as file:
    for record in audit.seal(records(samples, update), path.stem):
      file.write(json.dumps(record) + '\n')
  os.replace(temporary, path)


def records(samples: Sequence[types.Sample], update: int) -> list[dict]:
  """A record for each trained turn."""
  return [
    {
      'prompt_id': sample.prompt_id,
      'update': update,
      'version': turn.version,
      'outcome': turn.outcome.value,
      'reward': turn.reward,
      'exec_s': turn.exec_s,
      'prompt_tokens': len(sample.prompt_ids) + turn.start,
      'tokens': turn.end - turn.start,
      **turn.info,
    }
    for sample in samples
    for turn in sample.steps()
  ]


def metrics(samples: Sequence[types.Sample], update: int) -> dict[str, float]:
  """Outcomes, the sandbox's own times and behaviour, for one batch."""
  turns = [turn for sample in samples for turn in sample.steps()]
  n = max(1, len(turns))
  counts = Counter(t.outcome.value for t in turns)
  found = {f'sandbox/outcome/{k}': v / n for k, v in counts.items()}
  ran = [t.info for t in turns if t.info.get('tier')]
  if ran:
    for name in ('queue_s', 'startup_s', 'cpu_s'):
      found[f'sandbox/{name}'] = float(np.mean([i[name] for i in ran]))
  figures = behaviour.figures(records(samples, update))
  for name in (*behaviour.RATES, 'exec_s'):
    if figures[name] is not None:
      found[f'sandbox/{name}'] = figures[name]
  return found
