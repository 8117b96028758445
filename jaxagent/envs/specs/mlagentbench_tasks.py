"""Task folders as MLAgentBench's repository has them (paper 002, section 2.1).

They hold no `task.yaml`: `env/` is the workspace, data and all; `scripts/` has
`research_problem.txt`, `eval.py` with `get_score(submission_folder)`, and often
`prepare.py`, `read_only_files.txt` and the answers. What a folder does not tell
stands in `NAME.yaml` beside it, with the keys of `task.yaml`, none required.

One test set is all there is, so the score that an agent sees is the one that it
is judged by; where `NAME.yaml` names the answers, their rows are divided (`divided`),
and the task can be trained on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from jaxagent.envs import workspace
from jaxagent.envs.specs import divided, task_yaml
from jaxagent.sandbox.checks import MAX_FILE_MB
from jaxagent.types import Limits, TaskSpec

LAYOUT = 'mlagentbench'
REQUIRED_FILES = (
  'env/train.py',
  'scripts/research_problem.txt',
  'scripts/eval.py',
)
# Metric and whether higher is better, by folder (paper 002, table 2, and the
# score that each `eval.py` returns).
PUBLISHED: Mapping[str, tuple[str, bool]] = {
  'amp-parkinsons-disease-progression-prediction': ('smape', False),
  'cifar10': ('accuracy', True),
  'fathomnet': ('map@20', True),
  'feedback': ('mcrmse', False),
  'house-price': ('mae', False),
  'identify-contrails': ('dice', True),
  'imdb': ('accuracy', True),
  'ogbn-arxiv': ('accuracy', True),
  'spaceship-titanic': ('accuracy', True),
  'vectorization': ('seconds', False),
}
# Of a starter that gives no score: what it is compared with (002, appendix A).
BASELINES: Mapping[str, float] = {'imdb': 0.5}
# A script of the benchmark may take all of a run's time (002: 5 hours) and print
# what it likes: of progress bars, too, the head and tail alone are kept.
_LIMITS = Limits(
  timeout_s=5 * 3600.0, memory_mb=8192, disk_mb=4096, output_kb=1 << 20
)


def is_one(root: pathlib.Path) -> bool:
  """Whether a folder has this layout; `load` reports what it lacks."""
  return (
    not (root / 'task.yaml').exists()
    and (root / 'env').is_dir()
    and (root / 'scripts' / 'eval.py').is_file()
  )


def load(name: str, root: pathlib.Path) -> TaskSpec:
  """Reads one folder. Raises ValueError naming what is missing or wrong."""
  for relative in REQUIRED_FILES:
    path = root / relative
    if not path.is_file() or not path.read_bytes().strip():
      raise ValueError(
        f'task {name}: {path} is missing or empty; a folder without task.yaml '
        f'needs {", ".join(REQUIRED_FILES)}.'
      )
  if 'get_score' not in _text(root / 'scripts/eval.py'):
    raise ValueError(
      f'task {name}: {root}/scripts/eval.py has no get_score(submission_folder).'
    )
  beside = root.parent / f'{name}.yaml'
  record = _record(name, beside)
  where = str(beside)
  details = divided.details_of(where, root, record)
  choice, number = task_yaml.choice, task_yaml.number
  return TaskSpec(
    name=name,
    root=root,
    layout=LAYOUT,
    modality=choice(
      where, 'modality', record['modality'], ('', *task_yaml.ALL_MODALITIES)
    ),
    kind=choice(where, 'kind', record['kind'], ('', *task_yaml.ALL_KINDS)),
    metric=record['metric'],
    higher_is_better=record['higher_is_better'],
    m_init=number(where, 'm_init', record['m_init']),
    m_best=number(where, 'm_best', record['m_best']),
    m_best_source=str(record['m_best_source'] or ''),
    m_best_private=number(
      where,
      'm_best_private',
      record['m_best_private' if details else 'm_best'],
    ),
    details=details,
    split=choice(where, 'split', record['split'], task_yaml.SPLITS),
    limits=task_yaml.limits(where, record['limits'], _LIMITS),
    research_problem=_text(root / 'scripts/research_problem.txt').strip(),
    read_only_files=_read_only(root),
    submission=str(record['submission'] or TaskSpec.submission),
    hides=task_yaml.hides(where, record['hides']),
    exposed=str(record['exposed'] or ''),
  )


def _record(name: str, beside: pathlib.Path) -> dict[str, Any]:
  """Returns the task's record: the file beside the folder over known values."""
  given = {}
  if beside.is_file():
    given = task_yaml.read_yaml(beside, (), divided.KEYS)
  metric, higher = PUBLISHED.get(name, ('score', None))
  record = {
    'modality': '',
    'kind': '',
    'metric': metric,
    'higher_is_better': higher,
    'split': 'heldout',
    'm_init': BASELINES.get(name),
    'm_best': None,
    'm_best_private': None,
    'm_best_source': '',
    'limits': {},
    'submission': '',
    'hides': [],
    'exposed': '',
    **given,
  }
  if not isinstance(record['higher_is_better'], bool):
    raise ValueError(
      f'task {name}: task.yaml is missing, and whether a higher score is better '
      f'is not known ({record["higher_is_better"]!r}); write higher_is_better: '
      f"true or false into {beside} for one of MLAgentBench's own, else a "
      'task.yaml.'
    )
  for key in ('submission', 'id', 'sample'):
    if record.get(key) and not isinstance(record[key], str):
      raise ValueError(f'{beside}: {key}={record[key]!r} must be text.')
  if not isinstance(record['metric'], str) or not record['metric'].strip():
    raise ValueError(f'{beside}: metric={record["metric"]!r} must be a name.')
  if record['metric'] in task_yaml.METRICS and not record.get('answers'):
    task_yaml.check_direction(str(beside), record)
  task_yaml.check_scale(str(beside), record)
  return record


