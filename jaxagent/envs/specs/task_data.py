"""Data of tasks of version 2: variants, where they come from, what is wrong with it.

A variant is made by code (`standin`), of files of a package (`packages`), from what mle-bench prepared (`mlebench`) or
from the original files (`raw`). What is missing or broken is known before
`scripts/prepare.py` runs, and ends in one sentence that says what to do; a wrong
checksum is a note.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import yaml

from jaxagent import graders
from jaxagent.envs.specs import task_yaml, task_yaml2
from jaxagent.graders import folders
from jaxagent.graders.loaded import Loaded
from jaxagent.types import Scale, TaskDetails, TaskSpec

AS_PUBLISHED = '--as_published'  # of scripts/prepare.py and `jaxagent.tasks`
SCALE_FILE = 'scale.json'
NOTES_FILE = 'notes.json'
# Of a program, in `private`: arrays with a row for each hidden round.
INPUTS = 'inputs.npz'
_HALF = ('.part', '.partial', '.crdownload', '.download', '.incomplete')
_LFS_POINTER = b'version https://git-lfs'
_POINTER_BYTES = 1024  # more than any pointer has
_SAMPLE = re.compile(r'sample_?submission\w*\.(csv|jsonl|npy|npz|zip|py)', re.I)


@dataclasses.dataclass(frozen=True)
class DataSource:
  """Variant of a task's data, and the folder that it is made from.

  folder: mle-bench's data folder, or one with the original files of each task; a
    task's own folder is looked for in it by name. Of `packages` what `pip install
    --target` wrote. None for `standin`.
  as_published: what gives answers away stays in the data (`TaskDetails.leaks`), and
    rewards are marked as untrusted. Stand-ins have no such thing.
  """

  variant: str = 'standin'
  folder: pathlib.Path | None = None
  as_published: bool = False

  def __post_init__(self):
    task_yaml.choice('data', 'variant', self.variant, task_yaml2.VARIANTS)
    if (self.folder is None) is not (self.variant == 'standin'):
      raise ValueError(
        f'the data variant {self.variant!r} '
        + ('has no folder.' if self.folder else 'needs a folder: give DIR.')
      )
    if self.as_published and self.variant in ('standin', 'packages'):
      raise ValueError(
        'as_published keeps what published data gives away; a stand-in gives nothing '
        'away. Give the published data, or leave it out.'
      )

  def leaks(self, spec: TaskSpec) -> str:
    """Returns what stays in a task's data that gives its answers away, or ''."""
    return details_of(spec).leaks if self.as_published else ''


STANDIN = DataSource()


def source_for(spec: TaskSpec, source: DataSource) -> DataSource:
  """Returns a task's own source: the plain stand-in where it has no other.

  So it is of a program, whose inputs are made by code, and of a task that takes no
  package's files.
  """
  details = details_of(spec)
  if details.is_program or (
    source.variant == 'packages' and not details.packages
  ):
    return STANDIN
  return source


def details_of(spec: TaskSpec) -> TaskDetails:
  """Returns a task's details. Raises ValueError for one of version 1."""
  if spec.details is None:
    raise ValueError(
      f'task {spec.name}: its task.yaml has version 1, and its data one variant.'
    )
  return spec.details


def located(spec: TaskSpec, source: DataSource) -> pathlib.Path | None:
  """Finds the folder of a task's data; None for a stand-in.

  Raises:
    ValueError: there is none, it is empty or a download is not whole.
  """
  if source.folder is None:
    return None
  root = source.folder.expanduser().resolve()
  if source.variant == 'packages':
    if not root.is_dir():
      raise ValueError(
        f'task {spec.name}: {root} is no folder; give that of `pip install --no-deps '
        '--target DIR`, or take the stand-in (--standin).'
      )
    return root
  origin = details_of(spec).source
  if source.variant == 'mlebench' and origin.kind != 'mlebench':
    raise ValueError(
      f'task {spec.name}: mle-bench does not prepare it; give the original files (--raw '
      'DIR), take the stand-in (--standin), or leave it out.'
    )
  places = [root / name for name in (origin.id, spec.name)]
  found = next((p for p in places if p.is_dir()), None)
  if found is None and _is_own(root, source.variant):
    found = root
  if found is None or not any(found.iterdir()):
    raise ValueError(
      f'task {spec.name}: no data of {origin.id!r} in {root}; '
      f'{_remedy(spec, source.variant)}, or take the stand-in (--standin).'
    )
  _check_whole(spec, found)
  return found


