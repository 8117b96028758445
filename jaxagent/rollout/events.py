"""The events of a journal, as JSON-able records.

Those of the scheduler's own doing also say `v`, the policy's version then.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from jaxagent.data import codec
from jaxagent.rollout.requests import ExecutionResult, GenerationResult, Key
from jaxagent.rollout.rollout_log import Fate

_PACKED = 'packed'
_LONGEST = 4096  # characters of a result that stands in a journal as it is


def _of_key(kind: str, key: Key) -> dict[str, Any]:
  return {'e': kind, 'p': key.prompt_id, 'd': key.draw, 'c': key.call}


def key_of(event: dict[str, Any]) -> Key:
  return Key(event['p'], event['d'], event['c'])


def drawn(group_id: str, key: Any) -> dict[str, Any]:
  """A group came out of the source, which knows its prompt by `key`."""
  return {'e': 'drawn', 'group': group_id, 'key': key}


def begun(prompt_id: str, draw: int) -> dict[str, Any]:
  """An interaction began, for the first time or anew."""
  return {'e': 'begun', 'p': prompt_id, 'd': draw}


def asked(key: Key) -> dict[str, Any]:
  """A sampler was asked for a completion."""
  return _of_key('asked', key)


def submitted(key: Key, attempt: int) -> dict[str, Any]:
  """An executor was given a call."""
  return _of_key('submitted', key) | {'a': attempt}


def of_result(result: GenerationResult | ExecutionResult) -> dict[str, Any]:
  """A completion or an execution has ended, well or not."""
  if isinstance(result, GenerationResult):
    completion = codec.encode(result.completion, f'{result.key}: completion')
    return _of_key('sampled', result.key) | {
      'completion': completion,
      'error': result.error,
    }
  return _of_key('executed', result.key) | {
    'a': result.attempt,
    'executed': _pack(codec.encode(result.executed, f'{result.key}: result')),
  }


def result_of(event: dict[str, Any]) -> GenerationResult | ExecutionResult:
  """Inverse of `of_result`."""
  if event['e'] == 'sampled':
    return GenerationResult(
      key_of(event), codec.decode(event['completion']), event['error']
    )
  executed = codec.decode(_unpack(event['executed']))  # of `replaced`, too
  return ExecutionResult(key_of(event), event['a'], executed)


def _pack(value: Any) -> Any:
  """Compresses a long result: a state holds all files of its workspace."""
  text = json.dumps(value, separators=(',', ':'))
  if len(text) <= _LONGEST:
    return value
  return {_PACKED: base64.b64encode(zlib.compress(text.encode(), 1)).decode()}


def _unpack(value: Any) -> Any:
  """Inverse of `_pack`."""
  if not isinstance(value, dict) or value.keys() != {_PACKED}:
    return value
  return json.loads(zlib.decompress(base64.b64decode(value[_PACKED])))


def replaced(result: ExecutionResult) -> dict[str, Any]:
  """A person gave an execution another result; what came after it is void."""
  return of_result(result) | {'e': 'replaced'}


def expired(key: Key, attempt: int) -> dict[str, Any]:
  """An executor gave no answer within the lease."""
  return _of_key('expired', key) | {'a': attempt}


def discarded(group_id: str, fate: Fate) -> dict[str, Any]:
  """A group's interactions are to begin anew: cancelled, or too old."""
  return {'e': 'discarded', 'group': group_id, 'fate': fate.value}


def batch(version: int, group_ids: list[str]) -> dict[str, Any]:
  """Event: groups were handed out for the update of `version`."""
  return {'e': 'batch', 'version': version, 'groups': group_ids}


def gauges(version: int, values: dict[str, float]) -> dict[str, Any]:
  """Event: what was under way just after the batch of `version` was handed out."""
  return {'e': 'gauges', 'version': version, 'values': values}


def trained(update: int, prompt_ids: list[str]) -> dict[str, Any]:
  """An update with these prompts is in the parameters."""
  return {'e': 'trained', 'update': update, 'prompts': prompt_ids}
