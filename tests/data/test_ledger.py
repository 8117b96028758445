"""The ledger: exactly once, atomically saved."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from jaxagent import types
from jaxagent.data import codec
from jaxagent.data.ledger import Ledger, LedgerError, Status


def _trained(n):
  ledger = Ledger()
  for i in range(n):
    pid = f'{i // 100}/{i % 100}/0'
    ledger.add(pid)
    ledger.start(pid)
    ledger.finish(pid)
    ledger.train([pid], i // 7)
  return ledger


def test_transitions_and_counts():
  ledger = Ledger()
  ledger.add('0/0/0')
  ledger.start('0/0/0')
  assert ledger.requeue('0/0/0', failed=True) == 1
  ledger.start('0/0/0')
  ledger.finish('0/0/0')
  ledger.train(['0/0/0'], 3)
  assert ledger.status('0/0/0') is Status.TRAINED
  assert ledger.update_of('0/0/0') == 3
  ledger.add('bad')
  ledger.quarantine('bad', 'killed its sandbox')
  assert ledger.quarantined() == {'bad': 'killed its sandbox'}
  assert ledger.counts()['trained'] == 1
  ledger.check(['0/0/0', 'bad'])


def test_nothing_is_trained_twice_or_drawn_twice():
  ledger = _trained(3)
  with pytest.raises(LedgerError, match='drawn twice'):
    ledger.add('0/1/0')
  with pytest.raises(LedgerError, match='by update 0'):
    ledger.train(['0/1/0'], 5)
  ledger.add('0/7/0')
  with pytest.raises(LedgerError, match='pending'):
    ledger.train(['0/7/0'], 1)
  with pytest.raises(LedgerError, match='skipped'):
    ledger.check(['0/0/0', '0/1/0', '0/2/0', '0/7/0', '9/9/9'])


def test_train_is_all_or_nothing():
  ledger = Ledger()
  for pid in ('0/0/0', '0/1/0'):
    ledger.add(pid)
  ledger.start('0/0/0')
  ledger.finish('0/0/0')
  with pytest.raises(LedgerError):
    ledger.train(['0/0/0', '0/1/0'], 1)
  assert ledger.status('0/0/0') is Status.FINISHED


def test_save_load_and_damage(tmp_path):
  ledger = _trained(300)
  ledger.add('7/0/0')
  ledger.start('7/0/0')
  path = tmp_path / 'ledger'
  ledger.save(path)
  again = Ledger.load(path)
  assert again.status('7/0/0') is Status.PENDING  # issued again
  assert list(again.trained()) == list(ledger.trained())
  assert os.listdir(tmp_path) == ['ledger']
  path.write_bytes(path.read_bytes()[:-20])
  with pytest.raises(LedgerError, match='damaged'):
    Ledger.load(path)


def test_a_large_ledger_is_compact(tmp_path):
  ledger = _trained(20000)
  ledger.save(tmp_path / 'l')
  assert (tmp_path / 'l').stat().st_size < 5 * 20000
  assert sum(a.nbytes for a in ledger._trained.values()) < 8 * 20000


def test_codec_takes_any_text_as_a_key():
  """File names of a policy's workspace are keys."""
  files = {'__kind__': 'bytes', 'value': 'x', 'train.py': ''}
  for value in (files, {'files': files}, {'__kind__': {'__kind__': 'dict'}}):
    assert codec.decode(json.loads(json.dumps(codec.encode(value)))) == value
  state = types.State('s', 'wine', files, None, None)
  assert codec.decode(json.loads(json.dumps(codec.encode(state)))) == state


def test_codec_round_trip():
  history = (types.PastStep('a', 'b', 'c', 'd'),)
  state = types.State('s', 't', {'a.py': 'x'}, 0.5, None, history=history)
  value = {
    'x': np.arange(5, dtype=np.int32),
    'f': [1.5, float('nan'), float('inf'), None, True, 3],
    'r': state,
    'o': types.Outcome.TIMEOUT,
    'b': b'\x00\xff',
    't': (1, 'a'),
    'n': np.float32(0.25),
  }
  again = codec.decode(json.loads(json.dumps(codec.encode(value))))
  np.testing.assert_array_equal(again['x'], value['x'])
  assert again['x'].dtype == np.int32
  assert again['r'] == state and again['o'] is types.Outcome.TIMEOUT
  assert np.isnan(again['f'][1]) and again['f'][2:] == [
    float('inf'),
    None,
    True,
    3,
  ]
  assert again['b'] == b'\x00\xff' and again['t'] == (1, 'a')
  with pytest.raises(TypeError, match='info.bad'):
    codec.encode({'bad': object()}, 'info')


def test_no_jax_comes_in():
  code = (
    'import sys, jaxagent.rollout.scheduler, jaxagent.clock, '
    'jaxagent.data.ledger, jaxagent.testing.fake_executor, '
    'jaxagent.testing.process_executor; '
    'assert "jax" not in sys.modules and "torch" not in sys.modules'
  )
  subprocess.run([sys.executable, '-c', code], check=True)
