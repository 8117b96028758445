"""An editor that is a language model."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from jaxagent.envs import syntax
from jaxagent.envs.interfaces import EditRefused
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
_FENCE = re.compile(r'^[ \t]*```[ \t]*\w*[ \t]*\n(.*?)^[ \t]*```', re.M | re.S)
_WHOLE = re.compile(r'^[ \t]*```[ \t]*\w*[ \t]*\n(.*)^[ \t]*```', re.M | re.S)


def parses(code: str) -> bool:
  """Whether a script, or an indented part of one, is valid Python."""
  try:
    syntax.parse(textwrap.dedent(code))
    return True
  except syntax.PARSE_ERRORS:
    return False


class ModelEditor:
  """Carries out instructions by asking a text model for the new script.

  Only a model that cannot be reached is an infrastructure failure. An
  answer without usable code depends on the instruction, so after
  `attempts` of them the edit is refused, which the policy is charged for:
  else an instruction that keeps the editor from writing code would be free.
  No text at all, or a script that the model has no room for, is refused, too.
  """

  def __init__(
    self, client: base.TextModel, *, max_tokens: int = 4096, attempts: int = 2
  ):
    if attempts < 1:
      raise ValueError(f'attempts={attempts!r} must be at least 1.')
    self.client = client
    self.name = f'model_editor({client.name})'
    self.is_stand_in = client.is_stand_in
    self.max_tokens = max_tokens
    self.attempts = attempts

  def edit(self, script: str, instruction: str) -> str:
    """Returns the edited script.

    Raises EditRefused where the model refuses, has no answer to this input or
    gives no valid Python (checked where the script itself is valid),
    TextModelError where it cannot be reached.
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
      answer = self._ask(messages, attempt)
      code, why = self._read(answer, check=parses(script))
      if code is not None:
        return code
      messages += [
        {'role': 'assistant', 'content': answer},
        {'role': 'user', 'content': AGAIN.format(why=why)},
      ]
    raise EditRefused(f"the editor's answer cannot be used: {why}")

  def _ask(self, messages: Sequence[dict[str, str]], attempt: int) -> str:
    try:
      return base.ask(
        self.client,
        messages,
        max_tokens=self.max_tokens,
        temperature=0.0,
        seed=attempt,
      )
    except base.Unanswerable as error:
      raise EditRefused(str(error)) from error

  @staticmethod
  def _read(answer: str, check: bool) -> tuple[str | None, str]:
    """(code, '') or (None, what is wrong); EditRefused for a refusal."""
    blocks = sorted(_FENCE.findall(answer), key=len, reverse=True)
    whole = _WHOLE.search(answer)  # a script may hold a fence in a string
    blocks += [whole.group(1)] if whole else []
    blocks = [b for b in blocks if b.strip()]
    if not blocks:
      refused = _REFUSED.search(answer)
      if refused:
        raise EditRefused(refused.group(1).strip()[:200])
      cut = ' (it was cut off)' if '```' in answer else ''
      return None, f'it holds no complete code block{cut}'
    for block in blocks:
      if not check or parses(block):
        return block, ''
    return None, 'its code is not valid Python'


def _ended(script: str) -> str:
  return script if script.endswith('\n') else script + '\n'
