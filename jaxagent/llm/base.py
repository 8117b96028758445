"""A text model, whatever serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class TextModel(Protocol):
  """Chat in, text out."""

  name: str
  is_stand_in: bool

  def complete(
    self,
    messages: Sequence[dict[str, str]],
    *,
    max_tokens: int = 1024,
    temperature: float = 0.0,
    stop: Sequence[str] = (),
    seed: int | None = None,
  ) -> str:
    """The answer's text; raises interfaces.TextModelError when none came."""
    ...
