"""Answers that came to their end: asked for with more room until they do."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import Any

from jaxagent.envs.interfaces import NoText, TextModelError
from jaxagent.llm import request
from jaxagent.llm.answer import Answer, Reply
from jaxagent.llm.base import Declined, Refused, Unfinished

_log = logging.getLogger(__name__)
MOST_GROWN = 8  # times the room of the first request: doubled three times

Tokens = (
  dict[str, int] | None
)  # that answers took; None where they were not counted
# (path, body, API key) -> what is made of the answer, and the tokens that it took
Ask = Callable[[str, dict[str, Any], str], tuple[Any, Tokens]]


def _sum(total: dict[str, int], tokens: Tokens) -> Tokens:
  return tokens and {k: total[k] + n for k, n in tokens.items()}


@dataclasses.dataclass(frozen=True)
class TokenLimit:
  """Rule for an answer that its limit of tokens cuts.

  key: names the limit, for errors.
  is_measured: the model's answers are what is measured: a cut one is its
    answer, too. Any other model is asked again with twice the room where its
    answer is cut or empty.
  most_grown: times the first room, at most; 1: it is not asked again.
  """

  key: str = 'max_tokens'
  is_measured: bool = False
  most_grown: int = MOST_GROWN


class Room:
  """Token limit of a model's answers, and the handling of those that exceed it.

  Args:
    name: of the model and its endpoint.
    limit: what becomes of a cut answer.
  """

  def __init__(self, name: str, limit: TokenLimit):
    self.name, self.limit = name, limit
    self._lock = threading.Lock()
    self._warned = False

  def whole(
    self, ask: Ask, path: str, body: dict[str, Any], key: str
  ) -> tuple[Answer, Tokens]:
    """Returns an answer and the tokens that all its attempts took.

    ask: gives a Reply.
    Raises Unfinished, Declined or NoText where there is none, and what `ask` raises.
    """
    times, refused = 1, ''
    total: Tokens = {'prompt_tokens': 0, 'tokens': 0}
    while True:
      try:
        reply, tokens = ask(path, request.grown(body, times), key)
      except Refused as error:
        if times == 1:
          raise
        refused = f' {error}'  # of a room that the server has not
        break
      if total is not None:
        total = _sum(total, tokens)
      if reply.is_whole:
        return reply.answer, total
      has_text = bool(reply.text.strip())
      if reply.declined and not has_text:
        said = _without(reply.declined, key)
        raise Declined(f'{self.name} refuses to answer ({said}).')
      if reply.thoughts and not has_text and 'stop' in body:
        # The text that ends an answer may have ended the thoughts.
        body = {k: v for k, v in body.items() if k != 'stop'}
      elif self._is_enough(body, 2 * times):
        break
      else:
        times *= 2
        _log.info('%s: a cut or empty answer; again with more room.', self.name)
    if self.limit.is_measured and reply.text.strip():
      self._warn()
      return reply.answer, total
    raise self._error(
      reply, request.room(request.grown(body, times)), refused, key
    )

  def _is_enough(self, body: dict[str, Any], times: int) -> bool:
    return (
      self.limit.is_measured
      or times > self.limit.most_grown
      or request.room(body) is None
    )

  def _warn(self) -> None:
    """Says of the first answer that a limit cut that it is taken as it is."""
    with self._lock:
      warned, self._warned = self._warned, True
    if not warned:
      _log.warning(
        '%s: an answer was cut at its limit of tokens, %s; it is taken as it is, '
        'and so are the next ones.',
        self.name,
        self.limit.key,
      )

  def _error(
    self, reply: Reply, most: int | None, refused: str, key: str
  ) -> TextModelError:
    """Returns the error for an answer that is cut or empty."""
    is_cut = bool(reply.is_cut or reply.thoughts)
    if self.limit.is_measured or not is_cut:
      if is_cut:
        self._warn()
      return NoText(
        f'{self.name} answered without text ({_without(reply.why, key)}).'
      )
    room = 'its limit' if most is None else f'{most} tokens'
    why = 'it was cut off' if reply.text.strip() else 'it only thought'
    return Unfinished(
      f'{self.name}: its answer was not whole within {room} ({why}).{refused} Raise '
      f'{self.limit.key}, or let it think less (such as '
      "extra={'chat_template_kwargs': {'enable_thinking': False}}).",
      reply.text,
    )


def _without(text: str, key: str) -> str:
  text = text[:200]
  return text.replace(key, '[key]') if key else text
