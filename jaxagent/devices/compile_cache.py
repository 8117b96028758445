"""JAX's persistent compilation cache: compiled programs kept for the next start.

JAX's key of a program holds the program itself (donated arguments and shardings
included), the compiler's options, XLA_FLAGS, the versions of jaxlib and of an
accelerator's platform, and the kind of device. For a CPU it leaves out which
instructions the processor has and how many cores the process may use, though the
machine code depends on both: so each such machine has a folder of its own. By name alone
it knows custom calls, which lie in jaxlib (its version is in the key) or in a plug-in.
Programs that call back into Python are never kept.

The entries are kept by `Entries` and not by JAX's own class, which writes in place: what
a killed process or a full disk leaves half is read for ever, never replaced, and ends its
eviction (jax 0.10).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import platform
import threading
import time
from collections.abc import Iterator

import jax
import jaxlib
from jax._src import compilation_cache  # has the one place to put `Entries`

log = logging.getLogger(__name__)

AUTO, OFF = 'auto', 'off'
# A whole quickstart has some 30 MB of programs.
MOST_BYTES = 1 << 30
_ENDING, _WRITING = '.program', '.writing'
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
_ABANDONED_S = 3600.0  # nobody writes one entry for as long
_SETTINGS = (
  'jax_compilation_cache_dir',
  'jax_persistent_cache_min_compile_time_secs',
  'jax_persistent_cache_min_entry_size_bytes',
  'jax_persistent_cache_enable_xla_caches',
)


@contextlib.contextmanager
def using(setting: str) -> Iterator[pathlib.Path | None]:
  """While it is entered, compiled programs are kept; yields their folder, or None.

  setting: 'auto' is `jaxagent/compiled` in the user's cache folder, for a run of one
    process; a folder is for any run, and shared by all processes of one; 'off' is none.

  None as well where the environment's JAX_COMPILATION_CACHE_DIR or
  JAX_ENABLE_COMPILATION_CACHE decides, and, with a warning, where the folder cannot be
  written. Never raises. Enter it before anything is compiled.
  """
  folder = _folder(setting)
  if folder is None:
    yield None
    return
  before = {name: getattr(jax.config, name) for name in _SETTINGS}
  made, entries = compilation_cache.get_file_cache, Entries(folder)
  # Every program, however small: a run has hundreds that take 20 ms each.
  for name, value in zip(_SETTINGS, (str(folder), 0.0, -1, 'none')):
    jax.config.update(name, value)
  compilation_cache.reset_cache()
  compilation_cache.get_file_cache = lambda path: (entries, path)
  try:
    yield folder
  finally:
    compilation_cache.get_file_cache = made
    for name, value in before.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()


def _folder(setting: str) -> pathlib.Path | None:
  """Returns the folder of this machine, made and private; None for no cache."""
  if setting == OFF or 'JAX_COMPILATION_CACHE_DIR' in os.environ:
    return None
  if not getattr(jax.config, 'jax_enable_compilation_cache'):  # noqa: B009
    return None
  if setting == AUTO and jax.process_count() > 1:
    # Where some find a program and others do not, those that compile it wait for
    # ever for what the first would tell them (sharded autotuning on GPUs).
    return None
  try:
    base = _user_folder() if setting == AUTO else pathlib.Path(setting)
    folder = base.absolute() / machine()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    probe = folder / f'{os.getpid()}{_WRITING}'
    probe.write_bytes(b'')
    probe.unlink()
    # What lies there is run: nobody else may write it.
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
      raise PermissionError('others own it or may write there')
  except (OSError, RuntimeError) as error:
    log.warning(
      'compiled programs are not kept for the next start: %s; give '
      '--config.compile_cache=FOLDER, or off.',
      error,
    )
    return None
  return folder


def _user_folder() -> pathlib.Path:
  """Returns the folder of 'auto'; raises RuntimeError where there is no home."""
  given = os.environ.get('XDG_CACHE_HOME', '')
  # A relative one is to be ignored, by XDG's specification.
  cache = pathlib.Path(given)
  if not cache.is_absolute():
    cache = pathlib.Path.home() / '.cache'
  return cache / 'jaxagent' / 'compiled'


def machine() -> str:
  """Returns a name of what JAX's key leaves out: versions, processor, usable cores."""
  parts = [platform.machine(), platform.system(), *_processor()]
  # XLA splits loops for so many threads when it compiles for a CPU.
  cores = getattr(os, 'sched_getaffinity', lambda process: ())
  parts.append(str(len(cores(0)) or os.cpu_count()))
  parts += [os.environ.get('NPROC', ''), os.environ.get('PJRT_NPROC', '')]
  digest = _DIGEST('\n'.join(parts).encode()).hexdigest()[:12]
  return f'jax{jax.__version__}-jaxlib{jaxlib.__version__}-{digest}'


