"""The scripted expert: valid responses, repeatable, of many kinds."""

from __future__ import annotations

import random

import pytest

from jaxagent import types
from jaxagent.envs import agents, parser
from jaxagent.stand_ins.expert import ScriptedExpert
from jaxagent.testing import fake_runs

SCRIPT = """from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
model = make_pipeline(LogisticRegression(C=1.0))
"""
TASK = fake_runs.task_spec()
STATE = types.State('s', 't', {'train.py': SCRIPT}, 0.5, 0.5)


def acts(expert, n, seed=0, **kwargs):
  rng = random.Random(seed)
  return [expert.act(STATE, TASK, rng, **kwargs) for _ in range(n)]


def test_responses_parse_and_vary():
  expert = ScriptedExpert()
  texts = acts(expert, 200)
  parsed = [
    parser.parse_response(t, actions=parser.DEFAULT_ACTIONS) for t in texts
  ]
  edits = [p for p in parsed if p.action in parser.EDIT_ACTIONS]
  assert 150 < len(edits) < 200
  assert len({p.args['edit_instruction'] for p in edits}) > 60
  assert all(len(p.args['edit_instruction']) <= 160 for p in edits)
  assert acts(expert, 20) == texts[:20]
  assert acts(expert, 20, seed=1) != texts[:20]


def test_without_thought():
  expert = ScriptedExpert(agent=agents.agent('without_thought'))
  for text in acts(expert, 20):
    parser.parse_response(text, required=parser.ENTRIES_WITHOUT_THOUGHT)
    with pytest.raises(parser.FormatError):
      parser.parse_response(text)


def test_follows_a_drawn_idea():
  expert = ScriptedExpert(p_look=0.0, p_idea=1.0)
  idea = 'Use LinearSVC(C=0.125) as the model'
  assert all(idea in t for t in acts(expert, 5, ideas=(idea,)))


def test_after_a_failure_it_says_so():
  state = types.State(
    's', 't', {'train.py': SCRIPT}, 0.5, 0.5, last_outcome='timeout'
  )
  text = ScriptedExpert().act(state, TASK, random.Random(0))
  assert 'timeout' in parser.parse_response(text).entries['Reflection']


def test_quality_is_checked():
  with pytest.raises(ValueError, match='quality=2'):
    ScriptedExpert(quality=2)
