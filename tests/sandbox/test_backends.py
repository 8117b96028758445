"""The promises of the pool, on every backend alike; each really runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from jaxagent.sandbox import SandboxPool, cpu_levels
from jaxagent.sandbox.pool import BACKENDS
from jaxagent.types import Job, Limits, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# A second of a job's, or how late it is, is measured.
alone = pytest.mark.alone
SMALL = Limits(timeout_s=30, memory_mb=256, pids=32, disk_mb=16, output_kb=64)


@pytest.fixture(
  scope='module',
  # Ray finds clusters by what all its processes of a machine share.
  params=[pytest.param(b, marks=[alone] * (b == 'ray')) for b in BACKENDS],
)
def pool(request):
  options = {}
  if request.param == 'docker':
    options['image'] = request.getfixturevalue('docker_image')
  with SandboxPool(2, backend=request.param, min_tier='T2', **options) as made:
    yield made


def run(pool, script, *, name='', deadline_s=None, **fields):
  fields.setdefault('limits', SMALL)
  files = {'main.py': script, **fields.pop('files', {})}
  name = name or f'job-{time.monotonic_ns()}'
  return pool.submit(
    Job(name, 'main.py', files=files, **fields), deadline_s=deadline_s
  ).result(timeout=120)


def limits(**changes):
  return Limits(**{**vars(SMALL), **changes})


OUTCOMES = {
  'ok': ('print(1)', {}, Outcome.OK),
  'raises': ('1 / 0', {}, Outcome.SCRIPT_ERROR),
  'exits': ('import sys; sys.exit(3)', {}, Outcome.SCRIPT_ERROR),
  'syntax': ('def', {}, Outcome.SCRIPT_ERROR),
  'kills itself': (
    'import os; os.kill(os.getpid(), 9)',
    {},
    Outcome.SCRIPT_ERROR,
  ),
  'claims a time-out': (
    'import os; os.kill(os.getpid(), 24)',
    {},
    Outcome.SCRIPT_ERROR,
  ),
  'claims memory': ('raise MemoryError', {}, Outcome.SCRIPT_ERROR),
  'claims a full disk': ("raise OSError(28, 'x')", {}, Outcome.SCRIPT_ERROR),
  'signals its supervisor': (
    'import os, signal\nfor n in range(1, 65):\n'
    '  try: os.kill(1, n)\n  except OSError: pass',
    {},
    Outcome.OK,
  ),
  'loops': (
    'while True: pass',
    {'limits': limits(timeout_s=1.0)},
    Outcome.TIMEOUT,
  ),
  'memory': (
    "x = [bytearray(b'1' * 2**20) for _ in range(2000)]",
    {},
    Outcome.OOM,
  ),
  'memory of a child': (
    'import os\nif os.fork() == 0: x = [bytearray(b"1" * 2**20) for _ in '
    'range(2000)]\nelse: raise SystemExit(os.wait()[1] != 0)',
    {},
    Outcome.OOM,
  ),
  'disk': ("open('f', 'wb').write(b'1' * 2**26)", {}, Outcome.DISK_LIMIT),
  'output': ("while True: print('x' * 1000)", {}, Outcome.OUTPUT_LIMIT),
  'nothing handed in': ('pass', {'collect': ('a.csv',)}, Outcome.NO_SUBMISSION),
  'a link handed in': (
    "import os; os.symlink('/etc/passwd', 'a.csv')",
    {'collect': ('a.csv',)},
    Outcome.INVALID_SUBMISSION,
  ),
  'a pipe handed in': (
    "import os; os.mkfifo('a.csv')",
    {'collect': ('a.csv',)},
    Outcome.INVALID_SUBMISSION,
  ),
}


@pytest.mark.parametrize('name', OUTCOMES)
@pytest.mark.parametrize('zygote', [False, True])
def test_outcome(pool, name, zygote):
  script, fields, wanted = OUTCOMES[name]
  result = run(pool, script, zygote=zygote, **fields)
  assert result.outcome is wanted, (result.message, result.output)
  assert result.tier == pool.tier and result.attempts == 1
  assert 0 < result.exec_s < 20


@pytest.mark.parametrize('made', ['1 / 0', 'pass', "os.mkfifo('b')"])
def test_a_missing_optional_file_is_no_error_of_the_script(pool, made):
  """It comes out of a script that fails, too."""
  script = f"import os\nopen('a', 'w').write('1')\n{made}"
  result = run(pool, script, optional=('a', 'b'))
  failed = Outcome.SCRIPT_ERROR if '/' in made else Outcome.OK
  assert result.outcome is failed and result.collected == {'a': b'1'}
  owed = run(pool, script, collect=('b',), optional=('a',))
  assert owed.outcome is not Outcome.OK and owed.collected == {'a': b'1'}


def test_everything_goes_in_and_comes_out(pool, tmp_path):
  (tmp_path / 'x.csv').write_text('7')
  tmp_path.chmod(0o755)
  blob = bytes(range(256)) * 5000
  script = (
    'import os, sys\n'
    "data = open('in/deep.bin', 'rb').read()\n"
    "open('out.bin', 'wb').write(data[::-1])\n"
    "os.makedirs('a/b'); open('a/b/c', 'w').write(open('data/x.csv').read())\n"
    "try: open('data/y', 'w')\nexcept OSError: print('read-only')\n"
    "print(sys.argv[1:], os.environ['SAID'], os.getcwd().split('/')[-1])\n"
    "print('\\u00e9', file=sys.stderr)\n"
    'import sklearn, numpy; print(numpy.arange(3).sum())\n'
  )
  result = run(
    pool,
    script,
    files={'in/deep.bin': blob},
    argv=('a b', 'é'),
    env={'SAID': 'x=y'},
    mounts={'data': tmp_path},
    collect=('out.bin', 'a/b/c'),
  )
  assert result.outcome is Outcome.OK, (result.message, result.output)
  assert result.collected == {'out.bin': blob[::-1], 'a/b/c': b'7'}
  assert result.output == ("read-only\n['a b', 'é'] x=y workspace\né\n3\n")
  assert not (tmp_path / 'y').exists()


def test_nothing_is_left_for_the_next_job(pool):
  run(pool, "open('kept', 'w'); open('/tmp/kept', 'w')")
  for _ in range(2):
    result = run(
      pool,
      "import os; print(os.path.exists('kept'), os.path.exists('/tmp/kept'))",
    )
    assert result.output == 'False False\n'


SAME = """
import multiprocessing, os, subprocess, sys
ASK = "print(hash('abc'), [*{'red', 'green', 'blue', 'black'}])"
def say(): print(hash('abc'), [*{'red', 'green', 'blue', 'black'}])
if __name__ == '__main__':
  say()
  subprocess.run([sys.executable, '-c', ASK], check=True)
  child = multiprocessing.get_context('spawn').Process(target=say)
  child.start(); child.join()
  print(child.exitcode, os.environ.get('OPENBLAS_CORETYPE', ''))
