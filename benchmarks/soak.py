"""Many jobs, one in a hundred of each kind of failure: what is left of them.

  python -m benchmarks.soak [--jobs 10000] [--slots 4] [--json FILE]

One pool runs them all. What should become of each job is known before it
runs, and what of it the machine still holds is counted in pauses and at the
end: processes, descriptors, cgroups, mounts and files, and the memory of the
trainer's process. Launchers and supervisors are killed from outside as a
failure of the machinery would; their jobs have to end well all the same.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import gc
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.machine import RESULTS, describe
from jaxagent.sandbox import SandboxPool
from jaxagent.types import Execution, Job, Limits, Outcome

O = Outcome
PAUSES = 10
GOOD = """
import numpy as np
x = np.random.default_rng(0).normal(size=(200, 5))
np.savetxt('submission.csv', x @ x.T[:, :2], delimiter=',')
"""
HANG = 'import time; time.sleep(600)'
Harm = Callable[[SandboxPool, Job], None]


@dataclasses.dataclass(frozen=True)
class Kind:
  """A script and what should become of it.

  harm: done to the pool or to the job 0.1 s after the job was handed in.
  deadline_s: of the step around the job.
  """

  script: str
  expect: tuple[Outcome, ...]
  limits: Limits = Limits(timeout_s=20.0, memory_mb=512)
  harm: Harm | None = None
  deadline_s: float | None = None


def _cancel(pool: SandboxPool, job: Job) -> None:
  pool.cancel(job.job_id)


def _kill_launcher(pool: SandboxPool, job: Job) -> None:
  del job
  _kill(pool.stats()['launcher']['launcher_pid'])


def _kill_supervisor(pool: SandboxPool, job: Job) -> None:
  """The youngest of the launcher's children; the oldest is its zygote."""
  del job
  below = _children(pool.stats()['launcher']['launcher_pid'])
  if below[1:]:
    _kill(below[-1])


def _kill(pid: int | None) -> None:
  try:
    if pid:
      os.kill(pid, signal.SIGKILL)
  except ProcessLookupError:
    pass


def _few(**changes) -> Limits:
  return Limits(**{'timeout_s': 20.0, 'memory_mb': 512, **changes})


FAILURES = {
  'error': Kind('raise ValueError("x")', (O.SCRIPT_ERROR,)),
  'exit': Kind('import sys; sys.exit(3)', (O.SCRIPT_ERROR,)),
  'crash': Kind('import ctypes; ctypes.string_at(0)', (O.SCRIPT_ERROR,)),
  'timeout': Kind('while True: pass', (O.TIMEOUT,), limits=_few(timeout_s=0.3)),
  'memory': Kind('x = []\nwhile True: x.append(bytearray(1 << 22))', (O.OOM,)),
  'disk': Kind(
    'f = open("x", "wb")\nwhile True: f.write(bytes(1 << 20))',
    (O.DISK_LIMIT,),
    limits=_few(disk_mb=16),
  ),
  'output': Kind('while True: print("x" * 4096)', (O.OUTPUT_LIMIT,)),
  'processes': Kind(
    'import os, time\nfor _ in range(40): os.fork() or time.sleep(600)',
    (O.SCRIPT_ERROR, O.TIMEOUT),
    limits=_few(timeout_s=0.5, pids=16),
  ),
  'daemon': Kind(
    'import os, time\n'
    'if os.fork() == 0:\n  os.setsid()\n  os.fork()\n  time.sleep(600)\n'
    + GOOD,
    (O.OK,),
  ),
  'nothing': Kind('pass', (O.NO_SUBMISSION,)),
  'link': Kind(
    'import os; os.symlink("/etc/passwd", "submission.csv")',
    (O.INVALID_SUBMISSION,),
  ),
  'many_files': Kind(
    'for i in range(3000): open(f"{i}", "w").write("x")\n' + GOOD, (O.OK,)
  ),
  'cancelled': Kind(HANG, (O.KILLED,), harm=_cancel),
  'deadline': Kind(HANG, (O.DEADLINE,), deadline_s=0.3),
  'launcher_killed': Kind(GOOD, (O.OK,), harm=_kill_launcher),
  'supervisor_killed': Kind(GOOD, (O.OK,), harm=_kill_supervisor),
}


