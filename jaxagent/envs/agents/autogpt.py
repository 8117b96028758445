"""Auto-GPT's prompt and response (a baseline of paper 002).

Goals, constraints, commands, and a response that is one JSON object. The
commands are the benchmark's actions; the rest of Auto-GPT (its long-term
memory, search, agents that it starts) has no place in an episode.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.envs import parser, prompts
from jaxagent.envs.agents import style

THOUGHTS = ('text', 'reasoning', 'plan', 'criticism', 'speak')
# What of a research agent's response says the same.
_ENTRIES = {
  'text': 'Thought',
  'reasoning': 'Reflection',
  'plan': 'Research Plan and Status',
  'criticism': 'Fact Check',
  'speak': 'Thought',
}
_FORMAT = json.dumps(
  {
    'thoughts': {
      'text': 'thought',
      'reasoning': 'reasoning',
      'plan': '- short bulleted\n- list that conveys\n- long-term plan',
      'criticism': 'constructive self-criticism',
      'speak': 'thoughts summary to say to user',
    },
    'command': {'name': 'command name', 'args': {'arg name': 'value'}},
  },
  indent=4,
)


def _commands(actions: Sequence[str]) -> str:
  prompts.tools_prompt(actions)  # its error for an unknown action
  lines = []
  for number, name in enumerate(actions, 1):
    purpose, args, _ = prompts.TOOLS[name]
    hints = ', '.join(f'"{k}": "<{v}>"' for k, v in args.items())
    lines.append(f'{number}. {name}: {purpose} Args: {hints}')
  return '\n'.join(lines)


def _object(value: object, where: str, keys: Sequence[str]) -> dict:
  if not isinstance(value, dict):
    raise parser.FormatError(
      f'{where} is a {type(value).__name__}, not a JSON object.'
    )
  if set(value) != set(keys):
    raise parser.FormatError(
      f'{where} must hold just the keys {", ".join(keys)}.'
    )
  return value


def _strings(value: object, where: str, keys: Sequence[str]) -> dict[str, str]:
  value = _object(value, where, keys)
  for key in keys:
    if not isinstance(value[key], str) or not parser.is_text(value[key]):
      raise parser.FormatError(f'{where}: {key!r} must be a plain string.')
  return {key: value[key] for key in keys}


def _strict_parts(value: object) -> tuple[dict[str, str], object, object]:
  """(thoughts, the command's name, its arguments) of a response as asked for."""
  value = _object(value, 'The response', ('thoughts', 'command'))
  thoughts = _strings(value['thoughts'], "'thoughts'", THOUGHTS)
  command = _object(value['command'], "'command'", ('name', 'args'))
  return thoughts, command['name'], command['args']


def _forgiven_parts(value: object) -> tuple[dict[str, str], object, object]:
  """Returns `_strict_parts` of a response; only the command is required."""
  if not isinstance(value, dict):
    value = {}
  command = value.get('command')
  if not isinstance(command, dict) or 'name' not in command:
    raise parser.FormatError(
      "The response must hold a 'command' with its 'name' and 'args'."
    )
  given = value.get('thoughts')
  if not isinstance(given, dict):
    given = {'text': given}
  thoughts = {
    key: _as_text(given[key]) for key in THOUGHTS if given.get(key) is not None
  }
  _strings(thoughts, "'thoughts'", tuple(thoughts))
  return thoughts, command['name'], command.get('args') or {}


def _as_text(value: object) -> str:
  """A thought that may be a list: a line for each of it, as a plan has them."""
  if isinstance(value, list):
    lines = map(_one_text, value)
    return '\n'.join(v if v.startswith('-') else f'- {v}' for v in lines)
  return _one_text(value)


def _one_text(value: object) -> str:
  if isinstance(value, str):
    return value
  return json.dumps(value, ensure_ascii=False)


@dataclasses.dataclass(frozen=True)
class AutoGPT:
  """One JSON object with thoughts and a command.

  No stop text: the object's end is the response's end.

  mode: of parser.MODES. All but `strict` take slightly damaged JSON, thoughts
    that are no texts or are not there, and parts that were not asked for.
  """

  name: str = 'autogpt'
  stop: tuple[str, ...] = ()
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
    better = 'higher' if task.higher_is_better else 'lower'
    parts = [
      'You are a research assistant, an AI that does machine learning '
      'research. Your decisions must always be made independently, without '
      'seeking user assistance.',
      f'GOALS:\n\n1. {prompts.research_problem(state, task)}\n'
      f'2. Improve {task.metric} ({better} is better) as far as you can.\n'
      f'3. Leave the predictions in {task.submission}.',
      'Constraints:\n'
      f'1. Your memory holds the last {steps} steps: keep in your plan what '
      'you still need.\n'
      '2. No user assistance.\n'
      '3. Exclusively use the commands listed below.\n'
      '4. Do not try installing any new packages or libraries.',
      f'Commands:\n{_commands(actions)}',
      'Performance Evaluation:\n'
      '1. Continuously review and analyze your actions.\n'
      '2. Reflect on past decisions and strategies to refine your approach.\n'
      '3. Every command has a cost: aim to complete the goals in the least '
      'number of steps.',
      'You should only respond in JSON format as described below\n'
      f'Response Format:\n{_FORMAT}\n'
      'Ensure the response can be parsed by Python json.loads',
    ]
    for number, past in style.past_steps(state, steps):
      said = past.response.strip() or past.action
      seen = style.observation(past, observation_chars)
      parts.append(
        f'Step {number}:\n{said}\n\n'
        f'Command {past.action or "(none)"} returned: {seen}'
      )
    parts.append(
      'Determine which next command to use, and respond using the format '
      'specified above:\n'
    )
    return '\n\n'.join(parts)

  def parse(self, text: str, *, actions: Sequence[str]) -> parser.Response:
    """See style.AgentStyle; what stands around the first object is ignored."""
    style.require_text(text)
    strict = self.mode == 'strict'
    read = parser.first_object if strict else parser.forgiven_object
    parts = _strict_parts if strict else _forgiven_parts
    try:
      thoughts, name, args = parts(read(text))
    except parser.FormatError:
      raise
    except (ValueError, RecursionError) as error:
      raise parser.FormatError(
        f'The response holds no valid JSON object ({error}).'
      ) from error
    if not isinstance(name, str):
      raise parser.FormatError("'command': 'name' must be a string.")
    if not strict:
      name = name.strip(parser.AROUND_ACTION)
    with parser.naming(name):
      parser.check_action(name, actions)
      args = parser.check_args(name, args, strict=strict)
    return parser.Response(thoughts, name, args)

  def write(
    self, thoughts: Mapping[str, str], action: str, args: Mapping[str, str]
  ) -> str:
    """See style.AgentStyle."""
    said = {name: thoughts.get(entry, '') for name, entry in _ENTRIES.items()}
    command = {'name': action, 'args': dict(args)}
    return json.dumps({'thoughts': said, 'command': command})
