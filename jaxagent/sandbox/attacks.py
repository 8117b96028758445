"""The adversarial suite: one small script per promise of the sandbox.

Shared by `self_check` and the tests. Inside a script, CANARY is the path of
a planted host file, TOKEN what it holds, PORT a listening port of the
trainer, TRAINER its pid. `won(x)` marks a leak: the case then fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxagent.types import Execution, Limits, Outcome

O = Outcome
_SMALL = Limits(
  timeout_s=10.0, memory_mb=256, pids=32, disk_mb=16, output_kb=64
)
PRELUDE = """
import os, sys, json, time, signal, socket, ctypes, subprocess
CANARY, TOKEN_HEAD, TOKEN_TAIL, PORT, TRAINER = sys.argv[1:6]
PORT, TRAINER = int(PORT), int(TRAINER)
TOKEN = (TOKEN_HEAD + TOKEN_TAIL).encode()
libc = ctypes.CDLL(None, use_errno=True)
def won(x=''):
  open('won', 'w').write(repr(x)[:200]); os._exit(0)
def denied(f, *a):
  try: r = f(*a)
  except (OSError, ValueError, AttributeError, ImportError): return
  won(r)
def sysdenied(nr, *a):
  if libc.syscall(nr, *a) >= 0: won(nr)
"""


@dataclasses.dataclass(frozen=True)
class Case:
  """An attack, and the outcomes that count as contained.

  tier: holds at this tier and above ('T1' by default).
  check: a further check of the Execution; returns '' or what is wrong.
  """

  name: str
  group: str
  script: str
  expect: tuple[Outcome, ...] = (O.OK,)
  limits: Limits = _SMALL
  tier: str = 'T1'
  collect: tuple[str, ...] = ()
  check: Callable[[Execution], str] = lambda e: ''
  zygote: bool = False


def _limits(**changes) -> Limits:
  return dataclasses.replace(_SMALL, **changes)


def _quick(e: Execution) -> str:
  late = e.exec_s - 1.0
  return f'overshot by {late:.2f} s' if late > 0.5 else ''


def _gone(e: Execution) -> str:
  return '' if e.exec_s < 8 else 'a child held the run open'


_WALK = """
seen = 0
for root, dirs, files in os.walk('/'):
  if root.startswith(('/proc', '/usr', '/sys', '/dev')): dirs[:] = []; continue
  if root.startswith((sys.prefix, sys.base_prefix)): dirs[:] = []; continue
  for n in files:
    try:
      if TOKEN in open(os.path.join(root, n), 'rb').read(1 << 16): won(n)
    except OSError: pass
"""
_PROC = """
try: pids = [p for p in os.listdir('/proc') if p.isdigit()]
except OSError: pids = [str(p) for p in range(1, 40000)]
for pid in pids:
  if int(pid) == os.getpid(): continue
  for name in ('environ', 'maps', 'cmdline'):
    try: data = open('/proc/%s/%s' % (pid, name), 'rb').read()
    except OSError: continue
    if TOKEN in data: won((pid, name))
"""
# Run twice: what one job leaves the next one finds.
_SYSV = """
if libc.shmget(0x6a780, 4096, 0o3600) < 0 and ctypes.get_errno() == 17: won()
"""
_SUB = ('submission.csv',)
_TIMEOUT = _limits(timeout_s=1.0)
_REFUSED = (O.INVALID_SUBMISSION, O.NO_SUBMISSION)

CASES: tuple[Case, ...] = (
  # Labels and files.
  Case('read the canary', 'files', 'denied(open, CANARY)'),
  Case(
    'read the canary (zygote)', 'files', 'denied(open, CANARY)', zygote=True
  ),
  Case(
    'list /root and /home',
    'files',
    """
for p in ('/root/.ssh', '/root/.bashrc', '/home', '/var/lib', '/etc/shadow'):
  denied(lambda: os.listdir(p) if os.path.isdir(p) else open(p).read())
""",
  ),
  Case('walk / for the canary', 'files', _WALK),
  Case('grep /proc for the canary', 'files', _PROC),
  Case(
    'read memory of other processes',
    'files',
    """
