"""Interactions: any number of completions and executions in turn.

An interaction is a pure reducer over plain data, without clock, threads, RNG
or jax: `start(payload)` gives its first calls, `advance(state, call, result)`
the next ones, until it gives credits. What drives it (`RolloutState`, under a
scheduler or in a plain loop) decides when and where a call is carried out.
A state is a value: it is forked by being used twice, and restored by folding
the results that are known through the reducer again.
"""

from jaxagent.interactions.calls import (
  POLICY,
  Call,
  Credit,
  Execute,
  Generate,
  Interaction,
  InteractionError,
  Transition,
)
from jaxagent.interactions.rollout_state import MAX_CALLS, RolloutState
from jaxagent.interactions.rows import rows

__all__ = [
  'MAX_CALLS',
  'POLICY',
  'Call',
  'Credit',
  'Execute',
  'Generate',
  'Interaction',
  'InteractionError',
  'RolloutState',
  'Transition',
  'rows',
]

# Former name -> the name now; for one version, with a message.
_RENAMED = {'Step': 'Transition', 'Progress': 'RolloutState'}


def __getattr__(name: str) -> object:
  """Returns a class by its former name, and warns that it has another."""
  if name not in _RENAMED:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  import warnings

  warnings.warn(
    f'jaxagent.interactions.{name} is now {_RENAMED[name]}; the former name goes with '
    'the next version.',
    FutureWarning,
    stacklevel=2,
  )
  return globals()[_RENAMED[name]]
