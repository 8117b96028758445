#!/usr/bin/env bash
# tokenizers: a BPE tokenizer that was trained with dropout, saved and loaded for use.
# One would expect: dropout is of training, and a text has one encoding afterwards.
# What happens: it is in tokenizer.json, and each encoding of a text is drawn anew, without
#   a seed. `model.dropout = None` ends it.
# Versions: tokenizers 0.23.3, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages tokenizers==0.23.3
program <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

text = 'the policy trains the model'
made = Tokenizer(models.BPE(dropout=0.3))
made.pre_tokenizer = pre_tokenizers.ByteLevel()
made.train_from_iterator([text] * 50, trainers.BpeTrainer(vocab_size=300, show_progress=False))
made.save('tokenizer.json')
loaded = Tokenizer.from_file('tokenizer.json')


def encodings():
  return len({tuple(loaded.encode(text).ids) for _ in range(100)})


print('more than one encoding:', encodings() > 1)
loaded.model.dropout = None
print('without dropout:', encodings())
PY
recorded <<'SEEN'
more than one encoding: True
without dropout: 1
SEEN
