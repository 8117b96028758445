"""Weights over NCCL: the protocol of both sides, with a stand-in for NCCL itself.

Not what NCCL and CuPy do: that needs two GPUs.
"""

from __future__ import annotations

import asyncio
import pathlib
import queue
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent.models import ModelConfig, hf, init_decoder
from jaxagent.rollout.engine import EngineError
from jaxagent.rollout.engines import nccl_sync
from jaxagent.rollout.engines.vllm_api import ServerError, ServerLost

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / 'third_party' / 'jaxagent_vllm'))
from jaxagent_vllm import manifest  # noqa: E402

torch = pytest.importorskip('torch')
from jaxagent_vllm import group as their_side  # noqa: E402

MODEL = ModelConfig(
  vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
  num_attention_heads=2, num_key_value_heads=1, head_dim=16,
  max_position_embeddings=64, tie_word_embeddings=True,
)  # fmt: skip


class Groups:
  """As `nccl_group`, with queues for wires."""

  def __init__(self):
    self.wires: dict[str, queue.Queue] = {}
    self.aborted: list[str] = []
    self.fault: Exception | None = None
    outer = self

    class Group:
      def __init__(self, name, size, device):
        assert size == 3 and device in jax.devices()
        self.name = name
        self._gone = threading.Event()

      def send(self, tensors):
        for tensor in tensors:
          if outer.fault is not None:
            raise outer.fault
          outer.wires[self.name].put(np.asarray(tensor))
        # As NCCL: not before the peers have taken it.
        while not outer.wires[self.name].empty() and not self._gone.wait(0.01):
          pass

      def abort(self):
        self._gone.set()
        outer.aborted.append(self.name)

    self.Group = Group

  def version(self):
    return 22800

  def unique_id(self):
    name = f'group-{len(self.wires)}'
    self.wires[name] = queue.Queue()
    return name


class Server:
  """As the plug-in: in a group until it is started anew."""

  url = 'http://there'

  def __init__(self, groups):
    self.groups, self.group, self.got = groups, '', {}
    self.joined = 0

  async def world_size(self):
    return 2

  async def init_transfer(self, *, unique_id, size, nccl_version):
    assert (size, nccl_version) == (3, 22800)
    self.group, self.joined = unique_id, self.joined + 1

  async def load_weights(self, told, version):
    if told['group'] != self.group:
      raise ServerError('this server is not in that group.')
    for t in manifest.parse(told['tensors']):
      wire = self.groups.wires[self.group]
      while wire.empty():
        await asyncio.sleep(0.001)
      value = wire.get()
      weight = torch.frombuffer(bytearray(value.tobytes()), dtype=torch.uint8)
      weight = weight.view(getattr(torch, t.dtype)).view(t.shape)
      if their_side.checksum(weight) != t.checksum:
        raise ServerError(f'{t.name}: checksum')
      self.got[t.name] = weight.float().numpy()
    self.version = version


@pytest.fixture(scope='module')
def params():
  return init_decoder(MODEL, 0)[1]


def _sync(groups, dtype='float32'):
  export = lambda params: hf.hf_tensors(MODEL, params, tied_head=True)  # noqa: E731
  return nccl_sync.NcclSync(export, dtype, jax.devices()[0], groups)


def _push(sync, server):
  asyncio.run(asyncio.wait_for(sync.push(server), 30))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('scan', [False, True])
def test_the_sent_tensors_equal_those_of_a_checkpoint(dtype, scan):
  config = MODEL.replace(scan_layers=scan)
  params = init_decoder(config, 1)[1]
  wanted = {
    t.name: t.load() for t in hf.hf_tensors(config, params, tied_head=True)
  }
  groups = Groups()
  sync = nccl_sync.NcclSync(
    lambda p: hf.hf_tensors(config, p, tied_head=True),
    dtype, jax.devices()[0], groups,
  )  # fmt: skip
  server = Server(groups)
  sync.write(params, 7)
  _push(sync, server)
  assert server.version == 7 and set(server.got) == set(wanted)
  for name, value in wanted.items():
    same = np.asarray(jnp.asarray(value, dtype), np.float32)
    np.testing.assert_array_equal(server.got[name], same)


def test_one_group_for_all_versions_and_a_new_one_for_a_new_server(
  params, caplog
):
  groups = Groups()
  sync, server = _sync(groups), Server(groups)
  for version in range(3):
    sync.write(params, version)
    _push(sync, server)
  assert server.joined == 1 and not groups.aborted
  server.group = ''  # started anew
  _push(sync, server)
  assert server.joined == 2 and groups.aborted == ['group-0']
  assert 'it is given a new group' in caplog.text
  sync.close()
  assert groups.aborted == ['group-0', 'group-1']


def test_a_server_that_gives_up_does_not_hang_the_trainer(params):
  class Refuses(Server):
    async def load_weights(self, told, version):
      await asyncio.sleep(0.05)
      raise ServerError('these weights are not of the model that is served')

  groups = Groups()
  sync = _sync(groups)
  sync.write(params, 0)
  with pytest.raises(ServerError, match='not of the model'):
    _push(sync, Refuses(groups))
  assert groups.aborted == ['group-0']


def test_a_fault_of_nccl_is_a_lost_server(params):
  groups = Groups()
  sync, server = _sync(groups), Server(groups)
  sync.write(params, 0)
  groups.fault = EngineError('NCCL: remote process exited')
  with pytest.raises(ServerLost, match='there: NCCL: remote process'):
    _push(sync, server)
  assert groups.aborted == ['group-0']


def test_one_changed_bit_is_seen(params):
  groups = Groups()
  sync, server = _sync(groups), Server(groups)
  sync.write(params, 0)
  sync._manifest[3]['checksum'] ^= 1
  with pytest.raises(ServerError, match='checksum'):
    _push(sync, server)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
def test_both_sides_sum_alike(dtype):
  rng = np.random.default_rng(0)
  for shape in ((1,), (7, 5), (301,)):
    value = jnp.asarray(rng.standard_normal(shape) * 1e3, dtype)
    raw = torch.frombuffer(
      bytearray(np.asarray(value).tobytes()), dtype=torch.uint8
    )
    theirs = their_side.checksum(raw.view(getattr(torch, dtype)))
    assert theirs == int(nccl_sync.checksum(value)) % 2**32
