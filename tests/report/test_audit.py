"""The audit finds what was changed, and nothing where nothing was."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import ClassVar

import pytest

from jaxagent import audit, records, types
from tests import made
from tests.envs import program_task


def _record(i, **changes):
  record = {
    'prompt_id': f'0/{i}/0',
    'task': 'wine',
    'outcome': 'ok',
    'valid_action': True,
    'is_edit': True,
    'score_before': 0.8,
    'score_after': 0.81,
    'alpha': 100 / 0.2,
    'reward': 1 / (1 + math.exp(-5.0)),
  }
  return record | changes


RECORDS = [
  _record(0),
  _record(1, outcome='script_error', score_after=None, reward=0.0),
  _record(2, outcome='timeout', score_after=None, reward=0.5),
  _record(3, is_edit=False, score_after=None, reward=0.5),
  _record(4, outcome='infrastructure', score_after=None, reward=None),
]


def _write(run, records, update=0):
  folder = run / 'rl' / 'traces'
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f'update_{update:06d}.jsonl'
  sealed = audit.seal(records, path.stem)
  path.write_text(''.join(json.dumps(r) + '\n' for r in sealed))
  return path


def test_a_true_run_has_no_differences(tmp_path, capsys):
  _write(tmp_path, RECORDS)
  assert audit.main([str(tmp_path)]) == 0
  assert '5 rewards derived again, 5 of them sealed, 0' in (
    capsys.readouterr().out
  )


def test_every_changed_byte_is_found(tmp_path):
  path = _write(tmp_path, RECORDS[:2])
  good = path.read_bytes()
  for at in range(0, len(good), 7):
    bad = bytearray(good)
    bad[at] = ord('7') if bad[at] != ord('7') else ord('8')
    path.write_bytes(bytes(bad))
    found = audit.audit(tmp_path)
    assert found['differences'], f'byte {at}: {bytes(bad[at - 9 : at + 9])}'
  path.write_bytes(good.split(b'\n', 1)[1])  # the first record left out
  assert 'missing' in audit.audit(tmp_path)['differences'][0]['problem']


def test_a_forged_reward_is_named(tmp_path, capsys):
  _write(tmp_path, [*RECORDS, _record(9, reward=1.0)])
  assert audit.main([str(tmp_path)]) == 1
  out = capsys.readouterr().out
  assert 'update_000000.jsonl:6 (prompt 0/9/0): reward given 1.0' in out


def test_switches_come_from_the_runs_config(tmp_path):
  _write(tmp_path, [_record(0, reward=1.0)])
  assert audit.audit(tmp_path)['differences']
  (tmp_path / 'config.json').write_text('{"reward": {"binary": true}}')
  assert not audit.audit(tmp_path)['differences']
  (tmp_path / 'eval').mkdir()  # what is evaluated has the reward whole
  steps = [_record(0), _record(1, reward=1.0)]
  (tmp_path / 'eval' / 'rl.json').write_text(json.dumps([{'steps': steps}]))
  (found,) = audit.audit(tmp_path)['differences']
  assert 'step 1: reward given 1.0' in f'{found["where"]}: {found["problem"]}'


def test_a_seal_without_its_hash_is_a_change(tmp_path):
  path = _write(tmp_path, RECORDS)
  path.write_text(path.read_text().replace('"hash":', '"hasi":', 1))
  assert 'hash is gone' in audit.audit(tmp_path)['differences'][0]['problem']


def test_unsealed_and_evaluation_records(tmp_path):
  (tmp_path / 'eval').mkdir()
  steps = [_record(0), _record(1, reward=0.2)]
  (tmp_path / 'eval' / 'rl.json').write_text(json.dumps([{'steps': steps}]))
  found = audit.audit(tmp_path)
  assert found['records'] == 2 and found['sealed'] == 0
  assert 'trajectory 0, step 1' in found['differences'][0]['where']


def _altered(path, what, with_):
  text = path.read_text()
  assert what in text
  path.write_text(text.replace(what, with_, 1))


def test_a_changed_observation_of_an_evaluation_is_found(tmp_path):
  """Also where no reward depends on it."""
  (tmp_path / 'eval').mkdir()
  step = _record(
    0, is_edit=False, score_after=None, reward=0.5, observation='a'
  )
  made = [{'task': 'wine', 'index': i, 'steps': [step]} for i in range(2)]
  path = tmp_path / 'eval' / 'rl.json'
  path.write_text(json.dumps(list(audit.seal(made, 'rl'))))
  found = audit.audit(tmp_path)
  assert (found['records'], found['sealed'], found['differences']) == (2, 2, [])
  _altered(path, '"observation": "a"', '"observation": "b"')
  (found,) = audit.audit(tmp_path)['differences']
  assert 'trajectory 0' in found['where'] and 'hash differs' in found['problem']


def test_experts_trajectories_are_read_and_sealed_in_any_order(tmp_path):
  (tmp_path / 'collect').mkdir()
  made = [{'task': 'wine', 'index': i, 'steps': [_record(i)]} for i in (1, 0)]
  path = tmp_path / 'collect' / 'trajectories.jsonl'
  lines = [
    json.dumps(s) for r in made for s in audit.seal([r], audit.name_of(r))
  ]
  path.write_text('\n'.join(lines) + '\n')
  found = audit.audit(tmp_path)
  assert (found['records'], found['sealed'], found['differences']) == (2, 2, [])
  _altered(path, '"reward": 0.99', '"reward": 0.98')
  found = audit.audit(tmp_path)['differences']
  assert len(found) == 2 and all('jsonl:1' in f['where'] for f in found)


def test_a_record_that_is_gone_from_the_end_is_missed(tmp_path):
  path = _write(tmp_path, RECORDS)
  path.write_text(''.join(path.read_text().splitlines(keepends=True)[:-1]))
  (found,) = audit.audit(tmp_path)['differences']
  assert found['problem'] == '4 of 5 records are there'


def test_a_file_that_is_gone_or_empty_is_missed(tmp_path):
  first, second = (_write(tmp_path, RECORDS, update) for update in (0, 1))
  (tmp_path / 'rl' / 'checkpoints' / 'step_00000002').mkdir(parents=True)
  assert not audit.audit(tmp_path)['differences']
  text = second.read_text()
  for path in (first, second):
    path.unlink()
    (found,) = audit.audit(tmp_path)['differences']
    assert (
      found['problem'] == f'the file of update {int(path.stem[-1])} is gone'
    )
    path.write_text('')
    (found,) = audit.audit(tmp_path)['differences']
    assert found == {
      'where': str(path),
      'prompt_id': '',
      'problem': 'its records are gone',
    }
    _write(tmp_path, RECORDS, int(path.stem[-1]))
  assert second.read_text() == text
  (tmp_path / 'eval').mkdir()
  (tmp_path / 'eval' / 'rl.json').write_text('[]')
  (found,) = audit.audit(tmp_path)['differences']
  assert found['where'].endswith('rl.json')


def test_a_folder_or_file_of_a_run_has_its_switches(tmp_path):
  path = _write(tmp_path, [_record(0, reward=1.0)])
  (tmp_path / 'config.json').write_text('{"reward": {"binary": true}}')
  for part in (path, path.parent, tmp_path):
    assert not audit.audit(part)['differences']


def test_nothing_to_read(tmp_path, capsys):
  assert audit.main([str(tmp_path)]) == 2
  assert 'no traces in' in capsys.readouterr().err


@records.register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Lucky(types.Record):
  """A recipe's own record."""

  KIND: ClassVar[str] = 'lucky'
  DERIVED_FROM: ClassVar[tuple[str, ...]] = ('luck',)

  luck: float

  def derive(self, switches: Mapping[str, bool] = {}):
    return (
      self.luck / (0.5 - self.luck) if self.luck else types.NoReward.NO_SCALE
    )