for pid in (1, 2, os.getppid(), TRAINER):
  if pid != os.getpid(): denied(open, '/proc/%d/mem' % pid, 'rb')
""",
  ),
  Case(
    'roots and descriptors of others',
    'files',
    """
for pid in (1, os.getppid(), TRAINER):
  if pid != os.getpid():
    denied(os.listdir, '/proc/%d/root' % pid)
    denied(os.listdir, '/proc/%d/fd' % pid)
""",
  ),
  Case(
    'write core_pattern',
    'files',
    "denied(open, '/proc/sys/kernel/core_pattern', 'r+')",
  ),
  Case(
    'write site-packages',
    'files',
    """
import site
for d in site.getsitepackages() + [sys.prefix, sys.base_prefix, '/usr/lib']:
  denied(open, d + '/evil.pth', 'w')
denied(open, os.path.dirname(os.__file__) + '/sitecustomize.py', 'w')
""",
  ),
  Case(
    'write outside the workspace',
    'files',
    """
for p in ('/evil', '/usr/evil', '/etc/evil', '/dev/evil', '/home/evil'):
  denied(open, p, 'w')
""",
  ),
  Case(
    'chmod and chown the interpreter',
    'files',
    """
denied(os.chmod, os.__file__, 0o777)
denied(os.chown, os.__file__, os.getuid(), -1)
denied(os.truncate, os.__file__, 0)
""",
  ),
  Case(
    'submission as symlink',
    'files',
    "os.symlink('/etc/passwd', 'submission.csv')",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    'submission as symlink to the canary',
    'files',
    "os.symlink(CANARY, 'submission.csv')",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    'submission below a linked folder',
    'files',
    "os.symlink('/etc', 'out')",
    _REFUSED,
    collect=('out/passwd',),
  ),
  Case(
    'submission as FIFO',
    'files',
    "os.mkfifo('submission.csv')",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    'submission as socket',
    'files',
    """
try: socket.socket(socket.AF_UNIX).bind('submission.csv')
except OSError: pass
""",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    'submission as folder',
    'files',
    "os.mkdir('submission.csv')",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    'submission as hard link',
    'files',
    """
open('x', 'w').write('1'); os.link('x', 'submission.csv')
""",
    _REFUSED,
    collect=_SUB,
  ),
  Case(
    '1 TB sparse submission',
    'files',
    """
denied(os.truncate, 'submission.csv', 1 << 40) if open(
  'submission.csv', 'w') else 0
""",
    (O.OK, O.DISK_LIMIT, O.INVALID_SUBMISSION),
    collect=_SUB,
  ),
  Case(
    '100,000 files',
    'files',
    """
for i in range(100000): open('f%d' % i, 'w').close()
""",
    (O.DISK_LIMIT,),
    tier='T2',
  ),
  Case(
    '1000-deep folders',
    'files',
    """
for i in range(1000): os.mkdir('d'); os.chdir('d')
""",
  ),
  Case(
    'odd file names',
    'files',
    r"""
for n in (b'a\nb', b'\xff\xfe', b'...', b' ', b'-rf'): open(n, 'w').close()
""",
  ),
  Case(
    'leftovers of the last job',
    'files',
    """
places = (os.environ['TMPDIR'], os.environ['TMPDIR'] + '/../shm', '.')
for d in places:
  names = set(os.listdir(d)) - {'main.py'}
  if names: won(names)
for d in places: open(d + '/left', 'w').write('x')
""",
  ),
  # Processes.
  Case(
    'endless loop',
    'processes',
    'while True: pass',
    (O.TIMEOUT,),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'endless loop (zygote)',
    'processes',
    'while True: pass',
    (O.TIMEOUT,),
    _TIMEOUT,
    check=_quick,
    zygote=True,
  ),
  Case(
    'all signals ignored',
    'processes',
    """
for s in range(1, 65):
  try: signal.signal(s, signal.SIG_IGN)
  except (OSError, ValueError): pass
