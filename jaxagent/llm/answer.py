"""Separates the answer of a chat completion from the model's thoughts before it.

Servers without a reasoning parser (plain vLLM, SGLang, llama.cpp) leave thoughts in
the text, in the tags of the model's family; others give them a field of their own, or
a part of their own in a list. Here they are separated, for every role alike.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jaxagent.files import fences

# Qwen3, QwQ, DeepSeek-R1, GLM, MiniMax: think; Gemini: thought; Seed-OSS: seed:think;
# Magistral: [THINK]; Kimi; Command A; Gemma 4: a channel; OpenThinker.
_NAMES = r'(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning)'
_OPEN = re.compile(
  rf'<{_NAMES}>|\[THINK\]|\u25c1think\u25b7|<\|START_THINKING\|>'
  r'|<\|begin_of_thought\|>|<\|channel>[ \t]*(?:thought\b)?',
  re.I,
)
_SHUT = re.compile(
  rf'</{_NAMES}>|\[/THINK\]|\u25c1/think\u25b7|<\|END_THINKING\|>'
  r'|<\|end_of_thought\|>|<channel\|>',
  re.I,
)
# gpt-oss: <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final
_CHANNEL = re.compile(
  r'(?:<\|start\|>\s*\w*)?\s*<\|channel\|>\s*(\w+)[^<]*<\|message\|>(.*?)'
  r'(?=<\|(?:end|return|call|start)\|>|\Z)',
  re.S,
)
# The same, where the server left out the special tokens.
_BARE_CHANNELS = re.compile(r'\s*analysis(.+?)assistantfinal(.*)\Z', re.S)
# What some models put around the answer that follows their thoughts.
_WRAPPED = re.compile(
  r'\s*(?:<(answer|response)>(.*?)</\1>|<\|begin_of_solution\|>(.*?)'
  r'<\|end_of_solution\|>|<\|START_RESPONSE\|>(.*?)<\|END_RESPONSE\|>)\s*\Z',
  re.S | re.I,
)
_FIELDS = (
  'reasoning_content',
  'reasoning',
  'reasoning_details',
  'thinking',
  'reasoning_text',
)
_INLINE = re.compile(r'(?<!`)(`+)(?!`)[^\n]{1,400}?(?<!`)\1(?!`)')
_CUT = {'length', 'max_tokens', 'max_output_tokens', 'model_length'}
_DECLINED = {'content_filter', 'refusal', 'safety'}
_DEPTH = 8  # of parts within parts
_MOST = 64  # pieces of thoughts in one text


class Answer(str):
  """An answer's text, with what its model thought before it.

  thoughts: '' where it thought nothing, or kept it to itself.
  """

  thoughts: str

  def __new__(cls, text: str, thoughts: str = '') -> Answer:
    answer = super().__new__(cls, text)
    answer.thoughts = thoughts
    return answer


@dataclasses.dataclass(frozen=True)
class Reply:
  """One choice of a chat completion.

  is_cut: it ended at its limit of tokens, or within its thoughts.
  declined: why the model will not answer; '' where it does not say so.
  why: its finish_reason, in words.
  """

  text: str
  thoughts: str = ''
  is_cut: bool = False
  declined: str = ''
  why: str = ''

  @property
  def answer(self) -> Answer:
    """The text with the thoughts."""
    return Answer(self.text, self.thoughts)

  @property
  def is_whole(self) -> bool:
    """Whether there is a text, and it came to its end."""
    return bool(self.text.strip()) and not self.is_cut


def read(completion: Any) -> Reply:
  """Returns the first choice of a chat completion's JSON.

  Raises ValueError where it has no choices[0].message.
  """
  try:
    choice = completion['choices'][0]
    message = choice['message']
    content, refusal = message.get('content'), message.get('refusal')
  except (KeyError, IndexError, TypeError, AttributeError):
    raise ValueError('no choices[0].message') from None
  end = choice.get('finish_reason') if isinstance(choice, dict) else None
  why = str(end).lower() if isinstance(end, str) else ''
  parts = _Parts()
  parts.add(content)
  inline, text, is_open = split(''.join(parts.texts))
  apart = [_flat(message.get(name)).strip() for name in _FIELDS]
  thoughts = [*dict.fromkeys(filter(None, [*apart, *parts.thoughts, inline]))]
  declined = _flat(refusal) or ''.join(parts.refusals)
  if not declined and why in _DECLINED:
    declined = why
  return Reply(
    text,
    '\n\n'.join(thoughts),
    is_open or why in _CUT,
    declined.strip(),
    str(end),
  )


def split(text: str) -> tuple[str, str, bool]:
  """Returns (thoughts, answer, does it end within the thoughts).

  A tag within code (a fence, or backticks in a line) is a part of the text. A closing
  tag alone ends thoughts that the chat template opened. Without thoughts the text
  comes back as it is.
  """
  if _CHANNEL.match(text, _begin(text)):
    return _of_channels(text)
  if bare := _BARE_CHANNELS.match(text):
    return bare[1].strip(), bare[2].strip(), False
  kept: list[str] = []
  thoughts: list[str] = []
  at, is_open = 0, False
  for number in range(_MOST + 1):
    found = _next(text, at, number == 0) if number < _MOST else None
    if found is None:
      kept.append(text[at:])
      break
    begin, end, after = found
    if begin is None:  # thoughts that nothing opened: all that came before
      thoughts.append(''.join([*kept, text[at:end]]))
      kept = []
    else:
      kept.append(text[at : begin[0]])
      thoughts.append(text[begin[1] : end])
    if after is None:
      is_open = True
      break
    at = after
  if not thoughts:
    return '', text, False
  answer = ''.join(kept).strip()
  if wrapped := _WRAPPED.match(answer):
    answer = next(g for g in wrapped.groups()[1:] if g is not None).strip()
  return '\n\n'.join(filter(None, map(str.strip, thoughts))), answer, is_open


def proper(found: str) -> tuple[Answer, bool]:
  """Returns (the answer of a text that a model gave, was it cut in its thoughts)."""
  if isinstance(found, Answer):
    return found, False
  thoughts, text, is_open = split(found)
  return Answer(text, thoughts), is_open


def left_open(text: str) -> str:
  """Returns the tag that opens thoughts at the end of a prompt; '' without one."""
  tags = [*_OPEN.finditer(text)]
  if not tags or _SHUT.search(text, tags[-1].end()):
    return ''
  return tags[-1][0]


_Span = tuple[int, int]


def _next(
  text: str, at: int, is_first: bool
) -> tuple[_Span | None, int, int | None] | None:
  """The next thoughts behind `at`: (their opening tag, end, what is behind them).

  None as the first: nothing opened them; as the last: nothing closes them.
  """
  if is_first and (opened := _OPEN.match(text, _begin(text))):
    return _opened(text, opened)
  hidden, dangling = _code(text, at)
  opened = _outside(_OPEN, text, at, hidden)
  shut = _outside(_SHUT, text, at, hidden)
  if shut is None and opened is None and dangling:
    # The last fence is open: those before it were paired wrongly, as by a draft
    # that ends with its fence open. Where nothing opened thoughts, the last one may
    # be an answer that was cut.
    shut = _alone(text, at)
    if is_first and shut is not None and shut.start() > hidden[-1][0]:
      shut = None
  if opened is not None and (shut is None or opened.start() < shut.start()):
    if shut is not None:
      return opened.span(), shut.start(), shut.end()
    if _begins_line(text, opened.start()):
      return _opened(text, opened)
    return None  # a tag that a sentence is about
  return None if shut is None else (None, shut.start(), shut.end())


def _opened(text: str, opened: re.Match) -> tuple[_Span, int, int | None]:
  """Finds the end of thoughts that a tag opens: the tag that closes them, or the end."""
  at = opened.end()
  hidden, _ = _code(text, at)
  shut = (
    _alone(text, at, hidden)
    or _outside(_SHUT, text, at, hidden)
    or _alone(text, at)
    or _outside(_SHUT, text, at, _inline(text, at))
    or _SHUT.search(text, at)
  )
  if shut is None:
    return opened.span(), len(text), None
  return opened.span(), shut.start(), shut.end()


def _begin(text: str) -> int:
  return len(text) - len(text.lstrip())


def _begins_line(text: str, at: int) -> bool:
  return not text[text.rfind('\n', 0, at) + 1 : at].strip()


def _alone(text: str, at: int, hidden: Sequence[_Span] = ()) -> re.Match | None:
  """The first closing tag that has a line for itself, and is not in code."""
  for shut in _all_outside(_SHUT, text, at, hidden):
    end = text.find('\n', shut.end())
    rest = text[shut.end() : len(text) if end < 0 else end]
    if _begins_line(text, shut.start()) and not rest.strip():
      return shut
  return None


def _code(text: str, at: int) -> tuple[list[_Span], bool]:
  """(what of text[at:] is code, is the last fence open)."""
  found, dangling = fences.spans(text, at)
  return sorted([*found, *_inline(text, at)]), dangling


def _inline(text: str, at: int) -> list[_Span]:
  return [m.span() for m in _INLINE.finditer(text, at)]


def _outside(
  tag: re.Pattern, text: str, at: int, hidden: Sequence[_Span]
) -> re.Match | None:
  """The first tag behind `at` that is not in code."""
  return next(_all_outside(tag, text, at, hidden), None)


def _all_outside(
  tag: re.Pattern, text: str, at: int, hidden: Sequence[_Span]
) -> Iterator[re.Match]:
  number, covered = 0, at
  for match in tag.finditer(text, at):
    while number < len(hidden) and hidden[number][0] <= match.start():
      covered = max(covered, hidden[number][1])
      number += 1
    if match.start() >= covered and not _is_quoted(text, *match.span()):
      yield match


def _is_quoted(text: str, start: int, end: int) -> bool:
  mark = text[start - 1 : start]
  return mark in ('"', "'") and text[end : end + 1] == mark


def _of_channels(text: str) -> tuple[str, str, bool]:
  """gpt-oss' channels; `final` is the answer."""
  thoughts: list[str] = []
  final: list[str] = []
  for name, body in _CHANNEL.findall(text):
    (final if name == 'final' else thoughts).append(body.strip())
  return '\n\n'.join(thoughts), '\n\n'.join(final), not final


