"""Checkpoints: Orbax arrays, host state as JSON, committed last.

A checkpoint is a folder `step_00000012` with `arrays/` (Orbax), `host.json`,
`files/`, `manifest.json` (size and SHA-256 of every file) and, written last
and synced, `COMMIT` (the manifest's SHA-256). A folder without a matching
COMMIT, or with a file that differs from the manifest, is damaged: restoring
says so and goes to the one before.

A checkpoint that was saved with a score has it in `score.json`. Which one is the best
follows from these files alone, so that no kill can come between the two.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import logging
import math
import os
import pathlib
import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore

from jaxagent.files import disk

log = logging.getLogger(__name__)
_PREFIX = 'step_'
_SCORE = 'score.json'


class CheckpointError(RuntimeError):
  """A checkpoint could not be written or none could be read."""


@dataclasses.dataclass(frozen=True)
class Restored:
  """Content of a checkpoint; `skipped` names the damaged ones passed over."""

  step: int
  arrays: Any
  host: dict[str, Any]
  files: dict[str, bytes]
  skipped: tuple[str, ...] = ()

  def __iter__(self):
    return iter((self.step, self.arrays, self.host))


class CheckpointManager:
  """Saves and restores checkpoints of one directory.

  The last `keep` of them are kept, and the one with the best score.
  """

  def __init__(self, directory: str | os.PathLike, keep: int = 3):
    if keep < 1:
      raise ValueError(f'keep={keep} must be at least 1.')
    self.directory = pathlib.Path(directory).absolute()
    self.keep = keep
    self._orbax = ocp.Checkpointer(
      ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True)
    )

  def steps(self) -> list[int]:
    """Steps with a COMMIT file, oldest first (not yet verified)."""
    found = []
    for path in self.directory.glob(f'{_PREFIX}*'):
      if (path / 'COMMIT').exists():
        found.append(int(path.name.removeprefix(_PREFIX)))
    return sorted(found)

  def path(self, step: int) -> pathlib.Path:
    """The folder of one step."""
    return self.directory / f'{_PREFIX}{step:08d}'

  def save(
    self,
    step: int,
    arrays: Any,
    host: Mapping[str, Any] | str | None = None,
    files: Mapping[str, bytes | str] | None = None,
    score: float | None = None,
  ) -> pathlib.Path:
    """Writes one checkpoint; it counts only once all of it is on disk.

    arrays: pytree of jax or numpy arrays. host: JSON-able, or JSON. files: name ->
    content. score: finite, higher is better; None for a checkpoint that is not
    compared. In a multi-host run every process calls it; process 0 commits.
    """
    if pattern := disk.pattern_in(self.directory):
      raise CheckpointError(
        f'no checkpoint can be kept in {self.directory}: Orbax takes its {pattern!r} '
        'for a pattern. Choose a work directory without any of * ? [ \\ and gs:.'
      )
    temporary = self.directory / f'tmp_{step:08d}'
    final = self.path(step)
    if jax.process_index() == 0:
      for left in self.directory.glob('tmp_*'):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
      temporary.mkdir(parents=True)
    _barrier(f'checkpoint_begin_{step}')
    try:
      flat = _flatten(arrays)
      self._orbax.save(temporary / 'arrays', flat)
      if jax.process_index() == 0:
        # Orbax may return without a word from a save that nothing can read.
        _check_written(temporary / 'arrays', flat)
        _write_host(temporary, host or {}, files or {})
        if score is not None:
          (temporary / _SCORE).write_text(json.dumps({'score': float(score)}))
        _commit(temporary, final)
        self.remove_old()
    # TensorStore raises ValueError.
    except (OSError, ValueError, CheckpointError) as error:
      _let_go(error)
      if jax.process_index() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
      raise CheckpointError(
        f'checkpoint {final} could not be written: {_reason(error).rstrip(".")}. '
        'Free space or choose another work directory; the checkpoints before '
        'it are untouched.'
      ) from error
    _barrier(f'checkpoint_end_{step}')
    return final

  def restore_latest(
    self, abstract: Any, part: str | None = None
  ) -> Restored | None:
    """The newest undamaged checkpoint, or None where there is none at all.

    abstract, part: see `read`. Raises CheckpointError where there are checkpoints
    but all are damaged.
    """
    found = self.latest()
    if found is None:
      return None
    arrays = self.read(found.step, abstract, part)
    return dataclasses.replace(found, arrays=arrays)

  def latest(self) -> Restored | None:
    """The newest undamaged checkpoint without its arrays, None where there is none.

    Raises CheckpointError where there are checkpoints but all are damaged.
    """
    steps = sorted(self._all_steps(), reverse=True)
    return self._first_whole(steps, 'the one before')

  def scores(self) -> dict[int, float]:
    """Step -> score of the committed checkpoints that have one."""
    found = {step: _read_score(self.path(step)) for step in self.steps()}
    return {step: score for step, score in found.items() if score is not None}

  def best_step(self) -> int | None:
    """The step with the highest score, of equals the first; None without scores."""
    return next(iter(self._by_score()), None)

  def best(self) -> Restored | None:
    """The undamaged checkpoint with the highest score, without its arrays.

    Of equals the first. None where no checkpoint has a score. Raises
    CheckpointError where all that have one are damaged.
    """
    return self._first_whole(self._by_score(), 'the next best')

  def _by_score(self) -> list[int]:
    scores = self.scores()
    return sorted(scores, key=lambda step: (-scores[step], step))

  def _first_whole(self, steps: Sequence[int], other: str) -> Restored | None:
    skipped: list[str] = []
    for step in steps:
      path = self.path(step)
      problem = verify(path)
      if not problem:
        return Restored(step, None, *_read_host(path), tuple(skipped))
      log.warning(
        'checkpoint %s is damaged (%s); going back to %s.',
        path,
        problem,
        other,
      )
      skipped.append(f'{path.name}: {problem}')
    if skipped:
      raise CheckpointError(
        f'no checkpoint of {self.directory} can be read: '
        + '; '.join(skipped)
        + '. Move the directory away to start anew.'
      )
    return None

  def read(
    self,
    step: int,
    abstract: Any,
    part: str | None = None,
    before: Callable[[], None] = lambda: None,
  ) -> Any:
    """The arrays of a checkpoint that `latest` has found, each on its own places.

    abstract: pytree like the saved one whose leaves have shape, dtype and
    (for jax arrays) a sharding, which may be of another mesh. part: key of
    the saved mapping that alone is read, and that `abstract` is like. before: is
    called once the saved arrays are known to fit and none has been read.
    """
    path = self.path(step)
    try:
      return self._restore(path / 'arrays', abstract, part, before)
    except (OSError, ValueError, KeyError) as error:
      _let_go(error)
      raise CheckpointError(
        f'{path} cannot be read: {_reason(error)[:300]}.{_misplaced(path)}'
      ) from error

  def _restore(
    self, path: pathlib.Path, abstract: Any, part: Any, before: Any
  ) -> Any:
    flat = _flatten(abstract)
    saved = self._saved(path)
    options = {}
    if part is not None:
      flat, saved = _only(part, abstract, saved)
      options = {'item': flat, 'partial_restore': True}
    _check_tree(path, flat, saved)
    args = {key: _restore_args(leaf) for key, leaf in flat.items()}
    before()
    loaded = self._orbax.restore(
      path, args=ocp.args.PyTreeRestore(restore_args=args, **options)
    )
    treedef = jax.tree.structure(abstract)
    return jax.tree.unflatten(treedef, [loaded[key] for key in flat])

  def _saved(self, path: pathlib.Path) -> dict[str, Any]:
    """Orbax's metadata of each array; CheckpointError where there is none."""
    if '\\' in str(
      path
    ):  # TensorStore would look in another folder, many times
      raise CheckpointError(
        f'TensorStore takes a \\ for a /.{_misplaced(path)}'
      )
    metadata = self._orbax.metadata(path).item_metadata
    if metadata is None:
      raise CheckpointError(
        f'{path} has no array that Orbax can find; without its manifest.ocdbt it '
        f'was never whole.{_misplaced(path)}'
      )
    return dict(metadata.tree)

  def _all_steps(self) -> list[int]:
    names = (p.name for p in self.directory.glob(f'{_PREFIX}*'))
    return sorted(int(name.removeprefix(_PREFIX)) for name in names)

  def remove_old(self) -> None:
    """Removes all but the last `keep` checkpoints and the one with the best score."""
    best = self.best_step()
    for step in self.steps()[: -self.keep]:
      if step != best:
        shutil.rmtree(self.path(step), ignore_errors=True)


