"""A checkpoint is written beside the next update, and is what it was when it began."""

import json
import threading
import types as stubs
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import checkpoint
from jaxagent.checkpoint import CheckpointError, CheckpointManager
from jaxagent.errors import MachineryError
from jaxagent.learner import Learner, LearnerConfig
from jaxagent.models import ModelConfig
from jaxagent.rollout.journal import Journal
from jaxagent.runtime.stop import StopFlag
from jaxagent.training import multi_process
from jaxagent.training.saving import Saver
from tests.learner.conftest import make_samples

# What an update does to the weights: they are donated, as the learner's are.
_step = jax.jit(lambda w: w + 1, donate_argnums=0)


class Weights:
  """One array, which each update replaces in place."""

  def __init__(self):
    self.w, self.told = jnp.zeros(1000), {'updates': 0}

  def update(self):
    self.w = _step(self.w)
    self.told['updates'] += 1

  def state(self):
    return {'w': self.w}

  def host_state(self):
    return self.told


class Slow(CheckpointManager):
  """Writes once it may."""

  def __init__(self, directory, keep=3):
    super().__init__(directory, keep)
    self.may, self.begun, self.writing = threading.Event(), [], 0
    self.most = 0

  def save(self, step, *given, **named):
    self.begun.append(step)
    self.writing += 1
    self.most = max(self.most, self.writing)
    assert self.may.wait(60)
    try:
      return super().save(step, *given, **named)
    finally:
      self.writing -= 1


@pytest.fixture(name='parts')
def _parts(tmp_path):
  journal = Journal(tmp_path / 'journal')
  journal.begin()
  scheduler = stubs.SimpleNamespace(
    checkpoint=lambda: {'segment': journal.begin()}
  )
  learner, stop = Weights(), StopFlag(within_s=None)
  manager = Slow(tmp_path / 'checkpoints', keep=1)
  saver = Saver(
    manager, journal, learner, scheduler, Counter(), 'stepwise', stop
  )
  yield stubs.SimpleNamespace(
    saver=saver, manager=manager, learner=learner, stop=stop, journal=journal
  )
  manager.may.set()
  saver.close()
  journal.close()


def _segments(parts):
  return sorted(int(p.stem) for p in parts.journal.directory.iterdir())


def test_the_next_update_changes_nothing_of_what_is_being_written(parts):
  parts.learner.update()
  parts.saver.save(1)
  parts.learner.update()  # before anything is written
  parts.saver.counts['ok'] += 1
  assert parts.manager.steps() == []
  parts.manager.may.set()
  parts.saver.finish()
  restored = parts.manager.restore_latest({'w': jnp.zeros(1000)})
  assert restored.step == 1 and np.all(restored.arrays['w'] == 1)
  assert restored.host['learner'] == {'updates': 1}
  assert restored.host['outcomes'] == {}


def test_nothing_counts_as_saved_before_it_is_whole(parts):
  parts.saver.note(0)
  parts.saver.save(1)
  assert parts.stop.saved == 'no update is saved yet'
  assert _segments(parts) == [0, 1]  # the journal continues the one before
  parts.manager.may.set()
  parts.saver.finish()
  assert parts.stop.saved == 'update 1 is saved'
  assert _segments(parts) == [1]
  assert parts.saver.write_s > 0


def test_one_write_is_under_way_at_a_time(parts):
  parts.saver.save(1)
  second = threading.Thread(target=parts.saver.save, args=(2,))
  second.start()
  second.join(0.3)
  assert second.is_alive() and parts.manager.begun == [1]
  parts.manager.may.set()
  second.join(60)
  parts.saver.finish()
  assert parts.manager.most == 1 and parts.manager.steps() == [2]


def test_a_stop_waits_for_the_write(parts, monkeypatch):
  ended = threading.Event()
  monkeypatch.setattr(parts.stop, '_end', ended.set)
  parts.saver.save(1)
  while not parts.manager.begun:
    pass
  parts.stop.within_s = 0.1
  parts.stop.ask(15)
  assert not ended.wait(0.5)
  parts.manager.may.set()
  assert ended.wait(60) and parts.manager.steps() == [1]


@pytest.mark.parametrize('boundary', ['save', 'finish'])
def test_a_write_that_failed_is_raised_at_the_next_boundary(
  parts, boundary, monkeypatch
):
  def full(*given):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(checkpoint, '_write_host', full)
  parts.manager.may.set()
  parts.saver.save(1)
  with pytest.raises(CheckpointError, match='No space left'):
    parts.saver.save(2) if boundary == 'save' else parts.saver.finish()
  assert parts.manager.begun == [1] and parts.manager.steps() == []
  assert _segments(parts) == [0, 1]
  parts.saver.finish()  # and once


def test_where_another_error_ends_the_run_that_of_a_write_is_logged(
  parts, monkeypatch, caplog
):
  monkeypatch.setattr(checkpoint, '_commit', lambda *given: 1 / 0)
  parts.manager.may.set()
  parts.saver.save(1)
  parts.saver.close()
  assert 'division by zero' in caplog.text


def test_nothing_is_written_into_a_folder_that_another_run_has_taken(parts):
  parts.stop.fail(MachineryError('the folder is taken over'))
  parts.manager.may.set()
  parts.saver.save(1)
  with pytest.raises(MachineryError, match='taken over'):
    parts.saver.finish()
  assert parts.manager.begun == []


def test_without_room_for_a_copy_the_learner_waits_for_the_write(
  parts, monkeypatch
):
  monkeypatch.setattr(multi_process, '_available_bytes', lambda: 7999)
  parts.manager.may.set()
  parts.learner.update()
  parts.saver.save(1)
  assert parts.manager.steps() == [1] and parts.stop.saved.startswith(
    'update 1'
  )
  assert _segments(parts) == [1]
  host = json.loads((parts.manager.path(1) / 'host.json').read_text())
  assert host['learner'] == {'updates': 1}
  assert multi_process._available_bytes() == 7999
  monkeypatch.undo()
  assert multi_process._available_bytes() > 1 << 20


@pytest.mark.slow
def test_a_copy_is_saved_and_read_as_the_learners_own_arrays(
  tmp_path,
):
  model = ModelConfig(64, 32, 64, 1, 4, 2, head_dim=8)
  learner = Learner(model, LearnerConfig(kl_coef=0.05), seed=1)
  learner.rl_update(make_samples(8))
  arrays = multi_process.copied(learner)
  want = [np.array(leaf) for leaf in jax.tree.leaves(learner.state())]
  assert jax.tree.structure(arrays) == jax.tree.structure(learner.state())
  manager = CheckpointManager(tmp_path)
  manager.save(1, arrays, json.dumps({'learner': learner.host_state()}))
  learner.rl_update(make_samples(8))  # donates what was copied
  assert multi_process.restore(learner, manager).step == 1
  found = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.state())]
  assert all(map(np.array_equal, found, want))
  assert [leaf.dtype for leaf in found] == [leaf.dtype for leaf in want]


def test_a_save_that_lacks_an_array_is_no_checkpoint(tmp_path, monkeypatch):
  manager = CheckpointManager(tmp_path)
  whole = manager._orbax.save
  monkeypatch.setattr(
    manager._orbax,
    'save',
    lambda path, flat: whole(path, dict(list(flat.items())[1:])),
  )
  with pytest.raises(CheckpointError, match=r'could not .*no array.*00000\.a'):
    manager.save(1, {'a': jnp.ones(3), 'b': jnp.ones(3)})
  assert manager.steps() == [] and not list(tmp_path.iterdir())
