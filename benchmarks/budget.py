"""What a change costs: the quickstart's stages at two commits, alternately.

  python -m benchmarks.budget --against COMMIT [--commit HEAD] [--pairs 3] [--json]
      [--whole] [--cold] [--renamed old=new ...]

Each commit is checked out by itself and runs its own code with this interpreter, the
same seed and the same options, one run at a time; the order within a pair alternates.
Of each stage it prints CPU seconds of all processes (user and system), those of the
executions apart, wall seconds and the learner process's peak memory, then
the parts of an update of RL: medians of both commits, and the ratio after / before of
each pair, its median, least and greatest.

The short form (some 4 minutes a run, 3 once its programs are compiled) takes the
quickstart's model through a few updates, with programs from a cache that one run of each
commit fills first; --whole is the quickstart itself, and compiles as a first start does.
The short form's policy hardly executes anything in RL: its executions are `collect`'s. Changes that are not committed
are not measured. Resumable: finished runs are reused, an interrupted one begins again.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import machine, same_digits
from jaxagent.metrics import read_records

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = 'configs/stepwise_ppo.py'
SHORT: dict[str, Any] = {
  'collect.trajectories_per_task': 4,
  'collect.max_steps': 4,
  'sft.epochs': 2,
  'rl.value_warmup_epochs': 1,
  'rl.updates': 8,
  'eval.trajectories_per_task': 2,
  'eval.k': 2,
}
# Stage -> what a run writes once it has ended, in their order.
STAGES: Mapping[str, str] = {
  'start': 'eval/starts.json',
  'collect': 'tokenizer/tokenizer.json',
  'sft': 'eval/sft.updates',
  'evaluate_sft': 'eval/sft.json',
  'value_warmup': 'rl/journal',
  'rl': 'rl/ledger.json',
  'evaluate_rl': 'summary.json',
}
_PARTS = (
  *('step', 'gen', 'update_actor', 'update_critic', 'old_log_prob', 'ref'),
  *('values', 'update_weights', 'save_checkpoint'),
)
UPDATE = tuple(f'timing_s/{part}' for part in _PARTS) + ('learner/padding',)
WARM_UPDATES = 2  # in which programs are compiled
FIGURES = ('cpu_s', 'executions_cpu_s', 'wall_s', 'peak_mb')
LEAST = 0.05  # of which a ratio says something
_EVERY_S = 0.25
_TICKS = os.sysconf('SC_CLK_TCK')


class Meter:
  """Sums what a run's processes use, by the stage that the run is in.

  root: the learner's process. work: the run's work directory, whose files tell
    the stage.
  """

  def __init__(self, root: int, work: pathlib.Path):
    self._root, self._work = root, work
    self.stages: dict[str, dict[str, float]] = {}
    self._before = (time.monotonic(), 0.0, 0.0)
    self._left = list(STAGES.items())

  def look(self) -> None:
    """Adds what was used since the last look to the stage of now."""
    while len(self._left) > 1 and (self._work / self._left[0][1]).exists():
      self._left.pop(0)
    stage = self._left[0][0]
    usage = _usage(self._root)
    if usage is None:
      return
    own, tree, resident_mb = usage
    now = time.monotonic()
    at, own_before, tree_before = self._before
    self._before = now, own, tree
    found = self.stages.setdefault(stage, dict.fromkeys(FIGURES, 0.0))
    found['wall_s'] += now - at
    found['cpu_s'] += tree - tree_before
    found['executions_cpu_s'] += (tree - own) - (tree_before - own_before)
    found['peak_mb'] = max(found['peak_mb'], resident_mb)


def _usage(root: int) -> tuple[float, float, float] | None:
  """Returns CPU seconds of a process and of all its tree, and its resident MB.

  Those of ended processes are in their parents'. None where the process has ended.
  """
  rows = {}
  for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
    try:
      text = path.read_text()
    except OSError:  # it has ended
      continue
    fields = text.rpartition(')')[2].split()
    times = [int(field) / _TICKS for field in fields[11:15]]
    resident = int(fields[21]) * os.sysconf('SC_PAGE_SIZE') / 1e6
    rows[int(path.parent.name)] = int(fields[1]), times, resident
  if root not in rows:
    return None
  children: dict[int, list[int]] = {}
  for pid, (parent, _, _) in rows.items():
    children.setdefault(parent, []).append(pid)
  tree, todo = 0.0, [root]
  while todo:
    pid = todo.pop()
    tree += sum(rows[pid][1])
    todo += children.get(pid, [])
  return sum(rows[root][1][:2]), tree, rows[root][2]


def measure(
  checkout: same_digits.Checkout,
  given: Sequence[str],
  work: pathlib.Path,
  env: Mapping[str, str],
) -> dict[str, Any]:
  """Runs one whole job; returns what its stages and updates took.

  given: options of the command line. Raises RuntimeError where the job fails.
  """
  shutil.rmtree(work, ignore_errors=True)
  work.parent.mkdir(parents=True, exist_ok=True)
  words = ('-m', 'jaxagent.main', f'--config={CONFIG}', f'--work_dir={work}')
  log = work.with_suffix('.log')
  began = time.monotonic()
  with log.open('wb') as out:
    job = checkout.start(*words, *given, env=env, stdout=out, stderr=out)
    meter = Meter(job.pid, work)
    try:
      while True:
        ended, status, used = os.wait4(job.pid, os.WNOHANG)
        if ended:
          break
        meter.look()
        time.sleep(_EVERY_S)
    except BaseException:
      job.terminate()
      job.wait()
      raise
  job.returncode = os.waitstatus_to_exitcode(status)
  if job.returncode:
    raise RuntimeError(f'{checkout.root}: ended with {job.returncode}: {log}')
  whole = {
    'cpu_s': used.ru_utime + used.ru_stime,
    'wall_s': time.monotonic() - began,
    'executions_cpu_s': sum(
      stage['executions_cpu_s'] for stage in meter.stages.values()
    ),
    'peak_mb': max(stage['peak_mb'] for stage in meter.stages.values()),
  }
  records = read_records(work / 'logs' / 'metrics.jsonl')[WARM_UPDATES:]
  update = {
    name: statistics.median(found)
    for name in UPDATE
    if (found := [record[name] for record in records if name in record])
  }
  return {'stages': {**meter.stages, 'whole': whole}, 'update': update}


def compared(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns medians of both sides, and ratio, least and greatest, of each figure.

  pairs: each 'before' and 'after', as `measure` returns them.
  """
  found: dict[str, Any] = {'stages': {}, 'update': {}}
  for stage in (*STAGES, 'whole'):
    rows = {
      figure: _ratio([_of(pair, stage, figure) for pair in pairs])
      for figure in FIGURES
    }
    found['stages'][stage] = {k: v for k, v in rows.items() if v}
  for name in UPDATE:
    both = [
      tuple(pair[side]['update'].get(name) for side in ('before', 'after'))
      for pair in pairs
    ]
    if row := _ratio(both):
      found['update'][name] = row
  return found


