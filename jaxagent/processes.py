"""What the first process of a run tells the others.

Through the key-value store that `jax.distributed` keeps beside process 0: waiting for
a message keeps no device busy, where a collective would for as long as executions
take. Unpickled is only what another process of this run has written.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import jax

_PART = 1 << 20  # bytes of a value; gRPC takes 4 MB at once
_POLL_MS = 60_000
_MOST_MS = 3_600_000  # until all have read a message: the last one may compile
_numbers = itertools.count()


class Lost(RuntimeError):
  """The other processes cannot be reached any more."""


def tell(message: Any) -> None:
  """Process 0's: returns when every other process has read it. Raises Lost."""
  client, key = _client(), _next()
  data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
  parts = [data[i : i + _PART] for i in range(0, len(data), _PART)]
  try:
    for number, part in enumerate(parts):
      client.key_value_set_bytes(f'{key}/{number}', part)
    client.key_value_set(f'{key}/parts', str(len(parts)))
    client.wait_at_barrier(f'{key}/read', _MOST_MS)
    client.key_value_delete(f'{key}/')
  except jax.errors.JaxRuntimeError as error:
    raise Lost(f'the other processes do not answer: {error}') from error


def hear() -> Any:
  """What `tell` was given next; waits for it. Raises Lost."""
  client, key = _client(), _next()
  try:
    count = int(_waited_for(client, f'{key}/parts'))
    data = b''.join(
      client.blocking_key_value_get_bytes(f'{key}/{number}', _POLL_MS)
      for number in range(count)
    )
    client.wait_at_barrier(f'{key}/read', _MOST_MS)
  except jax.errors.JaxRuntimeError as error:
    raise Lost(f'process 0 does not answer: {error}') from error
  return pickle.loads(data)


def _waited_for(client, key: str) -> str:
  while True:
    try:
      return client.blocking_key_value_get(key, _POLL_MS)
    except jax.errors.JaxRuntimeError as error:
      if 'DEADLINE_EXCEEDED' not in str(error):
        raise


def _next() -> str:
  return f'jaxagent/{next(_numbers)}'


def _client():
  # Public jax has collectives alone for this; Orbax takes the same way.
  from jax._src import distributed

  client = distributed.global_state.client
  if client is None:
    raise Lost('jax.distributed is not initialized.')
  return client
