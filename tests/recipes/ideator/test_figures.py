"""Figures of arms by hand: Avg@3 on boards, ideas by fate and type, costs."""

from __future__ import annotations

import json
import threading

import pytest

from jaxagent.analysis.boards import Board
from jaxagent.envs.agents.implementer import idea_message
from jaxagent.recipes.ideator import dialogue, evaluate, figures
from jaxagent.recipes.ideator.parser import Idea
from jaxagent.recipes.ideator.record import ImplementerStepRecord
from jaxagent.recipes.ideator.spending import Purse, money
from jaxagent.records import Evaluated, TakenStep
from jaxagent.types import Outcome

BOARD = Board(
  't', 'reference', (0.0, 10.0), False, 'by hand'
)  # lower is better
TUNE, MODEL = 'Hyperparameter Tuning', 'Model Architecture'


def ran(score, private=None, **more) -> TakenStep:
  record = ImplementerStepRecord(
    task='t',
    outcome=Outcome.OK if score is not None else Outcome.NO_SUBMISSION,
    exec_s=2.0,
    action='ipython',
    response='x = 1',
    score_after=score,
    valid_action=True,
  )
  return TakenStep(record=record, private=private, **more)


def asked(kind=TUNE, action='Set it.', **more) -> TakenStep:
  record = ImplementerStepRecord(
    task='t',
    outcome=Outcome.OK,
    exec_s=0.001,
    action='seek_help',
    response='help',
    observation=idea_message(Idea('a', action, 'r').text),
    valid_action=True,
    idea_type=kind,
    **more,
  )
  return TakenStep(record=record)


def run(*steps, index=0, score=None) -> Evaluated:
  return Evaluated(
    task='t', index=index, split='heldin', score=score, steps=steps
  )


def arm(*runs, **more):
  return figures.of_arm(runs, {'t': BOARD}, **more)


def test_an_idea_improves_where_the_next_program_is_the_best_so_far():
  record = run(
    ran(5.0),
    asked(TUNE),
    ran(4.0),  # better
    asked(MODEL),
    asked(TUNE),  # nothing was run in between
    ran(4.5),  # better than none, but not than 4.0
    asked(MODEL),
  )
  assert evaluate.fates(record, False) == {
    1: (TUNE, True),
    3: (MODEL, None),
    4: (TUNE, False),
    6: (MODEL, None),
  }
  assert evaluate.ideas_of(record, False) == [(TUNE, True), (TUNE, False)]
  assert evaluate.fates(record, True)[4] == (TUNE, False)
  assert evaluate.fates(record, True)[1] == (TUNE, False)


def test_a_question_without_an_idea_counts_as_a_call_alone():
  found = arm(run(ran(5.0), asked(kind='', format_error='no item'), ran(4.0)))
  assert found['calls'] == 1 and found['ideas'] == 0
  assert found['improve'] is None and found['format_errors'] == 1
  assert found['types'] == {}


def test_scores_are_normalised_and_invalid_runs_are_left_out_as_the_paper_does():
  found = arm(
    run(ran(6.0, 5.0), index=0, score=5.0),
    run(ran(6.0, 2.0), ran(7.0, 8.0), index=1, score=8.0),
    run(ran(None), index=2),
  )
  assert found['avg_at_3'] == pytest.approx((50 + 20) / 2)
  assert found['best_at_3'] == pytest.approx(50)
  # The second run's best by the validation rows scores 2, normalised 80.
  assert found['best_by_valid_at_3'] == pytest.approx((50 + 80) / 2)
  assert found['percentile_at_3'] == pytest.approx(50)
  assert found['valid'] == pytest.approx(2 / 3)
  assert found['board'] == 'reference: starter and best recorded solution'
  assert found['by_step'] == pytest.approx([(50 + 80 + 0) / 3, (50 + 20) / 3])


def test_two_runs_have_no_avg_at_3():
  assert arm(run(ran(1.0, 1.0), score=1.0))['avg_at_3'] is None


