"""Byte-level BPE tokenizer trained on the project's own corpus.

Saved as a Hugging Face tokenizer folder (tokenizer.json,
tokenizer_config.json, special_tokens_map.json), so that transformers and
other tools read the same ids.
"""

from __future__ import annotations

import json
import pathlib
from typing import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

PAD, BOS, EOS, EOT = '<|pad|>', '<|bos|>', '<|eos|>', '<|endofturn|>'
SPECIAL = (PAD, BOS, EOS, EOT)


class Tokenizer:
  """Text <-> ids. Every byte has a token, so nothing is unknown."""

  def __init__(self, backend: tokenizers.Tokenizer):
    self._backend = backend
    # Hugging Face folders of real models name their special tokens
    # differently: the first that is there is taken.
    self.pad_id = self._first(PAD, '<|endoftext|>', '<pad>', '[PAD]')
    self.bos_id = self._first(BOS, '<s>', '<|endoftext|>')
    self.eos_id = self._first(EOS, '<|endoftext|>', '</s>')
    self.eot_id = self._first(EOT, '<|im_end|>', EOS, '<|endoftext|>')

  def _first(self, *names: str) -> int:
    for name in names:
      token = self._backend.token_to_id(name)
      if token is not None:
        return token
    raise ValueError(
      f'the tokenizer has none of the special tokens {", ".join(names)}; '
      'train one with jaxagent.data.tokenizer.train or choose another.'
    )

  @property
  def vocab_size(self) -> int:
    return self._backend.get_vocab_size()

  def encode(self, text: str) -> list[int]:
    """Ids without special tokens. Text can never spell a special token."""
    return self._backend.encode(_defuse(text), add_special_tokens=False).ids

  def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
    encodings = self._backend.encode_batch(
      [_defuse(t) for t in texts], add_special_tokens=False
    )
    return [e.ids for e in encodings]

  def encode_prompt(self, text: str) -> list[int]:
    """bos + text: what the policy continues."""
    return [self.bos_id, *self.encode(text)]

  def encode_response(self, text: str) -> list[int]:
    """text + end-of-turn: what the policy writes."""
    return [*self.encode(text), self.eot_id]

  def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
    return self._backend.decode(
      [int(i) for i in ids], skip_special_tokens=skip_special
    )

  def save(self, folder: str | pathlib.Path) -> None:
    """Writes a Hugging Face tokenizer folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    self._backend.save(str(folder / 'tokenizer.json'))
    names = {
      'pad_token': PAD,
      'bos_token': BOS,
      'eos_token': EOS,
      'additional_special_tokens': [EOT],
    }
    config = {
      **names,
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'model_max_length': 1 << 20,
      'clean_up_tokenization_spaces': False,
    }
    for name, value in (
      ('tokenizer_config.json', config),
      ('special_tokens_map.json', names),
    ):
      (folder / name).write_text(json.dumps(value, indent=2) + '\n')

  @classmethod
  def load(cls, folder: str | pathlib.Path) -> Tokenizer:
    """Reads `tokenizer.json` of a folder."""
    path = pathlib.Path(folder) / 'tokenizer.json'
    if not path.is_file():
      raise FileNotFoundError(
        f'{path} is missing; a tokenizer folder holds tokenizer.json.'
      )
    return cls(tokenizers.Tokenizer.from_file(str(path)))

  def check_fits(self, model_vocab_size: int) -> None:
    """Raises ValueError where a model has too few rows for the ids."""
    if self.vocab_size > model_vocab_size:
      raise ValueError(
        f'the tokenizer has {self.vocab_size} ids, the model only '
        f'{model_vocab_size}: set model.vocab_size to at least '
        f'{self.vocab_size} or use the tokenizer of the model.'
      )


def _defuse(text: str) -> str:
  """Breaks special tokens spelled in text, so none comes from outside."""
  if '<|' not in text:
    return text
  return text.replace('<|', '< |')


def train(texts: Iterable[str], vocab_size: int = 1024) -> Tokenizer:
  """Trains a byte-level BPE; deterministic for the same texts in order.

  Raises ValueError where vocab_size cannot hold all bytes and the special
  tokens.
  """
  least = 256 + len(SPECIAL)
  if vocab_size < least:
    raise ValueError(f'vocab_size={vocab_size} must be at least {least}.')
  backend = tokenizers.Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=list(SPECIAL),
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  backend.train_from_iterator([_defuse(t) for t in texts], trainer)
  return Tokenizer(backend)
