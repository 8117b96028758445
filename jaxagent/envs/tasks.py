"""Task folders: read, checked, prepared.

A task is `tasks/<name>/` in MLAgentBench's layout (paper 002, section 2.1)
plus `task.yaml`. Its data is made by `scripts/prepare.py` in a subprocess and
kept by content, so the same scripts never prepare twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import yaml

from jaxagent.types import Limits, TaskSpec

MODALITIES = ('image', 'tabular', 'text', 'timeseries')
KINDS = ('classification', 'regression', 'restoration')
SPLITS = ('heldin', 'heldout')
# Metric -> whether a higher value is better. task.yaml must agree.
METRICS: Mapping[str, bool] = {
  'accuracy': True,
  'f1_macro': True,
  'roc_auc': True,
  'log_loss': False,
  'rmse': False,
  'mae': False,
}
REQUIRED_FILES = (
  'task.yaml',
  'env/train.py',
  'scripts/research_problem.txt',
  'scripts/prepare.py',
  'scripts/eval.py',
  'scripts/read_only_files.txt',
)
REQUIRED_KEYS = (
  'modality',
  'kind',
  'metric',
  'higher_is_better',
  'split',
  'm_init',
  'm_best',
  'm_best_source',
  'limits',
)
OPTIONAL_KEYS = (
  'm_init_private',
  'm_best_private',
  'submission',
  'hides',
  'exposed',
)
PUBLIC_FILES = ('train.csv', 'test.csv', 'sample_submission.csv')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')
_PREPARE_TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True)
class PreparedTask:
  """A task whose data is at hand.

  public_dir: what a workspace sees as `data/` (read-only).
  private_dir: holds `answers.csv` (id, label columns, split); host only.
  starter_files: relative path -> text of the files under `env/`.
  """

  spec: TaskSpec
  public_dir: pathlib.Path
  private_dir: pathlib.Path
  starter_files: dict[str, str]


def _choice(where: str, key: str, value: Any, choices) -> Any:
  if value not in choices:
    raise ValueError(
      f'{where}: {key}={value!r} is unknown; choose one of '
      f'{", ".join(map(str, choices))}.'
    )
  return value


def _number(where: str, key: str, value: Any) -> float | None:
  """A finite number or None (not measured yet)."""
  if value is None:
    return None
  if isinstance(value, bool) or not isinstance(value, (int, float)):
    raise ValueError(f'{where}: {key}={value!r} must be a number or null.')
  if not math.isfinite(value):
    raise ValueError(f'{where}: {key}={value!r} must be finite.')
  return float(value)


def _limits(where: str, value: Any) -> Limits:
  if not isinstance(value, dict):
    raise ValueError(f'{where}: limits={value!r} must be a mapping.')
  known = {field.name: field.type for field in dataclasses.fields(Limits)}
  for key, number in value.items():
    _choice(where, 'limits key', key, tuple(known))
    if isinstance(number, bool) or not isinstance(number, (int, float)):
      raise ValueError(f'{where}: limits.{key}={number!r} must be a number.')
  try:
    return Limits(**value)
  except ValueError as error:
    raise ValueError(f'{where}: {error}') from error


def _hides(where: str, value: Any) -> tuple[str, ...]:
  """Folders below a folder of packages, such as 'sklearn/datasets/data'."""
  if not isinstance(value, list):
    raise ValueError(f'{where}: hides={value!r} must be a list of folders.')
  for path in value:
    parts = path.split('/') if isinstance(path, str) else ['']
    if len(parts) < 2 or any(p in ('', '.', '..') for p in parts):
      raise ValueError(
        f'{where}: hides={path!r} must be a folder inside a package, such as '
        'sklearn/datasets/data.'
      )
  return tuple(value)


def read_yaml(path: pathlib.Path) -> dict[str, Any]:
  """`task.yaml` with every key checked. Raises ValueError naming the file."""
  try:
    record = yaml.safe_load(path.read_text(encoding='utf-8'))
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    raise ValueError(f'{path}: not readable as YAML: {error}') from error
  if not isinstance(record, dict):
    raise ValueError(f'{path}: must be a mapping with {REQUIRED_KEYS}.')
  missing = [key for key in REQUIRED_KEYS if key not in record]
  if missing:
    raise ValueError(
      f'{path}: missing {", ".join(missing)}; '
      '`python -m jaxagent.tasks new NAME` writes a filled template.'
    )
  for key in record:
    _choice(str(path), 'key', key, REQUIRED_KEYS + OPTIONAL_KEYS)
  return record


def _check_direction(where: str, record: Mapping[str, Any]) -> None:
  """The three places that tell the direction must agree."""
  metric, higher = record['metric'], record['higher_is_better']
  _choice(where, 'metric', metric, tuple(METRICS))
  if higher is not METRICS[metric]:
    raise ValueError(
      f'{where}: higher_is_better={higher!r}, but {metric} is better when '
      f'{"higher" if METRICS[metric] else "lower"}; write '
      f'higher_is_better: {str(METRICS[metric]).lower()}.'
    )
  for suffix in ('', '_private'):
    names = f'm_init{suffix}', f'm_best{suffix}'
    init, best = (_number(where, n, record.get(n)) for n in names)
    if init is None or best is None or init == best:
      continue
    if (best > init) is not higher:
      raise ValueError(
        f'{where}: {names[1]}={best} is worse than {names[0]}={init} for '
        f'{metric}; measure both again with `python -m jaxagent.tasks measure`.'
      )


def load_task(
  name: str, tasks_dir: pathlib.Path | str = pathlib.Path('tasks')
) -> TaskSpec:
  """Reads and checks one task folder.

  Raises:
    ValueError: unknown name, missing file, wrong key or value. The message
      names the file, the value and the choices.
  """
  tasks_dir = pathlib.Path(tasks_dir)
  root = tasks_dir / name
  if not _NAME.fullmatch(name) or not root.is_dir():
    known = ', '.join(task_names(tasks_dir)) or 'none'
    raise ValueError(
      f'task {name!r} is not in {tasks_dir}; choose one of: {known}.'
    )
  for relative in REQUIRED_FILES:
    path = root / relative
    if not path.is_file():
      raise ValueError(
        f'task {name}: {path} is missing; a task folder needs '
        f'{", ".join(REQUIRED_FILES)}.'
      )
    if not path.read_bytes().strip() and not relative.endswith('files.txt'):
      raise ValueError(f'task {name}: {path} is empty.')
  where = str(root / 'task.yaml')
  record = read_yaml(root / 'task.yaml')
  _check_direction(where, record)
  read_only = (root / 'scripts/read_only_files.txt').read_text('utf-8')
  return TaskSpec(
    name=name,
    root=root,
    modality=_choice(where, 'modality', record['modality'], MODALITIES),
    kind=_choice(where, 'kind', record['kind'], KINDS),
    metric=record['metric'],
    higher_is_better=record['higher_is_better'],
    m_init=_number(where, 'm_init', record['m_init']),
    m_best=_number(where, 'm_best', record['m_best']),
    m_best_source=str(record['m_best_source'] or ''),
    split=_choice(where, 'split', record['split'], SPLITS),
    limits=_limits(where, record['limits']),
    research_problem=(root / 'scripts/research_problem.txt')
    .read_text('utf-8')
    .strip(),
    read_only_files=tuple(
      line.strip() for line in read_only.splitlines() if line.strip()
    ),
    submission=str(record.get('submission', 'submission.csv')),
    m_best_private=_number(
      where, 'm_best_private', record.get('m_best_private')
    ),
    hides=_hides(where, record.get('hides', [])),
    exposed=str(record.get('exposed') or ''),
  )


def task_names(tasks_dir: pathlib.Path | str) -> list[str]:
  """Folders of `tasks_dir`, sorted; hidden and underscored ones left out."""
  tasks_dir = pathlib.Path(tasks_dir)
  if not tasks_dir.is_dir():
    raise ValueError(
      f'tasks_dir={str(tasks_dir)!r} is not a folder; run from the root of '
      'the repository or give --tasks_dir.'
    )
  return sorted(
    path.name
    for path in tasks_dir.iterdir()
    if path.is_dir() and not path.name.startswith(('.', '_'))
  )


def list_tasks(
  tasks_dir: pathlib.Path | str = pathlib.Path('tasks'),
) -> list[TaskSpec]:
  """Every task of the folder, checked, sorted by name."""
  return [load_task(name, tasks_dir) for name in task_names(tasks_dir)]


def starter_files(root: pathlib.Path) -> dict[str, str]:
  """Relative path -> text of every file under `env/`."""
  env = root / 'env'
  return {
    str(path.relative_to(env)): path.read_text(encoding='utf-8')
    for path in sorted(env.rglob('*'))
    if path.is_file() and path.suffix != '.pyc'
  }


def content_hash(spec: TaskSpec) -> str:
  """What the prepared data depends on: prepare.py and scikit-learn's data."""
  import importlib.metadata

  digest = hashlib.sha256()
  digest.update((spec.root / 'scripts/prepare.py').read_bytes())
  digest.update(importlib.metadata.version('scikit-learn').encode())
  return digest.hexdigest()[:16]


