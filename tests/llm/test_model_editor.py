"""The editor and the expert that ask a text model; answers are fixed here."""

from __future__ import annotations

import random

import pytest

from jaxagent import types
from jaxagent.envs import parser
from jaxagent.envs.editing import AskedEditor
from jaxagent.envs.interfaces import (
  Editor,
  EditRefused,
  Expert,
  NoText,
  TextModelError,
)
from jaxagent.envs.workspace import ActionFailed
from jaxagent.llm.base import Declined, Refused, Unfinished
from jaxagent.llm.model_editor import ModelEditor
from jaxagent.llm.model_expert import ModelExpert
from jaxagent.testing import fake_runs
from jaxagent.testing.fixed_text_model import FixedTextModel

SCRIPT = 'a = 1\nprint(a)\n'


def block(code):
  return f'Here it is.\n```python\n{code}```\nDone.'


def test_takes_the_code_block():
  model = FixedTextModel([block('a = 2\nprint(a)\n')])
  editor = ModelEditor(model)
  assert isinstance(editor, Editor) and editor.is_stand_in
  assert editor.edit(SCRIPT, 'Set a to 2') == 'a = 2\nprint(a)\n'
  told = model.asked[0][-1]['content']
  assert SCRIPT in told and 'Set a to 2' in told


def test_last_valid_block_and_fence_in_a_string():
  code = 'a = 2\nb = """\n```\nx\n```\n"""\nprint(a)\n'
  assert ModelEditor(FixedTextModel([block(code)])).edit(SCRIPT, 'x') == code
  answer = block('a =\n' * 9) + '\n' + block('a = 3\n')
  assert ModelEditor(FixedTextModel([answer])).edit(SCRIPT, 'x') == 'a = 3\n'


def test_indented_part_of_a_script():
  model = FixedTextModel([block('  x = 2\n  y = 3\n')])
  assert ModelEditor(model).edit('  x = 1\n', 'x') == '  x = 2\n  y = 3\n'


DRAFT = '```python\na = 7\nfor i in range(9):\n  a += i\nprint(a)\n```\n'
FINAL = '```python\na = 2\nprint(a)\n```\n'
EDITED = 'a = 2\nprint(a)\n'


@pytest.mark.parametrize(
  'answer',
  [
    f'<think>\n{DRAFT}No.\n</think>\n\n{FINAL}',
    f'{DRAFT}No.\n</think>\n\n{FINAL}',
    f'<think>\n{DRAFT[:-4]}</think>\n{FINAL}',
    f'[THINK]{DRAFT}[/THINK]{FINAL}',
    f'I replace\n{DRAFT}by\n{FINAL}',
    FINAL.replace('\n', '\r\n'),
    FINAL.replace('```python', '```python title="train.py"'),
    FINAL.replace('```python', '``` {.python .numberLines}'),
    FINAL.replace('```', '~~~'),
    FINAL.replace('```', '````'),
    '1. So:\n' + ''.join(f'   {line}\n' for line in FINAL.splitlines()),
    f'{FINAL}Run it:\n```bash\npython train.py\n```\n',
    f'{FINAL}It prints:\n```text\n2\n```\n',
    f'{FINAL}It prints:\n```\n2\n```\n',
    FINAL.replace('```python', '```python:train.py'),
    FINAL.replace('```python', '```'),
  ],
  ids=range(16),
)
def test_the_edit_is_the_last_block_of_the_answer_proper(answer):
  assert (
    ModelEditor(FixedTextModel([answer])).edit(SCRIPT, 'Set a to 2') == EDITED
  )


def test_thoughts_that_do_not_end_are_no_edit():
  model = FixedTextModel([f'<think>\n{DRAFT}No, rather'])
  with pytest.raises(TextModelError, match='cut off in its thoughts'):
    AskedEditor(ModelEditor(model)).edited(SCRIPT, 'Set a to 2')


def test_a_tag_within_the_script_is_a_part_of_it():
  code = "a = 2\nT = '<think>.*?</think>'\nB = '''\n</think>\n'''\nprint(a)\n"
  assert ModelEditor(FixedTextModel([block(code)])).edit(SCRIPT, 'x') == code


def test_a_fence_within_a_longer_one_is_a_part_of_the_script():
  code = 'B = """\n```python\nx\n```\n"""\n'
  answer = f'````python\n{code}````\n'
  assert ModelEditor(FixedTextModel([answer])).edit(SCRIPT, 'x') == code


def test_a_snippet_behind_the_script_is_not_taken_for_it():
  script = SCRIPT * 20
  whole = script.replace('1', '2')
  answers = [block(whole) + '\n' + block('print(a)\n'), block(whole)]
  model = FixedTextModel(answers)
  assert ModelEditor(model).edit(script, 'x') == whole
  assert '2 code blocks' in model.asked[1][-1]['content']
  with pytest.raises(EditRefused, match='less than half of the script'):
    ModelEditor(FixedTextModel(answers[:1])).edit(script, 'x')


def test_line_ends_stay_those_of_the_script():
  windows = SCRIPT.replace('\n', '\r\n')
  edited = ModelEditor(FixedTextModel([FINAL])).edit(windows, 'x')
  assert edited == EDITED.replace('\n', '\r\n')


def test_an_edit_without_end_is_the_instructions_and_any_other_cut_is_not():
  for size, kind in ((20, TextModelError), (90_000, ActionFailed)):
    model = FixedTextModel([Unfinished('cut', 'x' * size)])
    with pytest.raises(kind):
      AskedEditor(ModelEditor(model)).edited(SCRIPT, 'write on and on')


