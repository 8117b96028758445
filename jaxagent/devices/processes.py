"""Broadcasts from process 0 of a run to the others.

Through the key-value store that `jax.distributed` keeps beside process 0: waiting for
a message keeps no device busy, where a collective would for as long as executions
take. Unpickled is only what another process of this run has written.
"""

from __future__ import annotations

import itertools
import math
import pickle
import time
from typing import Any

import jax

from jaxagent.errors import ProcessLost

_PART = 1 << 20  # bytes of a value; gRPC takes 4 MB at once
_POLL_S = 60.0
_MOST_S = 3600.0  # until all have read a message: one may still compile
_numbers = itertools.count()


def tell(message: Any, within_s: float = _MOST_S) -> None:
  """Broadcasts from process 0; returns when every other process has read it.

  Raises ProcessLost where one has not within that time.
  """
  client, key = _client(), _next()
  data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
  parts = [data[i : i + _PART] for i in range(0, len(data), _PART)]
  try:
    for number, part in enumerate(parts):
      client.key_value_set_bytes(f'{key}/{number}', part)
    client.key_value_set(f'{key}/parts', str(len(parts)))
    client.wait_at_barrier(f'{key}/read', _ms(within_s))
    client.key_value_delete(f'{key}/')
  except jax.errors.JaxRuntimeError as error:
    raise ProcessLost(f'the other processes do not answer: {error}') from error


def hear(within_s: float = math.inf) -> Any:
  """Waits for the next value given to `tell`; raises ProcessLost if none comes."""
  client, key = _client(), _next()
  try:
    count = int(_waited_for(client, f'{key}/parts', within_s))
    data = b''.join(
      client.blocking_key_value_get_bytes(f'{key}/{number}', _ms(_POLL_S))
      for number in range(count)
    )
    client.wait_at_barrier(f'{key}/read', _ms(_MOST_S))
  except jax.errors.JaxRuntimeError as error:
    raise ProcessLost(f'process 0 does not answer: {error}') from error
  return pickle.loads(data)


def publish(key: str, value: str) -> None:
  """Sets a value of process 0 that the others read with `published`."""
  try:
    _client().key_value_set(key, value)
  except jax.errors.JaxRuntimeError as error:
    raise ProcessLost(f'{key} cannot be set: {error}') from error


def published(key: str, within_s: float) -> str:
  """Waits for a value that process 0 gives to `publish`; ProcessLost if none comes."""
  try:
    return _waited_for(_client(), key, within_s)
  except jax.errors.JaxRuntimeError as error:
    raise ProcessLost(f'process 0 does not answer: {error}') from error


def coordinator_address() -> str:
  """Returns host and port at which processes ask for process 0; '' of one alone."""
  from jax._src import distributed

  return distributed.global_state.coordinator_address or ''


def coordinator_host() -> str:
  """Returns the name or address by which processes reach the host of process 0."""
  return coordinator_address().rpartition(':')[0].strip('[]')


def _waited_for(client, key: str, within_s: float) -> str:
  end = time.monotonic() + within_s
  while True:
    try:
      wait_s = max(0.0, min(_POLL_S, end - time.monotonic()))
      return client.blocking_key_value_get(key, _ms(wait_s))
    except jax.errors.JaxRuntimeError as error:
      if 'DEADLINE_EXCEEDED' not in str(error) or time.monotonic() > end:
        raise


def _ms(seconds: float) -> int:
  return max(1, int(1000 * seconds))


def _next() -> str:
  return f'jaxagent/{next(_numbers)}'


def _client():
  # Public jax has collectives alone for this; Orbax takes the same way.
  from jax._src import distributed

  client = distributed.global_state.client
  if client is None:
    raise ProcessLost('jax.distributed is not initialized.')
  return client
