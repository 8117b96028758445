"""A pretrained model's own tokenizer and chat template, from its folder.

Layout of a sample: what the template puts before a user's message, the prompt
text, what it puts before the assistant's answer, the response text, the end
token. Only the template makes special tokens: text from outside is encoded as
plain text, whatever it spells. Training goes by token ids alone: a response
is never tokenised again after sampling.
"""

from __future__ import annotations

import json
import logging
import pathlib
import re
import tempfile
import types
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent.data import bpe
from jaxagent.files import model_files, readings
from jaxagent.llm.answer import left_open

_log = logging.getLogger(__name__)

# What `apply_chat_template` is given by the run.
_OWN = (
  'messages',
  'conversation',
  'tools',
  'documents',
  'chat_template',
  'add_generation_prompt',
  'continue_final_message',
  'tokenize',
  'padding',
  'truncation',
  'max_length',
  'return_tensors',
  'return_dict',
  'return_assistant_tokens_mask',
  'tokenizer_kwargs',
)
# Stand for the user's and the assistant's text while a template is rendered.
_USER, _ASSISTANT = 'jaxagentuser', 'jaxagentassistant'


def load(
  folder: str | pathlib.Path,
  system: str = '',
  template_kwargs: Mapping[str, Any] = types.MappingProxyType({}),
) -> bpe.ByteBPE | ChatTokenizer:
  """The tokenizer of a folder: one that a run trained, or a model's own.

  system: message that a chat template begins with, where it takes one.
  template_kwargs: what a chat template is rendered with beside the messages.
  Raises ValueError where it is missing, damaged or cannot end a response, or its
    template does not read `template_kwargs`.
  """
  folder = pathlib.Path(folder)
  if not readings.holds_tokenizer(folder):
    raise ValueError(
      f'{folder} holds no tokenizer ({", ".join(readings.ENTRY_FILES)}); give '
      "the model's with --config.tokenizer.path=DIR."
    )
  if _is_byte_bpe(folder / 'tokenizer.json'):
    if template_kwargs:
      raise ValueError(_unread(folder, next(iter(template_kwargs))))
    return bpe.load(folder)
  return ChatTokenizer(folder, system, template_kwargs)


def check_template_kwargs(given: Mapping[str, Any]) -> None:
  """Raises ValueError, in one line, for what no template is rendered with."""
  for name in given:
    if not isinstance(name, str) or not name.isidentifier():
      raise ValueError(f'its key {name!r} is no name of a variable')
    if name in _OWN:
      raise ValueError(
        f'its key {name!r} is set by the run itself; leave it out'
      )
  try:
    json.dumps(dict(given), allow_nan=False)
  except (TypeError, ValueError, RecursionError) as error:
    raise ValueError(f'its values are no JSON ({error})') from None


def bake(
  folder: str | pathlib.Path, template_kwargs: Mapping[str, Any]
) -> None:
  """Sets variables in the chat template of a folder itself.

  Any program that renders it there has the prompts that the policy was trained with.
  """
  if not template_kwargs:
    return
  folder = pathlib.Path(folder)
  head = ''.join(
    f'{{%- set {name} = {_literal(value)} %}}'
    for name, value in template_kwargs.items()
  )
  file = folder / 'chat_template.jinja'
  if file.is_file():
    text = file.read_text(encoding='utf-8')
    if not text.startswith(head):
      file.write_text(head + text, encoding='utf-8')
  file = folder / 'tokenizer_config.json'
  raw = _read(file)
  own = raw.get('chat_template')
  if isinstance(own, str) and not own.startswith(head):
    file.write_text(json.dumps(raw | {'chat_template': head + own}, indent=1))


def _literal(value: Any) -> str:
  """A JSON value as Jinja writes it."""
  if isinstance(value, Mapping):
    return '{' + ', '.join(
      f'{json.dumps(k)}: {_literal(v)}' for k, v in value.items()
    ) + '}'  # fmt: skip
  if isinstance(value, (list, tuple)):
    return f'[{", ".join(map(_literal, value))}]'
  return 'none' if value is None else json.dumps(value)


def _unread(folder: pathlib.Path, name: str) -> str:
  return (
    f'the tokenizer in {folder} has no chat template that reads {name!r}; leave '
    'it out of --config.rollout.chat_template_kwargs.'
  )


