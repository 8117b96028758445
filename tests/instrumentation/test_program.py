"""What a program with marks printed, as the program itself would have."""

from __future__ import annotations

import pytest

from jaxagent.instrumentation.program import Instrumented

MADE = Instrumented('x', placed=(0,), put_in=('head; ',), added=(2,))


@pytest.mark.parametrize('where', ['File "solution.py", line ', 'solution.py:'])
def test_lines_are_the_programs_own(where):
  assert MADE.as_it_was(f'{where}5: no', 'solution.py') == f'{where}4: no'
  assert MADE.as_it_was(f'{where}2', 'solution.py') == f'{where}2'


@pytest.mark.parametrize('where', ['File "solution.py", line ', 'solution.py:'])
def test_a_number_that_is_no_line_is_left_alone(where):
  output = f'{where}{"9" * 5000}\n{where}{"9" * 10}'
  assert MADE.as_it_was(output, 'solution.py') == output
