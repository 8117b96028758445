"""Makes a fork of the zygote into what an interpreter is that has just begun.

Modules remember the process that imported them: its working folder, its
folder for temporary files, the name of its machine, its command line. In a job
each is that of the job. Standard library only.
"""

from __future__ import annotations

import io
import itertools
import os
import signal
import site
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.sandbox import _linux, _zygote


def prepare() -> None:
  """Forgets in the zygote itself what is no job's, whichever it is."""
  _linux.layout()
  ours = tuple(sys.path)
  for path in [p for p in sys.path_importer_cache if not p.startswith(ours)]:
    del sys.path_importer_cache[path]
  # The host's name, not the room's.
  _set('platform', _uname_cache=None, _platform_cache={})
  _set('uuid', _node=None, _last_timestamp=None)
  _set('linecache', cache={})
  for name in [n for n in sys.modules if n.partition('.')[0] == 'jaxagent']:
    del sys.modules[name]


def begin(command: Sequence[str], env: Mapping[str, str]) -> None:
  """Forgets the zygote. Called once its frames are gone.

  command: what a job that starts anew is started by. env: its environment.
  """
  os.environ.clear()
  os.environ.update(env)
  for name, value in _zygote.SET.items():
    os.environ.setdefault(name, value)
  _linux.show_as(command, env)
  sys.orig_argv[:] = command
  # As an interpreter does when it starts.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_IGN)
  for fd, name in enumerate(('stdin', 'stdout', 'stderr')):
    stream = _standard(fd, name)
    setattr(sys, name, stream)
    setattr(sys, f'__{name}__', stream)
  _forget_folders()
  _forget_process()
  _reseed()


def _standard(fd: int, name: str) -> io.TextIOWrapper:
  """Opens a stream as `python -u` does (create_stdio of pylifecycle.c)."""
  reading, before = fd == 0, getattr(sys, f'__{name}__')
  buffer: Any = open(
    fd, 'rb' if reading else 'wb', -1 if reading else 0, closefd=False
  )
  (buffer.raw if reading else buffer).name = f'<{name}>'
  stream: Any = io.TextIOWrapper(
    buffer,
    encoding=before.encoding,
    errors=before.errors,
    newline='\n',
    write_through=True,
  )
  stream.mode = 'r' if reading else 'w'
  return stream


def _module(name: str) -> Any:
  """A module that has been imported, or one without anything in it."""
  return sys.modules.get(name) or type(sys)(name)


def _set(name: str, **values: Any) -> None:
  """Sets what a module has; other versions may not have it."""
  module = _module(name)
  for key, value in values.items():
    if hasattr(module, key):
      setattr(module, key, value)


def _forget_folders() -> None:
  _set('tempfile', tempdir=None, _name_sequence=None)
  _set('multiprocessing.process', ORIGINAL_DIR=os.getcwd())
  _set('rich', _IMPORT_CWD=os.getcwd())
  # Of the environment's HOME.
  _set('site', USER_BASE=None, USER_SITE=None)
  site.getusersitepackages()
  known = getattr(_module('sysconfig'), '_CONFIG_VARS', None)
  if known:
    known['userbase'] = site.USER_BASE


def _forget_process() -> None:
  process = _module('multiprocessing.process')
  if hasattr(process, '_current_process'):  # its key would be that of all jobs
    process._current_process = type(process._current_process)()
    process._process_counter = itertools.count(1)
    process._children = set()
  _set('multiprocessing.util', MAXFD=os.sysconf('SC_OPEN_MAX'))
  if 'threading' in sys.modules:  # not where the numerical stack is not there
    main = sys.modules['threading'].main_thread()
    if hasattr(main, '_set_native_id'):  # a fork keeps its parent's
      main._set_native_id()
  started = getattr(_module('logging'), '_startTime', None)
  if started is not None:  # a float, or from Python 3.13 on nanoseconds
    whole = isinstance(started, int)
    _set('logging', _startTime=time.time_ns() if whole else time.time())


def _reseed() -> None:
  import random

  random.seed()
  numpy = _module('numpy')
  if hasattr(numpy, 'random'):
    numpy.random.seed()
