"""Submissions of several files: a folder that a script leaves, or a zip of one."""

from __future__ import annotations

import contextlib
import io
import sys
import zipfile

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.envs.execution import (
  Call,
  ExecutionOptions,
  Outputs,
  ScriptRunner,
)
from jaxagent.envs.grading import Grader
from jaxagent.envs.specs import task_data
from jaxagent.sandbox import SandboxPool
from jaxagent.tasks import check_published, measure
from jaxagent.types import Execution, Job, Outcome
from tests.tasks import published

HEAD = 'request_id,requester_received_pizza\n'
BOTH = {
  '0.csv': f'{HEAD}t3_a,0.9\nt3_b,0\n',
  '1.csv': f'{HEAD}t3_c,1\nt3_d,0\n',
}
FOLDER = {'path': 'out/parts', 'format': 'folder', 'max_mb': 1}
ZIP = {'path': 'submission.zip', 'format': 'zip', 'max_mb': 1}
START = 'import os, pathlib\nhome = pathlib.Path("out/parts")\n'
WRITE = START + (
  'home.mkdir(parents=True)\n'
  f'for name, text in {BOTH!r}.items():\n  (home / name).write_text(text)\n'
)


@contextlib.contextmanager
def opened(tmp_path, **options):
  tasks = {'pizza': published.prepared(tmp_path, **options)}
  with (
    Grader(tasks) as grader,
    SandboxPool(1, min_tier='T1') as pool,
  ):
    yield ScriptRunner(tasks, pool, grader, ExecutionOptions(zygote=False))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  home = tmp_path_factory.mktemp('folder')
  with opened(home, submission=FOLDER) as runner:
    yield runner


@pytest.fixture(scope='module')
def archive(tmp_path_factory):
  """Grades zips, and runs nothing."""
  home = tmp_path_factory.mktemp('zip')
  tasks = {'pizza': published.prepared(home, submission=ZIP)}
  with Grader(tasks) as grader:
    yield ScriptRunner(tasks, None, grader)


def run(runner, text, **outputs):
  return runner.run_script(
    'pizza', {'train.py': text}, 'train.py', outputs=Outputs(**outputs)
  )


def zipped(files, kind=zipfile.ZIP_STORED):
  out = io.BytesIO()
  with zipfile.ZipFile(out, 'w', kind) as made:
    for name, content in files.items():
      made.writestr(name, content)
  return out.getvalue()


def test_a_folder_that_a_script_leaves_is_graded_as_the_command_line_does(
  folder, tmp_path
):
  done = run(folder, WRITE)
  assert (done.outcome, done.score) == (Outcome.OK, 1.0), done
  (path, data), *others = done.execution.collected.items()
  assert path == 'out/parts' and not others
  with zipfile.ZipFile(io.BytesIO(data)) as found:
    assert {n: found.read(n).decode() for n in found.namelist()} == BOTH
  task = folder.prepared['pizza']
  truth = task_data.answers_file(task.spec, task.private_dir)
  written = tmp_path / 'parts'
  written.mkdir()
  for name, text in BOTH.items():
    (written / name).write_text(text)
  for split in ('valid', 'private'):
    scope = graders.Scope(split=split)
    want = graders.grade_files(task.spec.metric, written, truth, scope=scope)
    got = folder.grade('pizza', data, Call(split))
    assert (got.score, got.outcome) == (want.score, Outcome.OK)