class _Parts:
  """Content as text, or as a list of parts of several types."""

  def __init__(self):
    self.texts: list[str] = []
    self.thoughts: list[str] = []
    self.refusals: list[str] = []

  def add(self, content: Any) -> None:
    if isinstance(content, str):
      self.texts.append(content)
    elif isinstance(content, list):
      for part in content:
        self._one(part)

  def _one(self, part: Any) -> None:
    if isinstance(part, str):
      self.texts.append(part)
      return
    if not isinstance(part, dict):
      return
    kind = str(part.get('type', 'text')).lower()
    if any(word in kind for word in ('think', 'reason', 'thought')):
      self.thoughts.append(_flat(part).strip())
    elif kind == 'refusal':
      self.refusals.append(_flat(part.get('refusal')))
    elif kind in ('text', 'output_text'):
      self.texts.append(_flat(part.get('text')))


def _flat(value: Any, depth: int = 0) -> str:
  """The text in a value: a text, or lists and objects that hold some."""
  if isinstance(value, str):
    return value
  if depth > _DEPTH:
    return ''
  if isinstance(value, list):
    return ''.join(_flat(item, depth + 1) for item in value)
  if isinstance(value, dict):
    names = ('thinking', 'reasoning', 'text', 'content', 'summary', 'value')
    return ''.join(_flat(value.get(name), depth + 1) for name in names)
  return ''