def _of(pair: Mapping[str, Any], stage: str, figure: str) -> tuple:
  sides = (pair[side]['stages'] for side in ('before', 'after'))
  return tuple(stages.get(stage, {}).get(figure) for stages in sides)


def _ratio(both: Sequence[tuple]) -> dict[str, float]:
  """Returns {} where a pair lacks one of them."""
  if any(value is None for pair in both for value in pair):
    return {}
  before, after = zip(*both)
  row = {
    'before': statistics.median(before),
    'after': statistics.median(after),
  }
  if all(value >= LEAST for value in before):
    ratios = [new / old for old, new in both]
    row['ratio'] = statistics.median(ratios)
    row['least'], row['greatest'] = min(ratios), max(ratios)
  return row


def lines(result: Mapping[str, Any]) -> Iterator[str]:
  """Yields the table that is printed."""
  yield f'{"":24}{"before":>10}{"after":>10}{"ratio":>8}  least to greatest'
  for stage, rows in result['stages'].items():
    for figure, row in rows.items():
      yield _line(f'{stage} {figure}', row)
  for name, row in result['update'].items():
    yield _line(name, row)


def _line(name: str, row: Mapping[str, float]) -> str:
  text = f'{name:28}{row["before"]:>10.2f}{row["after"]:>10.2f}'
  if 'ratio' not in row:
    return text
  return (
    f'{text}{row["ratio"]:>8.2f}  {row["least"]:.2f} to {row["greatest"]:.2f}'
  )


def worktree(root: pathlib.Path, commit: str, trees: pathlib.Path) -> Any:
  """Returns a fresh checkout of a commit below `trees`, and the commit's hash.

  Raises ValueError for what is no commit of the repository at `root`.
  """
  git = ('git', '-C', str(root))
  asked = subprocess.run(
    [*git, 'rev-parse', '--verify', '--short=12', f'{commit}^{{commit}}'],
    capture_output=True,
    text=True,
  )
  if asked.returncode:
    raise ValueError(f'{commit!r} is no commit of {root}.')
  revision = asked.stdout.strip()
  place = trees / revision
  if not (place / 'jaxagent').is_dir():
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([*git, 'worktree', 'prune'], check=True)
    subprocess.run(
      [*git, 'worktree', 'add', '--quiet', '--detach', place, revision],
      check=True,
    )
  return same_digits.Checkout(place), revision


