"""An Ideator's answer: three items and nothing else, whatever else comes."""

from __future__ import annotations

import json
import pathlib
import random
import time

import pytest

from jaxagent.recipes.ideator.parser import (
  ITEMS,
  MOST_CHARACTERS,
  FormatError,
  Idea,
  parse_idea,
  write_idea,
)

ANSWERS = json.loads(
  (
    pathlib.Path(__file__).parents[2] / 'golden' / 'ideator_answers.json'
  ).read_text()
)
GOOD = Idea('Keep the forest.', 'Set max_depth to 9.', 'It is too deep.')
MILLION = 1_000_000
LIMIT_S = 0.010
PIECES = (
  *(f'{name}:' for name in ITEMS),
  *ITEMS,
  '<think>',
  '</think>',
  '```',
  '\n',
  '\n\n',
  '\r\n',
  ' ',
  '\t',
  '\0',
  '\ud800',
  '\u2028',
  ':',
  'x',
  '**',
)


def seconds(text: str) -> float:
  """Of its own thread, so that another process does not count."""
  times = []
  for _ in range(3):
    begun = time.thread_time()
    parse_idea(text)
    times.append(time.thread_time() - begun)
    if times[-1] < LIMIT_S:
      break
  return min(times)


@pytest.mark.parametrize('case', ANSWERS, ids=lambda case: case['says'])
def test_each_of_60_answers_is_read_as_it_should_be(case):
  read = parse_idea(case['answer'])
  if 'idea' in case:
    assert read == Idea(**case['idea'])
  else:
    assert read == FormatError(case['reason'])


def test_the_golden_answers_hold_ideas_and_format_errors_alike():
  assert len(ANSWERS) == 60 and len({case['answer'] for case in ANSWERS}) == 60
  assert 20 <= sum('idea' in case for case in ANSWERS) <= 40


def test_10000_mutated_answers_neither_raise_nor_take_10_ms():
  rng = random.Random(64)
  stock = [case['answer'] for case in ANSWERS]
  kinds = {Idea: 0, FormatError: 0}
  for _ in range(10_000):
    text = rng.choice(stock)
    for _ in range(rng.randint(1, 4)):
      a, b = sorted(rng.choices(range(len(text) + 1), k=2))
      middle = rng.choice(
        (
          '',
          text[a:b] * 2,
          text[a:b].upper(),
          rng.choice(PIECES),
          ''.join(rng.choices(PIECES, k=5)),
          ''.join(map(chr, rng.choices(range(0x110000), k=3))),
        )
      )
      text = text[:a] + middle + text[b:]
    read = parse_idea(text)
    kinds[type(read)] += 1
    if isinstance(read, Idea):
      assert all((read.analysis, read.action, read.rationale))
      assert parse_idea(write_idea(read)) == Idea(
        read.analysis, read.action, read.rationale
      )
    assert seconds(text) < LIMIT_S, ascii(text)[:200]
  assert min(kinds.values()) > 300, 'the mutations are all of one kind'


@pytest.mark.parametrize('size', [MOST_CHARACTERS, MILLION])
def test_an_answer_of_a_megabyte_of_anything_takes_less_than_10_ms(size):
  pairs = [a + b for a in PIECES for b in PIECES]
  for piece in (*PIECES, *pairs):
    text = (piece * (size // len(piece) + 1))[:size]
    assert seconds(text) < LIMIT_S, ascii(piece)
    around = GOOD.text.replace('Set', text[: size - len(GOOD.text)])
    assert seconds(around) < LIMIT_S, ascii(piece)


def test_an_answer_beyond_the_limit_is_a_format_error_and_long_thoughts_are_not():
  text = GOOD.text.replace('Set', 'Set ' + 'x' * MILLION)
  read = parse_idea(text)
  assert isinstance(read, FormatError)
  assert f'{len(text)} characters; the most is {MOST_CHARACTERS}' in read.reason
  thought = parse_idea(f'<think>{"x" * MILLION}</think>{GOOD.text}')
  assert isinstance(thought, Idea) and len(thought.thoughts) == MILLION


def test_thoughts_stay_out_of_what_the_implementer_is_shown():
  read = parse_idea(f'<think>secret {GOOD.text}</think>\n{GOOD.text}')
  assert isinstance(read, Idea)
  assert 'secret' in read.thoughts and 'secret' not in read.text
  assert read.text == GOOD.text


@pytest.mark.parametrize('value', [None, 3, b'ACTION:', ['a']])
def test_what_is_no_text_is_a_format_error(value):
  assert isinstance(parse_idea(value), FormatError)


def test_an_idea_that_would_be_read_as_another_is_not_written():
  for idea in (
    Idea('', 'b', 'c'),
    Idea('a', 'ACTION: b', 'c'),
    Idea('a', 'b', 'c\n\nd'),
    Idea('a', 'b', 'c\0'),
  ):
    with pytest.raises(ValueError, match='is read as'):
      write_idea(idea)
