"""A cage around the sandbox under test, so that a containment that fails is a
red line and not a dead machine.

  python -m jaxagent.sandbox.guard COMMAND ARGUMENTS...

The command runs as the first process of a pid namespace of its own, so that
everything it leaves behind dies with it; a cgroup (as root) or RLIMIT_NPROC
bounds its processes, and a time limit ends it. It contains nothing else: it is
no sandbox.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence

from jaxagent.sandbox import _cgroup, _linux, errors

MEMORY_MB, PIDS, TIMEOUT_S = 8192, 2500, 1200.0
TIMED_OUT = 124  # as coreutils' timeout


def run(
  command: Sequence[str],
  *,
  memory_mb: int = MEMORY_MB,
  pids: int = PIDS,
  timeout_s: float = TIMEOUT_S,
) -> int:
  """Exit code of `command` (a signal gives 128 + its number).

  Raises: errors.BackendError where this machine lets nothing be guarded.
  """
  with _group(memory_mb, pids) as join:
    try:
      pid = _clone_first()
    except OSError as error:
      raise errors.BackendError(
        f'no pid namespace to guard the attacks with ({error}). Without one '
        'an attack that gets out can take this machine: use a machine that '
        'you can lose, and --unguarded.'
      ) from error
    if pid == 0:
      _become(command, join, pids)
    return _wait(pid, timeout_s)


def _clone_first() -> int:
  """fork() as pid 1 of a new pid namespace; a user namespace if need be."""
  flags = _linux.NEWPID | _linux.NEWNS
  try:
    return _linux.clone(flags)
  except PermissionError:
    uid, gid = os.geteuid(), os.getegid()
  pid = _linux.clone(flags | _linux.NEWUSER)
  if pid == 0:
    for name, text in (
      ('setgroups', 'deny'),
      ('uid_map', f'{uid} {uid} 1'),
      ('gid_map', f'{gid} {gid} 1'),
    ):
      with open(f'/proc/self/{name}', 'w') as f:
        f.write(text)
  return pid


def _become(
  command: Sequence[str], join: Callable[[], None], pids: int
) -> None:
  """Replaces this process by the guarded command; never returns."""
  try:
    _linux.prctl(_linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    _linux.mount('', '/', '', _linux.MS_PRIVATE | _linux.MS_REC)
    _linux.mount(
      'proc',
      '/proc',
      'proc',
      _linux.MS_NOSUID | _linux.MS_NODEV | _linux.MS_NOEXEC,
    )
    join()
    if os.geteuid() != 0:
      hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
      most = pids if hard == resource.RLIM_INFINITY else min(pids, hard)
      resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    os.execvp(command[0], list(command))
  except BaseException as error:  # noqa: B036: a forked child must not return
    os.write(2, f'jaxagent.sandbox.guard: {error}\n'.encode())
  finally:
    os._exit(126)


@contextlib.contextmanager
def _group(memory_mb: int, pids: int) -> Iterator[Callable[[], None]]:
  """A cgroup for the command; yields how its first process joins."""
  groups, note = _cgroup.find(f'jaxagent-guard-{uuid.uuid4().hex[:8]}')
  if groups is None:
    if os.geteuid() == 0:
      print(
        f'guard: root without a cgroup ({note}): processes are bounded by '
        'the time limit alone',
        file=sys.stderr,
      )
    yield lambda: None
    return
  try:
    group = groups.create(0, 'all', memory_mb, pids)

    def join() -> None:
      for fd in group.fds:
        os.write(fd, b'0')

    yield join
  finally:
    groups.remove()


def _wait(pid: int, timeout_s: float) -> int:
  """Waits for the namespace's first process; kills it at the time limit."""
  watch = os.pidfd_open(pid)
  try:
    ready, _, _ = select.select([watch], [], [], timeout_s)
  except BaseException:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise
  finally:
    os.close(watch)
  if not ready:
    os.kill(pid, signal.SIGKILL)
  code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
  if not ready:
    return TIMED_OUT
  return code if code >= 0 else 128 - code


def main(command: Sequence[str]) -> int:
  if not command:
    print(__doc__, file=sys.stderr)
    return 2
  try:
    return run(command)
  except errors.BackendError as error:
    print(f'jaxagent.sandbox.guard: {error}', file=sys.stderr)
    return 2


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