"""


def test_a_script_does_the_same_in_every_backend(pool):
  """PYTHONHASHSEED is 0, the vector units are those of the level."""
  ask = "print(hash('abc'), [*set(['red', 'green', 'blue', 'black'])])"
  wanted = subprocess.run(
    [sys.executable, '-c', ask],
    env={'PYTHONHASHSEED': '0'},
    text=True,
    capture_output=True,
    check=True,
  ).stdout.split()[0]
  kernels = cpu_levels.here().get('OPENBLAS_CORETYPE', '')
  outputs = [run(pool, SAME, zygote=z).output for z in (False, True)]
  lines = outputs[0].splitlines()
  assert [line.split()[0] for line in lines] == [wanted] * 3 + ['0'], lines
  assert lines[3] == f'0 {kernels}'
  assert outputs[0] == outputs[1]


@pytest.mark.parametrize('zygote', [False, True])
def test_a_long_progress_bar_ends_nothing(pool, zygote):
  script = (
    'import sys\n'
    'for i in range(7000):\n'
    "  print(f'\\rstep {i} |{i * 40 // 7000 * chr(35):40}| 12.3 it/s', end='', "
    'file=sys.stderr)\n'
    "open('a.csv', 'w').write('1'); print('done')"
  )
  result = run(pool, script, zygote=zygote, collect=('a.csv',))
  assert result.outcome is Outcome.OK, result.message
  assert result.output_bytes > 6 * 1024 * SMALL.output_kb
  assert result.output.startswith('\rstep 0 ') and result.output.endswith(
    'done\n'
  )
  assert '[... cut ...]' in result.output and len(result.output) < 70_000
  assert result.collected == {'a.csv': b'1'}


def test_output_keeps_head_and_tail(pool):
  result = run(
    pool,
    "print('first'); print('x' * 200_000); print('last')",
    limits=limits(output_kb=1024),
  )
  assert result.outcome is Outcome.OK
  assert result.output.startswith('first\n')
  assert result.output.endswith('last\n') and '[... cut ...]' in result.output
  assert result.output_bytes == 200_012


@pytest.mark.parametrize('zygote', [False, True])
def test_standard_error_comes_apart(pool, zygote):
  script = "import os\nprint('a')\nos.system('echo b; echo c >&2')\n1 / 0"
  result = run(pool, script, zygote=zygote, apart=True)
  assert result.output == 'a\nb\n'
  assert result.errors.startswith('c\nTraceback')
  together = run(pool, script, zygote=zygote)
  assert together.output == result.output + result.errors
  assert together.errors == ''


@alone
@pytest.mark.parametrize('zygote', [False, True])
def test_changed_files_come_out(pool, zygote):
  script = (
    'import os\n'
    "os.mkdir('in/new'); open('in/new/f', 'wb').write(b'\\xff' * 3_000_000)\n"
    "open('in/a', 'w').write('2'); os.remove('in/b'); os.mkfifo('pipe')\n"
    "open('large', 'wb').truncate(6_000_000)\nwhile True: pass"
  )
  result = run(
    pool,
    script,
    zygote=zygote,
    files={'in/a': '1', 'in/b': '1', 'c': '1'},
    changed_mb=4,
    limits=limits(timeout_s=1.0),
  )
  assert result.outcome is Outcome.TIMEOUT, result.message
  assert result.changed == {'in/a': b'2', 'in/new/f': b'\xff' * 3_000_000}
  assert result.removed == ('in/b',)
  assert result.left_out == (
    'large: 6000000 bytes, beyond 4 MB',
    'pipe: is a pipe',
  )


def test_a_large_result_comes_out_whole(pool):
  result = run(pool, "open('f', 'wb').write(b'ab' * 6_000_000)", collect=('f',))
  assert result.collected['f'] == b'ab' * 6_000_000


@alone
@pytest.mark.parametrize('zygote', [False, True])
def test_what_was_printed_before_a_kill_is_kept(pool, zygote):
  script = "print('loss 0.5', end='')\nwhile True: pass"
  result = run(pool, script, zygote=zygote, limits=limits(timeout_s=1.0))
  assert result.outcome is Outcome.TIMEOUT
  assert result.output == ('loss 0.5' if not zygote else result.output)


def test_threads_are_counted(pool):
  result = run(
    pool,
    (
      'import threading, time\n'
      'for i in range(100): threading.Thread(target=time.sleep, args=(1,), '
      'daemon=True).start()'
    ),
  )
  assert result.outcome is Outcome.SCRIPT_ERROR and 'thread' in result.output


@alone
def test_times_are_those_of_the_script(pool):
  result = run(pool, 'import time; time.sleep(1.0)')
  assert 1.0 <= result.exec_s < 1.4
  assert result.startup_s < 5 and result.teardown_s < 5
  busy = run(pool, 'import time\nwhile time.process_time() < 0.5: pass')
  assert busy.cpu_s >= 0.5


@alone
def test_a_deadline_is_kept_with_both_slots_busy(pool):
  futures = [
    pool.submit(
      Job(
        f'late-{i}-{time.monotonic_ns()}',
        'main.py',
        files={'main.py': 'while True: pass'},
        limits=limits(timeout_s=1.0),
      )
    )
    for i in range(4)
  ]
  for future in futures:
    result = future.result(timeout=60)
    assert result.outcome is Outcome.TIMEOUT and result.exec_s < 1.5


def test_a_cancel_is_never_lost(pool):
  for number in range(12):
    name = f'lost-{number}'
    future = pool.submit(
      Job(name, 'main.py', files={'main.py': 'import time; time.sleep(50)'})
    )
    time.sleep(number * 0.03)  # queued, between, or running
    assert pool.cancel(name)
    assert future.result(timeout=20).outcome is Outcome.KILLED
  assert not pool.cancel('lost-0')


@alone
def test_a_job_that_is_cancelled_stops_at_once(pool):
  future = pool.submit(
    Job('stop', 'main.py', files={'main.py': 'while True: pass'})
  )
  time.sleep(1.5)
  threading.Timer(0, pool.cancel, ['stop']).start()
  begin = time.monotonic()
  assert future.result(timeout=20).outcome is Outcome.KILLED
  assert time.monotonic() - begin < 3


def test_an_outer_deadline_passed_in_the_queue_is_not_charged(pool):
  result = run(pool, 'pass', deadline_s=1e-9)
  assert result.outcome is Outcome.DEADLINE


def test_a_mount_that_went_away_is_not_charged(pool, tmp_path):
  folder = tmp_path / 'gone'
  folder.mkdir()
  blocker = [
    pool.submit(
      Job(
        f'b{i}-{time.monotonic_ns()}',
        'main.py',
        files={'main.py': 'import time; time.sleep(1)'},
      )
    )
    for i in range(2)
  ]
  future = pool.submit(
    Job('gone', 'main.py', files={'main.py': 'pass'}, mounts={'data': folder})
  )
  os.rmdir(folder)
  result = future.result(timeout=60)
  assert result.outcome is Outcome.INFRASTRUCTURE and result.attempts == 3
  assert [b.result().outcome for b in blocker] == [Outcome.OK] * 2
