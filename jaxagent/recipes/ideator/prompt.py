"""What an Ideator is asked (paper 001, section 3.2 and appendix D)."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Sequence

from jaxagent.envs.agents.implementer import Exchange, Query, left_out_line
from jaxagent.recipes.ideator.parser import ITEMS

MAX_TRACE_TOKENS = 32_000  # of the trace ("Limitations")
SLOTS = ('query', 'step_trace')
# Table 2's two Ideators that are no model, in other words of the same meaning.
NULL = 'I cannot suggest anything for this solution. Go on as you think best.'
VAGUE = 'Go on and make your solution perform better.'

_SLOT = re.compile(r'\{([A-Za-z_]\w*)\}')
TEMPLATE = f"""\
You advise on machine learning. Another agent works on the task below and no longer \
raises the score of its solution. Study what it has done, and give it the one \
algorithmic idea that is likely to raise the score most.

Its question, and then its whole work so far, are:

{{query}}

TRAJECTORY:
{{step_trace}}

## What to answer

Judge the work so far, choose the *one next action with the largest effect*, and \
answer with *exactly three items*, in this order, each name at the beginning of a line:

{ITEMS[0]}:
<a sentence: refine the present approach, or go back to an earlier solution and try \
another path>

{ITEMS[1]}:
<one command in the imperative, or one block of code, that the agent carries out next>

{ITEMS[2]}:
<a short paragraph: why this action is the best one now>

Give no alternatives, no background and no remarks, and write nothing before or after \
the three items.
"""


@dataclasses.dataclass(frozen=True)
class State:
  """The state s_t of section 3.2, with the query that ends it.

  task: text of the task, D.
  steps: the trajectory, the oldest first, without the message of the query.
  score: p_t; None where nothing was graded.
  code: C_t; '' where there is no program.
  metric: its name.
  """

  task: str
  query: Query
  steps: Sequence[Exchange] = ()
  score: float | None = None
  code: str = ''
  metric: str = 'score'
  higher_is_better: bool = True


def read_template(path: str | pathlib.Path) -> str:
  """Reads a template of the user's.

  Raises ValueError, naming the file, where it is no UTF-8 text or its slots are not
  exactly SLOTS; OSError where it cannot be read.
  """
  try:
    text = pathlib.Path(path).read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'ideator.prompt={str(path)!r} is no UTF-8 text: {error}; save it as UTF-8.'
    ) from error
  check_template(text, f'ideator.prompt={str(path)!r}')
  return text


def check_template(template: str, where: str = 'the template') -> None:
  """Raises ValueError for a slot that is unknown or missing, by its name."""
  found = set(_SLOT.findall(template))
  slots = ' and '.join(f'{{{name}}}' for name in SLOTS)
  if unknown := sorted(found - set(SLOTS)):
    raise ValueError(
      f'{where} has the slot {{{unknown[0]}}}, which is not known; its slots are '
      f'{slots}.'
    )
  if missing := [name for name in SLOTS if name not in found]:
    raise ValueError(
      f'{where} lacks the slot {{{missing[0]}}}; its slots are {slots}.'
    )


def prompt(
  state: State,
  count: Callable[[str], int],
  *,
  max_trace_tokens: int = MAX_TRACE_TOKENS,
  template: str = TEMPLATE,
) -> str:
  """Returns the text that an Ideator answers.

  count: number of tokens of a text.
  template: holds SLOTS, see `check_template`.

  Raises ValueError for a template with other slots.
  """
  check_template(template)
  values = {
    'query': state.query.text,
    'step_trace': trace(state, count, max_trace_tokens),
  }
  return _SLOT.sub(lambda slot: values[slot[1]], template)


def messages(text: str) -> list[dict[str, str]]:
  """Returns a prompt as the messages of a chat completion."""
  return [{'role': 'user', 'content': text}]


def trace(state: State, count: Callable[[str], int], max_tokens: int) -> str:
  """Returns the trace in at most `max_tokens` tokens: task, p_t and C_t, then steps.

  Whole steps, the newest kept, and a line that counts those left out. Where there is
  no room for task and program, they lose their middle; what is left in front of the
  steps then, headings, stays even where it needs more.

  Raises ValueError where `max_tokens` is below 1.
  """
  if max_tokens < 1:
    raise ValueError(f'max_trace_tokens={max_tokens} must be 1 or more.')
  head = _head(state, count, max_tokens)
  shown = [_step(n, step) for n, step in enumerate(state.steps, 1)]
  kept, room = 0, max_tokens - count(head)
  for text in reversed(shown):
    room -= count(text)
    if room < 0:
      break
    kept += 1
  # Joined, texts may have another number of tokens than alone.
  while kept and count(_joined(head, shown, kept)) > max_tokens:
    kept -= 1
  return _joined(head, shown, kept)


def _joined(head: str, shown: Sequence[str], kept: int) -> str:
  left_out = len(shown) - kept
  line = [left_out_line(left_out)] if left_out else []
  return '\n\n'.join([head, *line, *shown[left_out:]])


def _step(number: int, step: Exchange) -> str:
  observation = step.observation.strip('\n') or '(no output)'
  return f'STEP {number}\n{step.message.strip()}\nOBSERVATION:\n{observation}'


def _head(state: State, count: Callable[[str], int], max_tokens: int) -> str:
  """Task, score and program, cut in their middle where they need more room."""
  line = f'\n\n{left_out_line(len(state.steps))}' if state.steps else ''
  low, high = 0, max(len(state.task), len(state.code))

  def fits(chars: int) -> bool:
    return count(_head_of(state, chars) + line) <= max_tokens

  if fits(high):
    return _head_of(state, high)
  while low < high:
    middle = (low + high + 1) // 2
    low, high = (middle, high) if fits(middle) else (low, middle - 1)
  return _head_of(state, low)


def _head_of(state: State, chars: int) -> str:
  better = 'higher' if state.higher_is_better else 'lower'
  score = 'none yet' if state.score is None else f'{state.score:.6g}'
  parts = [
    f'TASK:\n{_without_middle(state.task.strip(), chars)}',
    f'PRESENT SCORE ({state.metric}, {better} is better): {score}',
  ]
  code = _without_middle(state.code.strip('\n'), chars)
  parts.append(f'PRESENT PROGRAM:\n{code or "(none yet)"}')
  return '\n\n'.join(parts)


def _without_middle(text: str, chars: int) -> str:
  if len(text) <= chars:
    return text
  half = chars // 2
  return f'{text[:half]}\n[...]\n{text[len(text) - half :]}'
