"""Options of paper 001's recipe: Implementer, Ideator, pool of states."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from jaxagent.llm.config import Endpoint, TextEndpoint
from jaxagent.options import Relation, Section, option, relation, with_default
from jaxagent.recipes.ideator.prompt import MAX_TRACE_TOKENS
from jaxagent.recipes.ideator.types_of import MAX_TOKENS
from jaxagent.rewards.ideator import FIRST_SCORES

BEFORE = ('best', 'last')
# What paper 001 leaves open; docs/ideator.md has the reasons for each value.
OPEN = (
  'rl.policy_lr',
  'rl.clip_low',
  'rl.clip_high',
  'rollout.temperature',
  'rollout.max_new_tokens',
  'rollout.chat_template_kwargs',
  'implementer.kind',
  'implementer.model',
  'ideator.first_score',
)
# Ideators that are no policy: of collection, and of arms beside the policies.
KINDS = ('scripted', 'openai', 'null', 'vague', 'blind', 'none')


IMPLEMENTERS = ('scripted', 'scripted_relative')  # that need no endpoint
PRICES = ('prompt', 'completion')


def _is_price(value: Any) -> bool:
  return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _check_prices(key: str, value: dict[str, Any]) -> str:
  if not value:
    return ''
  if set(value) == set(PRICES) and all(map(_is_price, value.values())):
    return ''
  return (
    f'{key}={value!r} must give prompt and completion, each a number of 0 or more: '
    "the prices of a million tokens, such as {'prompt': 0.5, 'completion': 2.0}."
  )


@dataclasses.dataclass(frozen=True)
class PricedEndpoint(TextEndpoint):
  """A `TextEndpoint` whose answers cost money."""

  free: ClassVar[tuple[str, ...]] = ('max_concurrency', 'prices', 'max_spend')

  prices: dict[str, Any] = option(
    {},
    help='Prices of a million tokens of prompts and answers; {}: nothing is counted.',
    example="{'prompt': 0.5, 'completion': 2.0}",
    check=_check_prices,
    advanced=True,
  )
  max_spend: float = option(
    0.0,
    least=0,
    help='Money after which nothing is asked and the run stops; the same command with '
    'a higher one resumes it. 0: no limit.',
    advanced=True,
  )

  relations: ClassVar[tuple[Relation, ...]] = (
    relation(
      'max_spend',
      'prices',
      holds=lambda most, prices: not most or prices,
      say='{at}max_spend={max_spend} needs {at}prices; give those of a million '
      "tokens, such as {{'prompt': 0.5, 'completion': 2.0}}.",
    ),
  )


@dataclasses.dataclass(frozen=True)
class ImplementerOptions(PricedEndpoint):
  """The frozen model that writes and runs code, and may ask for help."""

  # Further pairs may be evaluated later: each has results of its own.
  free: ClassVar[tuple[str, ...]] = (*PricedEndpoint.free, 'also')

  kind: str = with_default(
    Endpoint,
    'kind',
    'scripted',
    choices=(*IMPLEMENTERS, 'openai'),
    help='scripted: the offline stand-in; scripted_relative: one with other habits; '
    'openai: an endpoint.',
  )
  base_url: str = with_default(
    Endpoint, 'base_url', 'http://127.0.0.1:8000/v1', advanced=False
  )
  model: str = with_default(Endpoint, 'model', '', advanced=False)
  also: tuple[str, ...] = option(
    (),
    choices=IMPLEMENTERS,
    help='Further Implementers with which every arm and policy is evaluated; '
    '(): none.',
    advanced=True,
  )
  max_steps: int = option(50, unit='steps', help='Messages of a run.')
  time_limit_s: float = option(
    3600.0,
    unit='s',
    above=0,
    help='Limit of a run, the time of models included.',
  )
  max_prompt_tokens: int = option(
    65536,
    unit='tokens',
    help='Room for the chat of an endpoint; the oldest steps go first.',
    advanced=True,
  )

  relations = (
    relation(
      'also',
      'kind',
      holds=lambda also, kind: kind not in also,
      say='{at}also={also!r} holds {at}kind={kind!r}, with which every arm is '
      'evaluated anyway; leave it out.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class IdeatorOptions(PricedEndpoint):
  """The Ideator: who answers while the pool is made, its prompt, its reward."""

  without: ClassVar[str] = 'scripted'
  free: ClassVar[tuple[str, ...]] = (*PricedEndpoint.free, 'arms', 'boards')

  kind: str = with_default(
    Endpoint,
    'kind',
    'scripted',
    choices=KINDS,
    help='Who answers while the pool is made: a scripted teacher, an endpoint, two '
    'fixed sentences, ideas whatever the state, nobody. The policy is evaluated '
    'as sft and rl.',
  )
  base_url: str = with_default(
    Endpoint, 'base_url', 'http://127.0.0.1:8000/v1', advanced=False
  )
  model: str = with_default(Endpoint, 'model', '', advanced=False)
  max_calls: int = option(
    2, help='Answers that a run of the Implementer may get.'
  )
  quality: float = option(
    0.35,
    least=0,
    most=1,
    help='Of the scripted teacher: 0 draws ideas whatever their worth.',
    advanced=True,
  )
  answers: int = option(
    4, least=0, help='Answers of the teacher to a state, for SFT; 0: no SFT.'
  )
  augment: float = option(
    0.0,
    least=0,
    most=1,
    help="Share of the teacher's answers that are to the state as of another kind of "
    'task, data and metric, so that SFT learns what depends on them; 0 with full prompts.',
    advanced=True,
  )
  prompt: str = option(
    '',
    is_path=True,
    help="File with a prompt of your own, with the same slots; '': the package's.",
    advanced=True,
  )
  max_trace_tokens: int = option(
    MAX_TRACE_TOKENS,
    unit='tokens',
    help='Room for the trace in the prompt (full style).',
    advanced=True,
  )
  before: str = option(
    'best',
    choices=BEFORE,
    help='Score and program that an idea is compared with: of the best valid '
    'submission so far, or of the last one.',
    advanced=True,
  )
  margin: float = option(
    0.0,
    least=0,
    help="What a score must rise by, in units of its program's noise.",
    advanced=True,
  )
  first_score: str = option(
    '1',
    choices=FIRST_SCORES,
    help='Reward of a valid score where there was none before.',
    advanced=True,
  )
  arms: tuple[str, ...] = option(
    ('none', 'null', 'vague', 'blind'),
    choices=KINDS,
    help='Ideators that are evaluated beside the policies.',
  )
  boards: str = option(
    '',
    is_path=True,
    help='Folder with human leaderboards, TASK.csv with a column score, best first; of '
    "published data ID/leaderboard.csv, too, as in mle-bench's competitions; a task "
    "without one has its reference board. '': no folder.",
    advanced=True,
  )

  relations = (
    relation(
      'arms',
      'model',
      'base_url',
      holds=lambda arms, model, url: 'openai' not in arms or str(model).strip(),
      say='{at}arms={arms!r} holds openai, and {at}model is empty: name the model that '
      'the endpoint {base_url} serves, or leave openai out.',
      stage='run',
    ),
  )


@dataclasses.dataclass(frozen=True)
class ClassifierOptions(PricedEndpoint):
  """The source of the types of ideas in evaluated runs (appendix E)."""

  without: ClassVar[str] = 'rule'

  kind: str = with_default(
    Endpoint,
    'kind',
    'rule',
    choices=('rule', 'openai'),
    help='rule: by the family of a scripted idea; openai: an endpoint is asked.',
    advanced=True,
  )
  max_tokens: int = with_default(TextEndpoint, 'max_tokens', MAX_TOKENS)


@dataclasses.dataclass(frozen=True)
class PoolOptions(Section):
  """States in which the Implementer asks for help, to train and validate on."""

  runs_per_task: int = option(
    40, help='Runs of a task that the pool is made from.'
  )
  train_per_task: int = option(100, help='States of a task to train on.')
  valid_per_task: int = option(
    10, help='States of a task to validate on, of other runs.'
  )
  remeasure: int = option(
    1,
    help="Times that a state's program is run again, for its noise.",
    advanced=True,
  )
