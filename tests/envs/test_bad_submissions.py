"""Submissions that no task wants: a script leaves them, and one sentence says why not."""

from __future__ import annotations

import re

import pytest

from jaxagent.envs.execution import ExecutionOptions, Outputs, ScriptRunner
from jaxagent.envs.grading import Grader
from jaxagent.sandbox import SandboxPool
from jaxagent.types import Outcome
from tests.tasks import published

NAME = 'submission.csv'
ANSWERS = 'row,y,split\n' + ''.join(
  f'{i},{i % 2},{("valid", "private")[i // 2 % 2]}\n' for i in range(8)
)
SAMPLE = 'row,y\n' + ''.join(f'{i},0\n' for i in range(8))
ROWS = [(i, i % 2) for i in range(8)]
START = f'import os, pickle, zipfile\nrows, name = {ROWS!r}, {NAME!r}\n'
WRITE = (
  'text = head + "".join(form.format(i, y) for i, y in rows)\n'
  'open(name, "w").write(text)\n'
)


@pytest.fixture(scope='module')
def runner(tmp_path_factory):
  home = tmp_path_factory.mktemp('bad')
  columns = {'id': 'row', 'targets': ['y'], 'metric': 'accuracy'}
  tasks = {
    'table': published.prepared(
      home, 'table', answers=ANSWERS, sample=SAMPLE, **columns
    ),
  }
  with Grader(tasks) as grader, SandboxPool(1, min_tier='T1') as pool:
    yield ScriptRunner(tasks, pool, grader, ExecutionOptions(zygote=False))


def run(runner, text):
  return runner.run_script(
    'table', {'train.py': START + text}, 'train.py', outputs=Outputs()
  )


def test_a_good_one_is_graded(runner):
  done = run(runner, 'head, form = "row,y\\n", "{},{}\\n"\n' + WRITE)
  assert (done.outcome, done.score) == (Outcome.OK, 1.0), done


@pytest.mark.parametrize(
  ('text', 'why'),
  [
    ('pickle.dump(rows, open(name, "wb"))', 'not a readable table|NUL'),
    ('os.symlink("/etc/passwd", name)', 'is not a regular file'),
    ('open("x", "w").write("row,y"); os.link("x", name)', 'has hard links'),
    ('os.mkdir(name)', 'is not a regular file'),
    ('open(name, "wb").truncate(100 << 20)', 'has 104857600 bytes, more than'),
    (
      'with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as z:\n'
      '  z.writestr("s.csv", bytes(200_000_000))\n',
      'not a readable table|NUL',
    ),
    ('head, form = "row\\n", "{}\\n"\n' + WRITE, "columns are missing: \\['y'\\]"),
    ('head, form = "row,y\\n", "{:.1f},{}\\n"\n' + WRITE, 'ids are text, and one is'),
  ],
)  # fmt: skip
def test_what_cannot_be_graded_is_refused_in_a_sentence(runner, text, why):
  done = run(runner, text)
  assert done.outcome is Outcome.INVALID_SUBMISSION and done.score is None
  assert re.search(why, done.message) and '\n' not in done.message, done.message


def test_three_gigabytes_end_the_script_and_are_no_submission(runner):
  done = run(runner, 'open(name, "wb").truncate(3 << 30)')
  assert done.outcome in (Outcome.SCRIPT_ERROR, Outcome.DISK_LIMIT), done
  assert done.score is None and '\n' not in done.message
