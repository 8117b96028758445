"""Asks an endpoint for the types of ideas (paper 001, appendix E)."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxagent.config import endpoints
from jaxagent.envs.implementer_state import ImplementerState
from jaxagent.envs.interfaces import NoText, TextModelError
from jaxagent.errors import MachineryError
from jaxagent.llm.base import Refused, Unfinished
from jaxagent.recipes.ideator import prompt as texts
from jaxagent.recipes.ideator import roles, types_of
from jaxagent.recipes.ideator.interaction import shown_state
from jaxagent.recipes.ideator.parser import Idea
from jaxagent.runtime import text_models

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext

CLASSIFIER = 'classifier'  # role
_log = logging.getLogger(__name__)
# The endpoint is there, but what it says is no type.
_UNUSABLE = (NoText, Unfinished, Refused)


def is_asked(context: RunContext) -> bool:
  """Returns whether types come from an endpoint, not from the rule."""
  return context.config.classifier.kind == 'openai'


def types(
  context: RunContext, ideas: Sequence[tuple[ImplementerState, Idea]]
) -> list[str]:
  """Returns the type of each idea, `types_of.UNPARSED` for an answer that names none.

  ideas: with the state, ending in a question, that each was given in. Answers are
  cached, so that a resumed run asks nothing twice.

  Raises MachineryError where the endpoint does not answer.
  """
  model = roles.paid_model(context, CLASSIFIER)
  ideator = context.config.ideator

  def ask(one: tuple[ImplementerState, Idea]) -> str:
    state, idea = one
    shown = shown_state(state, context.spec(state.task), ideator.before)
    trace = texts.trace(shown, text_models.tokens_of, ideator.max_trace_tokens)
    try:
      answer = model.answer(types_of.question(trace, idea), context.config.seed)
    except _UNUSABLE as error:
      _log.warning('classifier: %s', error)
      return types_of.UNPARSED
    return types_of.parse_type(answer.text)

  at_once = endpoints.max_concurrency(context.config, CLASSIFIER)
  with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
    try:
      return list(threads.map(ask, ideas))
    except TextModelError as error:
      raise MachineryError(
        f'types of ideas: {error} Fix the cause and rerun the same command; it '
        'resumes the run.'
      ) from error
