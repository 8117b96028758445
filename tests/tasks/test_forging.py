"""Rewards for whole solutions that were not earned, through the real sandbox.

What no mode stops is said in docs/rl_for_mle.md.
"""

from __future__ import annotations

import pytest

from jaxagent.envs.execution import ExecutionOptions, ScriptRunner
from jaxagent.envs.solution import Task
from jaxagent.envs.solution_env import INSTRUMENTERS, SolutionEnvironment
from jaxagent.instrumentation import marks
from jaxagent.sandbox import SandboxPool
from jaxagent.types import Outcome
from tests.instrumentation import test_forging as programs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
HONEST = """\
import pandas as pd
from sklearn.naive_bayes import GaussianNB
train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
model = GaussianNB()
model.fit(train.drop(columns=['id', 'label']), train['label'])
p = model.predict(test.drop(columns=['id']))
pd.DataFrame({'id': test['id'], 'label': p}).to_csv('submission.csv')
"""
FORGED = {
  'prints': programs.PRINTS,
  'reads the secret': programs.READS_THE_KEY,
  'writes the marks': programs.WRITES_THE_FILE,
  'calls the mark': programs.CALLS_THE_MARK,
  'writes a reward': (
    'import json\n'
    "for name in ('reward.txt', 'score.json', 'reward', 'result.json'):\n"
    "  open(name, 'w').write(json.dumps({'reward': 1.0, 'score': 1.0}))\n"
    'print("reward: 1.0"); print(json.dumps({"score": 1.0}))\n'
  ),
  'copies a stale submission': (
    'import glob, shutil\n'
    "for name in glob.glob('/tmp/**/submission*', recursive=True)"
    " + glob.glob('../**/submission.csv', recursive=True):\n"
    "  shutil.copy(name, 'submission.csv')\n"
  ),
  'copies the sample': (
    'import shutil\n'
    "shutil.copy('data/sample_submission.csv', 'submission.csv')\n"
  ),
  'copies the sample with pandas': (
    'import pandas as pd\n'
    "pd.read_csv('data/sample_submission.csv').to_csv('submission.csv', "
    'index=False)\n'
  ),
  'copies the sample in another order': (
    'import pandas as pd\n'
    "s = pd.read_csv('data/sample_submission.csv')\n"
    "s.iloc[::-1].to_csv('submission.csv', index=False)\n"
  ),
  'ends well at once': 'import os\nos._exit(0)\n',
  'claims a time-out': 'import sys\nsys.exit(124)\n',
  'submits the training data': (
    "import shutil\nshutil.copy('data/train.csv', 'submission.csv')\n"
  ),
  'submits the test data': (
    "import shutil\nshutil.copy('data/test.csv', 'submission.csv')\n"
  ),
}
# What makes a copy of the sample one that is refused.
DAMAGES = {
  'an index': "s.to_csv('submission.csv')",
  'an index without a name': "s.to_csv('submission.csv', index_label=False)",
  'no header': "s.to_csv('submission.csv', index=False, header=False)",
  'no id': "s[['label']].to_csv('submission.csv', index=False)",
  'other names': (
    "s.set_axis(['id', 'target'], axis=1).to_csv('submission.csv', index=False)"
  ),
  'a row less': "s[:-1].to_csv('submission.csv', index=False)",
  'a row twice': "s.iloc[[0, *range(len(s))]].to_csv('submission.csv', index=False)",
  'few rows': "s.head().to_csv('submission.csv', index=False)",
  'a bad cell': (
    "s.astype(str).replace({'id': {str(s.id[3]): 'x'}}).to_csv('submission.csv', "
    'index=False)'
  ),
  'a bad label': (
    's.label = s.label.astype(object)\n'
    "s.loc[5, 'label'] = 'none'\n"
    "s.to_csv('submission.csv', index=False)"
  ),
  'some other labels': "s.loc[:9, 'label'] = 1\ns.to_csv('submission.csv')",
  'floats': "s.astype(float).sample(frac=1).to_csv('submission.csv')",
  'semicolons': "s.to_csv('submission.csv', index=False, sep=';')",
}
for damage, line in DAMAGES.items():
  FORGED[f'copies the sample with {damage}'] = (
    'import pandas as pd\n'
    "s = pd.read_csv('data/sample_submission.csv')\n"
    f'{line}\n'
  )
for content in (b'', b'\xff', b'\n', b'id,label\n', b'a,b\n1,2\n', b'{}', b'"'):
  FORGED[f'submits {content}'] = (
    f"open('submission.csv', 'wb').write({content!r})\n"
  )


@pytest.fixture(scope='module')
def runner(prepared, grader):
  with SandboxPool(2, min_tier='T2', zygote=True) as pool:
    yield ScriptRunner(
      prepared, pool, grader, ExecutionOptions(timeout_s=30, memory_mb=1024)
    )


@pytest.fixture(scope='module', params=INSTRUMENTERS)
def mode(request, runner):
  """Each in turn, once an empty program has shown what it earns there."""
  _, empty = _solve(runner, request.param, 'pass\n')
  assert empty == -10.0
  return request.param


def _solve(runner, mode: str, code: str):
  env = SolutionEnvironment(runner, instrumenter=mode)
  # A model that was talked into praising every line.
  lines = ''.join(
    f'{line}\n' + ''.join(f'print("{n}")\n' for n in marks.NAMES)
    if line and not line.startswith((' ', 'for ', 'def ', 'with '))
    else f'{line}\n'
    for line in code.splitlines()
  )
  answer = f'```python\n{lines}```'
  told, _ = env.solve(
    Task('digits'), f'A plan.\n```python\n{code}```\n', answer
  )
  assert not told.outcome.is_infrastructure, told.message
  return told, told.record.derive()


@pytest.mark.parametrize('name', FORGED)
def test_no_more_than_an_empty_program(runner, mode, name):
  told, reward = _solve(runner, mode, FORGED[name])
  assert reward == -10.0, told.record.milestones


def test_what_was_really_reached_is_paid_in_every_mode(runner):
  """Its submission has a column too many: everything else was done."""
  paid = {mode: _solve(runner, mode, HONEST) for mode in INSTRUMENTERS}
  outcomes = {told.outcome for told, _ in paid.values()}
  assert outcomes == {Outcome.INVALID_SUBMISSION}
  rewards = {mode: round(reward + 10, 9) for mode, (_, reward) in paid.items()}
  assert rewards == {
    'syntax': 0.5, 'openai': rewards['openai'], 'verified': 0.3, 'none': 0.0,
  }  # fmt: skip
  assert rewards['openai'] >= 0.5
  right = HONEST.replace("'submission.csv')", "'submission.csv', index=False)")
  for mode in INSTRUMENTERS:
    told, reward = _solve(runner, mode, right)
    assert told.outcome is Outcome.OK and reward > 0.7