def _read_score(path: pathlib.Path) -> float | None:
  """Returns a checkpoint's score; None where it has none, or a damaged one."""
  try:
    score = float(json.loads((path / _SCORE).read_text())['score'])
  except (OSError, ValueError, LookupError, TypeError):
    return None
  return score if math.isfinite(score) else None


def _misplaced(path: pathlib.Path) -> str:
  """A remedy where Orbax may look elsewhere than at `path`."""
  pattern = disk.pattern_in(path)
  return f' Copy it to a path without {pattern!r}.' if pattern else ''


def _let_go(error: Exception) -> None:
  """Cancels what Orbax still awaits of a failed save, without its log lines.

  asyncio logs each of the hundreds of writes that are no longer awaited when
  it is garbage-collected: after the message that ends the run.
  """
  asyncio_log = logging.getLogger('asyncio')
  before, asyncio_log.disabled = asyncio_log.disabled, True
  try:
    traceback.clear_frames(error.__traceback__)
    gc.collect()
  finally:
    asyncio_log.disabled = before


def _reason(error: Exception) -> str:
  """Returns the system's reason: strerror, or the first line of the message."""
  said = getattr(error, 'strerror', None) or str(error) or type(error).__name__
  return said.splitlines()[0]


def verify(path: pathlib.Path) -> str:
  """'' where the checkpoint is whole, else what is wrong with it."""
  try:
    commit = (path / 'COMMIT').read_text().strip()
    manifest_text = (path / 'manifest.json').read_bytes()
  except OSError as error:
    return f'{pathlib.Path(error.filename).name} is missing'
  if hashlib.sha256(manifest_text).hexdigest() != commit:
    return 'manifest.json does not match COMMIT'
  for name, entry in json.loads(manifest_text).items():
    file = path / name
    if not file.exists():
      return f'{name} is missing'
    if file.stat().st_size != entry['bytes']:
      return f'{name} has {file.stat().st_size} bytes, not {entry["bytes"]}'
    if _digest(file) != entry['sha256']:
      return f'{name} has another checksum'
  return ''


