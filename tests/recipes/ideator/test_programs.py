"""Two programs are the same where seeds, comments and layout alone differ."""

from __future__ import annotations

import random
import time

import pytest

from jaxagent.recipes.ideator.programs import MOST_CHARACTERS, same_program

SAME = [
  ('f(random_state=0)', 'f(random_state=1)'),
  ('f(random_state=0)', 'f()'),
  ('f(a, seed=SEED + 1)', 'f(a, seed=None)'),
  ('SEED = 4\nf(seed=SEED)', 'f(seed=3)'),
  ('my_seed: int = 1\nx = 1', 'x = 1'),
  ('import random\nrandom.seed(1)\nx = 1', 'x = 1  # as before'),
  ('import numpy as np\nnp.random.seed(0)\nf()', 'f()'),
  ('torch.manual_seed(0)\nf()', 'torch.manual_seed(1)\nf()'),
  ('rng = np.random.default_rng(0)', 'rng = np.random.default_rng(7)'),
  ('rng = np.random.RandomState(0)', 'rng = np.random.RandomState()'),
  ('def f(a, seed=1):\n  return a', 'def f(a, seed=2):\n  return a'),
  ('def f(*, seed=1):\n  return 0', 'def f(*, seed=2):\n  return 0'),
  ('f({"seed": 1, "a": 2})', 'f({"seed": 9, "a": 2})'),
  ("os.environ['PYTHONHASHSEED'] = '0'\nf()", 'f()'),
  ('"""What it does."""\nx = 1', 'x = 1'),
  ('if a:\n    b(1,\n      2)\n', 'if a: b(1, 2)'),
  ("x = 'a'", 'x = "a"'),
  ('x = 1e-3', 'x = 0.001'),
  ('def f():\n  """Doc."""\n  pass\n', 'def f(): ...'),
  ('not python (', 'not python (\n'),
]
DIFFERENT = [
  ('f(a)', 'f(b)'),
  ('f(max_depth=3)', 'f(max_depth=4)'),
  ('f(n_estimators=3, random_state=0)', 'f(n_estimators=4, random_state=0)'),
  ('f(random_state=g())', 'f(random_state=h())'),
  ('n_seeds = 3\nf(n_seeds)', 'n_seeds = 5\nf(n_seeds)'),
  ('for s in [1, 2]: f(s)', 'for s in [1, 2, 3]: f(s)'),
  ('x = 1', 'x = 1.0'),
  ('x = 1', 'x = True'),
  ('x = 0.0', 'x = -0.0'),
  ('x = 1', 'x: int = 1'),
  ('f(a)\ng(a)', 'f(a)'),
  ('f(a)', 'f(a)\ng(a)'),
  ('f(a, b)', 'f([a, b])'),
  ('[a, [b]]', '[a, b, []]'),
  ('[[a], b]', '[[a, b]]'),
  ('f(g(a), b)', 'f(g(a, b))'),
  ('if a:\n  b\nc', 'if a:\n  b\n  c'),
  ('f(x)[0]', 'f(x)[1]'),
  ('f"{x}a"', 'f"{x}b"'),
  ('lambda s: 1', 'lambda t: 1'),
  ('def f(a, b=1): return a', 'def f(a, b=2): return a'),
  ('def f(a=1, b=2): return a', 'def f(b=1, a=2): return a'),
  ('if a:\n  b\n', 'if a:\n  b\nelse:\n  c\n'),
  ('{**a, "k": 1}', '{"k": 1, **a}'),
  ('import a\na.f()', 'import b as a\na.f()'),
  ('from a import f\nf()', 'from b import f\nf()'),
  ('from a import *\nf()', 'from b import *\nf()'),
  ('x = a + b', 'x = a - b'),
  ('f(x, *y)', 'f(x, y)'),
  ('seed_data = read()\nf()', 'f()'),
  ('x = (', 'x = ['),
  ('x = 1', 'x = ('),
  ('', 'x = 1'),
]


@pytest.mark.parametrize('a, b', SAME)
def test_programs_are_the_same_where_only_seeds_and_layout_differ(a, b):
  assert same_program(a, b) and same_program(b, a)


@pytest.mark.parametrize('a, b', DIFFERENT)
def test_programs_differ_where_anything_else_does(a, b):
  assert not same_program(a, b) and not same_program(b, a)


HARD = {
  'many brackets': '(' * 200_000,
  'nested lists': '[' * 90 + ']' * 90,
  'a long chain': 'x' + '.a' * 20_000,
  'many signs': '-' * 40_000 + '1',
  'nested calls': 'f(' * 80 + ')' * 80,
  'nested blocks': '\n'.join(' ' * n + 'if a:' for n in range(90)) + ' b',
  'a long sum': 'x = ' + '1 + ' * 5000 + '1',
  'a megabyte of lines': 'x = f(1, a=2)\n' * 80_000,
  'a megabyte of letters': 'x' * 1_000_000,
  'NUL': 'x = 1\0',
  'a surrogate': 'x = "\ud800"',
  'a bad escape': 'x = "\\N{no such name}"',
  'a huge number': 'x = ' + '9' * 5000,
  'a tab amid spaces': 'if a:\n\tb\n        c\n',
}


@pytest.mark.parametrize('name', HARD)
def test_hard_programs_are_compared_without_an_exception_within_a_second(name):
  text = HARD[name]
  begun = time.thread_time()
  assert same_program(text, text + ' \n')
  assert not same_program(text, text + '\ny = 1')
  assert not same_program(text, 'y = 1')
  assert time.thread_time() - begun < 1.0


def test_programs_at_the_limit_are_read_and_beyond_it_compared_as_texts():
  line = 'x = 1  # a\n'
  short = line * (MOST_CHARACTERS // len(line))
  assert same_program(short, short.replace('# a', '# b'))
  long = short + line
  assert len(long) > MOST_CHARACTERS
  assert same_program(long, long + '\n')
  assert not same_program(long, long.replace('# a', '# b'))


def test_mutated_programs_do_not_raise_and_the_order_makes_no_difference():
  rng = random.Random(64)
  stock = [text for pair in SAME + DIFFERENT for text in pair]
  for _ in range(3000):
    a = rng.choice(stock)
    at = rng.randrange(len(a) + 1)
    b = a[:at] + rng.choice(stock)[:4] + a[at + rng.randrange(3) :]
    assert same_program(a, b) == same_program(b, a)
    assert same_program(b, b)
