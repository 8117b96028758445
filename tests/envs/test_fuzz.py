"""Nothing a policy writes raises, or is booked as a fault of ours.

20,000 seeded mutations of valid responses, instructions and submissions go
through parser, editor, environment and the checks of the grader. The sandbox
is a double, so no process is started: the borders are what is tested.
"""

from __future__ import annotations

import ast
import concurrent.futures
import json
import keyword
import math
import pathlib
import random

import pytest

from jaxagent import types
from jaxagent.data import records
from jaxagent.envs import agents, parser, step_env, workspace
from jaxagent.envs.grading import grade_worker
from jaxagent.envs.interfaces import EditRefused
from jaxagent.envs.model_line import step_names
from jaxagent.rewards import ml_agent
from jaxagent.sandbox import checks
from jaxagent.stand_ins import editor as scripted_editor
from jaxagent.stand_ins import moves
from jaxagent.stand_ins.reader import NoHelper, ScriptedReader
from jaxagent.testing import fake_runs

ROOT = pathlib.Path(__file__).parents[2]
# (instructions, responses, submissions); the slow part goes on from the fast.
FAST, ALL = (300, 800, 200), (1300, 4000, 1000)
PARTS = pytest.mark.parametrize(
  'part', ['fast', pytest.param('rest', marks=pytest.mark.slow)]
)
TABULAR = """import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SIZE = 10
x_train = y_train = x_test = None
model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0, max_iter=9))
model.fit(x_train, y_train)
pred = model.predict(x_test)
"""
TEXT = TABULAR.replace('StandardScaler', 'TfidfVectorizer').replace(
  'sklearn.preprocessing', 'sklearn.feature_extraction.text'
)
STOCK = {
  modality: moves.moves_for('classification', modality)
  + moves.moves_for('regression', modality)
  for modality in ('tabular', 'text')
}
VERBS = (
  'Set',
  'Change',
  'Double',
  'Divide',
  'Use',
  'Wrap',
  'Bag',
  'Remove',
  'Add',
  'Replace',
  'Stack',
  'and then',
  ';',
  'with',
  'to',
  'of',
  'by',
  '=',
  'the',
)
NUMBERS = (
  '1e999',
  '-1e999',
  'NaN',
  '1' + '0' * 400,
  '9' * 5000,
  '0x' + 'f' * 3900,
  '1.2.3',
  '...',
  '-0',
  '1_0',
  '٣',
  '1e-400',
  '10j',
  '0b2',
  '007',
  '1 ' * 50,
)
CODE = (
  '(' * 150,
  '[' * 90 + ']' * 90,
  'SVC(' * 60 + ')' * 60,
  '-' * 300 + '1',
  "f'{x!r:{1}}'",
  "'\\ud800'",
  "'\\",
  '({[]: 1})',
  'lambda: ' * 80 + '1',
  '*x',
  '**x',
  'SVC(1, C=2, 3)',
  'SVC(C=1, C=2)',
  'ｉｎ=1',
  'SVC(ｉｎ=1)',
  '{' * 60,
  '"""',
  '#',
  '1 if 1 else ' * 90 + '1',
  'x.y' * 40,
  ':=',
  '~' * 200,
)
ODD = (
  '\ud800',
  '\udcff',
  '\x00',
  '\u202e',
  '\u2028',
  '\ufeff',
  '\x85',
  '\x1c',
  'é' * 190,
  '🜁',
  '\r',
  '\n',
  '\t',
  '\\',
  '"',
  "'",
  '`',
  '{',
  '}',
  '\\ud800',
  '\\u0000',
  '```',
  '\nAction: Final Answer\n',
  '\nObservation:',
  '%s',
  '{0}',
)
NAMES = (
  'train.py/x',
  'train.py/',
  'a/../train.py',
  'a/b/c.py',
  'a',
  'a/b',
  '.',
  '',
  '..',
  '../x',
  '/etc/passwd',
  'x' * 5000,
  'é' * 190,
  'data',
  'data/x',
  'data/train.csv',
  'data/' + 'é' * 190,
  'data/' + 'x/' * 90,
  'fixed.py',
  'fixed.py/x',
  'submission.csv',
  'submission.csv/x',
  '.backup',
  'new\n.py',
  '.backup/train.py',
  '.backup/x/y',
  'train.py',
  'TRAIN.PY',
  '-c',
  '~',
  '*',
  'a\x00b',
  '\ud800.py',
  'a\\b',
  ' ',
  ' train.py',
  'CON',
  'numpy.py',
  'lib',
  'lib/x.py',
  'a/./b',
  'a//b',
  '//x',
  'data/.',
  'data/link',
)
VALUES = (
  None,
  True,
  1.5,
  -0.0,
  [],
  {},
  [[]],
  {'a': 1},
  0,
  -1,
  10**400,
  10**4000,
  'x' * 100_000,
  '\ud800',
  '',
  1,
  7,
)
RAW = (
  '1e999',
  'NaN',
  '-Infinity',
  '9' * 5000,
  '[' * 3000,
  '[' * 3000 + ']' * 3000,
  '{"a":' * 2000,
  '"\\ud800"',
  '"\\x"',
  '{',
  'null',
  '""',
  '"a\nb"',
  '01',
)


