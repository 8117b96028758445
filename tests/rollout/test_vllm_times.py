"""How long a server may take over weights."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from jaxagent.rollout.engines import vllm_api


def _waits(use) -> dict[str, float]:
  """path -> seconds that `use(client)` waits for its answer."""
  found = {}

  def answer(request):
    found[request.url.path] = request.extensions['timeout']['read']
    return httpx.Response(200, json={})

  async def ask():
    api = vllm_api.Vllm('http://there')
    await api.close()
    transport = httpx.MockTransport(answer)
    api._http = httpx.AsyncClient(transport=transport, base_url=api.url)
    await use(api)
    await api.close()

  asyncio.run(ask())
  return found


@pytest.mark.parametrize('rows, seconds', [(7_000, 280.0), (7, 60.0)])
def test_large_weights_get_more_time(rows, seconds):
  told = {'tensors': [{'name': 'a', 'shape': [rows, 1_000_000]}]}
  assert _waits(lambda api: api.load_weights(told, 1)) == {
    '/start_weight_update': 60.0,
    '/update_weights': seconds,
    '/finish_weight_update': seconds,
  }


@pytest.mark.parametrize('size, seconds', [(100, 100.0), (7, 60.0)])
def test_a_large_folder_gets_more_time(tmp_path, monkeypatch, size, seconds):
  monkeypatch.setattr(vllm_api, '_S_PER_GB', 1e9)  # a second a byte
  (tmp_path / 'model.safetensors').write_bytes(b'x' * size)
  found = _waits(lambda api: api.reload_folder(str(tmp_path), 1))
  assert found['/collective_rpc'] == seconds
