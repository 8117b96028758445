"""A submission of several files, a folder or a zip of one, graded in strict."""

from __future__ import annotations

import io
import json
import os
import pathlib
import stat
import zipfile

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.graders import folders

CACTUS = 'aerial-cactus-identification'
PARTS = {
  'b.csv': b'has_cactus,id\n0.7,0300\n',
  'a.csv': b'id,has_cactus\nx,0.2\n300,0.1\n',
}


@pytest.fixture
def answers(tmp_path):
  path = tmp_path / 'answers.csv'
  path.write_text('id,has_cactus\n0300,1\n300,0\nx,0\n')
  return path


def _folder(tmp_path, files) -> pathlib.Path:
  home = tmp_path / 'parts'
  home.mkdir()
  for name, data in files.items():
    (home / name).write_bytes(data)
  return home


def _zip(tmp_path, files) -> pathlib.Path:
  path = tmp_path / 'parts.zip'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name, data in files.items():
      archive.writestr(name, data)
  return path


@pytest.mark.parametrize('form', [_folder, _zip])
def test_parts_of_a_table_are_graded_as_the_whole_table(
  tmp_path, answers, form
):
  found = graders.grade_files(CACTUS, form(tmp_path, PARTS), answers)
  assert (found.score, found.reason) == (1.0, '')


@pytest.mark.parametrize('form', [_folder, _zip])
@pytest.mark.parametrize(
  ('files', 'why'),
  [
    ({}, 'holds no .csv or .jsonl file'),
    ({'a.csv': PARTS['a.csv']}, 'lacks|missing'),
    ({**PARTS, 'c.csv': PARTS['b.csv']}, '0300'),
    ({**PARTS, 'c.csv': b'id,other\nz,1\n'}, 'c.csv has the columns'),
    ({**PARTS, 'c.csv': b'id,has_cactus\nz,1,2\n'}, 'c.csv'),
    ({**PARTS, 'c.csv': b'\xff\xfe\x00'}, 'c.csv'),
    ({**PARTS, 'c.txt': b'x'}, 'all must be of one kind'),
    ({'a.pkl': b'x'}, 'all must be of one kind'),
  ],
)
def test_malformed_parts_are_refused_by_name(
  tmp_path, answers, form, files, why
):
  found = graders.grade_files(CACTUS, form(tmp_path, files), answers)
  assert found.score is None
  assert any(word in found.reason for word in why.split('|')), found.reason


def test_links_and_folders_within_are_refused(tmp_path, answers):
  home = _folder(tmp_path, PARTS)
  (home / 'link.csv').symlink_to(answers)
  found = graders.grade_files(CACTUS, home, answers)
  assert found.score is None and 'link.csv is no file' in found.reason
  (home / 'link.csv').unlink()
  (home / 'inner').mkdir()
  found = graders.grade_files(CACTUS, home, answers)
  assert found.score is None and 'inner is no file' in found.reason
  (home / 'inner').rmdir()
  os.mkfifo(home / 'pipe.csv')  # reading it would wait for ever
  found = graders.grade_files(CACTUS, home, answers)
  assert found.score is None and 'pipe.csv is no file' in found.reason
  whole = tmp_path / 'link'
  whole.symlink_to(home)
  assert 'symbolic link' in graders.grade_files(CACTUS, whole, answers).reason


def test_entries_of_a_zip_that_are_no_files_are_refused(tmp_path, answers):
  for entry in ('inner/a.csv', '../a.csv', 'inner/'):
    path = _zip(tmp_path, {entry: b'x'})
    found = graders.grade_files(CACTUS, path, answers)
    assert found.score is None and 'no file beside' in found.reason
  link = zipfile.ZipInfo('a.csv')
  link.external_attr = (stat.S_IFLNK | 0o777) << 16
  with zipfile.ZipFile(tmp_path / 'parts.zip', 'w') as archive:
    archive.writestr(link, str(answers))
  found = graders.grade_files(CACTUS, tmp_path / 'parts.zip', answers)
  assert found.score is None and 'no file beside' in found.reason
  (tmp_path / 'parts.zip').write_bytes(b'PK\x03\x04 half')
  found = graders.grade_files(CACTUS, tmp_path / 'parts.zip', answers)
  assert found.score is None and 'no whole zip' in found.reason


