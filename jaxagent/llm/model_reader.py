"""A reader that is a language model (paper 002: Understand File, Reflection,
Retrieval from Research Log)."""

from __future__ import annotations

from collections.abc import Iterator

from jaxagent.envs.interfaces import thought
from jaxagent.envs.workspace import ActionFailed
from jaxagent.llm import base

BLOCK_CHARS = 10_000  # of one question, as MLAgentBench cuts files
MAX_BLOCKS = 40  # a longer file is read from its beginning
_DESCRIBE = (
  'Lines {start} to {end} of a file:\n```\n{block}\n```\nWhat to look for and '
  'what to return: {wanted}\nAnswer briefly and name the lines that matter. Say '
  'only what the file itself confirms, guess no numbers. Where a part of the '
  'request has no answer in these lines, say so.'
)
_TOGETHER = (
  'Descriptions of the parts of one file, in order:\n\n{parts}\n\nPut them '
  'together to one description of the whole file. What to look for and what to '
  'return: {wanted}'
)
_REFLECT = (
  'The research problem: {problem}\n\nThe research log so far:\n```\n{log}\n```\n'
  'Reflect on this: {things}\nAnswer in a few truthful paragraphs.'
)
_RETRIEVE = (
  'The research problem: {problem}\n\nThe current research plan and status:\n'
  '{plan}\n\nThe research log so far:\n```\n{log}\n```\nList briefly what in the '
  'log helps with the next steps.'
)


class ModelReader:
  """Asks a text model, block by block where a file is long.

  Each raises ActionFailed where the model has no answer to this input, which is
  the policy's doing, and TextModelError where it cannot be reached.
  """

  def __init__(
    self,
    client: base.TextModel,
    *,
    max_tokens: int = 1024,
    temperature: float = 0.0,
  ):
    self.client = client
    self.name = f'model_reader({client.name})'
    self.is_stand_in = client.is_stand_in
    self.max_tokens = max_tokens
    self.temperature = temperature

  def describe(self, text: str, wanted: str) -> str:
    """Asks what is wanted of a file, block by block, and joins the answers."""
    answers = [
      self._ask(
        _DESCRIBE.format(start=start, end=end, block=block, wanted=wanted)
      )
      for start, end, block in blocks(text)
    ]
    if len(answers) == 1:
      return answers[0]
    parts = '\n\n'.join(f'Part {i}: {a}' for i, a in enumerate(answers, 1))
    return self._ask(_TOGETHER.format(parts=parts, wanted=wanted))

  def reflect(self, problem: str, log: str, things: str) -> str:
    return self._ask(
      _REFLECT.format(problem=problem, log=log[-BLOCK_CHARS:], things=things)
    )

  def retrieve(self, problem: str, log: str, plan: str) -> str:
    return self._ask(
      _RETRIEVE.format(problem=problem, log=log[-BLOCK_CHARS:], plan=plan)
    )

  def _ask(self, question: str) -> str:
    try:
      answer = base.ask(
        self.client,
        [{'role': 'user', 'content': question}],
        max_tokens=self.max_tokens,
        temperature=self.temperature,
        seed=0 if self.temperature else None,
      )
    except base.Unanswerable as error:
      raise ActionFailed(f'{error}.', kind='model') from error
    thought('reader', answer.thoughts)
    return answer.strip()


def blocks(text: str) -> Iterator[tuple[int, int, str]]:
  """(first line, last line, text) of at most BLOCK_CHARS characters each.

  A line that is longer is cut into several blocks.
  """
  made, size, first = 0, 0, 1
  held: list[str] = []
  for number, line in enumerate(text.split('\n'), 1):
    pieces = [
      line[i : i + BLOCK_CHARS] for i in range(0, len(line), BLOCK_CHARS)
    ] or ['']
    for piece in pieces:
      if held and size + len(piece) + 1 > BLOCK_CHARS:
        yield first, number - (len(pieces) == 1), '\n'.join(held)
        made += 1
        if made == MAX_BLOCKS:
          return
        held, size, first = [], 0, number
      held.append(piece)
      size += len(piece) + 1
  yield first, number, '\n'.join(held)
