"""Scripted Implementers: what they do in which state, and that they never raise."""

from __future__ import annotations

import pathlib
import random

import pytest

from jaxagent import types
from jaxagent.envs.agents.implementer import idea_message, parse_turn
from jaxagent.envs.implementer_state import (
  Effect,
  ImplementerState,
  PastTurn,
  Program,
)
from jaxagent.envs.tasks import list_tasks
from jaxagent.recipes.ideator.parser import Idea
from jaxagent.recipes.ideator.prompt import NULL, VAGUE
from jaxagent.stand_ins.implementer import (
  HABITS,
  Habits,
  ScriptedImplementer,
  action_of,
  query,
)
from tests.subset import fast

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'
SPECS = {spec.name: spec for spec in list_tasks(TASKS, version=1)}
SURE = Habits(slips=0.0)
O = types.Outcome


def starter(name: str) -> str:
  return (TASKS / name / 'env' / 'train.py').read_text()


def initial(name: str) -> ImplementerState:
  spec = SPECS[name]
  return ImplementerState(
    name, spec.higher_is_better, {'train.py': starter(name)}
  )


def after(state: ImplementerState, text: str, gain: float | None) -> ImplementerState:  # fmt: skip
  """The state after a message, its program better than the best by `gain`.

  None: the program failed. A question stays open.
  """
  turn = parse_turn(text)
  if turn.kind == 'seek_help':
    return state.with_step('seek_help', text)
  best = 1.0 if state.best is None else state.best.score
  sign = 1.0 if state.higher_is_better else -1.0
  score = None if gain is None else best + sign * gain
  outcome = O.SCRIPT_ERROR if gain is None else O.OK
  step = PastTurn(turn.kind, text, 'out', outcome, score, 1.0)
  return state.after(Effect(step, None, Program(turn.kind, turn.code)))


def played(
  name: str, gains, *, calls_left=2, seed=0, script=None, start=None
) -> tuple[ImplementerState, str]:
  """(state, next message) after the starter and programs with these gains."""
  script = script or ScriptedImplementer(SURE)
  state, rng = start or initial(name), random.Random(seed)
  for gain in gains:
    text = script.message(state, SPECS[name], rng, calls_left)
    assert parse_turn(text).kind == 'ipython', text
    state = after(state, text, gain)
  return state, script.message(state, SPECS[name], rng, calls_left)


def stuck(name: str = 'wine') -> ImplementerState:
  state, text = played(name, [0.0, -0.1, -0.1])
  return after(state, text, None)


@pytest.mark.parametrize('name', SPECS)
def test_the_given_program_is_run_first(name):
  _, text = played(name, [])
  assert parse_turn(text).code == starter(name).strip()


@pytest.mark.parametrize('name', SPECS)
def test_a_run_of_every_bundled_task_tunes_then_asks(name):
  state, text = played(name, [0.0])
  turns = 0
  while parse_turn(text).kind == 'ipython':
    turns += 1
    state = after(state, text, -0.1)
    text = ScriptedImplementer(SURE).message(
      state, SPECS[name], random.Random(turns), 2
    )
  turn = parse_turn(text)
  assert turn.kind == 'seek_help' and turns <= 2
  assert SPECS[name].metric in turn.query.problem_statement
  assert turn.query.attempts_so_far.startswith('- ')


def test_it_asks_after_two_tries_in_vain_and_a_gain_starts_the_count_again():
  assert parse_turn(played('wine', [0, -1])[1]).kind == 'ipython'
  assert parse_turn(played('wine', [0, -1, -1])[1]).kind == 'seek_help'
  assert parse_turn(played('wine', [0, -1, 1, -1])[1]).kind == 'ipython'
  assert parse_turn(played('wine', [0, 1, 0, None])[1]).kind == 'seek_help'


def test_the_second_one_asks_after_one_and_only_scales_values():
  script = ScriptedImplementer(Habits(('relative',), patience=1, slips=0.0))
  assert HABITS['scripted_relative'].families == ('relative',)
  state, text = played('wine', [0, -1], script=script)
  assert parse_turn(text).kind == 'seek_help'
  assert state.steps[1].text.startswith(('I try: Halve', 'I try: Double'))


