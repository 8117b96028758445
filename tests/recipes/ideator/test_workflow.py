"""Metrics of a batch of ideas by hand, and who answers in a run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from configs import ideator
from jaxagent import types
from jaxagent.recipes.ideator import collect, prompt, roles
from jaxagent.recipes.ideator.interaction import (
  IDEATOR,
  IMPLEMENTER,
  HelpState,
  Question,
)
from jaxagent.recipes.ideator.parser import Idea, parse_idea
from jaxagent.recipes.ideator.recipe import Ideator
from jaxagent.recipes.ideator.record import IdeaRecord
from jaxagent.recipes.ideator.workflow import Prompts, figures
from tests.recipes.ideator.test_endpoints import state as help_state
from tests.recipes.ideator.test_interaction import state
from tests.stand_ins.test_implementer import SPECS, stuck

O = types.Outcome
SPEC = SimpleNamespace(
  name='wine',
  kind='classification',
  modality='tabular',
  metric='log_loss',
  higher_is_better=False,
  research_problem='Tell wines apart.',
  submission='submission.csv',
)


def idea(action: str, kind: str, score: float | None, **more) -> IdeaRecord:
  own = dict(
    task='t',
    outcome=O.OK if score is not None else O.NO_SUBMISSION,
    exec_s=1.0,
    valid_action=True,
    entries={'ACTION': action},
    idea_type=kind,
    score_before=0.5,
    score_after=score,
    higher_is_better=True,
  )
  return IdeaRecord(**own | more)


def test_metrics_of_a_batch_are_those_computed_by_hand():
  records = [
    idea('Use Ridge.', 'Model Architecture', 0.6),
    idea('use  ridge.', 'Model Architecture', 0.4, behind_best=True),
    idea('Set a.', 'Hyperparameter Tuning', None),
    idea(
      '', '', None, valid_action=False, outcome=O.INVALID_FORMAT, entries={}
    ),
  ]
  groups = [[1.0] * 2 + [0.0] * 6, [0.0] * 8]
  found = figures(groups, records)
  assert found['ideator/mixed_groups'] == 0.5
  assert found['ideator/distinct_ideas'] == pytest.approx(2 / 3)
  third = 1 / 3
  assert found['ideator/type_entropy'] == pytest.approx(
    -(2 * third * math.log(2 * third) + third * math.log(third))
  )
  assert found['ideator/best_of_8'] == 0.5
  assert found['ideator/mean_of_8'] == pytest.approx(1 / 8)
  assert found['ideator/best_is_not_last'] == 0.25
  shares = {k: v for k, v in found.items() if '/result/' in k}
  assert shares == {
    'ideator/result/improved': 0.25,
    'ideator/result/not_better': 0.25,
    'ideator/result/no_submission': 0.25,
    'ideator/result/format_error': 0.25,
  }
  names = Ideator.metric_names
  assert all(
    name in names or any(p.endswith('/') and name.startswith(p) for p in names)
    for name in found
  )


def test_a_batch_of_nothing_has_no_metrics():
  assert figures([], []) == {}


# Roles ----------------------------------------------------------------------------


def host_of(**options):
  config = ideator.get_config().unlock()
  for key, value in options.items():
    section, _, name = key.partition('__')
    config[section][name] = value
  return SimpleNamespace(config=config, spec=lambda task: SPEC)


def ask(run: str, role: str, asked):
  return SimpleNamespace(
    call=SimpleNamespace(prompt=Question(run, asked, 2), role=role),
    prompt=SimpleNamespace(prompt_id=run),
  )


def test_with_none_nobody_can_be_asked_and_a_sentence_needs_no_model():
  host = host_of()
  assert roles.adviser(host, 'none') is None
  assert set(collect.frozen_of(host, 'none')) == {IMPLEMENTER}
  for kind, sentence in (('null', prompt.NULL), ('vague', prompt.VAGUE)):
    found = roles.adviser(host, kind)
    assert found.sentence == sentence and found.role == ''
    assert set(collect.frozen_of(host, kind)) == {IMPLEMENTER}
  assert set(collect.frozen_of(host, 'blind')) == {IMPLEMENTER, IDEATOR}


def test_answers_depend_on_run_and_step_and_not_on_the_arm():
  asked = help_state().state
  draw = {
    kind: roles.ideator(host_of(), kind).draw for kind in ('blind', 'scripted')
  }
  texts = [
    draw['blind'](ask(f'wine-{n}', IDEATOR, asked)).text for n in (0, 0, 1)
  ]
  assert texts[0] == texts[1] != texts[2]
  assert isinstance(parse_idea(texts[0]), Idea)
  assert isinstance(
    parse_idea(draw['scripted'](ask('wine-0', IDEATOR, asked)).text), Idea
  )
  made = state(task='wine', files={'train.py': 'model = make_pipeline(A())\n'})
  first = [
    collect.frozen_of(host_of(), kind)[IMPLEMENTER]
    .draw(ask('wine-0', IMPLEMENTER, made))
    .text
    for kind in ('none', 'blind')
  ]
  assert first[0] == first[1]


def test_each_role_has_its_own_number_of_answers_at_once():
  host = host_of(implementer__max_concurrency=5, ideator__max_concurrency=3)
  host.config.rollout.max_num_seqs = 1
  found = collect.frozen_of(host, 'scripted')
  assert found[IMPLEMENTER].max_concurrency == 5
  assert found[IDEATOR].max_concurrency == 3


def test_the_style_of_the_prompt_is_that_of_the_config():
  asked = help_state().state
  tiny = Prompts(host_of()).text(asked)
  assert tiny.startswith('Task: tabular classification\nMetric: log_loss')
  full = Prompts(host_of(rollout__prompt_style='full')).text(asked)
  assert 'Tell wines apart.' in full and 'PRESENT SCORE (log_loss' in full
  assert 'Try 0 failed.' in full


@pytest.mark.parametrize('augment, own', [(0.0, 8), (0.75, 2), (1.0, 0)])
def test_a_share_of_the_teachers_answers_is_to_the_state_as_of_another_task(
  augment, own
):
  host = host_of(ideator__answers=8, ideator__augment=augment)
  host.spec = SPECS.__getitem__
  pool = SimpleNamespace(train=[HelpState('a/0', 'a', stuck('wine'))])
  recipe = SimpleNamespace(context=host, config=host.config, _pool=pool)
  found = list(Ideator._answers(recipe))
  assert len(found) == 8
  assert all(isinstance(parse_idea(text), Idea) for _, _, text in found)
  assert all(spec is SPECS['wine'] for _, spec, _ in found[:own])
  others = [(spec.modality, spec.kind) for _, spec, _ in found[own:]]
  assert not others or len(set(others)) > 1
  prompts = [Prompts(host).text(made, spec=spec) for made, spec, _ in found]
  for text, (_, spec, _) in zip(prompts, found):
    assert text.startswith(f'Task: {spec.modality} {spec.kind}\n')
