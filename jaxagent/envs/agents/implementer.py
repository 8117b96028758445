"""The Implementer of paper 001: a CodeAct agent in chat that may ask for help.

Section 3.1 gives it two actions of CodeAct, `<execute_ipython>` and `<execute_bash>`,
and `<seek_help>` with a query of three items; `<finish>`, as CodeAct has it, ends the
run. The paper prints no system prompt: `system` is one in other words.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from jaxagent.envs import parser
from jaxagent.envs.agents import items
from jaxagent.files import syntax

IPYTHON, BASH, SEEK_HELP, FINISH, INVALID = (
  'ipython',
  'bash',
  'seek_help',
  'finish',
  'invalid',
)
KINDS = (IPYTHON, BASH, SEEK_HELP, FINISH, INVALID)
TAGS: Mapping[str, str] = {
  IPYTHON: 'execute_ipython',
  BASH: 'execute_bash',
  SEEK_HELP: 'seek_help',
  FINISH: 'finish',
}
QUERY_ITEMS = ('PROBLEM_STATEMENT', 'ATTEMPTS_SO_FAR', 'GOAL')
MOST_CHARACTERS = 200_000  # of a message without its thoughts

_KIND_OF = {tag: kind for kind, tag in TAGS.items()}
_TAG = r'<(?P<shut>/?)(?P<tag>execute\w*|seek_help|finish)>'
# What may hold a tag without being an action: a fence's line, code within a line.
_MARK = re.compile(
  rf'^[ \t]*+(?P<fence>```|~~~)[^\n]*$|(?P<inline>`[^`\n]{{1,400}}`)|{_TAG}',
  re.M,
)
_SHUT_FENCE = {
  mark: re.compile(rf'^[ \t]*+{mark}{mark[0]}*+[ \t]*+$', re.M)
  for mark in ('```', '~~~')
}
_FENCED = re.compile(r'\s*```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)```\s*\Z', re.S)
_ANY_TAG = re.compile(r'<([A-Za-z]\w{0,40})>')
_HELP_LINE = re.compile(r'^[ \t]*+</?seek_help>', re.M)


@dataclasses.dataclass(frozen=True)
class Query:
  """The three items of a `<seek_help>` (section 3.1)."""

  problem_statement: str
  attempts_so_far: str
  goal: str

  @property
  def text(self) -> str:
    """The three items, as an Ideator is shown them."""
    values = (self.problem_statement, self.attempts_so_far, self.goal)
    return items.write_items(list(zip(QUERY_ITEMS, values)))


@dataclasses.dataclass(frozen=True)
class Turn:
  """One message of the Implementer, read.

  kind: of KINDS.
  code: of 'ipython' and 'bash'; of 'finish' what stands between its tags.
  query: of 'seek_help'.
  error: of 'invalid', a sentence for the model: what is wrong, and the format.
  """

  kind: str
  code: str = ''
  query: Query | None = None
  error: str = ''

  @property
  def is_action(self) -> bool:
    """Whether there is something to carry out."""
    return self.kind != INVALID


@dataclasses.dataclass(frozen=True)
class Exchange:
  """One step of a run: a message of the Implementer and what came of it."""

  message: str
  observation: str


@dataclasses.dataclass(frozen=True)
class Briefing:
  """Task, files and limits of a run, as its first messages say them.

  files: what lies in its folder.
  packages: what its programs may import.
  max_steps, time_limit_s: messages and seconds of the whole run, those of models
    included.
  submission: name of the file that is graded.
  """

  task: str
  files: Sequence[str] = ()
  packages: Sequence[str] = ()
  max_steps: int = 50
  time_limit_s: float = 3600.0
  submission: str = 'submission.csv'


# Reading -----------------------------------------------------------------------


def parse_turn(text: str, *, seek_help: bool = True) -> Turn:
  """Reads a message; never raises, and takes time linear in its length.

  Exactly one action makes a turn, with any words around it. A tag within an action's
  code, within a Markdown fence or between backticks is code. A closed `<think>` block
  in front is taken off.

  seek_help: whether that action is on offer.
  """
  if not isinstance(text, str):
    return _invalid('Your message is no text.', seek_help=seek_help)
  _, text, is_open = items.take_off_thoughts(text)
  if is_open:
    return _invalid('Your <think> block is not closed.', seek_help=seek_help)
  if len(text) > MOST_CHARACTERS:
    return _invalid(
      f'Your message has {len(text)} characters; the most is {MOST_CHARACTERS}.',
      seek_help=seek_help,
    )
  if not parser.is_text(text):
    return _invalid(
      'Your message holds a NUL or a lone surrogate.', seek_help=seek_help
    )
  found = _actions(text)
  if isinstance(found, str):
    return _invalid(found, seek_help=seek_help)
  if not found:
    return _invalid(_why_none(text), seek_help=seek_help)
  if len(found) > 1:
    return _invalid('Your message holds two actions.', seek_help=seek_help)
  (turn,) = (_turn(kind, inner, seek_help) for kind, inner in found)
  return turn


def _actions(text: str) -> list[tuple[str, str]] | str:
  """(kind, what its tags hold) of the first two actions; or what is wrong."""
  ends = _Ends(text)
  unshut: set[str] = set()  # of fences that nothing closes
  found: list[tuple[str, str]] = []
  at = 0
  while len(found) < 2 and (mark := _MARK.search(text, at)):
    at = mark.end()
    if mark['inline']:
      continue
    if fence := mark['fence']:
      shut = None
      if fence not in unshut:
        shut = _SHUT_FENCE[fence].search(text, at)
      if shut is None:
        unshut.add(fence)
      else:
        at = shut.end()
      continue
    tag = mark['tag']
    if tag not in _KIND_OF:
      return f'<{tag[:40]}> is not a known tag.'
    if mark['shut']:
      return f'</{tag}> closes nothing.'
    end = ends.of(tag, mark.end())
    if end is None:
      return f'<{tag}> is not closed by </{tag}>.'
    found.append((_KIND_OF[tag], text[mark.end() : end]))
    at = end + len(tag) + 3
  return found


class _Ends:
  """Places where the blocks of tags end.

  Code may hold its own tag: a block ends at the first closing tag which no other
  closing tag follows before the tag opens again.
  """

  def __init__(self, text: str):
    self._text = text
    self._marks: dict[str, list[tuple[int, bool]]] = {}

  def of(self, tag: str, begin: int) -> int | None:
    """Offset of the closing tag; None where there is none."""
    if tag not in self._marks:
      self._marks[tag] = [
        (m.start(), bool(m[1])) for m in re.finditer(f'<(/?){tag}>', self._text)
      ]
    marks = self._marks[tag]
    for n in range(bisect.bisect_left(marks, (begin, False)), len(marks)):
      place, shuts = marks[n]
      if shuts and not (n + 1 < len(marks) and marks[n + 1][1]):
        return place
    return None


def _turn(kind: str, inner: str, seek_help: bool) -> Turn:
  if kind == FINISH:
    return Turn(FINISH, code=inner.strip())
  if kind == SEEK_HELP:
    return _help(inner, seek_help)
  fenced = _FENCED.match(inner)
  code = (fenced[1] if fenced else inner).strip('\r\n').rstrip()
  if not code.strip():
    return _invalid(f'Your <{TAGS[kind]}> is empty.', seek_help=seek_help)
  if _HELP_LINE.search(code) and not _may_be_code(kind, code):
    return _invalid(
      f'Your <seek_help> stands within <{TAGS[kind]}>.', seek_help=seek_help
    )
  return Turn(kind, code=code)


def _help(inner: str, seek_help: bool) -> Turn:
  if not seek_help:
    return _invalid('<seek_help> is not a known tag.', seek_help=seek_help)
  read = items.split_items(inner, QUERY_ITEMS)
  if isinstance(read, str):
    return _invalid(f'In your <seek_help> {read}.', seek_help=seek_help)
  return Turn(SEEK_HELP, query=Query(*(read[name] for name in QUERY_ITEMS)))


def _may_be_code(kind: str, code: str) -> bool:
  """Whether a line that begins with `<seek_help>` may be a part of a program."""
  if kind == BASH:
    return '<<' in code  # a here document
  try:
    syntax.parse(code)
  except syntax.PARSE_ERRORS:
    return False
  return True


def _why_none(text: str) -> str:
  if tag := next((t for t in _MARK.finditer(text) if t['tag']), None):
    return f'Your <{tag["tag"][:40]}> stands in a code fence.'
  if tag := _ANY_TAG.search(text):
    return f'Your message holds no action; <{tag[1]}> is not a known tag.'
  return 'Your message holds no action.'


def _invalid(why: str, *, seek_help: bool) -> Turn:
  return Turn(INVALID, error=f'{why} {format_sentence(seek_help=seek_help)}')


def format_sentence(*, seek_help: bool = True) -> str:
  """Returns the sentence that says the format of a message."""
  tags = [f'<{TAGS[IPYTHON]}>CODE</{TAGS[IPYTHON]}>']
  tags.append(f'<{TAGS[BASH]}>COMMANDS</{TAGS[BASH]}>')
  if seek_help:
    names = ', '.join(f'{name}:' for name in QUERY_ITEMS)
    tags.append(f'<seek_help> with {names} each on a line </seek_help>')
  return (
    'Nothing was done. Write exactly one action, outside of any code fence: '
    f'{", ".join(tags)} or <finish></finish>.'
  )


# Writing -----------------------------------------------------------------------


def write_turn(turn: Turn, words: str = '') -> str:
  """Writes a message that `parse_turn` reads as that turn.

  words: what stands in front of the action.

  Raises ValueError where it would be read as another one.
  """
  if turn.kind not in TAGS:
    raise ValueError(
      f'kind={turn.kind!r} cannot be written; choose one of {", ".join(TAGS)}.'
    )
  inner = f'\n{turn.query.text}\n' if turn.query else turn.code
  if turn.kind in (IPYTHON, BASH):
    inner = f'\n{turn.code}\n'
  tag = TAGS[turn.kind]
  before = f'{words.strip()}\n' if words.strip() else ''
  text = f'{before}<{tag}>{inner}</{tag}>'
  if (read := parse_turn(text)) != turn:
    raise ValueError(f'{turn!r:.200} is read as {read!r:.200}.')
  return text


# Asking ------------------------------------------------------------------------

_SYSTEM = """\
You are a machine-learning engineer at work in a sandbox. You are given a task, its \
data and a scorer that you cannot see. You write and run code until the predictions \
in `{submission}` score as well as you can make them.