def test_a_recipes_own_reward_is_derived_by_its_record(tmp_path, capsys):
  def line(luck, reward):
    return made.turn(
      Lucky(outcome=types.Outcome.OK, luck=luck), reward=reward
    ).to_json()

  _write(tmp_path, [line(0.25, 1.0), line(0.0, None)])
  own = f'--record={__name__}:Lucky'
  assert audit.main([str(tmp_path), own]) == 0
  _write(tmp_path, [line(0.25, 0.5), line(0.0, 1.0), line(0.5, 1.0)])
  assert audit.main([str(tmp_path), own]) == 1
  out = capsys.readouterr().out
  assert 'reward given 0.5, derived 1.0' in out
  assert 'reward given 1.0, derived no reward (no_scale)' in out
  assert 'no reward can be derived: ZeroDivisionError' in out
  assert audit.main([str(tmp_path), '--record=nothing:Here']) == 2
  assert "record 'nothing:Here' is not there" in capsys.readouterr().err


@pytest.mark.parametrize('value', [None, 'much', math.nan, [1.0]])
def test_a_recipes_reward_that_is_no_number_is_a_difference(
  tmp_path, capsys, monkeypatch, value
):
  monkeypatch.setattr(Lucky, 'derive', lambda *given: value)
  lucky = Lucky(outcome=types.Outcome.OK, luck=0.1)
  _write(tmp_path, [made.turn(lucky, reward=1.0).to_json()])
  assert audit.main([str(tmp_path), f'--record={__name__}:Lucky']) == 1
  said = f'no reward can be derived: Lucky gives {value!r}'
  assert said in capsys.readouterr().out


