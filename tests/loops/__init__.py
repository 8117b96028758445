import os


def environment() -> dict[str, str]:
  """That of a whole job: on CPU, compiled as a user's job is."""
  return {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
