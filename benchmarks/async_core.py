"""Throughput of the asynchronous core against the synchronous one.

  python -m benchmarks.async_core [--json] [--quick]

On the virtual clock: 16, 128 and 1024 workers; constant, lognormal
(p99/p50 = 25) and bimodal durations; staleness bounds 1, 2, 4, 8 and none
with hold, drop and keep; then with faults. On real time: 8 worker processes,
without and with faults. A batch holds as many samples as there are workers;
the learner takes 5 % of an update's ideal time, in four micro-steps.

`of_ideal` is trained samples a second over workers / mean duration drawn
(total work over workers); at the start of a run it can pass 1, because what
is quick ends first, so its target is checked on the lesser of it and worker
use. `worker_use` is the share of worker time that was busy.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine
from jaxagent.clock import RealClock, VirtualClock
from jaxagent.data.ledger import Ledger
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.records import ON_STALE, SchedulerConfig, Work
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.process_executor import ProcessExecutor

SIGMA = math.log(25) / 2.3263478740408408  # p99 / p50 = 25
DURATIONS: dict[str, Callable[[np.random.Generator], float]] = {
  'constant': lambda rng: 1.0,
  'lognormal': lambda rng: math.exp(SIGMA * rng.standard_normal()),
  'bimodal': lambda rng: 30.0 if rng.random() < 0.1 else 1.0,
}
MEAN_S = {
  'constant': 1.0,
  'lognormal': math.exp(SIGMA**2 / 2),
  'bimodal': 3.9,
}
UPDATES = {16: 120, 128: 30, 1024: 12}
LEARN = 0.05  # of the ideal time of an update
MICRO_STEPS = 4


def config_of(
  workers: int, rest: str, bound: int | None, on_stale: str
) -> SchedulerConfig:
  """The setting of one row."""
  return SchedulerConfig(
    batch_size=workers,
    rest=rest,
    max_staleness=bound,
    on_stale=on_stale,
    watchdog_s=1e6,
  )


def drive(scheduler, clock, updates: int, learn_s: float, burn: int, node=None):
  """Collects and 'learns' `updates` times after `burn`.

  Returns:
    Seconds, stats of each batch, and trained samples.
  """
  stats, trained, start = [], 0, clock.now()
  for version in range(burn + updates):
    if version == burn:
      start, stats, trained = clock.now(), [], 0
    if node is not None and version == burn + updates // 3:
      node()
    batch = scheduler.next_batch(version)
    stats.append(batch.stats)
    trained += len(batch.samples)
    for _ in range(MICRO_STEPS):
      clock.sleep(learn_s / MICRO_STEPS)
      scheduler.poll()
      scheduler.fill(version)
    scheduler.mark_trained(batch.prompt_ids, version)
  return clock.now() - start, stats, trained


def virtual(
  workers: int,
  durations: str,
  rest: str = 'carry_over',
  bound: int | None = None,
  on_stale: str = 'keep',
  faulty: bool = False,
  updates: int | None = None,
) -> dict[str, Any]:
  """One row on the virtual clock."""
  clock = VirtualClock()
  rng = np.random.default_rng([workers, 5])
  drawn = []

  def act(work: Work) -> Action:
    drawn.append(DURATIONS[durations](rng))
    return Action(drawn[-1], 1.0)

  updates = updates or UPDATES[workers]
  burn = 24 if workers < 1024 else 8
  mean_s = MEAN_S[durations]
  faults = Faults()
  if faulty:
    length = (burn + updates) * mean_s
    node = (length / 2, max(1, workers // 8), length / 10)
    faults = Faults(0.01, 0.01, 5 * mean_s, (node,), seed=3)
  look_ahead = 0 if rest == 'wait' else max(2, workers // 8)
  executor = FakeExecutor(clock, act, workers, look_ahead, faults)
  scheduler = Scheduler(
    PromptSource(range(4 * workers)),
    ArmSampler(np.zeros(2)),
    executor,
    Ledger(),
    clock,
    config_of(workers, rest, bound, on_stale),
  )
  learn_s = LEARN * mean_s
  elapsed, stats, trained = drive(scheduler, clock, updates, learn_s, burn)
  scheduler.ledger.check()
  use = np.average(
    [s['scheduler/worker_use'] for s in stats],
    weights=[s['scheduler/interval_s'] for s in stats],
  )
  total = scheduler.stats.total
  drawn_mean = float(np.mean(drawn))
  return {
    'workers': workers,
    'durations': durations,
    'rest': rest,
    'bound': bound,
    'on_stale': on_stale if bound is not None else None,
    'faults': faulty,
    'updates_per_hour': 3600 * updates / elapsed,
    'of_ideal': trained * drawn_mean / workers / elapsed,
    'worker_use': float(use),
    'staleness_mean': float(np.mean([s['staleness/mean'] for s in stats])),
    'staleness_max': max(s['staleness/max'] for s in stats),
    'over_bound': sum(s['staleness/over_bound'] for s in stats),
    'learner_idle': sum(s['scheduler/learner_idle_s'] for s in stats) / elapsed,
    'dropped': total['dropped'],
    'dropped_share': total['dropped'] / max(1, total['issued']),
    'trained_mean_s': float(
      np.mean([s['duration/trained/mean'] for s in stats])
    ),
    'drawn_mean_s': drawn_mean,
    'infrastructure': total['infrastructure'],
    'quarantined': total['quarantined'],
  }


def real(workers: int, faulty: bool, rest: str, updates: int) -> dict[str, Any]:
  """One row on real time with real processes (lognormal durations)."""
  clock = RealClock()
  scale = 0.1
  retried: set[str] = set()

  def act(work: Work) -> tuple[Action, str]:
    # By prompt id, so that each row runs the same work.
    epoch, position, _ = map(int, work.prompt.prompt_id.split('/'))
    rng = np.random.default_rng([epoch, position, 11])
    duration = min(4.0, scale * DURATIONS['lognormal'](rng))
    u = rng.random()
    first = work.prompt.prompt_id not in retried
    retried.add(work.prompt.prompt_id)
    fault = ''
    if faulty and first:
      fault = 'death' if u < 0.01 else 'hang' if u < 0.02 else ''
    return Action(duration, 1.0), fault

  executor = ProcessExecutor(
    clock, act, workers, 0 if rest == 'wait' else workers, silent_s=1.0
  )
  scheduler = Scheduler(
    PromptSource(range(64 * workers)),
    ArmSampler(np.zeros(2)),
    executor,
    Ledger(),
    clock,
    SchedulerConfig(
      workers, rest=rest, max_staleness=None, watchdog_s=60, lease_s=30
    ),
  )
  learn_s = LEARN * scale * MEAN_S['lognormal']
  node = (lambda: executor.lose(1, 2.0)) if faulty else None
  try:
    elapsed, stats, trained = drive(
      scheduler, clock, updates, learn_s, 3, node
    )
    scheduler.ledger.check()
  finally:
    executor.close()
  intervals = [s['scheduler/interval_s'] for s in stats]
  use = np.average(
    [s['scheduler/worker_use'] for s in stats], weights=intervals
  )
  total = scheduler.stats.total
  work_s = sum(
    s['duration/trained/mean'] * workers for s in stats
  )
  return {
    'workers': workers,
    'durations': 'lognormal',
    'rest': rest,
    'faults': faulty,
    'updates': updates,
    'seconds': elapsed,
    'updates_per_hour': 3600 * updates / elapsed,
    'of_ideal': work_s / workers / elapsed,
    'worker_use': float(use),
    'staleness_mean': float(np.mean([s['staleness/mean'] for s in stats])),
    'infrastructure': total['infrastructure'],
    'quarantined': total['quarantined'],
    'workers_replaced': executor.replaced,
  }


def virtual_rows(quick: bool) -> list[dict[str, Any]]:
  """Every row on the virtual clock, printed as it comes."""
  jobs = []
  for workers, durations in itertools.product(UPDATES, DURATIONS):
    settings = [('wait',), ('carry_over',), ('carry_over', None, 'keep', True)]
    settings.append(('carry_over', 4, 'hold', True))
    for bound, on_stale in itertools.product((1, 2, 4, 8), ON_STALE):
      settings.append(('carry_over', bound, on_stale))
    jobs += [(workers, durations, *s) for s in settings]
  rows = []
  with concurrent.futures.ProcessPoolExecutor(2) as pool:
    for row in pool.map(_row, [(job, quick) for job in jobs]):
      rows.append(row)
      print(line(row), flush=True)
  return rows


def _row(item) -> dict[str, Any]:
  job, quick = item
  updates = max(4, UPDATES[job[0]] // 4) if quick else None
  return virtual(*job, updates=updates)


def line(row: dict[str, Any]) -> str:
  """One row for people."""
  bound = row.get('bound')
  setting = row['rest'] + (
    f', {row["on_stale"]} at {bound}' if bound is not None else ''
  )
  return (
    f'{row["workers"]:5d} {row["durations"]:9s} {setting:24s} '
    f'{"faults" if row["faults"] else "":6s} '
    f'{row["updates_per_hour"]:9.1f}/h  ideal {row["of_ideal"]:.3f}  '
    f'use {row["worker_use"]:.3f}  stale {row["staleness_mean"]:.2f}'
  )


def find(rows, workers, durations, rest, bound=None, on_stale=None, faults=False):
  """The row of a setting."""
  for r in rows:
    key = (r['workers'], r['durations'], r['rest'], r['bound'], r['on_stale'])
    if key == (workers, durations, rest, bound, on_stale):
      if r['faults'] == faults:
        return r
  raise KeyError((workers, durations, rest, bound, on_stale, faults))


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """What is aimed at, what was measured, and whether it is met."""
  out = []

  def check(what, value, least):
    out.append(
      {'what': what, 'value': value, 'target': least, 'met': value >= least}
    )

  for workers in UPDATES:
    for durations in DURATIONS:
      name = f'{workers} workers, {durations}'
      free = find(rows, workers, durations, 'carry_over')
      faulty = find(rows, workers, durations, 'carry_over', faults=True)
      check(
        f'{name}: of the ideal',
        min(free['of_ideal'], free['worker_use']),
        0.95,
      )
      check(f'{name}: worker use', free['worker_use'], 0.97)
      check(
        f'{name}: throughput under faults',
        faulty['of_ideal'] / free['of_ideal'],
        0.9,
      )
  for workers, least in ((16, 4.0), (128, 10.0)):
    free = find(rows, workers, 'lognormal', 'carry_over')
    sync = find(rows, workers, 'lognormal', 'wait')
    check(
      f'{workers} workers, lognormal: times synchronous',
      free['of_ideal'] / sync['of_ideal'],
      least,
    )
  return out


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument('--quick', action='store_true', help='a quarter')
  args = parser.parse_args()
  start = time.time()
  updates = 10 if args.quick else 40
  processes = []
  for rest, faulty in (
    ('wait', False),
    ('carry_over', False),
    ('carry_over', True),
  ):
    processes.append(real(8, faulty, rest, updates))
    print('real ' + line({'bound': None, **processes[-1]}), flush=True)
  rows = virtual_rows(args.quick)
  checks = targets(rows)
  free, faulty = processes[1], processes[2]
  checks.append(
    {
      'what': '8 processes, real time: throughput under faults',
      'value': faulty['updates_per_hour'] / free['updates_per_hour'],
      'target': 0.9,
      'met': faulty['updates_per_hour'] >= 0.9 * free['updates_per_hour'],
    }
  )
  for c in checks:
    mark = 'met   ' if c['met'] else 'MISSED'
    print(f'{mark} {c["what"]}: {c["value"]:.3f} (>= {c["target"]})')
  if args.json:
    result = {
      'seconds': time.time() - start,
      'learner_share': LEARN,
      'targets': checks,
      'real': processes,
      'virtual': rows,
    }
    print(machine.save('async_core', result))


if __name__ == '__main__':
  main()