def _text(path: pathlib.Path) -> str:
  try:
    return path.read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(f'{path} is not UTF-8 text: {error}.') from error


def _read_only(root: pathlib.Path) -> tuple[str, ...]:
  path = root / 'scripts/read_only_files.txt'
  if not path.is_file():
    return ()
  return tuple(
    line.strip() for line in _text(path).splitlines() if line.strip()
  )


def is_prepared(root: pathlib.Path) -> bool:
  """Whether its data is there, as MLAgentBench itself would ask."""
  scripts = root / 'scripts'
  return (
    not (scripts / 'prepare.py').is_file() or (scripts / 'prepared').is_file()
  )


def content_hash(root: pathlib.Path) -> str:
  """Returns the hash of all that a copy holds."""
  digest = hashlib.sha256()
  for path in sorted(root.rglob('*')):
    if path.is_file():
      digest.update(f'{path.relative_to(root)}\0'.encode())
      digest.update(path.read_bytes())
  return digest.hexdigest()[:16]


def copy_to(root: pathlib.Path, target: pathlib.Path) -> None:
  """`env` and `scripts`, for `prepare.py` to write beside."""
  for name in ('env', 'scripts'):
    shutil.copytree(root / name, target / name, symlinks=True)


@dataclasses.dataclass(frozen=True)
class Workspace:
  """Content of `env/` by the way in which it is shown.

  texts: relative path -> what an action may read and change.
  others: relative path -> file that a run gets as it is.
  folders: name -> folder that is shown read-only, for it is data.
  """

  texts: dict[str, str]
  others: dict[str, pathlib.Path]
  folders: dict[str, pathlib.Path]


def workspace_of(env: pathlib.Path) -> Workspace:
  """A folder that holds but short texts is code; any other is data, as `data` is.

  Raises ValueError for a file that no run could be given, and for an empty folder.
  """
  texts: dict[str, str] = {}
  others: dict[str, pathlib.Path] = {}
  folders: dict[str, pathlib.Path] = {}
  for path in sorted(env.iterdir()):
    if path.name == '__pycache__' or path.name.startswith('.'):
      continue
    if path.is_dir() and path.name == 'data':
      folders[path.name] = path
    elif path.is_dir():
      found = dict(_texts(path, env))
      inside = {name: text for name, text in found.items() if text is not None}
      if len(inside) < len(found) or len(found) > workspace.MAX_FILES // 2:
        folders[path.name] = path
      else:
        _check_not_empty(path)
        texts |= inside
    elif (text := _as_text(path)) is None:
      others[path.name] = _small_enough(path)
    else:
      texts[path.name] = text
  return Workspace(texts, others, folders)


def _small_enough(path: pathlib.Path) -> pathlib.Path:
  size = path.stat().st_size
  if size > MAX_FILE_MB << 20:
    raise ValueError(
      f'{path} has {size} bytes, and each run gets a copy of it, of at most '
      f'{MAX_FILE_MB} MB: put it into a folder of env/, which is shown where '
      'it is.'
    )
  return path


def _check_not_empty(folder: pathlib.Path) -> None:
  """A workspace is files: a folder without any would not be there in a run."""
  for path in (folder, *sorted(folder.rglob('*'))):
    if path.name == '__pycache__' or path.name.startswith('.'):
      continue
    if path.is_dir() and not any(path.iterdir()):
      raise ValueError(
        f'{path} is an empty folder, which no run would have: remove it, or put a '
        'file into it (an empty .gitkeep will do).'
      )


def _texts(
  folder: pathlib.Path, env: pathlib.Path
) -> Iterator[tuple[str, str | None]]:
  for path in sorted(folder.rglob('*')):
    if path.is_file() and '__pycache__' not in path.parts:
      yield path.relative_to(env).as_posix(), _as_text(path)


def _as_text(path: pathlib.Path) -> str | None:
  """Returns a file's text; None if no action could hold it."""
  if path.stat().st_size > workspace.MAX_FILE_BYTES:
    return None
  return workspace.as_text(path.read_bytes())
