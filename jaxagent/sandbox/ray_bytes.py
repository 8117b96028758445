"""Encodes jobs and executions as JSON bytes, which go through Ray."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
from typing import Any

from jaxagent.types import Execution, Job, Limits, Outcome


def pack(record: dict[str, Any]) -> bytes:
  # Lone surrogates come back as they were; \u escapes would join pairs.
  text = json.dumps(record, ensure_ascii=False)
  return text.encode('utf-8', 'surrogatepass')


def unpack(data: bytes) -> dict[str, Any]:
  return json.loads(data.decode('utf-8', 'surrogatepass'))


def _base64(content: bytes) -> str:
  return base64.b64encode(content).decode('ascii')


def job_to_bytes(job: Job) -> bytes:
  """A job as JSON; relative mounts become absolute, all mounts text."""
  record = {f.name: getattr(job, f.name) for f in dataclasses.fields(job)}
  record['files'] = {
    k: v if isinstance(v, str) else {'base64': _base64(v)}
    for k, v in job.files.items()
  }
  record['mounts'] = {k: os.path.abspath(v) for k, v in job.mounts.items()}
  record['env'] = dict(job.env)
  record['limits'] = dataclasses.asdict(job.limits)
  return pack(record)


def job_from_bytes(data: bytes) -> Job:
  """The inverse of job_to_bytes; mounts come as pathlib.Path."""
  record = unpack(data)
  record['files'] = {
    k: v if isinstance(v, str) else base64.b64decode(v['base64'])
    for k, v in record['files'].items()
  }
  record['mounts'] = {k: pathlib.Path(v) for k, v in record['mounts'].items()}
  record['limits'] = Limits(**record['limits'])
  for name in ('argv', 'collect', 'optional', 'folders'):
    record[name] = tuple(record[name])
  return Job(**record)


def execution_to_bytes(execution: Execution) -> bytes:
  """An execution as JSON, collected and changed files in base64."""
  record = {
    f.name: getattr(execution, f.name) for f in dataclasses.fields(execution)
  }
  record['outcome'] = execution.outcome.value
  for name in ('collected', 'changed'):
    record[name] = {k: _base64(v) for k, v in record[name].items()}
  return pack(record)


def execution_from_bytes(data: bytes) -> Execution:
  """The inverse of execution_to_bytes."""
  record = unpack(data)
  record['outcome'] = Outcome(record['outcome'])
  for name in ('collected', 'changed'):
    record[name] = {k: base64.b64decode(v) for k, v in record[name].items()}
  for name in ('removed', 'left_out'):
    record[name] = tuple(record[name])
  return Execution(**record)
