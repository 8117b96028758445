"""A script's `model = ...` line, read for prompts and for who proposes edits.

Reads with `ast`, so a script that is no Python has no such line.
"""

from __future__ import annotations

import ast
import functools

from jaxagent.files import syntax


@functools.lru_cache(maxsize=4096)
def model_line(script: str) -> str:
  """The `model = ...` statement on one line, '' where there is none."""
  try:
    for node in reversed(syntax.parse(script).body):
      if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == 'model' for t in node.targets
      ):
        line = ast.unparse(node)
        syntax.parse(line)  # not so for a keyword in full-width letters
        return line
  except syntax.PARSE_ERRORS:
    pass
  return ''


@functools.lru_cache(maxsize=4096)
def step_names(script: str) -> tuple[str, ...]:
  """Class names of the pipeline's steps, () where it cannot be read.

  Of a script without a model line, the names of its functions.
  """
  line = model_line(script)
  if not line:
    return _functions(script)
  value = syntax.parse(line).body[0].value
  if not isinstance(value, ast.Call):
    return ()
  calls = [value]
  if getattr(value.func, 'id', '') == 'make_pipeline':
    calls = [a for a in value.args if isinstance(a, ast.Call)]
  return tuple(
    getattr(c.func, 'id', getattr(c.func, 'attr', '')) for c in calls
  )


def _functions(script: str) -> tuple[str, ...]:
  try:
    body = syntax.parse(script).body
  except syntax.PARSE_ERRORS:
    return ()
  return tuple(node.name for node in body if isinstance(node, ast.FunctionDef))
