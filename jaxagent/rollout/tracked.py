"""Interactions on their way from the pool to an update, in their groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxagent.data import codec
from jaxagent.interactions import RolloutState
from jaxagent.rollout.requests import Key
from jaxagent.types import Prompt, Sample


@dataclasses.dataclass
class TrackedRollout:
  """One prompt of a group, with what has become of its interaction.

  draws: times it has begun, beyond resumes. progress: None while it has not
  begun, and once it has finished. samples: its rows, once it has finished.
  """

  prompt: Prompt
  group: Group
  draws: int = 0
  progress: RolloutState | None = None
  samples: tuple[Sample, ...] = ()
  finished: bool = False
  dead: bool = False  # quarantined

  @property
  def prompt_id(self) -> str:
    return self.prompt.prompt_id

  @property
  def settled(self) -> bool:
    return self.dead or self.finished

  @property
  def keys(self) -> list[Key]:
    """Keys of its open calls."""
    if self.progress is None:
      return []
    return [Key(self.prompt_id, self.draws, c) for c in self.progress.open]

  def forget(self) -> None:
    """Resets it to begin anew."""
    self.progress, self.samples, self.finished = None, (), False


@dataclasses.dataclass
class Group:
  """Interactions that are consumed together: one item of the pool.

  It is open until an update consumes it, and ready once each member has
  finished or is dead.
  """

  group_id: str
  key: Any
  seq: int  # order of drawing
  members: list[TrackedRollout] = dataclasses.field(default_factory=list)
  version: int | None = None  # oldest policy version among the members

  @property
  def samples(self) -> list[Sample]:
    return [s for m in self.members for s in m.samples]

  @property
  def n_finished(self) -> int:
    return sum(m.finished for m in self.members)

  @property
  def settled(self) -> bool:
    return all(m.settled for m in self.members)


def encode(group: Group, attempts: Callable[[Key], int]) -> dict[str, Any]:
  """JSON-able: rows of the finished, results of those under way."""
  return {
    'group_id': group.group_id,
    'key': codec.encode(group.key, f'group {group.group_id}: key'),
    'seq': group.seq,
    'members': [_encode_member(m, attempts) for m in group.members],
  }


def _encode_member(
  member: TrackedRollout, attempts: Callable[[Key], int]
) -> dict[str, Any]:
  results = None
  if member.progress is not None:
    results = [
      [call.call, codec.encode(result, f'{member.prompt_id}: call {call.call}')]
      for call, result in member.progress.results
    ]
  where = f'{member.prompt_id}: samples'
  return {
    'prompt_id': member.prompt_id,
    'draws': member.draws,
    'dead': member.dead,
    'finished': member.finished,
    'samples': [codec.encode(s, where) for s in member.samples],
    'results': results,
    'attempts': [[k.call, attempts(k)] for k in member.keys if attempts(k)],
  }


def decode(
  state: dict[str, Any],
  restore: Callable[[Any, str], Prompt],
  begin: Callable[[Prompt], RolloutState | None],
) -> tuple[Group, dict[Key, int]]:
  """(group, attempts of its open calls): inverse of `encode`.

  restore: finds a prompt's payload again. begin: starts its interaction.
  """
  key = codec.decode(state['key'])
  group = Group(state['group_id'], key, int(state['seq']))
  attempts: dict[Key, int] = {}
  for saved in state['members']:
    prompt_id = saved['prompt_id']
    if saved['dead'] or saved['finished']:  # the payload is not needed again
      prompt = Prompt(prompt_id, group.group_id, None)
    else:
      prompt = restore(key, prompt_id)
    member = TrackedRollout(prompt, group, saved['draws'], dead=saved['dead'])
    member.finished = saved['finished']
    member.samples = tuple(codec.decode(s) for s in saved['samples'])
    if saved['results'] is not None:
      member.progress = begin(prompt)
    if member.progress is not None:
      results = [(call, codec.decode(r)) for call, r in saved['results']]
      member.progress.fold(results)
    for call, n in saved['attempts']:
      attempts[Key(prompt_id, member.draws, call)] = n
    group.members.append(member)
  group.version = min(versions_of(group), default=None)
  return group, attempts


def versions_of(group: Group) -> list[int]:
  """Returns the version of each policy completion that its members hold."""
  found = [s.version for s in group.samples]
  for member in group.members:
    if member.progress is not None:
      found += [c.version for _, c in member.progress.completions]
  return found
