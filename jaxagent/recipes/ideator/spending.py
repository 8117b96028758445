"""Money that the answers of a role's endpoint cost, kept beside the run.

An answer is a line of `spending/ROLE.jsonl` in the work directory, under the digest of
its question: one that a resumed run takes from the cache costs nothing again.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxagent import types
from jaxagent.envs.interfaces import MOST_THOUGHTS
from jaxagent.errors import UserError
from jaxagent.runtime import text_models

if TYPE_CHECKING:
  from jaxagent.llm.openai_client import OpenAIClient

_PER = 1_000_000  # tokens that a price is of


def money(prices: Mapping[str, float], prompt: int, completion: int) -> float:
  """Returns the cost of so many tokens, by prices of a million; 0 without prices."""
  if not prices:
    return 0.0
  return (prompt * prices['prompt'] + completion * prices['completion']) / _PER


class Purse:
  """Money of one role: spent so far, and held back for answers under way.

  Args:
    path: of its file, read where it is there.
    prices: of a million tokens, `prompt` and `completion`; {}: nothing is counted.
    most: to be spent; 0: no limit.
    key: of that option, for messages.
  """

  def __init__(
    self,
    path: pathlib.Path,
    prices: Mapping[str, float] = {},
    most: float = 0.0,
    key: str = 'max_spend',
  ):
    self._path, self._prices, self._most, self._key = path, prices, most, key
    self._lock = threading.Condition()
    self._held: dict[str, float] = {}  # by digest, of answers under way
    self._paid = _read(path)

  @property
  def spent(self) -> float:
    """Money spent in this and in earlier attempts."""
    with self._lock:
      return sum(self._paid.values())

  def hold(self, digest: str, most: float) -> None:
    """Holds money back for an answer that is to be asked for.

    Waits where answers under way hold back what they may not need. Raises UserError
    where less than `most` is left. An answer that is paid for already needs none.
    """
    with self._lock:
      while digest not in self._paid:
        spent, held = sum(self._paid.values()), sum(self._held.values())
        if not self._most or spent + held + most <= self._most:
          self._held[digest] = most
          return
        if not held or spent + most > self._most:
          raise UserError(
            f'{self._key}={self._most:g} does not allow a further answer: '
            f'{spent:.6g} are spent, and one may cost {most:.6g}. '
            'Raise it and rerun the same command; it resumes the run.'
          )
        self._lock.wait()

  def pay(self, digest: str, prompt: int, completion: int) -> None:
    """Takes an answer's tokens; one that is paid for already costs nothing."""
    cost = money(self._prices, prompt, completion)
    with self._lock:
      self._held.pop(digest, None)
      self._lock.notify_all()
      if not self._prices or digest in self._paid:
        return
      self._paid[digest] = cost
      line = {
        'question': digest,
        'prompt_tokens': prompt,
        'tokens': completion,
        'cost': cost,
      }
      self._path.parent.mkdir(parents=True, exist_ok=True)
      with self._path.open('a', encoding='utf-8') as file:
        file.write(json.dumps(line) + '\n')

  def let_go(self, digest: str) -> None:
    """Gives back what was held for an answer that did not come."""
    with self._lock:
      self._held.pop(digest, None)
      self._lock.notify_all()


def _read(path: pathlib.Path) -> dict[str, float]:
  """Returns digest -> cost; ends a line that a kill cut, which is not counted."""
  paid: dict[str, float] = {}
  if not path.exists():
    return paid
  data = path.read_bytes()
  for line in data.splitlines():
    try:
      value = json.loads(line)
      paid[str(value['question'])] = float(value['cost'])
    except (ValueError, KeyError, TypeError):
      continue
  if data and not data.endswith(b'\n'):
    with path.open('ab') as file:
      file.write(b'\n')
  return paid


def purse_of(options: Any, role: str, work: pathlib.Path) -> Purse:
  """Returns the purse of a role. options: its `PricedEndpoint`."""
  return Purse(
    work / 'spending' / f'{role}.jsonl',
    dict(options.prices),
    options.max_spend,
    f'config.{role}.max_spend',
  )


class PaidModel:
  """A role's endpoint: answers with what they took in tokens, seconds and money."""

  def __init__(self, client: OpenAIClient, options: Any, purse: Purse):
    self._client, self._options, self._purse = client, options, purse

  def answer(
    self, messages: Sequence[dict[str, str]], seed: int
  ) -> types.TextCompletion:
    """Returns the answer; thread-safe.

    Raises TextModelError where the model gives none, UserError where no money is left.
    """
    options = self._options
    asked = [self._client.name, list(messages), options.temperature, seed]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]
    estimate = sum(text_models.tokens_of(m['content']) for m in messages)
    prices = dict(options.prices)
    self._purse.hold(digest, money(prices, estimate, options.max_tokens))
    began = time.monotonic()
    tokens: dict[str, int] = {}
    try:
      with self._client.meter() as tokens:
        text = self._client.complete(
          messages,
          max_tokens=options.max_tokens,
          temperature=options.temperature,
          seed=seed,
        )
    except BaseException:
      self._purse.let_go(digest)
      if tokens.get('tokens'):  # of answers that were cut, and are in no cache
        self._purse.pay(
          f'{digest}-{uuid.uuid4().hex[:8]}',
          tokens['prompt_tokens'],
          tokens['tokens'],
        )
      raise
    seconds = time.monotonic() - began
    thoughts = text.thoughts
    self._purse.pay(
      digest,
      tokens.get('prompt_tokens', estimate),
      tokens.get('tokens', text_models.tokens_of(thoughts + text)),
    )
    cost: dict[str, Any] = {**tokens, 'answer_s': seconds}
    if thoughts:
      cost['thoughts'] = thoughts[-MOST_THOUGHTS:]
    return types.TextCompletion(str(text), cost)
