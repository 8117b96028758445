"""An editor that is a language model."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from jaxagent.envs.interfaces import EditRefused, thought
from jaxagent.files import fences, syntax
from jaxagent.llm import answer as answers
from jaxagent.llm import base

SYSTEM = (
  'You edit Python scripts for a machine learning engineer. You get a script '
  'and an instruction. Carry out the instruction exactly, change nothing '
  'else, and keep every file that the script reads or writes. Answer with '
  'the whole edited script in one ```python code block. If the instruction '
  'cannot be carried out on this script, answer instead with one line: '
  'REFUSED: and the reason.'
)
AGAIN = (
  'That answer cannot be used: {why}. Answer again with the whole edited '
  'script in one ```python code block, or with REFUSED: and the reason.'
)
_REFUSED = re.compile(r'^\s*REFUSED:\s*(.+)', re.M)
# What stands before a block of Python; any other language is no script.
_PYTHON = ('', 'python', 'python3', 'py', 'py3', 'ipython')
# An answer of so many times its script, and this much more, does not come to an end
# for what it was asked.
ENDLESS, ENDLESS_CHARS = 4, 16_000


def parses(code: str) -> bool:
  """Whether a script, or an indented part of one, is valid Python."""
  try:
    syntax.parse(textwrap.dedent(code))
    return True
  except syntax.PARSE_ERRORS:
    return False


class ModelEditor:
  """Carries out instructions by asking a text model for the new script.

  A model that cannot be reached is an infrastructure failure, and so is an answer
  that is cut or empty, after the client asked again with more room. What depends on
  the instruction is a refused edit, which the policy is charged for: else an
  instruction that keeps the editor from writing code would be free. These are
  `attempts` answers without usable code, no text of a model that answers other
  questions, a script that the model has no room for, and an answer without end.
  """

  def __init__(
    self,
    client: base.TextModel,
    *,
    max_tokens: int = 4096,
    temperature: float = 0.0,
    attempts: int = 2,
  ):
    if attempts < 1:
      raise ValueError(f'attempts={attempts!r} must be at least 1.')
    self.client = client
    self.name = f'model_editor({client.name})'
    self.is_stand_in = client.is_stand_in
    self.max_tokens = max_tokens
    self.temperature = temperature
    self.attempts = attempts

  def edit(self, script: str, instruction: str) -> str:
    """Returns the edited script.

    Raises EditRefused where the model refuses, has no answer to this input or
    gives no valid Python (checked where the script itself is valid),
    TextModelError where it cannot be reached or gives no whole answer.
    """
    if not instruction.strip():
      raise EditRefused('the instruction is empty')
    messages = [
      {'role': 'system', 'content': SYSTEM},
      {
        'role': 'user',
        'content': f'Instruction: {instruction.strip()}\n\nScript:\n'
        f'```python\n{_ended(script)}```',
      },
    ]
    why = ''
    for attempt in range(self.attempts):
      answer = self._ask(messages, attempt, len(script))
      code, why = read(answer, script)
      if code is not None:
        return code
      messages += [
        {'role': 'assistant', 'content': answer},
        {'role': 'user', 'content': AGAIN.format(why=why)},
      ]
    raise EditRefused(f"the editor's answer cannot be used: {why}")

  def _ask(
    self, messages: Sequence[dict[str, str]], attempt: int, size: int
  ) -> answers.Answer:
    """size: characters of the script."""
    try:
      answer = base.ask(
        self.client,
        messages,
        max_tokens=self.max_tokens,
        temperature=self.temperature,
        seed=attempt,
      )
    except base.Unanswerable as error:
      raise EditRefused(str(error)) from error
    except base.Unfinished as error:
      if len(error.text) < ENDLESS * size + ENDLESS_CHARS:
        raise
      raise EditRefused(
        f'the edit of {size} characters had not ended after {len(error.text)}'
      ) from error
    thought('editor', answer.thoughts)
    return answer


def read(answer: str, script: str) -> tuple[str | None, str]:
  """Returns (the edited script, ''), or (None, what is wrong with an answer).

  The last block of Python counts, valid where the script itself is: what stands before
  it is a draft, or what it takes the place of. Raises EditRefused for a refusal.
  """
  check = parses(script)
  found = [
    block
    for block in fences.blocks(answer, parses if check else lambda code: True)
    if block.language in _PYTHON and block.code.strip()
  ]
  # Where one says that it is Python, one that says nothing is its output.
  found = [block for block in found if block.language] or found
  if not found:
    refused = _REFUSED.search(answer)
    if refused:
      raise EditRefused(refused.group(1).strip()[:200])
    cut = ' (it was cut off)' if fences.spans(answer)[1] else ''
    return None, f'it holds no complete block of Python{cut}'
  valid = [b.code for b in found if not check or parses(b.code)]
  if not valid:
    return None, 'its code is not valid Python'
  if len(set(valid)) > 1 and 2 * len(valid[-1]) < len(script):
    return None, (
      f'it holds {len(valid)} code blocks, and the last one is less than half of '
      'the script'
    )
  return _as_in(script, valid[-1]), ''


def _as_in(script: str, code: str) -> str:
  """The code with the script's line ends."""
  if '\r\n' in script and '\n' not in script.replace('\r\n', ''):
    return code.replace('\n', '\r\n')
  return code


def _ended(script: str) -> str:
  return script if script.endswith('\n') else script + '\n'