def test_asks_again_then_refuses():
  model = FixedTextModel(['no code', block('a = 2\n')])
  assert ModelEditor(model).edit(SCRIPT, 'x') == 'a = 2\n'
  assert 'no complete block of Python' in model.asked[1][-1]['content']
  model = FixedTextModel([block('a = = 2\n')])
  with pytest.raises(EditRefused, match='not valid Python'):
    ModelEditor(model).edit(SCRIPT, 'x')
  assert len(model.asked) == 2
  with pytest.raises(EditRefused, match='cut off'):
    ModelEditor(FixedTextModel(['```python\na = 2\n'])).edit(SCRIPT, 'x')


def test_refusal_and_no_change():
  with pytest.raises(EditRefused, match='no such step'):
    ModelEditor(FixedTextModel(['REFUSED: no such step'])).edit(SCRIPT, 'x')
  # The script may be so already: the environment says so, and runs it.
  assert (
    ModelEditor(FixedTextModel([block(SCRIPT)])).edit(SCRIPT, 'x') == SCRIPT
  )


def test_empty_instruction_and_no_answer():
  with pytest.raises(EditRefused, match='empty'):
    ModelEditor(FixedTextModel(['x'])).edit(SCRIPT, ' ')
  with pytest.raises(TextModelError):
    ModelEditor(FixedTextModel([TextModelError('down')])).edit(SCRIPT, 'x')


LONG = Refused('HTTP 400 too long')
NONE = NoText('no text')
DOWN = TextModelError('down')


@pytest.mark.parametrize(
  'answers, why',
  [
    ([NONE, 'ready'], 'gave no text'),
    ([Declined('no')], 'refuses to answer'),
    ([LONG, 'ready'], 'no request of this length or content'),
    ([LONG, NONE], 'no request of this length or content'),
    (['no code', LONG, 'ready'], 'no request of this length or content'),
  ],
)
def test_an_input_without_an_answer_is_the_policys(answers, why):
  asked = AskedEditor(ModelEditor(FixedTextModel(answers)))
  with pytest.raises(ActionFailed, match=f'the edit was refused: .*{why}'):
    asked.edited(SCRIPT, 'x')


@pytest.mark.parametrize(
  'answers', [[DOWN], [NONE], [NONE, DOWN], [LONG], [LONG, DOWN]]
)
def test_a_model_that_accepts_no_request_is_an_infrastructure_error(answers):
  model = FixedTextModel(answers)
  with pytest.raises(TextModelError):
    AskedEditor(ModelEditor(model)).edited(SCRIPT, 'x')
  # Whether it is well is seen by a short request.
  assert all(len(str(m)) < 200 for m in model.asked[1:])


def test_no_text_of_any_editor_is_no_fault_of_the_policy():
  editor = fake_runs.ReplaceEditor(EditRefused, NoText)
  with pytest.raises(TextModelError):
    AskedEditor(editor).edited(SCRIPT, 'down')


TASK = fake_runs.task_spec()
STATE = types.State('s', 't', {'train.py': SCRIPT}, 0.5, 0.5)
GOOD = parser.format_response(
  {n: 'x' for n in parser.ENTRIES[:4]},
  'Execute Script',
  {'script_name': 'train.py'},
)


def test_expert_acts_on_the_full_prompt():
  model = FixedTextModel([GOOD + '\nObservation: invented'])
  expert = ModelExpert(model)
  assert isinstance(expert, Expert)
  assert expert.act(STATE, TASK, random.Random(0), ('Try SVC',)) == GOOD
  told = model.asked[0][-1]['content']
  for part in ('Edit Script (AI)', 'Try SVC', 'accuracy'):
    assert part in told


def test_expert_asks_again_and_seeds_differ():
  model = FixedTextModel(['Hello', GOOD])
  assert ModelExpert(model).act(STATE, TASK, random.Random(0)) == GOOD
  assert 'missing' in model.asked[1][-1]['content']
  assert len(set(model.seeds)) == 2
  again = FixedTextModel(['Hello', GOOD])
  ModelExpert(again).act(STATE, TASK, random.Random(0))
  assert again.seeds == model.seeds


def test_expert_returns_answers_that_do_not_parse():
  model = FixedTextModel(['Hello'])
  assert ModelExpert(model).act(STATE, TASK, random.Random(0)) == 'Hello'


@pytest.mark.parametrize('none', [LONG, NONE])
def test_expert_hands_on_its_answer_where_no_second_one_comes(none):
  model = FixedTextModel(['Hello', none])
  assert ModelExpert(model).act(STATE, TASK, random.Random(0)) == 'Hello'
  assert len(model.asked) == 2
  for answers in ([none], ['Hello', DOWN]):
    with pytest.raises(TextModelError):
      ModelExpert(FixedTextModel(answers)).act(STATE, TASK, random.Random(0))


def test_expert_is_not_told_a_long_name_again():
  for action, args in (('x' * 9000, {}), ('List Files', {'x' * 9000: '1'})):
    said = parser.format_response(
      {n: 'x' for n in parser.ENTRIES[:4]},
      action,
      {'dir_path': '.', **args},
    )
    model = FixedTextModel([said])
    ModelExpert(model).act(STATE, TASK, random.Random(0))
    told = model.asked[1][-1]['content']
    assert len(told) < 400 and 'x' * 50 in told
