"""The reader that is a language model: one question, or one for each part."""

from __future__ import annotations

import pytest

from jaxagent.envs.interfaces import NoText, Reader, TextModelError
from jaxagent.envs.workspace import ActionFailed
from jaxagent.llm import model_reader
from jaxagent.llm.base import Refused
from jaxagent.llm.model_reader import BLOCK_CHARS, ModelReader, blocks
from jaxagent.testing.fixed_text_model import FixedTextModel


def asked(model: FixedTextModel) -> list[str]:
  return [messages[-1]['content'] for messages in model.asked]


def test_a_short_file_is_one_question():
  model = FixedTextModel([' The learning rate is in line 2.\n'])
  reader = ModelReader(model)
  assert isinstance(reader, Reader)
  told = reader.describe('import x\nlr = 0.1', 'the learning rate')
  assert told == 'The learning rate is in line 2.'
  (question,) = asked(model)
  assert 'Lines 1 to 2' in question and 'lr = 0.1' in question


def test_a_long_file_is_read_in_parts_and_put_together():
  text = '\n'.join(f'line {i} ' + 'x' * 90 for i in range(250))
  model = FixedTextModel(['one', 'two', 'three', 'whole'])
  assert ModelReader(model).describe(text, 'all') == 'whole'
  questions = asked(model)
  assert len(questions) == 4
  assert 'Part 1: one\n\nPart 2: two\n\nPart 3: three' in questions[-1]


@pytest.mark.parametrize(
  'text',
  ['', 'a', 'a\n', '\n' * 30_000, 'x' * 35_000, 'y\n' + 'x' * 20_001 + '\nz'],
)
def test_blocks_hold_the_text_and_are_short(text):
  found = list(blocks(text))
  assert all(len(block) <= BLOCK_CHARS for _, _, block in found)
  joined = ''.join(block for _, _, block in found).replace('\n', '')
  assert joined == text.replace('\n', '')
  assert found[0][0] == 1 and found[-1][1] == text.count('\n') + 1
  assert all(first <= last for first, last, _ in found)


def test_an_endless_file_is_read_from_its_beginning():
  text = 'x' * BLOCK_CHARS * (model_reader.MAX_BLOCKS + 5)
  assert len(list(blocks(text))) == model_reader.MAX_BLOCKS


def test_log_and_reflection_hold_what_they_are_asked_for():
  model = FixedTextModel(['thought', 'found'])
  reader = ModelReader(model)
  assert reader.reflect('Improve it.', 'Tried SVC.', 'why') == 'thought'
  assert reader.retrieve('Improve it.', 'Tried SVC.', 'Next: trees') == 'found'
  for question, parts in zip(
    asked(model), (('Improve it.', 'Tried SVC.', 'why'), ('Next: trees',))
  ):
    assert all(part in question for part in parts)


TOO_LONG = Refused('HTTP 400 too long')
LONG_FILE = 'x' * BLOCK_CHARS * 2


@pytest.mark.parametrize(
  'answers, kind',
  [
    ([NoText('no text'), 'ready'], ActionFailed),
    ([NoText('no text')], TextModelError),
    (['one', 'two', TOO_LONG, 'ready'], ActionFailed),
    (['one', 'two', TOO_LONG], TextModelError),
    ([TextModelError('down')], TextModelError),
  ],
)
def test_an_input_without_an_answer_is_told_from_an_outage(answers, kind):
  with pytest.raises(kind):
    ModelReader(FixedTextModel(answers)).describe(LONG_FILE, 'all')


def test_every_question_fails_as_an_action():
  for name in ('reflect', 'retrieve'):
    reader = ModelReader(FixedTextModel([NoText('no text'), 'ready']))
    ask = getattr(reader, name)
    with pytest.raises(ActionFailed, match='gave no text'):
      ask('Improve it.', 'Tried SVC.', 'why')
