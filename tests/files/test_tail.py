"""Files of lines are read as they grow, whatever becomes of them."""

import json
import os
import pathlib

import pytest

from jaxagent.files import tail as tail_lib
from jaxagent.files.tail import LONGEST_BYTES, Tail


class Reader:
  """A tail of a file, and what it found."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.found: list = []
    self.places: list[tuple[int, int]] = []
    self.tail = Tail(path, self._take, self._reset)

  def _take(self, line, offset, length):
    self.found.append(line['n'])
    self.places.append((offset, length))

  def _reset(self):
    self.found.clear()
    self.places.clear()

  def read(self) -> list:
    while self.tail.read():
      pass
    return self.found


@pytest.fixture
def reader(tmp_path):
  return Reader(tmp_path / 'lines.jsonl')


def add(path: pathlib.Path, text: str | bytes) -> None:
  with path.open('ab') as file:
    file.write(text if isinstance(text, bytes) else text.encode())


def test_a_line_without_its_end_waits_for_it(reader):
  add(reader.path, '{"n": 1}\n{"n": ')
  assert reader.read() == [1]
  add(reader.path, '2')
  assert reader.read() == [1]
  add(reader.path, '}\n')
  assert reader.read() == [1, 2]
  assert reader.tail.damaged == 0


@pytest.mark.parametrize('chunk', [1, 3, 7, 1 << 20])
def test_places_are_those_of_the_lines_however_the_file_is_cut(
  reader, monkeypatch, chunk
):
  monkeypatch.setattr(tail_lib, 'CHUNK_BYTES', chunk)
  for n in range(20):
    add(reader.path, json.dumps({'n': n, 'text': 'é' * n}) + '\n')
    if n % 5 == 0:
      reader.read()
  assert reader.read() == list(range(20))
  data = reader.path.read_bytes()
  for n, (offset, length) in enumerate(reader.places):
    assert json.loads(data[offset : offset + length])['n'] == n


def test_a_file_that_shrinks_is_read_anew(reader):
  add(reader.path, '{"n": 1}\n{"n": 2}\n')
  reader.read()
  reader.path.write_text('{"n": 3}\n')
  assert reader.read() == [3]


def test_a_file_that_shrinks_and_grows_beyond_between_two_looks_is_read_anew(
  reader,
):
  add(reader.path, '{"n": 1}\n{"n": 2}\n')
  reader.read()
  reader.path.write_text('{"n": 5}\n{"n": 6}\n{"n": 7}\n')
  assert reader.read() == [5, 6, 7]


def test_another_file_of_the_same_name_is_read_anew(reader):
  add(reader.path, '{"n": 1}\n')
  reader.read()
  other = reader.path.with_suffix('.part')
  other.write_text('{"n": 1}\n{"n": 9}\n')
  os.replace(other, reader.path)
  assert reader.read() == [1, 9]


def test_a_file_that_goes_and_comes_back_is_read_anew(reader):
  add(reader.path, '{"n": 1}\n')
  reader.read()
  reader.path.unlink()
  assert reader.read() == []
  add(reader.path, '{"n": 2}\n')
  assert reader.read() == [2]


def test_what_is_no_json_object_is_counted_and_left_out(reader):
  deep = '[' * 100_000
  add(reader.path, f'nonsense\n[1]\n{deep}\n\n{{"n": 1}}\n')
  add(reader.path, b'\xff\xfe\x00\n{"n": 2}\n')
  assert reader.read() == [1, 2]
  assert reader.tail.damaged == 4


def test_a_line_over_a_megabyte_is_read_and_counted(reader):
  add(reader.path, json.dumps({'n': 1, 'text': 'x' * (2 << 20)}) + '\n')
  add(reader.path, '{"n": 2}\n')
  assert reader.read() == [1, 2]
  assert (reader.tail.long, reader.tail.left_out) == (1, 0)


def test_a_line_without_end_takes_no_memory_without_end(reader):
  add(reader.path, b'{"n": 1}\n{"n": "' + b'x' * (LONGEST_BYTES + (3 << 20)))
  assert reader.read() == [1]
  assert len(reader.tail._rest) <= LONGEST_BYTES
  add(reader.path, '"}\n{"n": 2}\n')
  assert reader.read() == [1, 2]
  offset, length = reader.places[-1]
  assert reader.path.read_bytes()[offset : offset + length] == b'{"n": 2}'
  assert reader.tail.left_out == 1


def test_a_pipe_in_place_of_a_file_is_not_waited_for(reader):
  os.mkfifo(reader.path)
  assert reader.read() == []
  assert reader.tail.problem == 'is no regular file'


def test_a_file_without_permission_is_named(reader, monkeypatch):
  def refused(*arguments):
    raise PermissionError(13, 'Permission denied')

  add(reader.path, '{"n": 1}\n')
  with monkeypatch.context() as patched:  # root may read everything
    patched.setattr(tail_lib.os, 'open', refused)
    assert reader.read() == []
    assert reader.tail.problem == 'no permission to read it'
  assert reader.read() == [1]
  assert reader.tail.problem == ''
