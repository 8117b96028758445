"""Response text -> entries, action, arguments (paper 000 table 6).

`strict` is the default: each entry once, in order, at the start of a line,
the action's input one JSON object with exactly the action's arguments, and
nothing after it. `compatible` forgives what the original forgives: a
missing entry before `Action`, a fenced or slightly malformed JSON.
`mlagentbench` makes of a response what the original makes of it, its guesses
at malformed inputs included (parser_parity.py): for parity only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from jaxagent import types
from jaxagent.envs import parser_parity

ENTRIES = (
  'Reflection',
  'Research Plan and Status',
  'Fact Check',
  'Thought',
  'Action',
  'Action Input',
)
ENTRIES_WITHOUT_THOUGHT = ('Action', 'Action Input')

# Action -> its arguments in order (MLAgentBench's names).
ACTION_ARGS: dict[str, tuple[str, ...]] = {
  'List Files': ('dir_path',),
  'Read File': ('file_name',),
  'Write File': ('file_name', 'content'),
  'Append File': ('file_name', 'content'),
  'Copy File': ('source', 'destination'),
  'Undo Edit Script': ('script_name',),
  'Execute Script': ('script_name',),
  'Python REPL': ('command',),
  'Final Answer': ('final_answer',),
  'Understand File': ('file_name', 'things_to_look_for'),
  'Append Summary to Research Log': ('content',),
  'Inspect Script Lines': (
    'script_name',
    'start_line_number',
    'end_line_number',
  ),
  'Edit Script (AI)': ('script_name', 'edit_instruction', 'save_name'),
  'Edit Script Segment (AI)': (
    'script_name',
    'start_line_number',
    'end_line_number',
    'edit_instruction',
    'save_name',
  ),
  'Reflection': ('things_to_reflect_on',),
  'Retrieval from Research Log': ('current_plan',),
  'Request Help': ('request',),
}
# The subset in the default prompt of paper 000 (table 4, 5).
DEFAULT_ACTIONS = (
  'List Files',
  'Copy File',
  'Execute Script',
  'Final Answer',
  'Understand File',
  'Inspect Script Lines',
  'Edit Script (AI)',
)
_NO_TEXT = re.compile('[\x00\ud800-\udfff]')
# A JSON string, closed or not, in either kind of quotes, or a sign beside one.
_PIECE = re.compile(
  r""""(?:[^"\\]+|\\.)*"?|'(?:[^'\\]+|\\.)*'?|[{}\[\],]""", re.S
)
_ESCAPE = re.compile(r'\\(.)|"', re.S)
_FENCE = re.compile(r'```(?:\w*\n|json)?')
MAX_MENDED_CHARS = 100_000  # of damaged JSON that is looked through
MODES = ('strict', 'compatible', 'mlagentbench')
AROUND_ACTION = '*[]`\'" .'  # what a forgiving mode takes from a name's ends
MAX_QUOTED_CHARS = 80  # of a name that a response made up
EDIT_ACTIONS = ('Edit Script (AI)', 'Edit Script Segment (AI)')


class ResponseError(ValueError):
  """A response that cannot be acted on.

  Attributes:
    action: the action that it names, as far as it was understood.
  """

  outcome = types.Outcome.INVALID_FORMAT
  action = ''


class FormatError(ResponseError):
  """The response is not in the required format (or its JSON is not JSON)."""

  outcome = types.Outcome.INVALID_FORMAT


class ActionError(ResponseError):
  """The format is right; the action is unknown or its arguments are wrong."""

  outcome = types.Outcome.INVALID_ACTION


class UnknownAction(ActionError):
  """The action is none, or none of those that are allowed."""


@contextlib.contextmanager
def naming(action: str) -> Iterator[None]:
  """Adds the action's name to response errors raised inside."""
  try:
    yield
  except ResponseError as error:
    error.action = action
    raise


@dataclasses.dataclass(frozen=True)
class Response:
  """One parsed response."""

  entries: Mapping[str, str]
  action: str
  args: Mapping[str, str]


def _entry_pattern(names: Sequence[str]) -> re.Pattern[str]:
  # Longest first, so that 'Action Input' is not taken for 'Action'.
  ordered = sorted(names, key=len, reverse=True)
  return re.compile(
    r'^(' + '|'.join(re.escape(n) for n in ordered) + r'):[ \t]*', re.M
  )


def is_text(value: str) -> bool:
  """Whether a file or request can hold it: no NUL and no lone surrogate."""
  return _NO_TEXT.search(value) is None


def plain(text: str) -> str:
  """The text with a question mark for what no file or request can hold."""
  return _NO_TEXT.sub('?', text)


def _quoted(name: object) -> str:
  text = repr(name)
  if len(text) <= MAX_QUOTED_CHARS:
    return text
  return f'{text[:MAX_QUOTED_CHARS]}...'


