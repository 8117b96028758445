"""`python -m jaxagent.tasks list | check | prepare | measure | new`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxagent.envs import programs
from jaxagent.envs import tasks as task_lib
from jaxagent.envs.grading import Grader
from jaxagent.envs.grading.grade_process import WorkerDied
from jaxagent.envs.specs import (
  interpreters,
  label_sources,
  mlagentbench_tasks,
  requirements,
)
from jaxagent.envs.specs.task_data import AS_PUBLISHED, DataSource
from jaxagent.envs.specs.task_yaml import ALL_MODALITIES, SPLITS
from jaxagent.files import disk
from jaxagent.sandbox import cpu_levels, gpu_devices
from jaxagent.sandbox.errors import BackendError, TierError
from jaxagent.tasks import (
  agreement,
  check_programs,
  check_published,
  template,
)
from jaxagent.tasks import check as check_lib
from jaxagent.tasks import measure as measure_lib


def table(rows: list[list[str]]) -> str:
  """Columns padded to their widest value; the first row is the head."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = [
    '  '.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
    for row in rows
  ]
  lines.insert(1, '  '.join('-' * w for w in widths))
  return '\n'.join(line.rstrip() for line in lines)


def number(value: Any) -> str:
  return '-' if value is None else f'{value + 0.0:.4g}'


def command_list(args: argparse.Namespace) -> int:
  rows = [
    'name split data modality kind metric better m_init m_best timeout_s'.split()
  ]
  for spec in task_lib.list_tasks(args.tasks_dir):
    if args.split and spec.split != args.split:
      continue
    if args.modality and spec.modality != args.modality:
      continue
    rows.append(
      [
        spec.name,
        spec.split,
        spec.variant or '-',
        spec.modality or '-',
        spec.kind or '-',
        spec.metric,
        'higher' if spec.higher_is_better else 'lower',
        number(spec.m_init),
        number(spec.m_best),
        f'{spec.limits.timeout_s:g}',
      ]
    )
  print(table(rows))
  return 0


def chosen(args: argparse.Namespace) -> list[task_lib.TaskSpec]:
  if args.all:
    return task_lib.list_tasks(args.tasks_dir)
  if not args.names:
    known = ', '.join(task_lib.task_names(args.tasks_dir))
    raise ValueError(f'name one or more tasks, or --all; there are: {known}.')
  return [task_lib.load_task(name, args.tasks_dir) for name in args.names]


def chosen_own(
  args: argparse.Namespace, *, divided: bool = False
) -> list[task_lib.TaskSpec]:
  """Returns the chosen tasks, which must have a task.yaml to be checked.

  divided: folders of MLAgentBench whose rows are divided will do, too.
  """
  specs = chosen(args)
  if bare := [
    s.name
    for s in specs
    if s.layout == mlagentbench_tasks.LAYOUT
    and not (divided and task_lib.is_divided(s))
  ]:
    raise ValueError(
      f'{", ".join(bare)}: no task.yaml, so nothing is claimed that could be '
      'checked or measured; `prepare` makes the data of such a task, and `measure` '
      'its m_init where NAME.yaml names answers.'
    )
  return specs


def data_dir(args: argparse.Namespace) -> pathlib.Path:
  if args.data_dir:
    return args.data_dir
  return pathlib.Path(tempfile.gettempdir()) / 'jaxagent-tasks'


def prepare(
  spec: task_lib.TaskSpec, args: argparse.Namespace
) -> task_lib.PreparedTask:
  """Prepares the variant of a task's data that the command line names."""
  variant, folder = 'standin', None
  for name in ('packages', 'mlebench', 'raw'):
    if getattr(args, name):
      variant, folder = name, getattr(args, name)
  source = DataSource(variant, folder, args.as_published)
  prepared = task_lib.prepare_task(spec, data_dir(args), source)
  if seconds := getattr(args, 'timeout_s', None):
    limits = dataclasses.replace(spec.limits, timeout_s=seconds)
    own = dataclasses.replace(prepared.spec, limits=limits)
    prepared = dataclasses.replace(prepared, spec=own)
  for note in prepared.notes:
    print(f'note: {spec.name}: {note}', file=sys.stderr, flush=True)
  return prepared


def command_prepare(args: argparse.Namespace) -> int:
  for spec in chosen(args):
    prepared = prepare(spec, args)
    print(f'{spec.name}: {prepared.public_dir}', flush=True)
  return 0


def _run_in(pool: Any) -> check_lib.Run:
  return lambda job: pool.submit(job).result()


