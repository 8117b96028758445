"""Parsing of a policy's text."""

from __future__ import annotations

import ast
import concurrent.futures
import gc
import sys
import time

import pytest

from jaxagent.files import syntax
from jaxagent.instrumentation import source


@pytest.mark.slow
@pytest.mark.parametrize('parse', [syntax.parse, source.parse, source.compiled])
def test_threads_do_not_break_each_other(parse):
  """A collection in the middle of a parse lets another thread in."""
  text = 'x = ' + ' + '.join(f'f({i}, [a, b, (c, d)])' for i in range(200))

  def let_others_in(*_) -> None:
    time.sleep(0)

  threshold, interval = gc.get_threshold(), sys.getswitchinterval()
  gc.callbacks.append(let_others_in)
  gc.set_threshold(50)
  sys.setswitchinterval(1e-5)
  try:
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
      trees = list(threads.map(parse, [text] * 200))
  finally:
    gc.callbacks.remove(let_others_in)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
  assert all(isinstance(tree, ast.Module) for tree in trees)


@pytest.mark.parametrize('text', ['1 +', '\0', '(' * 500, '9' * 5000])
def test_what_is_no_program_raises_a_parse_error(text):
  with pytest.raises(syntax.PARSE_ERRORS):
    syntax.parse(text)


@pytest.mark.parametrize('text, value', [(' -3', -3), ("['a']", ['a'])])
def test_literals(text, value):
  assert syntax.literal(text) == value


def test_a_literal_is_no_call():
  with pytest.raises(ValueError):
    syntax.literal('print()')
