"""Any record of a class, by the types of its fields."""

from __future__ import annotations

import dataclasses
import typing

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from jaxagent.types import Outcome, Record

# A busy machine must not fail a property.
patient = settings(
  deadline=None,
  max_examples=60,
  suppress_health_check=[
    HealthCheck.too_slow,
    HealthCheck.function_scoped_fixture,
  ],
)
# As a policy may write: surrogates, controls, anything.
texts = st.text(st.characters(codec=None), max_size=30)
numbers = st.floats(allow_nan=False) | st.integers(-(10**300), 10**300)
values = st.recursive(
  st.none() | st.booleans() | numbers | texts,
  lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
  ),
  max_leaves=8,
)
_BY_TYPE = {
  str: texts,
  bool: st.booleans(),
  int: st.integers(-(2**70), 2**70),
  float: numbers,
  Outcome: st.sampled_from(Outcome),
  typing.Any: values,
}


def records(cls: type[Record]) -> st.SearchStrategy[Record]:
  """Records of a class with any values."""
  hints = typing.get_type_hints(cls)
  fields = {f.name: _of(hints[f.name]) for f in dataclasses.fields(cls)}
  return st.builds(cls, **fields)


def _of(hint: typing.Any) -> st.SearchStrategy:
  if hint in _BY_TYPE:
    return _BY_TYPE[hint]
  inner = typing.get_args(hint)
  if type(None) in inner:
    return st.none() | _of(inner[0])
  if typing.get_origin(hint) is tuple:
    return st.lists(_of(inner[0]), max_size=3).map(tuple)
  return st.dictionaries(texts, _of(inner[1]), max_size=3)
