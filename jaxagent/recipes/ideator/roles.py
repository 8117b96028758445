"""Who answers as Implementer and as Ideator: scripts, endpoints, fixed sentences."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.config import endpoints
from jaxagent.envs.agents.implementer import Briefing
from jaxagent.envs.solution import packages_of
from jaxagent.llm.room import TokenLimit
from jaxagent.recipes.ideator import prompt as texts
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  Adviser,
  Question,
  chat_of,
  shown_state,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.recipes.ideator.spending import PaidModel, purse_of
from jaxagent.rollout.requests import GenerationRequest
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.runtime import text_models
from jaxagent.stand_ins import ideator as scripted_ideators
from jaxagent.stand_ins.implementer import HABITS, ScriptedImplementer
from jaxagent.training.policy import seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.context import RunContext

SENTENCES: Mapping[str, str] = {'null': texts.NULL, 'vague': texts.VAGUE}
_Answer = Callable[[GenerationRequest], types.TextCompletion]


def implementer(
  context: RunContext, *, seek_help: bool = True, kind: str = ''
) -> FrozenRole:
  """Returns the role of an Implementer.

  seek_help: whether asking is offered; it is in the prompt of an endpoint's model alone.
  kind: which one; '': that of `config.implementer.kind`.
  """
  kind = kind or context.config.implementer.kind
  if kind == 'openai':
    draw = _asked_implementer(context, seek_help)
  else:
    draw = _scripted_implementer(context, kind)
  return FrozenRole(
    draw, endpoints.max_concurrency(context.config, IMPLEMENTER)
  )


def ideator(context: RunContext, kind: str) -> FrozenRole | None:
  """Returns the role of an Ideator of a kind; None for one that is asked nothing."""
  if kind in SENTENCES or kind == 'none':
    return None
  draw = (
    _asked_ideator(context)
    if kind == 'openai'
    else _scripted_ideator(context, kind)
  )
  return FrozenRole(draw, endpoints.max_concurrency(context.config, IDEATOR))


def adviser(context: RunContext, kind: str) -> Adviser | None:
  """Returns the source of answers in a run; None where asking is no action."""
  if kind == 'none':
    return None
  calls = context.config.ideator.max_calls
  if kind in SENTENCES:
    return Adviser(role='', sentence=SENTENCES[kind], max_calls=calls)
  return Adviser(max_calls=calls)


def _rng(context: RunContext, ask: GenerationRequest) -> random.Random:
  """Returns the generator of an answer: the same for every arm of an evaluation."""
  question: Question = ask.call.prompt
  steps = len(question.state.steps)
  return random.Random(
    seed_of(context.config.seed, ask.call.role, ask.prompt.prompt_id, steps)
  )


def _scripted_implementer(context: RunContext, kind: str) -> _Answer:
  most = context.config.implementer.max_steps
  script = ScriptedImplementer(HABITS[kind], max_steps=most, name=kind)

  def draw(ask: GenerationRequest) -> types.TextCompletion:
    asked: Question = ask.call.prompt
    spec = context.spec(asked.state.task)
    text = script.message(
      asked.state, spec, _rng(context, ask), asked.calls_left
    )
    return types.TextCompletion(text)

  return draw


def teacher(context: RunContext, kind: str = 'scripted') -> Any:
  """Returns the scripted Ideator of a kind, 'scripted' or 'blind'."""
  quality = context.config.ideator.quality
  if kind == 'blind':
    return scripted_ideators.BlindIdeator(quality)
  return scripted_ideators.ScriptedIdeator(quality)


def _scripted_ideator(context: RunContext, kind: str) -> _Answer:
  script = teacher(context, kind)

  def draw(ask: GenerationRequest) -> types.TextCompletion:
    state = ask.call.prompt.state
    spec = context.spec(state.task)
    items = script.items(state, spec, _rng(context, ask))
    return types.TextCompletion(write_idea(Idea(*items)))

  return draw


def _asked_implementer(context: RunContext, seek_help: bool) -> _Answer:
  options = context.config.implementer
  model = paid_model(context, IMPLEMENTER)

  def fits(messages: Any) -> bool:
    used = sum(text_models.tokens_of(m['content']) for m in messages)
    return used <= options.max_prompt_tokens

  def draw(ask: GenerationRequest) -> types.TextCompletion:
    asked: Question = ask.call.prompt
    messages = chat_of(
      asked, briefing(context, asked), seek_help=seek_help, fits=fits
    )
    return model.answer(messages, _rng(context, ask).getrandbits(31))

  return draw


def paid_model(context: RunContext, role: str) -> PaidModel:
  """Returns the endpoint of a role whose section is a `PricedEndpoint`."""
  options = context.config[role]
  limit = TokenLimit(f'config.{role}.max_tokens')
  client = text_models.client(context.config, role, context.work, limit)
  return PaidModel(client, options, purse_of(options, role, context.work))


def briefing(context: RunContext, asked: Question) -> Briefing:
  """Returns what the first messages say of a run."""
  spec, options = context.spec(asked.state.task), context.config.implementer
  return Briefing(
    spec.research_problem,
    sorted({*asked.state.files, *context.prepared[spec.name].mounts}),
    packages_of(spec),
    options.max_steps,
    options.time_limit_s,
    spec.submission,
  )


def _asked_ideator(context: RunContext) -> _Answer:
  options = context.config.ideator
  model = paid_model(context, IDEATOR)
  template = template_of(context)

  def draw(ask: GenerationRequest) -> types.TextCompletion:
    state = ask.call.prompt.state
    text = texts.prompt(
      shown_state(state, context.spec(state.task), options.before),
      text_models.tokens_of,
      max_trace_tokens=options.max_trace_tokens,
      template=template,
    )
    return model.answer(
      texts.messages(text), _rng(context, ask).getrandbits(31)
    )

  return draw


def template_of(context: RunContext) -> str:
  """Returns the template of the Ideator's prompt; raises ValueError, OSError."""
  path = context.config.ideator.prompt
  return texts.read_template(path) if path else texts.TEMPLATE