def test_the_question_lists_its_tries_with_their_results():
  state, _ = played('diabetes', [0.0, -3.0, None])
  asked = query(state, SPECS['diabetes'])
  assert asked.attempts_so_far.count('\n- ') == 2
  assert 'failed' in asked.attempts_so_far and ': 4' in asked.attempts_so_far
  assert 'Lower rmse than 1' in asked.goal


def test_without_an_ideator_it_makes_the_best_again_and_ends():
  state, text = played('wine', [0.0, -1, -1], calls_left=0)
  assert parse_turn(text).code == state.best.program.code
  state = after(state, text, 0.0)
  script = ScriptedImplementer(SURE)
  text = script.message(state, SPECS['wine'], random.Random(0))
  assert parse_turn(text).kind == 'finish'


def test_an_idea_is_carried_out_on_the_best_program():
  idea = Idea('Leave it.', 'Use ExtraTreesClassifier(n_estimators=40).', 'Why.')
  state = stuck().answered(idea_message(idea.text))
  text = ScriptedImplementer(SURE).message(
    state, SPECS['wine'], random.Random(0), 1
  )
  code = parse_turn(text).code
  assert 'model = make_pipeline(ExtraTreesClassifier(n_estimators=40' in code
  assert code.count('KNeighbors') == 0


def test_a_block_of_code_is_run_behind_the_best_program():
  state = stuck()
  for action in ("```python\nprint('mine')\n```", "print('mine')"):
    answer = idea_message(Idea('a', action, 'b').text)
    text = ScriptedImplementer(SURE).message(
      state.answered(answer), SPECS['wine'], random.Random(0)
    )
    code = parse_turn(text).code
    assert code == f"{state.best.program.code}\nprint('mine')"


def test_what_it_does_not_understand_leaves_the_program_as_it_is():
  answer = idea_message(Idea('a', 'Fine-tune BERT on the data.', 'b').text)
  state = stuck().answered(answer)
  text = ScriptedImplementer(SURE).message(
    state, SPECS['wine'], random.Random(0)
  )
  assert parse_turn(text).code == state.best.program.code


def test_to_nothing_it_does_what_it_does_without_an_ideator():
  alone = stuck()
  alone = ImplementerState.from_json(
    alone.to_json() | {'steps': alone.to_json()['steps'][:-1]}
  )
  told = stuck().answered(idea_message(NULL))
  script = ScriptedImplementer(SURE)
  texts = [
    script.message(state, SPECS['wine'], random.Random(0), calls)
    for state, calls in ((alone, 0), (told, 1))
  ]
  assert texts[0] == texts[1] and 'I go back' in texts[0]


def test_encouraged_it_makes_three_more_tries_then_asks_again():
  state = stuck().answered(idea_message(VAGUE))
  script = ScriptedImplementer(SURE)
  for number in range(3):
    text = script.message(state, SPECS['wine'], random.Random(number), 1)
    assert text.startswith('I try: '), (number, text)
    state = after(state, text, -0.1)
  text = script.message(state, SPECS['wine'], random.Random(9), 1)
  assert parse_turn(text).kind == 'seek_help'


def test_it_never_tries_the_same_twice_on_a_program():
  script = ScriptedImplementer(Habits(patience=20, slips=0.0))
  state, _ = played('wine', [0.0] + [-0.1] * 4, script=script)
  tried = [step.text for step in state.steps]
  assert len(set(tried)) == len(tried) == 5


def test_at_its_last_message_it_returns_to_its_best():
  script = ScriptedImplementer(Habits(patience=99, slips=0.0), max_steps=4)
  state, text = played('wine', [0.0, 0.1, -0.1], script=script)
  assert parse_turn(text).code == state.best.program.code


