"""`task.yaml`, version 2: published data, graded by `graders`.

Version 1 has one set of data, a column `id` and one of six metrics. Version 2 says
where its data comes from and in which variants there is some, names the columns, and
may be graded by any competition's grader (docs/tasks.md has every key).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import graders
from jaxagent.envs.specs import task_yaml
from jaxagent.graders import report
from jaxagent.types import (
  HumanBoard,
  Limits,
  Scale,
  TaskDetails,
  TaskEnvironment,
  TaskSource,
  TaskSpec,
)

REQUIRED_KEYS = (
  'version',
  'source',
  'modality',
  'kind',
  'metric',
  'higher_is_better',
  'split',
  'limits',
)
OPTIONAL_KEYS = (
  'papers',
  'id',
  'targets',
  'submission',
  'environment',
  'data',
  'variants',
  'board',
  'hides',
  'exposed',
)
ROLES = ('train', 'evaluate', 'both')
SOURCES = ('mlebench', 'mlagentbench', 'made')
FORMATS = ('csv', 'jsonl', 'npy', 'npz', 'zip', 'folder', 'py')
TABLES, ARRAYS = ('csv', 'jsonl'), ('npy', 'npz')
FOLDER = 'folder'  # of files beside each other
SEVERAL = (
  'zip',
  FOLDER,
)  # files of a table or arrays, as the grader reads either
PROGRAM = 'py'  # of kind `speed`
REFERENCE = 'solution/reference.py'  # a stronger solution, outside of env/
# Of the data of a task. The scales of `full` are measured when it is prepared.
VARIANTS = ('standin', 'packages', 'mlebench', 'raw')
SCALE_KEYS = (
  'm_init',
  'm_best',
  'm_init_private',
  'm_best_private',
  'm_best_source',
  'agreement',
)
MAX_GPUS = 64
MAX_SIZE = 10**9  # of a file in MB, hours or gigabytes


def _part(
  where: str, record: Mapping[str, Any], key: str, known: Sequence[str]
) -> dict[str, Any]:
  """Returns the mapping under `key`, {} where there is none, its keys checked."""
  value = record.get(key)
  if value is None:
    return {}
  if not isinstance(value, dict):
    raise ValueError(
      f'{where}: {key}={value!r} must be a mapping with {", ".join(known)}.'
    )
  for name in value:
    task_yaml.choice(where, f'{key} key', name, known)
  return value


def _text(where: str, key: str, value: Any) -> str:
  if value is None:
    return ''
  if not isinstance(value, str):
    raise ValueError(f'{where}: {key}={value!r} must be text.')
  return value.strip()


def _names(where: str, key: str, value: Any) -> tuple[str, ...]:
  """Returns a list of different names, () for None."""
  if value is None:
    return ()
  if not isinstance(value, list) or not all(
    isinstance(v, str) and v.strip() for v in value
  ):
    raise ValueError(f'{where}: {key}={value!r} must be a list of names.')
  if len(set(value)) < len(value):
    raise ValueError(f'{where}: {key}={value!r} names one twice.')
  return tuple(value)


def _size(where: str, key: str, value: Any, *, zero: bool = True) -> float:
  """Returns a number of zero or more; 0 for None."""
  number = task_yaml.number(where, key, value) or 0.0
  if number < 0 or (value is not None and not zero and not number):
    least = 'zero or more' if zero else 'greater than zero'
    raise ValueError(f'{where}: {key}={value!r} must be {least}.')
  if number > MAX_SIZE:
    raise ValueError(f'{where}: {key}={value!r} is more than {MAX_SIZE:,}.')
  return number


def _source(where: str, record: Mapping[str, Any]) -> TaskSource:
  found = _part(where, record, 'source', ('kind', 'id', 'url', 'rules'))
  for key in ('kind', 'id'):
    if not found.get(key):
      raise ValueError(f'{where}: source.{key} is missing.')
  return TaskSource(
    kind=task_yaml.choice(where, 'source.kind', found['kind'], SOURCES),
    id=_text(where, 'source.id', found['id']),
    url=_text(where, 'source.url', found.get('url')),
    rules=_text(where, 'source.rules', found.get('rules')),
  )


def _papers(where: str, record: Mapping[str, Any]) -> dict[str, str]:
  papers = record.get('papers') or {}
  if not isinstance(papers, dict):
    raise ValueError(
      f"{where}: papers={papers!r} must be a mapping such as {{'000': train}}."
    )
  for paper, role in papers.items():
    if not isinstance(paper, str):
      raise ValueError(
        f"{where}: papers: {paper!r} is read as a number; write '000' in quotes."
      )
    task_yaml.choice(where, f'papers.{paper}', role, ROLES)
  return dict(papers)


def _submission(where: str, record: Mapping[str, Any]) -> dict[str, Any]:
  """Returns path, format, size and sample of a submission."""
  known = ('path', 'format', 'max_mb', 'sample')
  found = _part(where, record, 'submission', known)
  path = _text(where, 'submission.path', found.get('path'))
  path = path or TaskSpec.submission
  inside = pathlib.PurePosixPath(path)
  if inside.is_absolute() or '..' in inside.parts:
    raise ValueError(
      f'{where}: submission.path={path!r} must be a path inside the workspace.'
    )
  suffix = inside.suffix.removeprefix('.')
  form = task_yaml.choice(
    where, 'submission.format', found.get('format', suffix), FORMATS
  )
  if form == FOLDER:
    if suffix:
      raise ValueError(
        f'{where}: submission.path={path!r} ends in .{suffix}, but its '
        'submission.format is folder; give a name without an ending.'
      )
  elif suffix != form:
    raise ValueError(
      f'{where}: submission.path={path!r} does not end in .{form}, its '
      'submission.format; readers go by the name.'
    )
  size = _size(where, 'submission.max_mb', found.get('max_mb', 64), zero=False)
  sample = _text(where, 'submission.sample', found.get('sample'))
  return {'path': path, 'format': form, 'max_mb': size, 'sample': sample}


def _limits(where: str, value: Any) -> tuple[Limits, int]:
  """Returns the limits of one execution and its number of GPUs.

  `hours` and `gigabytes` are other units of timeout_s and memory_mb.
  """
  if not isinstance(value, dict):
    raise ValueError(f'{where}: limits={value!r} must be a mapping.')
  rest = dict(value)
  gpus = rest.pop('gpus', 0)
  if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
    raise ValueError(
      f'{where}: limits.gpus={gpus!r} must be a whole number, 0 for none.'
    )
  if gpus > MAX_GPUS:
    raise ValueError(f'{where}: limits.gpus={gpus} is more than {MAX_GPUS}.')
  units = (('hours', 'timeout_s', 3600), ('gigabytes', 'memory_mb', 1024))
  for key, plain, factor in units:
    if key not in rest:
      continue
    if plain in rest:
      raise ValueError(
        f'{where}: limits has {key} and {plain}, which say the same; leave one.'
      )
    amount = _size(where, f'limits.{key}', rest.pop(key), zero=False) * factor
    rest[plain] = int(amount) if plain == 'memory_mb' else amount
  return task_yaml.limits(where, rest), gpus


def _variants(where: str, record: Mapping[str, Any]) -> dict[str, Scale]:
  found = _part(where, record, 'variants', ('standin',))
  scales = {}
  for name in found:
    inner = f'{where}: variants.{name}'
    scales[name] = read_scale(
      inner, _part(where, found, name, SCALE_KEYS), record
    )
  return scales


def read_scale(
  where: str, given: Mapping[str, Any], record: Mapping[str, Any]
) -> Scale:
  """Reads the scores of one variant; `record` tells metric and direction.

  Raises ValueError for what is no number, or a best score below the first.
  """
  for key in given:
    task_yaml.choice(where, 'key', key, SCALE_KEYS)
  task_yaml.check_scale(
    where,
    {
      **given,
      'metric': record['metric'],
      'higher_is_better': record['higher_is_better'],
    },
  )
  scores = {
    key: task_yaml.number(where, key, given.get(key)) for key in SCALE_KEYS[:4]
  }
  source = str(given.get('m_best_source') or '')
  agreement = task_yaml.agreement(where, given)
  return Scale(**scores, m_best_source=source, agreement=agreement)


def _board(where: str, record: Mapping[str, Any]) -> HumanBoard | None:
  names = ('best', 'median', 'worst', 'source', 'faults')
  found = _part(where, record, 'board', names)
  if not found:
    return None
  best, median, worst = (
    task_yaml.number(where, f'board.{n}', found.get(n)) for n in names[:3]
  )
  faults = _names(where, 'board.faults', found.get('faults'))
  given = [score for score in (best, median, worst) if score is not None]
  higher = record['higher_is_better']
  if given != sorted(given, reverse=higher):
    raise ValueError(
      f'{where}: board: best, median and worst are {given}, which is no order '
      f'for {record["metric"]}.'
    )
  marks = report.sentinels(given)
  if marks and not faults:
    raise ValueError(
      f'{where}: board: {marks[0]:g} marks an entry without a score; say so in '
      'board.faults.'
    )
  source = _text(where, 'board.source', found.get('source'))
  return HumanBoard(best, median, worst, source=source, faults=faults)


def _check_grader(
  where: str, record: Mapping[str, Any], form: str, own: bool
) -> None:
  """Raises ValueError where columns, format or direction are not the grader's.

  own: the folder has a scripts/eval.py.
  """
  metric = record['metric']
  known = graders.names()
  if metric not in (*known, *graders.METRICS, graders.SPEED):
    raise ValueError(
      f'{where}: metric={metric!r} is unknown; choose one of '
      f'{", ".join([*graders.METRICS, graders.SPEED, *known])}.'
    )
  speed = (
    record['kind'] == 'speed',
    metric == graders.SPEED,
    form == PROGRAM,
  )
  if any(speed):
    return _check_program(where, record, all(speed), own)
  if own and metric in known:
    raise ValueError(
      f'{where}: metric={metric!r} has a grader, and scripts/eval.py is another; '
      f'remove it, or name a metric: {", ".join(graders.METRICS)}.'
    )
  id_column, targets = record.get('id'), record.get('targets')
  if own:
    if id_column not in (None, 'id') or form != 'csv':
      raise ValueError(
        f'{where}: scripts/eval.py is given a CSV file with a column id; without '
        f'that script {metric} is computed for any columns.'
      )
    return task_yaml.check_higher(where, record, graders.METRICS[metric])
  scope = graders.Scope(
    id_column=_text(where, 'id', id_column),
    targets=_names(where, 'targets', targets),
  )
  try:
    entry = graders.grader(metric, scope)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error
  task_yaml.check_higher(where, record, entry.higher_is_better)
  for key, given, true in (
    ('id', scope.id_column, entry.id_column),
    ('targets', scope.targets, entry.targets),
  ):
    if given and given != true and (true or key == 'id'):
      raise ValueError(
        f'{where}: {key}={given!r}, but the grader of {metric} reads {true!r}; '
        f'leave {key} out or write that.'
      )
  if form not in SEVERAL and (form in ARRAYS) is not entry.arrays:
    forms = [*(ARRAYS if entry.arrays else TABLES), *SEVERAL]
    raise ValueError(
      f'{where}: submission.format={form!r}, but {metric} grades '
      f'{" or ".join(forms)}.'
    )


def _check_program(
  where: str, record: Mapping[str, Any], whole: bool, own: bool
) -> None:
  """Raises ValueError where a task that hands over a program asks for more.

  whole: kind, metric and format say all three that it does.
  own: the folder has a scripts/eval.py.
  """
  if not whole:
    raise ValueError(
      f'{where}: a program is handed over where kind is speed, metric is '
      f'{graders.SPEED} and submission.format is {PROGRAM}; write all three or none.'
    )
  for key in ('id', 'targets'):
    if record.get(key):
      raise ValueError(
        f'{where}: {key}={record[key]!r}, but a program has no columns; leave it out.'
      )
  if own:
    raise ValueError(
      f'{where}: a program is measured beside the reference solution, and '
      'scripts/eval.py would be another grader; remove it.'
    )
  limits = record['limits']
  if isinstance(limits, dict) and limits.get('gpus'):
    raise ValueError(
      f'{where}: limits.gpus={limits["gpus"]!r}, but programs are measured on a CPU '
      'alone; set it to 0.'
    )
  task_yaml.check_higher(where, record, False)


def _details(
  where: str,
  record: Mapping[str, Any],
  submission: Mapping[str, Any],
  gpus: int,
) -> TaskDetails:
  data = _part(
    where,
    record,
    'data',
    ('licence', 'full_mb', 'standin_mb', 'leaks', 'packages'),
  )
  need = _part(
    where, record, 'environment', ('packages', 'image', 'interpreter')
  )
  return TaskDetails(
    source=_source(where, record),
    papers=_papers(where, record),
    id_column=_text(where, 'id', record.get('id')),
    targets=_names(where, 'targets', record.get('targets')),
    submission_format=submission['format'],
    submission_mb=submission['max_mb'],
    sample=submission['sample'],
    gpus=gpus,
    environment=TaskEnvironment(
      packages=_names(where, 'environment.packages', need.get('packages')),
      image=_text(where, 'environment.image', need.get('image')),
      interpreter=_text(
        where, 'environment.interpreter', need.get('interpreter')
      ),
    ),
    licence=_text(where, 'data.licence', data.get('licence')),
    full_mb=_size(where, 'data.full_mb', data.get('full_mb')),
    standin_mb=_size(where, 'data.standin_mb', data.get('standin_mb')),
    leaks=_text(where, 'data.leaks', data.get('leaks')),
    packages=_names(where, 'data.packages', data.get('packages')),
    variants=_variants(where, record),
    board=_board(where, record),
  )


def fields(
  path: pathlib.Path, record: Mapping[str, Any], own: bool
) -> dict[str, Any]:
  """Checks a mapping of version 2 and returns the fields of its TaskSpec.

  The scores are the stand-in's, as long as nothing else is prepared.

  Args:
    path: of the file, for messages.
    record: its mapping.
    own: the folder has a scripts/eval.py.

  Raises:
    ValueError: names the file, the key, the value and the choices.
  """
  where, choice = str(path), task_yaml.choice
  task_yaml.check_keys(
    where,
    record,
    REQUIRED_KEYS,
    REQUIRED_KEYS + OPTIONAL_KEYS,
    'write it, as docs/tasks.md says; version 2 has other keys than version 1.',
  )
  if not isinstance(record['metric'], str):
    raise ValueError(f'{where}: metric={record["metric"]!r} must be a name.')
  submission = _submission(where, record)
  _check_grader(where, record, submission['format'], own)
  limits, gpus = _limits(where, record['limits'])
  details = _details(where, record, submission, gpus)
  if details.is_program and not (path.parent / REFERENCE).is_file():
    raise ValueError(
      f'{where}: a program is measured beside {path.parent / REFERENCE}, which is '
      'missing; write a program there that is right and fast.'
    )
  scale = details.variants.get('standin', Scale())
  return {
    'modality': choice(
      where, 'modality', record['modality'], task_yaml.ALL_MODALITIES
    ),
    'kind': choice(where, 'kind', record['kind'], task_yaml.ALL_KINDS),
    'metric': record['metric'],
    'higher_is_better': record['higher_is_better'],
    'split': choice(where, 'split', record['split'], task_yaml.SPLITS),
    'limits': limits,
    'submission': submission['path'],
    'hides': task_yaml.hides(where, record.get('hides', [])),
    'exposed': str(record.get('exposed') or ''),
    'details': details,
    **scores(scale, 'standin'),
  }


def scores(scale: Scale, variant: str) -> dict[str, Any]:
  """Returns the fields of a TaskSpec that belong to a variant of its data."""
  return {
    'variant': variant,
    'm_init': scale.m_init,
    'm_best': scale.m_best,
    'm_best_private': scale.m_best_private,
    'm_best_source': scale.m_best_source,
    'agreement': scale.agreement,
  }
