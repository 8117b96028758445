"""Tasks on which the scripted editor can do nothing are named when a run starts."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

import pytest

from jaxagent.config import recipe
from jaxagent.runtime import context as context_
from jaxagent.stand_ins.editor import ScriptedEditor

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'


def _told(capsys, monkeypatch, names, acting=True):
  editor = ScriptedEditor()
  prepared = {
    name: SimpleNamespace(
      starter_files={'train.py': (TASKS / name / 'env/train.py').read_text()}
    )
    for name in names
  }
  made = SimpleNamespace(config=None, editor=editor, prepared=prepared)
  found = SimpleNamespace(stand_ins=lambda c: (editor,) if acting else ())
  monkeypatch.setattr(recipe, 'find', lambda config: found)
  context_._tell_what_is_for_models(made)
  return capsys.readouterr().err


def test_tasks_that_only_a_model_can_act_on_are_named(capsys, monkeypatch):
  told = _told(capsys, monkeypatch, ('wine', 'CLRS', 'fathomnet', 'babylm'))
  assert 'fathomnet, babylm' in told and 'wine' not in told


@pytest.mark.parametrize('acting', [True, False])
def test_nothing_is_said_where_it_can_act_or_does_not(
  capsys, monkeypatch, acting
):
  names = ('wine', 'AI4Code') if acting else ('fathomnet',)
  assert not _told(capsys, monkeypatch, names, acting)
