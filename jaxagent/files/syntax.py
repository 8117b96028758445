"""Python's own parser for text that a policy wrote, safe among threads.

Before Python 3.11.8 and 3.12.2 two threads inside `ast.parse` can break each
other: the parser counts its depth in one place for all of them, and a garbage
collection in between lets another thread in. It then raises SystemError for a
good program (python/cpython#106905). Whatever reads such text takes turns here.
"""

from __future__ import annotations

import ast
import threading
import warnings
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
_ATTEMPTS = 5  # where a library parses in another thread, without a turn


def parse(text: str | bytes, mode: str = 'exec') -> Any:
  """`ast.parse` without its warnings. Raises one of PARSE_ERRORS."""
  with _turn, warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for left in reversed(range(_ATTEMPTS)):
      try:
        return ast.parse(text, mode=mode)
      except SystemError:
        if not left:
          raise


def literal(text: str) -> Any:
  """`ast.literal_eval`. Raises TypeError or one of PARSE_ERRORS."""
  return ast.literal_eval(parse(text.lstrip(' \t'), 'eval'))