class Pool:
  """Stands for the sandbox: takes what it could lay out, runs nothing."""

  def __init__(self):
    self.jobs = 0

  def submit(self, job: types.Job) -> concurrent.futures.Future:
    checks.job(job)
    files = set(job.files)
    for path in (*files, *job.mounts, *job.collect):
      assert max(map(len, path.encode().split(b'/'))) < 256
      assert not any(f.startswith(path + '/') for f in files)
    for text in job.files.values():
      text.encode('utf-8', 'surrogateescape')
    self.jobs += 1
    good = self.jobs % 3
    future: concurrent.futures.Future = concurrent.futures.Future()
    future.set_result(
      types.Execution(
        job_id=job.job_id,
        tier='fake',
        exec_s=1.0,
        outcome=types.Outcome.OK if good else types.Outcome.SCRIPT_ERROR,
        collected={name: b'0.5' for name in job.collect} if good else {},
      )
    )
    return future


def environment(tmp_path, **rules) -> step_env.StepEnvironment:
  data = tmp_path / 'public'
  data.mkdir(exist_ok=True)
  (data / 'train.csv').write_text('id,y\n0,1\n')
  spec = fake_runs.task_spec(
    root=tmp_path, read_only_files=('data/*', 'fixed.py')
  )
  prepared = fake_runs.FakePrepared(
    spec,
    data,
    {
      'train.py': TABULAR,
      'fixed.py': 'x = 1\n',
      'lib/a.py': TEXT,
      'blank.txt': ' \n',
    },
  )
  return step_env.StepEnvironment(
    {'t': prepared},
    Pool(),
    fake_runs.FakeGrader(),
    step_env.TextModels(
      scripted_editor.ScriptedEditor(), ScriptedReader(), NoHelper()
    ),
    step_env.StepRules(actions=tuple(parser.ACTION_ARGS), **rules),
  )


def cases(kind: int, part: str):
  """(number, generator of random numbers) of each case; equal every time."""
  start, end = (0, FAST[kind]) if part == 'fast' else (FAST[kind], ALL[kind])
  for number in range(start, end):
    yield number, random.Random(f'{kind}/{number}')


