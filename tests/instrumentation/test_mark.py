"""The mark as a program's process has it: what of it goes elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jaxagent.instrumentation import SyntaxInstrumenter, marks
from tests.instrumentation.running import KEY, run

PICKLES = """\
import numpy
import cloudpickle, copy, pickle
def load():
  data = open('train.py').read()
  return len(data) > 0
found = [v for k, v in globals().items() if k.startswith('_progress')]
for way in (pickle, cloudpickle):
  for i, value in enumerate([found, load] if way is cloudpickle else [found]):
    open(f'{way.__name__}{i}.bin', 'wb').write(way.dumps(value))
assert copy.deepcopy(found)[0](1) is None
"""
UNPICKLES = """\
import pickle, sys
value = pickle.load(open(sys.argv[1], 'rb'))
if isinstance(value, list):
  value[0](3, 0.5)
  assert value[0](0) is None
else:
  assert value() is True
known = {name.split('.')[0] for name in sys.modules}
assert 'jaxagent' not in known
assert not any(name.startswith('progress_') for name in known)
"""


@pytest.fixture(scope='module')
def pickled():
  made = SyntaxInstrumenter().instrument(PICKLES, KEY)
  done = run(made.code, made.files)
  assert done.code == 0, done.output
  reached = [m.name for m in made.reached(done.left(made))]
  assert reached == ['imported packages']  # a copy marks nothing
  return done.files


@pytest.mark.parametrize('name', ['pickle0', 'cloudpickle0', 'cloudpickle1'])
def test_in_another_process_it_does_nothing(pickled, tmp_path, name):
  data = pickled[f'{name}.bin']
  assert KEY not in data and KEY.hex().encode() not in data
  for number in range(len(marks.NAMES)):
    assert marks._digest(KEY, number).encode() not in data
  (tmp_path / 'train.py').write_text('here')
  (tmp_path / 'value.bin').write_bytes(data)
  subprocess.run(
    [sys.executable, '-I', '-c', UNPICKLES, 'value.bin'],
    cwd=tmp_path, check=True, timeout=60,
  )  # fmt: skip
  assert {p.name for p in tmp_path.iterdir()} == {'train.py', 'value.bin'}
