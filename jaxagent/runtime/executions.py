"""Log of every execution of a run, when it ends: `logs/executions.jsonl`.

One line an attempt, whatever asked for it (starts, collection, evaluation,
RL, trained or dropped later). The file outlives a killed process, so a
resumed run counts what ran before as well.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jaxagent.envs.execution import Call, Outputs, Run
from jaxagent.envs.step_env import StepEnvironment
from jaxagent.types import Blob, Outcome

LOG = pathlib.Path('logs', 'executions.jsonl')  # in the work directory
MESSAGE_CHARS = 500  # of an infrastructure error, whose cause would be lost


class CountedEnvironment(StepEnvironment):
  """A StepEnvironment that writes each execution's outcome to `log`."""

  def __init__(self, *args, log: pathlib.Path, **options):
    super().__init__(*args, **options)
    self._log = log
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and not log.read_bytes().endswith(b'\n'):
      _append(log, '')  # ends a line that a kill cut

  def _run_once(
    self,
    task: str,
    files: Mapping[str, str | bytes | Blob],
    script: str,
    call: Call,
    outputs: Outputs,
  ) -> Run:
    began = time.monotonic()
    run = super()._run_once(task, files, script, call, outputs)
    ran = run.execution
    record: dict[str, Any] = {
      'job_id': call.job_id,
      'outcome': run.outcome.value,
      'task': task,
      'slot': ran.slot,
      'queue_s': ran.queue_s,
      'startup_s': ran.startup_s,
      'exec_s': ran.exec_s,
      'total_s': time.monotonic() - began,  # the rest: clearing up and grading
      'timestamp': time.time(),
    }
    if ran.recorded:
      record['recorded'] = True  # looked up, not run
    if run.outcome.is_infrastructure:
      record['message'] = run.message[:MESSAGE_CHARS]
    if run.execution.attempts > 1:
      record['attempts'] = run.execution.attempts  # the others were lost
    _append(self._log, json.dumps(record))
    return run


def _append(log: pathlib.Path, line: str) -> None:
  # One short write in append mode: threads do not mix lines.
  with log.open('a', encoding='utf-8') as file:
    file.write(line + '\n')


def count(log: pathlib.Path) -> Counter[str]:
  """Returns the number of executions by outcome; a line that a kill cut is left out."""
  counts: Counter[str] = Counter()
  for record in _records(log):
    with contextlib.suppress(ValueError, LookupError):
      counts[Outcome(record['outcome']).value] += 1
  return counts


def count_recorded(log: pathlib.Path) -> int:
  """Returns how many executions were looked up (`sandbox.recorded`, `reuse`)."""
  return sum(record.get('recorded') is True for record in _records(log))


def _records(log: pathlib.Path) -> Iterator[Mapping[str, Any]]:
  """Yields the lines that are whole."""
  if not log.exists():
    return
  for line in log.read_bytes().splitlines():
    with contextlib.suppress(ValueError):
      record = json.loads(line)
      if isinstance(record, dict):
        yield record
