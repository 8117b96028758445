"""Open groups, with the counts that admission rules need in O(1)."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from jaxagent.rollout.tracked import Group, TrackedRollout


class Buffer:
  """Open groups, with counts that the admission rules need in O(1)."""

  def __init__(self):
    self.groups: dict[str, Group] = {}  # open, in order of drawing
    self.ready: dict[str, Group] = {}  # in order of becoming ready
    self.n_finished = 0  # interactions held
    self.by_version: collections.Counter[int] = collections.Counter()
    self.ready_by_version: collections.Counter[int] = collections.Counter()

  def add(self, group: Group) -> None:
    self.groups[group.group_id] = group
    if group.version is not None:
      self.by_version[group.version] += 1
    self.n_finished += group.n_finished

  def set_version(self, group: Group, version: int) -> None:
    """A member was sampled at `version`; the group keeps the oldest."""
    if group.version is not None:
      version = min(version, group.version)
      self._uncount(group)
    group.version = version
    self.by_version[version] += 1

  def settle(self, member: TrackedRollout) -> Group | None:
    """Takes in a finished or dead member; returns its group if settled."""
    group = member.group
    self.n_finished += member.finished
    if not group.settled:
      return None
    if group.n_finished:
      self.mark_ready(group)
    return group

  def mark_ready(self, group: Group) -> None:
    """All its members are settled and one at least is valid."""
    self.ready[group.group_id] = group
    assert group.version is not None  # a valid member has a completion
    self.ready_by_version[group.version] += 1

  def _unready(self, group: Group) -> None:
    if self.ready.pop(group.group_id, None) is not None:
      assert group.version is not None  # since `mark_ready`
      self.ready_by_version[group.version] -= 1

  def remove(self, group: Group) -> None:
    """The group was consumed, or has no valid member."""
    del self.groups[group.group_id]
    self._unready(group)
    self.n_finished -= group.n_finished
    self._uncount(group)

  def reset(self, group: Group) -> None:
    """Throws away what its members have; they begin anew."""
    self.n_finished -= group.n_finished
    self._unready(group)
    self._uncount(group)
    group.version = None
    for member in group.members:
      member.forget()

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

  def members(self) -> Iterator[TrackedRollout]:
    for group in self.groups.values():
      yield from group.members
