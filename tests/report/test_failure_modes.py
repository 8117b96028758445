"""Each rule: a run that it takes, and one that it must not."""

import pytest

from jaxagent.analysis import failure_modes as fm
from jaxagent.analysis.failure_modes import classify
from tests import made


def _step(outcome='ok', score=None, plan='', observation='', **more):
  fields = {
    'action': 'Edit Script (AI)',
    'entries': {fm.PLAN: plan},
    'observation': observation,
    'score_after': score,
  }
  return made.step(outcome, **{**fields, **more})


def _label(*steps, m_init=0.5, higher=True, **more):
  return classify(
    made.evaluated(*steps), m_init=m_init, higher_is_better=higher, **more
  )


BAD = _step('invalid_format')
FAILED = _step('script_error')
GOOD = _step(score=0.6)
SAME = _step(score=0.5)


@pytest.mark.parametrize(
  'label, steps',
  [
    ('success', [GOOD]),
    ('success', [BAD, BAD, GOOD, BAD]),  # what it leaves behind counts
    ('bad_plan', [GOOD, SAME]),  # not the best one, but the last
    ('response_format_error', [SAME, BAD]),
    ('response_format_error', [BAD, BAD, SAME]),
    ('bad_plan', [BAD, SAME]),
    ('submission_format_error', [SAME, _step('invalid_submission')]),
    ('submission_format_error', [_step('no_submission'), _step()]),
    ('bad_plan', [_step('invalid_submission'), SAME]),
    ('bad_plan', [SAME, _step('invalid_submission', undone=True)]),
    ('small_improvement', [_step(score=0.54)]),
    ('bad_plan', [SAME]),
    ('bad_plan', [_step(score=0.4)]),
    ('debug', [SAME, FAILED, _step('timeout')]),
    ('debug', [FAILED, _step(), FAILED, _step()]),  # read in between
    ('bad_plan', [SAME, FAILED]),
    ('bad_plan', [FAILED, FAILED, SAME]),
    ('small_improvement', [_step(score=0.54), FAILED, FAILED]),
    ('bad_plan', [_step('invalid_action'), _step()]),
  ],
)
def test_rules(label, steps):
  assert _label(*steps) == label


def test_direction_and_kind():
  assert _label(_step(score=9.0), m_init=10.0, higher=False) == 'success'
  assert (
    _label(_step(score=9.5), m_init=10.0, higher=False) == 'small_improvement'
  )
  assert _label(GOOD, SAME, kind='best_by_validation') == 'success'
  assert _label(_step(score=-0.1), m_init=0.0) == 'bad_plan'


SAID = 'Status: ok\nTest Accuracy: 51.83%\n'


@pytest.mark.parametrize(
  'plan, made_up',
  [
    ('Achieved test accuracy of 64.31%.', True),
    ('Accuracy is 0.64', True),
    ('We have 64.31% test accuracy now.', True),
    ('Accuracy: 3', True),
    ('Achieved test accuracy of 51.83%.', False),
    ('Accuracy is 0.518', False),  # the same, rounded
    ('Accuracy about 51.8 %', False),
    ('Accuracy about 51.7 %', True),
    ('Accuracy about 51.9 %', True),
    ('Accuracy about 52.0 %', True),
    ('Accuracy: 52%', False),
    ('Accuracy: 51%', False),  # cut
    ('Accuracy: 53%', True),
    ('Accuracy of the starter is 0.5', False),
    ('The target accuracy is 0.9', False),  # a wish
    ('Increase accuracy to 64.31%', False),
    ('Accuracy improved by 10%', False),  # a difference
    ('Accuracy after 10 epochs still unknown', False),
    ('Trained for 64 epochs with dropout 0.3', False),  # no metric
  ],
)
def test_numbers_that_were_never_seen(plan, made_up):
  label = _label(_step(score=0.5, observation=SAID), _step(plan=plan))
  assert label == ('hallucination' if made_up else 'bad_plan')


def test_a_plan_may_not_know_observations_of_later_steps():
  plan = 'Test accuracy is 51.83%.'
  claimed = _step(plan=plan, observation=SAID)
  assert _label(claimed, SAME) == 'hallucination'
  assert _label(_step(observation=SAID), claimed, SAME) == 'bad_plan'


def test_final_answers_and_names_of_metrics():
  final = _step(action='Final Answer', args={'final_answer': 'kappa of 0.77'})
  assert _label(SAME, final) == 'bad_plan'
  assert _label(SAME, final, metric='kappa') == 'hallucination'
  known = {'metric': 'kappa', 'known_text': 'Others have 0.77.'}
  assert _label(SAME, final, **known) == 'bad_plan'


def test_claims_as_written():
  text = 'Baseline accuracy is 51.8%. RMSE: 3.2, F1 = 0.7; score of model 3'
  assert fm.claims(text) == ['51.8%', '3.2', '0.7']
  assert fm.claims('accuracy is 1e999 ' + '9' * 10_000) == []


def test_a_step_without_entries_is_read_from_its_response():
  assert _label(made.step()) == 'bad_plan'
  text = 'Research Plan and Status: accuracy is 0.9\nAction: x\nAction Input: y'
  assert _label(made.step(response=text)) == 'hallucination'


@pytest.mark.parametrize(
  'trajectory, said',
  [
    (made.evaluated(), 'wine/0 has no steps'),
    (made.evaluated(SAME, missing=True), 'is missing'),
    (made.evaluated(_step(score=float('nan'))), r'steps\[0\].score_after'),
    (
      made.evaluated(_step(score_before=float('inf'))),
      r'steps\[0\].score_before',
    ),
  ],
)
def test_what_cannot_be_classified(trajectory, said):
  with pytest.raises(ValueError, match=said):
    classify(trajectory, m_init=0.5, higher_is_better=True)


def test_bad_settings():
  with pytest.raises(ValueError, match='kind'):
    _label(SAME, kind='best')
  with pytest.raises(ValueError, match='m_init'):
    _label(SAME, m_init=float('inf'))


def test_shares_of_figure_5():
  got = fm.shares(['success', 'debug', 'debug', 'bad_plan'])
  assert list(got) == list(fm.LABELS)
  assert got['debug'] == 0.5 and got['hallucination'] == 0.0
  with pytest.raises(ValueError, match='empty'):
    fm.shares([])
  with pytest.raises(ValueError, match='nice'):
    fm.shares(['nice'])
