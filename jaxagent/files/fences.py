"""Fenced code blocks in the Markdown that language models write.

CommonMark's rules (section 4.5: a fence of backticks or tildes, closed by one that is
at least as long), and what models write beside them: any indentation, line ends of
Windows, words behind the language.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable

MOST_TRIED = (
  16  # closing fences of one block, where code holds fences of its own
)
MOST_FENCES = 1000  # that are looked at, of one text
# Of `python title="a"`, `python:a.py`, `{.python}` the word that names it.
_LANGUAGE = re.compile(r'[\s{.]*([\w+#-]+)')
_FENCE = re.compile(r'^([ \t]*)(`{3,}|~{3,})([^\n]*)$', re.M)


@dataclasses.dataclass(frozen=True)
class Block:
  """One block.

  start, end: offsets of its opening fence and behind its closing one.
  language: first word behind the opening fence, in small letters; '' without.
  code: between the fences, with '\n' at each line's end, without the indentation
    of the opening fence.
  """

  start: int
  end: int
  language: str
  code: str


def blocks(
  text: str, is_whole: Callable[[str], bool] = lambda code: True
) -> list[Block]:
  """Returns the closed blocks of a text, in order.

  is_whole: whether code can stand alone. A block ends at the first fence that makes
    it so, for code may hold fences in a string; where none does, at the first one.
  """
  fences = list(itertools.islice(_FENCE.finditer(text), MOST_FENCES))
  found, at = [], 0
  while at < len(fences):
    ends = [] if _is_inline(fences[at]) else _closing(fences, at)[:MOST_TRIED]
    made = [_block(text, fences[at], fences[end]) for end in ends]
    if not made:
      at += 1
      continue
    whole = [n for n, block in enumerate(made) if is_whole(block.code)]
    chosen = whole[0] if whole else 0
    found.append(made[chosen])
    at = ends[chosen] + 1
  return found


def plain(text: str) -> str:
  """Returns a text with its one block between plain fences, at the lines' beginning.

  Line ends are '\n'. A text with no block or several, or whose code holds a fence of
  its own, comes back as it is.
  """
  found = blocks(text)
  if len(found) != 1 or _FENCE.search(found[0].code):
    return text
  (block,) = found
  before, after = text[: block.start], text[block.end :]
  code = block.code if block.code.endswith('\n') else block.code + '\n'
  whole = f'{before}```{block.language}\n{code}```{after}'
  return whole.replace('\r\n', '\n')


def spans(text: str, start: int = 0) -> tuple[list[tuple[int, int]], bool]:
  """Returns (offsets of what is code in text[start:], is the last block open).

  A block in which another one with a language begins was never closed: only its
  fence counts. One that nothing closes reaches to the end of the text.
  """
  fences = list(_FENCE.finditer(text, start))
  found, at = [], 0
  while at < len(fences):
    opened = fences[at]
    if _is_inline(opened):
      at += 1
      continue
    for end in range(at + 1, len(fences)):
      if _closes(opened, fences[end]):
        found.append((opened.start(), fences[end].end()))
        at = end + 1
        break
      if _opens_another(opened, fences[end]):
        at = end
        break
    else:
      return [*found, (opened.start(), len(text))], True
  return found, False


def _closing(fences: list[re.Match], at: int) -> list[int]:
  """Numbers of the fences that could close the one at `at`."""
  return [
    n for n in range(at + 1, len(fences)) if _closes(fences[at], fences[n])
  ]


def _closes(opened: re.Match, fence: re.Match) -> bool:
  mark, found = opened[2], fence[2]
  bare = not fence[3].strip()
  return bare and found[0] == mark[0] and len(found) >= len(mark)


def _opens_another(opened: re.Match, fence: re.Match) -> bool:
  mark, found = opened[2], fence[2]
  named = fence[3].strip() and not _is_inline(fence)
  return bool(named and found[0] == mark[0] and len(found) == len(mark))


def _is_inline(fence: re.Match) -> bool:
  """Whether it is code within a line, such as ```x```."""
  return fence[2][0] == '`' and '`' in fence[3]


def _block(text: str, opened: re.Match, closed: re.Match) -> Block:
  code = text[opened.end() + 1 : closed.start()].replace('\r\n', '\n')
  indent = opened[1]
  if indent:
    lines = (
      line.removeprefix(indent) for line in code.splitlines(keepends=True)
    )
    code = ''.join(lines)
  word = _LANGUAGE.match(opened[3])
  language = word[1].lower() if word else ''
  return Block(opened.start(), closed.end(), language, code)