def plan(jobs: int, seed: int) -> Iterator[tuple[str, Kind]]:
  """Each failure once in a hundred, the rest good, in an order of the seed."""
  rng = random.Random(seed)
  for _ in range(jobs // 100):
    names = [*FAILURES, *['good'] * (100 - len(FAILURES))]
    rng.shuffle(names)
    for name in names:
      yield name, FAILURES.get(name, Kind(GOOD, (O.OK,)))


def soak(
  jobs: int,
  *,
  slots: int = 4,
  seed: int = 0,
  work_dir: pathlib.Path,
  **options,
) -> dict:
  """Runs `plan` and returns counts, traces and what is left.

  options: of the pool. Nothing else may start processes, mounts or cgroups
  of this process meanwhile.
  """
  before = held(None, work_dir)
  trail, wrong = [], []
  outcomes: collections.Counter[str] = collections.Counter()
  began = time.monotonic()
  with SandboxPool(slots, work_dir=work_dir, **options) as pool:
    queue = list(enumerate(plan(jobs, seed)))
    step = max(1, len(queue) // PAUSES)
    for first in range(0, len(queue), step):
      for name, kind, result in _batch(pool, queue[first : first + step]):
        outcomes[f'{name}:{result.outcome.value}'] += 1
        if result.outcome not in kind.expect:
          wrong.append(
            f'{result.job_id}: {result.outcome.value}: {result.message}'
          )
      trail.append({'jobs': sum(outcomes.values()), **held(pool, work_dir)})
    tier, stats = pool.tier, pool.stats()
  return {
    'tier': tier,
    'slots': slots,
    'jobs': jobs,
    'seed': seed,
    'wall_s': round(time.monotonic() - began, 1),
    'retries': stats['retries'],
    'launchers': 1 + stats['launcher']['launcher_restarts'],
    'outcomes': dict(sorted(outcomes.items())),
    'wrong': wrong,
    'before': before,
    'trail': trail,
    'after': held(None, work_dir),
  }


def _batch(pool: SandboxPool, part) -> Iterator[tuple[str, Kind, Execution]]:
  pending = {}
  for number, (name, kind) in part:
    job = Job(
      f'{name}-{number}',
      'main.py',
      files={'main.py': kind.script},
      collect=('submission.csv',),
      limits=kind.limits,
      zygote=True,
      # What is harmed goes first, so that it runs when that comes.
      priority=0.0 if kind.harm is None else -1.0,
    )
    future = pool.submit(job, deadline_s=kind.deadline_s)
    pending[future] = name, kind
    if kind.harm:
      threading.Timer(0.1, kind.harm, (pool, job)).start()
    while len(pending) >= 4 * pool.slots:
      yield from _finished(pending, concurrent.futures.FIRST_COMPLETED)
  yield from _finished(pending, concurrent.futures.ALL_COMPLETED)
  while threads := [
    t for t in threading.enumerate() if isinstance(t, threading.Timer)
  ]:
    threads[0].join()


def _finished(pending: dict, when: str):
  done, _ = concurrent.futures.wait(pending, return_when=when)
  for future in done:
    yield *pending.pop(future), future.result()


def held(pool: SandboxPool | None, work_dir: pathlib.Path) -> dict:
  """What this process and its pool hold while no job runs."""
  launcher = _settle(pool) if pool else None
  gc.collect()
  return {
    'processes': len(_descendants(os.getpid())),
    'descriptors': len(os.listdir('/proc/self/fd')),
    'threads': threading.active_count(),
    'mounts': _lines('/proc/self/mountinfo'),
    'cgroups': _cgroups(),
    'files': sum(1 for _ in work_dir.rglob('*')),
    'resident_mb': _resident_mb(os.getpid()),
    'launcher_descriptors': _count(f'/proc/{launcher}/fd'),
    'launcher_mounts': _lines(f'/proc/{launcher}/mountinfo'),
    'launcher_resident_mb': _resident_mb(launcher),
  }


def _settle(pool: SandboxPool) -> int:
  """The launcher's process id, once one that was killed is replaced."""
  job = Job(
    f'settle-{time.monotonic_ns()}',
    'main.py',
    files={'main.py': 'pass'},
    zygote=True,
  )
  pool.submit(job).result()
  return pool.stats()['launcher']['launcher_pid']


def _children(pid: int | None) -> list[int]:
  """Of all its threads: a process is its thread's child."""
  try:
    threads = os.listdir(f'/proc/{pid}/task')
  except OSError:
    return []
  found = []
  for thread in threads:
    try:
      path = pathlib.Path(f'/proc/{pid}/task/{thread}/children')
      found += [int(n) for n in path.read_text().split()]
    except OSError:
      continue
  return found


def _descendants(pid: int) -> list[int]:
  """Those that live: what a killed launcher leaves is its reaper's to bury."""
  found = [child for child in _children(pid) if not _is_zombie(child)]
  return found + [d for child in found for d in _descendants(child)]


def _is_zombie(pid: int) -> bool:
  try:
    text = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except OSError:
    return True
  return text.rpartition(')')[2].split()[0] == 'Z'


def _lines(path: str) -> int | None:
  try:
    return len(pathlib.Path(path).read_text().splitlines())
  except OSError:
    return None


def _count(path: str) -> int | None:
  try:
    return len(os.listdir(path))
  except OSError:
    return None


def _cgroups() -> int:
  mine = f'jaxagent-{os.getpid()}-'
  return sum(
    1
    for folder, below, _ in os.walk('/sys/fs/cgroup')
    for name in below
    if name.startswith(mine) or mine in folder
  )


def _resident_mb(pid: int | None) -> float | None:
  try:
    with open(f'/proc/{pid}/status') as file:
      for line in file:
        if line.startswith('VmRSS'):
          return round(int(line.split()[1]) / 1024, 1)
  except OSError:
    pass
  return None


def faults(result: dict) -> list[str]:
  """What is not as it should be, in sentences; none where all is well."""
  said = (
    [f'{len(result["wrong"])} jobs ended otherwise: {result["wrong"][:5]}']
    if result['wrong']
    else []
  )
  first, last = result['trail'][0], result['trail'][-1]
  for name in (
    'processes',
    'descriptors',
    'threads',
    'mounts',
    'cgroups',
    'files',
    'launcher_descriptors',
    'launcher_mounts',
  ):
    if last[name] is not None and last[name] > first[name]:
      said.append(f'{name} grew in the run: {first[name]} to {last[name]}')
  for name in ('processes', 'mounts', 'cgroups', 'files'):
    if result['after'][name] > result['before'][name]:
      said.append(
        f'{name} left behind: {result["before"][name]} before, '
        f'{result["after"][name]} after'
      )
  for name in ('resident_mb', 'launcher_resident_mb'):
    if last[name] > 1.1 * first[name] + 10:
      said.append(f'{name} is not flat: {first[name]} to {last[name]}')
  return said


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    '--jobs', type=int, default=10_000, help='rounded down to hundreds'
  )
  parser.add_argument('--slots', type=int, default=4)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--json', default=str(RESULTS / 'soak.json'))
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    result = soak(
      options.jobs,
      slots=options.slots,
      seed=options.seed,
      work_dir=pathlib.Path(folder),
    )
  said = faults(result)
  result = {'machine': describe(), **result, 'faults': said}
  pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + '\n')
  print(
    f'{options.jobs} jobs at {result["tier"]} in {result["wall_s"]} s, '
    f'{result["launchers"]} launchers, {result["retries"]:.0f} retries'
  )
  for line in said or ['nothing left, nothing grown, every outcome as due']:
    print(line)
  sys.exit(1 if said else 0)


if __name__ == '__main__':
  main()
