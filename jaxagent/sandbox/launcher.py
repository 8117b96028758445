"""The launcher: one long-lived, single-threaded process that starts jobs.

It is started with a clean environment, holds no label, secret, script or
result, and dies with the trainer; every job dies with it. With `zygote` it
imports the numerical stack once and jobs are forked from it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any

from jaxagent.sandbox import (
  _afresh,
  _births,
  _cgroup,
  _counting,
  _linux,
  _remove,
  _root,
  _runner,
  _supervisor,
  _wire,
  _zygote,
)

SIGNAL_ABI = 6  # Landlock scopes signals from this version on
GUARD_S = 3.0  # past the deadline the launcher kills the supervisor itself


class Launcher:
  """Starts supervisors on request and reports their deaths."""

  def __init__(self, control: socket.socket, options: dict[str, Any]):
    self.control, self.options = control, options
    self.jobs: dict[int, dict[str, Any]] = {}  # pid -> job
    self.parent = os.getppid()
    self.zygote: int | None = 0
    self.zygote_socket: socket.socket | None = None
    self.config = self._set_up()

  def _set_up(self) -> dict[str, Any]:
    options = self.options
    off = set(options['disable'])
    inside = options.get('inside')
    config: dict[str, Any] = {
      'python': os.path.abspath(sys.executable),
      'namespaces': False,
      'container': False,
      'user_namespaces': False,
      'cgroups': None,
      'notes': [],
      'gpu_devices': options['gpu_devices'],
      'base_data': 0,
      'base_space': 0,
      'real_root': options['root'],
      'cpu_quota': False,
      'socket_bytes': _most_unread(),
      'slot_uids': options['root'],
      'readable': [],
      'environment': {},
      'slots': options['slots'],
      'runner': os.path.dirname(os.path.abspath(__file__)) + '/_runner.py',
      **(inside or {}),
    }
    config['environment'] = {**config['environment'], **options['cpu']}
    notes = config['notes']
    config['landlock_abi'] = 0 if 'landlock' in off else _linux.landlock_abi()
    config['landlock'] = config['landlock_abi'] > 0
    config['seccomp'] = 'seccomp' not in off and bool(_linux.NR)
    if 'cgroup' not in off:
      config['cgroups'], note = _cgroup.find(options['name'])
      notes.append(note)
    if config['cgroups'] and config['cgroups'].counts_cpu:
      config['cpu_quota'] = True
    if config['namespaces']:
      self._user_namespaces(config, off)
    else:
      notes += options.get('notes', [])
      if not config['slot_uids'] and config['landlock_abi'] < SIGNAL_ABI:
        notes.append(
          f'T1 as an ordinary user needs Landlock ABI {SIGNAL_ABI} (Linux '
          '6.12), which keeps jobs from signalling the trainer; this kernel '
          f'offers {config["landlock_abi"]}'
        )
      if config['slot_uids']:
        problem = _root.trial('/', _root.in_place(), options['uid_base'])
        if problem:
          notes.append(
            f'T1 as root runs jobs under other user ids, which cannot reach '
            f'the interpreter here ({problem}): make its folders readable '
            f'(chmod a+rX), or run as an ordinary user'
          )
      config['readable'] = _root.readable_in_place(options['hidden']) + [
        config['runner'],
        '/proc/meminfo',
        '/proc/cpuinfo',
        '/proc/stat',
      ]
    return config

  def _user_namespaces(self, config: dict, off: set) -> None:
    config['user_namespaces'] = 'userns' not in off
    if config['user_namespaces']:
      pid = os.fork()
      if pid == 0:
        try:
          if config['slot_uids']:
            os.setresuid(65534, 65534, 65534)
          _linux.unshare(_linux.NEWUSER)
          os._exit(0)
        except OSError:
          os._exit(1)
      if os.waitpid(pid, 0)[1]:
        config['user_namespaces'] = False
        config['notes'].append('user namespaces: refused by the kernel')

  def warm_up(self) -> None:
    """Has imported once what small jobs need; stays single-threaded.

    Where there are namespaces to fork into, by a process of its own. Raises
    `_zygote.ThreadsLeft`.
    """
    config = self.config
    if config['namespaces']:
      self.zygote, self.zygote_socket, said = _births.start(config)
      missing = said.pop('missing')
    else:
      if config['landlock']:  # a job has no /dev/shm, and joblib looks once
        os.environ['JOBLIB_MULTIPROCESSING'] = '0'
      missing = _zygote.warm_up()
      _afresh.prepare()
      said = _zygote.held()
    config.update(said)
    config['notes'] += [f'zygote: {n} cannot be imported' for n in missing]

  def hello(self) -> None:
    keys = (
      'cpu_quota',
      'namespaces',
      'user_namespaces',
      'landlock',
      'landlock_abi',
      'seccomp',
      'real_root',
      'slot_uids',
      'notes',
    )
    record = {k: self.config[k] for k in keys}
    record['cgroups'] = bool(self.config['cgroups'])
    self.control.send(json.dumps(record).encode())

  def serve(self) -> None:
    """Serves until the control socket closes or the trainer is gone."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    while os.getppid() == self.parent:
      ready = select.select([self.control.fileno(), wake_r], [], [], 0.5)[0]
      if wake_r in ready:
        os.read(wake_r, 4096)
      self._reap()
      if self.zygote is None:
        return  # a launcher that is started again has one
      if self.control.fileno() in ready and not self._request():
        return
      now = time.monotonic()
      for pid, job in self.jobs.items():
        if now > job['kill_at']:
          os.kill(pid, signal.SIGKILL)

  def _request(self) -> bool:
    data, fds, _, _ = socket.recv_fds(self.control, 65536, 4)
    if not data:
      return False
    message = json.loads(data)
    if message['op'] == 'kill':
      for pid, job in self.jobs.items():
        if job['job'] == message['job']:
          job['cancelled'] = True
          os.kill(pid, signal.SIGKILL)
      return True
    self._start(message, socket.socket(fileno=fds[0]))
    return True

  def _start(self, request: dict[str, Any], conn: socket.socket) -> None:
    config = self.config
    group = None
    request['uid'] = None
    if config['slot_uids']:
      request['uid'] = self.options['uid_base'] + request['slot']
    request['host_dir'] = f'{self.options["work_dir"]}/{request["job"]}'
    now = request['cloned_at'] = time.monotonic()
    try:
      if config['cgroups']:
        group = config['cgroups'].create(
          request['slot'],
          str(request['job']),
          request['memory_mb'],
          request['pids'],
          request['threads'],
        )
      flags = 0
      if config['namespaces']:
        flags = (
          _linux.NEWNS
          | _linux.NEWPID
          | _linux.NEWNET
          | _linux.NEWIPC
          | _linux.NEWUTS
        )
      pid = _linux.clone(flags) if flags else os.fork()
    except OSError as error:
      _wire.send(conn, {'dead': None, 'launch_error': str(error)})
      return
    if pid == 0:
      self._in_child(conn, request, group)
    self.jobs[pid] = {
      **request,
      'conn': conn,
      'group': group,
      'cancelled': False,
      'kill_at': now
      + request['timeout_s']
      + request['bring_s']
      + GUARD_S
      + 2.0,
    }
    if group:
      group.close()

  def _in_child(self, conn: socket.socket, request: dict, group) -> None:
    code = 1
    try:
      signal.set_wakeup_fd(-1)
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      # Without a pid namespace it has to take its job along.
      last = signal.SIGKILL if self.config['namespaces'] else signal.SIGTERM
      signal.signal(signal.SIGTERM, signal.SIG_DFL)
      _linux.prctl(_linux.PR_SET_PDEATHSIG, last)
      _linux.prctl(_linux.PR_SET_DUMPABLE, 0)
      if not self.config['namespaces']:
        _linux.prctl(_linux.PR_SET_CHILD_SUBREAPER, 1)
      kept = [conn.detach(), *(group.fds if group else ())]
      if self.zygote_socket:
        kept.append(self.zygote_socket.fileno())
      high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 900) for fd in kept]
      os.closerange(3, min(high))
      os.closerange(max(high) + 1, 4096)
      conn, fds = socket.socket(fileno=high[0]), high[1:]
      zygote_fd = fds.pop() if self.zygote_socket else None
      _supervisor.supervise(
        conn,
        request,
        {**self.config, 'cgroup_fds': fds, 'zygote_fd': zygote_fd},
      )
      code = 0
    except _zygote.Born:
      raise
    except BaseException:  # noqa: BLE001: the pool sees it and retries
      text = traceback.format_exc()
      try:
        _wire.send(conn, {'error': text[-2000:], 'fatal': True})
      except OSError:
        pass
    os._exit(code)

  def _reap(self) -> None:
    while self.jobs or self.zygote:
      try:
        pid, status = os.waitpid(-1, os.WNOHANG)
      except ChildProcessError:
        return
      if pid == 0:
        return
      if pid == self.zygote:
        self.zygote = None
      job = self.jobs.pop(pid, None)
      if job is None:
        continue
      trailer = {'dead': status, 'cancelled': job['cancelled']}
      if job['group']:
        trailer.update(job['group'].finish())
      if not self.config['namespaces']:
        self._kill_orphans()
        _remove.remove_tree(job['host_dir'])
      trailer['finished_at'] = time.monotonic()
      try:
        job['conn'].settimeout(2.0)
        _wire.send(job['conn'], trailer)
      except OSError:
        pass
      job['conn'].close()

  def _kill_orphans(self) -> None:
    """Ends the processes that a killed supervisor left to this one."""
    end, me, group = time.monotonic() + GUARD_S, os.getpid(), os.getpgrp()
    while time.monotonic() < end:
      left = [
        pid for pid in _counting.children().get(me, ()) if pid not in self.jobs
      ]
      for pid in left:
        try:
          theirs = os.getpgid(pid)
          if theirs != group:
            os.killpg(theirs, signal.SIGKILL)
          os.kill(pid, signal.SIGKILL)
          os.waitpid(pid, os.WNOHANG)
        except OSError:
          pass
      if not left:
        return
      time.sleep(0.001)

  def close(self) -> None:
    for pid in self.jobs:
      os.kill(pid, signal.SIGKILL)
    if self.zygote_socket:
      self.zygote_socket.close()  # it ends after its last job
    deadline = time.monotonic() + 3
    while (self.jobs or self.zygote) and time.monotonic() < deadline:
      self._reap()
      time.sleep(0.002)
    if self.zygote:
      os.kill(self.zygote, signal.SIGKILL)
      os.waitpid(self.zygote, 0)
    if self.config['cgroups']:
      self.config['cgroups'].remove()


