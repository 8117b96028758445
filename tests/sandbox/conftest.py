"""What the tests of several backends share: daemons, started for real."""

import pytest

from benchmarks import ray_nodes
from jaxagent.sandbox import image
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

  assert not ray.is_initialized()
  with ray_nodes.two_nodes() as made:
    yield made
