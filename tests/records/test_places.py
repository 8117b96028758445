"""`records.json` names a recipe's class; nothing within a run is imported unasked."""

from __future__ import annotations

import json
import re
import sys

import pytest

from jaxagent import audit, records
from jaxagent.files import modules
from jaxagent.records import codec
from jaxagent.traces import __main__ as traces
from jaxagent.types import Outcome

RECIPE = """
import dataclasses
from jaxagent.types import Outcome, Record

@dataclasses.dataclass(frozen=True, kw_only=True)
class LuckRecord(Record):
  KIND = 'luck'
  DERIVED_FROM = ('luck',)
  luck: float

  def derive(self, switches={}):
    return 2 * self.luck
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
  monkeypatch.setattr(codec, '_known', dict(codec._known))
  monkeypatch.setattr(sys, 'path', list(sys.path))


@pytest.fixture
def run(tmp_path):
  """A work directory with a trace of a recipe beside it."""
  (tmp_path / 'own.py').write_text(RECIPE)
  work = tmp_path / 'work'
  traces = work / 'rl' / 'traces'
  traces.mkdir(parents=True)
  record = {
    'kind': 'luck', 'format': 1, 'outcome': 'ok', 'luck': 0.25, 'reward': 0.5,
    'prompt_id': '0/0/0',
  }  # fmt: skip
  lines = audit.seal([record], 'update_000000')
  (traces / 'update_000000.jsonl').write_text(
    ''.join(json.dumps(one) + '\n' for one in lines)
  )
  return work


def _record(run):
  return records.load(f'{run.parent / "own.py"}:LuckRecord')


def _refused(run, capsys) -> str:
  assert audit.main([str(run)]) == 2
  error = capsys.readouterr().err
  assert error.startswith('error: ') and error.count('\n') == 1, error
  return error


def test_the_audit_finds_the_class_that_a_run_has_noted(run, capsys):
  records.note(run, _record(run))
  for asked in (run, run / 'rl' / 'traces'):
    codec._known.pop('luck', None)
    assert audit.main([str(asked)]) == 0
    assert '1 rewards derived again, 1 of them sealed, 0 differences' in (
      capsys.readouterr().out
    )


def test_traces_are_written_of_a_run_with_a_record_of_its_own(run, capsys):
  made = _record(run)(luck=0.25, outcome=Outcome.OK)
  one = records.Evaluated(
    task='wine', index=0, split='heldin', score=0.5,
    steps=(records.TakenStep(record=made, reward=0.5),),
  )  # fmt: skip
  (run / 'eval').mkdir()
  (run / 'eval' / 'rl.json').write_text(json.dumps([one.to_json()]))
  records.note(run, type(made))
  codec._known.pop('luck', None)
  assert traces.main([str(run)]) == 0, capsys.readouterr().err
  assert '1 traces below' in capsys.readouterr().out


def test_without_the_note_the_kind_is_named_as_unknown(run, capsys):
  assert audit.main([str(run)]) == 1
  assert "its kind 'luck' is not known" in capsys.readouterr().out


def test_a_class_of_the_package_is_not_noted(tmp_path):
  records.note(tmp_path, records.StepRecord)
  assert not (tmp_path / 'records.json').exists()


def test_another_recipes_records_in_a_work_directory_are_refused(run):
  noted = _record(run)
  records.note(run, noted)
  records.note(run, noted)  # a resumed run
  before = (run / 'records.json').read_text()
  with pytest.raises(ValueError, match='kind luck, of another.*kind step'):
    records.note(run, records.StepRecord)
  (run.parent / 'other.py').write_text(RECIPE.replace("'luck'", "'chance'", 1))
  other = records.load(f'{run.parent / "other.py"}:LuckRecord')
  with pytest.raises(ValueError, match='kind luck, of another.*kind chance'):
    records.note(run, other)
  assert (run / 'records.json').read_text() == before


@pytest.mark.parametrize(
  'text',
  ['', '{', 'null', '[]', '5', '["own.py:LuckRecord"]', '{"luck": 5}', '\xff'],
)
def test_a_damaged_note_is_refused_with_the_option_that_replaces_it(
  run, capsys, text
):
  (run / 'records.json').write_bytes(text.encode('latin-1'))
  error = _refused(run, capsys)
  assert 'records.json' in error and '--record' in error


def test_a_note_deeper_than_any_reader_goes_is_refused(run, capsys):
  (run / 'records.json').write_text('[' * 100_000)
  assert 'is damaged' in _refused(run, capsys)


@pytest.mark.parametrize(
  'place, problem',
  [
    ('/nowhere/at/all.py:LuckRecord', 'FileNotFoundError'),
    ('no_such_module:LuckRecord', 'ModuleNotFoundError'),
    ('json:LuckRecord', 'AttributeError'),
    ('json:JSONDecoder', 'must be a subclass of jaxagent.types.Record'),
    ('json', 'is not there'),
    ('', 'is not there'),
  ],
)
def test_a_note_that_leads_nowhere_is_refused_by_its_place(
  run, capsys, place, problem
):
  (run / 'records.json').write_text(json.dumps({'luck': place}))
  error = _refused(run, capsys)
  assert problem in error and repr(place) in error


@pytest.mark.parametrize('way', ('plain', 'link', 'dots', 'folder link'))
def test_a_class_within_the_run_is_never_imported_unasked(
  run, capsys, way, tmp_path
):
  evil = run / 'evil.py'
  evil.write_text("raise SystemExit('imported')\n")
  place = evil
  if way == 'link':
    place = tmp_path / 'outside.py'
    place.symlink_to(evil)
  elif way == 'dots':
    place = run.parent / 'work' / '..' / 'work' / 'evil.py'
  elif way == 'folder link':
    (tmp_path / 'other').symlink_to(run)
    place = tmp_path / 'other' / 'evil.py'
  (run / 'records.json').write_text(json.dumps({'luck': f'{place}:Evil'}))
  assert 'lies in the run itself' in _refused(run, capsys)


def test_a_module_within_the_run_is_not_imported_by_its_name_either(
  run, capsys, monkeypatch
):
  """The working directory is on the path of `python -m jaxagent.audit`."""
  (run / 'evil_module.py').write_text("raise SystemExit('imported')\n")
  monkeypatch.chdir(run)
  monkeypatch.syspath_prepend(str(run))
  (run / 'records.json').write_text(json.dumps({'luck': 'evil_module:Evil'}))
  assert 'lies in the run itself' in _refused(run, capsys)


def test_a_class_within_the_run_is_read_when_it_is_asked_for(run):
  inside = run / 'own.py'
  inside.write_text(RECIPE)
  assert audit.main([str(run), '--record', f'{inside}:LuckRecord']) == 0


def test_a_reward_names_class_and_file_where_it_is_none(run, tmp_path):
  from jaxagent.errors import UserError
  from jaxagent.types import Outcome

  record = _record(run)(outcome=Outcome.OK, task='wine', luck=float('inf'))
  where = re.escape(str(tmp_path / 'own.py'))
  with pytest.raises(UserError, match=f'LuckRecord in {where}.derive: .*inf'):
    records.reward_of(record)
  assert modules.place_of(dict) == 'dict in builtins'
