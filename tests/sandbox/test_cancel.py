"""A cancel that fails or hangs stops nothing else (doubles)."""

from __future__ import annotations

import threading

import pytest

from jaxagent.sandbox import BackendError, docker_backend, outcome
from jaxagent.sandbox import pool as pools
from jaxagent.types import Job, Outcome


class Backend:
  """A job runs until `end`; `cancel` does what it is told."""

  name, tier = 'double', 'T3'

  def __init__(self):
    self.began, self.end = threading.Event(), threading.Event()
    self.closed = False

  def start(self):
    return self.tier

  def run(self, job, slot, timeout_s, gpu_ids=(), cancelled=lambda: False):
    self.began.set()
    self.end.wait(30)
    return outcome.killed(job, self.tier)

  def stats(self):
    return {}

  def close(self):
    self.closed = True


def _job(name):
  return Job(name, 'main.py', files={'main.py': 'pass'})


@pytest.fixture
def made(monkeypatch):
  """(pool of one slot, its backend)."""
  backend = Backend()
  monkeypatch.setattr(pools, 'make_backend', lambda *_, **__: backend)
  monkeypatch.setattr(pools.probe, 'confirm', lambda made, _: made.tier)
  backend.cancel = lambda job_id: True
  pool = pools.SandboxPool(1)
  yield pool, backend
  backend.end.set()
  pool.close()


def test_a_pool_closes_its_backend_whatever_a_cancel_does(made):
  pool, backend = made

  def cancel(job_id):
    backend.end.set()
    raise ConnectionError('the daemon is being restarted')

  backend.cancel = cancel
  future = pool.submit(_job('a'))
  assert backend.began.wait(10)
  pool.close()
  assert backend.closed
  assert future.result(timeout=10).outcome is Outcome.KILLED


def test_a_cancel_that_hangs_keeps_its_own_job_alone(made):
  """Its id, too, which it names the job by."""
  pool, backend = made
  asked, answer = threading.Event(), threading.Event()

  def cancel(job_id):
    asked.set()
    return answer.wait(30)

  backend.cancel = cancel
  future = pool.submit(_job('a'))
  assert backend.began.wait(10)
  thread = threading.Thread(target=pool.cancel, args=('a',), daemon=True)
  thread.start()
  assert asked.wait(10)
  assert pool._changed.acquire(timeout=5)  # whoever submits would need it
  pool._changed.release()
  backend.end.set()
  with pytest.raises(ValueError, match="'a' is already in the pool"):
    pool.submit(_job('a'))
  answer.set()
  thread.join(10)
  assert future.result(timeout=10).outcome is Outcome.KILLED
  again = pool.submit(_job('a'))
  assert again.result(timeout=10).outcome is Outcome.KILLED


class Api:
  def kill(self, container):
    raise ConnectionResetError('the daemon is being restarted')


@pytest.mark.parametrize('found', [Api(), BackendError('no daemon answers')])
def test_a_docker_cancel_never_raises(monkeypatch, found):
  def connect():
    if isinstance(found, Exception):
      raise found
    return found

  monkeypatch.setattr(docker_backend, 'connect', connect)
  backend = docker_backend.DockerBackend(1)
  run = docker_backend._Run(container='c', started=True)
  backend._runs['a'] = run
  assert backend.cancel('a') and run.cancelled
  assert not backend.cancel('b')
