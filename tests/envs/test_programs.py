"""Programs as submissions: measured from outside, on inputs that are new to them."""

from __future__ import annotations

import contextlib
import pathlib

import numpy as np
import pytest

from jaxagent import graders
from jaxagent.envs import _stopwatch, programs
from jaxagent.envs.execution import (
  Call,
  ExecutionOptions,
  Outputs,
  ScriptRunner,
)
from jaxagent.envs.grading import Grader
from jaxagent.sandbox import SandboxPool
from jaxagent.sandbox.errors import TierError
from jaxagent.types import Job, Outcome
from tests.envs import program_task
from tests.envs.program_task import HEAD, READ, WRITE
from tests.subset import fast

ROUNDS = 3
BURN = (
  'end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n'
)

# Right where it finds anything: a refusal says that nothing was found.
SPY = (
  HEAD
  + READ
  + """
found = []
for top in ('..', '../..', '/tmp', '/dev/shm'):
  for home, _, names in os.walk(top):
    found += [n for n in names if n not in ('program.py', 'input.npz')
              and n.endswith(('.npz', '.npy', '.json', '.py'))]
for part in ('mem', 'environ', 'maps', 'fd/0', 'cwd/program.py', 'exe'):
  path = f'/proc/{os.getppid()}/{part}'
  try:
    with open(path, 'rb') as file:
      file.read(1)
    found.append(path)
  except OSError:
    pass
if found:
  np.save(sys.argv[2], np.cumsum(x))
"""
)
# Ends where it finds what it left in the round before. At T1 what is outside the
# job's own folders is the host's, and not touched here.
LEAVING = (
  HEAD
  + READ
  + """
own = [os.environ['HOME'], os.environ['TMPDIR'], '..', '../..', '../../tmp/a',
       '../../shm', '/tmp', '/dev/shm']
if not os.getcwd().startswith('/box/'):
  own = own[:-2]
places = [os.path.join(folder, 'left.bin') for folder in own]
if any(os.path.exists(place) for place in places):
  sys.exit(9)
for folder, place in zip(own, places):
  os.makedirs(folder, exist_ok=True)
  open(place, 'wb').write(bytes(9))
for folder in ('..', '../..', '../../tmp', '../../shm'):
  if 'user.left' in os.listxattr(folder):
    sys.exit(8)
  try:
    os.setxattr(folder, 'user.left', b'x')
  except OSError:
    pass
os.chmod('../../tmp/a', 0)
os.rename('../../shm', '../../moved')
os.symlink('moved', '../../shm')
"""
  + WRITE
)
# Of a child whose parent ignores its death no account is kept.
HIDING = (
  'signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n'
  'if os.fork() == 0:\n  ' + WRITE + '  os._exit(0)\n'
  'time.sleep(0.3)\n'
)


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
  task = program_task.prepared(tmp_path_factory.mktemp('sums'))
  with opened(task) as runner:
    yield runner


@pytest.fixture(scope='module')
def rounds(tmp_path_factory):
  """As `bench`, with several rounds in one job."""
  home = tmp_path_factory.mktemp('rounds')
  with opened(program_task.prepared(home, rounds=ROUNDS)) as runner:
    yield runner


@contextlib.contextmanager
def opened(task, **options):
  tasks = {'sums': task}
  with (
    Grader(tasks) as grader,
    SandboxPool(1, min_tier='T1', **options) as pool,
  ):
    yield ScriptRunner(tasks, pool, grader, ExecutionOptions(zygote=False))


def hand_over(bench, text):
  """Runs a first job that hands over a program with this text."""
  files = {'train.py': program_task.HAND_OVER, 'given.py': text}
  return bench.run_script('sums', files, 'train.py')


def refused(bench, text, why):
  run = hand_over(bench, text)
  assert (run.outcome, run.score) == (Outcome.INVALID_SUBMISSION, None), run
  assert why in run.message, run.message
  return run


def test_a_program_as_fast_as_the_reference_scores_about_zero(bench):
  run = hand_over(bench, program_task.PROGRAM)
  assert run.outcome is Outcome.OK, run.message
  assert abs(run.score) < 1
  assert [len(run.measured[n]) for n in ('program_s', 'reference_s')] == [1, 1]
  call = Call(split='private', job_id='private')
  private = bench.grade('sums', program_task.PROGRAM.encode(), call)
  assert private.outcome is Outcome.OK and abs(private.score) < 1