def _most_unread() -> int:
  """The most bytes that a socket's peer may leave unread in it."""
  try:
    with open('/proc/sys/net/core/wmem_max') as f:
      return 2 * int(f.read())  # setsockopt doubles what it is given
  except (OSError, ValueError):
    return 2 * 212_992  # Linux's default


def enter_namespaces(options: dict[str, Any]) -> dict[str, Any]:
  """Enters the mount namespace whose root is the jobs' template.

  Returns what the launcher must know inside. Raises OSError where this
  machine does not allow it; nothing of the process has changed then but its
  namespaces.
  """
  uid, gid = os.geteuid(), os.getegid()
  real_root, notes = options['root'], []
  try:
    _linux.unshare(_linux.NEWNS)
  except PermissionError:
    real_root = False
    _linux.unshare(_linux.NEWUSER | _linux.NEWNS)
    for name, text in (
      ('setgroups', 'deny'),
      ('uid_map', f'0 {uid} 1'),
      ('gid_map', f'0 {gid} 1'),
    ):
      with open(f'/proc/self/{name}', 'w') as f:
        f.write(text)
  template = options['template']
  found = _root.build(template, options['gpu_devices'], options['hidden'])
  problem = _root.trial(template, found, None)
  if problem:
    raise OSError(errno.EACCES, f'no interpreter at {found.python}: {problem}')
  slot_uids = real_root
  if real_root:
    problem = _root.trial(template, found, options['uid_base'])
    if problem:
      slot_uids = False
      notes.append(
        f'no user id per slot: other users cannot read the interpreter or '
        f'its packages ({problem}); chmod -R go+rX {sys.prefix}'
      )
  _root.enter(template)
  return {
    'namespaces': True,
    'real_root': real_root,
    'slot_uids': slot_uids,
    'notes': notes,
    'python': found.python,
    'environment': _root.environment(found),
    'runner': '/sandbox_runner/_runner.py',
  }


