"""Options of a client, apart from the client: importing them is quick."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ClientOptions:
  """How a client sends its requests.

  timeout_s: of one attempt, from its start to the answer's last byte.
  s_per_token: seconds that an attempt has for each token of its room, where
    that is more than timeout_s.
  max_retries: further attempts after 429, 5xx, time-outs, lost connections.
  max_concurrency: requests in flight at the same time.
  api_key_env: environment variable with the key; unset or empty: no
    Authorization header, as local servers want it.
  price_per_1k_prompt, price_per_1k_completion: for the cost.
  backoff_s: wait before the first repetition, doubled for each further one up
    to `max_backoff_s`; a server's Retry-After counts instead.

  Raises ValueError for a number out of its range.
  """

  timeout_s: float = 120.0
  s_per_token: float = 0.0
  max_retries: int = 4
  max_concurrency: int = 8
  api_key_env: str = 'OPENAI_API_KEY'
  price_per_1k_prompt: float = 0.0
  price_per_1k_completion: float = 0.0
  backoff_s: float = 0.5
  max_backoff_s: float = 30.0

  def __post_init__(self):
    for name, least in _LEAST.items():
      if not (value := getattr(self, name)) >= least:
        raise ValueError(f'{name}={value!r} must be at least {least:g}.')


_LEAST = {
  'timeout_s': 1e-9,
  's_per_token': 0,
  'max_retries': 0,
  'max_concurrency': 1,
  'backoff_s': 0,
  'price_per_1k_prompt': 0,
  'price_per_1k_completion': 0,
}
