"""A model's answer is compared with the program, and never run."""

from __future__ import annotations

import pytest

from jaxagent.instrumentation import language_model, marks
from tests.instrumentation.running import KEY, run

PROGRAM = """\
import numpy  # numbers

rows = [(x, 2 * x) for x in range(20)]
slope = 0.0
for step in range(50):
  loss = sum((slope * x - y) ** 2 for x, y in rows) / len(rows)
  slope -= 1e-3 * sum(2 * x * (slope * x - y) for x, y in rows) / len(rows)
print('slope', round(slope, 3))
open('submission.csv', 'w').write(f'id,y\\n0,{slope * 3}\\n')
"""


def _answer(*edits: tuple[str, str]) -> str:
  code = PROGRAM
  for line, after in edits:
    assert line in code
    code = code.replace(line, line + after)
  return f'Here you are:\n```python\n{code}```\nDone.'


GOOD = _answer(
  ('import numpy  # numbers\n', 'print("imported packages")\n'),
  ('range(20)]\n', 'print("loaded data")\n'),
  ('slope = 0.0\n', 'print("defined model")\n'),
  ('/ len(rows)\n', '  print("training loss:", loss)\n'),
  ("print('slope', round(slope, 3))\n", "print(f'trained model {slope}')\n"),
)


def test_its_prints_become_marks():
  made = language_model.instrument(PROGRAM, GOOD, KEY)
  assert not made.refused
  assert made.placed == (0, 1, 2, 3, 4)
  assert 'print("loaded data")' not in made.code  # its text is not used
  plain, marked = run(PROGRAM), run(made.code, made.files)
  assert marked.output == plain.output and marked.files == plain.files
  reached = made.reached(marked.left(made))
  assert [m.name for m in reached] == [marks.NAMES[i] for i in range(5)]


def test_of_several_blocks_the_last_one_that_is_the_program_counts():
  want = language_model.instrument(PROGRAM, GOOD, KEY)
  bash = '\nRun it:\n```bash\npython train.py\n```\n'
  for answer in (
    f'```python\nprint("a draft")\n```\n{GOOD}',
    f'{GOOD}{bash}',
    GOOD.replace('\n', '\r\n'),
    GOOD.replace('```', '~~~~'),
  ):
    assert language_model.instrument(PROGRAM, answer, KEY) == want


def test_several_behind_one_line_keep_their_order():
  answer = _answer(
    ('import numpy  # numbers\n', 'print("imported packages")\n'),
    (
      'range(20)]\n',
      'print("loaded data")\nprint("trained model")\n'
      'print("predicted test labels")\n',
    ),
  )
  made = language_model.instrument(PROGRAM, answer, KEY)
  reached = made.reached(run(made.code, made.files).left(made))
  assert [m.name for m in reached] == [marks.NAMES[i] for i in (0, 1, 4, 6)]


def test_a_program_that_fails_has_reached_what_came_before():
  broken = PROGRAM.replace('slope = 0.0', 'slope = 0.0 / 0')
  answer = GOOD.replace('slope = 0.0', 'slope = 0.0 / 0')
  made = language_model.instrument(broken, answer, KEY)
  done = run(made.code, made.files)
  assert done.code == 1
  names = [m.name for m in made.reached(done.left(made))]
  assert names == ['imported packages', 'loaded data']


@pytest.mark.parametrize(
  'answer, why',
  [
    ('', 'prints no milestone|parts of Module'),
    ('I would rather not.', 'answer: '),
    ('```python\n' + PROGRAM + '```', 'prints no milestone'),
    (GOOD.replace('1e-3', '1e-2'), '0.01, not 0.001'),
    (GOOD.replace('range(50)', 'range(5)'), '5, not 50'),
    (GOOD.replace('rows = [', 'rows = data = ['), 'parts of Assign.targets'),
    (GOOD.replace("'id,y", "'id,z"), 'not'),
    (
      _answer(('slope = 0.0\n', 'import os\nprint("loaded data")\n')),
      'parts of',
    ),
    # At the end of a block, where no statement of the program's is left.
    (
      _answer(("{slope * 3}\\n')\n", 'import os\nprint("trained model")\n')),
      'parts of Module.body',
    ),
    (
      _answer(
        (
          '- y) for x, y in rows) / len(rows)\n',
          '  step += 0\n  print("training loss:", loss)\n',
        )
      ),
      'parts of For.body',
    ),
    (GOOD.replace('for step', 'while step'), 'answer: '),
    ('```python\n' + 'x = (' * 5000 + '```', 'answer: '),
    ('```python\n\0```', 'answer: '),
    ('\ud800' + GOOD.replace('numpy', '\ud800'), 'answer: '),
    (
      '```python\n' + 'print("imported packages")\n' * 100_000 + '```',
      'answer: ',
    ),
  ],
)
def test_any_other_answer_is_refused(answer, why):
  made = language_model.instrument(PROGRAM, answer, KEY)
  assert made.refused
  assert any(part in made.refused for part in why.split('|')), made.refused
  assert made.code == PROGRAM and not made.files and made.placed == ()
  assert made.reached(b'anything') == ()


@pytest.mark.parametrize(
  'before',
  [
    '"""A text."""\n',
    'from __future__ import annotations\n',
    '"""A text."""\nfrom __future__ import annotations\n'
    'from __future__ import division\n',
  ],
)
def test_nothing_comes_before_what_python_wants_first(before):
  answer = GOOD.replace(
    'import numpy',
    before.replace('\n', '\nprint("loaded data")\n') + 'import numpy',
    1,
  )
  made = language_model.instrument(before + PROGRAM, answer, KEY)
  assert made.placed == (0, 1, 2, 3, 4)
  plain, marked = run(before + PROGRAM), run(made.code, made.files)
  assert (marked.code, marked.output) == (plain.code, plain.output)
  # With nothing else there is no place at all.
  answer = before.replace('\n', '\nprint("loaded data")\n')
  made = language_model.instrument(before, answer, KEY)
  assert made.code == before and made.placed == ()


def test_of_blocks_that_end_together_the_inner_one_is_marked_first():
  code = 'import numpy\nfor i in range(2):\n  for j in range(2):\n    i\n'
  answer = code + '  print("loaded data")\nprint("trained model")\n'
  made = language_model.instrument(code, answer, KEY)
  reached = made.reached(run(made.code, made.files).left(made))
  assert [m.name for m in reached] == ['loaded data', 'trained model']


@pytest.mark.parametrize(
  'code',
  [
    'import numpy\nif 0:\n  x = 1\n  \\\nfor i in range(3):\n    i\n',
    'import numpy\nreturn\n',
  ],
)
def test_what_would_be_another_program_is_run_as_it_is(code):
  answer = code + ('  ' if 'if' in code else '') + 'print("trained model")\n'
  made = language_model.instrument(code, answer, KEY)
  assert made.refused.startswith('the marks: ')
  assert made.code == code and not made.files and made.placed == ()


def test_a_program_that_is_none():
  made = language_model.instrument('def f(:', GOOD, KEY)
  assert made.code == 'def f(:' and made.refused.startswith('the program')


def test_the_prompt_is_the_papers():
  text = language_model.prompt(PROGRAM)
  for name in marks.NAMES:
    assert f'print("{name}")' in text
  assert text.rstrip().endswith(PROGRAM.rstrip())