while True: time.sleep(9)
""",
    (O.TIMEOUT,),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'double fork, setsid, late write',
    'processes',
    """
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0:
    time.sleep(1); open('submission.csv', 'w').write('late'); time.sleep(60)
  os._exit(0)
open('submission.csv', 'w').write('early')
""",
    collect=_SUB,
    check=lambda e: (
      ''
      if e.collected.get('submission.csv') == b'early' and e.exec_s < 8
      else 'swapped'
    ),
  ),
  Case(
    'child holds stdout',
    'processes',
    """
if os.fork() == 0: time.sleep(60)
""",
    check=_gone,
  ),
  Case(
    'fork bomb',
    'processes',
    """
while True:
  try: os.fork()
  except OSError: time.sleep(0.01)
""",
    (O.TIMEOUT, O.SCRIPT_ERROR),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'fork chain: each forks and leaves',
    'processes',
    """
while True:
  try:
    if os.fork(): os._exit(0)
  except OSError: pass
""",
    (O.OK, O.SCRIPT_ERROR, O.TIMEOUT),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'fork chain in sessions of its own',
    'processes',
    """
for i in range(8):
  if os.fork() == 0:
    while True:
      try:
        os.setsid()
        if os.fork(): os._exit(0)
      except OSError: pass
time.sleep(60)
""",
    (O.SCRIPT_ERROR, O.TIMEOUT),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'limits and priorities of others',
    'processes',
    """
