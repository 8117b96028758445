"""A checkpoint counts when committed; a damaged one is passed over."""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxagent import checkpoint
from jaxagent.checkpoint import CheckpointError, CheckpointManager
from jaxagent.files import disk


def _tree(x: float):
  return {
    'policy': {'a/kernel': jnp.full((4, 3), x), 'b': jnp.arange(3.0)},
    'opt': (jnp.ones(2, jnp.bfloat16), {'count': np.int64(7)}),
  }


def _equal(a, b) -> bool:
  same = jax.tree.map(
    lambda x, y: np.array_equal(np.asarray(x), np.asarray(y)), a, b
  )
  return all(jax.tree.leaves(same))


def _damage(path, how: str) -> None:
  if how == 'no commit':
    (path / 'COMMIT').unlink()
    return
  if how == 'host':
    (path / 'host.json').write_text('{"a": 2}')
    return
  files = [p for p in (path / 'arrays').rglob('*') if p.is_file()]
  largest = max(files, key=lambda p: p.stat().st_size)
  data = largest.read_bytes()
  if how == 'truncated':
    largest.write_bytes(data[: len(data) // 2])
  elif how == 'bit flip':
    middle = len(data) // 2
    flipped = bytes([data[middle] ^ 1])
    largest.write_bytes(data[:middle] + flipped + data[middle + 1 :])
  else:
    largest.unlink()


def test_round_trip_keeps_the_last(tmp_path):
  manager = CheckpointManager(tmp_path, keep=2)
  for step in (1, 2, 3):
    manager.save(step, _tree(step), {'s': step}, {'ledger.jsonl': 'x\n'})
  assert manager.steps() == [2, 3]
  restored = manager.restore_latest(_tree(0.0))
  step, arrays, host = restored
  assert step == 3 and host == {'s': 3} and _equal(arrays, _tree(3))
  assert restored.files == {'ledger.jsonl': b'x\n'}
  assert jax.tree.structure(arrays) == jax.tree.structure(_tree(0.0))


@pytest.mark.parametrize('name', ['w[1]', 'w\\1', 'w*', 'gs:'])
def test_no_checkpoint_is_written_where_orbax_would_look_elsewhere(
  tmp_path, name
):
  manager = CheckpointManager(tmp_path / name)
  with pytest.raises(
    CheckpointError, match='for a pattern. Choose a work directory'
  ):
    manager.save(1, _tree(1))
  assert not list(tmp_path.iterdir())


def test_a_save_that_orbax_cannot_find_again_is_no_checkpoint(
  tmp_path, monkeypatch
):
  """Orbax returns from it without a word, and no manifest.ocdbt is written."""
  monkeypatch.setattr(disk, 'pattern_in', lambda path: '')
  manager = CheckpointManager(tmp_path / 'w[1]')
  with pytest.raises(CheckpointError, match='could not be written: .*no array'):
    manager.save(1, _tree(1))
  assert manager.steps() == [] and not list((tmp_path / 'w[1]').iterdir())


@pytest.mark.parametrize('name, kept', [('w[1]', True), ('w\\1', False)])
def test_a_copy_under_another_name_is_read_or_refused(
  tmp_path, name, kept, caplog
):
  CheckpointManager(tmp_path / 'plain').save(1, _tree(1))
  shutil.copytree(tmp_path / 'plain', tmp_path / name)
  manager = CheckpointManager(tmp_path / name)
  if kept:
    assert _equal(manager.restore_latest(_tree(0)).arrays, _tree(1))
  else:
    with pytest.raises(CheckpointError, match='Copy it to a path without'):
      manager.restore_latest(_tree(0))
  gc.collect()
  assert 'never retrieved' not in caplog.text


def test_one_that_was_written_so_is_named(tmp_path):
  manager = CheckpointManager(tmp_path)
  step = manager.save(1, _tree(1))
  (step / 'arrays' / 'manifest.ocdbt').unlink()
  manifest = json.loads((step / 'manifest.json').read_text())
  del manifest['arrays/manifest.ocdbt']
  text = json.dumps(manifest)
  (step / 'manifest.json').write_text(text)
  (step / 'COMMIT').write_text(hashlib.sha256(text.encode()).hexdigest())
  with pytest.raises(CheckpointError, match='has no array that Orbax can find'):
    manager.restore_latest(_tree(0))


@pytest.mark.parametrize(
  'name', ['w]', 'w{1}', 'w 1', 'w%20', 'w:1', 'w#1', 'é']
)
def test_other_names_are_as_good_as_any(tmp_path, name):
  assert not disk.pattern_in(tmp_path / name)
  manager = CheckpointManager(tmp_path / name)
  manager.save(1, _tree(1))
  assert _equal(manager.restore_latest(_tree(0)).arrays, _tree(1))


@pytest.mark.parametrize(
  'how', ['no commit', 'host', 'truncated', 'bit flip', 'missing']
)
def test_damaged_falls_back_saying_so(tmp_path, how, caplog):
  manager = CheckpointManager(tmp_path, keep=2)
  manager.save(1, _tree(1), {'a': 1})
  manager.save(2, _tree(2), {'a': 1})
  _damage(manager.path(2), how)
  restored = manager.restore_latest(_tree(0.0))
  assert restored.step == 1 and _equal(restored.arrays, _tree(1))
  assert 'step_00000002' in restored.skipped[0]
  assert 'is damaged' in caplog.text
  manager.save(2, _tree(5), {'a': 1})  # the same step can be saved again
  assert manager.restore_latest(_tree(0.0)).step == 2


def test_all_damaged_stops(tmp_path):
  manager = CheckpointManager(tmp_path)
  manager.save(1, _tree(1))
  _damage(manager.path(1), 'truncated')
  with pytest.raises(CheckpointError, match='no checkpoint of .* can be read'):
    manager.restore_latest(_tree(0.0))


def test_nothing_there(tmp_path):
  assert CheckpointManager(tmp_path / 'new').restore_latest(_tree(0)) is None


def test_killed_while_writing_leaves_the_one_before(tmp_path, monkeypatch):
  manager = CheckpointManager(tmp_path)
  manager.save(1, _tree(1))

  def die(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(checkpoint, '_commit', die)
  with pytest.raises(KeyboardInterrupt):
    manager.save(2, _tree(2))
  monkeypatch.undo()
  again = CheckpointManager(tmp_path)
  assert again.restore_latest(_tree(0.0)).step == 1
  again.save(3, _tree(3))
  assert not list(tmp_path.glob('tmp_*'))


@pytest.mark.parametrize('calls', range(4))
def test_killed_while_committing_no_folder_of_a_step_is_half(
  tmp_path, monkeypatch, calls
):
  """At each file that is made durable from the manifest on."""
  manager = CheckpointManager(tmp_path)
  sync, late = checkpoint._sync, []

  def die(path):
    if late or path.name == 'manifest.json':
      late.append(path)
    if len(late) > calls:
      raise KeyboardInterrupt
    sync(path)

  monkeypatch.setattr(checkpoint, '_sync', die)
  with pytest.raises(KeyboardInterrupt):
    manager.save(1, _tree(1))
  monkeypatch.undo()
  restored = CheckpointManager(tmp_path).restore_latest(_tree(0.0))
  assert restored is None if calls < 3 else restored.step == 1


def test_one_part_alone_is_read(tmp_path):
  manager = CheckpointManager(tmp_path)
  manager.save(1, _tree(5))
  wanted = {
    'a/kernel': jax.ShapeDtypeStruct((4, 3), jnp.float32),
    'b': jax.ShapeDtypeStruct((3,), jnp.float32),
  }
  found = manager.restore_latest(wanted, part='policy')
  assert _equal(found.arrays, _tree(5)['policy'])
  wanted['b'] = jax.ShapeDtypeStruct((4,), jnp.float32)
  with pytest.raises(CheckpointError, match='other shapes'):
    manager.restore_latest(wanted, part='policy')
  with pytest.raises(CheckpointError, match='missing'):
    manager.restore_latest(_tree(0.0)['policy'], part='value')


def test_another_model_is_named(tmp_path):
  manager = CheckpointManager(tmp_path)
  manager.save(1, _tree(1))
  other = _tree(0.0)
  other['policy']['b'] = jnp.zeros(4)
  with pytest.raises(CheckpointError, match='another model'):
    manager.restore_latest(other)


def test_small_model_saves_fast(tmp_path):
  leaves = {f'layer{i}': jnp.ones((128, 128)) for i in range(60)}
  manager = CheckpointManager(tmp_path)
  manager.save(0, leaves)
  best = 9.0
  for step in range(1, 4):
    began = time.monotonic()
    manager.save(step, leaves)
    best = min(best, time.monotonic() - began)
  assert best < 1.5  # 0.2-0.5 s measured; room for a loaded machine


def test_keep_must_be_positive(tmp_path):
  with pytest.raises(ValueError, match='keep=0'):
    CheckpointManager(tmp_path, keep=0)


def test_the_best_is_kept_beside_the_last_ones(tmp_path):
  manager = CheckpointManager(tmp_path, keep=2)
  for step, score in enumerate((0.1, 0.4, 0.4, None, 0.3, 0.2, None), 1):
    manager.save(step, _tree(step), score=score)
  assert manager.steps() == [2, 6, 7]
  assert manager.scores() == {2: 0.4, 6: 0.2}
  assert manager.best_step() == manager.best().step == 2  # of equals the first
  assert manager.latest().step == 7
  manager.save(8, _tree(8), score=0.5)
  assert manager.steps() == [7, 8] and manager.best_step() == 8


def test_without_scores_there_is_no_best(tmp_path):
  manager = CheckpointManager(tmp_path)
  assert manager.best() is None
  manager.save(1, _tree(1))
  assert manager.best_step() is None and manager.best() is None


def test_a_damaged_best_gives_way_to_the_next(tmp_path, caplog):
  manager = CheckpointManager(tmp_path)
  for step, score in ((1, -0.5), (2, 0.5), (3, 0.0)):
    manager.save(step, _tree(step), score=score)
  _damage(manager.path(2), 'host')
  assert manager.best().step == 3 and 'the next best' in caplog.text
  for step in (1, 3):
    _damage(manager.path(step), 'host')
  with pytest.raises(CheckpointError, match='no checkpoint of .* can be read'):
    manager.best()


@pytest.mark.parametrize('text', ['', '{}', '{"score": NaN}', '[1]', '"a"'])
def test_a_score_that_is_none_makes_no_best(tmp_path, text):
  manager = CheckpointManager(tmp_path)
  (manager.save(1, _tree(1), score=0.5) / 'score.json').write_text(text)
  manager.save(2, _tree(2), score=0.1)
  assert manager.best_step() == 2


def test_a_kill_before_old_ones_are_removed_leaves_the_same_best(
  tmp_path, monkeypatch
):
  manager = CheckpointManager(tmp_path, keep=1)
  manager.save(1, _tree(1), score=0.1)
  with monkeypatch.context() as patch:
    patch.setattr(manager, 'remove_old', lambda: None)
    manager.save(2, _tree(2), score=0.9)
  assert CheckpointManager(tmp_path, keep=1).best_step() == 2
  manager.save(3, _tree(3), score=0.2)
  assert manager.steps() == [2, 3]