def _start_again(control: int, options: dict[str, Any]) -> None:
  """Replaces this process by one whose modules come from inside, where there
  is an inside, and whose addresses are those of jobs."""
  os.set_inheritable(control, True)
  inside = options['inside'] or {'python': sys.executable, 'environment': {}}
  host = '/host' if options['inside'] else ''
  _linux.fixed_addresses()
  os.execve(
    inside['python'],
    [
      inside['python'],
      *_zygote.FLAGS,
      '-c',
      start_command(host + options['package_root']),
      str(control),
      json.dumps(options),
    ],
    {**os.environ, **inside['environment']},
  )


def start_command(root: str) -> str:
  """Python text that imports this file from below `root` and runs it."""
  return (
    f'import sys; sys.path.insert(0, {root!r}); '
    'from jaxagent.sandbox.launcher import main; '
    f'sys.path.remove({root!r}); main()'
  )


def main() -> None:
  """Runs the launcher: argv = control descriptor, options.

  In a job that it has forked of its imports, runs the job's script.
  """
  born = None
  try:
    _main()
  except _zygote.Born as job:
    born = job.args
  if born:
    _afresh.begin(*born[:2])
    _runner.finish(_runner.run(*born[2:]))


def _main() -> None:
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
  os.umask(0o022)
  control = int(sys.argv[1])
  options = json.loads(sys.argv[2])
  options.setdefault('root', os.geteuid() == 0)
  if 'inside' not in options:
    options['inside'] = None
    if 'namespaces' not in options['disable']:
      try:
        options['inside'] = enter_namespaces(options)
      except OSError as error:
        options['notes'] = [f'namespaces: {error}']
    _start_again(control, options)
  _serve(socket.socket(fileno=control), options)


def _serve(control: socket.socket, options: dict[str, Any]) -> None:
  _linux.prctl(_linux.PR_SET_CHILD_SUBREAPER, 1)
  hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
  resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
  launcher = Launcher(control, options)
  try:
    if options['zygote']:
      launcher.warm_up()
    launcher.hello()
    launcher.serve()
  except _zygote.Born:
    raise  # nothing of the launcher's is this process's to end
  except _zygote.ThreadsLeft as error:  # it is started again, without a zygote
    control.send(json.dumps({'threads_left': str(error)}).encode())
  except BaseException:
    launcher.close()
    raise
  launcher.close()
