"""A copy is NumPy's, whatever the order in which its elements lie."""

import ml_dtypes
import numpy as np
import pytest

from jaxagent.files import copies

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = (np.dtype(np.float32), BF16, np.dtype(np.float16))
# Below, at and above a block of 256 x 64, and none of its multiples.
SHAPES = ((3, 5), (64, 65), (65, 300), (256, 128), (257, 700), (1000, 66))


def _drawn(shape, dtype):
  values = np.random.default_rng(0).normal(size=shape).astype(dtype)
  values.reshape(-1)[:3] = np.nan, np.inf, -0.0
  return values


def _same_bits(a, b):
  assert a.dtype == b.dtype and a.shape == b.shape
  np.testing.assert_array_equal(
    a.view(f'u{a.dtype.itemsize}'), b.view(f'u{b.dtype.itemsize}')
  )


@pytest.mark.parametrize('to', DTYPES, ids=str)
@pytest.mark.parametrize('of', DTYPES, ids=str)
@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.filterwarnings('ignore:overflow')
def test_a_transposed_copy_has_the_bits_of_numpys(shape, of, to):
  source = _drawn(shape, of).T
  found = np.empty(source.shape, to)
  copies.copy(found, source)
  _same_bits(found, source.astype(to, 'C'))


def test_a_slice_of_a_transposed_array_and_a_slice_as_its_place():
  whole = _drawn((300, 400), BF16)
  place = np.zeros((3, 200, 150), np.float32)
  copies.copy(place[1], whole[100:250, 7:207].T)
  _same_bits(place[1], whole[100:250, 7:207].T.astype(np.float32))
  assert not place[0].any() and not place[2].any()


@pytest.mark.parametrize('shape', [(201, 100), (1, 100), (100,)])
def test_another_shape_is_refused(shape):
  with pytest.raises(ValueError, match=r'is copied into \(200, 100\)'):
    copies.copy(np.empty((200, 100)), np.ones(shape[::-1]).T)


def test_what_is_in_order_already_is_not_copied():
  array = _drawn((100, 200), np.float32)
  assert copies.contiguous(array, np.dtype(np.float32)) is array
  found = copies.contiguous(array.T, BF16)
  assert found.flags.c_contiguous
  _same_bits(found, array.T.astype(BF16, 'C'))