def cut_observation(text: str) -> str:
  """Drops what follows the stop sequence `Observation:` at a line's start."""
  return re.split(r'^Observation:', text, maxsplit=1, flags=re.M)[0]


def split_entries(
  text: str, required: Sequence[str] = ENTRIES, *, strict: bool = True
) -> dict[str, str]:
  """Entry name -> its text. Entries start lines; contents may not.

  Raises FormatError naming the missing, repeated or misplaced entry.
  """
  text = cut_observation(text)
  found = list(_entry_pattern(ENTRIES).finditer(text))
  entries: dict[str, str] = {}
  for index, match in enumerate(found):
    end = found[index + 1].start() if index + 1 < len(found) else len(text)
    name = match.group(1)
    if name in entries:
      if strict:
        raise FormatError(f'The entry {name!r} appears twice; write it once.')
      continue  # the first one counts
    entries[name] = text[match.end() : end].strip()
  needed = required if strict else ENTRIES_WITHOUT_THOUGHT
  missing = [n for n in needed if n not in entries]
  if missing:
    raise FormatError(
      f'The entry {missing[0]!r} is missing; the response needs, in this '
      f'order: {", ".join(needed)}.'
    )
  if strict:
    if text[: found[0].start()].strip():
      raise FormatError('There is text before the first entry.')
    order = [n for n in entries if n in required]
    if order != list(required) or set(entries) - set(required):
      raise FormatError(
        f'The entries are {", ".join(entries)}; they must be, in this order: '
        f'{", ".join(required)}.'
      )
    empty = [n for n in required if not entries[n]]
    if empty:
      raise FormatError(f'The entry {empty[0]!r} is empty.')
  return entries


def _no_duplicates(pairs):
  keys = [k for k, _ in pairs]
  if len(set(keys)) != len(keys):
    raise FormatError('The JSON holds a key twice; write each argument once.')
  return dict(pairs)


def _no_constant(name: str):
  raise ValueError(f'constant {name}')


def first_object(text: str, *, strict: bool = True) -> object:
  """The JSON value that starts at the text's first brace.

  Raises ValueError (RecursionError where it is nested too deeply) where there
  is none; a key that is there twice and a NaN are such.
  """
  decoder = json.JSONDecoder(
    strict=strict,
    object_pairs_hook=_no_duplicates,
    parse_constant=_no_constant,
  )
  # Only at the first: trying every brace would take quadratic time.
  start = text.find('{')
  if start < 0:
    raise ValueError('there is no brace')
  return decoder.raw_decode(text, start)[0]


def _escape(match: re.Match[str]) -> str:
  """An escape as JSON has it, of a string that is to stand in double quotes."""
  if match.group() == '"':
    return '\\"'
  char = match.group(1)
  if char == "'":
    return char
  return match.group() if char in '"\\/bfnrtu' else f'\\\\{char}'


def _string(text: str) -> str:
  if len(text) < 2 or text[-1] != text[0]:
    return text  # where it was to end cannot be known
  return f'"{_ESCAPE.sub(_escape, text[1:-1])}"'


def mended(text: str) -> str:
  """The text from its first brace on, its JSON with small faults put right.

  These are a comma before a closing bracket, brackets that are not closed,
  strings in single quotes, and escapes that JSON does not have. A string
  without an end is left so: what was cut off is not to be written to a file.
  """
  start = text.find('{')
  if start < 0 or len(text) > MAX_MENDED_CHARS:
    return text
  parts: list[str] = []
  closing: list[str] = []
  comma, at = None, start  # comma: place of one that nothing has followed yet
  for match in _PIECE.finditer(text, start):
    piece, between = match.group(), text[at : match.start()]
    at = match.end()
    parts.append(between)
    if piece in '}]':
      if piece != closing.pop():
        return text
      if comma is not None and not between.strip():
        parts[comma] = ''
    comma = len(parts) if piece == ',' else None
    if piece in '{[':
      closing.append('}' if piece == '{' else ']')
    parts.append(_string(piece) if piece[0] in '"\'' else piece)
    if not closing:
      return ''.join(parts)
  rest = text[at:].strip().rstrip('`')
  if comma is not None and not rest:
    parts[comma] = ''
  return ''.join((*parts, rest, *reversed(closing)))


def forgiven_object(text: str) -> object:
  """`first_object` of slightly damaged JSON, too; raises as that does."""
  try:
    return first_object(text, strict=False)
  except (ValueError, RecursionError):
    return first_object(mended(text), strict=False)


def unfenced(text: str) -> str:
  """The text without a Markdown fence around it."""
  text = text.strip()
  text = text[fence.end() :] if (fence := _FENCE.match(text)) else text
  # No pattern `\s*```$`: on a megabyte of blanks it takes hours.
  return text.removesuffix('```').strip()


