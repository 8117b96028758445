"""What the stages of every experiment share: their clock, their last page."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxagent.loops import kept, results
from jaxagent.loops.host import Host
from jaxagent.loops.starts import Start, write_json


@contextlib.contextmanager
def timed(host: Host, stage: str) -> Iterator[None]:
  """Adds the stage's wall seconds to those of earlier attempts."""
  path = host.work / 'wall_s.json'
  began = time.monotonic()
  try:
    yield
  finally:
    walls = kept.kept_json(path, kept.seconds) or {}
    walls[stage] = walls.get(stage, 0.0) + time.monotonic() - began
    write_json(path, walls)
    host.wall_s.update(walls)


def evaluate(
  host: Host, policy, learner, label: str, run: Callable[[], Any]
) -> None:
  """Runs the evaluation `label`, if it is wanted, of the learner's weights."""
  if label not in host.config.eval.policies:
    return
  with timed(host, f'evaluate_{label}'):
    policy.engine.update_weights(learner.policy_params, policy.engine.version)
    run()


def finish(
  host: Host,
  starts: Mapping[str, Start],
  labels: Sequence[str] = ('sft', 'rl'),
  extra: Mapping[str, Any] = {},
  how: Mapping[str, Any] = {},
) -> None:
  """Summary and report, from what the stages left behind.

  labels: the policies that may have been evaluated.
  extra, how: see `results.write`.
  """
  with timed(host, 'report'):
    evaluated = {
      label: json.loads((host.work / 'eval' / f'{label}.json').read_text())
      for label in labels
      if label in host.config.eval.policies
    }
    traces = results.read_traces(host.work / 'rl' / 'traces')
  results.write(host, starts, evaluated, traces, extra, how)