def test_types_effectiveness_and_distinct_ideas():
  found = arm(
    run(ran(5.0), asked(TUNE, 'Set a.'), ran(4.0), asked(MODEL, 'Set b.')),
    run(ran(5.0), asked(TUNE, 'set  A.'), ran(6.0), index=1),
  )
  assert found['effectiveness'] == {TUNE: (2, 50.0)}
  assert found['types'][TUNE] == pytest.approx(200 / 3)
  assert found['distinct_ideas'] == pytest.approx(2 / 3)
  assert found['calls_by_step'] == {'1': 2 / 3, '3': 1 / 3}


def test_tokens_seconds_and_money_of_a_run():
  records = [
    run(
      ran(5.0, prompt_tokens=1000, tokens=100, answer_s=1.0),
      asked(advice_prompt_tokens=2000, advice_tokens=200, advice_answer_s=3.0),
    ),
    run(ran(5.0), index=1),
  ]
  price = {'prompt': 1.0, 'completion': 10.0}
  found = arm(*records, prices={'implementer': price, 'ideator': {}})
  assert found['tokens'] == {'implementer': 50.0, 'ideator': 100.0}
  assert found['answer_s'] == {'implementer': 0.5, 'ideator': 1.5}
  assert found['money'] == pytest.approx((500 * 1.0 + 50 * 10.0) / 1e6)
  assert arm(*records)['money'] is None


def test_figures_are_json_and_tensorboard_has_those_that_are_known():
  table = {'rl': {'heldin': arm(run(ran(5.0), asked(), ran(4.0)))}}
  json.dumps(table, allow_nan=False)
  found = figures.logged(table)
  assert found['ideator/arm/rl/heldin/improve'] == 1.0
  assert not any('avg_at_3' in name for name in found)


def test_a_run_reads_as_a_conversation_with_hostile_text_escaped(tmp_path):
  record = run(
    ran(5.0),
    asked(MODEL, '<script>alert(1)</script>'),
    ran(4.0),
    asked(kind='', format_error='ACTION is missing'),
  )
  table = {'rl': {'heldin': arm(record)}}
  path = dialogue.write(
    tmp_path / 'page.html', {'rl': [record]}, {'t': False}, table
  )
  page = path.read_text()
  assert f'{MODEL}, improved' in page and 'ACTION is missing' in page
  assert '<script>' not in page and '&lt;script&gt;' in page
  assert page.index('x = 1') < page.index('alert(1)')
  assert '<b>rl</b></td><td>heldin</td>' in page
  assert f'{MODEL} 100 % (100 % of 1 improve)' in page


# Money ----------------------------------------------------------------------------

PRICES = {'prompt': 1e6, 'completion': 2e6}


def test_money_is_tokens_by_the_prices_of_a_million():
  assert money(PRICES, 3, 4) == 11.0
  assert money({}, 3, 4) == 0.0


def test_a_purse_goes_on_where_a_killed_one_was(tmp_path):
  path = tmp_path / 'role.jsonl'
  purse = Purse(path, PRICES, 100.0)
  purse.hold('a', 50.0)
  purse.pay('a', 10, 10)
  assert purse.spent == 30.0
  path.write_bytes(path.read_bytes() + b'{"question": "b", "co')  # cut
  again = Purse(path, PRICES, 100.0, 'config.ideator.max_spend')
  assert again.spent == 30.0
  again.hold('a', 1e9)  # paid for: its answer is in the cache
  again.pay('a', 10, 10)
  again.hold('b', 70.0)
  with pytest.raises(Exception, match='ideator.max_spend=100 .*30 are spent'):
    again.hold('c', 71.0)
  again.let_go('b')
  again.hold('c', 1.0)
  again.pay('c', 1, 0)
  assert Purse(path, PRICES).spent == 31.0


@pytest.mark.parametrize('ends', ['pay', 'let_go'])
def test_what_answers_under_way_may_not_need_ends_no_run(tmp_path, ends):
  purse = Purse(tmp_path / 'role.jsonl', PRICES, 100.0)
  purse.hold('a', 60.0)
  second = threading.Thread(target=purse.hold, args=('b', 60.0), daemon=True)
  second.start()
  second.join(0.2)
  assert second.is_alive()  # 60 + 60 are more than there is
  if ends == 'pay':
    purse.pay('a', 1, 0)
  else:
    purse.let_go('a')
  second.join(10)
  assert not second.is_alive()
  with pytest.raises(Exception, match='max_spend=100 does not allow'):
    purse.hold('c', 101.0)