import resource
denied(resource.prlimit, os.getppid(), resource.RLIMIT_NOFILE, (64, 64))
denied(resource.prlimit, os.getpid(), resource.RLIMIT_NOFILE, (64, 64))
denied(os.setpriority, os.PRIO_USER, 0, 19)
denied(os.setpriority, os.PRIO_PROCESS, 0, 19)
denied(os.sched_setaffinity, 0, os.sched_getaffinity(0))
denied(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # its own may be lowered
""",
  ),
  Case(
    'not the first to be killed',
    'processes',
    """
if int(open('/proc/self/oom_score_adj').read()) < 1000: won()
denied(lambda: open('/proc/self/oom_score_adj', 'w').write('0'))
""",
    tier='T2',
  ),
  Case(
    'processes over the limit',
    'processes',
    """
n = 0
try:
  for i in range(200):
    if os.fork() == 0: time.sleep(30); os._exit(0)
    n += 1
except OSError: pass
if n > 40: won(n)
""",
    tier='T2',
  ),
  Case(
    'kill(-1)',
    'processes',
    'os.kill(-1, signal.SIGKILL)',
    (O.OK, O.SCRIPT_ERROR),
  ),
  Case(
    'kill the trainer and the parent',
    'processes',
    """
denied(os.kill, TRAINER, 0) if TRAINER > 1000 else 0
for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
  try: os.kill(os.getppid(), s)
  except OSError: pass
time.sleep(0.1); open('submission.csv', 'w').write('x')
""",
    collect=_SUB,
  ),
  Case(
    'SIGSTOP itself',
    'processes',
    'os.kill(os.getpid(), signal.SIGSTOP)',
    (O.TIMEOUT,),
    _TIMEOUT,
    check=_quick,
  ),
  Case(
    'SIGKILL itself',
    'processes',
    'os.kill(os.getpid(), signal.SIGKILL)',
    (O.SCRIPT_ERROR,),
  ),
  Case(
    'close all descriptors',
    'processes',
    'os.closerange(0, 4096)',
    (O.OK, O.SCRIPT_ERROR),
  ),
  Case(
    'a thread ends, the job lives',
    'processes',
    """
import threading
t = threading.Thread(target=lambda: None); t.start(); t.join()
time.sleep(0.2)
""",
  ),
  Case(
    'raise its own limits',
    'processes',
    """
import resource
for k in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
  s, h = resource.getrlimit(k)
  if h != resource.RLIM_INFINITY: denied(resource.setrlimit, k, (h * 2, h * 2))
""",
  ),
  # Resources.
  Case(
    'memory bomb',
    'resources',
    """
x = []
while True: x.append(bytearray(8 << 20))
""",
    (O.OOM,),
  ),
  Case(
    'memory bomb (zygote)',
    'resources',
    """
x = []
while True: x.append(bytearray(8 << 20))
""",
    (O.OOM,),
    zygote=True,
  ),
  Case(
    'one huge allocation',
    'resources',
    'bytearray(1 << 40)',
    (O.OOM, O.SCRIPT_ERROR),
  ),
  Case(
    '8 children x half the limit',
    'resources',
    """
for i in range(8):
  if os.fork() == 0:
    x = bytearray(b'x') * (128 << 20); time.sleep(8); os._exit(0)
codes = [os.wait()[1] for i in range(8)]
sys.exit(1 if any(codes) else 0)
""",
    (O.OOM,),
  ),
  Case(
    'memfd bomb',
    'resources',
    """
fd = os.memfd_create('x')
while True: os.write(fd, b'x' * (1 << 20))
""",
    (O.OOM, O.SCRIPT_ERROR, O.DISK_LIMIT),
    tier='T1',
  ),
  Case(
    'shared memory bomb',
    'resources',
    """
import mmap
m = [mmap.mmap(-1, 32 << 20) for _ in range(16)]
for x in m:
  for i in range(0, 32 << 20, 4096): x[i] = 1
time.sleep(1)
""",
    (O.OOM, O.SCRIPT_ERROR),
  ),
  Case(
    '/dev/shm bomb',
    'resources',
    """
f = open('/dev/shm/x', 'wb')
while True: f.write(b'x' * (1 << 20)); f.flush()
""",
    (O.DISK_LIMIT, O.SCRIPT_ERROR),
  ),
  Case(
    'fill the disk',
    'resources',
    """
for i in range(99):
  with open('f%d' % i, 'wb') as f: f.write(os.urandom(1 << 20))
  time.sleep(0.01)
""",
    (O.DISK_LIMIT,),
  ),
  Case(
    'one file over the limit',
    'resources',
    """
f = open('f', 'wb')
while True: f.write(b'x' * (1 << 20)); f.flush()
""",
    (O.DISK_LIMIT, O.SCRIPT_ERROR),
  ),
  Case(
    'output flood',
    'resources',
    "while True: print('x' * 4096)",
    (O.OUTPUT_LIMIT,),
    check=lambda e: '' if len(e.output) < 70000 else 'kept too much',
  ),
  Case(
    'output flood to stderr (zygote)',
    'resources',
    "while True: os.write(2, b'y' * 65536)",
    (O.OUTPUT_LIMIT,),
    zygote=True,
  ),
  Case(
    'NUL, ANSI and bad UTF-8',
    'resources',
    r"os.write(1, b'\0\x1b[2J\xff\xfe ok')",
    check=lambda e: '' if 'ok' in e.output else 'output lost',
  ),
  Case(
    'thread bomb',
    'resources',
    """
import threading
n = 0
try:
  for i in range(500):
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); n += 1
except RuntimeError: pass
if n > 40: won(n)
os._exit(0)
""",
    tier='T2',
  ),
  Case(
    'descriptor exhaustion',
    'resources',
    """
n = []
try:
  while len(n) < 5000: n.append(os.open('/dev/null', 0))
except OSError: pass
if len(n) >= 5000: won(len(n))
""",
  ),
  Case('2 MB script', 'resources', 'x = 0\n' + '# pad pad pad\n' * 150000),
  Case(
    'page table bomb',
    'resources',
    """
import mmap
m = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | 0x4000, mmap.PROT_READ)
for i in range(0, 1 << 40, 2 << 20): m[i]
won()
""",
    (O.OOM, O.SCRIPT_ERROR),
  ),
  Case(
    'socket buffer bomb',
    'resources',
    """
for i in range(4): os.fork()
kept = []
def fill(s):
  s.setblocking(False); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
  try:
    while True: s.send(b'x' * 65536)
  except BlockingIOError: pass
try:
  while True:
    pair = socket.socketpair(); kept.append(pair); fill(pair[0]); fill(pair[1])
except OSError as e:
  if e.errno not in (23, 24): raise  # no memory, rather than no descriptor