def test_a_kind_that_is_not_known_is_named_as_that(tmp_path):
  _write(tmp_path, [_record(0, kind='poem'), _record(1, format=9)])
  problems = [d['problem'] for d in audit.audit(tmp_path)['differences']]
  assert "its kind 'poem' is not known" in problems[0]
  assert "kind 'step' has format 9" in problems[1]


@pytest.mark.parametrize('line', ['nonsense', '[1]', '{"outcome": "ok"}'])
def test_damaged_lines_are_named(tmp_path, line):
  path = tmp_path / 'update_000001.jsonl'
  path.write_text(line + '\n')
  found = audit.audit(tmp_path)
  assert found['differences'][0]['where'].endswith('update_000001.jsonl:1')


def test_score_of_a_program_is_derived_from_its_recorded_seconds(tmp_path):
  times = {'program_s': [0.4, 0.8, 0.2], 'reference_s': [0.1, 0.1, 9.0]}
  gain = 1 / (1 + math.exp(-(-100 / 3) * (2.0 - 2.05)))
  true = _record(
    0,
    score_before=2.05,
    score_after=2.0,  # log2(0.4 / 0.1)
    alpha=-100 / 3,
    reward=gain,
    measured=times,
  )
  assert audit.audit(_write(tmp_path / 'a', [true]))['differences'] == []
  faster = {**times, 'program_s': [0.1, 0.1, 0.1]}
  for number, (measured, reason) in enumerate(
    [
      (faster, 'score given 2.0, measured 0.0'),
      ({**times, 'reference_s': [0.0]}, 'no score can be derived'),
      ({'program_s': 3}, 'no score can be derived'),
      ({**times, 'program_s': [None]}, 'no score can be derived'),
    ]
  ):
    path = _write(tmp_path / str(number), [true | {'measured': measured}])
    (found,) = audit.audit(path)['differences']
    assert reason in found['problem']


@pytest.mark.parametrize('from_config', [True, False])
def test_score_of_a_program_without_its_measurement_is_named(
  tmp_path, capsys, from_config
):
  folder = tmp_path / 'some_tasks'
  program_task.write(folder)
  run, flags = tmp_path / 'run', [f'--tasks_dir={folder}']
  run.mkdir()
  if from_config:
    (run / 'config.json').write_text(json.dumps({'tasks_dir': str(folder)}))
    flags = []
  bare = _record(0, task='sums')
  _write(
    run, [bare, _record(1), _record(2, task='../run'), _record(3, task='')]
  )
  assert audit.main([str(run), *flags]) == 1
  said = capsys.readouterr().out
  assert 'score 0.81 of a program, without measurement' in said
  assert said.count('without measurement') == 1
  _write(run, [bare | {'score_after': None, 'outcome': 'invalid_submission'}])
  found = audit.audit(run, tasks_dir=folder)['differences']
  assert not any('without measurement' in d['problem'] for d in found)
