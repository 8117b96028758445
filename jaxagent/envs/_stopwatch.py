"""Measures a program beside a reference; run in the sandbox, as a job's script.

Standard library only: it is handed over as text. `stopwatch.json` says what to run
(`programs.second_job`). Both programs run as `python program.py input.npz output.npy`,
in turn, each time in an empty folder and on an input that the program has not had
before; what the last run left is removed first, wherever the job may write (`Places`).
Inputs, reference and outputs are kept in the memory of this process, which others
cannot read (PR_SET_DUMPABLE), and are files only while a program needs them. The
seconds are those of wait4(2): no program writes them. Nothing that the program leaves
behind is executed or parsed here.

Leaves `measured.json`, {reason, program_s, reference_s}, and where no rule was broken
`measured.npz`: the outputs' bytes as they are, and both lists of seconds. Exit status
NOT_MEASURED: no doing of the program's (`NotMeasured`); the reason is printed.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import random
import resource
import shutil
import signal
import stat
import struct
import sys
import time
import zipfile
from collections.abc import Sequence

NOT_MEASURED = 97
# Wall seconds for each second of CPU time that a program may take.
PATIENCE = 3.0
# Of the time on the clock, waiting for a CPU: from here on the machine is to blame.
_STARVED = 0.5
# Of the job's time limit, after which the sandbox says that the program took it.
_UNTIL = 0.95
_LEFTOVERS_S = 2.0
_SLACK_BYTES = 1 << 20  # that a program may write to one file beyond its output
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_FOLDER = 'run'
_BOX = '/box'  # a job's root where it has namespaces, or a container


class Failed(Exception):
  """A program broke a rule; the message is one line for people."""


class NotMeasured(Exception):
  """The reference failed before the program ran, or the machine had no CPU to spare.

  The message is one line for people.
  """


def _read(name: str) -> bytes:
  with open(name, 'rb') as file:
    return file.read()


def _remove(path: str) -> None:
  """Removes a file, or a folder with all that is in it, whatever its modes."""
  if not stat.S_ISDIR(os.lstat(path).st_mode):
    os.unlink(path)
    return
  os.chmod(path, 0o700)
  for home, folders, _ in os.walk(path):
    for folder in folders:
      inner = os.path.join(home, folder)
      if not os.path.islink(inner):
        os.chmod(inner, 0o700)
  shutil.rmtree(path)


def _stamp(path: str) -> tuple[int, int]:
  """Returns what changes with content, mode and attributes, and cannot be set."""
  found = os.lstat(path)
  return found.st_ino, found.st_ctime_ns


class Places:
  """Folders in which a job can write, as they are before a program runs.

  In a sandbox the workspace lies beside `tmp` (HOME and TMPDIR) and `shm`, in a root
  of the job's own. /tmp and /dev/shm lead to these two, or are the container's, for
  this job alone. Only where the root is a folder of the host's, as at T1, they are
  the host's, and left alone. Outside a sandbox the workspace is the one place.
  """

  def __init__(self) -> None:
    workspace = os.getcwd()
    root = os.path.dirname(workspace)
    self._made: tuple[str, ...] = ()
    folders: list[str] = []
    home, temporary = (
      os.path.realpath(os.environ.get(name, '/')) for name in ('HOME', 'TMPDIR')
    )
    if home == temporary == f'{root}/tmp':
      self._made = (f'{root}/tmp', f'{root}/shm')
      folders = [root]
      if root == _BOX:
        shared = ('/tmp', '/dev/shm')
        folders += [path for path in shared if not os.path.islink(path)]
    # What is there already, and unchanged, is not of a program.
    self._kept = {
      folder: {
        path: _stamp(path)
        for path in (f'{folder}/{name}' for name in os.listdir(folder))
        if path not in self._made
      }
      for folder in folders
    }
    self._workspace = workspace

  def clear(self) -> None:
    """Empties the workspace, and removes from the other places what is new."""
    _strip('.')
    for name in os.listdir('.'):
      _remove(name)
    for folder, kept in self._kept.items():
      _strip(folder)
      for name in os.listdir(folder):
        path = f'{folder}/{name}'
        if path != self._workspace and kept.get(path) != _stamp(path):
          _remove(path)
    for folder in self._made:
      os.mkdir(folder, 0o700)


def _strip(folder: str) -> None:
  """Removes the attributes of a folder, in which a program can keep bytes."""
  try:
    names = os.listxattr(folder)
  except OSError as error:
    if error.errno != errno.ENOTSUP:
      raise
    return
  for name in names:
    if name.startswith('user.'):
      os.removexattr(folder, name)


def _forbid_processes() -> None:
  """Lets this process and what it executes start no other, and no thread.

  A process that is not waited for, or whose parent ignores SIGCHLD, is in no
  account of CPU time.
  """
  resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def processes_can_be_forbidden() -> bool:
  """Whether the limit holds here; the kernel's own root is free of it."""
  child = os.fork()
  if child == 0:
    code = 1
    try:
      _forbid_processes()
      if os.fork() == 0:
        os._exit(0)
      os.wait()
    except OSError:
      code = 0
    os._exit(code)
  return os.waitpid(child, 0)[1] == 0


