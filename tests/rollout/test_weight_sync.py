"""Weights laid down for a server, and what the plug-in makes of them."""

from __future__ import annotations

import asyncio
import pathlib
import sys

import numpy as np
import pytest

from jaxagent.models.safetensors_io import Pending
from jaxagent.rollout.engines import weight_sync

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / 'third_party' / 'jaxagent_vllm'))
from jaxagent_vllm import BACKEND, manifest  # noqa: E402

PACKED = {'qkv_proj': ['q_proj', 'k_proj', 'v_proj']}
SHAPES = {
  'model.embed_tokens.weight': (10, 4),
  'model.layers.0.q_proj.weight': (4, 4),
  'model.layers.0.k_proj.weight': (2, 4),
  'model.layers.0.v_proj.weight': (2, 4),
  'model.norm.weight': (4,),
}
WANTED = {
  'model.embed_tokens.weight': (64, 4),  # padded
  'model.layers.0.qkv_proj.weight': (8, 4),
  'model.norm.weight': (4,),
}


def _export(params):
  rng = np.random.default_rng(params)
  for name, shape in SHAPES.items():
    value = rng.standard_normal(shape).astype(np.float32)
    yield Pending(name, shape, lambda value=value: value)


class Server:
  url = 'http://there'

  async def init_transfer(self):
    pass

  async def load_weights(self, told, version):
    self.got = told['path'], told['tensors'], version


def _pushed(sync) -> tuple:
  server = Server()
  asyncio.run(sync.push(server))
  return server.got


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'float16'])
def test_a_server_reads_the_weights_that_were_written(tmp_path, dtype):
  import ml_dtypes

  kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
  sync = weight_sync.FileSync(_export, tmp_path / 'a', tmp_path / 'b', kind)
  for version in (3, 4):
    sync.write(version, version)
    path, entries, told = _pushed(sync)
    assert told == version
    tensors = manifest.parse(entries)
    manifest.check_model(tensors, WANTED, PACKED, tied=True, shards=1)
    data = manifest.open_file(path, tensors)
    for t, want in zip(tensors, _export(version)):
      assert (t.name, t.shape, t.dtype) == (want.name, want.shape, dtype)
      part = np.asarray(data[t.offset : t.offset + t.nbytes])
      np.testing.assert_array_equal(
        part.view(kind).reshape(t.shape), want.load().astype(kind)
      )
  # One file at a time, and none in the end.
  assert len(list((tmp_path / 'a').glob('*/weights'))) == 1
  sync.close()
  assert not list((tmp_path / 'a').iterdir())


def test_the_folder_of_a_killed_trainer_is_swept(tmp_path):
  sync = weight_sync.FileSync(_export, tmp_path, tmp_path, np.float32)
  sync.write(0, 0)
  (left,) = tmp_path.iterdir()
  import os

  os.close(sync._folder._fd)  # as the kernel does at a kill
  other = weight_sync.FileSync(_export, tmp_path, tmp_path, np.float32)
  other.write(0, 0)
  assert not left.exists() and len(list(tmp_path.iterdir())) == 1
  other.close()


def test_no_room_goes_to_the_fallback_and_says_so(
  tmp_path, caplog, monkeypatch
):
  allocate = weight_sync.os.posix_fallocate
  small = [True]

  def full(fd, start, size):
    if small.pop() if small else False:
      raise OSError(28, 'No space left on device')
    allocate(fd, start, size)

  monkeypatch.setattr(weight_sync.os, 'posix_fallocate', full)
  sync = weight_sync.FileSync(
    _export, tmp_path / 'shm', tmp_path / 'work', np.float32
  )
  sync.write(0, 0)
  assert str(tmp_path / 'work') in _pushed(sync)[0]
  assert 'has no room' in caplog.text and 'No space left' in caplog.text
  assert not list((tmp_path / 'shm').iterdir())
  small += [True]
  sync.write(1, 1)  # where there was room before there is
  assert small.pop()
  sync.close()
  small += [True, True]
  sync = weight_sync.FileSync(_export, tmp_path, tmp_path, np.float32)
  with pytest.raises(OSError, match='no room for .* bytes of weights'):
    sync.write(1, 1)
  sync.close()


