"""What of a parametrized test the fast subset takes."""

from collections.abc import Iterable
from typing import Any

import pytest


def fast(values: Iterable[Any], *, first: int) -> list[Any]:
  """Returns parameters of which those after the `first` are marked slow.

  A tuple has the values of several arguments.
  """
  out = []
  for index, value in enumerate(values):
    several = value if isinstance(value, tuple) else (value,)
    marks = () if index < first else (pytest.mark.slow,)
    out.append(pytest.param(*several, marks=marks))
  return out
