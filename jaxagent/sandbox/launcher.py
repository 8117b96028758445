"""The launcher: one long-lived, single-threaded process that starts jobs.

It is started with a clean environment, holds no label, secret, script or
result, and dies with the trainer; every job dies with it. With `zygote` it
imports the numerical stack once and jobs are forked from it.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from typing import Any

from jaxagent.sandbox import _cgroup, _linux, _remove, _supervisor, _wire

ZYGOTE_MODULES = (
  'numpy numpy.random numpy.linalg numpy.fft pandas scipy scipy.sparse '
  'scipy.stats scipy.optimize scipy.special scipy.linalg sklearn '
  'sklearn.pipeline sklearn.preprocessing sklearn.linear_model '
  'sklearn.ensemble sklearn.tree sklearn.neighbors sklearn.naive_bayes '
  'sklearn.svm sklearn.decomposition sklearn.feature_extraction.text '
  'sklearn.feature_selection sklearn.impute sklearn.compose sklearn.metrics '
  'sklearn.model_selection sklearn.neural_network sklearn.cluster '
  'sklearn.kernel_ridge sklearn.discriminant_analysis sklearn.dummy '
  'sklearn.multiclass sklearn.calibration '
  'sklearn.gaussian_process sklearn.random_projection '
  'csv json math re random collections itertools functools statistics '
  'datetime time pathlib io string warnings'
).split()
GUARD_S = 3.0  # past the deadline the launcher kills the supervisor itself


def _system_paths() -> list[str]:
  """What a job may read of the host: system libraries and this Python."""
  python = os.path.realpath(sys.executable)
  prefixes = [sys.prefix, sys.base_prefix, os.path.dirname(
    os.path.dirname(python))]
  paths = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64',
           '/etc/ld.so.cache', '/etc/alternatives', '/etc/localtime']
  for prefix in map(os.path.abspath, prefixes):
    if prefix not in paths and not prefix.startswith('/usr'):
      paths.append(prefix)
  return [p for p in paths if os.path.lexists(p)]


def _build_template(root: str, gpu_devices: list[str]) -> None:
  """A read-only root file system, mounted once and copied by every job."""
  _linux.mount('', '/', '', _linux.MS_PRIVATE | _linux.MS_REC)
  _linux.mount('root', root, 'tmpfs', _linux.MS_NOSUID, 'size=4m,mode=0755')
  for name in ('proc', 'dev', 'etc', 'box', 'sandbox_runner'):
    os.mkdir(f'{root}/{name}', 0o755)
  here = os.path.dirname(os.path.abspath(__file__))
  shutil.copyfile(here + '/_runner.py', root + '/sandbox_runner/_runner.py')
  user = _supervisor.INSIDE_UID
  for name, line in (
    ('passwd', f'sandbox:x:{user}:{user}::/box/tmp:/bin/sh\n'),
    ('group', f'sandbox:x:{user}:\n'),
    ('hosts', '127.0.0.1 localhost sandbox\n'),
  ):
    with open(f'{root}/etc/{name}', 'w') as f:
      f.write(line)
  for path in _system_paths():
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
      os.symlink(os.readlink(path), target)
    else:
      _placeholder(path, target)
      _linux.bind_read_only(path, target)
  for name in ('null', 'zero', 'full', 'random', 'urandom'):
    gpu_devices = [f'/dev/{name}', *gpu_devices]
  for path in gpu_devices:
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    _placeholder(path, root + path)
    _linux.bind_read_only(path, root + path, device=True)
  for link, target in (
    ('tmp', 'box/tmp'), ('dev/shm', '../box/shm'), ('workspace',
    'box/workspace'), ('dev/fd', '/proc/self/fd'),
    ('dev/stdin', '/proc/self/fd/0'), ('dev/stdout', '/proc/self/fd/1'),
    ('dev/stderr', '/proc/self/fd/2'),
  ):
    os.symlink(target, f'{root}/{link}')
  _linux.mount(
    '', root, '', _linux.MS_REMOUNT | _linux.MS_BIND | _linux.MS_RDONLY
    | _linux.MS_NOSUID,
  )


def _placeholder(path: str, target: str) -> None:
  if os.path.isdir(path):
    os.makedirs(target, exist_ok=True)
  elif not os.path.exists(target):
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


class Launcher:
  """Starts supervisors on request and reports their deaths."""

  def __init__(self, control: socket.socket, options: dict[str, Any]):
    self.control, self.options = control, options
    self.jobs: dict[int, dict[str, Any]] = {}  # pid -> job
    self.parent = os.getppid()
    self.config = self._set_up()

  def _set_up(self) -> dict[str, Any]:
    options, notes = self.options, []
    off = set(options['disable'])
    config: dict[str, Any] = {
      'python': os.path.abspath(sys.executable), 'namespaces': False,
      'user_namespaces': False, 'cgroups': None, 'notes': notes,
      'gpu_devices': options['gpu_devices'], 'base_data': 0,
      'real_root': os.geteuid() == 0, 'readable': [],
      'runner': os.path.dirname(os.path.abspath(__file__)) + '/_runner.py',
    }
    config['landlock'] = 'landlock' not in off and _linux.landlock_abi() > 0
    config['seccomp'] = 'seccomp' not in off and bool(_linux.NR)
    if 'cgroup' not in off:
      config['cgroups'], note = _cgroup.find(options['name'])
      notes.append(note)
    if 'namespaces' not in off:
      self._namespaces(config, notes, off)
    if not config['namespaces']:
      config['readable'] = _system_paths() + [
        config['runner'], '/proc/meminfo', '/proc/cpuinfo', '/proc/stat']
    return config

  def _namespaces(self, config: dict, notes: list[str], off: set) -> None:
    try:
      uid, gid = os.geteuid(), os.getegid()
      try:
        _linux.unshare(_linux.NEWNS)
      except PermissionError:
        config['real_root'] = False
        _linux.unshare(_linux.NEWUSER | _linux.NEWNS)
        for name, text in (('setgroups', 'deny'), ('uid_map', f'0 {uid} 1'),
                           ('gid_map', f'0 {gid} 1')):
          with open(f'/proc/self/{name}', 'w') as f:
            f.write(text)
      _build_template(self.options['template'], config['gpu_devices'])
      config['template'] = self.options['template']
      config['runner'] = '/sandbox_runner/_runner.py'
      config['namespaces'] = True
    except OSError as error:
      notes.append(f'namespaces: {error}')
      return
    config['user_namespaces'] = 'userns' not in off
    if config['user_namespaces']:
      pid = os.fork()
      if pid == 0:
        try:
          if config['real_root']:
            os.setresuid(65534, 65534, 65534)
          _linux.unshare(_linux.NEWUSER)
          os._exit(0)
        except OSError:
          os._exit(1)
      if os.waitpid(pid, 0)[1]:
        config['user_namespaces'] = False
        notes.append('user namespaces: refused by the kernel')

  def warm_up(self) -> None:
    """Imports once what small jobs need; stays single-threaded."""
    import importlib
    import warnings

    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      for name in ZYGOTE_MODULES:
        try:
          importlib.import_module(name)
        except ImportError:
          self.config['notes'].append(f'zygote: {name} cannot be imported')
    gc.collect()
    gc.freeze()
    if len(os.listdir('/proc/self/task')) > 1:
      raise RuntimeError('the zygote has threads; it must have none.')
    with open('/proc/self/status') as f:
      for line in f:
        if line.startswith('VmData'):
          self.config['base_data'] = int(line.split()[1]) * 1024

  def hello(self) -> None:
    keys = ('namespaces', 'user_namespaces', 'landlock', 'seccomp',
            'real_root', 'notes')
    record = {k: self.config[k] for k in keys}
    record['cgroups'] = bool(self.config['cgroups'])
    self.control.send(json.dumps(record).encode())

  def serve(self) -> None:
    """Until the control socket closes or the trainer is gone."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    while os.getppid() == self.parent:
      ready, _, _ = select.select([self.control, wake_r], [], [], 0.5)
      if wake_r in ready:
        os.read(wake_r, 4096)
      self._reap()
      if self.control in ready and not self._request():
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
    if config['real_root']:
      request['uid'] = self.options['uid_base'] + request['slot']
    request['host_dir'] = f'{self.options["work_dir"]}/{request["job"]}'
    now = request['cloned_at'] = time.monotonic()
    try:
      if config['cgroups']:
        group = config['cgroups'].create(
          request['slot'], str(request['job']), request['memory_mb'],
          request['pids'],
        )
      flags = 0
      if config['namespaces']:
        flags = (_linux.NEWNS | _linux.NEWPID | _linux.NEWNET
                 | _linux.NEWIPC | _linux.NEWUTS)
      pid = _linux.clone(flags) if flags else os.fork()
    except OSError as error:
      _wire.send(conn, {'dead': None, 'launch_error': str(error)})
      return
    if pid == 0:
      self._in_child(conn, request, group)
    self.jobs[pid] = {
      **request, 'conn': conn, 'group': group, 'cancelled': False,
      'kill_at': now + request['timeout_s'] + GUARD_S + 2.0,
    }
    if group:
      group.close()

  def _in_child(self, conn: socket.socket, request: dict, group) -> None:
    code = 1
    try:
      signal.set_wakeup_fd(-1)
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      _linux.prctl(_linux.PR_SET_PDEATHSIG, signal.SIGKILL)
      _linux.prctl(_linux.PR_SET_DUMPABLE, 0)
      if not self.config['namespaces']:
        _linux.prctl(_linux.PR_SET_CHILD_SUBREAPER, 1)
      kept = [conn.detach(), *(group.fds if group else ())]
      high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 900) for fd in kept]
      os.closerange(3, min(high))
      os.closerange(max(high) + 1, 4096)
      conn, fds = socket.socket(fileno=high[0]), high[1:]
      _supervisor.supervise(
        conn, request, {**self.config, 'cgroup_fds': fds}
      )
      code = 0
    except BaseException:  # noqa: BLE001: the pool sees it and retries
      text = traceback.format_exc()
      try:
        _wire.send(conn, {'error': text[-2000:], 'fatal': True})
      except OSError:
        pass
    finally:
      os._exit(code)

  def _reap(self) -> None:
    while self.jobs:
      try:
        pid, status = os.waitpid(-1, os.WNOHANG)
      except ChildProcessError:
        return
      if pid == 0:
        return
      job = self.jobs.pop(pid, None)
      if job is None:
        continue
      trailer = {'dead': status, 'cancelled': job['cancelled']}
      if job['group']:
        trailer.update(job['group'].finish())
      if not self.config['namespaces']:
        _remove.remove_tree(job['host_dir'])
      trailer['finished_at'] = time.monotonic()
      try:
        job['conn'].settimeout(2.0)
        _wire.send(job['conn'], trailer)
      except OSError:
        pass
      job['conn'].close()

  def close(self) -> None:
    for pid in self.jobs:
      os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 3
    while self.jobs and time.monotonic() < deadline:
      self._reap()
      time.sleep(0.002)
    if self.config['cgroups']:
      self.config['cgroups'].remove()


def main() -> None:
  """Entry of the launcher process: argv = control descriptor, options."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
  _linux.prctl(_linux.PR_SET_CHILD_SUBREAPER, 1)
  control = socket.socket(fileno=int(sys.argv[1]))
  options = json.loads(sys.argv[2])
  hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
  resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
  launcher = Launcher(control, options)
  if options['zygote']:
    launcher.warm_up()
  launcher.hello()
  try:
    launcher.serve()
  finally:
    launcher.close()
