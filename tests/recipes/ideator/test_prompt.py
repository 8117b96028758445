"""What an Ideator is asked: slots, and the newest steps that there is room for."""

from __future__ import annotations

import dataclasses
import re

import pytest

from jaxagent.envs.agents.implementer import Exchange, Query
from jaxagent.recipes.ideator import prompt as texts
from jaxagent.recipes.ideator.parser import ITEMS, FormatError, parse_idea
from jaxagent.recipes.ideator.prompt import State, prompt, read_template, trace

STATE = State(
  'Predict y.',
  Query('No gain.', '- a forest', 'Reach 0.85.'),
  [
    Exchange(f'message {n} ' * 5, f'observation {n} ' * 5) for n in range(1, 21)
  ],
  score=0.8125,
  code='model = Ridge()',
  metric='accuracy',
)


def words(text: str) -> int:
  return len(text.split())


def steps_of(text: str) -> list[int]:
  return [int(n) for n in re.findall(r'^STEP (\d+)$', text, re.M)]


def test_task_score_and_program_head_the_trace():
  text = trace(STATE, words, 10_000)
  heads = (
    'TASK:\nPredict y.',
    'PRESENT SCORE (accuracy, higher is better): 0.8125',
    'PRESENT PROGRAM:\nmodel = Ridge()',
    'STEP 1\n',
  )
  places = [text.index(head) for head in heads]
  assert places == sorted(places) and places[0] == 0
  lower = dataclasses.replace(
    STATE, higher_is_better=False, score=None, code=''
  )
  text = trace(lower, words, 10_000)
  assert '(accuracy, lower is better): none yet' in text
  assert 'PRESENT PROGRAM:\n(none yet)' in text


@pytest.mark.parametrize('limit', range(40, 700, 20))
def test_the_trace_keeps_the_newest_whole_steps_that_there_is_room_for(limit):
  text = trace(STATE, words, limit)
  assert words(text) <= limit
  kept = steps_of(text)
  assert kept == list(range(21 - len(kept), 21))
  assert text.count('OBSERVATION:') == len(kept)
  gone = 20 - len(kept)
  found = re.search(
    r'\[The first (\d+) steps? (?:is|are) left out here\.\]', text
  )
  assert (int(found[1]) if found else 0) == gone
  if gone:  # one more would not have fitted
    more = texts._step(gone, STATE.steps[gone - 1])
    assert words(text) + words(more) > limit


def test_a_step_that_alone_is_too_long_leaves_no_step_behind_it():
  """Never a part of a step, and never an older one in place of a newer one."""
  steps = [Exchange('a', 'b'), Exchange('c', 'd ' * 10_000)]
  text = trace(dataclasses.replace(STATE, steps=steps), words, 500)
  assert steps_of(text) == [] and '[The first 2 steps are left out' in text


@pytest.mark.parametrize('limit', [30, 60, 200, 1000])
def test_a_long_task_or_program_loses_its_middle(limit):
  state = dataclasses.replace(
    STATE, task='begin ' + 'x ' * 5000 + 'end', code='first\n' * 3000 + 'last'
  )
  text = trace(state, words, limit)
  assert words(text) <= limit
  if limit >= 60:
    assert 'begin' in text and 'end\n' in text and '[...]' in text
    assert text.count('[...]') == 2 and 'last' in text


def test_tokens_that_joined_texts_have_beyond_their_parts_are_counted():
  """A counter by which the whole has more tokens than its parts."""

  def count(text: str) -> int:
    return words(text) + text.count('\n\n') * 3

  for limit in range(60, 600, 15):
    assert count(trace(STATE, count, limit)) <= limit


def test_a_limit_below_1_is_refused():
  with pytest.raises(ValueError, match='max_trace_tokens=0 must be 1 or more'):
    trace(STATE, words, 0)


def test_the_prompt_holds_query_and_trace_and_asks_for_the_three_items():
  text = prompt(STATE, words)
  assert STATE.query.text in text
  assert trace(STATE, words, texts.MAX_TRACE_TOKENS) in text
  items = [text.rindex(f'\n{name}:\n') for name in ITEMS]
  assert items == sorted(items)


def test_an_answer_that_repeats_the_prompts_form_is_read():
  begin = texts.TEMPLATE.index(f'{ITEMS[0]}:')
  form = texts.TEMPLATE[begin : texts.TEMPLATE.index('Give no alternatives')]
  assert not isinstance(parse_idea(form), FormatError)


def test_what_fills_a_slot_is_not_filled_again():
  query = Query('{step_trace}', '{query}', '{other} {}')
  state = dataclasses.replace(STATE, query=query, task='{query} {x}')
  text = prompt(state, words)
  assert query.text in text and 'TASK:\n{query} {x}' in text


def test_a_template_of_the_users_takes_the_same_slots(tmp_path):
  path = tmp_path / 'own.txt'
  path.write_text('Q {query} T {step_trace} and {"json": 1} {} { query }\n')
  text = prompt(STATE, words, template=read_template(path))
  assert text.startswith('Q PROBLEM_STATEMENT:\nNo gain.')
  assert text.endswith('and {"json": 1} {} { query }\n')


@pytest.mark.parametrize(
  'template, message',
  [
    ('{query}', r'lacks the slot \{step_trace\}'),
    ('{step_trace}', r'lacks the slot \{query\}'),
    ('', r'lacks the slot \{query\}'),
    ('{query} {step_trace} {task}', r'slot \{task\}, which is not known'),
    ('{Query} {step_trace} {query}', r'slot \{Query\}, which is not known'),
  ],
)
def test_an_unknown_or_missing_slot_is_refused_by_name(
  tmp_path, template, message
):
  path = tmp_path / 'own.txt'
  path.write_text(template)
  with pytest.raises(ValueError, match=message) as refused:
    read_template(path)
  assert str(path) in str(refused.value)
  assert '{query} and {step_trace}' in str(refused.value)
  with pytest.raises(ValueError, match=message):
    prompt(STATE, words, template=template)


def test_a_template_that_is_no_text_is_refused_by_its_file(tmp_path):
  path = tmp_path / 'own.txt'
  path.write_bytes(b'\xff\xfe{query}')
  with pytest.raises(ValueError, match='own.txt.* is no UTF-8 text'):
    read_template(path)


def test_the_fixed_answers_are_no_ideas_and_name_none():
  """Table 2's two: they have no items, and differ."""
  assert texts.NULL != texts.VAGUE
  for text in (texts.NULL, texts.VAGUE):
    assert isinstance(parse_idea(text), FormatError)
