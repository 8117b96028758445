"""RL over Docker and Ray, from starts to report; containers and a node killed
under way. The policy is taught once, over the local backend."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import time

import docker.errors
import pytest

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.data.ledger import Ledger
from jaxagent.recipes.results import read_traces
from jaxagent.sandbox import docker_backend
from tests.runs import TAUGHT, environment, give_taught
from tests.sandbox import daemon
from tests.sandbox.conftest import cluster, docker_image  # noqa: F401

ROOT = pathlib.Path(__file__).parents[2]
UPDATES, BATCH, KILLS = 4, 8, 3
OPTIONS = (
  *TAUGHT,
  f'--config.rl.updates={UPDATES}',
  f'--config.rl.batch_size={BATCH}',
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def work(tmp_path, tmp_path_factory) -> pathlib.Path:
  """The stages until SFT are done: starts, RL and evaluation are not."""
  give_taught(tmp_path / 'work', tmp_path_factory)
  return tmp_path / 'work'


def _start(work: pathlib.Path, *options: str) -> subprocess.Popen:
  with open(work.parent / 'out.txt', 'w') as out:
    return subprocess.Popen(
      [
        sys.executable,
        '-m',
        'jaxagent.main',
        *OPTIONS,
        *options,
        f'--work_dir={work}',
      ],
      cwd=ROOT,
      env=environment(),
      stdout=out,
      stderr=subprocess.STDOUT,
    )


def _wait_until(process: subprocess.Popen, seen, work: pathlib.Path):
  """The first true value of `seen()` while the process lives."""
  end = time.monotonic() + 600
  while time.monotonic() < end:
    if value := seen():
      return value
    assert process.poll() is None, (work.parent / 'out.txt').read_text()[-3000:]
    time.sleep(0.02)
  raise AssertionError('it did not come to that')


def _executions(work: pathlib.Path) -> list[dict]:
  log = work / 'logs' / 'executions.jsonl'
  if not log.exists():
    return []
  return [
    json.loads(l)
    for l in log.read_text().splitlines(keepends=True)
    if l.endswith('\n')
  ]


def _of_rl(work: pathlib.Path) -> list[dict]:
  return [e for e in _executions(work) if e['job_id'].startswith('0/')]


def _check(process: subprocess.Popen, work: pathlib.Path) -> None:
  code = process.wait(600)
  assert code == 0, (work.parent / 'out.txt').read_text()[-3000:]
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == UPDATES * BATCH
  assert audit.audit(work)['differences'] == []
  assert load(work / 'summary.json')['isolation_tier'] == 'T3'
  assert _of_rl(work)
  # What still runs 10 s after the last update is stopped: no step that is trained.
  turns = read_traces(work / 'rl' / 'traces')
  trained = [turn.record.outcome.value for turn in turns]
  assert trained and not {'killed', 'infrastructure'} & set(trained)
  outcomes = [e['outcome'] for e in _executions(work)]
  # A job whose every attempt was hit is `infrastructure`: run again, unpaid.
  assert outcomes.count('infrastructure') <= KILLS


def test_docker_with_a_container_killed(docker_image, work):  # noqa: F811
  process = _start(
    work,
    '--config.sandbox.backend=docker',
    f'--config.sandbox.docker_image={docker_image}',
  )
  api = docker_backend.connect()
  try:
    _wait_until(process, lambda: _executions(work), work)
    killed = 0
    while killed < KILLS:
      found = _wait_until(
        process, lambda: daemon.containers(api, 'running'), work
      )
      with contextlib.suppress(docker.errors.APIError):  # it ended by itself
        api.kill(found[0]['Id'])
        killed += 1
      if killed == KILLS - 1:
        _wait_until(process, lambda: _of_rl(work), work)
    _check(process, work)
    assert not daemon.containers(api)
  finally:
    process.kill()
    process.wait()
    api.close()


@pytest.mark.quiet  # a private cluster: also tests.sandbox.test_ray
def test_ray(work):
  process = _start(work, '--config.sandbox.backend=ray')
  try:
    _check(process, work)
  finally:
    process.kill()
    process.wait()


def test_ray_with_a_node_killed(cluster, work):  # noqa: F811
  """The slots lie on two nodes; what the lost one ran comes out elsewhere."""
  process = _start(
    work,
    '--config.sandbox.backend=ray',
    f'--config.sandbox.ray_address={cluster.address}',
  )
  try:
    _wait_until(process, lambda: _of_rl(work), work)
    cluster.remove_node(cluster.removable[0], allow_graceful=False)
    _check(process, work)
    # What the lost slot had comes out at the second attempt, elsewhere.
    assert 2 in [e.get('attempts') for e in _executions(work)]
    assert 'infrastructure' not in [e['outcome'] for e in _executions(work)]
  finally:
    process.kill()
    process.wait()
