"""Credit that was not earned: what a program can print, read or write.

What the marker mode cannot stop (a program that searches its own process for the
hash object and uses it) is said in docs/rl_for_mle.md and is not tried here.
"""

from __future__ import annotations

import pytest

from jaxagent.instrumentation import SyntaxInstrumenter, marks
from tests.instrumentation.running import KEY, run

pytestmark = pytest.mark.slow
EMPTY = 'pass\n'
PRINTS = '\n'.join(f'print({name!r})' for name in marks.NAMES)
# All bytes and texts that lie about, each tried as the key.
READS_THE_KEY = """
import sys
def found():
  import glob, hashlib, os, pathlib
  texts = [*os.environ.values(), *sys.argv]
  for name in [*glob.glob('*'), *glob.glob('.*'), '/proc/self/cmdline',
               '/proc/self/environ', *glob.glob('/proc/self/fd/[3-9]')]:
    try:
      texts.append(pathlib.Path(name).read_bytes())
    except Exception:
      pass
  frame = sys._getframe()
  while frame:
    for space in (frame.f_locals, frame.f_globals):
      for value in list(space.values()):
        texts += [value, getattr(value, '__doc__', None)]
        for cell in getattr(value, '__closure__', None) or ():
          texts.append(cell.cell_contents)
        for constant in getattr(getattr(value, '__code__', 0), 'co_consts', ()):
          texts.append(constant)
    frame = frame.f_back
  for module in list(sys.modules.values()):
    texts += [v for v in vars(module).values() if isinstance(v, (str, bytes))]
  keys = set()
  for text in texts:
    if isinstance(text, str):
      text = text.encode('utf-8', 'surrogateescape')
    if isinstance(text, bytes):
      keys.update([text[:64], text.strip()[:64]])
      if len(text) < 2000:
        keys.update(text[i:i + 16] for i in range(len(text)))
  return keys
import hashlib, glob
out = [*glob.glob('.*.marks'), 'forged']
with open(out[0], 'ab') as file:
  for key in found():
    for number in range(7):
      digest = hashlib.blake2b(key=key, digest_size=16)
      digest.update(b'%d' % number)
      file.write(digest.hexdigest().encode() + b'\\n')
"""
WRITES_THE_FILE = """
import glob
for name in [*glob.glob('.*.marks'), '.progress.marks']:
  with open(name, 'a') as file:
    for number in range(7):
      file.write('0' * 32 + '\\n' + f'{number}\\n' + 'imported packages\\n')
    file.write('\\xff' * 100_000)
"""
CALLS_THE_MARK = """
import sys
marks = [v for k, v in list(globals().items()) if k.startswith('_progress')]
marks += [vars(m)['mark'] for n, m in list(sys.modules.items())
          if n.startswith('progress_')]
for mark in marks:
  for number in range(7):
    try:
      mark(number)
    except Exception:
      pass
"""

# Calls the mark as if from its own lines.
CALLS_FROM_ITS_LINES = """
import numpy, sys
def f():
  data = open('train.py').read()
marks = [v for k, v in list(globals().items()) if k.startswith('_progress')]
for number in range(8):
  for line in range(20):
    code = compile('\\n' * line + f'marks[0]({number})', __file__, 'exec')
    exec(code)
    exec(code, {'marks': marks})
exec(f.__code__, {**globals(), 'open': lambda name: sys.stdin})
"""
FAKES_A_MODEL = """
class Model:
  def fit(self, x, y): return self
  def predict(self, x): return x
data = open('train.py').read()
model = Model()
model.fit(data, data)
test = model.predict(data)
"""
# With Python's own modules, or with what the program has made itself.
ONLY_PYTHON = {
  'never imports': 'import os\nif 0: import numpy\n',
  'fails to import': 'try: import no_such_package\nexcept ImportError: pass\n',
  'has failed once': (
    'import sys\nsys.path.clear(); sys.meta_path.clear()\n'
    'try: import numpy\nexcept ImportError: import os\n'
  ),
  'from where it stands': 'try: from . import x\nexcept ImportError: pass\n',
  'writes a package': "open('own.py', 'w').write('')\nimport own\n",
  'elsewhere': (
    'import os, sys, tempfile\nsys.path.insert(0, tempfile.mkdtemp())\n'
    "open(sys.path[0] + '/own.py', 'w').write('')\nimport own\n"
  ),
  'claims a package': "import sys\nsys.modules['own'] = sys\nimport own\n",
  'makes one up': (
    "import sys\nsys.modules['own'] = type(sys)('own')\nimport own\n"
  ),
  "Python's own tests": 'import test, _testcapi\n',
}
# What Python runs, and the text does not show, before all that it shows.
RUNS_FIRST = {
  'escape': '# coding: unicode_escape\n# \\x0a{}\nimport numpy\n',
  'second line': '#!python\n# coding: unicode_escape\n#\\x0a{}\nimport numpy\n',
  'carriage return': '\r# coding: unicode_escape\n# \\x0a{}\nimport numpy\n',
  'form feed': '\f\n\f# coding: unicode_escape\n# \\x0a{}\nimport numpy\n',
  'utf-7': '# coding: utf-7\n#+AAo-{}\nimport numpy\n',
}


