"""The JSON of a request: what a role adds to it, and how much room it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Limits of an answer, by the servers that read them.
ROOM = ('max_tokens', 'max_completion_tokens', 'max_output_tokens')
# What a client says itself, or could not read the answer to.
RESERVED = ('messages', 'input', 'model', 'stream')


def check_extra(extra: Any) -> None:
  """Raises ValueError, without a full stop, unless it can be merged into a request."""
  if not isinstance(extra, Mapping):
    raise ValueError(f'{extra!r} is no dictionary of names and JSON values')
  for name in extra:
    if not isinstance(name, str) or not name:
      raise ValueError(f'its key {name!r} must be a text')
    if name in RESERVED:
      raise ValueError(
        f'its key {name!r} is set by the client itself; leave it out'
      )
  try:
    json.dumps(dict(extra), allow_nan=False)
  except (TypeError, ValueError, RecursionError) as error:
    raise ValueError(f'it is no JSON ({error})') from None


def merged(
  body: Mapping[str, Any], extra: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns (the body with `extra`, what of the body it takes out).

  A key whose value is None is taken out.
  """
  whole = {**body, **extra}
  sent = {
    name: value
    for name, value in whole.items()
    if name not in extra or value is not None
  }
  return sent, {k: v for k, v in body.items() if k not in sent}


def room(body: Mapping[str, Any]) -> int | None:
  """Returns the limit of the answer, in tokens; None where there is none."""
  limits = [body[name] for name in ROOM if type(body.get(name)) is int]
  return min(limits, default=None)


def grown(body: Mapping[str, Any], times: int) -> dict[str, Any]:
  """Returns the body with `times` the room for its answer."""
  return {
    name: value * times if name in ROOM and type(value) is int else value
    for name, value in body.items()
  }