class ChatTokenizer:
  """The tokenizer of a model's folder, as the stages use one.

  Ids and texts are those of tokenizer.json, whatever class its config names;
  `transformers` renders the chat template and says which tokens are special.
  A tokenizer without a chat template puts prompt and response one after the
  other, as base models read text.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    system: str = '',
    template_kwargs: Mapping[str, Any] = types.MappingProxyType({}),
  ):
    self.folder = pathlib.Path(folder)
    # The tag of the thoughts that each prompt ends within; '' where it does not.
    self.opens_thoughts = ''
    self._kwargs = dict(template_kwargs)
    self._tokenizer, self._named, self._plain = _read_folder(self.folder)
    self._check_kwargs()
    self._head, self._tail, end = self._frame(self._opening(system))
    self.eos_ids = self._ends(end)
    self._end = self.eos_ids[0]
    pad = self._id_of(self._tokenizer.pad_token)
    self.pad_id = self._end if pad is None else pad
    self._check_plain()
    self._check_way_back()

  @property
  def vocab_size(self) -> int:
    """One more than the largest id, which gaps may put above the count."""
    return 1 + max(self._plain.get_vocab().values())

  @property
  def dated(self) -> bool:
    """Whether the template writes the day, so that a prompt's ids change."""
    return 'strftime_now' in str(self._tokenizer.chat_template)

  def encode(self, text: str) -> list[int]:
    """Ids of plain text; names of specials inside it stay plain text."""
    return self._plain.encode(text, add_special_tokens=False).ids

  def encode_prompt(
    self, text: str, max_tokens: int | None = None
  ) -> list[int]:
    """One user's message and the opening of the answer.

    Where that is more than `max_tokens`, the oldest of the text is cut, never
    the template. Raises ValueError where the template alone is too long.
    """
    content = self.encode(text)
    frame = len(self._head) + len(self._tail)
    content = bpe.newest(content, max_tokens, frame)
    return [*self._head, *content, *self._tail]

  def encode_response(self, text: str) -> list[int]:
    return [*self.encode(text), self._end]

  def decode_response(self, ids: Sequence[int]) -> str:
    """Text up to the end token; other specials stay visible in it."""
    ids = bpe.before_end(ids, self.eos_ids)
    return self._plain.decode(ids, skip_special_tokens=False)

  def decode(self, ids: Sequence[int]) -> str:
    """Text of a prompt's ids, the template's specials included."""
    return self._plain.decode(list(ids), skip_special_tokens=False)

  def _opening(self, system: str) -> list[tuple[str, str]]:
    """The turns before the user's."""
    opening = [('system', system)]
    if not system or not self._tokenizer.chat_template:
      return []
    try:
      self._render([*opening, ('user', _USER)])
    except ValueError as error:
      _log.warning('no system message: %s', error)
      return []
    return opening

  def _frame(self, opening) -> tuple[list[int], list[int], list[int]]:
    """Ids before the prompt, between prompt and response, after them."""
    if not self._tokenizer.chat_template:
      bos = self._id_of(self._tokenizer.bos_token)
      starts = self._named.encode('').ids[:1] == [bos]
      return [bos] if bos is not None and starts else [], [], []
    asked = [*opening, ('user', _USER)]
    opened = self._render(asked, add_generation_prompt=True)
    head, tail = self._split(opened, _USER)
    self.opens_thoughts = left_open(tail)
    whole = self._render([*asked, ('assistant', _ASSISTANT)])
    _, end = self._split(whole, _ASSISTANT)
    return tuple(
      self._named.encode(text, add_special_tokens=False).ids
      for text in (head, tail, end)
    )

  def _id_of(self, token: str | None) -> int | None:
    """Returns the id of a token's name; None where tokenizer.json has none."""
    return None if token is None else self._plain.token_to_id(str(token))

  def _render(self, turns, **options: Any) -> str:
    messages = [{'role': role, 'content': text} for role, text in turns]
    try:
      return self._tokenizer.apply_chat_template(
        messages, tokenize=False, **self._kwargs, **options
      )
    except Exception as error:  # noqa: BLE001 - a template raises anything
      raise ValueError(
        f'the chat template in {self.folder} cannot be rendered: '
        f'{" ".join(str(error).split())}'
      ) from error

  def _check_kwargs(self) -> None:
    template = str(self._tokenizer.chat_template or '')
    for name in self._kwargs:
      if not re.search(rf'\b{re.escape(name)}\b', template):
        raise ValueError(_unread(self.folder, name))

  def _split(self, text: str, mark: str) -> tuple[str, str]:
    parts = text.split(mark)
    if len(parts) != 2:
      raise ValueError(
        f'the chat template in {self.folder} writes a message '
        f'{len(parts) - 1} times, not once; use a plainer template.'
      )
    return parts[0], parts[1]

  def _ends(self, end: list[int]) -> tuple[int, ...]:
    """End tokens: the template's first, then those the folder names."""
    found: list[int | None] = [i for i in end[:1] if i in self._specials()]
    found += [self._id_of(self._tokenizer.eos_token)]
    for name in ('generation_config.json', 'config.json'):
      listed = _read(self.folder / name).get('eos_token_id')
      found += listed if isinstance(listed, list) else [listed]
    ends = tuple(dict.fromkeys(int(i) for i in found if i is not None))
    if not ends:
      raise ValueError(
        f'the tokenizer in {self.folder} names no end token; set eos_token in '
        'its tokenizer_config.json to one that tokenizer.json has.'
      )
    return ends

  def _specials(self) -> set[int]:
    """Named in the tokenizer's config, or marked so among its own tokens."""
    added = self._plain.get_added_tokens_decoder().items()
    own = {i for i, token in added if token.special}
    named = map(self._id_of, self._tokenizer.all_special_tokens)
    return own | {i for i in named if i is not None}

  def _check_plain(self) -> None:
    """Raises ValueError where text from outside could end a response."""
    for token in {*self.eos_ids, *self._specials()}:
      name = self._plain.id_to_token(token)
      if name is not None and token in self.encode(name):
        raise ValueError(
          f'the tokenizer in {self.folder} makes the special token {name!r} '
          'of plain text that spells it, so that a script could end a '
          'response; mark it as special in tokenizer.json (added_tokens).'
        )

  def _check_way_back(self) -> None:
    """Raises ValueError where text does not come back as the code it was."""
    for text in readings.PROBES:
      want = unicodedata.normalize('NFC', text)
      back = self.decode_response(self.encode(text))
      if back == want:
        continue
      said = (
        f'the tokenizer in {self.folder} turns {ascii(text)} into {ascii(back)}'
      )
      if text.isascii() and back.strip(' ') != want.strip(' '):
        raise ValueError(
          f'{said}: code would be lost; give one that keeps every character '
          'with --config.tokenizer.path=DIR.'
        )
      _log.warning('%s.', said)