time.sleep(60)
""",
    (O.OOM, O.SCRIPT_ERROR),
    tier='T2',
  ),
  Case('SysV memory, left', 'resources', _SYSV),
  Case('SysV memory, found', 'resources', _SYSV),
  # Kernel and network.
  Case(
    'TCP to the trainer',
    'network',
    """
denied(socket.create_connection, ('127.0.0.1', PORT), 1)
""",
  ),
  Case(
    'UDP',
    'network',
    """
def f():  # nobody may be there: then the second one is refused
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
  s.connect(('127.0.0.1', PORT))
  s.send(b'x'); time.sleep(0.3)
  return s.send(b'x')
denied(f)
""",
  ),
  Case('DNS', 'network', "denied(socket.getaddrinfo, 'example.com', 80)"),
  Case(
    'vsock, netlink and raw sockets',
    'network',
    """
for family in (40, 16, 17, 38): denied(socket.socket, family, 3, 0)
denied(socket.socket, 2, 3, 1)
""",
  ),
  Case(
    'host unix sockets',
    'network',
    """
def f(p):
  s = socket.socket(socket.AF_UNIX); s.connect(p); return p
for p in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket',
          '\\0jaxagent-probe'): denied(f, p)
""",
  ),
  Case(
    'unshare',
    'kernel',
    """
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000):
  if libc.unshare(flag) == 0: won(flag)
""",
  ),
  Case(
    'clone a user namespace',
    'kernel',
    """
nr = 56 if os.uname().machine == 'x86_64' else 220
r = libc.syscall(nr, 0x10000000 | 17, 0, 0, 0, 0)
if r == 0: os._exit(0)
if r > 0: won(r)
sysdenied(435, 0, 0)
""",
  ),
  Case(
    'mount and pivot',
    'kernel',
    """
if libc.mount(b'x', b'.', b'tmpfs', 0, 0) == 0: won('mount')
if libc.umount2(b'/proc', 2) == 0: won('umount')
denied(os.chroot, '.')
""",
  ),
  Case(
    'ptrace and process_vm_readv',
    'kernel',
    """
if libc.ptrace(16, os.getppid(), 0, 0) == 0: won()
buf = ctypes.create_string_buffer(64)
class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]
v = V(ctypes.addressof(buf), 64)
if libc.process_vm_readv(os.getppid(), ctypes.byref(v), 1, ctypes.byref(v), 1, 0) > 0: won()
""",
  ),
  Case(
    'io_uring, bpf, keyctl, perf',
    'kernel',
    """
for nr in (425, 426, 427): sysdenied(nr, 1, ctypes.create_string_buffer(256))
if os.uname().machine == 'x86_64':
  for nr in (321, 250, 298, 323, 248): sysdenied(nr, 0, 0, 0, 0, 0)
""",
  ),
  Case(
    'x32 numbers',
    'kernel',
    """
if os.uname().machine == 'x86_64': sysdenied(0x40000000 + 39)
""",
  ),
  Case(
    'become root',
    'kernel',
    """
denied(os.setuid, 0) if os.getuid() else denied(os.chown, '/usr', 0, 0)
denied(os.sethostname, 'x') if hasattr(os, 'sethostname') else 0
denied(socket.sethostname, 'x')
subprocess.run(['su', '-c', 'id'], stdin=subprocess.DEVNULL, timeout=5) if (
  0) else None
""",
  ),
  Case(
    'set the clock',
    'kernel',
    'denied(time.clock_settime, time.CLOCK_REALTIME, 0)',
  ),
  Case(
    'make a device',
    'kernel',
    """
denied(os.mknod, 'disk', 0o60600, os.makedev(254, 0))
denied(os.mknod, 'mem', 0o20600, os.makedev(1, 1))
""",
  ),
  Case(
    'push terminal input',
    'kernel',
    """
