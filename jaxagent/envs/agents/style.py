"""Interface of an agent, and the parts that the agents' prompts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from jaxagent import types
from jaxagent.envs import parser

# At a line's start alone: a thought may speak of an observation.
STOP = ('\nObservation:',)
THOUGHT_ENTRIES = ('Thought', 'Action', 'Action Input')
_FORMATS = (parser.ENTRIES, THOUGHT_ENTRIES, parser.ENTRIES_WITHOUT_THOUGHT)


@runtime_checkable
class AgentStyle(Protocol):
  """A prompt and the format of what answers it. Pure text, without a state.

  stop: texts at which an engine ends a response.
  """

  @property
  def name(self) -> str: ...

  @property
  def stop(self) -> tuple[str, ...]: ...

  def prompt(
    self,
    state: types.State,
    task: types.TaskSpec,
    *,
    actions: Sequence[str],
    observation_chars: int,
    steps: int = 3,
  ) -> str:
    """Returns the prompt of a model.

    Args:
      state, task: where the step starts.
      actions: names of those on offer.
      observation_chars: how much of each past observation is kept.
      steps: how many past steps at most.

    Raises ValueError for an unknown action or a number below zero.
    """
    ...

  def parse(self, text: str, *, actions: Sequence[str]) -> parser.Response:
    """The response read; raises parser.ResponseError, whatever the text."""
    ...

  def write(
    self, thoughts: Mapping[str, str], action: str, args: Mapping[str, str]
  ) -> str:
    """A response in this format; thoughts: the first four of parser.ENTRIES."""
    ...


def cut(text: str, chars: int) -> str:
  """Head and tail of a long text: `chars` of it, and a mark between them."""
  if chars < 0:
    raise ValueError(f'observation_chars={chars} must be at least zero.')
  if len(text) <= chars:
    return text
  # The head tells what it was; errors and final scores stand in the tail.
  tail = chars // 2
  return (
    f'{text[: chars - tail]}\n... ({len(text) - chars} characters left out) '
    f'...\n{text[len(text) - tail :]}'
  )


def past_steps(
  state: types.State, steps: int
) -> list[tuple[int, types.PastStep]]:
  """The last steps in order, each with its number in the trajectory."""
  if steps < 0:
    raise ValueError(f'steps={steps} must be at least zero.')
  first = state.step - len(state.history)
  numbered = [(first + i, past) for i, past in enumerate(state.history)]
  return numbered[max(len(numbered) - steps, 0) :]


def observation(past: types.PastStep, chars: int) -> str:
  """Returns a step's observation; its one-line result if no more was kept."""
  return cut(past.observation.strip('\n') or past.result, chars)


def response(past: types.PastStep, entries: Sequence[str]) -> str:
  """A past response: those of its entries that this agent writes.

  One that is in no format is shown as it is, since its observation speaks of
  the fault. What it made up after `Observation:` is not shown.
  """
  text = parser.cut_observation(past.response).strip()
  if not text:
    return f'Action: {past.action}' if past.action else ''
  for required in _FORMATS:
    try:
      found = parser.split_entries(text, required)
    except parser.FormatError:
      continue
    return '\n'.join(f'{n}: {found[n]}' for n in entries if n in found)
  return text


def require_text(text: str) -> None:
  """Raises FormatError for a NUL or a lone surrogate."""
  if not parser.is_text(text):
    raise parser.FormatError(
      'The response holds a NUL or a lone surrogate; write plain text.'
    )
