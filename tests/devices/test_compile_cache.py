"""What one start has compiled the next one reads, and nothing that is not whole."""

import json
import logging
import os
import pathlib
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from jaxagent.devices import compile_cache
from jaxagent.learner import Learner, LearnerConfig, compiles
from jaxagent.models import ModelConfig
from tests.learner.conftest import make_samples

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ModelConfig(
  vocab_size=64,
  hidden_size=32,
  intermediate_size=64,
  num_hidden_layers=1,
  num_attention_heads=4,
  num_key_value_heads=2,
  head_dim=8,
)
LEARNER = LearnerConfig(kl_coef=0.05, micro_batch_tokens=4096, row_tokens=(64,))

# A step of the learner and its neighbours: donated arguments, a scan, a gradient.
PROGRAM = """
import functools, hashlib, json, logging, sys
import jax, jax.numpy as jnp
from jaxagent.devices import compile_cache
from jaxagent.learner import compiles

logging.basicConfig(level=logging.WARNING)

def loss(weights, x):
  def layer(carry, weight):
    return jnp.tanh(carry @ weight), None
  y, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
  return -jax.nn.log_softmax(y)[:, 0].mean()

@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(weights, moments, x):
  value, gradient = jax.value_and_grad(loss)(weights, x)
  moments = 0.9 * moments + gradient
  return weights - 0.1 * moments, moments, value

with compile_cache.using(sys.argv[1]) as folder:
  key = jax.random.key(0)
  weights = jax.random.normal(key, (6, 96, 96)) / 10
  moments, x = jnp.zeros_like(weights), jax.random.normal(key, (640, 96))
  for _ in range(3):
    given = weights
    weights, moments, value = step(weights, moments, x)
  digest = hashlib.sha256(jax.device_get(weights).tobytes()).hexdigest()
print(json.dumps({
  'folder': str(folder), 'digest': digest, 'value': float(value),
  'donated': given.is_deleted(), 'compiled': compiles.count(),
  'read': compiles.read(),
}))
"""


def _run(setting, tmp_path, **variables) -> tuple[dict, str]:
  env = {k: v for k, v in os.environ.items() if not k.startswith('JAX_')}
  env |= {'JAX_PLATFORMS': 'cpu', 'XDG_CACHE_HOME': str(tmp_path / 'xdg')}
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, str(setting)],
    cwd=ROOT,
    env=env | variables,
    capture_output=True,
    text=True,
    check=True,
  )
  return json.loads(done.stdout), done.stderr


def _entries(folder) -> list[pathlib.Path]:
  return sorted(pathlib.Path(folder).glob('*.program'))


def test_a_second_start_compiles_nothing_and_computes_the_same(tmp_path):
  without, _ = _run('off', tmp_path)
  first, _ = _run('auto', tmp_path)
  second, said = _run('auto', tmp_path)
  assert without['folder'] == 'None' and without['read'] == 0
  assert pathlib.Path(first['folder']).is_relative_to(
    tmp_path / 'xdg' / 'jaxagent' / 'compiled'
  )
  assert first['read'] == 0
  assert second['read'] == second['compiled'] == first['compiled'] > 3
  assert second['digest'] == first['digest'] == without['digest']
  assert second['donated'] and first['donated']
  assert 'AOT' not in said, 'XLA doubts what it loads'


@pytest.mark.slow
def test_the_learners_programs_of_an_earlier_start_give_the_same_digits(
  tmp_path, monkeypatch
):
  monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR', raising=False)

  def start():
    jax.clear_caches()
    before = compiles.read()
    with compile_cache.using(str(tmp_path)):
      learner = Learner(MODEL, LEARNER, seed=1)
      metrics = [learner.rl_update(make_samples(8, v), None, v) for v in (0, 1)]
      leaves = jax.tree.leaves(learner.state())
    figures = [
      {k: v for k, v in found.items() if k.startswith(('actor/', 'critic/'))}
      for found in metrics
    ]
    read = compiles.read() - before
    return read, figures, [np.asarray(leaf).tobytes() for leaf in leaves]

  _, *fresh = start()
  read, *again = start()
  assert len(fresh[0][0]) > 5 and read > 5
  assert again == fresh


