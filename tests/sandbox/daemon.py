"""A Docker daemon of the tests' own: private socket, data and cgroup parent."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator

from jaxagent.sandbox import docker_backend

_SYS_ADMIN = 1 << 21


def containers(api, status: str | None = None) -> list[dict]:
  """The backend's containers, inspected.

  Docker 20 may list one for ever that is removed; no other call finds it.
  """
  import docker.errors

  filters = {'label': docker_backend.LABEL}
  if status:
    filters['status'] = status
  found = []
  for listed in api.containers(all=True, filters=filters):
    with contextlib.suppress(docker.errors.NotFound):
      found.append(api.inspect_container(listed['Id']))
  return found


def missing() -> str:
  """'' where a daemon can be started, else why not.

  Raises AssertionError where it is missing and could be installed.
  """
  if os.geteuid() != 0:
    return 'a Docker daemon of its own needs root'
  status = pathlib.Path('/proc/self/status').read_text()
  held = int(status.split('CapEff:')[1].split()[0], 16)
  if not held & _SYS_ADMIN:
    return 'a Docker daemon needs CAP_SYS_ADMIN'
  if shutil.which('dockerd'):
    return ''
  if shutil.which('apt-get') is None:
    return 'no dockerd and no apt-get'
  trial = subprocess.run(
    ['apt-get', 'install', '--dry-run', '-qq', 'docker.io'],
    capture_output=True,
    text=True,
    check=False,
  )
  assert trial.returncode, (
    'dockerd is missing and can be installed: bash '
    'launch_scripts/install_docker.sh'
  )
  return f'docker.io cannot be installed: {trial.stderr[-300:]}'


@contextlib.contextmanager
def running() -> Iterator[str]:
  """Starts dockerd; yields the value for DOCKER_HOST. Leaves nothing behind."""
  name = f'jaxagent-test-{uuid.uuid4().hex[:8]}'
  folder = pathlib.Path(tempfile.mkdtemp(prefix=name))
  address = f'unix://{folder}/d.sock'
  with open(folder / 'log', 'wb') as log:
    process = subprocess.Popen(
      [
        'dockerd',
        '-H',
        address,
        '--data-root',
        folder / 'data',
        '--exec-root',
        folder / 'exec',
        '--pidfile',
        folder / 'pid',
        '--iptables=false',
        '--ip6tables=false',
        '--bridge=none',
        '--ip-forward=false',
        '--ip-masq=false',
        '--userland-proxy=false',
        f'--cgroup-parent=/{name}',
      ],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
    )
  try:
    _wait(process, folder)
    yield address
  finally:
    process.send_signal(signal.SIGTERM)
    try:
      process.wait(30)
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
    _tidy(folder, name)


def _wait(process: subprocess.Popen, folder: pathlib.Path) -> None:
  end = time.monotonic() + 60
  while time.monotonic() < end and process.poll() is None:
    if (folder / 'd.sock').exists():
      return
    time.sleep(0.05)
  text = (folder / 'log').read_text(errors='replace')
  raise AssertionError(f'dockerd did not start: {text[-1500:]}')


def _tidy(folder: pathlib.Path, name: str) -> None:
  with open('/proc/self/mounts') as f:
    mounts = [line.split()[1] for line in f]
  for mount in sorted(
    (m for m in mounts if m.startswith(str(folder))), reverse=True
  ):
    subprocess.run(['umount', '-l', mount], check=False)
  shutil.rmtree(folder, ignore_errors=True)
  for group in pathlib.Path('/sys/fs/cgroup').glob(f'*/{name}'):
    for path in sorted(group.glob('**/'), reverse=True):
      with contextlib.suppress(OSError):
        path.rmdir()
