#!/usr/bin/env bash
# math-verify: a number as Python prints it, 2.5e-4, is 2.5, and within a box 2.5 e - 4.
# One would expect: 2.5e-4 is 0.00025, or no number at all.
# What happens: in plain text only the mantissa is read, so an answer of 2.5e-4 is right
#   where 2.5 is asked and wrong where 0.00025 is, and 1e3 equals 1. Within \boxed or $ $
#   the letter is Euler's number: 2.5 e - 4. A capital E in a box is read as the exponent,
#   and not in plain text; \times 10^{-4} is right everywhere.
# Versions: math-verify 0.9.0, latex2sympy2-extended 1.11.0, sympy 1.14.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages math-verify==0.9.0 latex2sympy2-extended==1.11.0 sympy==1.14.0
program <<'PY'
from math_verify import parse, verify

for truth, answer in (
  ('0.00025', 'The loss is 2.5e-4'),
  ('2.5', 'The loss is 2.5e-4'),
  ('1', '1e3'),
  ('1000', '1e3'),
  ('0.00025', r'\boxed{2.5e-4}'),
  ('0.00025', '2.5E-4'),
  ('0.00025', r'\boxed{2.5E-4}'),
  ('0.00025', r'\boxed{2.5\times 10^{-4}}'),
):
  found = parse(answer)
  right = verify(parse(truth), found)
  print(f'{answer!r:32} is {str(found[0])[:12]:13} asked {truth}: {right}')
PY
recorded <<'SEEN'
'The loss is 2.5e-4'             is 2.5000000000  asked 0.00025: False
'The loss is 2.5e-4'             is 2.5000000000  asked 2.5: True
'1e3'                            is 1             asked 1: True
'1e3'                            is 1             asked 1000: False
'\\boxed{2.5e-4}'                is -4 + 2.5*E    asked 0.00025: False
'2.5E-4'                         is 2.5000000000  asked 0.00025: False
'\\boxed{2.5E-4}'                is 0.0002500000  asked 0.00025: True
'\\boxed{2.5\\times 10^{-4}}'    is 2.5/10**4     asked 0.00025: True
SEEN
