"""Arrays are numbers: no pickles, no archives larger than they look."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.graders import arrays, tables


class _Runs:
  """An object whose unpickling writes a file."""

  def __init__(self, path):
    self.path = str(path)

  def __reduce__(self):
    return (open, (self.path, 'w'))


def _refused(path, reason: str) -> None:
  with pytest.raises(tables.InvalidSubmission, match=reason):
    arrays.read_arrays(path)


def test_a_pickle_is_refused_by_name_and_does_not_run(tmp_path):
  trace = tmp_path / 'ran'
  truth = tmp_path / 'a.npy'
  np.save(truth, np.zeros((2, 2), int))
  objects = np.array([_Runs(trace)], dtype=object)
  np.save(tmp_path / 's.npy', objects, allow_pickle=True)
  np.savez(tmp_path / 's.npz', objects)
  for name in ('s.npy', 's.npz'):
    got = graders.grade_files('CLRS', tmp_path / name, truth)
    assert got.score is None and 'pickled objects' in got.reason
  for name in ('t.pkl', 't.npy', 't.npz'):
    (tmp_path / name).write_bytes(pickle.dumps(_Runs(trace)))
    got = graders.grade_files('CLRS', tmp_path / name, truth)
    assert got.score is None and got.reason
  assert not trace.exists()


def test_arrays_of_an_archive_have_names(tmp_path):
  """The score is the mean of the arrays': (1 + 1 / 2) / 2."""
  truth, path = tmp_path / 'a.npz', tmp_path / 's.npz'
  first, second = np.zeros((3, 3), int), np.array([0, 1])
  np.savez(truth, pi=first, order=second)
  np.savez_compressed(path, order=np.array([0, 0]), pi=first)
  for mode in graders.MODES:
    assert graders.grade_files('CLRS', path, truth, mode).score == 0.75
  np.savez(path, pi=first)
  got = graders.grade_files('CLRS', path, truth)
  assert got.score is None and "['order', 'pi']" in got.reason


@pytest.mark.parametrize('order', ['C', 'F'])
@pytest.mark.parametrize('dtype', ['<f4', '>f8', '|b1', '<i8', '<u2'])
def test_numbers_are_read_as_numpy_reads_them(tmp_path, dtype, order):
  want = np.array(np.arange(6).reshape(2, 3), dtype=dtype, order=order)
  np.save(tmp_path / 'x.npy', want)
  got = arrays.read_arrays(tmp_path / 'x.npy')['']
  np.testing.assert_array_equal(got, np.load(tmp_path / 'x.npy'))
  assert got.dtype == want.dtype


@pytest.mark.parametrize(
  'array',
  [
    np.array(['a']),
    np.array([1j]),
    np.array(['2020-01-01'], dtype='M8[s]'),
    np.zeros(2, dtype=[('a', 'f4')]),
  ],
)
def test_other_cells_are_refused(tmp_path, array):
  np.save(tmp_path / 'x.npy', array)
  _refused(tmp_path / 'x.npy', 'not numbers')


def test_a_header_is_believed_as_far_as_the_file_is_long(tmp_path):
  path = tmp_path / 'x.npy'
  for shape in ((1 << 40,), (1 << 20, 1 << 20), (-1, -8)):
    with path.open('wb') as file:
      np.lib.format.write_array_header_1_0(
        file, {'descr': '<f8', 'fortran_order': False, 'shape': shape}
      )
      file.write(bytes(64))
    _refused(path, 'too short for its shape')


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(arrays, 'MAX_BYTES', 1 << 20)
  path = tmp_path / 'x.npz'
  np.savez_compressed(path, a=np.zeros(1 << 18))
  assert path.stat().st_size < 1 << 16
  _refused(path, '2097280 bytes')
  with zipfile.ZipFile(path, 'w') as archive:
    for number in range(arrays.MAX_ARRAYS + 1):
      archive.writestr(f'{number}.npy', b'')
  _refused(path, '1001 arrays')


def test_tables_are_not_arrays():
  one = np.zeros((1, 1))
  with pytest.raises(ValueError, match='see grade_arrays'):
    graders.grade_tables('CLRS', one, one)
  with pytest.raises(ValueError, match='see grade_tables'):
    graders.grade_arrays('house-price', {'': one}, {'': one})


def test_a_header_that_exhausts_the_parser_is_refused():
  header = b'-' * 9000 + b'1\n'
  size = len(header).to_bytes(2, 'little')
  with pytest.raises(tables.InvalidSubmission, match='too deeply'):
    arrays.read_arrays(b'\x93NUMPY\x01\x00' + size + header, '.npy')