def runs_at(
  levels: Sequence[str],
  args: argparse.Namespace,
  prepared: Mapping[str, task_lib.PreparedTask],
  stack: contextlib.ExitStack,
) -> dict[str, check_lib.Run]:
  """Opens a sandbox for each CPU level; says what a level is here."""
  from jaxagent.sandbox import SandboxPool

  hidden = [
    *label_sources.folders(t.spec for t in prepared.values()),
    *filter(
      None, (args.packages, args.mlebench, args.raw)
    ),  # these have answers, too
  ]
  flags = cpu_levels.machine_flags()
  runs: dict[str, check_lib.Run] = {}
  for level in levels:
    said = cpu_levels.note(level, flags)
    pool = stack.enter_context(
      SandboxPool(
        1,
        min_tier=args.min_tier,
        hidden=hidden,
        zygote=False,
        gpus=args.gpus,
        gpu_devices=gpu_devices.files(args.gpus),
        cpu_level=level,
        interpreters=interpreters.of_all(t.spec for t in prepared.values()),
      )
    )
    print(said or f'cpu_level={level}', file=sys.stderr, flush=True)
    runs[level] = _run_in(pool)
  return runs


# Column of the table of checks -> figure of a report.
COLUMNS = {
  'train': 'train_rows',
  'test': 'test_rows',
  'kB': 'kb',
  'labels': 'labels',
  'exec_s': 'exec_s',
  'tier': 'tier',
  'starter': 'starter',
  'sample': 'sample',
  'reference': 'reference',
  'se': 'se',
  'gold': 'gold',
}


def _shown(value: Any) -> str:
  if isinstance(value, int):
    return str(value)
  return number(value) if isinstance(value, float) else str(value or '-')


def _check_of(task: task_lib.PreparedTask) -> Callable[..., check_lib.Report]:
  """Returns the checks of a task's kind."""
  if programs.is_one(task.spec):
    return check_programs.check_task
  if task.spec.version == 2 and not task_lib.has_eval(task.spec):
    return check_published.check_task
  return check_lib.check_task


def _check_machine(
  specs: Sequence[task_lib.TaskSpec], args: argparse.Namespace
) -> None:
  """Raises ValueError where a task needs what is not here, before it is prepared."""
  for spec in specs:
    if why := requirements.complaint(
      spec, gpus=args.gpus, image='', memory_mb=0
    ):
      raise ValueError(why)


def command_check(args: argparse.Namespace) -> int:
  specs = chosen_own(args)
  if not args.no_run:
    _check_machine(specs, args)
  prepared = {spec.name: prepare(spec, args) for spec in specs}
  rows = [('name ok data ' + ' '.join(COLUMNS)).split()]
  bad = []
  reports = []
  with contextlib.ExitStack() as stack:
    grader = stack.enter_context(Grader(prepared))
    runs = {}
    if not args.no_run:
      levels = [args.cpu_level] if args.cpu_level else cpu_levels.LEVELS
      runs = runs_at(levels, args, prepared, stack)
    run = runs.pop(next(iter(runs))) if runs else None
    for name, task in prepared.items():
      report = _check_of(task)(task, grader, run, runs)
      if task.spec.variant == 'packages':
        check_lib.check_packages(task.spec, args.packages, run, report)
      reports.append(report)
      state = 'failed' if report.failures else 'ok'
      print(f'{name}: {state}', file=sys.stderr, flush=True)
  for report in reports:
    state = 'no' if report.failures else 'yes'
    shown = [_shown(report.figures.get(key)) for key in COLUMNS.values()]
    variant = prepared[report.name].spec.variant or '-'
    rows.append([report.name, state, variant, *shown])
    bad += [f'{report.name}: {failure}' for failure in report.failures]
  print(table(rows))
  for line in bad:
    print(f'FAILED {line}', file=sys.stderr)
  return 1 if bad else 0


def command_agreement(args: argparse.Namespace) -> int:
  """Runs all programs that can be scripted; keeps whether both scores agree."""
  for spec in chosen_own(args):
    prepared = prepare(spec, args)
    with Grader({spec.name: prepared}) as grader:
      results = agreement.measured(prepared, grader)
    found, top = agreement.of(results, spec.higher_is_better)
    print(agreement.said(spec.name, found, top, len(results)), flush=True)
    if found is not None and not args.dry_run:
      agreement.record(prepared, found)
  return 0