def test_both_sides_add_up_alike():
  rng = np.random.default_rng(0)
  for n in (0, 1, 7, 8, 9, 64, 1001):
    data = rng.integers(0, 256, n, dtype=np.uint8)
    words = int.from_bytes(b'', 'little')
    for at in range(0, n, 8):
      words += int.from_bytes(data[at : at + 8].tobytes(), 'little')
    assert manifest.checksum(data) == words % 2**64
    assert weight_sync.checksum(data) == words % 2**64


def _tensors(shapes):
  return [
    manifest.Tensor(name, 'float32', shape, 0, 0)
    for name, shape in shapes.items()
  ]


@pytest.mark.parametrize(
  'change, text',
  [
    ({'model.norm.weight': None}, 'model.norm.weight: missing'),
    ({'model.layers.0.k_proj.weight': None}, 'k_proj.weight.*: missing'),
    ({'model.layers.0.k_proj.weight': (3, 4)}, r'\(3, 4\).*for \(8, 4\)'),
    ({'model.embed_tokens.weight': (10, 5)}, 'embed_tokens'),
    ({'model.embed_tokens.weight': (65, 4)}, 'embed_tokens'),
    ({'model.other.weight': (4,)}, 'model.other.weight: unknown'),
    ({'lm_head.weight': (10, 4)}, 'lm_head.weight: unknown'),
  ],
)
def test_weights_of_another_model(change, text):
  shapes = {k: v for k, v in {**SHAPES, **change}.items() if v is not None}
  with pytest.raises(manifest.ManifestError, match=text):
    manifest.check_model(_tensors(shapes), WANTED, PACKED, tied=False, shards=1)


def test_what_may_differ():
  """A tied head that is given; with tensor parallelism, shapes."""
  head = {**SHAPES, 'lm_head.weight': (10, 4)}
  manifest.check_model(_tensors(head), WANTED, PACKED, tied=True, shards=1)
  half = {name: (shape[0] // 2, *shape[1:]) for name, shape in WANTED.items()}
  manifest.check_model(_tensors(SHAPES), half, PACKED, tied=True, shards=2)


@pytest.mark.parametrize(
  'spoil, text',
  [
    (lambda e: [], 'no tensor'),
    (lambda e: e + e[:1], 'named twice'),
    (lambda e: [{**e[0], 'dtype': 'int8'}], "dtype 'int8'"),
    (lambda e: [{**e[0], 'shape': [0, 4]}], 'offset or shape'),
    (lambda e: [{**e[0], 'offset': -1}], 'offset or shape'),
    (lambda e: [{**e[0], 'shape': 'x'}], 'manifest entry'),
    (lambda e: [{'name': 'x'}], 'manifest entry'),
    (lambda e: [{**e[0], 'offset': 10**9}], 'the manifest needs'),
    (lambda e: [{**e[0], 'checksum': 1}], 'checksum .*, not 1'),
  ],
)
def test_a_bad_manifest_is_refused(tmp_path, spoil, text):
  sync = weight_sync.FileSync(_export, tmp_path, tmp_path, np.float32)
  sync.write(0, 0)
  path, entries, _ = _pushed(sync)
  with pytest.raises(manifest.ManifestError, match=text):
    manifest.open_file(path, manifest.parse(spoil(entries)))
  sync.close()


def test_a_file_that_is_gone(tmp_path):
  with pytest.raises(manifest.ManifestError, match='cannot be read'):
    manifest.open_file(str(tmp_path / 'x'), _tensors({'a': (2,)}))


def test_both_sides_name_one_backend():
  from jaxagent.rollout.engines import vllm_api

  assert vllm_api.BACKEND == BACKEND
