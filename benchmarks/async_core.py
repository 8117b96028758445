"""Throughput of the asynchronous core against the synchronous one.

  python -m benchmarks.async_core [--json] [--quick]

On the virtual clock: 16, 128 and 1024 workers; constant, lognormal
(p99/p50 = 25) and bimodal durations; interactions of one turn and of 15; the
default setting of `SchedulerConfig`, other bounds, `hold` and `drop`; then with
faults. On real time: 8 worker processes, without and with faults. A batch
holds as many interactions as there are workers; the learner takes 5 % of an
update's ideal time, and the scheduler works meanwhile.

`of_ideal` is trained turns a second over workers / mean duration drawn
(total work over workers); at the start of a run it can pass 1, because what
is quick ends first, so its target is checked on the lesser of it and worker
use. `worker_use` is the share of worker time that was busy. Ages are of
trained rows, in updates.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine
from jaxagent.clock import RealClock, VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.records import SchedulerConfig
from jaxagent.rollout.requests import ExecutionRequest, Key, Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing.bandit import Bandit
from jaxagent.testing.fake_executor import Action, FakeExecutor, Faults
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.process_executor import ProcessExecutor
from jaxagent.testing.virtual_inbox import VirtualInbox

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
UPDATES = {16: 120, 128: 48, 1024: 24}
TURNS = (1, 15)
LEARN = 0.05  # of the ideal time of an update
DEFAULT = SchedulerConfig(1)


@dataclasses.dataclass(frozen=True)
class Setting:
  """A row of the table. The default is the scheduler's own."""

  rest: str = DEFAULT.rest
  bound: int | None = DEFAULT.max_staleness
  on_stale: str = DEFAULT.on_stale
  faults: bool = False

  def config(self, workers: int, watchdog_s: float, **options):
    return SchedulerConfig(
      batch_size=workers,
      rest=self.rest,
      max_staleness=self.bound,
      on_stale=self.on_stale,
      watchdog_s=watchdog_s,
      **options,
    )

  def __str__(self) -> str:
    if self.rest == 'wait':
      return 'wait'
    bound = (
      'no bound' if self.bound is None else f'{self.on_stale} {self.bound}'
    )
    return f'{self.rest}, {bound}' + (', faults' if self.faults else '')


FREE, FAULTY, WAIT = Setting(), Setting(faults=True), Setting(rest='wait')


def settings(turns: int, quick: bool) -> list[Setting]:
  """What is measured for interactions of so many turns."""
  if quick or turns > 1:
    return [WAIT, FREE, FAULTY]
  others = itertools.product(
    [DEFAULT.rest], (1, 2, 4, 8), ('keep', 'hold', 'drop')
  )
  unbounded = Setting(bound=None)
  return list(
    dict.fromkeys(
      [WAIT, FREE, FAULTY, *itertools.starmap(Setting, others), unbounded]
    )
  )


def drive(scheduler, sampler, clock, updates, learn_s, burn, node=None):
  """Collects and 'learns' `updates` times after `burn`.

  Returns:
    Seconds, stats of each batch, and trained rows.
  """
  stats: list[Any] = []
  trained: list[Any] = []
  start = clock.now()
  for version in range(burn + updates):
    if version == burn:
      start, stats, trained = clock.now(), [], []
    if node is not None and version == burn + updates // 3:
      node()
    sampler.version = version
    batch = scheduler.next_batch(version)
    stats.append(batch.stats)
    trained += batch.samples
    end = clock.now() + learn_s
    while (left := end - clock.now()) > 0:
      scheduler.work(version, left)
    scheduler.mark_trained(batch.prompt_ids, version)
  return clock.now() - start, stats, trained


