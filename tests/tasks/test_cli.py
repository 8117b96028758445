"""`python -m jaxagent.tasks` as its users call it."""

from __future__ import annotations

import re
import shutil

import pytest

from jaxagent import sandbox
from jaxagent.envs import tasks as task_lib
from jaxagent.sandbox import cpu_levels
from jaxagent.tasks.__main__ import main
from tests.tasks import published


def call(tasks_dir, tmp_path, *argv):
  return main(
    ['--tasks_dir', str(tasks_dir), '--data_dir', str(tmp_path), *argv]
  )


def test_list(tasks_dir, tmp_path, capsys):
  assert call(tasks_dir, tmp_path, 'list', '--split', 'heldout') == 0
  out = capsys.readouterr().out
  assert 'breast-cancer' in out and 'digits' not in out


def test_outside_a_checkout_the_bundled_tasks_are_listed_and_new_ones_are_not_theirs(
  tasks_dir, tmp_path, capsys, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  assert main(['list']) == 0
  listed = capsys.readouterr().out
  assert all(name in listed for name in task_lib.task_names(tasks_dir))
  assert main(['new', 'mine']) == 0
  assert (tmp_path / 'tasks' / 'mine' / 'task.yaml').exists()
  assert not (tasks_dir / 'mine').exists()


def test_check_without_a_run(tasks_dir, tmp_path, capsys):
  assert call(tasks_dir, tmp_path, 'check', 'wine', '--no_run') == 0
  assert 'yes' in capsys.readouterr().out


def test_check_where_nothing_contains_a_script(
  tasks_dir, tmp_path, capsys, monkeypatch
):
  for error in sandbox.TierError, sandbox.BackendError:

    def refuse(*_, error=error, **options):
      raise error('it did not start:\n  no namespaces')

    monkeypatch.setattr(sandbox, 'SandboxPool', refuse)
    assert call(tasks_dir, tmp_path, 'check', 'wine') == 2
    said = capsys.readouterr().err
    assert said == 'error: it did not start: no namespaces\n'


@pytest.mark.parametrize(
  ('needs', 'flags', 'why'),
  [
    ({'environment': {'packages': ['nosuchpack']}}, (), 'needs nosuchpack'),
    (
      {'environment': {'interpreter': '/no/python'}},
      (),
      'no program here',
    ),
    ({'limits': {'gpus': 2}}, ('--gpus', '0'), 'asks for 2 GPUs'),
    ({'limits': {'gigabytes': 44_000}}, (), 'MB of memory'),
  ],
)
@pytest.mark.parametrize('command', ['check', 'measure'])
def test_what_a_task_needs_and_is_not_here_is_told_before_it_is_prepared(
  tmp_path, capsys, command, needs, flags, why
):
  published.write(tmp_path / 'tasks', **needs)
  assert call(tmp_path / 'tasks', tmp_path, command, 'pizza', *flags) == 2
  said = capsys.readouterr().err
  assert why in said and said.count('\n') == 1 and 'task pizza' in said
  assert not list(tmp_path.rglob('answers.csv'))


def test_errors_go_to_stderr_with_choices(tasks_dir, tmp_path, capsys):
  assert call(tasks_dir, tmp_path, 'check', 'nosuch') == 2
  assert 'choose one of: ' in capsys.readouterr().err
  assert call(tasks_dir, tmp_path, 'check') == 2
  assert '--all' in capsys.readouterr().err


@pytest.mark.slow
def test_new_measures_and_passes_check(tmp_path, capsys):
  tasks = tmp_path / 'tasks'
  tasks.mkdir()
  assert call(tasks, tmp_path, 'new', 'two-hills') == 0
  assert call(tasks, tmp_path, 'new', 'two-hills') == 2
  assert 'already there' in capsys.readouterr().err
  assert call(tasks, tmp_path, 'new', 'Bad Name') == 2
  assert call(tasks, tmp_path, 'measure', 'two-hills') == 0
  assert call(tasks, tmp_path, 'check', 'two-hills', '--no_run') == 0


def test_check_finds_a_leak(tmp_path, capsys):
  tasks = tmp_path / 'tasks'
  tasks.mkdir()
  call(tasks, tmp_path, 'new', 'leaky')
  script = tasks / 'leaky/scripts/prepare.py'
  text = script.read_text()
  assert 'target=y.round(4))' in text
  script.write_text(
    text.replace('target=y.round(4))', 'e=2 * y, target=y.round(4))')
  )
  assert call(tasks, tmp_path, 'check', 'leaky', '--no_run') == 1
  assert 'column e gives the label away' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
  'name',
  ['digits', pytest.param('flower-denoise', marks=pytest.mark.quiet)],
)
def test_check_walks_the_sandbox_for_labels(
  tasks_dir, tmp_path, capsys, monkeypatch, name
):
  command = 'check', name, '--min_tier', 'T1'
  assert call(tasks_dir, tmp_path, *command) == 0, capsys.readouterr()
  real = sandbox.SandboxPool
  monkeypatch.setattr(
    sandbox,
    'SandboxPool',
    lambda n, *, min_tier, hidden, **rest: real(n, min_tier='T1', **rest),
  )
  assert call(tasks_dir, tmp_path, *command) == 1
  assert 'a script can read the labels' in capsys.readouterr().err


