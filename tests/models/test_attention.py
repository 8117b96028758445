"""Which kernel runs where, and that all of them give the same."""

from __future__ import annotations

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent.devices import placement, sharding
from jaxagent.models import attention, block_attention, decoder
from tests.subset import fast

GPU = jax.default_backend() == 'gpu'


@pytest.fixture
def device(monkeypatch):
  """become(platform_version, capability): as if the first device were it."""

  def become(version: str, capability: str = '8.0') -> None:
    found = types.SimpleNamespace(
      client=types.SimpleNamespace(platform_version=version),
      compute_capability=capability,
      device_kind='NVIDIA of a test',
      platform='gpu',
    )
    monkeypatch.setattr(jax, 'devices', lambda: [found])
    monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')

  return become


def test_auto_takes_flash_attention_where_it_can(device):
  device('PJRT C API cuda 13000')
  assert attention.choose('auto', 'bfloat16', 128, 2048) == 'cudnn'
  assert attention.choose('auto', 'float32', 128, 2048) == 'xla'
  assert attention.choose('auto', 'bfloat16', 128, 2047) == 'xla'
  assert attention.choose('auto', 'bfloat16', 192, 2048) == 'xla'
  assert attention.choose('xla', 'bfloat16', 128, 2048) == 'xla'


def test_heads_of_256_need_hopper(device):
  device('cuda', '9.0')
  assert attention.choose('auto', 'bfloat16', 256, 2048) == 'cudnn'


@pytest.mark.parametrize(
  'version, capability', [('rocm', '9.4'), ('cuda', '7.5')]
)
def test_auto_on_other_gpus(device, version, capability):
  device(version, capability)
  assert attention.choose('auto', 'bfloat16', 128, 2048) == 'xla'


@pytest.mark.parametrize(
  'asked, why',
  [
    (('float32', 128, 2048), 'needs dtype bfloat16 or float16, not float32'),
    (('bfloat16', 100, 2048), 'a multiple of 8 up to 128, not 100'),
    (('bfloat16', 128, 2047), 'an even number of tokens, not 2047'),
  ],
)
def test_cudnn_by_name_is_refused_with_the_reason(device, asked, why):
  device('cuda')
  with pytest.raises(ValueError, match=f"attention='cudnn': .*{why}.*'auto'"):
    attention.choose('cudnn', *asked)


def _tpu():
  return types.SimpleNamespace(
    client=types.SimpleNamespace(), device_kind='TPU v5', platform='tpu'
  )


def test_auto_on_tpus_takes_splash_for_rows_of_whole_lanes():
  choose = lambda t: attention.choose('auto', 'bfloat16', 64, t, _tpu())  # noqa: E731
  assert choose(256) == 'splash'
  assert choose(320) == 'xla'


def test_scores_on_an_accelerator_are_named_once(caplog):
  for _ in range(2):
    attention.choose('auto', 'bfloat16', 64, 1090, _tpu())
  attention.choose('xla', 'float32', 64, 1090, _tpu())
  said = [r.getMessage() for r in caplog.records if r.levelname == 'WARNING']
  assert len(said) == 2
  assert '[rows, heads, 1090, 1090]' in said[0]
  assert 'splash needs rows in multiples of 128 tokens, not 1090' in said[0]
  assert "model.attention='xla' asks for it; choose 'auto'" in said[1]


def test_splash_by_name_is_refused_with_the_reason():
  with pytest.raises(
    ValueError, match="attention='splash': .*TPU.*cpu; choose 'auto'"
  ):
    attention.choose('splash', device=jax.devices('cpu')[0])
  with pytest.raises(
    ValueError, match="'splash': needs rows in multiples of 128.*100"
  ):
    attention.choose('splash', tokens=100, device=_tpu())


def test_the_kernel_is_that_of_the_devices_the_program_is_for(device):
  device('cuda')
  cpu = jax.sharding.Mesh(
    np.asarray(jax.local_devices(backend='cpu')[:1]).reshape(1, 1, 1),
    sharding.AXES,
  )
  with placement.use(placement.Placement(cpu)):
    assert attention.choose('auto') == 'blocks'
  assert attention.choose('auto') == 'cudnn'


@pytest.mark.skipif(GPU, reason='on a GPU it may be had')
def test_cudnn_by_name_needs_a_gpu():
  with pytest.raises(ValueError, match='needs an NVIDIA GPU, .* is cpu'):
    attention.choose('cudnn')


