"""Task folders: read, checked, prepared.

A task is `tasks/<name>/` in MLAgentBench's layout (paper 002, section 2.1)
plus `task.yaml`. Its data is made by `scripts/prepare.py` in a subprocess and
kept by content, so the same scripts never prepare twice. Without `task.yaml` it
is one of MLAgentBench's own (`mlagentbench_tasks`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from jaxagent.envs import failures, mlagentbench_tasks
from jaxagent.envs.task_yaml import (
  KINDS,
  MODALITIES,
  SPLITS,
  check_direction,
  choice,
  hides,
  limits,
  number,
  read_yaml,
)
from jaxagent.sandbox import cpu_levels
from jaxagent.types import TaskSpec

# The checkout's, from which the package is installed.
BUNDLED = pathlib.Path(__file__).parents[2] / 'tasks'
REQUIRED_FILES = (
  'task.yaml',
  'env/train.py',
  'scripts/research_problem.txt',
  'scripts/prepare.py',
  'scripts/eval.py',
  'scripts/read_only_files.txt',
)
PUBLIC_FILES = ('train.csv', 'test.csv', 'sample_submission.csv')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')
_PREPARE_TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True)
class PreparedTask:
  """A task whose data is at hand.

  public_dir: the data that an agent may see.
  private_dir: holds `answers.csv` (id, label columns, split); host only.
  starter_files: relative path -> text of the files under `env/`; the path of
    one that is no text, or too long for one.
  mounts: name in a workspace -> folder that it shows there, read-only.
  """

  spec: TaskSpec
  public_dir: pathlib.Path
  private_dir: pathlib.Path
  starter_files: dict[str, str | pathlib.Path]
  mounts: Mapping[str, pathlib.Path]


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
  if mlagentbench_tasks.is_one(root):
    return mlagentbench_tasks.load(name, root)
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
  check_direction(where, record)
  read_only = (root / 'scripts/read_only_files.txt').read_text('utf-8')
  return TaskSpec(
    name=name,
    root=root,
    modality=choice(where, 'modality', record['modality'], MODALITIES),
    kind=choice(where, 'kind', record['kind'], KINDS),
    metric=record['metric'],
    higher_is_better=record['higher_is_better'],
    m_init=number(where, 'm_init', record['m_init']),
    m_best=number(where, 'm_best', record['m_best']),
    m_best_source=str(record['m_best_source'] or ''),
    split=choice(where, 'split', record['split'], SPLITS),
    limits=limits(where, record['limits']),
    research_problem=(root / 'scripts/research_problem.txt')
    .read_text('utf-8')
    .strip(),
    read_only_files=tuple(
      line.strip() for line in read_only.splitlines() if line.strip()
    ),
    submission=str(record.get('submission') or TaskSpec.submission),
    m_best_private=number(
      where, 'm_best_private', record.get('m_best_private')
    ),
    hides=hides(where, record.get('hides', [])),
    exposed=str(record.get('exposed') or ''),
  )


def default_folder() -> pathlib.Path:
  """Returns `tasks` of the working directory, else that of the checkout."""
  here = pathlib.Path('tasks')
  return here if here.is_dir() else BUNDLED


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
  """Every task of the folder, checked, sorted by name.

  Of folders in MLAgentBench's own layout those that can be used: its repository
  has tasks without a score. Naming such a task raises an error with the reason.
  """
  specs = []
  for name in task_names(tasks_dir):
    try:
      specs.append(load_task(name, tasks_dir))
    except ValueError:
      if (pathlib.Path(tasks_dir) / name / 'task.yaml').exists():
        raise
  return specs


def starter_files(root: pathlib.Path) -> dict[str, str]:
  """Relative path -> text of every file under `env/`."""
  env = root / 'env'
  files = {}
  for path in sorted(env.rglob('*')):
    if not path.is_file() or path.suffix == '.pyc':
      continue
    try:
      files[str(path.relative_to(env))] = path.read_text(encoding='utf-8')
    except UnicodeDecodeError as error:
      raise ValueError(
        f'{path} is no UTF-8 text ({error}); data of a task is written by its '
        'scripts/prepare.py.'
      ) from error
  return files


def content_hash(spec: TaskSpec) -> str:
  """Hashes what prepared data depends on: prepare.py and scikit-learn."""
  import importlib.metadata

  digest = hashlib.sha256()
  digest.update((spec.root / 'scripts/prepare.py').read_bytes())
  digest.update(importlib.metadata.version('scikit-learn').encode())
  return digest.hexdigest()[:16]


def _run_prepare(
  spec: TaskSpec, script: pathlib.Path, cwd: pathlib.Path, args: Sequence[str]
) -> None:
  try:
    done = subprocess.run(
      [sys.executable, str(script.resolve()), *args],
      capture_output=True,
      stdin=subprocess.DEVNULL,
      text=True,
      timeout=_PREPARE_TIMEOUT_S,
      cwd=cwd,
      env={
        **os.environ,
        'OMP_NUM_THREADS': '1',
        'PYTHONHASHSEED': '0',
        **cpu_levels.here(),
      },
    )
  except subprocess.TimeoutExpired as error:
    raise ValueError(
      f'task {spec.name}: prepare.py ran longer than {_PREPARE_TIMEOUT_S} s.'
    ) from error
  if done.returncode != 0:
    raise ValueError(
      f'task {spec.name}: prepare.py failed with exit status {done.returncode}: '
      f'{failures.last_words(done.stderr) or "it printed no error"}; '
      f'`python {script}` shows all of it.'
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
  if spec.layout == mlagentbench_tasks.LAYOUT:
    return _prepare_mlagentbench(spec, home)

  def make(scratch: pathlib.Path) -> None:
    _run_prepare(
      spec,
      spec.root / 'scripts/prepare.py',
      scratch,
      [
        *('--public', str(scratch / 'public')),
        *('--private', str(scratch / 'private')),
      ],
    )
    _check_prepared(spec, scratch)

  final = _made_once(home, content_hash(spec), make)
  _check_prepared(spec, final)
  return PreparedTask(
    spec=spec,
    public_dir=final / 'public',
    private_dir=final / 'private',
    starter_files={**starter_files(spec.root)},
    mounts={'data': final / 'public'},
  )


def _prepare_mlagentbench(spec: TaskSpec, home: pathlib.Path) -> PreparedTask:
  """Prepares a task as MLAgentBench does, but in a copy of its folder."""

  def make(scratch: pathlib.Path) -> None:
    mlagentbench_tasks.copy_to(spec.root, scratch)
    scripts = scratch / 'scripts'
    try:
      _run_prepare(spec, scripts / 'prepare.py', scripts, ())
    except ValueError as error:
      raise ValueError(
        f"{error} Where it asks or downloads, let MLAgentBench's own "
        f'`python -m MLAgentBench.prepare_task {spec.name}` make the data; it '
        'leaves scripts/prepared, and then the folder is used as it is.'
      ) from error

  if mlagentbench_tasks.is_prepared(spec.root):
    root = spec.root.resolve()
  else:
    root = _made_once(home, mlagentbench_tasks.content_hash(spec.root), make)
  shown = mlagentbench_tasks.workspace_of(root / 'env')
  fixed = (*spec.read_only_files, *shown.folders)
  return PreparedTask(
    spec=dataclasses.replace(spec, read_only_files=fixed),
    public_dir=root / 'env',
    private_dir=root / 'scripts',
    starter_files={**shown.texts, **shown.others},
    mounts=shown.folders,
  )


def _made_once(home: pathlib.Path, name: str, make) -> pathlib.Path:
  """`home/name`, made by `make(folder)` unless it is there, whole or not at all."""
  final = home / name
  if not (final / 'done').is_file():
    home.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix='.making-', dir=home))
    try:
      make(scratch)
      (scratch / 'done').write_text('ok\n')
      os.chmod(scratch, 0o755)
      _move_into_place(scratch, final)
    finally:
      shutil.rmtree(scratch, ignore_errors=True)
  return final


def _move_into_place(scratch: pathlib.Path, final: pathlib.Path) -> None:
  """Renames atomically; the second of two callers keeps the first one's."""
  if final.exists() and not (final / 'done').is_file():
    shutil.rmtree(final)  # left by an older, interrupted layout
  try:
    os.rename(scratch, final)
  except OSError:
    if not (final / 'done').is_file():
      raise
