"""Linux primitives through ctypes: namespaces, mounts, seccomp, Landlock.

Standard library only. Every call raises OSError with the call's name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Mapping, Sequence

LIBC = ctypes.PyDLL(None, use_errno=True)  # PyDLL: the GIL stays held in clone
LIBC.syscall.restype = ctypes.c_long

NEWNS, NEWUTS, NEWIPC = 0x20000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 32, 4096, 16384
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_SET_MM, PR_SET_MM_MAP = 35, 14
ADDR_NO_RANDOMIZE = 0x0040000
_SHOWN: list[ctypes.Array] = []
_LAYOUT: dict[int, int] = {}

# Numbers from 424 on are the same on every architecture.
_COMMON = dict(
  io_uring_setup=425,
  io_uring_enter=426,
  io_uring_register=427,
  open_tree=428,
  move_mount=429,
  fsopen=430,
  fsconfig=431,
  fsmount=432,
  fspick=433,
  clone3=435,
  pidfd_getfd=438,
  process_madvise=440,
  mount_setattr=442,
  quotactl_fd=443,
  landlock_create_ruleset=444,
  landlock_add_rule=445,
  landlock_restrict_self=446,
  memfd_secret=447,
)
_X86 = dict(
  mount=165,
  umount2=166,
  pivot_root=155,
  chroot=161,
  unshare=272,
  setns=308,
  ptrace=101,
  process_vm_readv=310,
  process_vm_writev=311,
  bpf=321,
  perf_event_open=298,
  keyctl=250,
  add_key=248,
  request_key=249,
  userfaultfd=323,
  kexec_load=246,
  kexec_file_load=320,
  init_module=175,
  finit_module=313,
  delete_module=176,
  name_to_handle_at=303,
  open_by_handle_at=304,
  acct=163,
  swapon=167,
  swapoff=168,
  reboot=169,
  quotactl=179,
  clock_settime=227,
  settimeofday=164,
  adjtimex=159,
  clock_adjtime=305,
  syslog=103,
  fanotify_init=300,
  kcmp=312,
  memfd_create=319,
  socket=41,
  clone=56,
  ioctl=16,
  shmget=29,
  capset=126,
  iopl=172,
  ioperm=173,
  modify_ldt=154,
  vhangup=153,
  uselib=134,
  move_pages=279,
  migrate_pages=256,
  msgget=68,
  semget=64,
  setsid=112,
  setpgid=109,
  prlimit64=302,
  setpriority=141,
  sched_setaffinity=203,
  sched_setscheduler=144,
  sched_setparam=142,
  sched_setattr=314,
  ioprio_set=251,
)
_ARM = dict(
  mount=40,
  umount2=39,
  pivot_root=41,
  chroot=51,
  unshare=97,
  setns=268,
  ptrace=117,
  process_vm_readv=270,
  process_vm_writev=271,
  bpf=280,
  perf_event_open=241,
  keyctl=219,
  add_key=217,
  request_key=218,
  userfaultfd=282,
  kexec_load=104,
  kexec_file_load=294,
  init_module=105,
  finit_module=273,
  delete_module=106,
  name_to_handle_at=264,
  open_by_handle_at=265,
  acct=89,
  swapon=224,
  swapoff=225,
  reboot=142,
  quotactl=60,
  clock_settime=112,
  settimeofday=170,
  adjtimex=171,
  clock_adjtime=266,
  syslog=116,
  fanotify_init=262,
  kcmp=272,
  memfd_create=279,
  socket=198,
  clone=220,
  ioctl=29,
  shmget=194,
  capset=91,
  vhangup=58,
  move_pages=239,
  migrate_pages=238,
  msgget=186,
  semget=190,
  setsid=157,
  setpgid=154,
  prlimit64=261,
  setpriority=140,
  sched_setaffinity=122,
  sched_setscheduler=119,
  sched_setparam=118,
  sched_setattr=274,
  ioprio_set=30,
)
_MACHINES = {
  'x86_64': (0xC000003E, {**_COMMON, **_X86}),
  'aarch64': (0xC00000B7, {**_COMMON, **_ARM}),
}
_MACHINE = platform.machine()
AUDIT_ARCH, NR = _MACHINES.get(_MACHINE, (0, {}))

_DENIED = (
  'mount umount2 pivot_root chroot unshare setns ptrace process_vm_readv '
  'process_vm_writev bpf perf_event_open keyctl add_key request_key '
  'userfaultfd kexec_load kexec_file_load init_module finit_module '
  'delete_module name_to_handle_at open_by_handle_at acct swapon swapoff '
  'reboot quotactl clock_settime settimeofday adjtimex clock_adjtime syslog '
  'fanotify_init kcmp iopl ioperm modify_ldt vhangup uselib move_pages '
  'migrate_pages io_uring_setup io_uring_enter io_uring_register open_tree '
  'move_mount fsopen fsconfig fsmount fspick pidfd_getfd process_madvise '
  'mount_setattr quotactl_fd memfd_secret setpriority sched_setaffinity '
  'sched_setscheduler sched_setparam sched_setattr ioprio_set'
).split()
# Memory that no rlimit sees; denied where no cgroup counts it.
_SYSV = ('shmget', 'msgget', 'semget')
_UNCOUNTED = ('memfd_create', *_SYSV)
_GROUPING = ('setsid', 'setpgid')


def _check(value: int, what: str) -> int:
  if value < 0:
    code = ctypes.get_errno()
    raise OSError(code, f'{what}: {os.strerror(code)}')
  return value


def syscall(name: str, *args) -> int:
  """Runs a system call by name; raises OSError naming it."""
  if name not in NR:
    raise OSError(errno.ENOSYS, f'{name}: unknown on {_MACHINE}')
  words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
  return _check(LIBC.syscall(ctypes.c_long(NR[name]), *words), name)


def prctl(option: int, value: int) -> None:
  _check(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f'prctl {option}')


def unshare(flags: int) -> None:
  syscall('unshare', flags)


def clone(flags: int) -> int:
  """fork() into fresh namespaces. The caller must be single-threaded."""
  pid = syscall('clone', flags | signal.SIGCHLD, 0, 0, 0, 0)
  if pid == 0:
    ctypes.pythonapi.PyOS_AfterFork_Child()
  return pid


def mount(source: str, target: str, kind: str, flags: int, data: str = ''):
  _check(
    LIBC.mount(
      source.encode(),
      target.encode(),
      kind.encode(),
      ctypes.c_ulong(flags),
      data.encode(),
    ),
    f'mount {kind or "bind"} {target}',
  )


def umount(target: str) -> None:
  _check(LIBC.umount2(target.encode(), MNT_DETACH), f'umount {target}')


def bind_read_only(source: str, target: str, *, device: bool = False) -> None:
  """Recursive read-only, nosuid (and nodev) bind mount."""
  mount(source, target, '', MS_BIND | MS_REC)
  attributes = MS_NOSUID if device else MS_RDONLY | MS_NOSUID | MS_NODEV
  record = struct.pack('QQQQ', attributes, 0, 0, 0)
  try:
    syscall('mount_setattr', -100, target.encode(), 0x8000, record, len(record))
  except OSError as error:
    if error.errno != errno.ENOSYS:
      raise
    keep = os.statvfs(target).f_flag & 0xF
    mount('', target, '', MS_BIND | MS_REMOUNT | attributes | keep)


def fixed_addresses() -> None:
  """Has what this process executes next lie at the same addresses each time.

  hash(None), in Python 3.11, and those of types and functions are addresses,
  and a set is in the order of hashes. Some engines of containers refuse it.
  """
  LIBC.personality(ctypes.c_ulong(ADDR_NO_RANDOMIZE))


def layout() -> dict[int, int]:
  """Gives where code (26, 27), stack (28), data (45, 46), heap (47), arguments
  (48, 49) and environment (50, 51) of this process lie; a fork keeps them.

  By number in proc(5), /proc/PID/stat. Empty where /proc is out of reach.
  """
  if not _LAYOUT:
    try:
      with open('/proc/self/stat', 'rb') as f:
        fields = f.read().rsplit(b')', 1)[1].split()
    except OSError:
      return {}
    _LAYOUT.update(
      {n: int(fields[n - 3]) for n in (26, 27, 28, 45, 46, 47, 48, 49, 50, 51)}
    )
  return _LAYOUT


def show_as(command: Sequence[str], env: Mapping[str, str]) -> bool:
  """Gives this process a command line and an environment in /proc.

  Those that it was started with are overwritten. False where the kernel does
  not allow it (Linux 3.18, CONFIG_CHECKPOINT_RESTORE), or /proc is out of reach.
  """
  at = layout()
  if not at:
    return False
  words = b''.join(os.fsencode(word) + b'\0' for word in command)
  pairs = b''.join(os.fsencode(f'{k}={v}') + b'\0' for k, v in env.items())
  # Kept for as long as the process lives.
  _SHOWN.append(ctypes.create_string_buffer(words + pairs))
  begin = ctypes.addressof(_SHOWN[-1])
  middle, end = begin + len(words), begin + len(words) + len(pairs)
  LIBC.sbrk.restype = ctypes.c_void_p
  record = struct.pack(
    '11QQIi',
    at[26],
    at[27],
    at[45],
    at[46],
    at[47],
    LIBC.sbrk(0),
    at[28],
    begin,
    middle,
    middle,
    end,
    0,
    0,
    -1,
  )
  failed = LIBC.prctl(
    PR_SET_MM,
    PR_SET_MM_MAP,
    record,
    ctypes.c_ulong(len(record)),
    ctypes.c_ulong(0),
  )
  for low, high in ((at[48], at[49]), (at[50], at[51])):
    ctypes.memset(low, 0, high - low)
  return not failed


def drop_capabilities() -> None:
  header = struct.pack('Ii', 0x20080522, 0)
  syscall('capset', header, bytes(24))


def _seccomp_program(*, namespaces: bool, count_memory: bool) -> bytes:
  ld, jeq, jge, jset, ret = 0x20, 0x15, 0x35, 0x45, 0x06
  allow, kill = 0x7FFF0000, 0x80000000
  eperm, enosys = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
  code: list[tuple[int, int, int, int]] = [
    (ld, 0, 0, 4),
    (jeq, 1, 0, AUDIT_ARCH),
    (ret, 0, 0, kill),
    (ld, 0, 0, 0),
  ]
  if _MACHINE == 'x86_64':  # the x32 numbering would walk round the list
    code += [(jge, 0, 1, 0x40000000), (ret, 0, 0, eperm)]
  denied = [(n, eperm) for n in _DENIED] + [('clone3', enosys)]
  if not count_memory:
    denied += [(n, enosys) for n in _UNCOUNTED]
  if not namespaces:
    denied += [(n, enosys) for n in _SYSV]
    denied += [(n, 0x50000) for n in _GROUPING]
  for name, action in denied:
    if name in NR:
      code += [(jeq, 0, 1, NR[name]), (ret, 0, 0, action)]
  # One's own limits may be read and lowered, under the number 0.
  code += [
    (jeq, 0, 4, NR['prlimit64']),
    (ld, 0, 0, 16),
    (jeq, 1, 0, 0),
    (ret, 0, 0, eperm),
    (ret, 0, 0, allow),
  ]
  code += [
    (jeq, 0, 4, NR['clone']),
    (ld, 0, 0, 16),
    (jset, 0, 1, 0x7E020000),
    (ret, 0, 0, eperm),
    (ret, 0, 0, allow),
  ]
  code += [  # TIOCSTI, TIOCLINUX
    (jeq, 0, 5, NR['ioctl']),
    (ld, 0, 0, 24),
    (jeq, 1, 0, 0x5412),
    (jeq, 0, 1, 0x541C),
    (ret, 0, 0, eperm),
    (ret, 0, 0, allow),
  ]
  if namespaces:  # an empty network namespace: AF_UNIX, AF_INET, AF_INET6
    code += [
      (jeq, 0, 6, NR['socket']),
      (ld, 0, 0, 16),
      (jeq, 3, 0, 1),
      (jeq, 2, 0, 2),
      (jeq, 1, 0, 10),
      (ret, 0, 0, eperm),
      (ret, 0, 0, allow),
    ]
  else:
    code += [(jeq, 0, 1, NR['socket']), (ret, 0, 0, eperm)]
  code.append((ret, 0, 0, allow))
  return b''.join(struct.pack('HBBI', *line) for line in code)


def seccomp(*, namespaces: bool, count_memory: bool) -> None:
  """Installs the deny list. no_new_privs must be set.

  Args:
    namespaces: True inside an empty network namespace, where AF_UNIX and
      AF_INET sockets are harmless, and an own IPC and pid namespace. False
      denies every socket() and what would outlive the job (SysV objects), and
      makes setsid() and setpgid() return 0 and do nothing, so that one signal
      to the process group reaches all of a job.
    count_memory: True where a cgroup counts memfd and shared memory.
  """
  if not NR:
    raise OSError(errno.ENOSYS, f'seccomp: no table for {_MACHINE}')
  program = _seccomp_program(namespaces=namespaces, count_memory=count_memory)
  buffer = ctypes.create_string_buffer(program, len(program))
  record = struct.pack('HxxxxxxQ', len(program) // 8, ctypes.addressof(buffer))
  _check(LIBC.prctl(PR_SET_SECCOMP, 2, record), 'seccomp')


def landlock_abi() -> int:
  try:
    return syscall('landlock_create_ruleset', None, 0, 1)
  except OSError:
    return 0


_READ = 1 | 4 | 8  # execute, read file, read directory
_FILE = 1 | 2 | 4 | 1 << 14  # what may be asked of a file


def landlock(read: list[str], write: list[str]) -> None:
  """Confines files to `read` and `write` trees, denies TCP and outer signals.

  Paths that do not exist are skipped. no_new_privs must be set.
  """
  abi = landlock_abi()
  if not abi:
    raise OSError(errno.ENOSYS, 'landlock: not offered by this kernel')
  rights = (1 << 13) - 1
  for since, bit in ((2, 13), (3, 14)):
    rights |= (1 << bit) if abi >= since else 0
  attribute = struct.pack('QQQ', rights, 3, 3)
  size = 24 if abi >= 6 else 16 if abi >= 4 else 8
  rules = syscall('landlock_create_ruleset', attribute[:size], size, 0)
  try:
    for paths, allowed in ((read, _READ), (write, rights)):
      for path in paths:
        try:
          fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
          continue
        granted = allowed & rights
        if not os.path.isdir(path):
          granted &= _FILE
        rule = struct.pack('=Qi', granted, fd)
        syscall('landlock_add_rule', rules, 1, rule, 0)
        os.close(fd)
    syscall('landlock_restrict_self', rules, 0)
  finally:
    os.close(rules)