def virtual(
  workers: int,
  durations: str,
  turns: int,
  setting: Setting,
  updates: int,
) -> dict[str, Any]:
  """One row on the virtual clock."""
  inbox = VirtualInbox(VirtualClock())
  rng = np.random.default_rng([workers, 5])
  drawn = []

  def act(work: ExecutionRequest) -> Action:
    drawn.append(DURATIONS[durations](rng))
    return Action(drawn[-1], 1.0)

  burn = 24 if workers < 1024 else 12
  mean_s = MEAN_S[durations]
  faults = Faults()
  if setting.faults:
    length = (burn + updates) * turns * mean_s
    node = (length / 2, max(1, workers // 8), length / 10)
    faults = Faults(0.01, 0.01, 5 * mean_s, (node,), seed=3)
  look_ahead = 0 if setting.rest == 'wait' else max(2, workers // 8)
  executor = FakeExecutor(inbox, act, workers, look_ahead, faults)
  sampler = ArmSampler(inbox, np.zeros(2))
  scheduler = Scheduler(
    PromptSource(range(4 * workers)),
    Bandit(turns),
    Workers(sampler, executor, inbox, inbox.clock),
    # One call of 15 is lost in seven interactions with faults, so a prompt
    # has more failures behind it than in one of a single call.
    setting.config(workers, 1e6, max_attempts=3 + turns // 5),
  )
  learn_s = LEARN * mean_s * turns
  elapsed, stats, trained = drive(
    scheduler, sampler, inbox.clock, updates, learn_s, burn
  )
  scheduler.ledger.check()
  total = scheduler.stats.total
  drawn_mean = float(np.mean(drawn))
  work = sum(len(s.steps()) for s in trained) * drawn_mean
  return {
    'workers': workers,
    'durations': durations,
    'turns': turns,
    **dataclasses.asdict(setting),
    **_throughput(stats, elapsed, updates, work / workers),
    'over_bound': sum(s['staleness/over_bound'] for s in stats),
    'learner_idle': sum(s['scheduler/learner_idle_s'] for s in stats) / elapsed,
    'dropped': total['dropped'],
    'dropped_share': total['dropped'] / max(1, total['issued']),
    'trained_mean_s': float(
      np.mean([t.exec_s for s in trained for t in s.steps()])
    ),
    'drawn_mean_s': drawn_mean,
    'infrastructure': total['infrastructure'],
    'quarantined': total['quarantined'],
  }


def _throughput(stats, elapsed, updates, ideal_s) -> dict[str, Any]:
  """What all rows share; ideal_s: seconds of all workers without a pause."""
  intervals = [s['scheduler/interval_s'] for s in stats]
  use = np.average(
    [s['scheduler/worker_use'] for s in stats], weights=intervals
  )
  return {
    'updates': updates,
    'updates_per_hour': 3600 * updates / elapsed,
    'of_ideal': ideal_s / elapsed,
    'worker_use': float(use),
    'staleness_mean': float(np.mean([s['staleness/mean'] for s in stats])),
    'staleness_max': max(s['staleness/max'] for s in stats),
  }


def real(
  workers: int, turns: int, setting: Setting, updates: int
) -> dict[str, Any]:
  """One row on real time with real processes (lognormal durations)."""
  clock = RealClock()
  scale = 0.1
  retried: set[Key] = set()

  def act(work: ExecutionRequest) -> tuple[Action, str]:
    # By the call's name, so that each row runs the same work.
    epoch, position, _ = map(int, work.key.prompt_id.split('/'))
    rng = np.random.default_rng([epoch, position, work.key.call, 11])
    duration = min(40 * scale, scale * DURATIONS['lognormal'](rng))
    u = rng.random()
    first = work.key not in retried
    retried.add(work.key)
    fault = ''
    if setting.faults and first:
      fault = 'death' if u < 0.01 else 'hang' if u < 0.02 else ''
    return Action(duration, 1.0), fault

  look_ahead = 0 if setting.rest == 'wait' else workers
  executor = ProcessExecutor(clock, act, workers, look_ahead, silent_s=1.0)
  sampler = ArmSampler(executor, np.zeros(2))
  scheduler = Scheduler(
    PromptSource(range(64 * workers)),
    Bandit(turns),
    Workers(sampler, executor, executor, clock),
    setting.config(workers, 60, lease_s=30, max_attempts=3 + turns // 5),
  )
  learn_s = LEARN * scale * MEAN_S['lognormal'] * turns
  node = (lambda: executor.lose(1, 2.0)) if setting.faults else None
  try:
    elapsed, stats, trained = drive(
      scheduler, sampler, clock, updates, learn_s, 3, node
    )
    scheduler.ledger.check()
  finally:
    executor.close()
  total = scheduler.stats.total
  work = sum(s.exec_s for s in trained)
  return {
    'workers': workers,
    'durations': 'lognormal',
    'turns': turns,
    **dataclasses.asdict(setting),
    'seconds': elapsed,
    **_throughput(stats, elapsed, updates, work / workers),
    'infrastructure': total['infrastructure'],
    'quarantined': total['quarantined'],
    'workers_replaced': executor.replaced,
  }


def virtual_rows(quick: bool) -> list[dict[str, Any]]:
  """Every row on the virtual clock, printed as it comes."""
  jobs = []
  for workers, durations, turns in itertools.product(UPDATES, DURATIONS, TURNS):
    updates = UPDATES[workers] // (4 if turns > 1 or quick else 1)
    for setting in settings(turns, quick):
      # What is finished and not yet trained differs by an update or two
      # between the ends of a window, so a short one measures that.
      jobs.append((workers, durations, turns, setting, max(24, updates)))
  rows = []
  with concurrent.futures.ProcessPoolExecutor(2) as pool:
    for row in pool.map(_row, jobs):
      rows.append(row)
      print(line(row), flush=True)
  return rows


def _row(job) -> dict[str, Any]:
  return virtual(*job)


def setting_of(row: dict[str, Any]) -> Setting:
  fields = [f.name for f in dataclasses.fields(Setting)]
  return Setting(**{name: row[name] for name in fields})


def line(row: dict[str, Any]) -> str:
  """One row for people."""
  return (
    f'{row["workers"]:5d} {row["durations"]:9s} {row["turns"]:2d} turns '
    f'{setting_of(row)!s:28s} '
    f'{row["updates_per_hour"]:9.1f}/h  ideal {row["of_ideal"]:.3f}  '
    f'use {row["worker_use"]:.3f}  age {row["staleness_mean"]:.2f}, '
    f'at most {row["staleness_max"]:.0f}'
  )


def find(rows, workers: int, durations: str, turns: int, setting: Setting):
  """The row of a setting."""
  for row in rows:
    key = (row['workers'], row['durations'], row['turns'], setting_of(row))
    if key == (workers, durations, turns, setting):
      return row
  raise KeyError((workers, durations, turns, setting))


def label(workers: int, durations: str, turns: int) -> str:
  """What a load is called; 8 workers are the real processes."""
  if workers == 8:
    return f'8 processes, real time, {turns} turns'
  return f'{workers} workers, {durations}, {turns} turns'


def targets(rows, processes) -> list[dict[str, Any]]:
  """What is aimed at, what was measured, and whether it is met."""
  out = []

  def check(what, value, least):
    out.append(
      {'what': what, 'value': value, 'target': least, 'met': value >= least}
    )

  def pair(name, free, faulty):
    check(
      f'{name}: of the ideal', min(free['of_ideal'], free['worker_use']), 0.95
    )
    check(f'{name}: worker use', free['worker_use'], 0.97)
    check(
      f'{name}: throughput under faults',
      faulty['of_ideal'] / free['of_ideal'],
      0.9,
    )

  for workers, durations, turns in itertools.product(UPDATES, DURATIONS, TURNS):
    of = [find(rows, workers, durations, turns, s) for s in (FREE, FAULTY)]
    pair(label(workers, durations, turns), *of)
  for turns in TURNS:
    of = [find(processes, 8, 'lognormal', turns, s) for s in (FREE, FAULTY)]
    pair(label(8, 'lognormal', turns), *of)
  for workers, least in ((16, 4.0), (128, 10.0)):
    free = find(rows, workers, 'lognormal', 1, FREE)
    sync = find(rows, workers, 'lognormal', 1, WAIT)
    check(
      f'{workers} workers, lognormal: times synchronous',
      free['of_ideal'] / sync['of_ideal'],
      least,
    )
  return out


def targets_table(result: dict[str, Any]) -> str:
  """Markdown: what is aimed at, a row for each load; what is missed, bold."""
  lines = [
    '| workers | durations | turns | of ideal | worker use | age mean / max | '
    'under faults | age mean / max | synchronous, of ideal |',
    '|---|---|---|---|---|---|---|---|---|',
  ]
  missed = {t['what'] for t in result['targets'] if not t['met']}
  loads = [
    *itertools.product(UPDATES, DURATIONS, TURNS),
    *itertools.product([8], ['lognormal'], TURNS),
  ]
  for workers, durations, turns in loads:
    real = workers == 8
    rows = result['real' if real else 'virtual']
    free, faulty, wait = (
      find(rows, workers, durations, turns, s) for s in (FREE, FAULTY, WAIT)
    )
    name = label(workers, durations, turns)
    cells = [
      ('of the ideal', free['of_ideal']),
      ('worker use', free['worker_use']),
      ('throughput under faults', faulty['of_ideal'] / free['of_ideal']),
    ]
    ideal, use, under = (
      f'**{v:.3f}**' if f'{name}: {what}' in missed else f'{v:.3f}'
      for what, v in cells
    )
    lines.append(
      f'| {f"{workers} processes, real time" if real else workers} | '
      f'{durations} | {turns} | {ideal} | {use} | {ages(free)} | '
      f'{under} | {ages(faulty)} | {wait["of_ideal"]:.2f} |'
    )
  return '\n'.join(lines)


def bounds_table(result: dict[str, Any]) -> str:
  """Markdown: bounds and what befalls the late; lognormal, one turn."""
  rows = [
    r
    for r in result['virtual']
    if r['durations'] == 'lognormal' and r['turns'] == 1 and not r['faults']
  ]
  workers = sorted({r['workers'] for r in rows})
  lines = [
    '| setting | '
    + ' | '.join(f'{n} workers: of ideal | age | dropped' for n in workers)
    + ' |',
    '|---' * (1 + 3 * len(workers)) + '|',
  ]
  for setting in dict.fromkeys(map(setting_of, rows)):
    cells = []
    for n in workers:
      row = find(rows, n, 'lognormal', 1, setting)
      cells += [
        f'{row["of_ideal"]:.2f}',
        ages(row),
        f'{row["dropped_share"]:.2f}',
      ]
    lines.append(f'| {setting} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def ages(row: dict[str, Any]) -> str:
  """Of trained rows, in updates."""
  return f'{row["staleness_mean"]:.1f} / {row["staleness_max"]:.0f}'


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument(
    '--quick', action='store_true', help='what the targets need'
  )
  args = parser.parse_args()
  start = time.time()
  processes = []
  for turns, setting in itertools.product(TURNS, (WAIT, FREE, FAULTY)):
    updates = max(8, (160 if turns == 1 else 20) // (4 if args.quick else 1))
    processes.append(real(8, turns, setting, updates))
    print('real ' + line(processes[-1]), flush=True)
  rows = virtual_rows(args.quick)
  result: dict[str, Any] = {
    'seconds': time.time() - start,
    'learner_share': LEARN,
    'targets': targets(rows, processes),
    'real': processes,
    'virtual': rows,
  }
  print(targets_table(result))
  if not args.quick:
    print(bounds_table(result))
  for c in result['targets']:
    mark = 'met   ' if c['met'] else 'MISSED'
    print(f'{mark} {c["what"]}: {c["value"]:.3f} (>= {c["target"]})')
  if args.json:
    print(machine.save('async_core', result))


if __name__ == '__main__':
  main()