def command_measure(args: argparse.Namespace) -> int:
  if args.programs:
    return command_agreement(args)
  specs = chosen_own(args, divided=True)
  _check_machine(specs, args)
  for spec in specs:
    prepared = prepare(spec, args)
    with contextlib.ExitStack() as stack:
      grader = stack.enter_context(Grader({spec.name: prepared}))
      is_folder = task_lib.is_divided(spec)
      if programs.is_one(spec) or is_folder:  # runs where submissions run
        level = cpu_levels.DEFAULT
        run = runs_at([level], args, {spec.name: prepared}, stack)[level]
        if is_folder:
          results = [measure_lib.folders_starter(prepared, grader, run)]
        else:
          results = check_programs.measure(prepared, grader, run)
      else:
        results = measure_lib.measure(
          prepared, grader, search=args.search, gpus=args.gpus
        )
    for item in results[:6]:
      print(
        f'{spec.name}: valid {item.valid:.5f} private {item.private:.5f} '
        f'{item.wall_s:.2f} s  {item.pipeline or "starter"}',
        flush=True,
      )
    if not args.dry_run:
      measure_lib.record(prepared, results)
  return 0


def command_new(args: argparse.Namespace) -> int:
  root = template.write_template(args.name, args.tasks_dir)
  print(
    f'{root}: change the files, then run `python -m jaxagent.tasks measure '
    f'{args.name} --search` and `python -m jaxagent.tasks check {args.name}`.'
  )
  return 0


def _add_data(parser: argparse.ArgumentParser) -> None:
  """Adds the flags that choose a variant of the catalogue's data."""
  data = parser.add_mutually_exclusive_group()
  data.add_argument(
    '--standin',
    action='store_true',
    help='data of the catalogue made by code; the default',
  )
  data.add_argument(
    '--packages',
    type=disk.user_path,
    metavar='DIR',
    help='stand-ins of files of packages in DIR, where a task takes any; see '
    'docs/tasks.md',
  )
  data.add_argument(
    '--mlebench',
    type=disk.user_path,
    metavar='DIR',
    help="data of the catalogue from mle-bench's data folder",
  )
  data.add_argument(
    '--raw',
    type=disk.user_path,
    metavar='DIR',
    help='data of the catalogue from original files, DIR/NAME for each task',
  )
  parser.add_argument(
    AS_PUBLISHED,
    action='store_true',
    help='what gives answers away stays in published data; rewards are untrusted',
  )


def make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.tasks', description='Task folders.'
  )
  parser.add_argument(
    '--tasks_dir',
    type=disk.user_path,
    help='default: tasks of the working directory, else the bundled ones',
  )
  parser.add_argument(
    '--data_dir', type=disk.user_path, help='where prepared data is kept'
  )
  commands = parser.add_subparsers(dest='command', required=True)
  listing = commands.add_parser('list', help='a table of the tasks')
  listing.add_argument('--split', choices=SPLITS)
  listing.add_argument('--modality', choices=ALL_MODALITIES)
  listing.set_defaults(call=command_list)
  several = {
    'prepare': (command_prepare, 'make the data'),
    'check': (command_check, 'check every claim, run the starter'),
    'measure': (command_measure, 'measure m_init and m_best'),
  }
  for name, (call, text) in several.items():
    sub = commands.add_parser(name, help=text)
    sub.add_argument('names', nargs='*', metavar='NAME')
    sub.add_argument('--all', action='store_true')
    _add_data(sub)
    sub.set_defaults(call=call)
    if name != 'prepare':
      sub.add_argument('--min_tier', default='T2')
      sub.add_argument(
        '--gpus',
        type=lambda text: text.split(','),
        default=[],
        help='GPUs, by number, for tasks that ask for some: 0,1',
      )
    if name == 'check':
      sub.add_argument('--no_run', action='store_true')
      sub.add_argument(
        '--cpu_level',
        choices=cpu_levels.LEVELS,
        help='vector units of the starters; default: each level, compared',
      )
    if name == 'measure':
      what = sub.add_mutually_exclusive_group()
      what.add_argument('--search', action='store_true')
      what.add_argument(
        '--programs',
        action='store_true',
        help='agreement of validation and private scores in place of m_init and '
        'm_best: runs every program that can be scripted, some 500',
      )
      sub.add_argument('--dry_run', action='store_true')
      sub.add_argument(
        '--timeout_s',
        type=float,
        metavar='S',
        help="limit of a script in place of the task's own, which is that of its "
        'stand-in',
      )
  new = commands.add_parser('new', help='a filled template')
  new.add_argument('name', metavar='NAME')
  # Never into the checkout that the package is installed from, unless it is here.
  new.set_defaults(call=command_new, made_in=pathlib.Path('tasks'))
  return parser


def main(argv: list[str] | None = None) -> int:
  args = make_parser().parse_args(argv)
  if args.tasks_dir is None:
    args.tasks_dir = getattr(args, 'made_in', task_lib.default_folder())
  try:
    return args.call(args)
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  except (TierError, BackendError, WorkerDied) as error:
    # Some quote the launcher's output of several lines.
    print(f'error: {" ".join(str(error).split())}', file=sys.stderr)
    return 2


if __name__ == '__main__':
  sys.exit(main())
