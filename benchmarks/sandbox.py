"""Cost of containment, lateness of deadlines, and the effect of a busy neighbour.

  python -m benchmarks.sandbox [--jobs 60] [--json FILE] [--docker_image NAME]

Five ways to run the same scripts, two at once, in one process and in turns:
`bare` is `subprocess.run` of a cold interpreter, with no containment at all;
`cold` and `zygote` are the sandbox's local backend; `docker` starts a container
per job, `ray` hands jobs to the zygotes of a private Ray. Docker needs a daemon
(DOCKER_HOST) with an image that `python -m jaxagent.sandbox image` made; where
there is none the result says why there is no figure.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.machine import RESULTS, describe, speed_index
from jaxagent.sandbox import BackendError, SandboxPool
from jaxagent.sandbox.docker_backend import IMAGE
from jaxagent.types import Job, Limits

SCRIPTS = {
  'empty': 'pass',
  'fit': """
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
x, y = load_iris(return_X_y=True)
LogisticRegression(max_iter=200).fit(x, y)
""",
}
BUSY = """
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
x, y = make_classification(600, 20, random_state=0)
RandomForestClassifier(40, random_state=0).fit(x, y)
"""
# Sixteen processes, each a session of its own: the kernel shares its time out
# by session, so these would get sixteen times their neighbour's share.
NOISE = """
import os
for _ in range(4):
  if os.fork() == 0: os.setsid()
while True: pass
"""
ONE_THREAD = {  # as in the sandbox
  f'{name}_NUM_THREADS': '1' for name in ('OMP', 'OPENBLAS', 'MKL', 'NUMEXPR')
}
AT_ONCE, LATE_AT_ONCE, DEADLINE_S = 2, 8, 0.5
LEAST_S = 10.0
_number = itertools.count()

# text -> (start-up s, teardown s) where known
Runner = Callable[[str], tuple[float, float]]


def _job(text: str, *, zygote: bool, **limits) -> Job:
  return Job(
    f'bench-{next(_number)}',
    'main.py',
    files={'main.py': text},
    limits=Limits(**limits),
    zygote=zygote,
  )


@contextlib.contextmanager
def bare() -> Iterator[Runner]:
  with tempfile.TemporaryDirectory() as folder:

    def run(text: str) -> tuple[float, float]:
      path = pathlib.Path(folder) / f'{next(_number)}.py'
      path.write_text(text)
      command = [sys.executable, '-I', '-B', str(path)]
      subprocess.run(command, check=True, env={**os.environ, **ONE_THREAD})
      return float('nan'), float('nan')

    yield run


@contextlib.contextmanager
def pooled(zygote: bool, **options) -> Iterator[Runner]:
  with SandboxPool(AT_ONCE, zygote=zygote, **options) as pool:

    def run(text: str) -> tuple[float, float]:
      result = pool.submit(_job(text, zygote=zygote)).result()
      if result.outcome.value != 'ok':
        raise RuntimeError(f'{result.outcome.value}: {result.message}')
      return result.startup_s, result.teardown_s

    yield run


def throughput(run: Runner, text: str, jobs: int) -> dict[str, float]:
  """Jobs a second with two at once, median start-up and teardown in ms.

  `jobs` of them, and again until LEAST_S have passed.
  """
  times: list[tuple[float, float]] = []
  wall = 0.0
  with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
    list(threads.map(run, [text] * 4))
    began = time.monotonic()
    while wall < LEAST_S:
      times += threads.map(run, [text] * jobs)
      wall = time.monotonic() - began
  startup, teardown = (statistics.median(t) for t in zip(*times))
  return {
    'jobs': len(times),
    'jobs_per_s': len(times) / wall,
    'startup_ms': startup * 1e3,
    'teardown_ms': teardown * 1e3,
  }


def overshoot(jobs: int) -> dict[str, float]:
  """How long after its deadline a job that never ends is gone, 8 at once.

  From the deadline to the death of its last process, with what is removed
  after it; endless loops, so that eight of them want all cores.
  """
  with SandboxPool(LATE_AT_ONCE, zygote=False) as pool:
    text = 'while True: pass'
    futures = [
      pool.submit(_job(text, zygote=False, timeout_s=DEADLINE_S))
      for _ in range(jobs)
    ]
    late = [
      r.exec_s + r.teardown_s - DEADLINE_S
      for r in (f.result() for f in futures)
    ]
  late.sort()
  return {
    'jobs': jobs,
    'median_s': statistics.median(late),
    'p99_s': late[min(len(late) - 1, int(0.99 * len(late)))],
    'max_s': late[-1],
  }


def neighbour(jobs: int, disable: tuple[str, ...] = ()) -> dict:
  """Movement of `exec_s` when another slot's job starts 16 busy processes."""
  with SandboxPool(AT_ONCE, disable=disable) as pool:

    def median() -> float:
      return statistics.median(
        pool.submit(_job(BUSY, zygote=True)).result().exec_s
        for _ in range(jobs)
      )

    median()
    alone = median()
    noise = _job(NOISE, zygote=False, timeout_s=600.0)
    future = pool.submit(noise)
    time.sleep(1.0)
    noisy = median()
    pool.cancel(noise.job_id)
    future.result()
    return {
      'tier': pool.tier,
      'jobs': jobs,
      'alone_s': alone,
      'noisy_s': noisy,
      'ratio': noisy / alone,
    }


def measure(jobs: int, image: str) -> dict:
  result: dict[str, Any] = {
    'machine': {**describe(), 'speed_index': speed_index()},
    'throughput': {},
  }
  ways = {
    'bare': bare,
    'cold': lambda: pooled(False),
    'zygote': lambda: pooled(True),
    'docker': lambda: pooled(False, backend='docker', image=image),
    'ray': lambda: pooled(True, backend='ray'),
  }
  for script, text in SCRIPTS.items():
    rows: dict[str, dict[str, Any]] = {}
    result['throughput'][script] = rows
    for way, opened in ways.items():
      try:
        with opened() as run:
          row = rows[way] = throughput(run, text, jobs)
      except BackendError as error:
        rows[way] = {'refused': str(error)}
        print(f'{script:6} {way:7} refused: {error}')
        continue
      row['ratio_to_bare'] = row['jobs_per_s'] / rows['bare']['jobs_per_s']
      print(
        f'{script:6} {way:7} {row["jobs_per_s"]:7.1f} jobs/s '
        f'{row["ratio_to_bare"]:6.2f}x start-up {row["startup_ms"]:5.1f} ms '
        f'teardown {row["teardown_ms"]:5.1f} ms'
      )
  late = result['overshoot'] = overshoot(4 * jobs)
  print(f'overshoot median {late["median_s"]:.3f} s p99 {late["p99_s"]:.3f} s')
  result['neighbour'] = []
  for disable in ((), ('cgroup',)):
    row = neighbour(max(5, jobs // 4), disable)
    result['neighbour'].append(row)
    print(
      f'neighbour at {row["tier"]}: {row["alone_s"]:.4f} s alone, '
      f'{row["noisy_s"]:.4f} s beside 16 busy processes, '
      f'{row["ratio"]:.2f}x'
    )
  return result


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--jobs', type=int, default=60)
  parser.add_argument('--json', default=str(RESULTS / 'sandbox.json'))
  parser.add_argument('--docker_image', default=IMAGE)
  options = parser.parse_args()
  result = measure(options.jobs, options.docker_image)
  text = json.dumps(result, indent=1)
  pathlib.Path(options.json).write_text(text.replace('NaN', 'null') + '\n')


if __name__ == '__main__':
  main()