def _state_of(process: int) -> tuple[bool, float]:
  """Returns (whether a process needs a CPU or the disk, CPU seconds until now).

  (False, 0) where the kernel does not tell: then a program is charged with a delay.
  """
  try:
    said = _read(f'/proc/{process}/stat').rpartition(b')')[2].split()
    ticks = int(said[11]) + int(said[12])
    return said[0] in (b'R', b'D'), ticks / os.sysconf('SC_CLK_TCK')
  except (OSError, ValueError, IndexError):
    return False, 0.0


class Stopwatch:
  """Runs programs and keeps what they wrote and how long they took.

  Args:
    cpu_s: CPU seconds of one run of the program at most.
    max_bytes: of an output.
    wall: charges wall time where it is longer than CPU time: processes cannot be
      forbidden here, so CPU time may be incomplete.
    timeout_s: of the job, which begins now.
  """

  def __init__(
    self, cpu_s: float, max_bytes: int, wall: bool, timeout_s: float = math.inf
  ):
    self.cpu_s, self.max_bytes, self.wall = cpu_s, max_bytes, wall
    self.places = Places()
    self._begun = time.monotonic()
    self._until = self._begun + _UNTIL * timeout_s
    self._late = self._starved = False
    self._waited = 0.0  # of all runs that have ended

  def run(
    self, program: bytes, given: bytes, cpu_s: float
  ) -> tuple[bytes, float]:
    """Returns (content of output.npy, seconds) of one run.

    Raises: Failed, NotMeasured.
    """
    self.places.clear()
    os.mkdir(_FOLDER, 0o700)
    for name, data in (('program.py', program), ('input.npz', given)):
      with open(f'{_FOLDER}/{name}', 'xb') as file:
        file.write(data)
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
      self._become_program(cpu_s)
    status, usage = self._wait(child, cpu_s * PATIENCE)
    seconds = time.monotonic() - begun
    used = self._end_others(child) + usage.ru_utime + usage.ru_stime
    if os.WIFSIGNALED(status):
      if self._starved and used < cpu_s:
        raise NotMeasured(
          f'no CPU was free for most of {time.monotonic() - self._begun:.1f} s'
        )
      number = os.WTERMSIG(status)
      late = number == signal.SIGXCPU or used >= cpu_s or self._late
      why = (
        f'took longer than {cpu_s:g} s' if late else f'ended by signal {number}'
      )
      raise Failed(why)
    if status:
      raise Failed(f'ended with exit status {os.WEXITSTATUS(status)}')
    return self._output(), max(used, seconds) if self.wall else used

  def _become_program(self, cpu_s: float) -> None:
    """Executes the program in this fork; does not return."""
    try:
      os.setsid()
    except OSError:
      pass  # then it is in this group, as at T1
    try:
      os.chdir(_FOLDER)
      null = os.open(os.devnull, os.O_RDWR)
      for stream in (0, 1, 2):
        os.dup2(null, stream)
      signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
      whole = int(cpu_s) + 1
      resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
      most = self.max_bytes + _SLACK_BYTES
      resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
      resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      _forbid_processes()
      command = [
        sys.executable, '-s', '-P', '-B', 'program.py', 'input.npz', 'output.npy'
      ]  # fmt: skip
      os.execv(sys.executable, command)
    finally:
      os._exit(127)

  def _wait(
    self, child: int, wall_s: float
  ) -> tuple[int, resource.struct_rusage]:
    """Waits for one child, and kills it after `wall_s`.

    So it does shortly before the job's own limit, if the machine is to blame for
    that; the sandbox ends all others. The machine is to blame where a child was
    ready most of the time and has had no CPU: the kernel's own account of that
    leaves out a wait that has not ended, and what a hypervisor takes.
    """
    begun = last = time.monotonic()
    ready = waited = 0.0
    self._late = self._starved = False
    while True:
      pid, status, usage = os.wait4(child, os.WNOHANG)
      if pid:
        self._waited += max(0.0, ready - usage.ru_utime - usage.ru_stime)
        return status, usage
      # At random times, so that no program is ready just then, and not when one
      # sends a signal.
      pause = random.uniform(0.02, 0.2)
      left = min(begun + wall_s, self._until) - time.monotonic()
      pause = max(0.0, min(left, pause))
      signalled = signal.sigtimedwait({signal.SIGCHLD}, pause)
      now = time.monotonic()
      if not signalled:
        is_ready, cpu_s = _state_of(child)
        ready, last = ready + (now - last) * is_ready, now
        waited = max(0.0, ready - cpu_s)
      if now >= begun + wall_s:
        self._late, self._starved = True, waited >= _STARVED * (now - begun)
      elif now >= self._until:
        every, self._until = now - self._begun, math.inf
        self._starved = self._waited + waited >= _STARVED * every
      if self._late or self._starved:
        os.kill(child, signal.SIGKILL)
        wall_s = math.inf
        signal.sigtimedwait({signal.SIGCHLD}, 1.0)

  def _end_others(self, child: int) -> float:
    """Ends what a program has left running; returns its CPU seconds."""
    used, end = 0.0, time.monotonic() + _LEFTOVERS_S
    while True:
      try:
        os.killpg(child, signal.SIGKILL)
      except OSError:
        pass
      try:
        pid, _, usage = os.wait4(-1, os.WNOHANG)
      except ChildProcessError:
        return used
      if pid:
        used += usage.ru_utime + usage.ru_stime
      elif time.monotonic() > end:
        raise Failed('left processes running')
      else:
        time.sleep(0.002)

  def _output(self) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
      file = os.open(f'{_FOLDER}/output.npy', flags)
    except OSError:
      raise Failed('wrote no output.npy') from None
    with os.fdopen(file, 'rb') as stream:
      found = os.fstat(file)
      if not stat.S_ISREG(found.st_mode):
        raise Failed('wrote an output.npy that is no regular file')
      if found.st_size > self.max_bytes:
        raise Failed(
          f'wrote an output.npy of {found.st_size} bytes; at most {self.max_bytes}'
        )
      return stream.read(self.max_bytes)


