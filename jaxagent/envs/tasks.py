"""Task folders: read, checked, prepared.

A task is `tasks/<name>/` in MLAgentBench's layout (paper 002, section 2.1)
plus `task.yaml`. Its data is made by `scripts/prepare.py` in a subprocess and
kept by content, so the same scripts never prepare twice. Without `task.yaml` it
is one of MLAgentBench's own (`mlagentbench_tasks`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.envs import failures
from jaxagent.envs.specs import (
  divided,
  mlagentbench_tasks,
  task_data,
  task_sources,
  task_yaml,
  task_yaml2,
)
from jaxagent.envs.specs.task_data import STANDIN, DataSource
from jaxagent.envs.specs.task_yaml import (
  KINDS,
  MODALITIES,
  SPLITS,
  agreement,
  check_direction,
  choice,
  hides,
  limits,
  number,
  read_yaml,
)
from jaxagent.files import bundled
from jaxagent.sandbox import cpu_levels
from jaxagent.types import TaskSpec

REQUIRED_FILES = (
  'task.yaml',
  'env/train.py',
  'scripts/research_problem.txt',
  'scripts/prepare.py',
  'scripts/eval.py',
  'scripts/read_only_files.txt',
)
EVAL = 'scripts/eval.py'
PUBLIC_FILES = ('train.csv', 'test.csv', 'sample_submission.csv')
# Of prepare.py, in seconds: bundled data and stand-ins, and published data.
_PREPARE_TIMEOUT_S = 600.0
_PUBLISHED_TIMEOUT_S = 12 * 3600.0
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')


@dataclasses.dataclass(frozen=True)
class PreparedTask:
  """A task whose data is at hand.

  public_dir: the data that an agent may see.
  private_dir: holds `answers.csv` (id, label columns, split), or of one of
    MLAgentBench's folders whose rows are not divided its scripts; host only.
  starter_files: relative path -> text of the files under `env/`; the path of
    one that is no text, or too long for one.
  mounts: name in a workspace -> folder that it shows there, read-only.
  notes: sentences on what is odd about the data, though it can be used.
  """

  spec: TaskSpec
  public_dir: pathlib.Path
  private_dir: pathlib.Path
  starter_files: dict[str, str | pathlib.Path]
  mounts: Mapping[str, pathlib.Path]
  notes: tuple[str, ...] = ()


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
  version = _version(root / 'task.yaml')
  _check_files(name, root, version)
  read_only = _text(root / 'scripts/read_only_files.txt')
  if version == 1:
    given = _fields(root / 'task.yaml')
  else:
    path = root / 'task.yaml'
    has_eval = (root / EVAL).exists()
    given = task_yaml2.fields(path, task_yaml.mapping(path), has_eval)
  problem = _text(root / 'scripts/research_problem.txt')
  spec = TaskSpec(
    name=name,
    root=root,
    read_only_files=tuple(
      line.strip() for line in read_only.splitlines() if line.strip()
    ),
    **given,
  )
  return task_data.with_problem(spec, problem)


def has_eval(spec: TaskSpec) -> bool:
  """Whether a task has a scripts/eval.py that grades both halves.

  That of one of MLAgentBench's folders knows none: where its rows are divided,
  `graders` grade them.
  """
  return not is_divided(spec) and (spec.root / EVAL).exists()


def is_divided(spec: TaskSpec) -> bool:
  """Whether it is one of MLAgentBench's folders, its hidden rows in two halves."""
  return spec.layout == mlagentbench_tasks.LAYOUT and spec.details is not None


def _version(path: pathlib.Path) -> int:
  """Returns the version of a `task.yaml`; 1 where it cannot be read."""
  try:
    record = task_yaml.mapping(path)
  except (ValueError, OSError):
    return 1  # the checks of version 1 say what is wrong
  return task_yaml.version_of(str(path), record)


def _check_files(name: str, root: pathlib.Path, version: int) -> None:
  """Raises ValueError for a file that a task folder lacks."""
  needed = [f for f in REQUIRED_FILES if version == 1 or f != EVAL]
  for relative in needed:
    path = root / relative
    if not path.is_file():
      raise ValueError(
        f'task {name}: {path} is missing; a task folder needs '
        f'{", ".join(needed)}.'
      )
    if not path.read_bytes().strip() and not relative.endswith('files.txt'):
      raise ValueError(f'task {name}: {path} is empty.')
    if relative == 'task.yaml':
      task_yaml.mapping(
        path
      )  # else it would be one of version 1, with an eval.py