import fcntl
denied(fcntl.ioctl, 0, 0x5412, b'x'); denied(fcntl.ioctl, 1, 0x541C, b'x')
""",
  ),
  # Forging.
  Case(
    'os._exit(0) without a submission',
    'forging',
    'os._exit(0)',
    (O.NO_SUBMISSION,),
    collect=_SUB,
  ),
  Case(
    'SIGXCPU itself',
    'forging',
    'os.kill(os.getpid(), signal.SIGXCPU)',
    (O.SCRIPT_ERROR,),
  ),
  Case(
    'SIGXFSZ itself',
    'forging',
    """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGXFSZ)
""",
    (O.SCRIPT_ERROR,),
  ),
  Case('raise MemoryError', 'forging', 'raise MemoryError', (O.SCRIPT_ERROR,)),
  Case(
    'raise MemoryError (zygote)',
    'forging',
    'raise MemoryError',
    (O.SCRIPT_ERROR,),
    zygote=True,
  ),
  Case(
    'raise ENOSPC',
    'forging',
    "raise OSError(28, 'no space left')",
    (O.SCRIPT_ERROR,),
  ),
  Case(
    'workspace renamed away',
    'forging',
    """
open('submission.csv', 'w').write('x')
os.rename(os.getcwd(), os.getcwd() + '2')
""",
    (O.OK, O.SCRIPT_ERROR),
    collect=_SUB,
  ),
  Case(
    'workspace removed',
    'forging',
    """
os.unlink('main.py'); os.rmdir(os.getcwd())
""",
    (O.NO_SUBMISSION, O.SCRIPT_ERROR),
    collect=_SUB,
  ),
  Case(
    'workspace swapped for a link',
    'forging',
    """
here = os.getcwd(); os.rename(here, here + '2'); os.symlink('/etc', here)
""",
    (O.NO_SUBMISSION, O.SCRIPT_ERROR),
    collect=('passwd',),
  ),
  Case('exit 137', 'forging', 'os._exit(137)', (O.SCRIPT_ERROR,)),
  Case('exit 124', 'forging', 'sys.exit(124)', (O.SCRIPT_ERROR,)),
  Case('exit 125', 'forging', 'os._exit(125)', (O.SCRIPT_ERROR,)),
  Case(
    'printed result lines',
    'forging',
    """
print(json.dumps({'outcome': 'ok', 'dead': 0, 'blobs': []})); sys.exit(3)
""",
    (O.SCRIPT_ERROR,),
  ),
  Case(
    'write to descriptors 3-255',
    'forging',
    r"""
frame = b'{"dead": 0, "error": "", "blobs": []}'
for fd in range(3, 256):
  try: os.write(fd, len(frame).to_bytes(8, 'big') + frame)
  except OSError: pass
os._exit(0)
""",
  ),
  Case(
    'write to descriptors 3-255 (zygote)',
    'forging',
    r"""
for fd in range(3, 1024):
  try: os.write(fd, b'E forged')
  except OSError: pass
sys.exit(7)
""",
    (O.SCRIPT_ERROR, O.OOM),
    zygote=True,
  ),
  Case(
    'frame and gc walk',
    'forging',
    """
import gc
f = sys._getframe().f_back
while f:
  if TOKEN.decode() in repr(f.f_globals)[:100000].replace(
    repr(sys.argv), ''): won('frame')
  f = f.f_back
if any(isinstance(o, (str, bytes)) and len(o) == len(TOKEN) and o in (
  TOKEN, TOKEN.decode()) and o is not TOKEN for o in gc.get_objects()): won()
""",
    zygote=True,
  ),
  Case(
    'environment',
    'forging',
    """
for k, v in os.environ.items():
  if TOKEN.decode() in v or k.startswith(('AWS', 'SSH', 'JAXAGENT')): won(k)
""",
  ),
  Case(
    'environment (zygote)',
    'forging',
    """
libc.getenv.restype = ctypes.c_char_p
if libc.getenv(b'JAXAGENT_CANARY'): won()
""",
    zygote=True,
  ),
  Case(
    'clock tampering',
    'forging',
    """
time.monotonic = time.time = lambda: 0.0
while True: pass
""",
    (O.TIMEOUT,),
    _TIMEOUT,
    check=_quick,
  ),
  Case('syntax error', 'forging', 'def (:', (O.SCRIPT_ERROR,)),
)
