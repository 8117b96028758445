"""One run holds a work directory; a dead one is taken over."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxagent.clock import VirtualClock
from jaxagent.errors import MachineryError, UserError
from jaxagent.files import owner

HOLD = """
import pathlib, sys, time
from jaxagent.files import owner
owner.taken(pathlib.Path(sys.argv[1]))
print('held', flush=True)
time.sleep(600)
"""


@pytest.fixture
def other(tmp_path):
  """Another process that holds `tmp_path`."""
  process = subprocess.Popen(
    [sys.executable, '-c', HOLD, str(tmp_path)],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'held\n'
  yield process
  process.kill()
  process.communicate()


class Beating(VirtualClock):
  """A clock on which an owner elsewhere beats every `every_s` until `until_s`."""

  def __init__(self, path, every_s, until_s=float('inf')):
    super().__init__()
    self._name, self._every, self._until = path / owner.OWNER, every_s, until_s
    self._beaten = 0.0

  def sleep(self, s):
    super().sleep(s)
    if self._beaten + self._every <= self.now() <= self._until:
      self._beaten = self.now()
      at = os.stat(self._name).st_mtime_ns + 1
      os.utime(self._name, ns=(at, at))


def elsewhere(path, **fields):
  """Writes the claim of a run on another machine."""
  claim = dataclasses.replace(
    owner.Claim.of_this_process(), host='other', boot='another', **fields
  )
  (path / owner.OWNER).write_text(json.dumps(dataclasses.asdict(claim)))
  return claim


def test_a_second_run_is_refused_and_told_whose_the_directory_is(
  tmp_path, other
):
  began = time.monotonic()
  with pytest.raises(UserError, match='in use by process') as refused:
    owner.taken(tmp_path)
  assert time.monotonic() - began < 10
  assert f'process {other.pid} of' in str(refused.value)
  assert '\n' not in str(refused.value)


def test_a_killed_owner_is_taken_over_at_once_on_its_own_machine(
  tmp_path, other
):
  other.send_signal(signal.SIGKILL)
  other.wait()
  clock = VirtualClock()
  owner.taken(tmp_path, clock).close()
  assert clock.now() == 0.0


def test_a_run_that_ended_leaves_the_directory_free(tmp_path):
  owner.taken(tmp_path).close()
  clock = VirtualClock()
  owner.check(tmp_path, clock)
  owner.taken(tmp_path, clock).close()
  assert clock.now() == 0.0


def test_an_owner_elsewhere_that_beats_is_alive(tmp_path):
  claim = elsewhere(tmp_path, job='SLURM_JOB_ID=7')
  clock = Beating(tmp_path, owner.BEAT_S)
  with pytest.raises(UserError, match="on 'other' .SLURM_JOB_ID=7."):
    owner.taken(tmp_path, clock)
  assert clock.now() < 10
  with owner._opened(tmp_path / owner.OWNER) as file:
    assert owner.Claim.read(file) == claim  # it is not touched


def test_an_owner_elsewhere_that_died_is_taken_over_after_its_age(
  tmp_path, capsys
):
  elsewhere(tmp_path)
  clock = Beating(tmp_path, every_s=1e9)
  held = owner.taken(tmp_path, clock)
  assert owner.STALE_S <= clock.now() < owner.STALE_S + 2
  assert held.whose().host != 'other'
  assert "on 'other'" in capsys.readouterr().err
  held.close()


@pytest.mark.parametrize('at', [0.0, 4e9, -5e9])
def test_an_owners_clock_does_not_matter(tmp_path, at):
  elsewhere(tmp_path, began=at)
  os.utime(tmp_path / owner.OWNER, (max(at, 1), max(at, 1)))
  with pytest.raises(UserError, match='in use'):
    owner.taken(tmp_path, Beating(tmp_path, owner.BEAT_S))


@pytest.mark.parametrize(
  'text', ['{', '[]', '{"host": 1}', 'null', '\0' * 99, '{"began": "x"}']
)
def test_a_damaged_claim_is_watched_and_taken_over(tmp_path, text):
  (tmp_path / owner.OWNER).write_text(text)
  clock = VirtualClock()
  owner.taken(tmp_path, clock).close()
  assert owner.STALE_S <= clock.now() < owner.STALE_S + 2


def test_without_locks_the_beat_decides(tmp_path, monkeypatch):
  def none(file, kind):
    raise OSError(errno.ENOLCK, 'no locks here')

  monkeypatch.setattr(owner.fcntl, 'flock', none)
  claim = dataclasses.asdict(owner.Claim.of_this_process())
  (tmp_path / owner.OWNER).write_text(json.dumps(claim))
  with pytest.raises(UserError, match='in use'):
    owner.taken(tmp_path, Beating(tmp_path, owner.BEAT_S))
  clock = VirtualClock()
  owner.taken(tmp_path, clock).close()
  assert clock.now() >= owner.STALE_S


def test_of_two_that_come_at_once_without_locks_one_has_it(
  tmp_path, monkeypatch
):
  def none(file, kind):
    raise OSError(errno.ENOLCK, 'no locks here')

  monkeypatch.setattr(owner.fcntl, 'flock', none)
  found = []

  def start():
    try:
      found.append(owner.taken(tmp_path))
    except UserError as error:
      found.append(error)

  threads = [threading.Thread(target=start) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  held = [one for one in found if isinstance(one, owner.Owner)]
  assert len(held) == 1 and len(found) == 4
  held[0].close()


@pytest.mark.parametrize('how', ['taken over', 'moved'])
def test_a_run_that_lost_its_directory_learns_it(tmp_path, monkeypatch, how):
  monkeypatch.setattr(owner, 'BEAT_S', 0.05)
  work, lost = tmp_path / 'work', []
  work.mkdir()
  with owner.holding(work, lost.append):
    if how == 'moved':
      work.rename(tmp_path / 'elsewhere')
    else:
      elsewhere(work)
    end = time.monotonic() + 10
    while not lost and time.monotonic() < end:
      time.sleep(0.02)
  assert isinstance(lost[0], MachineryError) and how in str(lost[0])
  if how != 'moved':  # the other's claim stays
    assert 'other' in (work / owner.OWNER).read_text()


@pytest.mark.skipif(os.getuid() == 0, reason='root may open every file')
def test_a_claim_of_another_user_that_cannot_be_opened_is_named(tmp_path):
  (tmp_path / owner.OWNER).touch(0o400)
  with pytest.raises(UserError, match='belongs to user'):
    owner.taken(tmp_path)


def test_a_full_disk_is_named(tmp_path, monkeypatch):
  def full(*unused):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(owner.os, 'pwrite', full)
  with pytest.raises(UserError, match='No space left'):
    owner.taken(tmp_path)


def test_the_command_says_whether_a_directory_is_held(tmp_path, other, capsys):
  assert owner.main([str(tmp_path)]) == 2
  assert str(other.pid) in capsys.readouterr().err
  assert owner.main([str(tmp_path / 'new')]) == 0
  assert owner.main([]) == 2


def test_who_only_looks_keeps_no_one_out(tmp_path):
  """A launcher looks while the job begins."""
  owner.taken(tmp_path).close()
  file = os.open(tmp_path / owner.OWNER, os.O_RDONLY)
  assert owner._lock(file, owner.fcntl.LOCK_SH) == 'flock'
  threading.Timer(0.2, os.close, [file]).start()
  owner.taken(tmp_path).close()


def test_a_lock_that_a_server_keeps_for_a_dead_machine_is_got_over(
  tmp_path, monkeypatch
):
  elsewhere(tmp_path)
  kept, lock = os.stat(tmp_path / owner.OWNER).st_ino, owner.fcntl.flock

  def flock(file, kind):
    if os.fstat(file).st_ino == kept and kind != owner.fcntl.LOCK_UN:
      raise OSError(errno.EWOULDBLOCK, 'held')
    lock(file, kind)

  monkeypatch.setattr(owner.fcntl, 'flock', flock)
  with pytest.raises(UserError, match="on 'other'"):
    owner.taken(tmp_path, Beating(tmp_path, owner.BEAT_S))
  clock = VirtualClock()
  held = owner.taken(tmp_path, clock)
  assert clock.now() >= owner.STALE_S and held.whose().host != 'other'
  held.close()


def test_a_run_may_begin_while_another_looks(tmp_path):
  class Starting(VirtualClock):
    def sleep(self, s):
      super().sleep(s)
      with open(tmp_path / owner.OWNER, 'rb+') as file:
        owner.fcntl.flock(file, owner.fcntl.LOCK_EX | owner.fcntl.LOCK_NB)

  elsewhere(tmp_path)
  clock = Starting()
  owner.check(tmp_path, clock)
  assert clock.now() > 0
