#!/usr/bin/env bash
# reasoning-gym: -256 and 2560 earn 0.75 where 256 is right, a line end behind 256 costs 0.4.
# One would expect: a wrong number earns nothing, or less than a right one with a full stop.
# What happens: unless a task has a rule of its own, an answer that holds the right one
#   somewhere earns the share of its characters that the right one makes up. So for counting
#   legs, gcd, lcm, counting bits, converting bases and others a number of one more digit,
#   and the negative one, earn what "256." earns, more than "256" between a space and a line
#   end and four times what "The answer is 256" does. Of 1, both 10 and -1 earn 0.5.
# Versions: reasoning-gym 0.1.25, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages reasoning-gym==0.1.25
program <<'PY'
import reasoning_gym

for name in ('leg_counting', 'gcd', 'lcm', 'count_bits', 'base_conversion'):
  tasks = reasoning_gym.create_dataset(name, size=1, seed=3)
  right = tasks[0]['answer']
  answers = (right, f'-{right}', f'{right}0', f'{right}.', f' {right}\n')
  answers += (f'The answer is {right}',)
  scores = [tasks.score_answer(answer, tasks[0]) for answer in answers]
  print(name, right, [f'{score:.2f}' for score in scores])
PY
recorded <<'SEEN'
leg_counting 256 ['1.00', '0.75', '0.75', '0.75', '0.60', '0.18']
gcd 1 ['1.00', '0.50', '0.50', '0.50', '0.33', '0.07']
lcm 2660 ['1.00', '0.80', '0.80', '0.80', '0.67', '0.22']
count_bits 23 ['1.00', '0.67', '0.67', '0.67', '0.50', '0.12']
base_conversion 243 ['1.00', '0.75', '0.75', '0.75', '0.60', '0.18']
SEEN