def _array(values: Sequence[float], kind: str) -> bytes:
  """Writes a vector as a `.npy` file. kind: 'd' or 'q', as for `struct`."""
  name = {'d': '<f8', 'q': '<i8'}[kind]
  header = f"{{'descr': '{name}', 'fortran_order': False, 'shape': ({len(values)},), }}"
  header += ' ' * (-(len(header) + 11) % 64) + '\n'
  size = struct.pack('<H', len(header))
  body = struct.pack(f'<{len(values)}{kind}', *values)
  return b'\x93NUMPY\x01\x00' + size + header.encode() + body


def measure(
  watch: Stopwatch,
  program: bytes,
  reference: bytes,
  inputs: Sequence[bytes],
) -> tuple[list[bytes], dict[str, list[float]]]:
  """Runs both on each input; returns the program's outputs, and seconds.

  Raises: Failed for what the program did; NotMeasured.
  """
  outputs: list[bytes] = []
  taken: dict[str, list[float]] = {'program_s': [], 'reference_s': []}
  for number, given in enumerate(inputs):
    seconds = _reference_s(watch, reference, given, number)
    taken['reference_s'].append(round(seconds, 6))
    try:
      output, seconds = watch.run(program, given, watch.cpu_s)
    except Failed as error:
      raise Failed(f'round {number}: the program {error}') from None
    outputs.append(output)
    taken['program_s'].append(round(seconds, 6))
  return outputs, taken


def _reference_s(
  watch: Stopwatch, reference: bytes, given: bytes, number: int
) -> float:
  """Returns seconds of the reference, which runs twice; the second time counts.

  The first time it finds the caches as the last program left them, the second time
  as the program will find them. Both are tried again before a program is blamed.

  Raises: NotMeasured in the first round, before the program has run; Failed.
  """

  def twice() -> float:
    watch.run(reference, given, watch.cpu_s)
    return watch.run(reference, given, watch.cpu_s)[1]

  try:
    return twice()
  except Failed as error:
    if not number:
      raise NotMeasured(f'the reference {error}') from None
  try:
    return twice()
  except Failed as error:
    raise Failed(
      f'round {number}: after the program had run, the reference {error}'
    ) from None


def _write(name: str, data: bytes) -> None:
  with open(name, 'xb') as file:
    file.write(data)


def main() -> None:
  plan = json.loads(_read('stopwatch.json'))
  program, reference = _read(plan['program']), _read(plan['reference'])
  inputs = [_read(name) for name in plan['inputs']]
  libc = ctypes.CDLL(None, use_errno=True)
  # Without these anything would run, and be believed.
  for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_CHILD_SUBREAPER, 1)):
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
      raise OSError(ctypes.get_errno(), f'prctl {option}')
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
  watch = Stopwatch(
    plan['cpu_s'],
    plan['max_bytes'],
    not processes_can_be_forbidden(),
    plan['timeout_s'],
  )
  said: dict[str, object] = {'reason': ''}
  outputs: list[bytes] = []
  try:
    outputs, taken = measure(watch, program, reference, inputs)
    said.update(taken)
  except Failed as error:
    said['reason'] = str(error)
  except NotMeasured as error:
    print(error, flush=True)
    sys.exit(NOT_MEASURED)
  watch.places.clear()
  _write('measured.json', json.dumps(said).encode())
  if not said['reason']:
    with zipfile.ZipFile('measured.npz', 'x') as archive:
      archive.writestr('round.npy', _array(plan['rounds'], 'q'))
      for name, seconds in taken.items():
        archive.writestr(f'{name}.npy', _array(seconds, 'd'))
      for number, output in zip(plan['rounds'], outputs):
        archive.writestr(f'output_{number}.npy', output)


if __name__ == '__main__':
  main()