def _run_prepare(spec: TaskSpec, target: pathlib.Path) -> None:
  command = [
    sys.executable,
    str((spec.root / 'scripts/prepare.py').resolve()),
    '--public',
    str(target / 'public'),
    '--private',
    str(target / 'private'),
  ]
  try:
    done = subprocess.run(
      command,
      capture_output=True,
      text=True,
      timeout=_PREPARE_TIMEOUT_S,
      cwd=target,
      env={**os.environ, 'OMP_NUM_THREADS': '1'},
    )
  except subprocess.TimeoutExpired as error:
    raise ValueError(
      f'task {spec.name}: prepare.py ran longer than {_PREPARE_TIMEOUT_S} s.'
    ) from error
  if done.returncode != 0:
    raise ValueError(
      f'task {spec.name}: prepare.py failed with exit status '
      f'{done.returncode}:\n{done.stderr[-2000:]}'
    )


def _check_prepared(spec: TaskSpec, target: pathlib.Path) -> None:
  wanted = [target / 'public' / name for name in PUBLIC_FILES]
  wanted.append(target / 'private' / 'answers.csv')
  for path in wanted:
    if not path.is_file() or path.stat().st_size == 0:
      raise ValueError(
        f'task {spec.name}: prepare.py wrote no {path.parent.name}/'
        f'{path.name}; it must write {", ".join(PUBLIC_FILES)} under --public '
        'and answers.csv under --private.'
      )


