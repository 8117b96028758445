"""Where groups are made in a unified hierarchy, on a tree that only looks like
one: a folder that is made gets the controllers that its parent hands down."""

from __future__ import annotations

import os
import pathlib

import pytest

from jaxagent.sandbox import _cgroup


@pytest.fixture
def tree(tmp_path, monkeypatch):
  """group(path, hands_down, limit) makes one; the last is this process's."""
  real = os.mkdir

  def group(path, hands_down='', limit='max'):
    folder = tmp_path / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'cgroup.subtree_control').write_text(hands_down)
    (folder / 'memory.max').write_text(limit + '\n')
    monkeypatch.setattr(
      _cgroup, '_own', lambda: {'': '/' + path if path else '/'}
    )

  def mkdir(path, *mode):
    real(path, *mode)
    handed = pathlib.Path(path).parent / 'cgroup.subtree_control'
    (pathlib.Path(path) / 'cgroup.controllers').write_text(handed.read_text())

  def rmdir(path):
    for file in pathlib.Path(path).iterdir():
      file.unlink()
    pathlib.Path(path).rmdir()

  monkeypatch.setattr(_cgroup, '_mounts', lambda: ({}, str(tmp_path)))
  monkeypatch.setattr(_cgroup.os, 'mkdir', mkdir)
  monkeypatch.setattr(_cgroup, '_rmdir', rmdir)
  return group


def made(top: pathlib.Path) -> list[str]:
  return [str(p.relative_to(top)) for p in top.rglob('mine')]


def test_a_group_that_is_delegated_is_taken(tree, tmp_path):
  tree('', 'cpu memory pids')
  tree('unit', 'memory pids')
  groups, note = _cgroup.find('mine')
  assert groups.version == 2 and note == 'cgroup v2: memory, pids'
  assert made(tmp_path) == ['unit/mine']


def test_a_group_with_processes_is_left_for_the_one_above(tree, tmp_path):
  tree('', 'cpu memory pids')
  tree('slice', 'cpu memory pids')
  tree('slice/session.scope')
  groups, note = _cgroup.find('mine')
  assert groups and note == 'cgroup v2: memory, pids, cpu'
  assert made(tmp_path) == ['slice/mine']
  _cgroup.remove_left('mine')
  assert made(tmp_path) == []


def test_a_limit_is_not_left(tree, tmp_path):
  tree('', 'memory pids')
  tree('slice', 'memory pids')
  tree('slice/job', limit='1073741824')
  groups, note = _cgroup.find('mine')
  assert groups is None and 'slice/job delegates nothing' in note
  assert made(tmp_path) == []


def test_a_container_that_is_the_root_of_what_it_sees(tree, tmp_path):
  tree('')
  groups, note = _cgroup.find('mine')
  assert groups is None and note.count('delegates nothing') == 1
