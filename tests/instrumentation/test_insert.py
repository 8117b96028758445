"""Marks go where they belong, however a program is laid out."""

from __future__ import annotations

import ast
import time

import pytest

from jaxagent.instrumentation import SyntaxInstrumenter, syntax
from tests.instrumentation.running import KEY

READS = "data = open('train.py').read()\n"


def _made(code: str) -> str:
  made = SyntaxInstrumenter().instrument(code, KEY)
  assert made.placed, made.refused
  return made.code.replace(made.collect[1:-6], 'p')


@pytest.mark.parametrize(
  'code, wanted',
  [
    (
      '@(\n  print\n)\ndef f(): pass\nimport numpy\n',
      'from p import mark as _p\n@(\n  print\n)\ndef f(): pass\n'
      "import numpy; _p(7, 'numpy'); _p(0)\n",
    ),
    (
      '"""Doc.""" \\\n\n@ \\\n  print\ndef f(): pass\nimport math\n',
      '"""Doc.""" \\\n\nfrom p import mark as _p\n@ \\\n  print\n'
      'def f(): pass\nimport math; _p(0)\n',
    ),
    (
      'with open("a") as f:\n  f \\\n\nprint()\n',
      'from p import mark as _p\nwith open("a") as f:\n  f \\\n\n_p(1)\nprint()\n',
    ),
    (
      'with open("a") as f:\n  f; \\\n \\\n \nprint()\n',
      'from p import mark as _p\nwith open("a") as f:\n  f; \\\n \\\n \n'
      '_p(1)\nprint()\n',
    ),
    (
      'with open("a") as f:\n  f  # a comment \\\nprint()\n',
      'from p import mark as _p\nwith open("a") as f:\n  f  # a comment \\\n'
      '_p(1)\nprint()\n',
    ),
  ],
)
def test_where_the_marks_go(code, wanted):
  assert _made(code) == wanted


def test_no_mark_runs_in_the_body_of_a_class():
  made = _made(
    f'class A:\n  import numpy\n  if 1:\n    {READS}  def f(self):\n    {READS}'
  )
  assert [line for line in made.splitlines() if '_p(' in line] == [
    f'    {READS[:-1]}; _p(1)'
  ]
  tree = ast.parse(f'class A:\n  {READS}')
  assert syntax.find(tree) == []


@pytest.mark.parametrize(
  'code',
  [
    'import numpy\nreturn\n',
    'import numpy\nbreak\n',
    'import numpy\nfrom __future__ import division\n',
    f'import numpy\nif 0:\n  x = 1\n  \\\nwith open("a") as f:\n    {READS}',
  ],
)
def test_what_would_be_another_program_is_run_as_it_is(code):
  made = SyntaxInstrumenter().instrument(code, KEY)
  assert made.code == code and made.refused and not made.files


@pytest.mark.alone
def test_the_time_grows_with_the_length_alone():
  tree = ast.parse("open('a')\n" * 20_000)
  began = time.process_time()
  assert syntax._last_of_block(tree.body, tree) is tree.body[-1]
  assert time.process_time() - began < 0.5


@pytest.mark.alone
def test_many_imports_on_one_line():
  began = time.process_time()
  made = SyntaxInstrumenter().instrument('import a;' * 20_000, KEY)
  assert made.placed and time.process_time() - began < 5
  assert made.code.count("(7, 'a')") == 100