def _text(path: pathlib.Path) -> str:
  try:
    return path.read_text('utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(f'{path} is no UTF-8 text: {error}.') from error


def _fields(path: pathlib.Path) -> dict[str, Any]:
  """Returns what a `task.yaml` of version 1 says, as fields of a TaskSpec."""
  where, record = str(path), read_yaml(path)
  check_direction(where, record)
  submission = record.get('submission') or TaskSpec.submission
  if not isinstance(submission, str):
    raise ValueError(
      f'{where}: submission={submission!r} must be the path of a file; a mapping '
      'belongs to version: 2.'
    )
  return {
    'modality': choice(where, 'modality', record['modality'], MODALITIES),
    'kind': choice(where, 'kind', record['kind'], KINDS),
    'metric': record['metric'],
    'higher_is_better': record['higher_is_better'],
    'm_init': number(where, 'm_init', record['m_init']),
    'm_best': number(where, 'm_best', record['m_best']),
    'm_best_source': str(record['m_best_source'] or ''),
    'split': choice(where, 'split', record['split'], SPLITS),
    'limits': limits(where, record['limits']),
    'submission': submission,
    'm_best_private': number(
      where, 'm_best_private', record.get('m_best_private')
    ),
    'agreement': agreement(where, record),
    'hides': hides(where, record.get('hides', [])),
    'exposed': str(record.get('exposed') or ''),
  }


def default_folder() -> pathlib.Path:
  """Returns `tasks` of the working directory, else the bundled one."""
  here = pathlib.Path('tasks')
  return here if here.is_dir() else bundled.folder('tasks')


def task_names(tasks_dir: pathlib.Path | str) -> list[str]:
  """Folders of `tasks_dir`, sorted; hidden and underscored ones left out."""
  tasks_dir = pathlib.Path(tasks_dir)
  if not tasks_dir.is_dir():
    raise ValueError(
      f'tasks_dir={str(tasks_dir)!r} is not a folder; run from the root of '
      'a checkout or give --tasks_dir.'
    )
  return sorted(
    path.name
    for path in tasks_dir.iterdir()
    if path.is_dir() and not path.name.startswith(('.', '_'))
  )


def list_tasks(
  tasks_dir: pathlib.Path | str = pathlib.Path('tasks'),
  *,
  version: int | None = None,
) -> list[TaskSpec]:
  """Every task of the folder, checked, sorted by name.

  version: those whose `task.yaml` has it alone. Tasks of version 2 are the
    catalogue, which a run takes from by name.

  Of folders in MLAgentBench's own layout those that can be used: its repository
  has tasks without a score. Naming such a task raises an error with the reason.
  """
  specs = []
  for name in task_names(tasks_dir):
    path = pathlib.Path(tasks_dir) / name / 'task.yaml'
    if version is not None and _version(path) != version:
      continue
    try:
      specs.append(load_task(name, tasks_dir))
    except ValueError:
      if path.exists():
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
  """Hashes what prepared data depends on: scripts/prepare.py and scikit-learn.

  With the modules that prepare.py imports of `jaxagent.tasks`, and in version 2
  with the source.
  """
  import importlib.metadata

  digest = hashlib.sha256()
  for path in task_sources.files_behind(spec.root / 'scripts/prepare.py'):
    digest.update(path.read_bytes())
  digest.update(importlib.metadata.version('scikit-learn').encode())
  if spec.details is not None:
    source = dataclasses.asdict(spec.details.source)
    digest.update(json.dumps(source, sort_keys=True).encode())
  return digest.hexdigest()[:16]


def _run_prepare(
  spec: TaskSpec,
  script: pathlib.Path,
  cwd: pathlib.Path,
  args: Sequence[str],
  timeout_s: float = _PREPARE_TIMEOUT_S,
) -> None:
  try:
    done = subprocess.run(
      [sys.executable, str(script.resolve()), *args],
      capture_output=True,
      stdin=subprocess.DEVNULL,
      text=True,
      errors='replace',
      timeout=timeout_s,
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
      f'task {spec.name}: prepare.py ran longer than {timeout_s} s.'
    ) from error
  if done.returncode != 0:
    # As one would call it anywhere: this folder will be gone.
    command = shlex.join(['python', str(script), *args]).replace(f'{cwd}/', '')
    raise ValueError(
      f'task {spec.name}: prepare.py failed with exit status {done.returncode}: '
      f'{failures.last_words(done.stderr) or "it printed no error"}; '
      f'`{command}` shows all of it.'
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


def prepare_task(
  spec: TaskSpec,
  data_dir: pathlib.Path | str,
  source: DataSource = STANDIN,
) -> PreparedTask:
  """Makes the data of a task, or reuses what the same scripts made before.

  Args:
    spec: a task of `load_task`.
    data_dir: cache; this task uses `data_dir/<name>/<content hash>/`.
    source: variant of the data of a task of version 2, whose scores the
      prepared task has; any other has one variant.

  Raises:
    ValueError: prepare.py failed or left a file out, or what it is to read is
      missing or broken.
    OSError: no space or no permission; nothing half-made is left in place.
  """
  home = pathlib.Path(data_dir).resolve() / spec.name
  if spec.layout == mlagentbench_tasks.LAYOUT:
    return _prepare_mlagentbench(spec, home)
  if spec.details is not None:
    return _prepare_variant(spec, home, source)

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


def _prepare_variant(
  spec: TaskSpec, home: pathlib.Path, source: DataSource
) -> PreparedTask:
  """Prepares one variant of a task of version 2."""
  source = task_data.source_for(spec, source)
  given = task_data.located(spec, source)
  own = has_eval(spec)
  check = _check_prepared if own else task_data.check_prepared
  key = f'{content_hash(spec)}-{source.variant}'
  command, timeout_s = ['--standin'], _PREPARE_TIMEOUT_S
  if given is not None:
    key += f'-{task_data.listing_hash(_listed(spec, source, given))[:16]}'
    command, timeout_s = (
      [f'--{source.variant}', str(given)],
      _PUBLISHED_TIMEOUT_S,
    )
  leaks = source.leaks(spec)
  if leaks:
    key += '-as-published'
    command.append(task_data.AS_PUBLISHED)

  def make(scratch: pathlib.Path) -> None:
    task_data.check_space(spec, source, scratch)
    notes = task_data.wrong_checksums(given) if given is not None else []
    folders = [
      *('--public', str(scratch / 'public')),
      *('--private', str(scratch / 'private')),
    ]
    script = spec.root / 'scripts/prepare.py'
    try:
      _run_prepare(spec, script, scratch, [*folders, *command], timeout_s)
    except ValueError as error:
      if given is None:
        raise
      raise ValueError(
        f'{error} Where a file of {given} is cut off, or is of another version, '
        'download it again.'
      ) from error
    check(spec, scratch)
    (scratch / task_data.NOTES_FILE).write_text(json.dumps(notes))

  final = _made_once(home, key, make)
  # What was odd may have been mended by a file of the same name and size.
  odd = list(task_data.notes_of(final))
  if odd and given is not None and task_data.wrong_checksums(given) != odd:
    shutil.rmtree(final)
    final = _made_once(home, key, make)
  if not own:
    task_data.check_written(spec, final)
  scale = task_data.scale_of(spec, source.variant, final)
  found = task_yaml2.scores(scale, source.variant)
  if (
    source.variant == 'packages'
  ):  # an installed copy would show the same files
    inside = (p for p in task_data.details_of(spec).packages if '/' in p)
    found['hides'] = (*spec.hides, *inside)
  if leaks:
    told = f'the data is as published: {leaks}'
    found['exposed'] = f'{spec.exposed}; {told}' if spec.exposed else told
  return PreparedTask(
    spec=dataclasses.replace(spec, **found),
    public_dir=final / 'public',
    private_dir=final / 'private',
    starter_files={**starter_files(spec.root)},
    mounts={'data': final / 'public'},
    notes=task_data.notes_of(final),
  )


def _listed(
  spec: TaskSpec, source: DataSource, given: pathlib.Path
) -> pathlib.Path:
  """Returns the folder whose listing names prepared data: of packages the one used."""
  if source.variant != 'packages':
    return given
  return given / task_data.details_of(spec).packages[0]


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
  private = root / 'scripts'
  if is_divided(spec):
    private = (
      _made_once(
        home,
        divided.key_of(spec, root),
        lambda scratch: divided.divide(spec, root, scratch),
      )
      / 'private'
    )
  shown = mlagentbench_tasks.workspace_of(root / 'env')
  fixed = (*spec.read_only_files, *shown.folders)
  return PreparedTask(
    spec=dataclasses.replace(spec, read_only_files=fixed),
    public_dir=root / 'env',
    private_dir=private,
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