def load_json(text: str, *, strict: bool = True) -> object:
  """The JSON value of an action input; raises FormatError."""
  if not strict:
    text = unfenced(text)
  try:
    return json.loads(
      text,
      strict=strict,  # not strict: raw newlines in strings are let through
      object_pairs_hook=_no_duplicates,
      parse_constant=_no_constant,
    )
  except FormatError:
    raise
  except (ValueError, RecursionError) as error:
    if not strict:
      try:
        return forgiven_object(text)
      except (ValueError, RecursionError):
        pass
    raise FormatError(
      f'The action input is not valid JSON ({error}); write one JSON object.'
    ) from error


def check_action(action: str, actions: Sequence[str]) -> None:
  """Raises UnknownAction where the action is not among those allowed."""
  if action not in actions or action not in ACTION_ARGS:
    raise UnknownAction(
      f'Unknown action {_quoted(action)}; choose one of: {", ".join(actions)}.'
    )


def check_args(
  action: str, value: object, *, strict: bool = True
) -> dict[str, str]:
  """A known action's arguments as text; raises ResponseError."""
  names = ACTION_ARGS[action]
  if not isinstance(value, dict):
    raise FormatError(
      f'The action input is a {type(value).__name__}, not a JSON object.'
    )
  missing = [n for n in names if n not in value]
  extra = [n for n in value if n not in names]
  if missing or (strict and extra):
    what = f'lacks {missing[0]!r}' if missing else f'has no {_quoted(extra[0])}'
    raise ActionError(
      f'The action {action!r} {what}; its arguments are {", ".join(names)}.'
    )
  args = {}
  for name in names:
    item = value[name]
    if isinstance(item, int) and not isinstance(item, bool):
      item = _digits(name, item)  # line numbers come as numbers, too
    if not isinstance(item, str):
      raise ActionError(
        f'The argument {name!r} of {action!r} must be a string, not '
        f'{type(item).__name__}.'
      )
    if not is_text(item):
      raise ActionError(
        f'The argument {name!r} of {action!r} holds a NUL or a lone '
        'surrogate; write plain text.'
      )
    args[name] = item
  return args


def _digits(name: str, number: int) -> str:
  try:
    return str(number)
  except ValueError:
    raise ActionError(
      f'The argument {name!r} is a number with too many digits.'
    ) from None


def _parse_as_peer(
  text: str, required: Sequence[str], actions: Sequence[str]
) -> Response:
  try:
    entries = parser_parity.entries(text, required)
    action = entries['Action']
    with naming(action):
      check_action(action, actions)
      args = check_args(action, _input_as_peer(entries['Action Input'], action))
  except parser_parity.ParityError as error:
    raise FormatError(str(error)) from error
  return Response(entries, action, args)


def _input_as_peer(text: str, action: str) -> dict[str, object]:
  try:
    return parser_parity.action_input(text, ACTION_ARGS[action])
  except parser_parity.ParityError as error:
    raise FormatError(str(error)) from error


def parse_response(
  text: str,
  *,
  mode: str = 'strict',
  required: Sequence[str] = ENTRIES,
  actions: Sequence[str] | None = None,
) -> Response:
  """Parses one response.

  Args:
    text: what the policy or an expert wrote.
    mode: one of MODES.
    required: entries asked for (ENTRIES_WITHOUT_THOUGHT for the variant of
      paper 000 table 10).
    actions: allowed action names; all of MLAgentBench's by default.

  Raises:
    FormatError: entries or JSON wrong (Outcome.INVALID_FORMAT).
    ActionError: unknown action or arguments (Outcome.INVALID_ACTION).
  """
  if mode not in MODES:
    raise ValueError(f'mode={mode!r}; choose one of {", ".join(MODES)}.')
  if not is_text(text):
    raise FormatError(
      'The response holds a NUL or a lone surrogate; write plain text.'
    )
  allowed = tuple(ACTION_ARGS) if actions is None else tuple(actions)
  if mode == 'mlagentbench':
    return _parse_as_peer(text, required, allowed)
  strict = mode == 'strict'
  entries = split_entries(text, required, strict=strict)
  action = entries['Action']
  if not strict:
    action = action.strip(AROUND_ACTION)
  with naming(action):
    value = load_json(entries['Action Input'], strict=strict)
    check_action(action, allowed)
    args = check_args(action, value, strict=strict)
  return Response(entries, action, args)


def format_response(
  entries: Mapping[str, str], action: str, args: Mapping[str, str]
) -> str:
  """The inverse of parse_response, in table 6's order."""
  lines = [
    f'{name}: {entries[name]}' for name in ENTRIES[:4] if name in entries
  ]
  lines.append(f'Action: {action}')
  lines.append(f'Action Input: {json.dumps(dict(args), ensure_ascii=False)}')
  return '\n'.join(lines)
