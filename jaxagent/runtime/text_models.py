"""Makes the text models of a run: scripted stand-ins or clients of an endpoint."""

from __future__ import annotations

import dataclasses
import logging
import math
import pathlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxagent import types
from jaxagent.config import endpoints, recipe
from jaxagent.config.agents import actions_of, agent_of
from jaxagent.data import ideas
from jaxagent.envs.interfaces import Helper, NoText, TextModelError
from jaxagent.envs.solution import SYSTEM
from jaxagent.files import fences
from jaxagent.llm.answer import Answer
from jaxagent.llm.client_options import ClientOptions
from jaxagent.llm.room import TokenLimit

if TYPE_CHECKING:
  from ml_collections import ConfigDict

  from jaxagent.llm.openai_client import OpenAIClient

_log = logging.getLogger(__name__)
BYTES = 3  # a token of an endpoint's model, at least, but in numbers
_NUMBER = re.compile(rb'[0-9]+[^0-9A-Za-z]?')
# Seconds that an attempt has for each token of its room, where that is more than the
# client's own: 33 tokens a second.
S_PER_TOKEN = 0.03


def make_expert(config: ConfigDict, work: pathlib.Path):
  """Makes the expert that `config.expert.kind` names."""
  if config.expert.kind == 'scripted':
    from jaxagent.stand_ins.expert import ScriptedExpert

    return ScriptedExpert(agent=agent_of(config))
  from jaxagent.llm.model_expert import ModelExpert

  limits: dict[str, Any] = {
    'max_tokens': config.expert.max_tokens,
    'temperature': config.expert.temperature,
  }
  limit = None
  if recipe.find(config).expert_is_measured:
    rollout = config.rollout
    limits = {
      'max_tokens': rollout.max_new_tokens,
      'temperature': rollout.temperature,
      'fits': lambda text: tokens_of(text) <= rollout.max_prompt_tokens,
    }
    limit = TokenLimit('config.rollout.max_new_tokens', is_measured=True)
  return ModelExpert(
    client(config, 'expert', work, limit),
    agent=agent_of(config),
    actions=actions_of(config),
    **limits,
  )


def tokens_of(text: str) -> int:
  """Returns an upper estimate of a text's tokens, for any endpoint's model.

  A digit and the sign behind a number are a token each, for many tokenizers join
  no digits; BYTES bytes of UTF-8 are one of all else. Code and English take
  fewer, Chinese takes about as many.
  """
  data = text.encode('utf-8', 'surrogatepass')
  numbers = sum(map(len, _NUMBER.findall(data)))
  return numbers + math.ceil((len(data) - numbers) / BYTES)


def make_editor(config: ConfigDict, work: pathlib.Path):
  """Makes the editor that `config.editor.kind` names."""
  if endpoints.speaker(config, 'editor').kind == 'scripted':
    from jaxagent.stand_ins.editor import ScriptedEditor

    return ScriptedEditor()
  from jaxagent.llm.model_editor import ModelEditor

  return ModelEditor(
    client(config, 'editor', work),
    max_tokens=config.editor.max_tokens,
    temperature=config.editor.temperature,
  )


def make_reader(config: ConfigDict, work: pathlib.Path):
  """Makes the reader that `config.reader.kind` names."""
  if endpoints.speaker(config, 'reader').kind == 'scripted':
    from jaxagent.stand_ins.reader import ScriptedReader

    return ScriptedReader()
  from jaxagent.llm.model_reader import ModelReader

  return ModelReader(
    client(config, 'reader', work),
    max_tokens=config.reader.max_tokens,
    temperature=config.reader.temperature,
  )


def make_helper(config: ConfigDict):
  """Returns the helper that answers Request Help: `config.env.help`."""
  from jaxagent.stand_ins.reader import NoHelper

  nobody = NoHelper()
  return Person(nobody) if config.env.help == 'person' else nobody


class Person:
  """A person at the terminal; gets one request at a time.

  Without input (end of file) the answer is that no help is available.
  """

  name = 'person'
  is_stand_in = False

  def __init__(self, nobody: Helper):
    self._lock, self._nobody = threading.Lock(), nobody

  def answer(self, request: str) -> str:
    """Returns the line typed at the terminal."""
    with self._lock:
      try:
        return input(f'The agent asks for help: {printable(request)}\n> ')
      except EOFError:
        return self._nobody.answer(request)


def printable(text: str) -> str:
  """Returns a text without control sequences, for a terminal."""
  return ''.join(c if c.isprintable() or c == '\n' else '?' for c in text)


def make_embedder(
  config: ConfigDict, work: pathlib.Path
) -> Callable[[Sequence[str]], np.ndarray]:
  """Makes a function: texts -> their vectors, a row each, by `config.embeddings.kind`.

  An endpoint's raises TextModelError.
  """
  if config.embeddings.kind == 'tfidf':
    return ideas.tfidf
  return client(config, 'embeddings', work).embed