def _rows(dtype, b=2, t=256, heads=4, kv=2, h=32):
  """q, k, v, segment_ids and a mask of what is no padding."""
  rng = np.random.default_rng(0)
  segments = np.zeros((b, t), np.int32)
  for row, cuts in enumerate(((1, 90, 200, 250), (64, 65, 130, t))):
    for i, (start, stop) in enumerate(zip((0, *cuts), cuts)):
      segments[row, start:stop] = i + 1
  q, k, v = (
    jnp.asarray(rng.normal(size=(b, t, n, h)), dtype) for n in (heads, kv, kv)
  )
  return q, k, v, segments, (segments > 0)[..., None, None]


@pytest.mark.parametrize(
  'kernel, dtype, tolerance',
  [
    ('mapped', 'float32', 1e-5),
    ('blocks', 'float32', 1e-5),
    ('blocks', 'bfloat16', 2e-2),
    pytest.param(
      'cudnn',
      'bfloat16',
      2e-2,
      marks=pytest.mark.skipif(not GPU, reason='needs an NVIDIA GPU'),
    ),
  ],
)
def test_kernels_and_their_gradients_equal_the_plain_one(
  kernel, dtype, tolerance
):
  q, k, v, segments, real = _rows(dtype)

  def run(kernel):
    def loss(q, k, v):
      out = attention.attend(q, k, v, segments, kernel)
      out = jnp.where(real, out, 0).astype(jnp.float32)
      return jnp.sum(jnp.sin(out)), out

    grads, out = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
    return [np.asarray(x, np.float32) for x in (out, *grads)]

  with jax.default_matmul_precision('highest'):
    for got, want in zip(run(kernel), run('xla')):
      assert np.isfinite(got).all()
      np.testing.assert_allclose(got, want, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize('h', [128, 32])
def test_splash_equals_the_plain_one_under_the_interpreter(h):
  q, k, v, segments, real = _rows('float32', heads=2, kv=1, h=h)

  def run(kernel):
    def loss(q, k, v):
      out = jnp.where(real, kernel(q, k, v, segments), 0)
      return jnp.sum(jnp.sin(out)), out

    grads, out = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
    return [np.asarray(x) for x in (out, *grads)]

  splash = functools.partial(attention._splash, interpret=True)
  with jax.default_matmul_precision('highest'):
    for got, want in zip(run(splash), run(attention._xla)):
      np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


def _gradients(run, q, k, v, segments):
  """What attends and its gradients; padding adds nothing to them."""
  real = (segments > 0)[..., None, None]

  def loss(q, k, v):
    out = jnp.where(real, run(q, k, v, segments), 0)
    return jnp.sum(jnp.sin(out)), out

  with jax.default_matmul_precision('highest'):
    grads, out = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(q, k, v)
  return [np.asarray(x, np.float32) for x in (out, *grads)]


def _qkv(b, t, heads=4, kv=2, h=16):
  rng = np.random.default_rng(1)
  return (
    jnp.asarray(rng.normal(size=(b, t, n, h)), jnp.float32)
    for n in (heads, kv, kv)
  )


def _cuts(t, *rows):
  """Segments 1, 2, .. that end at the cuts of each row, then padding."""
  segments = np.zeros((len(rows), t), np.int32)
  for row, cuts in zip(segments, rows):
    for i, (start, stop) in enumerate(zip((0, *cuts), cuts)):
      row[start:stop] = i + 1
  return segments


@pytest.mark.parametrize('heads, kv', fast([(4, 1), (4, 4)], first=1))
@pytest.mark.parametrize(
  'segments',
  [
    _cuts(5, (3,), (2, 5)),
    _cuts(64, (64,), ()),
    _cuts(201, (70, 71, 190), (201,), (1, 2, 3)),
    _cuts(512, (512,), (300, 500)),
    _cuts(640, (64, 128, 129, 400, 401, 555)),
  ],
  ids=lambda s: f'{s.shape[0]} rows of {s.shape[1]}',
)
def test_blocks_equal_the_plain_one_at_any_length_and_packing(
  segments, heads, kv
):
  q, k, v = _qkv(*segments.shape, heads, kv)
  got = _gradients(attention._blocks, q, k, v, segments)
  for one, want in zip(got, _gradients(attention._xla, q, k, v, segments)):
    assert np.isfinite(one).all()
    np.testing.assert_allclose(one, want, atol=2e-5 * np.abs(want).max())


def test_blocks_see_a_segment_that_is_in_several_pieces():
  """No packing makes such a row; it costs blocks, and is still right."""
  segments = np.repeat([[2, 0, 1, 2, 3, 1, 0, 3]], 40, axis=1).astype(np.int32)
  q, k, v = _qkv(*segments.shape)
  got = _gradients(attention._blocks, q, k, v, segments)
  for one, want in zip(got, _gradients(attention._xla, q, k, v, segments)):
    np.testing.assert_allclose(one, want, atol=2e-5 * np.abs(want).max())


def test_blocks_skip_what_no_query_of_a_block_sees():
  segments = _cuts(512, (100, 256, 512), (512,))
  met = block_attention.blocks_met(jnp.asarray(segments), None, 64)
  assert met.gap is None
  assert met.first.tolist() == [0, 0, 1, 1, 4, 4, 4, 4, *[8] * 8]
  assert met.count.tolist() == [1, 2, 2, 3, 1, 2, 3, 4, *range(1, 9)]
  padded = block_attention.blocks_met(jnp.asarray(_cuts(512, (100,))), None, 64)
  # The block of 64 to 127 has tokens and padding: later padding meets its padding.
  assert padded.first.tolist() == [0, 0, *[1] * 6]


def _branched(t, *rows):
  """Segments and branches: each segment is a prompt's length and its branches'."""
  segments, branches = (np.zeros((len(rows), t), np.int32) for _ in range(2))
  for row, blocks in enumerate(rows):
    at = 0
    for segment, lengths in enumerate(blocks, 1):
      for branch, length in enumerate(lengths):
        segments[row, at : at + length] = segment
        branches[row, at : at + length] = branch
        at += length
  return segments, branches


BRANCHED = [
  _branched(5, [(2, 1, 1)], [(0, 2, 3)]),
  _branched(64, [(30, 10, 20)], [(64,)]),
  _branched(210, [(70, 30, 40), (3, 4, 5, 6, 7)], [(100, 50, 50)]),
  _branched(450, [(130, 64, 64, 64), (0, 64, 30, 20)], [(), (1, 200, 200)]),
]


@pytest.mark.parametrize('segments, branches', fast(BRANCHED, first=2))
def test_branches_see_their_prompt_and_no_other_branch(segments, branches):
  """Each kernel against a mask in which each pair is decided alone."""
  q, k, v = _qkv(*segments.shape)
  want = _gradients(_one_by_one(branches), q, k, v, segments)
  for kernel in (attention._blocks, attention._mapped, attention._xla):
    run = functools.partial(kernel, branches=jnp.asarray(branches))
    got = _gradients(run, q, k, v, jnp.asarray(segments))
    for one, other in zip(got, want):
      assert np.isfinite(one).all()
      np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())


