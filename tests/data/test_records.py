"""Trajectory files: what a kill leaves behind is mended or named."""

from __future__ import annotations

import json
import logging

import pytest

from jaxagent import types
from jaxagent.data import records


def test_append_and_read(tmp_path):
  store = records.TrajectoryStore(tmp_path / 'sub' / 't.jsonl')
  assert store.read() == []
  rows = [{'a': 1}, {'text': 'two\nlines \u00e9'}]
  for row in rows:
    store.append(row)
  assert store.read() == rows
  assert records.TrajectoryStore(store.path).read() == rows


@pytest.mark.parametrize('torn', [b'{"a": 2', b'{"a": 2}', b'\xff\xfe'])
def test_torn_last_line_is_dropped(tmp_path, torn, caplog):
  path = tmp_path / 't.jsonl'
  records.TrajectoryStore(path).append({'a': 1})
  whole = path.read_bytes()
  path.write_bytes(whole + torn)
  with caplog.at_level(logging.WARNING):
    store = records.TrajectoryStore(path)
  assert path.read_bytes() == whole and 'unfinished' in caplog.text
  store.append({'a': 3})
  assert store.read() == [{'a': 1}, {'a': 3}]


def test_only_a_torn_line(tmp_path):
  path = tmp_path / 't.jsonl'
  path.write_bytes(b'{"a"')
  assert records.TrajectoryStore(path).read() == []


def test_damage_inside_is_named(tmp_path):
  path = tmp_path / 't.jsonl'
  path.write_text('{"a": 1}\n{"a"\n{"a": 3}\n')
  with pytest.raises(ValueError, match=r't\.jsonl:2 is damaged'):
    records.TrajectoryStore(path).read()


def test_state_round_trip():
  state = types.State(
    's',
    't',
    {'train.py': 'x\n'},
    0.5,
    None,
    last_outcome='ok',
    history=(types.PastStep('Edit Script (AI)', 'ok 0.5', 'said', 'seen'),),
    ideas=('one', 'two'),
    step=3,
  )
  text = json.dumps(records.state_to_json(state))
  assert records.state_from_json(json.loads(text)) == state


def test_a_state_of_an_older_record_is_read():
  record = records.state_to_json(types.State('s', 't', {}, 0.5, None))
  record['history'] = [['Edit Script (AI)', 'ok 0.5']]
  history = records.state_from_json(record).history
  assert history == (types.PastStep('Edit Script (AI)', 'ok 0.5'),)
