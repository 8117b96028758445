"""Adapters beside a base that stays: names, folders, proofs (servers are doubles)."""

from __future__ import annotations

import pathlib
import threading
import time

import numpy as np
import pytest

from jaxagent import types
from jaxagent.rollout.engine import Ends, EngineError, RequestLimits
from jaxagent.rollout.engines import vllm_adapters
from jaxagent.rollout.engines.vllm_adapters import AdapterSync
from jaxagent.rollout.engines.vllm_engine import VllmEngine
from jaxagent.rollout.engines.weight_probe import LogProbProbe
from jaxagent.testing.fake_vllm import FakeVllm


class Fleet:
  """Doubles, which begin anew at their own addresses."""

  def __init__(self, n: int = 1, **options):
    self.fakes = {f.url: f for f in (FakeVllm(**options) for _ in range(n))}
    self.urls = tuple(self.fakes)
    self.revived: list[str] = []

  def revive(self, url):
    self.revived.append(url)

  def hint(self):
    return 'look here'

  def close(self):
    for fake in self.fakes.values():
      fake.close()


class Base:
  """Only the version travels; the double computes with it modulo 1000."""

  def __init__(self):
    self.written: list[int] = []

  def write(self, params, version):
    self.written.append(version)

  async def push(self, server):
    told = {'path': '/nowhere', 'tensors': []}
    await server.load_weights(told, self.written[-1])

  def close(self):
    pass


class Model:
  """Parameters are (base, value of the adapter or None)."""

  rank = 8

  def split(self, params):
    base, value = params
    return [base], value

  def is_same(self, base, other):
    return base[0] is other[0]

  def save(self, params, folder: pathlib.Path):
    folder.mkdir()
    (folder / 'value').write_text(str(params[1]))

  def random(self, params, size):
    return params[0], 60.0 * size  # 0.6 nats: a second, stronger one is needed


@pytest.fixture
def made(tmp_path):
  """(engine, fleet, base) makers; engines are closed at the end."""
  engines = []

  def make(n=1, probed=None, **options):
    fleet, base = Fleet(n, **options), Base()

    def score(params, tokens):
      value = params[1] if isinstance(params, tuple) else None
      label = base.written[-1] % 1000
      return np.full(len(tokens) - 1, -(label + (value or 0.0)) / 100)

    probe = LogProbProbe(
      score, vocab_size=50, prompt_tokens=4, max_gap_nats=1e-3
    )
    sync = AdapterSync(base, Model(), probe, tmp_path / 'served')
    limits = RequestLimits(50, max_prompt_tokens=32, max_new_tokens=400)
    engines.append(VllmEngine(fleet, sync, probe, limits, Ends()))
    return engines[-1], fleet, base

  yield make
  for engine in engines:
    engine.close()


def _request(i: int, n: int = 4) -> types.Request:
  prompt = np.arange(1 + i % 7, dtype=np.int32)
  return types.Request(f'r{i}', prompt, i, types.Sampling(max_new_tokens=n))


def _until(holds) -> None:
  end = time.monotonic() + 10
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.01)


BASE = object()


def test_a_version_of_adapters_has_a_name_of_its_own_and_no_request_stands_still(
  made, tmp_path
):
  engine, fleet, base = made(2)
  engine.update_weights((BASE, 0.0), 0)
  for fake in fleet.fakes.values():
    fake.calls.clear()
  names = set()
  for version in range(1, 5):
    engine.update_weights((BASE, 7.0 * version), version)
    (done,) = engine.generate([_request(version)])
    assert done.version_spans == ((version, 0, 4),)
    label = base.written[0] % 1000
    np.testing.assert_allclose(
      done.logprobs, -(label + 7.0 * version) / 100, rtol=1e-6
    )
    for fake in fleet.fakes.values():
      _until(lambda fake=fake: len(fake.adapters) == 1)
      names |= set(fake.adapters)
  assert len(names) == 4 and len(base.written) == 1  # of both servers
  calls = {call for fake in fleet.fakes.values() for call in fake.calls}
  assert not calls & {'/pause?mode=keep', '/update_weights', '/resume'}
  (folder,) = (tmp_path / 'served').iterdir()
  _until(lambda: len([p for p in folder.iterdir() if p.is_dir()]) == 1)


