"""Code blocks in what models write."""

from __future__ import annotations

import time

import pytest

from jaxagent.files import fences


@pytest.mark.parametrize(
  'text, found',
  [
    ('```python\nx\n```', [('python', 'x\n')]),
    ('```Python title="a.py"\r\nx\r\ny\r\n```\r\n', [('python', 'x\ny\n')]),
    ('~~~\nx\n```\n~~~', [('', 'x\n```\n')]),
    ('````md\n```\nx\n```\n````', [('md', '```\nx\n```\n')]),
    ('- so:\n\n  ```py\n  if x:\n    y\n  ```', [('py', 'if x:\n  y\n')]),
    ('```\na\n```\n```\nb\n```', [('', 'a\n'), ('', 'b\n')]),
    ('```x``` is code\n```\na\n```', [('', 'a\n')]),
    ('```python\nx', []),
    ('no code', []),
    ('```\n```', [('', '')]),
    ('```python:a.py\nx\n```', [('python', 'x\n')]),
    ('```{.c++ .wide}\nx\n```', [('c++', 'x\n')]),
  ],
)
def test_blocks(text, found):
  assert [(b.language, b.code) for b in fences.blocks(text)] == found


def test_a_block_ends_where_its_code_is_whole():
  code = 'a = """\n```\n"""\n'
  text = f'```\n{code}```\n'

  def parses(code):
    try:
      compile(code, '', 'exec')
      return True
    except SyntaxError:
      return False

  assert [b.code for b in fences.blocks(text, parses)] == [code]


@pytest.mark.parametrize(
  'text, plain',
  [
    ('Plan.\r\n~~~py\r\nx\r\n~~~\r\n', 'Plan.\n```py\nx\n```\n'),
    ('Plan.\n````\nx\n````', 'Plan.\n```\nx\n```'),
    ('a\n```\nx\n```\nb\n```\ny\n```', 'a\n```\nx\n```\nb\n```\ny\n```'),
    ('````\n```\nx\n```\n````', '````\n```\nx\n```\n````'),
    ('no code', 'no code'),
  ],
)
def test_one_block_is_written_plainly(text, plain):
  assert fences.plain(text) == plain


@pytest.mark.parametrize('piece', ['```\n', '```x\n', '~~~~\n~~~\n', '``` `\n'])
def test_many_fences_are_read_in_seconds(piece):
  began = time.monotonic()
  fences.blocks(piece * 50_000, lambda code: False)
  fences.spans(piece * 50_000)
  assert time.monotonic() - began < 10