def prepare_task(spec: TaskSpec, data_dir: pathlib.Path | str) -> PreparedTask:
  """Makes the data of a task, or reuses what the same scripts made before.

  Args:
    spec: a task of `load_task`.
    data_dir: cache; this task uses `data_dir/<name>/<content hash>/`.

  Raises:
    ValueError: prepare.py failed or left a file out.
    OSError: no space or no permission; nothing half-made is left in place.
  """
  home = pathlib.Path(data_dir).resolve() / spec.name
  final = home / content_hash(spec)
  if not (final / 'done').is_file():
    home.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix='.making-', dir=home))
    try:
      _run_prepare(spec, scratch)
      _check_prepared(spec, scratch)
      (scratch / 'done').write_text('ok\n')
      os.chmod(scratch, 0o755)
      _move_into_place(scratch, final)
    finally:
      shutil.rmtree(scratch, ignore_errors=True)
  _check_prepared(spec, final)
  return PreparedTask(
    spec=spec,
    public_dir=final / 'public',
    private_dir=final / 'private',
    starter_files=starter_files(spec.root),
  )


def _move_into_place(scratch: pathlib.Path, final: pathlib.Path) -> None:
  """Renames atomically; whoever comes second keeps the first one's data."""
  if final.exists() and not (final / 'done').is_file():
    shutil.rmtree(final)  # left by an older, interrupted layout
  try:
    os.rename(scratch, final)
  except OSError:
    if not (final / 'done').is_file():
      raise