def test_right_numbers_that_take_long_score_worse(bench):
  run = hand_over(bench, HEAD + READ + BURN + WRITE)
  assert run.score > 1
  assert run.measured['program_s'][0] > 0.5


def test_wrong_numbers_in_no_time_are_worth_nothing(bench):
  refused(
    bench,
    HEAD + f'np.save(sys.argv[2], np.zeros({program_task.SIZE}))',
    'the output differs from the right one by',
  )


def test_what_a_program_writes_of_its_own_time_counts_for_nothing(bench):
  forged = """
import json
fake = json.dumps({'reason': '', 'program_s': [1e-6], 'reference_s': [9.0]})
for folder in ('.', '..', '/tmp'):
  for name in ('measured.json', 'stopwatch.json', 'output.txt'):
    try:
      open(f'{folder}/{name}', 'w').write(fake)
    except OSError:
      pass
  np.savez(f'{folder}/measured.npz', round=[0], program_s=[1e-6], reference_s=[9.0],
           output_0=np.cumsum(x))
print(fake)
"""
  run = hand_over(bench, HEAD + READ + BURN + forged + WRITE)
  assert run.score > 1 and run.measured['program_s'][0] > 0.5
  assert run.measured['reference_s'][0] < 5


def test_a_program_sees_neither_reference_nor_other_inputs_nor_its_parent(
  rounds,
):
  refused(rounds, SPY, 'wrote no output.npy')


@pytest.mark.parametrize(
  'hiding',
  [
    HIDING,
    'import threading\nthreading.Thread(target=print).start()\n' + WRITE,
    'import subprocess\nsubprocess.run(["true"])\n' + WRITE,
  ],
)
def test_a_program_starts_no_process_and_no_thread(bench, hiding):
  refused(bench, HEAD + READ + hiding, 'ended with exit status 1')


def test_sleep_is_not_charged_and_gains_nothing(bench):
  run = hand_over(bench, HEAD + READ + 'time.sleep(0.5)\n' + WRITE)
  assert abs(run.score) < 1


@pytest.mark.parametrize(
  'forever',
  fast(
    ['time.sleep(99)', 'while True: pass', HEAD + 'signal.pause()'], first=1
  ),
)
def test_a_program_that_does_not_end_is_stopped(bench, forever):
  run = refused(bench, HEAD + forever, 'took longer than 1 s')
  assert run.measured == {}


@pytest.mark.parametrize(
  ('text', 'why'),
  [
    ('import os\nos._exit(0)', 'wrote no output.npy'),
    ('raise SystemExit(3)', 'ended with exit status 3'),
    ('this is no Python', 'ended with exit status 1'),
    ('', 'wrote no output.npy'),
    (
      HEAD + 'os.kill(os.getpid(), signal.SIGKILL)',
      'ended by signal 9',
    ),
    (HEAD + 'os.kill(os.getppid(), signal.SIGKILL)', 'broke off'),
    (
      HEAD + "os.symlink('/etc/passwd', sys.argv[2])",
      'wrote no output.npy',
    ),
    (HEAD + 'os.mkfifo(sys.argv[2])', 'no regular file'),
    (HEAD + "open(sys.argv[2], 'wb').write(bytes(99999))", '99999 bytes'),
    (HEAD + "open(sys.argv[2], 'wb').write(b'x' * 99)", 'not a readable'),
    (
      HEAD + 'np.save(sys.argv[2], np.array([{}, []], dtype=object))',
      'pickled objects',
    ),
    (HEAD + 'np.save(sys.argv[2], np.zeros(3))', 'shape (3,)'),
    (
      HEAD + f'np.save(sys.argv[2], np.full({program_task.SIZE}, np.nan))',
      'not finite',
    ),
  ],
)
def test_what_is_no_right_output_is_refused_with_a_reason(bench, text, why):
  refused(bench, text, why)


def test_a_gigabyte_of_output_goes_nowhere(bench):
  flood = 'for _ in range(1024): os.write(1, bytes(2**20))\n'
  run = hand_over(bench, HEAD + READ + flood + WRITE)
  assert run.outcome is Outcome.OK and run.score is not None


def test_what_a_program_leaves_behind_does_not_slow_the_reference(rounds):
  litter = """
for folder in ('.', '..', os.environ.get('HOME', '.')):
  for name in ('sitecustomize.py', 'usercustomize.py', 'numpy.py', 'zipfile.py'):
    try:
      open(f'{folder}/{name}', 'w').write('while True: pass')
    except OSError:
      pass
os.makedirs('../deep/deeper')
open('../deep/deeper/file', 'w').close()
os.chmod('../deep/deeper', 0)
os.chmod('../deep', 0)
"""
  run = hand_over(rounds, HEAD + READ + WRITE + litter)
  assert run.outcome is Outcome.OK, run.message
  assert abs(run.score) < 1


