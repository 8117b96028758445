"""Options of the models that the system itself asks: one record for all roles."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxagent.envs.solution_env import INSTRUMENTERS
from jaxagent.llm import request
from jaxagent.options import (
  Relation,
  Section,
  is_http,
  option,
  relation,
  with_default,
)


def _check_extra(key: str, value: dict[str, Any]) -> str:
  del key
  request.check_extra(value)
  return ''


@dataclasses.dataclass(frozen=True)
class Endpoint(Section):
  """Model of a role: a stand-in, another role's model, or an endpoint.

  `without` is the kind that needs no endpoint.
  """

  without: ClassVar[str] = 'scripted'
  # Options that do not change what is there already: a resumed run may change them.
  free: ClassVar[tuple[str, ...]] = ('max_concurrency',)

  kind: str = option(
    'scripted',
    choices=('scripted', 'openai'),
    help='scripted: the offline stand-in; openai: an endpoint.',
  )
  base_url: str = option(
    'http://127.0.0.1:8000/v1',
    help='Address of the endpoint.',
    advanced=True,
  )
  model: str = option(
    '', help="Model that the endpoint serves; '': none.", advanced=True
  )
  extra: dict[str, Any] = option(
    {},
    help='Merged into the JSON of a request; None takes a key out; {}: '
    'nothing.',
    example="{'top_p': 0.9, 'seed': None}",
    check=_check_extra,
    advanced=True,
  )

  max_concurrency: int = option(
    8,
    least=1,
    unit='calls',
    help='Calls in flight at once.',
    advanced=True,
  )

  relations: ClassVar[tuple[Relation, ...]] = (
    relation(
      'kind',
      'base_url',
      holds=lambda kind, url: kind != 'openai' or is_http(url),
      say='{at}base_url={base_url!r} must be an http or https address without '
      "user name or query, such as 'http://127.0.0.1:8000/v1'.",
    ),
    # The paper's variant is planned without an endpoint at hand.
    relation(
      'kind',
      'model',
      'base_url',
      holds=lambda kind, model, url: kind != 'openai' or str(model).strip(),
      say='{at}model is empty: name the model that the endpoint {base_url} '
      'serves, or set {at}kind={section.without}.',
      stage='run',
    ),
  )


@dataclasses.dataclass(frozen=True)
class TextEndpoint(Endpoint):
  """An `Endpoint` whose model writes text."""

  max_tokens: int = option(
    4096,
    unit='tokens',
    help='Limit of an answer and the thoughts before it; one that is cut or '
    'empty is asked for again with twice, four and eight times as many.',
    advanced=True,
  )
  temperature: float = option(
    0.0, least=0, help='Temperature of sampling; 0: greedy.', advanced=True
  )


@dataclasses.dataclass(frozen=True)
class ExpertOptions(TextEndpoint):
  """The expert whose trajectories are collected, or the model measured."""

  base_url: str = with_default(
    Endpoint, 'base_url', 'http://127.0.0.1:8000/v1', advanced=False
  )
  model: str = with_default(Endpoint, 'model', '', advanced=False)
  max_tokens: int = with_default(TextEndpoint, 'max_tokens', 1024)
  temperature: float = with_default(TextEndpoint, 'temperature', 0.7)


@dataclasses.dataclass(frozen=True)
class EditorOptions(TextEndpoint):
  """The model that carries out edit instructions."""

  kind: str = with_default(
    Endpoint,
    'kind',
    'expert',
    choices=('scripted', 'openai', 'expert'),
    help='scripted: the offline stand-in; openai: an endpoint; expert: the '
    "expert's model.",
  )
  model: str = with_default(Endpoint, 'model', '', advanced=False)


@dataclasses.dataclass(frozen=True)
class ReaderOptions(TextEndpoint):
  """The model that answers Understand File, Reflection and the research log."""

  kind: str = with_default(
    Endpoint,
    'kind',
    'editor',
    choices=('scripted', 'openai', 'expert', 'editor'),
    help='scripted: the offline stand-in; openai: an endpoint; expert or '
    'editor: the model of that role.',
    advanced=True,
  )
  max_tokens: int = with_default(TextEndpoint, 'max_tokens', 1024)


@dataclasses.dataclass(frozen=True)
class InstrumenterOptions(TextEndpoint):
  """Source of the marks that give a whole solution partial credit."""

  without: ClassVar[str] = 'syntax'

  kind: str = with_default(
    Endpoint,
    'kind',
    'syntax',
    choices=INSTRUMENTERS,
    help='Marks by syntax or by a model (openai); verified: what the grader '
    'checks; none: no partial credit.',
  )
  base_url: str = with_default(
    Endpoint, 'base_url', 'http://127.0.0.1:8000/v1', advanced=False
  )
  model: str = with_default(Endpoint, 'model', '', advanced=False)
  timeout_s: float = option(
    30.0,
    unit='s',
    above=0,
    help='Limit of one answer; asked twice, and twice more if cut.',
    advanced=True,
  )


@dataclasses.dataclass(frozen=True)
class WriterOptions(TextEndpoint):
  """The model around which recipe tree_search searches."""

  without: ClassVar[str] = 'policy'

  kind: str = with_default(
    Endpoint,
    'kind',
    'policy',
    choices=('policy', 'openai'),
    help='The trained policy, or a model behind an endpoint.',
    advanced=True,
  )
  temperature: float = with_default(
    TextEndpoint, 'temperature', 1.0, advanced=False
  )
  samples: int = option(
    0,
    least=0,
    help="Solutions of a task by an endpoint's model, as many from scratch as "
    'improved; 0: the search alone.',
    advanced=True,
  )

  relations = (
    relation(
      'samples',
      'kind',
      holds=lambda samples, kind: not samples or kind == 'openai',
      say='{at}samples={samples} is for a model behind an endpoint '
      '({at}kind=openai); a trained policy has its table in summary.json. Set it '
      'to 0, or set {at}kind=openai.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class EmbeddingsOptions(Endpoint):
  """Embedding by which ideas are compared."""

  without: ClassVar[str] = 'tfidf'

  kind: str = with_default(
    Endpoint,
    'kind',
    'tfidf',
    choices=('tfidf', 'openai'),
    help="tfidf, or an endpoint's /embeddings.",
    advanced=True,
  )