@pytest.mark.parametrize(
  ('more', 'why'),
  [
    ('os.symlink("/etc/passwd", home / "2.csv")', '2.csv is not a regular'),
    ('os.link(home / "0.csv", home / "2.csv")', '0.csv has hard links'),
    ('(home / "x").mkdir()', 'x is not a regular file'),
    ('os.mkfifo(home / "2.csv")', '2.csv is not a regular file'),
    ('(home / "2.pkl").write_bytes(b"\\x80\\x04.")', 'files of .csv, .pkl'),
    ('(home / "2.csv").write_text("a,b\\n1,2\\n")', '2.csv has the columns'),
    ('(home / "1.csv").unlink()', '2 of 4 test ids are missing'),
    ('(home / "2.csv").write_bytes(b"\\0" * 10**6)', "at most 1000000"),
    ('(home / "2.csv").write_bytes(b"\\0" * (2 << 26))', '2.csv has 134217728'),
    ('(home / "\\n.csv").touch()', "'\\n.csv' is not a printable name"),
    (
      'for n in range(20_000): (home / f"a{n}").touch()',
      'holds more than 20000 files',
    ),
  ],
)  # fmt: skip
def test_what_is_no_file_of_a_folder_is_refused_by_name(folder, more, why):
  done = run(folder, WRITE + more)
  assert done.outcome is Outcome.INVALID_SUBMISSION, done
  assert why in done.message and done.score is None, done.message


@pytest.mark.parametrize(
  ('text', 'outcome', 'why'),
  [
    ('pass', Outcome.NO_SUBMISSION, 'was not written'),
    (
      'home.mkdir(parents=True)',
      Outcome.INVALID_SUBMISSION,
      'it holds no .csv or .jsonl file',
    ),
    (
      'home.parent.mkdir(); home.write_text("x")',
      Outcome.INVALID_SUBMISSION,
      'is not a folder',
    ),
    (
      'home.parent.mkdir(); os.symlink("/etc", home)',
      Outcome.INVALID_SUBMISSION,
      'is not a folder',
    ),
  ],
)
def test_what_is_no_folder_is_told(folder, text, outcome, why):
  done = run(folder, START + text)
  assert done.outcome is outcome and why in done.message, done


def test_the_sample_in_parts_is_no_work_of_the_program(folder):
  rows = published.SAMPLE.splitlines()[1:]
  same = WRITE.replace('t3_a,0.9', 't3_a,0').replace('t3_c,1', rows[2])
  done = run(folder, same, own_work=True)
  assert done.outcome is Outcome.INVALID_SUBMISSION
  assert 'sample' in done.message, done.message


def test_files_of_the_folder_are_not_brought_out_a_second_time(folder):
  done = run(folder, WRITE + 'open("note.txt", "w").write("x")', changed_mb=1)
  assert list(done.execution.changed) == ['note.txt']
  assert done.execution.left_out == ()


@pytest.mark.parametrize(
  ('files', 'why'),
  [
    ({**BOTH, 'a/2.csv': ''}, 'a/2.csv is no file beside the others'),
    ({**BOTH, 'x.pkl': 'x'}, 'files of .csv, .pkl'),
    ({'0.csv': 'x' * (2 << 20)}, '2097152 bytes; at most 1000000'),
    ({'0.csv': f'{HEAD}t3_a,1\n'}, '3 of 4 test ids are missing'),
    ({}, 'it holds no .csv or .jsonl file'),
  ],
)
def test_what_a_zip_holds_is_refused_by_name(archive, files, why):
  data = zipped(files, zipfile.ZIP_DEFLATED)
  assert len(data) < 10_000
  got = archive.grade('pizza', data)
  assert got.outcome is Outcome.INVALID_SUBMISSION and why in got.reason, got


def test_a_zip_is_graded_in_training_and_anything_else_refused(archive):
  assert archive.grade('pizza', zipped(BOTH)).score == 1.0
  for data in (b'', published.SAMPLE.encode(), zipped(BOTH)[:-30]):
    got = archive.grade('pizza', data)
    assert got.outcome is Outcome.INVALID_SUBMISSION
    assert 'no whole zip' in got.reason, got


