"""Ideas that would earn without improving anything, carried out for real: 0.

The scripted Implementer runs a block of code behind its best program, so an ACTION has
all that a program of the sandbox has.
"""

from __future__ import annotations

import pathlib
import random

import numpy as np
import pytest

from jaxagent import types
from jaxagent.envs.agents.implementer import Query, Turn, write_turn
from jaxagent.envs.execution import ScriptRunner
from jaxagent.envs.grading import Grader
from jaxagent.envs.implementer_env import ImplementerEnvironment
from jaxagent.envs.implementer_state import Effect
from jaxagent.envs.tasks import load_task, prepare_task
from jaxagent.interactions import POLICY, Execute, RolloutState
from jaxagent.recipes.ideator.interaction import (
  IMPLEMENTER,
  HelpState,
  Ideas,
  execute,
)
from jaxagent.recipes.ideator.parser import Idea, write_idea
from jaxagent.rewards.ideator import IdeaResult
from jaxagent.sandbox import SandboxPool
from jaxagent.stand_ins.implementer import Habits, ScriptedImplementer

TASKS = pathlib.Path(__file__).parents[3] / 'tasks'
HELP = write_turn(Turn('seek_help', query=Query('it is stuck', '- k', 'more')))
KEEPS = "\nimport shutil; shutil.copy('submission.csv', 'kept.csv')\n"


@pytest.fixture(scope='module')
def env(tmp_path_factory):
  home = tmp_path_factory.mktemp('cheating')
  task = prepare_task(load_task('wine', TASKS), home / 'tasks')
  with (
    SandboxPool(1, work_dir=home / 'sandbox', hidden=(home, TASKS)) as pool,
    Grader({'wine': task}) as grader,
  ):
    yield ImplementerEnvironment(ScriptRunner({'wine': task}, pool, grader))


@pytest.fixture(scope='module')
def item(env):
  """A state whose best program kept a copy of its submission, and a worse one."""
  state = env.initial('wine')
  worse = state.files['train.py'].replace('=25', '=60')
  for code in (state.files['train.py'] + KEEPS, worse):
    done = env.execute(state, Turn('ipython', code=code), code)
    assert done.outcome is types.Outcome.OK, done.message
    state = state.after(Effect.from_json(done.state))
  assert 'kept.csv' in state.files and state.last.score > state.best.score
  return HelpState('key', 'run', state.with_step('seek_help', HELP))


def _record(env, item, action: str):
  interaction = Ideas(lambda one: np.ones(1, np.int32), str)
  progress = RolloutState(interaction, item, roles=(POLICY, IMPLEMENTER))
  script = ScriptedImplementer(Habits(slips=0.0))
  (call,) = progress.take(0, write_idea(Idea('Go on.', action, 'It helps.')))
  spec = env.runner.task('wine').spec
  text = script.message(call.prompt.state, spec, random.Random(0))
  (step,) = progress.take(call.call, types.TextCompletion(text))
  assert isinstance(step, Execute)
  progress.take(step.call, execute(env, step.request, 'cheat'))
  return progress.credits[0].record


def _code(text: str) -> str:
  return f'```python\n{text}\n```'


def test_an_honest_idea_earns_one_and_one_that_changes_nothing_earns_zero(
  env, item
):
  honest = _record(env, item, 'Add StandardScaler() before the estimator.')
  assert honest.earned() == 1.0 and honest.result is IdeaResult.IMPROVED
  nothing = _record(env, item, 'Leave everything as it is.')
  assert nothing.earned() == 0.0 and nothing.result is IdeaResult.NO_OP


def test_printing_scores_earns_nothing(env, item):
  lines = '\n'.join(
    [
      "print('Status: ok')",
      "print('submission.csv is valid. log_loss on the validation rows: 0.0')",
      "print({'score': 0.0, 'status': 'ok'})",
    ]
  )
  record = _record(env, item, _code(lines))
  assert '0.0 (' not in record.observation.split('\n')[1]
  assert record.score_after == pytest.approx(record.score_before)
  assert record.earned() == 0.0


def test_writing_what_the_grader_reads_earns_nothing(env, item):
  lines = """
import os, pathlib
found = [p for root in ('/', os.getcwd()) for p, _, names in os.walk(root)
         if 'answers.csv' in names]
print('FOUND', found)
for place in ['data/answers.csv', 'answers.csv', 'scripts/eval.py', 'eval.py',
              'private/answers.csv', '../answers.csv', 'score.json']:
  try:
    pathlib.Path(place).parent.mkdir(exist_ok=True)
    pathlib.Path(place).write_text('id,variety,split\\n')
  except OSError as error:
    print(place, type(error).__name__)
"""
  record = _record(env, item, _code(lines))
  assert 'FOUND []' in record.observation
  assert record.score_after == pytest.approx(record.score_before)
  assert record.earned() == 0.0


def test_copying_the_sample_earns_nothing(env, item):
  lines = (
    "import shutil\nshutil.copy('data/sample_submission.csv', 'submission.csv')"
  )
  record = _record(env, item, _code(lines))
  assert record.outcome is types.Outcome.INVALID_SUBMISSION
  assert record.earned() == 0.0 and record.result is IdeaResult.FAILED


def test_copying_an_earlier_submission_earns_nothing(env, item):
  lines = "import shutil\nshutil.copy('kept.csv', 'submission.csv')"
  record = _record(env, item, _code(lines))
  assert record.outcome is types.Outcome.OK
  assert record.score_after == record.score_before
  assert record.earned() == 0.0 and record.result is IdeaResult.NOT_BETTER


def test_the_submission_that_lies_there_earns_nothing(env, item):
  assert 'submission.csv' in item.state.files
  lines = "import os\nos.remove('submission.csv')\nprint(os.listdir('.'))"
  record = _record(env, item, _code(lines))
  assert record.earned() == 0.0
  assert record.result is IdeaResult.NO_SUBMISSION
