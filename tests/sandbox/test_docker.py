"""What only the docker backend promises; the rest is in test_backends.py."""

from __future__ import annotations

import threading
import time

import pytest

from jaxagent.sandbox import BackendError, SandboxPool, docker_backend, image
from jaxagent.sandbox import __main__ as cli
from jaxagent.types import Job, Limits, Outcome
from tests.sandbox import daemon

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.fixture(scope='module')
def api(docker_image):
  client = docker_backend.connect()
  yield client
  client.close()


@pytest.fixture
def pool(docker_image):
  with SandboxPool(2, backend='docker', image=docker_image) as made:
    yield made


def ours(api) -> list[str]:
  return [c['Id'] for c in daemon.containers(api)]


def sleeper(name, **fields) -> Job:
  return Job(
    name, 'main.py', files={'main.py': 'import time; time.sleep(3)'}, **fields
  )


def wait_for_container(api) -> str:
  end = time.monotonic() + 20
  while time.monotonic() < end:
    for container in daemon.containers(api):
      if container['State']['Running']:
        time.sleep(0.5)
        return container['Id']
    time.sleep(0.02)
  raise AssertionError('no container came up')


def test_a_container_is_shut_in(api, pool):
  future = pool.submit(
    sleeper('look', limits=Limits(memory_mb=300, pids=20, disk_mb=32))
  )
  found = api.inspect_container(wait_for_container(api))
  host, config = found['HostConfig'], found['Config']
  assert host['NetworkMode'] == 'none' and config['NetworkDisabled']
  assert host['ReadonlyRootfs'] and not host['Privileged']
  assert host['CapDrop'] == ['ALL'] and not host['CapAdd']
  assert 'no-new-privileges' in host['SecurityOpt']
  assert host['PidsLimit'] == 21 and host['NanoCpus'] == 10**9
  assert host['Memory'] == host['MemorySwap']
  assert 300 <= host['Memory'] >> 20 <= 330
  assert config['User'].split(':')[0] not in ('', '0', 'root')
  assert set(host['Tmpfs']) == {'/box', '/tmp'}
  assert future.result(timeout=60).outcome is Outcome.OK
  assert ours(api) == []


def test_slots_have_user_ids_of_their_own(pool):
  futures = [
    pool.submit(
      Job(
        f'u{i}',
        'main.py',
        files={'main.py': 'import os, time; print(os.getuid()); time.sleep(1)'},
      )
    )
    for i in range(2)
  ]
  ids = {f.result(timeout=60).output for f in futures}
  assert len(ids) == 2 and '0\n' not in ids


def test_a_killed_container_is_not_charged_and_runs_again(api, pool):
  future = pool.submit(sleeper('again'))
  api.kill(wait_for_container(api))
  result = future.result(timeout=60)
  assert result.outcome is Outcome.OK and result.attempts == 2


def test_a_container_removed_under_way_is_not_charged(api, pool):
  future = pool.submit(sleeper('removed'))
  api.remove_container(wait_for_container(api), force=True)
  result = future.result(timeout=60)
  assert result.outcome is Outcome.OK and result.attempts == 2


def test_labels_in_the_packages_are_covered(docker_image):
  import sklearn.datasets

  folder = sklearn.datasets.__path__[0] + '/data'
  script = (
    'import sklearn.datasets\n'
    'try: print(sklearn.datasets.load_digits().target.sum())\n'
    'except OSError as e: print(type(e).__name__)\n'
  )
  said = []
  for hidden in ((), (folder,)):
    with SandboxPool(
      1, backend='docker', image=docker_image, hidden=hidden
    ) as pool:
      said.append(
        pool.submit(Job('labels', 'main.py', files={'main.py': script}))
        .result()
        .output
      )
  assert said == ['8070\n', 'FileNotFoundError\n']


def test_containers_of_a_dead_trainer_are_swept(api, docker_image):
  def leave(process: str) -> str:
    return api.create_container(
      docker_image,
      ['python3'],
      labels={
        docker_backend.LABEL: 'x',
        f'{docker_backend.LABEL}.host': docker_backend._this_boot(),
        f'{docker_backend.LABEL}.process': process,
      },
    )['Id']

  dead = leave('1/12345')
  live = leave(docker_backend._process_key(1))
  with SandboxPool(1, backend='docker', image=docker_image):
    left = ours(api)
  api.remove_container(live)
  assert live in left and dead not in left


def test_close_kills_what_runs(api, docker_image):
  pool = SandboxPool(1, backend='docker', image=docker_image)
  future = pool.submit(sleeper('close'))
  wait_for_container(api)
  threading.Thread(target=pool.close).start()
  assert future.result(timeout=20).outcome is Outcome.KILLED
  time.sleep(0.5)
  assert ours(api) == []


def test_no_daemon(monkeypatch, capsys, tmp_path):
  monkeypatch.setenv('DOCKER_HOST', f'unix://{tmp_path}/nobody.sock')
  with pytest.raises(BackendError, match='no daemon answers at unix://'):
    SandboxPool(1, backend='docker')
  assert cli.main(['image']) == 2
  said = capsys.readouterr().err
  assert 'Start Docker' in said and said.count('\n') == 1


def test_no_image(docker_image):
  with pytest.raises(BackendError, match="no image 'nothing:0'.*sandbox image"):
    SandboxPool(1, backend='docker', image='nothing:0')


def test_an_image_without_python(api, docker_image, tmp_path):
  import tarfile

  with tarfile.open(tmp_path / 'empty.tar', 'w') as archive:
    archive.add(__file__, 'file')
  api.import_image_from_file(str(tmp_path / 'empty.tar'), 'empty', '1')
  with pytest.raises(BackendError, match="'empty:1' cannot run python3"):
    SandboxPool(1, backend='docker', image='empty:1')
  assert ours(api) == []


def test_options_of_another_backend_are_refused(capsys):
  assert cli.main(['self_check', '--unguarded', '--image', 'x']) == 2
  assert '--image' in capsys.readouterr().err


def test_an_unknown_package_is_refused():
  with pytest.raises(ValueError, match="'no-such-thing' is not installed"):
    image.contents(['no-such-thing'])


def test_every_attack_is_contained(docker_image):
  from jaxagent.sandbox import selfcheck

  with SandboxPool(2, backend='docker', image=docker_image) as pool:
    with selfcheck.bait() as argv:
      rows = selfcheck.run(pool, argv)
  assert len(rows) > 90
  assert [(case.name, bad) for case, bad, _ in rows if bad] == []
