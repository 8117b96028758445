"""Real vLLM servers: weights, their proof, death and what it leaves."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import machine
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines.vllm_api import Vllm
from jaxagent.sandbox import scratch
from jaxagent.testing import process_tree
from tests.rollout.served import NEW, ROOT, need_vllm, scaled, served

pytestmark = [
  pytest.mark.vllm,
  pytest.mark.slow,
  pytest.mark.timeout(300),
]
NATS = 1e-4


@pytest.fixture
def one(vllm_qwen2):
  return vllm_qwen2


def _server(one) -> int:
  """Pid of the server's first process, which leads its group."""
  (url,) = one.engine._fleet.urls
  (server,) = process_tree.children(one.engine._fleet.pid(url))
  return server


def test_a_server_serves_the_newest_weights(one):
  for version, by in ((1, 0.9), (2, 1.1), (3, 0.8)):
    new = scaled(one.params, by)
    one.engine.update_weights(new, version)
    done = one.engine.generate([one.request(i, 150) for i in range(4)])
    for c in done:
      assert c.version == version and one.gap(c, new) < NATS
      assert one.gap(c) > 100 * NATS
    assert one.engine._probe.gap_nats < NATS


def test_more_prompts_than_a_step_takes(one):
  """vLLM 0.32 on the CPU ends where it cuts the prompt of a seeded request."""
  one.engine.update_weights(one.params, 3)
  asked = [one.request(i, 310, max_new_tokens=3) for i in range(60)]
  done = one.engine.generate(asked)
  assert sum(len(c.prompt_ids) for c in done) > 2 * 8192
  assert max(one.gap(c) for c in done) < NATS


def test_after_an_update_no_key_of_earlier_weights_is_used(one):
  """Tokens of the later span are scored by the new weights alone."""
  new = scaled(one.params, 0.7)
  for wait in np.geomspace(0.02, 2, 20):
    one.engine.update_weights(one.params, 4)
    one.engine.submit([one.request(i, 140, max_new_tokens=NEW) for i in (1, 2)])
    time.sleep(wait)
    one.engine.update_weights(new, 5)
    done = [*one.engine.poll(), *one.engine.poll()]
    parted = [c for c in done if len(c.version_spans) == 2]
    if parted:
      break
  for c in parted:
    (_, _, seam), (_, _, end) = c.version_spans
    assert one.gap(c, tokens=slice(0, seam)) < NATS
    assert one.gap(c, new, tokens=slice(seam, end)) < NATS
  assert parted


def test_a_manifest_that_does_not_fit_leaves_the_weights(one):
  one.engine.update_weights(one.params, 6)
  sync = one.engine._sync
  lay_out = sync._lay_out

  def other_names(tensors):
    manifest, size = lay_out(tensors)
    manifest[1]['name'] = 'model.layers.7.nothing'
    return manifest, size

  sync._lay_out = other_names
  try:
    with pytest.raises(EngineError, match='model.layers.7.nothing: unknown'):
      one.engine.update_weights(scaled(one.params, 0.5), 7)
  finally:
    sync._lay_out = lay_out
  assert one.engine.version == 6
  assert one.gap(one.engine.generate([one.request(1)])[0]) < NATS


def test_a_cache_of_earlier_weights_is_seen(one, monkeypatch):
  async def forgotten(self):
    pass

  async def pause(
    self,
  ):  # which empties the cache, too, unless it is asked not to
    await self._call('POST', '/pause?mode=keep&clear_cache=false')

  one.engine.update_weights(one.params, 8)
  with monkeypatch.context() as patch:
    patch.setattr(Vllm, 'forget_prefixes', forgotten)
    patch.setattr(Vllm, 'pause', pause)
    with pytest.raises(EngineError, match='differ by .* nats'):
      one.engine.update_weights(scaled(one.params, 0.5), 9)
  one.engine.update_weights(one.params, 10)


@pytest.mark.alone
def test_killed_in_mid_request_it_comes_back(one):
  """Of its two processes the one that computes (tests.runs: the other)."""
  requests = [one.request(i, 40, max_new_tokens=NEW) for i in range(24)]
  new = scaled(one.params, 0.9)
  one.engine.update_weights(new, 11)
  calm = {c.request_id: c for c in one.engine.generate(requests)}
  server = _server(one)
  victim = next(
    p
    for p in process_tree.children(server)
    if 'EngineCore' in process_tree.name(p)
  )
  before = one.engine.resubmitted
  one.engine.submit(requests)
  time.sleep(0.2)
  os.kill(victim, signal.SIGKILL)
  began = time.monotonic()
  found = {}
  while some := one.engine.poll():
    assert not found.keys() & {c.request_id for c in some}
    found |= {c.request_id: c for c in some}
  took = time.monotonic() - began
  assert one.engine.resubmitted > before
  assert found.keys() == calm.keys()
  for name, c in found.items():
    np.testing.assert_array_equal(c.token_ids, calm[name].token_ids)
    assert one.gap(c, new) < NATS
  assert _server(one) != server
  print(f'back after {took:.1f} s')
  # Imports take most of it: longer where the machine is slower.
  assert took < 30 or took < 30 * machine.speed_index()


def _shared_memory() -> set[str]:
  """Segments and semaphores of Python's processes on this machine."""
  return {
    p.name
    for p in pathlib.Path('/dev/shm').iterdir()
    if p.name.startswith(('psm_', 'sem.mp-'))
  }


_TRAINER = """
import pathlib, sys, time
from tests.rollout.served import served
with served('vllm', 'qwen2', pathlib.Path(sys.argv[1])) as one:
  one.engine.submit([one.request(i, max_new_tokens=160) for i in range(64)])
  (url,) = one.engine._fleet.urls
  print(one.engine._fleet.pid(url), one.engine._sync._path(), flush=True)
  time.sleep(600)
"""


@pytest.mark.alone  # the machine's shared memory is counted
def test_nothing_is_left_of_it_when_the_trainer_is_killed(tmp_path):
  need_vllm()
  shared = _shared_memory()
  trainer = subprocess.Popen(
    [sys.executable, '-c', _TRAINER, str(tmp_path)],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )
  guard, weights = trainer.stdout.readline().split(maxsplit=1)
  guard, weights = int(guard), pathlib.Path(weights.strip())
  started = process_tree.below(guard)
  assert len(started) >= 2
  trainer.kill()
  trainer.wait()
  end = time.monotonic() + 10
  while any(map(process_tree.lives, [guard, *started])):
    assert time.monotonic() < end, list(map(process_tree.name, started))
    time.sleep(0.05)
  assert _shared_memory() == shared  # what the server had is given back
  assert weights.exists()
  scratch.sweep(str(weights.parents[1]))  # as the next trainer does
  assert not weights.exists()


def test_somebody_elses_server_and_a_checkpoint_without_the_plug_in(
  one, tmp_path
):
  """The last test: the server's weights are another's afterwards."""
  options = {'urls': one.engine._fleet.urls, 'sync': 'folder'}
  with served('vllm', 'qwen2', tmp_path, vllm=options) as other:
    for version, by in ((1, 0.8), (2, 1.2)):
      new = scaled(other.params, by)
      other.engine.update_weights(new, version)
      done = other.engine.generate([other.request(1)])[0]
      assert done.version == version and other.gap(done, new) < NATS
