"""Headers of jobs for supervisors, and outcomes from their answers.

From exit status, signals and counters to a typed outcome. Never from text.
"""

from __future__ import annotations

import io
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.types import Execution, Job, Outcome


def request(
  job: Job,
  timeout_s: float,
  gpu_ids: Sequence[str],
  blobs: Sequence[bytes],
  keep_kb: int,
  collect_mb: int,
) -> dict[str, Any]:
  """The header of a job's frame to its supervisor (`_wire`).

  blobs: the contents of `job.files`, in order. keep_kb, collect_mb: how much
  of the output and of each collected path comes back.
  """
  limits = job.limits
  return {
    'script': job.script,
    'argv': list(job.argv),
    'env': dict(job.env),
    'files': list(job.files),
    'initial_bytes': sum((len(b) + 8191) // 4096 * 4096 for b in blobs)
    + (1 << 16),
    'mounts': {
      k: str(pathlib.Path(v).resolve()) for k, v in job.mounts.items()
    },
    'collect': [*job.collect, *job.optional],
    'folders': list(job.folders),
    'collect_mb': max(collect_mb, job.collect_mb),
    'changed_mb': job.changed_mb,
    'apart': job.apart,
    'keep_kb': keep_kb,
    'zygote': job.zygote,
    'threads': job.threads,
    'gpus': job.gpus,
    'gpu_ids': list(gpu_ids),
    'timeout_s': timeout_s,
    'memory_mb': limits.memory_mb,
    'pids': limits.pids,
    'disk_mb': limits.disk_mb,
    'output_kb': limits.output_kb,
  }


def decide(
  result: Mapping[str, Any],
  trailer: Mapping[str, Any],
) -> tuple[Outcome, str]:
  """Returns (outcome, one line for people).

  result: what the supervisor measured. trailer: the launcher's wait status
  and the cgroup's counters. A signal the job sent itself is a script error:
  nothing outside its namespaces can signal it but the pool. So is a
  MemoryError or a full disk that no counter here has seen: a job can raise
  those for nothing, and a lack of resources is paid for (paper 000, eq. 6).
  """
  reason, status = result['reason'], result['status']
  failed = status is None or status != 0
  number = os.WTERMSIG(status) if status and os.WIFSIGNALED(status) else None
  if reason == 'timeout':
    return Outcome.TIMEOUT, f'killed at its limit of {result["timeout_s"]:g} s'
  if reason == 'output':
    return Outcome.OUTPUT_LIMIT, 'killed: it printed a thousand times its limit'
  if reason == 'disk':
    return Outcome.DISK_LIMIT, 'killed: it wrote more than its limit'
  if reason == 'memory':
    return Outcome.OOM, 'killed: its processes held more than the limit'
  if reason == 'processes':
    return Outcome.SCRIPT_ERROR, 'killed: it had more processes than its limit'
  if failed and trailer.get('oom_kills', 0) > 0:
    return Outcome.OOM, 'the kernel killed it at its memory limit'
  if failed and result['memory_full']:
    return Outcome.OOM, 'it failed with its memory limit reached'
  if failed and result['disk_full']:
    return Outcome.DISK_LIMIT, 'it failed with its file system full'
  if number is not None:
    return Outcome.SCRIPT_ERROR, f'it died of signal {number}'
  if failed:
    return Outcome.SCRIPT_ERROR, f'it exited with {os.WEXITSTATUS(status or 0)}'
  if result['problems']:
    missing = all(p.endswith('was not written') for p in result['problems'])
    kind = Outcome.NO_SUBMISSION if missing else Outcome.INVALID_SUBMISSION
    return kind, '; '.join(result['problems'])[:400]
  return Outcome.OK, ''


def execution(
  job: Job,
  tier: str,
  result: Mapping[str, Any],
  blobs: list[bytes],
  trailer: Mapping[str, Any],
) -> Execution:
  """The public record of a run that its supervisor reported on.

  blobs: output, errors, then the files of `names` and those of `changed`.
  """
  outcome, message = decide(
    {**result, 'problems': _faults(job, result['problems'])}, trailer
  )
  if trailer.get('cancelled'):
    outcome, message = Outcome.KILLED, 'cancelled'
  status = result['status']
  code = number = None
  if status is not None:
    if os.WIFSIGNALED(status):
      number = os.WTERMSIG(status)
    else:
      code = os.WEXITSTATUS(status)
  first = 2 + len(result['names'])
  peak = trailer.get('peak_bytes') or result['peak_bytes']
  return Execution(
    job_id=job.job_id,
    outcome=outcome,
    tier=tier,
    exit_code=code,
    signal=number,
    startup_s=result['startup_s'],
    exec_s=max(result['exec_s'], 1e-6),
    teardown_s=max(0.0, trailer['finished_at'] - result['ended_at']),
    cpu_s=max(trailer.get('cpu_s', 0.0), result['cpu_s']),
    peak_memory_mb=peak / 2**20,
    bytes_written=result['written'],
    output=blobs[0].decode('utf-8', 'replace'),
    errors=blobs[1].decode('utf-8', 'replace'),
    output_bytes=result['output_bytes'],
    collected=_collected(result, blobs[2:first]),
    changed=dict(zip(result['changed'], blobs[first:])),
    removed=tuple(result['removed']),
    left_out=tuple(result['left_out']),
    message=message,
  )


def _collected(
  result: Mapping[str, Any], blobs: Sequence[bytes]
) -> dict[str, bytes]:
  """Path -> content; of a folder a `.zip` of its files, the same for the same files."""
  found = dict(zip(result['names'], blobs))
  for folder in result.get('folders', ()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
      for path in [p for p in found if p.startswith(f'{folder}/')]:
        name = path.removeprefix(f'{folder}/')
        archive.writestr(zipfile.ZipInfo(name), found.pop(path))
    found[folder] = out.getvalue()
  return found


def _faults(job: Job, problems: Sequence[str]) -> list[str]:
  """Returns the problems of files that the script must write."""
  excused = tuple(f'{path}: ' for path in job.optional)
  return [p for p in problems if not (excused and p.startswith(excused))]


def infrastructure(job: Job, tier: str, message: str) -> Execution:
  return Execution(
    job_id=job.job_id,
    outcome=Outcome.INFRASTRUCTURE,
    tier=tier,
    message=message[-600:],
  )


LATE = 'the deadline of its step or trajectory passed'


def late(job: Job, tier: str, when: str) -> Execution:
  """Returns the result of a job whose deadline passed before it began."""
  return Execution(
    job_id=job.job_id,
    outcome=Outcome.DEADLINE,
    tier=tier,
    message=f'{LATE} {when}',
  )


def killed(job: Job, tier: str, message: str = 'cancelled') -> Execution:
  return Execution(
    job_id=job.job_id, outcome=Outcome.KILLED, tier=tier, message=message
  )
