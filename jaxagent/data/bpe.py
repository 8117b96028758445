"""Byte-level BPE trained on a run's own corpus, for policies without a hub.

It normalizes (NFC), cuts words and decodes as Qwen2's tokenizer does, for
`transformers` 5 reads every folder of model_type qwen2 so, whatever its
tokenizer.json says (measured with 5.10 and 5.24).

Layout of a sample: prompt text, `<sep>`, response text, `<eos>`. Training
goes by token ids alone: a response is never tokenised again after sampling.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from jaxagent.files import readings

SPECIAL = ('<pad>', '<eos>', '<sep>')


class ByteBPE:
  """A tokenizer with the three specials that the tiny policies need."""

  pad_id, eos_id, sep_id = 0, 1, 2

  def __init__(self, tokenizer: Tokenizer):
    for index, name in enumerate(SPECIAL):
      if tokenizer.token_to_id(name) != index:
        raise ValueError(
          f'tokenizer.json: {name} has id {tokenizer.token_to_id(name)}, not '
          f'{index}; train one with jaxagent.data.bpe.train.'
        )
    # Else '<eos>' in a script or an output would become the end token: text
    # from outside must never be able to end a response.
    tokenizer.encode_special_tokens = True
    self._tokenizer = tokenizer

  @property
  def vocab_size(self) -> int:
    return self._tokenizer.get_vocab_size()

  @property
  def eos_ids(self) -> tuple[int, ...]:
    return (self.eos_id,)

  def encode(self, text: str) -> list[int]:
    """Ids of the text in NFC; names of specials inside it stay plain text."""
    return self._tokenizer.encode(text, add_special_tokens=False).ids

  def encode_prompt(
    self, text: str, max_tokens: int | None = None
  ) -> list[int]:
    """The text and `<sep>`; the oldest is cut where that is too long."""
    return [*newest(self.encode(text), max_tokens, 1), self.sep_id]

  def encode_response(self, text: str) -> list[int]:
    return [*self.encode(text), self.eos_id]

  def decode_response(self, ids: Sequence[int]) -> str:
    """Text up to the end token."""
    ids = before_end(ids, self.eos_ids)
    return self._tokenizer.decode(ids, skip_special_tokens=True)

  def decode(self, ids: Sequence[int]) -> str:
    """Text of a prompt's ids; a special stands as its name."""
    return self._tokenizer.decode(list(ids), skip_special_tokens=False)

  def save(self, directory: pathlib.Path) -> None:
    """Writes an HF tokenizer folder, which `AutoTokenizer` reads alike."""
    directory.mkdir(parents=True, exist_ok=True)
    self._tokenizer.save(str(directory / 'tokenizer.json'))
    (directory / 'tokenizer_config.json').write_text(
      json.dumps(
        {
          'tokenizer_class': 'PreTrainedTokenizerFast',
          'pad_token': SPECIAL[0],
          'eos_token': SPECIAL[1],
          'sep_token': SPECIAL[2],
          # Else Qwen2's class adds one of its own behind the vocabulary.
          'unk_token': None,
          'split_special_tokens': True,
        }
      )
    )


def newest(ids: list[int], max_tokens: int | None, frame: int) -> list[int]:
  """The last ids that fit beside `frame` others into `max_tokens`.

  Raises ValueError where not even the frame fits.
  """
  if max_tokens is None:
    return ids
  room = max_tokens - frame
  if room < 0:
    raise ValueError(
      f'max_tokens={max_tokens} is below the {frame} tokens that frame every '
      'prompt; raise it.'
    )
  return ids[max(0, len(ids) - room) :]


def before_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
  """The ids up to the first end token, as plain integers."""
  ids = [int(i) for i in ids]
  at = min((ids.index(end) for end in ends if end in ids), default=len(ids))
  return ids[:at]


def untrained() -> Tokenizer:
  """A byte-level BPE without entries, with Qwen2's normalizer, cuts and decoder."""
  return readings.like_qwen2(Tokenizer(models.BPE()))


def word_count(text: str) -> int:
  """Words that a text is cut into before any are joined: no fewer tokens."""
  tokenizer = untrained()
  text = tokenizer.normalizer.normalize_str(text)
  return len(tokenizer.pre_tokenizer.pre_tokenize_str(text))


def train(texts: Iterable[str], vocab_size: int) -> ByteBPE:
  """A tokenizer of at most `vocab_size` entries; deterministic."""
  if vocab_size < 256 + len(SPECIAL):
    raise ValueError(
      f'vocab_size={vocab_size} must be at least {256 + len(SPECIAL)} '
      '(all bytes and the specials).'
    )
  tokenizer = untrained()
  tokenizer.train_from_iterator(
    texts,
    trainers.BpeTrainer(
      vocab_size=vocab_size,
      special_tokens=list(SPECIAL),
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  return ByteBPE(tokenizer)


def load(directory: pathlib.Path) -> ByteBPE:
  """Reads what `save` wrote; ValueError names a missing or damaged file."""
  file = pathlib.Path(directory) / 'tokenizer.json'
  if not file.is_file():
    raise ValueError(f'{file} is missing; give a tokenizer folder.')
  try:
    return ByteBPE(readings.from_file(file))
  except ValueError as error:
    raise ValueError(f'the tokenizer cannot be read: {error}') from error
