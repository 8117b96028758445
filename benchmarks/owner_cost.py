"""A run that measures what holding its work directory costs it.

  python -m benchmarks.owner_cost --work_dir=DIR [flags of jaxagent.main]

Runs `jaxagent.main` and writes DIR.owner.json beside the work directory: seconds of the
claim and of letting go, number of beats, CPU seconds of the thread that makes them.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from jaxagent import main
from jaxagent.clock import Clock
from jaxagent.files import owner

SUFFIX = '.owner.json'


class _MeasuredOwner(owner.Owner):
  """A hold that counts its beats and their CPU seconds."""

  beats = 0
  claim_s = 0.0

  def whose(self) -> owner.Claim | None:
    self.beats += 1
    return super().whose()

  def close(self) -> None:
    beats, thread = self.beats, self._thread.ident
    assert thread is not None
    cpu_s = time.clock_gettime(time.pthread_getcpuclockid(thread))
    began = time.monotonic()
    super().close()
    found = {
      'claim_s': self.claim_s,
      'release_s': time.monotonic() - began,
      'beats': beats,
      'beats_cpu_s': cpu_s,
    }
    self._path.parent.with_suffix(SUFFIX).write_text(json.dumps(found))


def share(cost: Mapping[str, Any], seconds: float) -> float:
  """Returns the share of a run of `seconds` that a hold of `cost` is."""
  if not cost['beats']:
    raise ValueError('a share needs a run of at least one beat')
  beats = seconds / owner.BEAT_S
  held_s = beats * cost['beats_cpu_s'] / cost['beats']
  return (cost['claim_s'] + cost['release_s'] + held_s) / seconds


def _run() -> None:
  take = owner.taken

  def measured(path: pathlib.Path, clock: Clock | None = None) -> owner.Owner:
    began = time.monotonic()
    made = take(path, clock)
    assert isinstance(made, _MeasuredOwner)
    made.claim_s = time.monotonic() - began
    return made

  owner.Owner = _MeasuredOwner  # type: ignore[misc]
  owner.taken = measured
  main.cli()


if __name__ == '__main__':
  _run()
