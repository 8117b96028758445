"""Who answers as Implementer and as Ideator: scripts, endpoints, fixed sentences."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.config import endpoints
from jaxagent.envs.agents.implementer import Briefing
from jaxagent.envs.solution import PACKAGES
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
from jaxagent.rollout.thread_sampler import FrozenRole
from jaxagent.rollout.work import Ask
from jaxagent.runtime import text_models
from jaxagent.stand_ins import ideator as scripted_ideators
from jaxagent.stand_ins.implementer import HABITS, ScriptedImplementer
from jaxagent.training.policy import seed_of

if TYPE_CHECKING:
  from jaxagent.runtime.host import Host

SENTENCES: Mapping[str, str] = {'null': texts.NULL, 'vague': texts.VAGUE}
_Answer = Callable[[Ask], types.TextCompletion]


def implementer(
  host: Host, *, seek_help: bool = True, kind: str = ''
) -> FrozenRole:
  """Returns the role of an Implementer.

  seek_help: whether it is offered to ask; only an endpoint's model has to be told.
  kind: which one; '': that of `config.implementer.kind`.
  """
  kind = kind or host.config.implementer.kind
  if kind == 'openai':
    draw = _asked_implementer(host, seek_help)
  else:
    draw = _scripted_implementer(host, kind)
  return FrozenRole(draw, endpoints.max_concurrency(host.config, IMPLEMENTER))


def ideator(host: Host, kind: str) -> FrozenRole | None:
  """Returns the role of an Ideator of a kind; None for one that is asked nothing."""
  if kind in SENTENCES or kind == 'none':
    return None
  draw = (
    _asked_ideator(host) if kind == 'openai' else _scripted_ideator(host, kind)
  )
  return FrozenRole(draw, endpoints.max_concurrency(host.config, IDEATOR))


def adviser(host: Host, kind: str) -> Adviser | None:
  """Returns the source of answers in a run; None where asking is no action."""
  if kind == 'none':
    return None
  calls = host.config.ideator.max_calls
  if kind in SENTENCES:
    return Adviser(role='', sentence=SENTENCES[kind], max_calls=calls)
  return Adviser(max_calls=calls)


def _rng(host: Host, ask: Ask) -> random.Random:
  """Returns the generator of an answer: the same for every arm of an evaluation."""
  question: Question = ask.call.prompt
  steps = len(question.state.steps)
  return random.Random(
    seed_of(host.config.seed, ask.call.role, ask.prompt.prompt_id, steps)
  )


def _scripted_implementer(host: Host, kind: str) -> _Answer:
  most = host.config.implementer.max_steps
  script = ScriptedImplementer(HABITS[kind], max_steps=most, name=kind)

  def draw(ask: Ask) -> types.TextCompletion:
    asked: Question = ask.call.prompt
    spec = host.spec(asked.state.task)
    text = script.message(asked.state, spec, _rng(host, ask), asked.calls_left)
    return types.TextCompletion(text)

  return draw


def teacher(host: Host, kind: str = 'scripted') -> Any:
  """Returns the scripted Ideator of a kind, 'scripted' or 'blind'."""
  quality = host.config.ideator.quality
  if kind == 'blind':
    return scripted_ideators.BlindIdeator(quality)
  return scripted_ideators.ScriptedIdeator(quality)


def _scripted_ideator(host: Host, kind: str) -> _Answer:
  script = teacher(host, kind)

  def draw(ask: Ask) -> types.TextCompletion:
    state = ask.call.prompt.state
    spec = host.spec(state.task)
    items = script.items(state, spec, _rng(host, ask))
    return types.TextCompletion(write_idea(Idea(*items)))

  return draw


def _asked_implementer(host: Host, seek_help: bool) -> _Answer:
  options = host.config.implementer
  model = paid_model(host, IMPLEMENTER)

  def fits(messages: Any) -> bool:
    used = sum(text_models.tokens_of(m['content']) for m in messages)
    return used <= options.max_prompt_tokens

  def draw(ask: Ask) -> types.TextCompletion:
    asked: Question = ask.call.prompt
    messages = chat_of(
      asked, briefing(host, asked), seek_help=seek_help, fits=fits
    )
    return model.answer(messages, _rng(host, ask).getrandbits(31))

  return draw


def paid_model(host: Host, role: str) -> PaidModel:
  """Returns the endpoint of a role whose section is a `PricedEndpoint`."""
  options = host.config[role]
  limit = TokenLimit(f'config.{role}.max_tokens')
  client = text_models.client(host.config, role, host.work, limit)
  return PaidModel(client, options, purse_of(options, role, host.work))


def briefing(host: Host, asked: Question) -> Briefing:
  """Returns what the first messages say of a run."""
  spec, options = host.spec(asked.state.task), host.config.implementer
  return Briefing(
    spec.research_problem,
    sorted({*asked.state.files, *host.prepared[spec.name].mounts}),
    PACKAGES,
    options.max_steps,
    options.time_limit_s,
    spec.submission,
  )


def _asked_ideator(host: Host) -> _Answer:
  options = host.config.ideator
  model = paid_model(host, IDEATOR)
  template = template_of(host)

  def draw(ask: Ask) -> types.TextCompletion:
    state = ask.call.prompt.state
    text = texts.prompt(
      shown_state(state, host.spec(state.task), options.before),
      text_models.tokens_of,
      max_trace_tokens=options.max_trace_tokens,
      template=template,
    )
    return model.answer(texts.messages(text), _rng(host, ask).getrandbits(31))

  return draw


def template_of(host: Host) -> str:
  """Returns the template of the Ideator's prompt; raises ValueError, OSError."""
  path = host.config.ideator.prompt
  return texts.read_template(path) if path else texts.TEMPLATE
