#!/usr/bin/env bash
# transformers: a tokenizer that truncated once is saved as one that truncates for others.
# One would expect: truncation and padding are arguments of one call.
# What happens: they stay in the backend, and save_pretrained writes them into tokenizer.json.
#   transformers itself sets them anew at every call and shows nothing; whoever reads the file
#   with the tokenizers library gets every text cut to the length of the last call before
#   the save.
# Versions: transformers 5.24.0, tokenizers 0.23.3, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages transformers==5.24.0 tokenizers==0.23.3
program <<'PY'
import tokenizers
import transformers
from tokenizers import models, pre_tokenizers

words = {'[UNK]': 0} | {c: i for i, c in enumerate('abcdefgh', start=1)}
backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token='[UNK]'))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = transformers.PreTrainedTokenizerFast(
  tokenizer_object=backend, unk_token='[UNK]', pad_token='[UNK]'
)
text = 'a b c d e f g'
for folder in ('before', 'after'):
  tokenizer.save_pretrained(folder)
  again = transformers.AutoTokenizer.from_pretrained(folder)
  other = tokenizers.Tokenizer.from_file(f'{folder}/tokenizer.json')
  print(f'{folder}: transformers {again(text).input_ids}')
  print(f'{folder}: tokenizers {other.encode(text).ids}')
  tokenizer(text, truncation=True, max_length=3)
PY
recorded <<'SEEN'
before: transformers [1, 2, 3, 4, 5, 6, 7]
before: tokenizers [1, 2, 3, 4, 5, 6, 7]
after: transformers [1, 2, 3, 4, 5, 6, 7]
after: tokenizers [1, 2, 3]
SEEN
