"""Python's own parser for text that a policy wrote, safe among threads.

Before Python 3.11.8 and 3.12.2 two threads inside `ast.parse` can break each
other: the parser counts its depth in one place for all of them, and a garbage
collection in between lets another thread in. It then raises SystemError for a
good program (python/cpython#106905). Whatever reads such text takes turns here.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

# What the parser raises for text that is no (sane) program.
PARSE_ERRORS = (
  SyntaxError,
  ValueError,
  RecursionError,
  MemoryError,
  OverflowError,
)
_turn = threading.Lock()


def parse(text: str, mode: str = 'exec') -> Any:
  """`ast.parse`. Raises one of PARSE_ERRORS."""
  with _turn:
    return ast.parse(text, mode=mode)


def literal(text: str) -> Any:
  """`ast.literal_eval`. Raises TypeError or one of PARSE_ERRORS."""
  return ast.literal_eval(parse(text.lstrip(' \t'), 'eval'))