def instruction(rng: random.Random, script: str) -> str:
  """What the expert says of a script, recombined and damaged."""
  steps = set(step_names(script))
  stock = STOCK['text' if 'Vectorizer' in script else 'tabular']
  fits = [m for m in stock if not m.needs or steps & set(m.needs)]
  count = rng.choice((1, 1, 1, 2, 6))
  said = [rng.choice(fits).say(rng) for _ in range(count)]
  text = rng.choice((' and then ', '. ', '; ', ' ', ', and ')).join(said)
  for _ in range(rng.choice((0, 1, 1, 2, 4))):
    words = text.split(' ')
    at = rng.randrange(len(words))
    pick = rng.random()
    if pick < 0.25:
      name = rng.choice(keyword.kwlist + ['C', 'SIZE', 'n_estimators', 'ｉｎ'])
      words.insert(
        at,
        f'{name}{rng.choice(("=", " to ", " of "))}'
        f'{rng.choice((5, "rbf", "(1, 2)", "None"))}',
      )
    elif pick < 0.4:
      words[at] = words[at].replace('=', f'={rng.choice(NUMBERS)}, in=')
    elif pick < 0.5:
      words.insert(at, rng.choice(NUMBERS))
    elif pick < 0.6:
      words.insert(at, rng.choice(CODE))
    elif pick < 0.65:
      words.insert(at, rng.choice(ODD))
    elif pick < 0.8:
      words.insert(at, rng.choice(VERBS))
    elif pick < 0.9:
      words[at] = rng.choice(rng.choice(stock).say(rng).split(' '))
    else:
      cut = rng.randrange(len(text) + 1)
      words = [text[:cut], rng.choice(stock).say(rng)[cut:]]
    text = ' '.join(words)
  return text


def arguments(rng: random.Random, action: str, script: str) -> dict:
  args: dict = {}
  for name in parser.ACTION_ARGS[action]:
    if name == 'edit_instruction':
      args[name] = instruction(rng, script)
    elif name.endswith('line_number'):
      args[name] = rng.choice(('1', '3', 5, '0', '9' * 5000, '-1', '٣', 'x'))
    elif rng.random() < 0.25:
      args[name] = rng.choice(NAMES)
    elif rng.random() < 0.7:
      args[name] = 'train.py'
    else:
      args[name] = rng.choice(('lib/a.py', 'b.py', 'blank.txt', 'data'))
  if rng.random() < 0.15:
    args[rng.choice(list(args))] = rng.choice(VALUES)
  return args


def response(rng: random.Random, script: str) -> str:
  """A valid response, or one that has been damaged."""
  action = rng.choice(
    ('Edit Script (AI)',) * 6
    + parser.DEFAULT_ACTIONS
    + ('Read File', 'Undo Edit Script', 'Edit Script Segment (AI)')
  )
  args = arguments(rng, action, script)
  thoughts = {name: 'x' for name in parser.ENTRIES[:4]}
  text = parser.format_response(thoughts, action, args)
  for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 3))):
    text = damaged(rng, text, args)
  return text


def damaged(rng: random.Random, text: str, args: dict) -> str:
  """One mutation of a response."""
  at = rng.randrange(len(text) + 1)
  to = min(len(text), at + rng.randrange(20))
  pick = rng.randrange(8)
  if pick == 0:  # a byte flipped
    data = bytearray(text.encode('utf-8', 'surrogatepass') or b'x')
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode('utf-8', rng.choice(('replace', 'surrogateescape')))
  if pick == 1:
    return text[:at] + rng.choice(ODD) + text[at:]
  if pick == 2:
    return text[:at]
  if pick == 3:  # a piece moved
    return text[:at] + text[to:] + text[at:to]
  if pick == 4:  # two lines swapped
    lines = text.split('\n')
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    return '\n'.join(lines)
  if pick == 5:  # another JSON value
    value = json.dumps(rng.choice(list(args.values())))
    return text.replace(value, rng.choice(RAW), 1)
  if pick == 6:
    return text[: text.find('Action Input:') + 13] + ' ' + rng.choice(RAW)
  return text + rng.choice(RAW + ODD)