def _flatten(tree: Any) -> dict[str, Any]:
  leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
  return {
    f'{i:05d}{_name(path)}': leaf for i, (path, leaf) in enumerate(leaves)
  }


def _only(part: str, abstract: Any, saved: dict) -> tuple[dict, dict]:
  """Wanted leaves under their saved keys, and what is saved of `part`."""
  keys = {key[5:]: key for key in saved if key[5:].startswith(f'.{part}.')}
  wanted = _flatten({part: abstract})
  return (
    {keys.get(key[5:], key): leaf for key, leaf in wanted.items()},
    {key: saved[key] for key in keys.values()},
  )


def _name(path: Any) -> str:
  text = jax.tree_util.keystr(path, simple=True, separator='.')
  return '.' + text.replace('/', '.')


def _restore_args(leaf: Any):
  sharding = getattr(leaf, 'sharding', None)
  if sharding is not None:
    return ocp.ArrayRestoreArgs(
      sharding=sharding, global_shape=leaf.shape, dtype=leaf.dtype
    )
  return ocp.RestoreArgs(restore_type=np.ndarray)


def _check_tree(path: Any, wanted: dict, saved: dict) -> None:
  missing = sorted(wanted.keys() - saved.keys())
  extra = sorted(saved.keys() - wanted.keys())
  shapes = [
    f'{key}: saved {tuple(saved[key].shape)}, wanted {tuple(leaf.shape)}'
    for key, leaf in wanted.items()
    if key in saved
    and tuple(saved[key].shape or ()) != tuple(np.shape(leaf) or ())
    and hasattr(leaf, 'shape')
  ]
  if missing or extra or shapes:
    raise CheckpointError(
      f'{path} holds another model or optimizer: missing {missing[:5]}, '
      f'unknown {extra[:5]}, other shapes {shapes[:5]}. Use the config that '
      'made it, or another work directory.'
    )


def _check_written(path: pathlib.Path, wanted: Mapping[str, Any]) -> None:
  """Raises CheckpointError where the store at `path` lacks an array's entry.

  By the store's keys: Orbax's own metadata takes twice as long as the write.
  """
  base = {'driver': 'file', 'path': f'{path}/'}
  store = tensorstore.KvStore.open({'driver': 'ocdbt', 'base': base}).result()
  keys = {key.decode() for key in store.list().result()}
  missing = [key for key in wanted if f'{key}/zarr.json' not in keys]
  if not keys or missing:
    raise CheckpointError(
      f'{path} has no array that Orbax can find of {missing[:5]}.{_misplaced(path)}'
    )


def _write_host(path: pathlib.Path, host: Any, files: Any) -> None:
  text = host if isinstance(host, str) else json.dumps(host, sort_keys=True)
  (path / 'host.json').write_text(text)
  (path / 'files').mkdir()
  for name, content in files.items():
    file = path / 'files' / name
    file.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    file.write_bytes(data)


def _read_host(path: pathlib.Path) -> tuple[dict, dict[str, bytes]]:
  host = json.loads((path / 'host.json').read_text())
  root = path / 'files'
  files = {
    str(f.relative_to(root)): f.read_bytes()
    for f in sorted(root.rglob('*'))
    if f.is_file()
  }
  return host, files


def _commit(temporary: pathlib.Path, final: pathlib.Path) -> None:
  manifest = {}
  for file in sorted(temporary.rglob('*')):
    if file.is_file():
      _sync(file)
      manifest[str(file.relative_to(temporary))] = {
        'bytes': file.stat().st_size,
        'sha256': _digest(file),
      }
  text = json.dumps(manifest, indent=1).encode()
  (temporary / 'manifest.json').write_bytes(text)
  _sync(temporary / 'manifest.json')
  # Before the folder has its name: one of that name is whole.
  (temporary / 'COMMIT').write_text(hashlib.sha256(text).hexdigest())
  _sync(temporary / 'COMMIT')
  _sync(temporary)
  if final.exists():  # the same step again, after a fallback
    shutil.rmtree(final)
  os.replace(temporary, final)
  _sync(final.parent)


def _sync(path: pathlib.Path) -> None:
  handle = os.open(path, os.O_RDONLY)
  try:
    os.fsync(handle)
  finally:
    os.close(handle)


def _digest(file: pathlib.Path) -> str:
  with open(file, 'rb') as handle:
    return hashlib.file_digest(handle, 'sha256').hexdigest()


def _barrier(name: str) -> None:
  if jax.process_count() > 1:
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)