def _processor() -> list[str]:
  """Returns the first processor's model and features, as Linux writes them."""
  wanted = ('vendor_id', 'cpu family', 'model', 'stepping', 'flags')
  arm = ('CPU implementer', 'CPU part', 'CPU variant', 'Features')
  found = []
  try:
    text = pathlib.Path('/proc/cpuinfo').read_text()
  except OSError:
    return [platform.processor()]
  for line in text.partition('\n\n')[0].splitlines():
    name, _, value = line.partition(':')
    if name.strip().startswith(wanted + arm):
      found.append(f'{name.strip()}:{" ".join(sorted(value.split()))}')
  return found


class Entries(compilation_cache.CacheInterface):
  """Entries of one folder, each with its SHA-256 before it, and never half written.

  Any number of processes use it at once. All folders beside this one together hold at
  most `most_bytes`: what was used longest ago goes first.
  """

  def __init__(self, folder: pathlib.Path, most_bytes: int = MOST_BYTES):
    self._path, self._most = folder, most_bytes  # `_path`: read by JAX

  def get(self, key: str) -> bytes | None:
    """Returns an entry; None where it is not there, or damaged, which removes it."""
    file = self._file(key)
    try:
      content = file.read_bytes()
      digest, value = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
      if _DIGEST(value).digest() == digest:
        os.utime(file)
        return value
      log.warning('%s is damaged; the program is compiled again.', file)
      file.unlink()
    except OSError:
      pass
    return None

  def put(self, key: str, value: bytes) -> None:
    """Keeps an entry if there is room for it; a full disk is no error."""
    if len(value) + _DIGEST_BYTES > self._most:
      return
    file = self._file(key)
    own = f'{os.getpid()}-{threading.get_ident()}'
    part = file.with_name(f'{file.stem[-64:]}-{own}{_WRITING}')
    try:
      self._make_room(len(value) + _DIGEST_BYTES)
      part.write_bytes(_DIGEST(value).digest() + value)
      os.replace(part, file)
    except OSError as error:
      log.info('%s is not kept: %s', file, error)
      with contextlib.suppress(OSError):
        part.unlink()

  def _file(self, key: str) -> pathlib.Path:
    return self._path / f'{_short(key)}{_ENDING}'

  def _make_room(self, wanted: int) -> None:
    """Removes what was used longest ago, and what killed processes left."""
    used, total, now = [], 0, time.time()
    for file in self._path.parent.glob(f'*/*{_ENDING}'):
      with contextlib.suppress(OSError):  # another process removed it
        status = file.stat()
        used.append((status.st_mtime, status.st_size, file))
        total += status.st_size
    for file in self._path.parent.glob(f'*/*{_WRITING}'):
      with contextlib.suppress(OSError):
        if now - file.stat().st_mtime > _ABANDONED_S:
          file.unlink()
    for _, size, file in sorted(used):
      if total + wanted <= self._most:
        return
      with contextlib.suppress(OSError):
        file.unlink()
        total -= size


def _short(key: str) -> str:
  """Returns a key as a file's name: a program's name may be longer than one can be."""
  return key if len(key) <= 128 else f'{key[:60]}-{key[-64:]}'
