"""A small Qwen2 or Qwen3 folder made on the spot: what a download would look like.

  python -m jaxagent.testing.small_hf DIR

Random weights, a byte-level BPE of 5,000 entries trained on Python's own
library, and Qwen2's chat template.
"""

from __future__ import annotations

import json
import pathlib
import sys

from tokenizers import Tokenizer, pre_tokenizers, trainers

from jaxagent.data import bpe
from jaxagent.models import ModelConfig, hf, init_decoder

VOCABULARY = 5_000
SPECIAL = ('<|endoftext|>', '<|im_start|>', '<|im_end|>')
CHAT_TEMPLATE = (
  '{% for message in messages %}'
  "{% if loop.first and messages[0]['role'] != 'system' %}"
  '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n'
  '{% endif %}'
  "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
  '{% endfor %}'
  '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}'
)


def make(
  folder: str | pathlib.Path,
  *,
  seed: int = 0,
  vocab_size: int = VOCABULARY,
  hidden_size: int = 64,
  tied: bool = True,
  model_type: str = 'qwen2',
) -> pathlib.Path:
  """Writes the folder, which must be new or empty; the same for each seed.

  tied: with one table for both ends the likeliest next token is the last one.
  model_type: 'qwen2' or 'qwen3'.
  """
  folder = pathlib.Path(folder)
  config = ModelConfig(
    model_type=model_type,
    attention_bias=model_type == 'qwen2',
    qk_norm=model_type == 'qwen3',
    vocab_size=-(-vocab_size // 64) * 64,
    hidden_size=hidden_size,
    intermediate_size=3 * hidden_size,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=hidden_size // 4,
    max_position_embeddings=1024,
    tie_word_embeddings=tied,
    eos_token_id=SPECIAL.index('<|im_end|>'),
    pad_token_id=SPECIAL.index('<|endoftext|>'),
  )
  _, params = init_decoder(config, seed)
  hf.save_hf(folder, config, params)
  _tokenizer(vocab_size).save(str(folder / 'tokenizer.json'))
  (folder / 'tokenizer_config.json').write_text(
    json.dumps(
      {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'eos_token': '<|im_end|>',
        'pad_token': '<|endoftext|>',
        'chat_template': CHAT_TEMPLATE,
      },
      indent=1,
    )
  )
  return folder


def _tokenizer(vocab_size: int) -> Tokenizer:
  made = bpe.untrained()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=list(SPECIAL),
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  library = pathlib.Path(json.__file__).parents[1]
  files = sorted(library.glob('[a-m]*.py'))
  texts = (f.read_text(encoding='utf-8', errors='replace') for f in files)
  made.train_from_iterator(texts, trainer)
  return made


if __name__ == '__main__':
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  print(make(sys.argv[1]))