def _is_own(root: pathlib.Path, variant: str) -> bool:
  """Whether a folder is that of one task, and not one of many."""
  if not root.is_dir():
    return False
  if variant == 'mlebench':
    return any((root / p / 'public').is_dir() for p in ('', 'prepared'))
  return any(path.is_file() for path in root.iterdir())


def _remedy(spec: TaskSpec, variant: str) -> str:
  origin = details_of(spec).source
  if variant == 'mlebench':
    return f'run `mlebench prepare -c {origin.id}` and give its data folder'
  rules = f', accept its rules ({origin.rules})' if origin.rules else ''
  place = f' from {origin.url}' if origin.url else ''
  return f'download it{place}{rules} into DIR/{origin.id}'


def _near(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Files of a folder, its folders and theirs, sorted."""
  for depth in ('*', '*/*', '*/*/*'):
    yield from sorted(p for p in folder.glob(depth) if p.is_file())


def _check_whole(spec: TaskSpec, folder: pathlib.Path) -> None:
  """Raises ValueError for half a download or a pointer in place of a file."""
  for path in _near(folder):
    size = path.stat().st_size
    half = path.suffix.lower() in _HALF
    if path.suffix.lower() == '.zip' and not half:
      half = not zipfile.is_zipfile(path)
    if half:
      raise ValueError(
        f'task {spec.name}: {path} ({size} bytes) is half a download; remove it '
        'and download it again.'
      )
    if size < _POINTER_BYTES and is_pointer(path):
      raise ValueError(
        f'task {spec.name}: {path} is a Git-LFS pointer, not the file; run '
        '`git lfs pull` in that checkout.'
      )


def is_pointer(path: pathlib.Path) -> bool:
  """Whether Git LFS has left a pointer in place of a file."""
  with path.open('rb') as file:
    return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def wrong_checksums(folder: pathlib.Path) -> list[str]:
  """Compares files with the checksums that lie beside them, if any do.

  Reads SHA256SUMS and MD5SUMS (hex, blanks, name) and mle-bench's checksums.yaml
  (MD5 by file, below public and private). Returns a sentence for each difference.
  """
  notes = []
  try:
    listed = list(_checksums(folder))
  except (yaml.YAMLError, RecursionError) as error:
    words = ' '.join(str(error).split())
    return [f'{folder}: checksums.yaml cannot be read, nor compared: {words}.']
  for name, method, wanted in listed:
    path = folder / name
    if not path.is_file():
      notes.append(f'{path} is missing, which has a checksum.')
      continue
    with path.open('rb') as file:
      digest = hashlib.file_digest(file, method).hexdigest()
    if digest != wanted.lower():
      notes.append(
        f'{path} has the {method} {digest}, expected {wanted}: another version, '
        'or a broken download; scores may not compare with published ones.'
      )
  return notes


def _checksums(folder: pathlib.Path) -> Iterator[tuple[str, str, str]]:
  """(relative path, hash, hexadecimal digits) of each known checksum."""
  for listing, method in (('SHA256SUMS', 'sha256'), ('MD5SUMS', 'md5')):
    path = folder / listing
    if path.is_file():
      for line in path.read_text('utf-8', 'replace').splitlines():
        digest, _, name = line.strip().partition(' ')
        if name.strip():
          yield name.strip().removeprefix('*'), method, digest
  for home in (folder, folder / 'prepared'):
    path = home / 'checksums.yaml'
    if path.is_file():
      prefix = home.relative_to(folder)
      text = path.read_text('utf-8', 'replace')
      # Every value as text: a digest may look like a number.
      found = yaml.load(text, yaml.BaseLoader)
      for name, digest in _leaves(found if isinstance(found, dict) else {}):
        yield str(prefix / name), 'md5', digest


def _leaves(
  found: Mapping[str, Any], at: str = ''
) -> Iterator[tuple[str, str]]:
  for name, value in found.items():
    if isinstance(value, dict):
      yield from _leaves(value, f'{at}{name}/')
    elif isinstance(value, str) and name != 'zip':
      yield f'{at}{name}', value


def listing_hash(folder: pathlib.Path) -> str:
  """Hashes names and sizes of all files below a folder, not what they hold."""
  digest = hashlib.sha256()
  for home, below, files in os.walk(folder):
    below.sort()
    for name in sorted(files):
      path = pathlib.Path(home, name)
      inside = path.relative_to(folder)
      digest.update(f'{inside}\0{path.stat().st_size}\0'.encode())
  return digest.hexdigest()


def check_space(
  spec: TaskSpec, source: DataSource, data_dir: pathlib.Path
) -> None:
  """Raises ValueError where a disk has no room for the data of a variant."""
  details = details_of(spec)
  is_standin = source.variant in ('standin', 'packages')
  need = details.standin_mb if is_standin else details.full_mb
  free = shutil.disk_usage(data_dir).free / 1e6
  if need > free:
    raise ValueError(
      f'task {spec.name}: its data takes {need:,.0f} MB, and {data_dir} has '
      f'{free:,.0f} MB free; give another folder'
      + ('.' if is_standin else ', or take the stand-in (--standin).')
    )


def with_problem(spec: TaskSpec, text: str) -> TaskSpec:
  """Returns a task with this problem text, and what several files are to be."""
  details, text = spec.details, text.strip()
  if details is not None and details.submission_format in task_yaml2.SEVERAL:
    what = (
      'one array in each NAME.npy'
      if is_arrays(spec)
      else 'parts of one table, all .csv or all .jsonl, with the same columns each'
    )
    kind = 'folder' if details.is_folder else '.zip'
    text += (
      f'\n\n`{spec.submission}` is a {kind} of files beside each other: {what}.'
    )
  return dataclasses.replace(spec, research_problem=text)


def brought_out(spec: TaskSpec) -> dict[str, Any]:
  """Returns the fields of a `types.Job` that bring out a task's submission."""
  fields: dict[str, Any] = {'collect': (spec.submission,)}
  if spec.details is not None:
    fields['collect_mb'] = math.ceil(spec.details.submission_mb * 1e6 / 2**20)
    if spec.details.is_folder:
      fields['folders'] = (spec.submission,)
  return fields


def is_arrays(spec: TaskSpec) -> bool:
  """Whether a task's submissions and answers are arrays; else they are tables."""
  details = spec.details
  if details is None:
    return False
  if details.submission_format not in task_yaml2.SEVERAL:
    return details.submission_format not in task_yaml2.TABLES
  return graders.grader(spec.metric, scope_of(details)).arrays


def scope_of(details: TaskDetails) -> graders.Scope:
  """Returns the columns that a task names to its grader."""
  return graders.Scope(id_column=details.id_column, targets=details.targets)


def answers_file(spec: TaskSpec, private: pathlib.Path) -> pathlib.Path:
  """Returns the path of the answers: a table, or arrays."""
  return private / ('answers.npz' if is_arrays(spec) else 'answers.csv')


def sample_file(spec: TaskSpec, public: pathlib.Path) -> pathlib.Path | None:
  """Finds the sample submission, by its name in `task.yaml` or the usual one.

  Where several files are handed over, the sample is one of them, or a `.zip`.
  """
  details = details_of(spec)
  if details.sample:
    path = public / details.sample
    return path if path.is_file() else None
  endings = [details.submission_format]
  if details.submission_format in task_yaml2.SEVERAL:
    arrays = is_arrays(spec)
    endings = [*(task_yaml2.ARRAYS if arrays else task_yaml2.TABLES), 'zip']
  for path in _near(public):
    if _SAMPLE.fullmatch(path.name) and path.suffix[1:] in endings:
      return path
  return None


def sample_bytes(spec: TaskSpec, path: pathlib.Path) -> bytes:
  """Returns a sample submission as a script would hand it over. Raises OSError."""
  data = path.read_bytes()
  if details_of(spec).submission_format in task_yaml2.SEVERAL:
    return folders.packed(path.name, data)
  return data


def check_prepared(spec: TaskSpec, target: pathlib.Path) -> None:
  """Reads what prepare.py wrote: a sample, and answers in two halves.

  Raises:
    ValueError: one of them is missing or not of the form that the grader reads.
  """
  check_written(spec, target)
  read_answers(spec, target / 'private')
  if details_of(spec).is_program:
    _check_rounds(spec, target / 'private')


def _check_rounds(spec: TaskSpec, private: pathlib.Path) -> None:
  """Raises ValueError where a program's inputs and answers do not belong together."""
  with np.load(private / INPUTS) as given:
    inputs = {name: len(given[name]) for name in given.files}
  with np.load(private / 'answers.npz') as given:
    answers = {
      name: len(given[name]) if name in given.files else -1
      for name in ('output', 'tolerance', 'split')
    }
  if len({*inputs.values(), *answers.values()}) != 1 or not inputs:
    raise ValueError(
      f'task {spec.name}: private/{INPUTS} and private/answers.npz have rounds '
      f'{inputs} and {answers}; each array must have a row a round.'
    )


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
  """Writes arrays as a `.npz` file, the same bytes for the same arrays."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, 'w') as archive:
    for name, array in arrays.items():
      member = io.BytesIO()
      np.lib.format.write_array(
        member, np.asanyarray(array), allow_pickle=False
      )
      archive.writestr(zipfile.ZipInfo(f'{name}.npy'), member.getvalue())
  return out.getvalue()


def read_answers(spec: TaskSpec, private: pathlib.Path) -> Loaded:
  """Reads a task's answers, in two halves, with its grader.

  Raises:
    ValueError: they are not of the form that the grader reads.
  """
  path, details = answers_file(spec, private), details_of(spec)
  try:
    answers = graders.load(spec.metric, path, scope=scope_of(details))
    for half in ('valid', 'private'):
      answers.rows(half)
  except ValueError as error:
    raise ValueError(
      f'task {spec.name}: private/{path.name}: {error}'
    ) from error
  if not answers.entry.arrays:
    _check_answer_columns(spec, path.name, answers)
  return answers


def _check_answer_columns(spec: TaskSpec, name: str, answers: Loaded) -> None:
  column, known = answers.entry.id_column, set(answers.truth.columns)
  if column and column not in known:
    raise ValueError(
      f'task {spec.name}: private/{name} has no column {column!r}, the ids '
      f'of {spec.metric}.'
    )
  # Metrics of any columns, and those of columns of the answers alone, read all of them.
  own = spec.metric in graders.METRICS
  needed = answers.targets if own else answers.entry.truth
  if missing := [n for n in needed if n not in known]:
    raise ValueError(
      f'task {spec.name}: private/{name} has no column of {", ".join(missing[:5])}, '
      f'which {spec.metric} compares.'
    )
  # Of the largest of several columns the answers name it, as `label`.
  if not known & {*answers.targets, *answers.entry.truth, 'label'}:
    raise ValueError(
      f'task {spec.name}: private/{name} has no column of '
      f'{", ".join(answers.targets[:5])}, which {spec.metric} compares.'
    )


def check_written(spec: TaskSpec, target: pathlib.Path) -> None:
  """Raises ValueError where prepare.py left out the answers or the sample."""
  path = answers_file(spec, target / 'private')
  details = details_of(spec)
  wanted = [path, path.with_name(INPUTS)] if details.is_program else [path]
  missing = [f'private/{p.name}' for p in wanted if not p.is_file()]
  if sample_file(spec, target / 'public') is None:
    form = details.submission_format
    if form in task_yaml2.SEVERAL:
      form = 'npy' if is_arrays(spec) else 'csv'
    missing.append(f'public/{details.sample or f"sample_submission.{form}"}')
  if missing:
    raise ValueError(
      f'task {spec.name}: prepare.py wrote no {" and no ".join(missing)}.'
    )


def notes_of(folder: pathlib.Path) -> tuple[str, ...]:
  """Returns what was odd about a variant's data. Raises ValueError for a damaged file.

  folder: that of the prepared variant.
  """
  path = folder / NOTES_FILE
  try:
    found = json.loads(path.read_text('utf-8'))
  except (ValueError, FileNotFoundError):
    found = None
  if not isinstance(found, list):
    raise ValueError(f'{path} is damaged; remove {folder} and prepare again.')
  return tuple(map(str, found))


def write_scale(folder: pathlib.Path, scale: Scale) -> None:
  """Keeps the scores of a variant beside its data, whole or not at all.

  folder: that of the prepared variant, which holds `public` and `private`.
  """
  partial = folder / f'{SCALE_FILE}.partial'
  partial.write_text(json.dumps(dataclasses.asdict(scale)) + '\n')
  partial.replace(folder / SCALE_FILE)


def scale_of(spec: TaskSpec, variant: str, folder: pathlib.Path) -> Scale:
  """Returns the scores of a variant: measured beside its data, else the folder's.

  Raises ValueError for a damaged file.
  """
  path = folder / SCALE_FILE
  if not path.is_file():
    return details_of(spec).variants.get(variant, Scale())
  record = {'metric': spec.metric, 'higher_is_better': spec.higher_is_better}
  try:
    given = json.loads(path.read_text('utf-8'))
    if not isinstance(given, dict):
      raise TypeError('it holds no JSON object')
    return task_yaml2.read_scale(str(path), given, record)
  except (json.JSONDecodeError, TypeError, UnicodeDecodeError) as error:
    raise ValueError(
      f'{path} is damaged ({error}); remove it and measure the task again.'
    ) from error