# As the bundled starter once was: 60 of the words, many of which are as frequent
# as the last of them.
TIED = ('max_features=55', 'max_features=60')


@pytest.mark.slow
def test_check_refuses_a_starter_that_differs_by_cpu(
  tasks_dir, tmp_path, capsys
):
  if 'avx2' not in cpu_levels.machine_flags():
    pytest.skip('this CPU has no vector units to leave out')
  tasks = tmp_path / 'tasks'
  shutil.copytree(tasks_dir / 'unicode-category', tasks / 'unicode-category')
  script = tasks / 'unicode-category/env/train.py'
  assert TIED[0] in script.read_text()
  command = 'check', 'unicode-category', '--min_tier', 'T1'
  assert call(tasks, tmp_path, *command) == 0, capsys.readouterr()
  assert 'cpu_level=no-avx2' in capsys.readouterr().err
  script.write_text(script.read_text().replace(*TIED))
  assert call(tasks, tmp_path, *command) == 1
  failed = [
    line
    for line in capsys.readouterr().err.splitlines()
    if line.startswith('FAILED')
  ]
  # Each level may sort ties in an order of its own, and task.yaml has one of them.
  assert all('unicode-category: the starter scores' in line for line in failed)
  differs = [line for line in failed if 'cpu_level=no-avx2' in line]
  assert len(differs) == 1 and 'kind="stable"' in differs[0]
  # At one level alone there is nothing to differ from.
  one = '--cpu_level', 'no-avx512'
  assert call(tasks, tmp_path, *command, *one) == 0, capsys.readouterr()


@pytest.mark.parametrize(
  'task, column', [('unicode-category', 'Tfidf'), ('unicode-script', 'Count')]
)
def test_words_of_the_text_starters_are_cut_where_there_is_no_tie(
  tasks_dir, tmp_path, task, column
):
  import numpy as np
  import pandas as pd
  from sklearn.feature_extraction.text import CountVectorizer

  prepared = task_lib.prepare_task(
    task_lib.load_task(task, tasks_dir), tmp_path
  )
  text = prepared.starter_files['train.py']
  number = int(re.search(rf'{column}Vectorizer\(max_features=(\d+)\)', text)[1])
  train = pd.read_csv(prepared.public_dir / 'train.csv', keep_default_na=False)
  counts = np.sort(
    CountVectorizer().fit_transform(train['text']).sum(axis=0).A1
  )
  assert counts[-number] > counts[-number - 1]


@pytest.mark.slow
@pytest.mark.quiet
def test_check_all_in_the_sandbox(tasks_dir, tmp_path, capsys):
  code = call(tasks_dir, tmp_path, 'check', '--all')
  assert code == 0, capsys.readouterr()
