"""A real vLLM server that serves adapters."""

from __future__ import annotations

import asyncio
import pathlib
import shutil

import pytest

from jaxagent.models import lora
from jaxagent.rollout.engines.vllm_api import Adapter, Vllm
from tests.rollout.served import NEW, served

pytestmark = [
  pytest.mark.vllm,
  pytest.mark.slow,
  pytest.mark.timeout(300),
]
# The bound of a run in float32; the adapters are large: log-probs beside them are some
# 1e-4 apart, and those of others more than 1.
NATS = 1e-3
RANK = 12  # a server is started for 16, the next one that it knows


@pytest.fixture(scope='module')
def one(tmp_path_factory):
  work = tmp_path_factory.mktemp('vllm_adapters')
  with served('vllm', 'qwen2', work, rank=RANK) as made:
    yield made


def _adapted(one, seed: int):
  base = lora.split_lora(one.params)[1]
  return lora.random_lora(one.model, base, size=2.0, seed=seed)


def _folders(one) -> list[pathlib.Path]:
  folder = pathlib.Path(one.engine._sync._folder.path)
  return [path for path in folder.iterdir() if path.is_dir()]


def test_a_server_serves_the_adapters_of_each_version(one):
  fresh = one.engine.generate([one.request(i, 150) for i in range(4)])
  assert max(one.gap(c) for c in fresh) < NATS
  for version in (1, 2, 3):
    new = _adapted(one, version)
    one.engine.update_weights(new, version)
    done = one.engine.generate([one.request(i, 150) for i in range(4)])
    for c in done:
      assert c.version == version and one.gap(c, new) < NATS
    assert max(one.gap(c) for c in done) > 1
    one.engine.wait_for_proof()
    assert one.engine._probe.gap_nats < NATS


def test_a_request_ends_with_the_adapters_that_it_began_with(one):
  old, new = _adapted(one, 4), _adapted(one, 5)
  one.engine.update_weights(old, 4)
  one.engine.submit([one.request(i, 140, max_new_tokens=NEW) for i in (1, 2)])
  one.engine.update_weights(new, 5)
  done = [*one.engine.poll(), *one.engine.poll()]
  (late,) = one.engine.generate([one.request(1, 140)])
  assert one.gap(late, new) < NATS and late.version == 5
  # Long enough to be under way; each may draw an end token.
  assert max(len(c.token_ids) for c in done) > NEW // 2
  for c in done:
    ((version, start, end),) = c.version_spans
    assert (start, end) == (0, len(c.token_ids))
    assert one.gap(c, {4: old, 5: new}[version]) < NATS


def test_one_name_and_folder_loaded_again_would_have_served_stale_keys(
  one, tmp_path
):
  """What names and folders for each version are for."""
  before, after = _adapted(one, 6), _adapted(one, 7)
  adapter = Adapter('again', str(tmp_path / 'again'), 6)
  request = one.request(3, 300)  # more than a block of prefix

  async def load(api: Vllm) -> None:
    body = {'lora_name': adapter.name, 'lora_path': adapter.path}
    body['load_inplace'] = True
    await api._call('POST', '/v1/load_lora_adapter', body, is_json=False)

  async def drawn():
    api = Vllm(one.engine._fleet.urls[0])
    try:
      lora.save_peft(adapter.path, one.model, before)
      await load(api)
      first = await api.generate(request, 0, 'again-1', adapter)
      shutil.rmtree(adapter.path)
      lora.save_peft(adapter.path, one.model, after)
      await load(api)
      stale = await api.generate(request, 0, 'again-2', adapter)
      await api.forget_prefixes()
      right = await api.generate(request, 0, 'again-3', adapter)
      await api.unload_adapter(adapter)
    finally:
      await api.close()
    return first, stale, right

  first, stale, right = asyncio.run(drawn())
  assert one.gap(first, before) < NATS and one.gap(right, after) < NATS
  assert one.gap(stale, after) > 100 * NATS


def test_nothing_is_left_of_earlier_versions(one):
  for version in range(8, 12):
    one.engine.update_weights(_adapted(one, version), version)
    one.engine.generate([one.request(0)])
  folders = _folders(one)
  assert len(folders) <= 2  # the last one may be on its way