def _reached(code: str) -> list[str]:
  made = SyntaxInstrumenter().instrument(code, KEY)
  return [m.name for m in made.reached(run(made.code, made.files).left(made))]


@pytest.mark.parametrize(
  'code',
  [PRINTS, READS_THE_KEY, WRITES_THE_FILE, CALLS_THE_MARK],
  ids=['prints', 'reads', 'writes', 'calls'],
)
def test_no_more_than_an_empty_program(code):
  assert _reached(code) == _reached(EMPTY) == []


@pytest.mark.parametrize('how', ONLY_PYTHON)
def test_nothing_without_a_package(how):
  assert _reached(ONLY_PYTHON[how] + FAKES_A_MODEL) == []


def test_a_package_is_enough():
  """So the test above can fail. What is imported need not be used."""
  assert len(_reached('import numpy\n' + FAKES_A_MODEL)) == 5


def test_the_mark_is_not_called_by_code_that_is_made():
  assert _reached(CALLS_FROM_ITS_LINES) == ['imported packages']


@pytest.mark.parametrize('how', RUNS_FIRST)
def test_nothing_runs_before_the_key_is_gone(how):
  code = RUNS_FIRST[how].format("print(__import__('glob').glob('.*.key'))")
  made = SyntaxInstrumenter().instrument(code, KEY)
  done = run(made.code, made.files)
  assert done.output.strip() == '[]' and not made.placed and made.refused
  assert made.code == code


@pytest.mark.parametrize(
  'line',
  ['\f', '\v', '\x1c', '\x85', '\u2028', '\r', '\r\n', '\n', '\f\n', '\x0b#'],
)
def test_what_parts_lines_elsewhere_runs_nothing_first(line):
  shown = f'# a{line}print(__import__("glob").glob(".*.key"))\nimport numpy\n'
  made = SyntaxInstrumenter().instrument(shown, KEY)
  assert run(made.code, made.files).output.strip() in ('', '[]')


def test_a_program_that_finds_the_key_would_earn_all():
  """So the test above can fail: here the key still lies about."""
  made = SyntaxInstrumenter().instrument('import numpy\n' + READS_THE_KEY, KEY)
  done = run(made.code, {**made.files, 'key.txt': KEY})
  every = marks.read(done.left(made), KEY, range(7))
  assert len(every) == 7


def test_marks_of_another_run_count_for_nothing():
  code = 'import numpy\ndata = open("train.py").read()\n'
  made = SyntaxInstrumenter().instrument(code, KEY)
  left = run(made.code, made.files).left(made)
  assert len(made.reached(left)) == 2
  other = SyntaxInstrumenter().instrument(code, b'another key of 16')
  assert other.reached(left) == ()


def test_a_mark_needs_those_that_it_follows_from():
  key, every = KEY, range(7)
  lines = {n: marks._digest(key, n).encode() + b'\n' for n in every}
  order = [lines[n] for n in (6, 4, 1, 0, 2, 1, 4, 6, 0)]
  names = [m.name for m in marks.read(b''.join(order), key, every)]
  assert names == [marks.NAMES[n] for n in (0, 2, 1, 4, 6)]
  # What has no place in the program is not waited for.
  assert marks.read(lines[6], key, (6,))[0].name == 'predicted test labels'
  assert marks.read(lines[6], key, (0,)) == ()


@pytest.mark.parametrize('text', ['nan', 'inf', '-inf', 'x', '1e999', ''])
def test_a_value_is_finite_or_none(text):
  data = marks._digest(KEY, 0).encode() + b' ' + text.encode()
  assert marks.read(data, KEY, (0,)) == (marks.Mark('imported packages', None),)