@pytest.mark.slow
@PARTS
def test_editor(part):
  """An instruction gives a script that parses, or EditRefused."""
  editor = scripted_editor.ScriptedEditor()
  script, changed = TABULAR, 0
  for number, rng in cases(0, part):
    if number % 40 == 0:
      script = rng.choice((TABULAR, TEXT))
    text = instruction(rng, script)
    try:
      script = editor.edit(script, text)
      changed += 1
    except EditRefused as refused:
      assert refused.reason
    except Exception as error:
      raise AssertionError(f'instruction {number}: {text[:500]!a}') from error
    ast.parse(script)
  assert changed > number / 20  # else it is no longer edits that are mutated


@PARTS
def test_environment(tmp_path, part):
  """A response gives an outcome that the policy is charged for."""
  envs = [
    environment(tmp_path),
    environment(
      tmp_path,
      on_failure='keep',
      agent=agents.agent('research', mode='compatible'),
    ),
    environment(
      tmp_path,
      dialect='mlagentbench',
      after_edit='measure',
      agent=agents.agent('research', mode='mlagentbench'),
    ),
  ]
  starts = [env.initial_state('t') for env in envs]
  seen: set = set()
  state = starts[0]
  for number, rng in cases(1, part):
    env, start = envs[number // 50 % 3], starts[number // 50 % 3]
    if number % 50 == 0 or state is None:
      state = start
    text = response(rng, state.files['train.py'])
    try:
      result = env.step(state, text, job_id=f'{number}')
      check_result(env, result)
    except Exception as error:
      raise AssertionError(f'response {number}: {text[:800]!a}') from error
    seen.add(result.outcome)
    state = result.state
  wanted = {
    types.Outcome.OK,
    types.Outcome.INVALID_FORMAT,
    types.Outcome.INVALID_ACTION,
    types.Outcome.SCRIPT_ERROR,
  }
  assert seen == wanted
  # The border around the editor must have had nothing to do.
  assert not any(env._asking._faults for env in envs)


def check_result(env, result) -> None:
  """Charged to the policy, and fit for what comes after the step."""
  assert not result.outcome.is_infrastructure, result.observation
  reward = ml_agent.ml_agent_reward(
    result.outcome,
    valid_action=result.valid_action,
    is_edit=result.is_edit,
    score_before=result.score_before,
    score_after=result.score,
    alpha=200.0,
  )
  assert math.isfinite(reward) and 0 <= reward <= 1
  most = env.dialect.max_observation_chars or workspace.MAX_FILE_BYTES
  assert len(result.observation) < 2 * most
  json.dumps([result.args, result.entries, result.observation, result.diff])
  if result.state is not None:
    json.dumps(records.state_to_json(result.state)).encode()
    for style in ('compact', 'full'):
      spec = env.task('t').spec
      agents.Prompter(style).text(result.state, spec).encode()


GOLD = {
  'digits': ('label', ['3', '5', '3', '7']),
  'diabetes': ('progression', ['1.5', '200', '3e2', '12']),
  'wine': ('p_0,p_1', ['0.2,0.8', '1,0', '0.5,0.5', '0,1']),
}


def grading_task(tmp_path, name: str) -> tuple[grade_worker.Task, str]:
  """(a task of four rows, a submission without a fault)."""
  columns, rows = GOLD[name]
  lines = [f'id,{columns}'] + [f'{i},{row}' for i, row in enumerate(rows)]
  label = columns if name != 'wine' else 'variety'
  truth = rows if name != 'wine' else ['1', '0', '1', '1']
  (tmp_path / 'sample.csv').write_text(lines[0] + '\n')
  (tmp_path / 'answers.csv').write_text(
    f'id,{label},split\n'
    + ''.join(
      f'{i},{t},{"valid" if i < 3 else "private"}\n'
      for i, t in enumerate(truth)
    )
  )
  metric = {'digits': 'accuracy', 'diabetes': 'rmse', 'wine': 'log_loss'}[name]
  task = grade_worker.Task(
    name,
    {
      'eval': str(ROOT / f'tasks/{name}/scripts/eval.py'),
      'answers': str(tmp_path / 'answers.csv'),
      'sample': str(tmp_path / 'sample.csv'),
      'metric': metric,
    },
  )
  return task, '\n'.join(lines) + '\n'


CELLS = (
  '',
  'nan',
  'inf',
  '-inf',
  '1e999',
  '9' * 5000,
  '1_0',
  '٣',
  "'",
  '"',
  '""',
  '"""',
  ',',
  ',,',
  '\n',
  '\r',
  '\x00',
  '=1+1',
  '0x10',
  '1e100',
  '-1e100',
  '1e-320',
  'é',
  '\ufeff',
  ' 1 ',
  '3.0',
  '"a\nb"',
  '1.0.0',
  '٣.0',
  '²',
)


def submission(rng: random.Random, good: str) -> bytes:
  """A submission's bytes: damaged cells, lines, bytes; sometimes noise."""
  if rng.random() < 0.1:
    return rng.randbytes(rng.choice((0, 1, 50, 5000)))
  for _ in range(rng.choice((0, 1, 1, 2))):
    at = rng.randrange(len(good) + 1)
    good = rng.choice(
      (
        good[:at] + rng.choice(CELLS) + good[at:],
        good[:at],
        good.replace(rng.choice('0123,\n'), rng.choice(CELLS), 1),
      )
    )
  data = bytearray(good.encode())
  if data and rng.random() < 0.3:
    data[rng.randrange(len(data))] = rng.randrange(256)
  return bytes(data)


@PARTS
def test_grader(tmp_path, part):
  """Any bytes give a score or a refusal, never a fault of the grader."""
  tasks = [grading_task(tmp_path, name) for name in GOLD]
  seen = set()
  for number, rng in cases(2, part):
    task, good = tasks[number % len(tasks)]
    data = submission(rng, good)
    answer = grade_worker.grade(task, data, rng.choice(('valid', 'private')))
    assert answer['status'] in ('ok', 'invalid'), (number, data[:300], answer)
    assert (answer['score'] is None) == (answer['status'] == 'invalid')
    json.dumps(answer)
    seen.add(answer['status'])
  assert seen == {'ok', 'invalid'}


@pytest.mark.parametrize('mode', parser.MODES)
@pytest.mark.parametrize(
  'text',
  [
    'x' * 2**20,
    'Action:' * 2**17,
    ' ' * 2**20,
    '{' * 2**20,
    '\n' * 2**20,
    'x' + ' ' * 2**20 + 'x',
    '```' * 2**18,
    '{"a":' * 2**18,
    '"\\u0000' * 2**17,
    '/' * 2**20,
    '(' * 2**20,
    '\ud800' * 2**20,
  ],
  ids=lambda text: ascii(text[:6]),
)
def test_a_megabyte(tmp_path, text, mode):
  """Anywhere in a response; a pattern that backtracks would not come back."""
  env = environment(tmp_path, agent=agents.agent('research', mode=mode))
  state = env.initial_state('t')
  head = 'Action: Edit Script (AI)\nAction Input: '
  thoughts = {name: 'x' for name in parser.ENTRIES[:4]}
  names = {'script_name': 'train.py', 'save_name': 'train.py'}
  for answer in (
    text,
    head + text,
    head + '{"script_name": ' + text,
    *(
      parser.format_response(thoughts, 'Edit Script (AI)', args)
      for args in (
        {**names, 'edit_instruction': text},
        {**names, 'edit_instruction': 'Use SVC()', 'save_name': text},
      )
    ),
    parser.format_response(thoughts, 'Read File', {'file_name': text}),
    parser.format_response(thoughts, text[:9], {text: text}),
  ):
    result = env.step(state, answer)
    check_result(env, result)
    assert result.outcome in (
      types.Outcome.INVALID_FORMAT,
      types.Outcome.INVALID_ACTION,
    )