def test_arrays_have_a_file_each_and_pickles_are_refused(tmp_path):
  truth = {'pi': np.zeros((4, 3, 3), int), 'split': ['valid', 'private'] * 2}
  sample = io.BytesIO()
  np.save(sample, np.ones((4, 3, 3), int))
  task = published.prepared(
    tmp_path,
    answers=task_data.npz({k: np.asarray(v) for k, v in truth.items()}),
    sample=sample.getvalue(),
    sample_name='sample_submission.npy',
    metric='CLRS',
    submission=FOLDER,
  )
  assert 'one array in each NAME.npy' in task.spec.research_problem
  files = {}
  for name, array in (('right', truth['pi']), ('objects', np.array([{}]))):
    out = io.BytesIO()
    np.save(out, array)
    files[name] = zipped({'pi.npy': out.getvalue()})
  with Grader({'pizza': task}) as grader:
    assert grader.grade('pizza', files['right']).score == 1.0
    got = grader.grade('pizza', files['objects'])
    assert got.outcome is Outcome.INVALID_SUBMISSION
    assert 'pi.npy' in got.reason and 'pickled' in got.reason
    given = zipped({'pi.npy': sample.getvalue()})
    got = grader.grade('pizza', given, own_work=True)
    assert 'sample' in got.reason, got


def test_prompts_say_what_the_files_are(folder):
  problem = folder.prepared['pizza'].spec.research_problem
  assert problem.startswith('Who gets a pizza?')
  assert '`out/parts` is a folder of files beside each other' in problem
  assert 'with the same columns each' in problem


@pytest.mark.parametrize('form', [FOLDER, ZIP])
def test_a_task_of_several_files_is_checked(tmp_path, form):
  task = published.prepared(tmp_path, submission=form)
  best = zipped(BOTH)

  def ran(job):
    assert job.folders == ((form['path'],) if form is FOLDER else ())
    return Execution(
      job_id=job.job_id,
      outcome=Outcome.OK,
      tier='T3',
      exec_s=0.1,
      collected={form['path']: zipped({'s.csv': published.SAMPLE})},
    )

  with Grader({'pizza': task}) as grader:
    report = check_published.check_task(task, grader, ran)
    assert report.failures == [], report.failures
    assert (report.figures['gold'], report.figures['sample']) == (1.0, 0.5)
    answers = check_published.load(task)
    wrong = check_published.malformed(best, form['format'], answers)
    assert {'a link', 'a folder within', 'a pickle beside'} < set(wrong)


def test_a_folder_is_measured(tmp_path):
  public = tmp_path / 'data'
  public.mkdir()
  before = measure.run_script((WRITE, str(public), 20.0, 'out/parts', ''))
  assert before[3] == '' and zipfile.ZipFile(io.BytesIO(before[0])).namelist()


def test_what_lies_beside_a_script_is_measured_with_it(tmp_path):
  """As in the sandbox: it can import it, and may leave by sys.exit."""
  script = (
    'import sys, helper\nopen("s.csv", "w").write(helper.TEXT)\nsys.exit(%s)\n'
  )
  for python in ('', sys.executable):
    job = (script % 0, str(tmp_path), 20.0, 's.csv', python)
    for text in ('first', 'second'):  # of another task
      found = measure.run_script(job, {'helper.py': f'TEXT = {text!r}'})
      assert (found[0], found[3]) == (text.encode(), ''), found
  fails = (script % 3, *job[1:4], '')
  found = measure.run_script(fails, {'helper.py': 'TEXT = ""'})
  assert (found[0], found[3]) == (None, 'RuntimeError: it exited with 3')


def test_a_submission_may_be_larger_than_the_sandbox_brings_out_of_others():
  script = 'open("s.csv", "wb").truncate(65 << 20)'
  with SandboxPool(1, min_tier='T1', zygote=False) as pool:
    for most, outcome in ((66, Outcome.OK), (0, Outcome.INVALID_SUBMISSION)):
      job = Job(
        f'large{most}',
        'm.py',
        files={'m.py': script},
        collect=('s.csv',),
        collect_mb=most,
      )
      done = pool.submit(job).result()
      assert done.outcome is outcome, done.message
      assert len(done.collected.get('s.csv', b'')) == (65 << 20) * bool(most)


def test_what_a_task_lets_a_submission_hold_reaches_the_sandbox(tmp_path):
  task = published.prepared(tmp_path, submission={'max_mb': 256})
  assert task_data.brought_out(task.spec) == {
    'collect': ('submission.csv',),
    'collect_mb': 245,
  }