Each of your messages holds exactly one action. Say in a sentence or two what you \
intend, then write the action, outside of any code fence:

<{ipython}>
Python code
</{ipython}>
runs a cell of Python. Every run starts afresh: nothing but files is kept.

<{bash}>
commands
</{bash}>
runs commands in the task's folder.
{help}
<{finish}></{finish}>
ends the run. Whatever time or steps are left are lost.

You are answered with what the action printed. Rules:
- The last valid `{submission}` counts, so make an early one, then improve on it.
- Score every attempt on rows that it was not fitted on, and print that score.
- Change one thing at a time, and keep what helps. A worse attempt is to be undone.
- You have {max_steps} messages and {minutes:g} minutes in all; time that you spend \
thinking counts.
- There is no network.{packages}
"""
_HELP = """
<seek_help>
PROBLEM_STATEMENT:
one sentence: what stands in your way now
ATTEMPTS_SO_FAR:
a short list: what you have tried, with its scores
GOAL:
one sentence: what this step is to achieve
</seek_help>
asks an adviser, who sees all that you have done and answers with one idea. Ask when \
your score has stopped rising, or where you see that more is possible and not how; \
then carry the idea out with your next action.
"""


def system(briefing: Briefing, *, seek_help: bool = True) -> str:
  """Returns the system prompt; without `seek_help` it does not speak of advice."""
  packages = ', '.join(briefing.packages)
  return _SYSTEM.format(
    submission=briefing.submission,
    ipython=TAGS[IPYTHON],
    bash=TAGS[BASH],
    finish=TAGS[FINISH],
    help=_HELP if seek_help else '',
    max_steps=briefing.max_steps,
    minutes=briefing.time_limit_s / 60,
    packages=f' Installed: {packages}.' if packages else '',
  )


def task_message(briefing: Briefing) -> str:
  """Returns the first message of the user: the task and its files."""
  files = '\n'.join(f'- {name}' for name in briefing.files)
  shown = f'\n\nFiles in your folder:\n{files}' if files else ''
  return f'{briefing.task.strip()}{shown}'


def chat(
  briefing: Briefing,
  steps: Sequence[Exchange],
  *,
  seek_help: bool = True,
  fits: Callable[[Sequence[dict[str, str]]], bool] = lambda messages: True,
) -> list[dict[str, str]]:
  """Returns the messages of a chat completion: system, task, then the steps.

  The oldest steps are left out until the rest fits, whole ones alone; the task's
  message counts them.

  fits: whether there is room for messages; without any step they are returned even
    where there is none.
  """

  def messages(kept: int) -> list[dict[str, str]]:
    left_out = len(steps) - kept
    first = task_message(briefing)
    if left_out:
      first += f'\n\n{left_out_line(left_out)}'
    found = [
      _message('system', system(briefing, seek_help=seek_help)),
      _message('user', first),
    ]
    for step in steps[left_out:]:
      found.append(_message('assistant', step.message))
      found.append(_message('user', step.observation or '(no output)'))
    return found

  low, high = 0, len(steps)
  if fits(everything := messages(high)):
    return everything
  while low < high:  # the most that fits; more steps never need less room
    middle = (low + high) // 2
    low, high = (middle + 1, high) if fits(messages(middle)) else (low, middle)
  return messages(max(0, low - 1))


def left_out_line(count: int) -> str:
  """Returns the line that stands for steps that there was no room for."""
  steps = 'step is' if count == 1 else 'steps are'
  return f'[The first {count} {steps} left out here.]'


def idea_message(idea: str) -> str:
  """Returns the observation of a `<seek_help>`: the adviser's words.

  idea: without the adviser's thoughts.
  """
  return f'The adviser answers:\n\n{idea.strip()}'


def _message(role: str, content: str) -> dict[str, str]:
  return {'role': role, 'content': content}
