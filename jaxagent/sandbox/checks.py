"""Bad input is refused here, before anything starts."""

from __future__ import annotations

import os
import re

from jaxagent.types import Job

MAX_FILE_MB = 64
MIN_MEMORY_MB = 48
MAX_CHANGED_MB = 512
_ENV = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')


def relative(path: str, what: str) -> str:
  """A relative path that stays inside the workspace, or ValueError."""
  parts = path.split('/')
  if (
    not path
    or path.startswith('/')
    or '\0' in path
    or any(p in ('', '.', '..') for p in parts)
  ):
    raise ValueError(
      f'{what} {path!r} must be a plain relative path inside the workspace '
      '(no leading /, no empty part, no . or ..).'
    )
  return path


def job(job: Job) -> None:
  """Raises ValueError naming the field, the value and the remedy."""
  relative(job.script, 'script')
  for path in (*job.files, *job.mounts, *job.collect, *job.optional):
    relative(path, 'path')
  if odd := set(job.folders) - {*job.collect, *job.optional}:
    raise ValueError(
      f'job {job.job_id}: folders={sorted(odd)} are not among what is collected; '
      'name them in collect, too.'
    )
  inside_mount = any(job.script.startswith(m + '/') for m in job.mounts)
  if job.script not in job.files and not inside_mount:
    raise ValueError(
      f'job {job.job_id}: script {job.script!r} is not among its files '
      f'{sorted(job.files)[:8]} nor under a mount.'
    )
  for name, source in job.mounts.items():
    if not os.path.isdir(source):
      raise ValueError(
        f'job {job.job_id}: mount {name!r} = {str(source)!r} is not a '
        'directory; prepare it first.'
      )
  for path, content in job.files.items():
    if len(content) > MAX_FILE_MB << 20:
      raise ValueError(
        f'job {job.job_id}: file {path!r} has {len(content)} bytes; the '
        f'limit is {MAX_FILE_MB} MB. Use a mount for data.'
      )
  if job.limits.memory_mb < MIN_MEMORY_MB:
    raise ValueError(
      f'limits.memory_mb={job.limits.memory_mb} is under the '
      f'{MIN_MEMORY_MB} MB that the interpreter itself needs.'
    )
  for name, value in job.env.items():
    if not _ENV.match(name) or '\0' in value:
      raise ValueError(f'job {job.job_id}: bad environment name {name!r}.')
  if job.collect_mb < 0:
    raise ValueError(
      f'job {job.job_id}: collect_mb={job.collect_mb} must be 0 (as the pool) or more.'
    )
  if job.threads < 1 or job.gpus < 0:
    raise ValueError(
      f'job {job.job_id}: threads={job.threads} must be at least 1 and '
      f'gpus={job.gpus} at least 0.'
    )
  if not 0 <= job.changed_mb <= MAX_CHANGED_MB:  # nor is it NaN
    raise ValueError(
      f'job {job.job_id}: changed_mb={job.changed_mb!r} must be 0 (bring '
      f'nothing out) or at most {MAX_CHANGED_MB}.'
    )
  if not isinstance(job.apart, bool):
    raise ValueError(
      f'job {job.job_id}: apart={job.apart!r} must be True (standard error '
      'by itself) or False.'
    )
  if job.zygote and job.gpus:
    raise ValueError(
      f'job {job.job_id}: zygote jobs cannot have GPUs (a fork after CUDA '
      'starts is undefined); set zygote=False or gpus=0.'
    )