def test_a_request_keeps_the_adapter_that_it_began_with(made):
  engine, fleet, _ = made(token_s=0.01)
  engine.update_weights((BASE, 1.0), 1)
  (fake,) = fleet.fakes.values()
  found: list[types.Completion] = []
  put = threading.Event()

  def keep(done):
    found.append(done)
    put.set()

  engine.submit([_request(0, 200)], put=keep)
  _until(lambda: fake.calls.count('/inference/v1/generate') > 3)
  engine.update_weights((BASE, 2.0), 2)
  engine.update_weights((BASE, 3.0), 3)
  _until(lambda: set(fake.adapters.values()) == {1.0, 3.0})  # 2 is gone
  (late,) = engine.generate([_request(1)])
  assert late.version_spans == ((3, 0, 4),)
  assert put.wait(10) and found[0].version_spans == ((1, 0, 200),)
  assert len(set(found[0].logprobs)) == 1
  _until(lambda: len(fake.adapters) == 1)


def test_a_new_base_is_pushed_and_an_equal_one_is_not(made):
  engine, fleet, base = made()
  engine.update_weights((BASE, None), 0)  # all weights are trained
  engine.update_weights((object(), None), 1)
  assert base.written == [0, 1]
  assert engine.generate([_request(0)])[0].version_spans == ((1, 0, 4),)
  other = object()
  engine.update_weights((other, 0.0), 2)
  engine.update_weights((other, 5.0), 3)
  assert len(base.written) == 3 and base.written[2] > 1000
  engine.update_weights((object(), 5.0), 4)
  assert len(base.written) == 4
  (fake,) = fleet.fakes.values()
  assert engine.generate([_request(0)])[0].version_spans == ((4, 0, 4),)
  assert fake.calls.count('/pause?mode=keep') == 4


def test_a_server_that_begins_anew_gets_base_proof_and_adapter(made):
  engine, fleet, _ = made()
  engine.update_weights((BASE, 1.0), 1)
  (fake,) = fleet.fakes.values()
  before = fake.calls.count('/v1/load_lora_adapter')
  fake.adapters.clear()  # as another process at the same address
  fake.version = 'default'
  (done,) = engine.generate([_request(0)])
  assert done.version_spans == ((1, 0, 4),) and fleet.revived == [fake.url]
  loaded = fake.calls.count('/v1/load_lora_adapter') - before
  assert loaded == 3  # two of the proof, and the adapter


def test_a_server_that_loses_adapters_later_ends_the_run(made):
  """The proof is made beside the requests of the version."""
  engine, _, base = made()
  engine.update_weights((BASE, 0.0), 0)
  engine.update_weights((BASE, 7.0), 1)
  engine.wait_for_proof()
  # Now the trainer has other weights than the server, whatever number the
  # version got: the double computes with it modulo 1000.
  base.written[-1] += 50 if base.written[-1] % 1000 < 950 else -50
  engine.update_weights((BASE, 9.0), 2)
  with pytest.raises(EngineError, match='differ by 0.5'):
    engine.wait_for_proof()
  with pytest.raises(EngineError, match='differ by 0.5'):
    engine.update_weights((BASE, 9.0), 3)
  with pytest.raises(EngineError, match='differ by 0.5'):
    engine.generate([_request(1)])


def test_a_server_that_ignores_adapters_is_refused_at_the_start(made):
  engine, _, _ = made(adapters='ignored')
  with pytest.raises(EngineError, match='ignores adapters.*adapters=merged'):
    engine.update_weights((BASE, 0.0), 0)  # B = 0: the base's own log-probs


def test_a_server_without_adapters_says_how_to_start_it(made):
  engine, _, _ = made(adapters='')
  with pytest.raises(EngineError, match='--max-lora-rank 8 .*UPDATING=1'):
    engine.update_weights((BASE, 0.0), 0)


def test_another_model_than_asked_for_is_no_answer(made):
  engine, fleet, _ = made()
  (fake,) = fleet.fakes.values()
  fake.alter = lambda answer: answer.update(model='policy')
  with pytest.raises(EngineError, match="asked for adapter .*by 'policy'"):
    engine.update_weights((BASE, 0.0), 0)


def test_what_no_random_adapter_moves_cannot_be_proved(made, monkeypatch):
  monkeypatch.setattr(vllm_adapters, '_SIZES', (1.0,))
  engine, _, _ = made()
  with pytest.raises(EngineError, match='no random adapter of rank 8'):
    engine.update_weights((BASE, 0.0), 0)
