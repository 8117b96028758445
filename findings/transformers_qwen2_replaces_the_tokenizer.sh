#!/usr/bin/env bash
# transformers 5: a folder of model_type qwen2 is read by other rules than its tokenizer.json.
# One would expect: AutoTokenizer gives the ids that tokenizer.json gives, above all where
#   tokenizer_config.json names PreTrainedTokenizerFast, as 4.x did.
# What happens: Qwen2Tokenizer is taken whatever the config names; it keeps vocabulary and
#   merges, and replaces normalizer, pre-tokenizer and decoder. The same files beside
#   model_type qwen3 are kept. A model with a tokenizer of its own is served on other ids
#   than it was trained on.
# Versions: transformers 5.24.0, tokenizers 0.23.3, Python 3.11; without PyTorch.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6
program <<'PY'
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

# A vocabulary of bytes and one merge: two digits are a token.
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
vocab = {token: i for i, token in enumerate([*letters, '42'])}
own = Tokenizer(models.BPE(vocab=vocab, merges=[('4', '2')]))
own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
own.decoder = decoders.ByteLevel()
for kind in ('qwen2', 'qwen3'):
  folder = pathlib.Path(kind)
  folder.mkdir()
  own.save(str(folder / 'tokenizer.json'))
  (folder / 'config.json').write_text(json.dumps({'model_type': kind}))
  named = {'tokenizer_class': 'PreTrainedTokenizerFast'}
  (folder / 'tokenizer_config.json').write_text(json.dumps(named))
  theirs = AutoTokenizer.from_pretrained(str(folder))
  ids = theirs('42', add_special_tokens=False)['input_ids']
  print(kind, type(theirs).__name__, 'tokens of "42":', len(ids), '; of the file:', len(own.encode('42').ids))
PY
recorded <<'SEEN'
qwen2 Qwen2Tokenizer tokens of "42": 2 ; of the file: 1
qwen3 TokenizersBackend tokens of "42": 1 ; of the file: 1
SEEN
