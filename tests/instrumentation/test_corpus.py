"""A corpus of programs does the same with marks as without."""

from __future__ import annotations

import pathlib
import re
import statistics
import time

import pytest

from jaxagent.instrumentation import SyntaxInstrumenter
from tests.instrumentation.running import KEY, run

_TEXT = pathlib.Path(__file__).with_name('corpus.txt').read_text('utf-8')
_LINES = '\n'.join(f'v{i} = {i} * math.pi' for i in range(2000))


def _corpus() -> dict[str, str]:
  parts = re.split(r'^### (\w+)\n', _TEXT, flags=re.M)[1:]
  corpus = {}
  for name, code in zip(parts[::2], parts[1::2]):
    code = code.replace('REPEAT', '1, ' * 5000).replace('LINES', _LINES)
    corpus[name] = code
  corpus['no_newline_at_end'] = corpus['no_newline_at_end'].rstrip('\n')
  corpus['crlf'] = corpus['tabs'].replace('\n', '\r\n')
  corpus['form_feed'] = '\f' + corpus['form_feed'].replace(
    'math\n', 'math\n\f\n'
  )
  corpus['carriage_returns'] = corpus['one_line_suite'].replace('\n', '\r')
  corpus['separators'] = "import math\nx = '\u2028\x1c\x85'; print(len(x))\n"
  return corpus


CORPUS = _corpus()
# What it says depends on where its modules lie, or on when it is looked at.
_ADDRESS = re.compile(r'0x[0-9a-f]+')


def test_the_corpus_is_as_large_as_it_is_said_to_be():
  assert len(CORPUS) >= 60


@pytest.mark.slow
@pytest.mark.parametrize('name', CORPUS)
def test_the_same_output_files_and_exit_code(name):
  code = CORPUS[name]
  made = SyntaxInstrumenter().instrument(code, KEY)
  plain, marked = run(code), run(made.code, made.files)
  output = made.as_it_was(marked.output, 'train.py')
  assert _ADDRESS.sub('', output) == _ADDRESS.sub('', plain.output)
  assert (marked.code, marked.files) == (plain.code, plain.files)
  if made.placed:
    assert set(made.files) and not (
      set(marked.files) & {k for k in made.files if k.endswith('.key')}
    )


def test_what_is_reached():
  def names(name):
    made = SyntaxInstrumenter().instrument(CORPUS[name], KEY)
    marks = made.reached(run(made.code, made.files).left(made))
    return [m.name for m in marks], {m.name: m.value for m in marks}

  reached, values = names('sklearn')
  assert reached == [
    'imported packages', 'loaded data', 'defined model', 'trained model',
    'training loss:', 'testing loss:', 'predicted test labels',
  ]  # fmt: skip
  assert values['training loss:'] == pytest.approx(1.0, abs=0.1)
  assert 0 < values['testing loss:'] < 1
  assert names('missing_file')[0] == ['imported packages']
  assert names('missing_import')[0] == []
  assert names('raises')[0] == ['imported packages', 'loaded data']
  assert names('raises_in_function')[0] == []  # Python's own alone
  assert names('train_loop')[0] == ['imported packages', 'trained model']
  assert names('late_import')[0] == ['imported packages', 'loaded data']
  assert names('local_package')[0] == []
  assert names('continued_before')[0] == []
  assert names('continued_into_nothing')[0] == reached[:2]
  assert names('odd_namespace')[0] == reached[:2]
  assert names('declared_escape')[0] == []
  assert names('syntax_error')[0] == names('empty')[0] == []
  assert names('prints_like_a_mark')[0] == ['imported packages']


def test_the_price():
  """Median under 5 ms (what is timed is the instrumenter alone)."""
  times = []
  for _ in range(3):
    for code in CORPUS.values():
      if len(code) < 5000:
        began = time.perf_counter()
        SyntaxInstrumenter().instrument(code, KEY)
        times.append(time.perf_counter() - began)
  assert statistics.median(times) < 5e-3
