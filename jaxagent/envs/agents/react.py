"""LangChain's `zero-shot-react-description` (a baseline of paper 002).

ReAct without plan and fact check. As there, the prompt ends with `Thought:`,
so that a response starts amid its thought, and an action of one argument
takes a bare text. Here the way to end is the action `Final Answer`, as in the
benchmark; LangChain's own last line, `Final Answer: ...`, is read as that.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.envs import parser, prompts
from jaxagent.envs.agents import style

_LABEL = re.compile(r'^(Thought|Action Input|Action|Final Answer):[ \t]*', re.M)
_ORDERS = (
  ['Action', 'Action Input'],
  ['Thought', 'Action', 'Action Input'],
  ['Final Answer'],
  ['Thought', 'Final Answer'],
)


def _entries(text: str, *, strict: bool) -> dict[str, str]:
  """Returns one step's entries. Not strict: the first of each, no other."""
  text = parser.cut_observation(text)
  found = list(_LABEL.finditer(text))
  start = text[: found[0].start()] if found else text
  entries = {'Thought': start.strip()} if start.strip() else {}
  for index, match in enumerate(found):
    name = match.group(1)
    if name in entries:
      if not strict:
        continue
      raise parser.FormatError(
        f'The entry {name!r} appears twice; write one step at a time.'
      )
    end = found[index + 1].start() if index + 1 < len(found) else len(text)
    entries[name] = text[match.end() : end].strip()
  if not strict:
    entries = _one_step(entries)
  if list(entries) not in _ORDERS:
    raise parser.FormatError(
      f'The entries are {", ".join(entries) or "none"}; they must be, in this '
      f'order: {", ".join(style.THOUGHT_ENTRIES)}.'
    )
  return entries


def _one_step(entries: dict[str, str]) -> dict[str, str]:
  """Returns entries in order, without a last line that follows an action."""
  for order in (_ORDERS[1], _ORDERS[3]):
    if set(order[1:]) <= set(entries):
      return {name: entries[name] for name in order if name in entries}
  return entries


def _arguments(action: str, text: str, *, strict: bool) -> object:
  names = parser.ACTION_ARGS[action]
  if not strict:
    text = parser.unfenced(text)
  if len(names) > 1 or text.startswith('{'):
    return parser.load_json(text, strict=strict)
  # LangChain hands such a text on without the quotes around it.
  quotes = '"' if strict else '"\'`'
  quoted = len(text) > 1 and text[0] == text[-1] and text[0] in quotes
  bare = text[1:-1] if quoted else text
  if not bare:
    raise parser.FormatError("The entry 'Action Input' is empty.")
  return {names[0]: bare}


@dataclasses.dataclass(frozen=True)
class ReAct:
  """Thought (may be absent), Action, Action Input.

  mode: of parser.MODES. All but `strict` take a step with parts twice or out
    of order, and a fenced or slightly damaged input.
  """

  name: str = 'react'
  stop: tuple[str, ...] = style.STOP
  mode: str = 'strict'

  def prompt(
    self,
    state: types.State,
    task: types.TaskSpec,
    *,
    actions: Sequence[str],
    observation_chars: int,
    steps: int = 3,
  ) -> str:
    """See style.AgentStyle."""
    text = (
      'Answer the following questions as best you can. You have access to the '
      f'following tools:\n\n{prompts.tools_prompt(actions)}\n\n'
      'Use the following format:\n\n'
      'Question: the input question you must answer\n'
      'Thought: you should always think about what to do\n'
      f'Action: the action to take, should be one of [{", ".join(actions)}]\n'
      'Action Input: the input to the action as a valid JSON string\n'
      'Observation: the result of the action\n'
      '... (this Thought/Action/Action Input/Observation can repeat N times)\n'
      '\nBegin!\n\n'
      f'Question: {prompts.research_problem(state, task)}\n'
    )
    for _, past in style.past_steps(state, steps):
      said = style.response(past, style.THOUGHT_ENTRIES)
      if not _LABEL.match(said):
        said = f'Thought: {said}'.rstrip()  # it went on from the prompt's end
      seen = style.observation(past, observation_chars)
      text += f'{said}\nObservation: {seen}\n'
    return text + 'Thought:'

  def parse(self, text: str, *, actions: Sequence[str]) -> parser.Response:
    """See style.AgentStyle."""
    style.require_text(text)
    strict = self.mode == 'strict'
    entries = _entries(text, strict=strict)
    action = entries.get('Action', 'Final Answer')
    if not strict:
      action = action.strip(parser.AROUND_ACTION)
    with parser.naming(action):
      parser.check_action(action, actions)
      if 'Action' in entries:
        value = _arguments(action, entries['Action Input'], strict=strict)
      else:
        value = {'final_answer': entries['Final Answer']}
      args = parser.check_args(action, value, strict=strict)
    return parser.Response(entries, action, args)

  def write(
    self, thoughts: Mapping[str, str], action: str, args: Mapping[str, str]
  ) -> str:
    """See style.AgentStyle."""
    text = parser.format_response({}, action, args)
    return f' {thoughts["Thought"]}\n{text}' if 'Thought' in thoughts else text