def _read_folder(folder: pathlib.Path):
  """(what renders and names, tokenizer.json, the same for plain text)."""
  from transformers import PreTrainedTokenizerFast

  with tempfile.TemporaryDirectory() as place:
    try:
      readings.copy(folder, place)
      file = pathlib.Path(place) / 'tokenizer.json'
      named, plain = readings.from_file(file), readings.from_file(file)
      _name_class(pathlib.Path(place) / 'tokenizer_config.json')
      renders = PreTrainedTokenizerFast.from_pretrained(place)
    except Exception as error:  # noqa: BLE001 - the library raises many
      said = ' '.join(str(error).split()).replace(place, str(folder))
      raise ValueError(f'the tokenizer cannot be read: {said}') from error
  # Text from outside makes no special token.
  plain.encode_special_tokens = True
  return renders, named, plain


def _name_class(file: pathlib.Path) -> None:
  """Names the class that keeps tokenizer.json in every version.

  Else 4.x warns that the folder wants another one.
  """
  options = _read(file) | {'tokenizer_class': 'PreTrainedTokenizerFast'}
  file.write_text(json.dumps(options), encoding='utf-8')


def _is_byte_bpe(file: pathlib.Path) -> bool:
  """Whether `bpe.ByteBPE` wrote it: its specials at their ids."""
  try:
    added = _read(file).get('added_tokens') or []
  except ValueError as error:
    raise ValueError(f'the tokenizer cannot be read: {error}') from error
  names = {t.get('id'): t.get('content') for t in added if isinstance(t, dict)}
  return all(names.get(i) == name for i, name in enumerate(bpe.SPECIAL))


def _read(file: pathlib.Path) -> dict[str, Any]:
  """A JSON object, {} where there is none; ValueError where it is damaged."""
  return model_files.read_json(file) if file.is_file() else {}