def test_a_program_finds_nothing_that_it_left_in_the_round_before(rounds):
  run = hand_over(rounds, LEAVING)
  assert run.outcome is Outcome.OK, run.message
  assert len(run.measured['program_s']) == ROUNDS


ASK_OF_STATE = """
import sys
sys.path.insert(0, '.')
import stopwatch
from stopwatch import os, time
libc = stopwatch.ctypes.CDLL(None)
assert libc.prctl(4, stopwatch.ctypes.c_ulong(0), 0, 0, 0) == 0
for body, ready in (('while True: pass', True), ('import time; time.sleep(99)', False)):
  child = os.fork()
  if child == 0:
    os.execv(sys.executable, [sys.executable, '-c', body])
  time.sleep(1.0)
  found, cpu_s = stopwatch._state_of(child)
  os.kill(child, 9)
  os.wait()
  assert found is ready and 0 < cpu_s < 5, (body, found, cpu_s)
"""


@pytest.mark.slow
def test_a_sandbox_tells_whether_a_program_is_ready_or_sleeps(bench):
  script = pathlib.Path(_stopwatch.__file__).read_text('utf-8')
  files = {'ask.py': ASK_OF_STATE, 'stopwatch.py': script}
  for missing in ([], ['cgroup']):
    with opened(bench.task('sums'), disable=missing) as other:
      job = Job('ask', 'ask.py', files, zygote=False)
      ran = other.pool.submit(job).result()
      assert ran.outcome is Outcome.OK, (
        other.pool.tier,
        ran.errors,
        ran.output,
      )


def test_the_second_job_has_inputs_of_its_half_and_no_answers(bench):
  task = bench.task('sums')
  names = {}
  for split in ('valid', 'private'):
    job = programs.second_job(task, b'', split, 'x')
    assert not job.mounts and not job.zygote
    assert not any('answers' in name for name in job.files)
    names[split] = {n for n in job.files if n.startswith('input')}
  assert names == {'valid': {'input_0.npz'}, 'private': {'input_1.npz'}}
  assert set(task.mounts) == {'data'}
  assert [p.name for p in task.public_dir.iterdir()] == ['sample_submission.py']


def test_the_command_line_gives_the_score_that_training_gave(bench, tmp_path):
  task = bench.task('sums')
  job = programs.second_job(
    task, program_task.PROGRAM.encode(), 'valid', 'again'
  )
  found = programs.read(bench.pool.submit(job).result())
  assert found.outcome is Outcome.OK
  path = tmp_path / 'measured.npz'
  path.write_bytes(found.data)
  grade = graders.grade_files(
    'speed',
    path,
    task.private_dir / 'answers.npz',
    scope=graders.Scope(split='valid'),
  )
  assert grade.score == bench.grader.grade('sums', found.data).score
  assert grade.score is not None
  ratio = found.seconds['program_s'][0] / found.seconds['reference_s'][0]
  assert grade.score == pytest.approx(np.log2(ratio), abs=1e-5)


def test_a_run_that_asks_for_no_submission_measures_nothing(bench):
  run = bench.run_script(
    'sums', {'train.py': 'print(7)'}, 'train.py', outputs=Outputs(graded=False)
  )
  assert run.outcome is Outcome.OK and run.measured == {}


@pytest.mark.slow
@pytest.mark.parametrize('missing', ['cgroup', 'namespaces'])
def test_a_lower_tier_measures_and_refuses_as_well(rounds, missing):
  task = rounds.task('sums')
  with contextlib.ExitStack() as stack:
    try:
      lower = stack.enter_context(opened(task, disable=[missing]))
    except TierError as error:
      pytest.skip(str(error))
    assert lower.pool.tier in ('T1', 'T2')
    run = hand_over(lower, program_task.PROGRAM)
    assert run.outcome is Outcome.OK and abs(run.score) < 1, run.message
    assert hand_over(lower, HEAD + READ + BURN + WRITE).score > 1
    again = hand_over(lower, LEAVING)
    assert again.outcome is Outcome.OK, again.message
    refused(lower, SPY, 'wrote no output.npy')
    refused(lower, HEAD + READ + HIDING, 'ended with exit status 1')