@pytest.mark.slow
def test_a_damaged_entry_is_compiled_again_and_replaced(tmp_path):
  first, _ = _run(tmp_path, tmp_path)
  entries = _entries(first['folder'])
  for number, entry in enumerate(entries):
    content = bytearray(entry.read_bytes())
    if number % 3 == 0:
      content = content[: len(content) // 2]
    elif number % 3 == 1:
      content[len(content) // 2] ^= 1
    else:
      content = b''
    entry.write_bytes(content)
  second, said = _run(tmp_path, tmp_path)
  assert second['digest'] == first['digest'] and second['read'] == 0
  assert said.count('is damaged') == len(entries)
  third, said = _run(tmp_path, tmp_path)
  assert third['read'] == third['compiled'] and 'damaged' not in said


def test_a_folder_that_cannot_be_written_is_a_warning_and_no_cache(tmp_path):
  file = tmp_path / 'file'
  file.write_text('')
  found, said = _run(file, tmp_path)
  assert found['folder'] == 'None' and found['compiled']
  assert said.count('are not kept') == 1 and 'compile_cache' in said


def test_a_folder_that_others_may_write_is_not_used(tmp_path, caplog):
  folder = tmp_path / compile_cache.machine()
  folder.mkdir()
  folder.chmod(0o777)
  with caplog.at_level(logging.WARNING):
    assert _using(tmp_path) is None
  assert 'others' in caplog.text
  folder.chmod(0o700)
  assert _using(tmp_path) == folder


def _using(setting):
  with pytest.MonkeyPatch.context() as patch:
    patch.delenv('JAX_COMPILATION_CACHE_DIR', raising=False)
    with compile_cache.using(str(setting)) as folder:
      return folder


def test_the_environments_folder_wins(tmp_path):
  theirs = tmp_path / 'theirs'
  found, _ = _run(
    tmp_path / 'ours',
    tmp_path,
    JAX_COMPILATION_CACHE_DIR=str(theirs),
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
  )
  assert found['folder'] == 'None'
  assert list(theirs.glob('*-cache')) and not (tmp_path / 'ours').exists()


def test_auto_keeps_nothing_where_a_run_has_several_processes(
  monkeypatch, tmp_path
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
  monkeypatch.setattr(compile_cache.jax, 'process_count', lambda: 2)
  assert _using('auto') is None
  assert _using(tmp_path / 'shared')


def test_a_machine_with_other_instructions_or_cores_has_another_folder(
  monkeypatch,
):
  here = compile_cache.machine()
  assert compile_cache.machine() == here
  monkeypatch.setattr(compile_cache, '_processor', lambda: ['flags:avx512f'])
  other = compile_cache.machine()
  monkeypatch.setattr(os, 'sched_getaffinity', lambda process: set(range(77)))
  assert len({here, other, compile_cache.machine()}) == 3
  monkeypatch.undo()
  assert any('flags' in part for part in compile_cache._processor())


def test_what_was_used_longest_ago_goes_first_in_the_folders_of_all_machines(
  tmp_path,
):
  other, own = tmp_path / 'other', tmp_path / 'own'
  for folder in (other, own):
    folder.mkdir()
  old = compile_cache.Entries(other, most_bytes=4000)
  new = compile_cache.Entries(own, most_bytes=4000)
  old.put('a', b'x' * 1000)
  new.put('b', b'x' * 1000)
  new.put('c', b'x' * 1000)
  for age, entries, key in ((30, old, 'a'), (20, new, 'b'), (10, new, 'c')):
    past = time.time() - age
    os.utime(entries._file(key), (past, past))
  assert old.get('a')  # used again: now the newest
  new.put('d', b'x' * 1500)
  assert new.get('b') is None
  assert old.get('a') and new.get('c') and new.get('d')
  new.put('e', b'x' * 5000)  # more than all of it: nothing goes for it
  assert new.get('e') is None and old.get('a')


def test_what_a_killed_writer_left_is_no_entry_and_goes_in_time(tmp_path):
  folder = tmp_path / 'own'
  folder.mkdir()
  entries = compile_cache.Entries(folder)
  left = folder / 'some-1-2.writing'
  left.write_bytes(b'half')
  entries.put('a', b'x')
  assert left.exists()  # its writer may be at it
  os.utime(left, (time.time() - 7200,) * 2)
  entries.put('b', b'x')
  assert not left.exists() and entries.get('a') == b'x'


def test_a_full_disk_ends_no_run(tmp_path, monkeypatch):
  folder = tmp_path / 'own'
  folder.mkdir()

  def full(*arguments):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(compile_cache.os, 'replace', full)
  compile_cache.Entries(folder).put('a', b'x')
  assert not list(folder.iterdir())