def test_what_a_zip_unpacks_to_is_counted_before_it_is_read(tmp_path):
  path = _zip(tmp_path, {'a.csv': b'0' * 10_000_000})
  assert path.stat().st_size < 100_000
  with pytest.raises(
    folders.InvalidSubmission, match='10000000 bytes; at most'
  ):
    folders.read_table(path.read_bytes(), max_bytes=1_000_000)
  for name in 'bc':
    path = _zip(tmp_path, {'a.csv': b'0' * 600, f'{name}.csv': b'0' * 600})
    with pytest.raises(folders.InvalidSubmission, match='1200 bytes'):
      folders.read_table(path.read_bytes(), max_bytes=1_000)


def test_too_many_files_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(folders, 'MAX_FILES', 2)
  files = {f'{k}.csv': b'id\n1\n' for k in range(3)}
  for form in (_folder, _zip):
    with pytest.raises(folders.InvalidSubmission, match='more than 2 files'):
      folders.read_table(form(tmp_path, files), max_bytes=1000)


def _npy(array) -> bytes:
  out = io.BytesIO()
  np.save(out, array, allow_pickle=True)
  return out.getvalue()


@pytest.mark.parametrize('form', [_folder, _zip])
def test_arrays_are_named_by_their_files_and_never_unpickled(tmp_path, form):
  truth = {'pi': np.array([[0, 1], [1, 0]]), 'rho': np.array([[1, 1], [0, 0]])}
  np.savez(tmp_path / 'answers.npz', **truth)
  good = {f'{name}.npy': _npy(array) for name, array in truth.items()}
  right, wrong = tmp_path / 'right', tmp_path / 'wrong'
  right.mkdir()
  wrong.mkdir()
  answers = tmp_path / 'answers.npz'
  found = graders.grade_files('CLRS', form(right, good), answers)
  assert found.score == 1.0
  bad = {**good, 'pi.npy': _npy(np.array([{}], dtype=object))}
  found = graders.grade_files('CLRS', form(wrong, bad), answers)
  assert found.score is None and 'pickled objects' in found.reason


def _lines(tmp_path, files) -> pathlib.Path:
  path = tmp_path / 'parts.jsonl'
  tables = [
    pd.read_csv(io.BytesIO(data), dtype={'id': str}) for data in files.values()
  ]
  pd.concat(tables).to_json(path, orient='records', lines=True)
  return path


@pytest.mark.parametrize('form', [_folder, _zip, _lines])
def test_of_a_half_the_whole_is_reported_beside(tmp_path, capsys, form):
  """In strict, for the source reads a single CSV file alone."""
  from jaxagent import grade

  path = tmp_path / 'answers.csv'
  path.write_text(
    'id,has_cactus,split\n0300,1,valid\n300,0,valid\nx,1,private\ny,0,private\n'
  )
  files = {**PARTS, 'c.csv': b'id,has_cactus\ny,0.4\n'}
  line = {
    'competition': CACTUS,
    'submission': str(form(tmp_path, files)),
    'answers': str(path),
    'mode': 'strict',
    'split': 'valid',
  }
  (tmp_path / 'in.jsonl').write_text(json.dumps(line))
  assert grade.main(['--jsonl', str(tmp_path / 'in.jsonl')]) == 0
  found = json.loads(capsys.readouterr().out)
  assert (found['score'], found['whole']) == (1.0, 0.75)


def test_compat_takes_no_folder(tmp_path, answers):
  found = graders.grade_files(
    CACTUS, _folder(tmp_path, PARTS), answers, 'compat'
  )
  assert found.score is None and 'is not a .csv file' in found.reason
