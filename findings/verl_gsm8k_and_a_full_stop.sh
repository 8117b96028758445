#!/usr/bin/env bash
# verl: the reward of GSM8K calls an answer wrong that a full stop follows.
# One would expect: "#### 42." and "The answer is 42." earn what "#### 42" earns, and the
#   method "flexible" takes whatever "strict" takes.
# What happens: the full stop is taken for a part of the number and the texts are
#   compared, so both earn 0, by either method. "flexible" keeps the commas of "1,000"
#   that "strict" takes out, and takes the last number of the text whatever follows ####:
#   two right answers of the strict form are wrong there. A number with ".0" is wrong
#   by both.
# Versions: verl 0.9.1, Python 3.11. The module is loaded by its file: it needs nothing
#   but the standard library, and the package's own import needs torch and Ray.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages --no-deps verl==0.9.1
program <<'PY'
import importlib.util
import pathlib
import site

folder = pathlib.Path(site.getsitepackages()[0]) / 'verl/utils/reward_score'
spec = importlib.util.spec_from_file_location('gsm8k', folder / 'gsm8k.py')
gsm8k = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gsm8k)

for text, truth in (
  ('#### 42', '42'),
  ('#### 42.', '42'),
  ('The answer is 42.', '42'),
  ('#### 1,000', '1000'),
  ('#### 42 apples for 3 children', '42'),
  ('#### 42.0', '42'),
):
  rewards = [gsm8k.compute_score(text, truth, how) for how in ('strict', 'flexible')]
  print(f'{text!r:32} strict {rewards[0]:.0f} flexible {rewards[1]:.0f}')
PY
recorded <<'SEEN'
'#### 42'                        strict 1 flexible 1
'#### 42.'                       strict 0 flexible 0
'The answer is 42.'              strict 0 flexible 0
'#### 1,000'                     strict 1 flexible 0
'#### 42 apples for 3 children'  strict 1 flexible 0
'#### 42.0'                      strict 0 flexible 0
SEEN