def run(
  root: pathlib.Path,
  commits: Mapping[str, str],
  base: pathlib.Path,
  wanted: Mapping[str, Any],
  *,
  pairs: int,
  cold: bool,
  renamed: Mapping[str, str],
) -> dict[str, Any]:
  """Runs what is missing of all pairs; returns the comparison.

  commits: of 'before' and 'after'. wanted: options by their dotted keys. cold: each
    run compiles all programs.
  """
  sides = {
    side: worktree(root, commit, base / 'trees')
    for side, commit in commits.items()
  }
  measured: list[dict[str, Any]] = []
  for pair in range(-1 if not cold else 0, pairs):
    order = ('before', 'after') if pair % 2 == 0 else ('after', 'before')
    found = {}
    for side in order:
      checkout, revision = sides[side]
      given = same_digits.options(wanted, checkout.keys(CONFIG), renamed)
      name = f'{side}-{revision}-{pair}' if pair >= 0 else f'fill-{revision}'
      found[side] = _once(checkout, given, base, name, revision, cold)
    if pair >= 0:
      measured.append(found)
  for place in {checkout.root for checkout, _ in sides.values()}:
    subprocess.run(
      ['git', '-C', root, 'worktree', 'remove', '--force', place], check=True
    )
  return {
    'commits': {side: revision for side, (_, revision) in sides.items()},
    **compared(measured),
    'pairs': measured,
  }


def _once(
  checkout: same_digits.Checkout,
  given: Sequence[str],
  base: pathlib.Path,
  name: str,
  revision: str,
  cold: bool,
) -> dict[str, Any]:
  """Returns a run's figures, of an earlier call with the same options if any."""
  kept = base / f'{name}.json'
  if kept.exists():
    found = json.loads(kept.read_text())
    if found['given'] == [cold, *given]:
      return found
  env = {'JAX_PLATFORMS': 'cpu', 'JAX_ENABLE_COMPILATION_CACHE': 'false'}
  if not cold:
    env = {
      'JAX_PLATFORMS': 'cpu',
      'JAX_COMPILATION_CACHE_DIR': str(base / f'compiled-{revision}'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    }
  print(f'{name} ...', file=sys.stderr, flush=True)
  found = measure(checkout, given, base / 'runs' / name, env)
  found['given'] = [cold, *given]
  part = kept.with_suffix('.part')
  part.write_text(json.dumps(found))
  part.replace(kept)
  shutil.rmtree(base / 'runs' / name, ignore_errors=True)
  return found


def main(argv: Sequence[str] | None = None) -> int:
  """Measures and prints; returns the exit status."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--against', required=True, metavar='COMMIT')
  parser.add_argument('--commit', default='HEAD')
  parser.add_argument('--pairs', type=int, default=3)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--json', action='store_true')
  form = parser.add_mutually_exclusive_group()
  form.add_argument('--short', action='store_true', help='the default')
  form.add_argument('--whole', action='store_true')
  parser.add_argument(
    '--cold', action='store_true', help='compile in each run; --whole always'
  )
  parser.add_argument('--renamed', nargs='*', default=(), metavar='OLD=NEW')
  parser.add_argument('--work_dir', default='workdir/budget')
  args = parser.parse_args(argv)
  if args.pairs < 1:
    parser.error(f'--pairs={args.pairs} must be at least 1.')
  wanted = {'seed': args.seed, **({} if args.whole else SHORT)}
  renamed = {
    **same_digits.RENAMED,
    **dict(pair.split('=', 1) for pair in args.renamed),
  }
  base = pathlib.Path(args.work_dir).resolve()
  base = base / ('whole' if args.whole else 'short')
  try:
    result = run(
      ROOT,
      {'before': args.against, 'after': args.commit},
      base,
      wanted,
      pairs=args.pairs,
      cold=args.cold or args.whole,
      renamed=renamed,
    )
  except (ValueError, RuntimeError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  result = {
    'form': 'whole' if args.whole else 'short',
    'cold': args.cold or args.whole,
    **result,
  }
  print('\n'.join(lines(result)))
  if args.json:
    print(machine.save('budget', result))
  return 0


if __name__ == '__main__':
  sys.exit(main())
