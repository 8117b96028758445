"""A text model, whatever serves it, and how one is asked for a policy."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxagent.envs.interfaces import NoText, TextModelError
from jaxagent.llm import answer as answers

_log = logging.getLogger(__name__)
_SHORT = ({'role': 'user', 'content': 'Answer with one word: ready'},)


class Refused(TextModelError):
  """The endpoint does not take a request, for its content, length or options.

  It would say the same of the same request again.
  """


class Declined(NoText):
  """The model, or a filter before it, says that it will not answer."""


class Unfinished(TextModelError):
  """An answer was cut, by its limit of tokens or within its model's thoughts.

  text: what there was of it.
  """

  def __init__(self, message: str, text: str = ''):
    super().__init__(message)
    self.text = text


class Unanswerable(Exception):
  """A model that is well has no answer to this input; says why, in one line."""


@runtime_checkable
class TextModel(Protocol):
  """Chat in, text out."""

  name: str
  is_stand_in: bool

  def complete(
    self,
    messages: Sequence[dict[str, str]],
    *,
    max_tokens: int = 1024,
    temperature: float = 0.0,
    stop: Sequence[str] = (),
    seed: int | None = None,
  ) -> str:
    """The answer's text; raises interfaces.TextModelError when none came."""
    ...


def complete(
  client: TextModel, messages: Sequence[dict[str, str]], **options
) -> answers.Answer:
  """Returns the answer proper; its `thoughts` are what the model thought before it.

  Raises TextModelError where there is none.
  """
  answer, is_cut = answers.proper(client.complete(messages, **options))
  if is_cut:
    raise Unfinished(f'{client.name} was cut off in its thoughts.', answer)
  if not answer.strip():
    raise NoText(f'{client.name} answered without text.')
  return answer


def ask(
  client: TextModel, messages: Sequence[dict[str, str]], **options
) -> answers.Answer:
  """Returns the model's answer to messages that a policy had a part in.

  options: of `TextModel.complete`.
  Raises Unanswerable where the input is the cause, which is the policy's
  doing: else it were free, and failed again at each try. TextModelError where
  the model or its endpoint is: it is asked something short to tell the two apart.
  """
  try:
    return complete(client, messages, **options)
  except Declined as error:
    raise Unanswerable('the model refuses to answer') from error
  except NoText as error:
    complete(client, _SHORT, **options)  # raises where it says nothing at all
    raise Unanswerable('the model gave no text') from error
  except Refused as error:
    _log.info('%s', error)
    # Wrong options are refused with the same status: then this is, too, and
    # its error is raised. The cache keeps the answer of a working endpoint.
    with contextlib.suppress(NoText, Unfinished):
      complete(client, _SHORT, **options)
    raise Unanswerable(
      'the model takes no request of this length or content'
    ) from error
