"""What the tests of several backends share: daemons, started for real."""

import os
import signal
import tempfile

import pytest

from jaxagent.sandbox import image, ray_private
from tests.sandbox import daemon


@pytest.fixture(scope='session')
def docker_image(tmp_path_factory):
  """DOCKER_HOST set to a daemon of this session; yields an image's name."""
  if reason := daemon.missing():
    pytest.skip(reason)
  with daemon.running() as address, pytest.MonkeyPatch.context() as patch:
    patch.setenv('DOCKER_HOST', address)
    image.make('tests:1')
    yield 'tests:1'


@pytest.fixture
def cluster():
  """A head without CPUs and two nodes of two, on the loopback."""
  import ray
  from ray.cluster_utils import Cluster

  assert not ray.is_initialized()
  with (
    ray_private.loopback(),
    tempfile.TemporaryDirectory(prefix='jar-', dir='/tmp') as folder,
    ray_private.own_address_file(folder),
  ):
    health = {
      f'health_check_{k}': v
      for k, v in {
        'initial_delay_ms': 1000,
        'period_ms': 500,
        'timeout_ms': 500,
        'failure_threshold': 3,
      }.items()
    }
    store = {'object_store_memory': ray_private.STORE_BYTES}
    made = Cluster(
      initialize_head=True,
      head_node_args={
        'num_cpus': 0,
        'temp_dir': folder,
        'include_dashboard': False,
        '_system_config': health,
        **store,
      },
    )
    made.removable = [made.add_node(num_cpus=2, **store) for _ in range(2)]
    try:
      yield made
    finally:
      theirs = ray_private.processes_of(folder)
      made.shutdown()
      for pid, start in theirs.items():
        if ray_private.started(pid) == start:
          os.kill(pid, signal.SIGKILL)
