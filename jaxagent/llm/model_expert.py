"""An expert that is a language model: it acts on the full prompt."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from jaxagent import types
from jaxagent.envs import agents, parser
from jaxagent.envs.interfaces import NoText
from jaxagent.llm import base
from jaxagent.llm.answer import Answer
from jaxagent.llm.base import Refused, TextModel

SYSTEM = (
  'You improve machine learning scripts step by step. Each answer is one step '
  'in the format that you are given, with all its parts, each once and in its '
  'order. Write nothing before or after it.'
)
AGAIN = 'That answer cannot be carried out: {why} Answer again.'
STOP = '\nObservation:'


class ModelExpert:
  """Acts by asking a text model.

  Args:
    client: the model.
    agent: writes the prompt and reads the answer.
    actions: what the prompt offers.
    fits: whether a prompt has room; what does not is shortened.
    temperature: of sampling; the seed of each answer comes from `rng`, so
      that a collection can be repeated from the client's cache.
    attempts: answers asked for until one is in the format. The last one is
      returned as it is: judging it is the environment's business.
  """

  def __init__(
    self,
    client: TextModel,
    *,
    agent: agents.AgentStyle = agents.AGENTS['research'],
    actions: Sequence[str] = parser.DEFAULT_ACTIONS,
    fits: Callable[[str], bool] = lambda text: True,
    temperature: float = 0.7,
    max_tokens: int = 1024,
    attempts: int = 2,
  ):
    if attempts < 1:
      raise ValueError(f'attempts={attempts!r} must be at least 1.')
    self.client = client
    self.name = f'model_expert({client.name})'
    self.is_stand_in = client.is_stand_in
    self.agent, self.actions = agent, tuple(actions)
    self._fits = fits
    self.temperature = temperature
    self.max_tokens = max_tokens
    self.attempts = attempts

  def prompt(self, state: types.State, task: types.TaskSpec) -> str:
    """Returns the model's prompt for a state."""
    return agents.prompt_that_fits(
      self.agent, state, task, actions=self.actions, fits=self._fits
    )

  def act(
    self,
    state: types.State,
    task: types.TaskSpec,
    rng: random.Random,
    ideas: Sequence[str] = (),
  ) -> Answer:
    """One response, whose `thoughts` are apart from it.

    Raises TextModelError where the model gives none.

    Asked again with its own bad answer it may refuse, or say nothing: then that
    answer is what it gave.
    """
    if ideas:
      state = dataclasses.replace(state, ideas=tuple(ideas))
    messages = [
      {'role': 'system', 'content': SYSTEM},
      {'role': 'user', 'content': self.prompt(state, task)},
    ]
    answer: Answer | None = None
    for _ in range(self.attempts):
      try:
        answer = self._asked(messages, rng)
      except (NoText, Refused):
        if answer is None:
          raise
        return answer
      try:
        self.agent.parse(answer, actions=self.actions)
        return answer
      except parser.ResponseError as error:
        messages = [
          *messages,
          {'role': 'assistant', 'content': answer},
          {'role': 'user', 'content': AGAIN.format(why=error)},
        ]
    assert answer is not None  # attempts >= 1
    return answer

  def _asked(
    self, messages: Sequence[dict[str, str]], rng: random.Random
  ) -> Answer:
    answer = base.complete(
      self.client,
      messages,
      max_tokens=self.max_tokens,
      temperature=self.temperature,
      stop=self.agent.stop,
      seed=rng.getrandbits(31),
    )
    return Answer(answer.split(STOP)[0].strip(), answer.thoughts)
