"""Groups of samples on their way from the pool to an update.

A group is one pool item with `group_size` samples (1 unless group-relative
advantages are used). It is open until an update consumes it, and ready once
each member is finished or quarantined.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from jaxagent.data import codec
from jaxagent.types import Completion, Prompt, Sample


@dataclasses.dataclass
class Member:
  """One prompt of a group, with what has happened to it."""

  prompt: Prompt
  group: Group
  completion: Completion | None = None
  sample: Sample | None = None
  dead: bool = False  # quarantined
  running: bool = False

  @property
  def prompt_id(self) -> str:
    return self.prompt.prompt_id

  @property
  def settled(self) -> bool:
    return self.dead or self.sample is not None


@dataclasses.dataclass
class Group:
  """Samples that are consumed together."""

  group_id: str
  key: Any
  seq: int  # order of drawing
  members: list[Member] = dataclasses.field(default_factory=list)
  version: int | None = None  # oldest policy version among the members

  @property
  def samples(self) -> list[Sample]:
    return [m.sample for m in self.members if m.sample is not None]

  @property
  def settled(self) -> bool:
    return all(m.settled for m in self.members)


class Buffer:
  """Open groups, with counts that the admission rules need in O(1)."""

  def __init__(self):
    self.groups: dict[str, Group] = {}  # open, in order of drawing
    self.ready: dict[str, Group] = {}  # in order of becoming ready
    self.n_finished = 0  # samples held
    self.by_version: collections.Counter[int] = collections.Counter()
    self.ready_by_version: collections.Counter[int] = collections.Counter()

  def add(self, group: Group) -> None:
    self.groups[group.group_id] = group
    if group.version is not None:
      self.by_version[group.version] += 1
    self.n_finished += len(group.samples)

  def set_version(self, group: Group, version: int) -> None:
    """A member was sampled at `version`; the group keeps the oldest."""
    if group.version is not None:
      version = min(version, group.version)
      self._uncount(group)
    group.version = version
    self.by_version[version] += 1

  def settle(self, member: Member) -> Group | None:
    """Takes in a finished or dead member; returns its group if ready."""
    group = member.group
    self.n_finished += member.sample is not None
    if not group.settled:
      return None
    if group.samples:
      self.mark_ready(group)
    return group

  def mark_ready(self, group: Group) -> None:
    """All its members are settled and one at least is valid."""
    self.ready[group.group_id] = group
    self.ready_by_version[group.version] += 1

  def _unready(self, group: Group) -> None:
    if self.ready.pop(group.group_id, None) is not None:
      self.ready_by_version[group.version] -= 1

  def remove(self, group: Group) -> None:
    """The group was consumed, or has no valid member."""
    del self.groups[group.group_id]
    self._unready(group)
    self.n_finished -= len(group.samples)
    self._uncount(group)

  def reset(self, group: Group) -> int:
    """Throws away what its members have; they are sampled anew.

    Returns:
      The number of finished samples thrown away.
    """
    lost = len(group.samples)
    self.n_finished -= lost
    self._unready(group)
    self._uncount(group)
    group.version = None
    for member in group.members:
      member.sample = None
      member.completion = None
    return lost

  def _uncount(self, group: Group) -> None:
    if group.version is None:
      return
    self.by_version[group.version] -= 1
    if not self.by_version[group.version]:
      del self.by_version[group.version]

  def oldest(self, n: int) -> list[Group]:
    """The n ready groups of the oldest versions, then of earliest drawing."""
    order = sorted(self.ready.values(), key=lambda g: (g.version, g.seq))
    return order[:n]

  def first(self, n: int) -> list[Group]:
    """The n groups that were ready first."""
    return list(self.ready.values())[:n]

  def meets_bound(self, version: int, bound: int, n_groups: int) -> bool:
    """Whether an update of the oldest ready groups leaves the bound kept.

    Groups sampled at version w must be consumed at version w + bound or
    before; one update consumes n_groups. After the n_groups oldest ready ones
    are consumed at `version`, earliest deadline first succeeds if and only
    if, for each w, the groups left of version w or older fit into the updates
    at versions version + 1 to w + bound. Costs O(versions), not O(groups).
    """
    to_take, left = n_groups, 0
    for w in sorted(self.by_version):
      taken = min(to_take, self.ready_by_version[w])
      to_take -= taken
      left += self.by_version[w] - taken
      if left > n_groups * max(0, w + bound - version):
        return False
    return True

  def members(self) -> Iterator[Member]:
    for group in self.groups.values():
      yield from group.members


def encode_group(group: Group) -> dict[str, Any]:
  """JSON-able form of a group; running members keep their completion."""
  return {
    'group_id': group.group_id,
    'key': codec.encode(group.key, f'group {group.group_id}: key'),
    'seq': group.seq,
    'members': [
      {
        'prompt_id': m.prompt_id,
        'dead': m.dead,
        'completion': codec.encode(
          None if m.settled else m.completion, f'{m.prompt_id}: completion'
        ),
        'sample': codec.encode(m.sample, f'{m.prompt_id}: sample'),
      }
      for m in group.members
    ],
  }


def decode_group(state: dict[str, Any], restore: Any) -> Group:
  """Inverse of `encode_group`. `restore(key, prompt_id) -> Prompt`."""
  key = codec.decode(state['key'])
  group = Group(state['group_id'], key, int(state['seq']))
  versions = []
  for m in state['members']:
    sample = codec.decode(m['sample'])
    completion = codec.decode(m['completion'])
    if m['dead'] or sample is not None:  # the payload is not needed again
      prompt = Prompt(m['prompt_id'], state['group_id'], None)
    else:
      prompt = restore(key, m['prompt_id'])
    group.members.append(
      Member(prompt, group, completion, sample, dead=m['dead'])
    )
    if sample is not None:
      versions.append(sample.version)
    elif completion is not None:
      versions.append(completion.version)
  group.version = min(versions, default=None)
  return group


def fault_of(sample: Sample | None) -> str:
  """Why a sample may not enter a batch, or ''."""
  if sample is None:
    return 'no sample'
  if sample.reward is None:
    return 'reward is None'
  if not math.isfinite(sample.reward):
    return f'reward={sample.reward}'
  if not (math.isfinite(sample.exec_s) and sample.exec_s > 0):
    return f'exec_s={sample.exec_s} (it must be greater than zero)'
  return ''
