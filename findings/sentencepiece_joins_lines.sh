#!/usr/bin/env bash
# sentencepiece: a tokenizer that is trained on code has no lines and no indentation.
# One would expect: what is encoded comes back, as from a byte-level tokenizer.
# What happens: the default normalization (nmt_nfkc, remove_extra_whitespaces) makes one blank of
#   line ends, tabs and runs of blanks, in training and encoding alike. The decoded program does
#   not parse; the model learns code that cannot be written. identity with
#   remove_extra_whitespaces=false keeps blanks, and line ends where a symbol for them is given.
# Versions: sentencepiece 0.2.3, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages sentencepiece==0.2.3
program <<'PY'
import ast

import sentencepiece

code = 'def f(x):\n    if x:\n\treturn  x\n'.replace('\t', '        ')
open('code.txt', 'w').write(code * 200)
for name, options in (
  ('default', {}),
  (
    'identity',
    {
      'normalization_rule_name': 'identity',
      'remove_extra_whitespaces': False,
      'user_defined_symbols': ['\n'],
    },
  ),
):
  sentencepiece.SentencePieceTrainer.train(
    input='code.txt', model_prefix=name, vocab_size=30, hard_vocab_limit=False,
    minloglevel=5, **options,
  )  # fmt: skip
  model = sentencepiece.SentencePieceProcessor(model_file=f'{name}.model')
  back = model.decode(model.encode(code))
  try:
    ast.parse(back)
    print(name, 'parses', repr(back))
  except SyntaxError:
    print(name, 'does not parse', repr(back))
PY
recorded <<'SEEN'
default does not parse 'def f(x): if x: return x'
identity parses 'def f(x):\n    if x:\n        return  x\n'
SEEN
