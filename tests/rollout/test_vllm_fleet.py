"""Fleets that are closed while one of their servers is brought back."""

from __future__ import annotations

import threading

import pytest

from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines import vllm_fleet
from jaxagent.rollout.engines.vllm_api import ServerOptions
from jaxagent.testing.fake_vllm import FakeVllm


def test_closing_ends_the_wait_for_a_lost_server():
  fake = FakeVllm()
  fleet = vllm_fleet.RemoteFleet([fake.url])
  fake.close()
  told = []

  def revive():
    try:
      fleet.revive(fake.url)
    except EngineError as error:
      told.append(str(error))

  thread = threading.Thread(target=revive, daemon=True)
  thread.start()
  fleet.close()
  thread.join(20)
  assert told and 'closed meanwhile' in told[0]


@pytest.fixture
def launched(tmp_path):
  """A fleet of one server that was never started: its program fails."""
  fleet = vllm_fleet.LaunchedFleet(
    '/bin/false',
    tmp_path,
    tmp_path / 'logs',
    ServerOptions('float32', 64, 1, 'folder', cpu=True),
    n=0,
  )
  fleet.urls, fleet._devices = ('http://127.0.0.1:1',), ('',)
  yield fleet
  fleet.close()


def test_none_is_started_once_the_fleet_is_closed(launched):
  launched.close()
  with pytest.raises(EngineError, match='closed meanwhile'):
    launched.revive(*launched.urls)
  assert not launched._processes


def test_closing_ends_the_wait_for_a_starting_server(launched, monkeypatch):
  """And the server itself."""
  monkeypatch.setattr(vllm_fleet, 'wait_healthy', _closing(launched))
  with pytest.raises(EngineError, match='closed meanwhile'):
    launched.revive(*launched.urls)
  assert not launched._processes


def _closing(fleet):
  """`wait_healthy`, as another thread closes the fleet."""
  wait = vllm_fleet.wait_healthy

  def closes(*args):
    assert fleet._processes
    fleet.close()
    wait(*args)

  return closes