def test_some_programs_have_a_slip():
  script = ScriptedImplementer(Habits(slips=1.0))
  text = script.message(initial('wine'), SPECS['wine'], random.Random(0))
  assert parse_turn(text).code != starter('wine').strip()
  usual = ScriptedImplementer()
  state = initial('wine')
  wrong = sum(
    parse_turn(usual.message(state, SPECS['wine'], random.Random(n))).code
    != starter('wine').strip()
    for n in range(1000)
  )
  assert 5 <= wrong <= 45  # 2 %


def test_messages_depend_on_state_and_seed_alone():
  for seed in range(5):
    one, two = (played('digits', [0, 0.1, -1], seed=seed) for _ in range(2))
    assert one == two
  texts = {played('digits', [0, 0.1], seed=n)[1] for n in range(20)}
  assert len(texts) > 1


_ODD = (
  '', '\x00', '\ud800', 'ACTION:', 'ACTION: \nRATIONALE: x', 'A' * 100_000,
  'ACTION:\n</execute_ipython><finish></finish>\nRATIONALE:\nx',
  'ACTION:\n```python\n<execute_bash>rm</execute_bash>\n```\nRATIONALE: x',
  'ACTION:\n```\n\x00\n```', 'ACTION:\n' + '(' * 5000, 'ACTION: Set C to 1e999',
  'ACTION: Set max_depth of the model to ' + '9' * 5000,
  'ACTION: ' + 'Add PCA() before the estimator, then ' * 40,
  'ACTION: Wrap the estimator in BaggingClassifier(n_estimators=(((',
  'The adviser answers:\n\nbetter ' * 1000,
)  # fmt: skip


@pytest.mark.parametrize('observation', _ODD)
@pytest.mark.parametrize(
  'code', fast(['x = 1', '', '\x00', 'def (', None], first=1)
)
def test_it_never_raises_whatever_it_is_shown(observation, code):
  state = stuck()
  if observation:
    state = state.answered(observation)
  if code is not None:
    step = PastTurn('bash', code, observation, O.OK, 99.0)
    state = state.after(Effect(step, None, Program('bash', code)))
  for spec in (SPECS['wine'], SPECS['unicode-script'], SPECS['diabetes']):
    text = ScriptedImplementer().message(state, spec, random.Random(0), 1)
    assert parse_turn(text).is_action


@pytest.mark.slow
def test_fuzzed_answers_always_give_one_action():
  rng = random.Random(5)
  idea = Idea('Leave it.', 'Set C of SVC to 10, then use Ridge().', 'Why.')
  base = idea_message(idea.text)
  letters = base + '\n`<>/()=\x00\ud800:'
  for number in range(100):
    chars = list(base)
    for _ in range(rng.randrange(1, 12)):
      at = rng.randrange(len(chars))
      chars[at : at + rng.randrange(3)] = rng.choice(letters)
    state = stuck().answered(''.join(chars))
    text = ScriptedImplementer().message(
      state, SPECS['wine'], random.Random(number), 1
    )
    assert parse_turn(text).is_action


def test_the_action_of_an_answer_is_read_between_its_items():
  idea = Idea('Leave it.', 'Use Ridge().\nThen stop.', 'Why.')
  assert action_of(idea_message(idea.text)) == 'Use Ridge().\nThen stop.'
  assert action_of(idea_message(NULL)) is None


@pytest.mark.parametrize('gains', range(3, 15))
def test_an_answer_is_always_carried_out_before_the_last_message(gains):
  """Else nothing that an Ideator says in such a state could earn a reward."""
  tuned = [0.0, *[0.1] * (gains - 3), -0.1, -0.1]
  state, text = played('wine', tuned)
  if gains == 14:  # of 16 messages: too late to ask
    assert text.startswith('I go back')
    return
  assert parse_turn(text).kind == 'seek_help'
  idea = idea_message(Idea('a', 'Use Ridge(alpha=1.0).', 'c').text)
  answered = after(state, text, None).answered(idea)
  told = ScriptedImplementer(SURE).message(
    answered, SPECS['wine'], random.Random(0)
  )
  assert told.startswith('I carry out: ')