def _one_by_one(branches):
  """Attention under a mask of loops."""

  def run(q, k, v, segments):
    b, t = branches.shape
    mask = np.zeros((b, t, t), bool)
    for row, query, key in np.ndindex(b, t, t):
      mask[row, query, key] = (
        key <= query
        and segments[row, query] == segments[row, key]
        and branches[row, key] in (0, branches[row, query])
      )
    repeated = (jnp.repeat(a, q.shape[2] // k.shape[2], axis=2) for a in (k, v))
    return jax.nn.dot_product_attention(q, *repeated, mask=mask[:, None])

  return run


def test_blocks_skip_the_branches_of_others():
  segments, branches = _branched(768, [(256, 128, 128, 64), (64, 128)])
  met = block_attention.blocks_met(
    jnp.asarray(segments), jnp.asarray(branches), 64
  )
  steps = range(12)
  met_by = [
    [int(met.block(i, step)) for step in range(int(met.count[i]))]
    for i in steps
  ]
  prompt = [0, 1, 2, 3]
  assert met_by[:4] == [[*range(i + 1)] for i in range(4)]
  assert met_by[4:6] == [[*prompt, 4], [*prompt, 4, 5]]
  assert met_by[6:9] == [[*prompt, 6], [*prompt, 6, 7], [*prompt, 8]]
  assert met_by[9:] == [[9], [9, 10], [9, 10, 11]]


def test_a_kernel_without_a_mask_for_branches_is_refused_by_name():
  assert 'rl.share_prompts=False' in attention.no_branches('splash')
  assert not any(map(attention.no_branches, ('blocks', 'xla', 'cudnn')))


@pytest.mark.slow
def test_blocks_under_vmap_and_rematerialisation():
  segments = _cuts(200, (70, 190), (150, 200))
  q, k, v = _qkv(*segments.shape)

  def each(q, k, v, segments):
    one = lambda *row: attention._blocks(*(a[None] for a in row))[0]  # noqa: E731
    return jax.vmap(one)(q, k, v, jnp.asarray(segments))

  again = jax.checkpoint(attention._blocks, policy=decoder._keeps_attention)
  want = _gradients(attention._xla, q, k, v, segments)
  for run in (each, again):
    for one, other in zip(_gradients(run, q, k, v, segments), want):
      np.testing.assert_allclose(one, other, atol=2e-5 * np.abs(other).max())