def make_instrumenter(
  config: ConfigDict, work: pathlib.Path
) -> Instrumenter | None:
  """Makes the client of `config.instrumenter`; None if its kind is no model."""
  options = config.instrumenter
  if options.kind != 'openai':
    return None
  made = client(
    config,
    'instrumenter',
    work,
    TokenLimit('config.instrumenter.max_tokens', most_grown=2),
    ClientOptions(timeout_s=options.timeout_s, max_retries=1),
  )
  return Instrumenter(made, options.max_tokens, options.temperature)


class Instrumenter:
  """Client of a frozen model for marks; '' where it gives no answer.

  The program then runs without marks: a server that is slow, down or hangs must not
  hold up the run. After PATIENCE failures in a row it is left alone for REST_S.
  """

  PATIENCE = 8
  REST_S = 60.0

  def __init__(
    self, client: OpenAIClient, max_tokens: int, temperature: float = 0.0
  ):
    self._client, self._most, self._heat = client, max_tokens, temperature
    self._lock = threading.Lock()
    self._failures, self._rests_until = 0, 0.0

  def __call__(self, question: str) -> types.TextCompletion:
    """Returns the answer; thread-safe."""
    return text_completion(Answer(*self._answer(question)))

  def _answer(self, question: str) -> tuple[str, str]:
    if time.monotonic() < self._rests_until:
      return '', ''
    try:
      text = self._client.complete(
        [{'role': 'user', 'content': question}],
        max_tokens=self._most,
        temperature=self._heat,
        seed=0 if self._heat else None,
      )
    except TextModelError as error:
      _log.warning('instrumenter: %s', error)
      self._failed()
      return '', ''
    with self._lock:
      self._failures = 0
    return text, getattr(text, 'thoughts', '')

  def _failed(self) -> None:
    with self._lock:
      self._failures += 1
      if self._failures < self.PATIENCE:
        return
      self._failures = 0
      self._rests_until = time.monotonic() + self.REST_S
    _log.warning(
      'instrumenter: %d failures in a row; programs run without marks for %g s.',
      self.PATIENCE,
      self.REST_S,
    )


class ProgramModel:
  """The prompted model of `config.writer`, in the place of a `PolicySampler`.

  It is measured: an answer that is empty or cut at its limit of tokens counts against
  it. How it fences its program does not count: the fences are rewritten as the parser
  of a policy wants them.
  """

  def __init__(self, config: ConfigDict, work: pathlib.Path):
    limit = TokenLimit('config.writer.max_tokens', is_measured=True)
    self._client = client(config, 'writer', work, limit)
    self.max_concurrency = endpoints.max_concurrency(config, 'writer')
    system = config.rollout.prompt_style == 'full'
    self._before = [{'role': 'system', 'content': SYSTEM}] if system else []
    self._most, self._heat = config.writer.max_tokens, config.writer.temperature

  def complete(self, prompt: str, seed: int) -> types.TextCompletion:
    """Returns the answer, '' if it is empty; thread-safe.

    Raises TextModelError where the model gives none.
    """
    try:
      answer = self._client.complete(
        [*self._before, {'role': 'user', 'content': prompt}],
        max_tokens=self._most,
        temperature=self._heat,
        seed=seed,
      )
    except NoText:
      return types.TextCompletion('')
    return text_completion(Answer(fences.plain(answer), answer.thoughts))

  def text(self, answer: types.TextCompletion) -> Answer:
    """Returns the answer's text, its thoughts apart."""
    return answer_of(answer)


def text_completion(answer: Answer) -> types.TextCompletion:
  """Returns an answer as rollouts and their journals have it."""
  cost = {'thoughts': answer.thoughts} if answer.thoughts else {}
  return types.TextCompletion(str(answer), cost)


def answer_of(completion: types.TextCompletion | str) -> Answer:
  """Inverse of `text_completion`; journals of older versions have texts alone."""
  if isinstance(completion, str):
    return Answer(completion)
  return Answer(completion.text, completion.cost.get('thoughts', ''))


def client(
  config: ConfigDict,
  role: str,
  work: pathlib.Path,
  limit: TokenLimit | None = None,
  options: ClientOptions | None = None,
) -> OpenAIClient:
  """Makes the client of a role's endpoint."""
  from jaxagent.llm.openai_client import OpenAIClient

  endpoint = endpoints.speaker(config, role)
  return OpenAIClient(
    endpoint.base_url,
    endpoint.model,
    work / 'llm_cache',
    dataclasses.replace(
      options or ClientOptions(s_per_token=S_PER_TOKEN),
      max_concurrency=endpoints.max_concurrency(config, role),
    ),
    limit or TokenLimit(f'config.{role}.max_tokens'),
    extra=endpoints.extra_of(config, role),
  )
