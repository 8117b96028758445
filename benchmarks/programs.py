"""Every program of the scripted author's grammar for a task, executed once.

  python -m benchmarks.programs [digits diabetes] [--workers 2] [--json]

Some 520 programs a task, our own and trusted, without slips: score on the validation and
on the private rows and CPU seconds of each (libraries imported before, one thread), by
what options it was written. Kept for `benchmarks.best_of`, whose policies write such
programs and whose executions are looked up.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
from typing import Any

from benchmarks import machine
from jaxagent.envs.grading import Grader
from jaxagent.envs.specs.task_data import DataSource
from jaxagent.envs.tasks import load_task, prepare_task
from jaxagent.files import bundled
from jaxagent.stand_ins import grammar, programmer
from jaxagent.tasks import measure
from jaxagent.types import TaskSpec

NAME = 'programs'
TASKS = ('digits', 'diabetes')


def start(spec: TaskSpec) -> dict[str, dict[str, float]]:
  """Returns choice -> option -> its chance as the scripted author draws it."""
  before, models = programmer.grammar(spec)
  names = [row.split()[0] for row in models]
  found = {
    'before': {one: before.count(one) / len(before) for one in before},
    'model': {one: names.count(one) / len(names) for one in names},
  }
  given = programmer.P_SETTING
  for row in models:
    for key, values in programmer.settings_of(row):
      found[f'{row.split()[0]} {key}'] = {
        grammar.NOT_GIVEN: 1 - given,
        **{value: given / len(values) for value in values},
      }
  return found


def executed(name: str, workers: int) -> dict[str, Any]:
  """Runs and grades every program of a task."""
  spec = load_task(name, bundled.folder('tasks'))
  with tempfile.TemporaryDirectory() as folder:
    prepared = prepare_task(spec, pathlib.Path(folder), DataSource())
    programs = list(grammar.written(spec))
    scripts = grammar.scripts(spec, prepared.public_dir)
    rows = []
    with Grader({name: prepared}) as grader:
      runs = measure.measured(prepared, grader, scripts, workers=workers)
      for one, (_, found) in zip(programs, runs, strict=True):
        row: dict[str, Any] = {'options': [list(o) for o in one.options]}
        if isinstance(found, measure.Measured):
          row['valid'], row['private'] = found.valid, found.private
          row['seconds'] = round(found.cpu_s, 4)
        else:
          row['failed'] = found
        rows.append(row)
  return {
    'higher_is_better': spec.higher_is_better,
    'm_init': spec.m_init,
    'm_best': spec.m_best,
    'start': start(spec),
    'programs': rows,
  }


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('tasks', nargs='*', default=TASKS, help='by name')
  parser.add_argument('--workers', type=int, default=2)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  result = {}
  for name in args.tasks:
    result[name] = executed(name, args.workers)
    rows = result[name]['programs']
    seconds = [row['seconds'] for row in rows if 'valid' in row]
    print(
      f'{name}: {len(rows)} programs, {len(seconds)} with a score, '
      f'{sum(seconds):.0f} CPU s',
      flush=True,
    )
  if args.json:
    path = machine.save(NAME, {})
    record = json.loads(path.read_text()) | {'tasks': result}
    # A line a program.
    path.write_text(_lines(record))
    print(path)


def _lines(record: dict[str, Any]) -> str:
  """JSON with each program on a line of its own."""
  tasks = record.pop('tasks')
  parts = []
  for name, task in tasks.items():
    rows = ',\n   '.join(json.dumps(row) for row in task.pop('programs'))
    head = json.dumps(task)[:-1]
    parts.append(
      f'  {json.dumps(name)}: {head}, "programs": [\n   {rows}\n  ]}}'
    )
  head = json.dumps(record, indent=1)[:-2]
  return head + ',\n "tasks": {\n' + ',\n'.join(parts) + '\n }\n}\n'


if __name__ == '__main__':
  main()
