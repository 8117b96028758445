"""A job that is forked of the zygote sees and does what one that starts anew does."""

from __future__ import annotations

import json

import pytest

from jaxagent.sandbox import SandboxPool, _zygote
from jaxagent.types import Job, Limits, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LIMITS = Limits(timeout_s=60, output_kb=64)


@pytest.fixture(scope='module')
def pool():
  with SandboxPool(1, min_tier='T2') as made:
    yield made


def run(pool, script, *, zygote, files=(), argv=(), **fields):
  name = f'job-{run.count}'
  run.count += 1
  return pool.submit(
    Job(
      name,
      'main.py',
      files={'main.py': script, **dict(files)},
      argv=argv,
      zygote=zygote,
      limits=LIMITS,
      **fields,
    )
  ).result(timeout=120)


run.count = 0

# What the two may see otherwise: when, where in memory, under which number.
OBSERVED = f"""
import importlib
for name in {_zygote.MODULES!r}:
  try: importlib.import_module(name)
  except ImportError: pass
import atexit, builtins, concurrent.futures, decimal, faulthandler, gc, inspect
import joblib, json, linecache, locale, logging, multiprocessing, os, platform
import multiprocessing.forkserver, multiprocessing.resource_tracker
import multiprocessing.spawn, multiprocessing.util, numpy, pandas, random, resource
import signal, site, socket, stat, sys, sysconfig, tempfile, threading, time, uuid
import warnings
seen = {{}}
def see(name, value): seen[name] = repr(value)
for name in ('argv orig_argv executable _base_executable prefix base_prefix '
             'exec_prefix flags path warnoptions _xoptions pycache_prefix '
             'dont_write_bytecode meta_path path_hooks').split():
  see('sys.' + name, [str(x).partition(' at 0x')[0] for x in getattr(sys, name)]
      if name in ('meta_path', 'path_hooks') else getattr(sys, name))
for name in ('getrecursionlimit getswitchinterval getdlopenflags gettrace '
             'getprofile getfilesystemencoding').split():
  see('sys.' + name, getattr(sys, name)())
see('caches of paths', sorted(
  p for p in sys.path_importer_cache if not p.startswith(tuple(sys.path))))
see('hooks', [h is d for h, d in ((sys.excepthook, sys.__excepthook__),
                                  (sys.displayhook, sys.__displayhook__),
                                  (sys.unraisablehook, sys.__unraisablehook__))])
main = sys.modules['__main__']
for name in ('__name__ __file__ __spec__ __package__ __loader__ __doc__').split():
  see('main.' + name, getattr(main, name, 'none'))
see('main is this', main.__dict__ is globals())
see('own modules', [n for n in sys.modules if n.startswith(('jaxagent', '__mp'))])
see('builtins', sorted(dir(builtins)))
see('frames', len(inspect.stack(0)))
def depth(n):
  try: return depth(n + 1)
  except RecursionError: return n
see('recursion', depth(0))
for stream in (sys.stdin, sys.stdout, sys.stderr):
  see(stream.name, [stream.fileno(), stream.mode, stream.encoding, stream.errors,
    stream.newlines, stream.line_buffering, stream.write_through, stream.seekable(),
    stream.isatty(), type(stream.buffer).__name__])
see('dunder', [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__,
               sys.stderr is sys.__stderr__])
see('environ', dict(os.environ))
see('folder', [os.getcwd(), os.path.abspath('x'), tempfile.tempdir,
  tempfile.gettempdir(), os.path.expanduser('~')])
see('fds', sorted(os.listdir('/proc/self/fd'), key=int)[:-1])
for name in ('cmdline', 'environ', 'comm', 'oom_score_adj'):
  see('/proc/self/' + name, open('/proc/self/' + name, 'rb').read())
see('limits', [(n, resource.getrlimit(getattr(resource, n))) for n in dir(resource)
  if n.startswith('RLIMIT_') and n not in ('RLIMIT_DATA', 'RLIMIT_AS')])
see('of the process', [os.umask(0), os.getuid(), os.getgid(), os.getgroups(),
  os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)),
  os.getsid(0) == os.getpid(),
  os.getpgid(0) == os.getpid(), os.cpu_count(), os.getcwd()])
see('signals', [(n, str(signal.getsignal(n)).partition(' at 0x')[0])
                for n in sorted(signal.valid_signals())])
see('blocked', signal.pthread_sigmask(signal.SIG_BLOCK, ()))
see('wakeup', signal.set_wakeup_fd(-1))
see('timer', signal.getitimer(signal.ITIMER_REAL))
one = threading.main_thread()
see('threads', [threading.current_thread() is one, one.ident == threading.get_ident(),
  one.native_id == os.getpid(), one.name, threading.active_count(),
  threading.Thread().name, threading.stack_size()])
see('multiprocessing', [multiprocessing.current_process().name,
  multiprocessing.parent_process(), multiprocessing.active_children(),
  multiprocessing.process.ORIGINAL_DIR, multiprocessing.spawn.get_executable(),
  multiprocessing.spawn.get_preparation_data('x')['orig_dir'],
  {{k: v for k, v in multiprocessing.spawn.get_preparation_data('x').items()
   if k != 'authkey'}}, multiprocessing.util._args_from_interpreter_flags(),
  type(multiprocessing.context._default_context._actual_context),
  multiprocessing.util.MAXFD,
  multiprocessing.resource_tracker._resource_tracker._fd,
  multiprocessing.resource_tracker._resource_tracker._pid,
  multiprocessing.forkserver._forkserver._forkserver_pid,
  multiprocessing.Process().name, multiprocessing.process._current_process._config.get(
    'semprefix'), len(multiprocessing.current_process().authkey)])
see('joblib', [joblib.parallel.DEFAULT_BACKEND, joblib._multiprocessing_helpers.mp
  is not None, joblib.cpu_count()])
see('site', [site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE,
  sysconfig.get_config_var('userbase'), sysconfig.get_paths()])
see('platform', [platform.uname(), platform.node(), socket.gethostname(),
  platform.python_implementation()])
see('locale', [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()])
see('logging', [logging.root.level, logging.root.handlers, logging.raiseExceptions,
  logging.lastResort.stream is sys.stderr, time.time() - logging._startTime < 30])
see('warnings', sorted(str(f) for f in warnings.filters))
see('numbers', [decimal.getcontext(), numpy.geterr(), numpy.get_printoptions(),
  pandas.get_option('display.max_rows'), pandas.options.mode.copy_on_write])
see('gc', [gc.isenabled(), gc.get_threshold(), gc.get_debug()])
see('others', [faulthandler.is_enabled(), socket.getdefaulttimeout(),
  time.tzname, hash('abc'), hash(None), hash(b'x'), linecache.cache == {{}},
  atexit._ncallbacks() > 0, uuid._node])
see('sets', [[*{{'red', 'green', 'blue', 'black', 'mean', 'std', 'x'}}],
  [*{{None, 'a', int, str, 1.5}}], list(set('the quick brown fox'.split()))])
import beside
see('sets of a module', beside.NAMES)
try: os.write(os.open('f', os.O_CREAT | os.O_WRONLY), b'')
except OSError as error: see('write', error)
r, w = os.pipe(); os.close(r)
try: os.write(w, b'x')
except BrokenPipeError: see('pipe', 'broken')
open('seen.json', 'w').write(json.dumps(seen))
"""
BESIDE = "NAMES = [*{'mean', 'std', 'median', 'count', 'sum', 'axis'}]\n"


@pytest.fixture(scope='module')
def observations(pool):
  found = []
  for zygote in (False, True):
    result = run(
      pool,
      OBSERVED,
      zygote=zygote,
      files={'beside.py': BESIDE}.items(),
      argv=('--a', 'b c'),
      collect=('seen.json',),
    )
    assert result.outcome is Outcome.OK, (result.message, result.output)
    found.append(json.loads(result.collected['seen.json']))
  return found


def test_a_fork_of_the_zygote_observes_what_a_new_interpreter_does(
  observations,
):
  cold, zygote = observations
  assert len(cold) > 60
  assert {k: zygote[k] for k in cold if zygote[k] != cold[k]} == {}, {
    k: cold[k] for k in cold if zygote[k] != cold[k]
  }


def test_neither_observes_what_starts_it(observations):
  for seen in observations:
    text = json.dumps(
      {k: v for k, v in seen.items() if k.startswith(('sys.', '/'))}
    )
    assert '-I' not in seen['sys.orig_argv'] and 'package_root' not in text
    assert "'HOME': '/box/tmp'" in seen['environ']


def test_jobs_share_no_secret_and_no_random_state(pool):
  """Forks of one process would draw alike."""
  script = (
    'import multiprocessing, numpy, random, tempfile\n'
    'print(bytes(multiprocessing.current_process().authkey).hex(),\n'
    '      random.random(), numpy.random.rand(),\n'
    '      next(tempfile._get_candidate_names()))'
  )
  first, second = (
    run(pool, script, zygote=True).output.split() for _ in range(2)
  )
  assert len(first) == 4 and all(a != b for a, b in zip(first, second))


WORK = 'import os\ndef work(x): return x * x, os.getpid()\n'
MAIN = "if __name__ == '__main__':\n"
WAYS = {
  **{
    f'{how} process': WORK
    + MAIN
    + f"""
  import multiprocessing
  process = multiprocessing.get_context('{how}').Process(target=work, args=(2,))
  process.start(); process.join(30); print('exit', process.exitcode)
"""
    for how in ('fork', 'spawn', 'forkserver')
  },
  **{
    f'{how} pool': WORK
    + MAIN
    + f"""
  import multiprocessing
  with multiprocessing.get_context('{how}').Pool(2) as pool:
    got = pool.map(work, range(6))
  print([x for x, _ in got], os.getpid() not in {{p for _, p in got}})
"""
    for how in ('fork', 'spawn', 'forkserver')
  },
  **{
    f'{how} executor': WORK
    + MAIN
    + f"""
  import concurrent.futures, multiprocessing
  with concurrent.futures.ProcessPoolExecutor(
    2, mp_context=multiprocessing.get_context('{how}')) as pool:
    got = list(pool.map(work, range(6)))
  print([x for x, _ in got], os.getpid() not in {{p for _, p in got}})
"""
    for how in ('fork', 'spawn', 'forkserver')
  },
  'loky': WORK
  + MAIN
  + """
  import joblib
  got = joblib.Parallel(n_jobs=2)(joblib.delayed(work)(i) for i in range(6))
  print([x for x, _ in got], os.getpid() not in {p for _, p in got})
""",
  'cross validation': MAIN
  + """
  import numpy as np
  from sklearn.linear_model import LogisticRegression
  from sklearn.model_selection import cross_val_score
  x = np.random.RandomState(0).rand(60, 3)
  print(cross_val_score(LogisticRegression(), x, x[:, 0] > .5, n_jobs=2, cv=3))
""",
  'manager': WORK
  + MAIN
  + """
  import multiprocessing
  with multiprocessing.get_context('spawn').Manager() as manager:
    kept = manager.dict(a=1)
    print(dict(kept))
""",
}


@pytest.mark.parametrize('way', WAYS)
def test_processes_of_a_job_work_alike(pool, way):
  cold, zygote = (run(pool, WAYS[way], zygote=z) for z in (False, True))
  assert cold.outcome is Outcome.OK, (cold.message, cold.output)
  assert (zygote.outcome, zygote.output) == (cold.outcome, cold.output)
  assert (
    'exit 0' in cold.output
    or 'True' in cold.output
    or '[' in cold.output
    or (cold.output == "{'a': 1}\n")
  )
  assert 'False' not in cold.output


SEEDED = """
import subprocess, sys, multiprocessing
ASK = "print(hash('abc'), [*set('red green blue black'.split())])"
def say(): exec(ASK)
if __name__ == '__main__':
  say()
  sys.stdout.flush()
  subprocess.run([sys.executable, '-c', ASK], check=True)
  for how in ('spawn', 'forkserver'):
    child = multiprocessing.get_context(how).Process(target=say)
    child.start(); child.join()
"""


@pytest.mark.parametrize('zygote', [False, True])
def test_strings_have_one_hash_in_a_job_and_its_children(pool, zygote):
  lines = run(pool, SEEDED, zygote=zygote).output.splitlines()
  assert len(lines) == 4 and len(set(lines)) == 1, lines


def test_a_script_prints_the_same_in_every_sandbox(pool):
  """Copy of what was seen: three runs of a set gave three orders."""
  script = "print(hash('abc'), [*{'red', 'green', 'blue', 'black'}])"
  seen = {
    run(pool, script, zygote=z).output for z in (False, True, False, True)
  }
  with SandboxPool(1, min_tier='T2') as another:
    seen |= {run(another, script, zygote=z).output for z in (False, True)}
  assert len(seen) == 1, seen


@pytest.mark.parametrize('zygote', [False, True])
def test_no_folder_of_the_job_is_on_the_path_before_its_script(pool, zygote):
  """What -I held off: user packages, PYTHONPATH, modules of the folder."""
  script = (
    'import os, subprocess, sys, sysconfig\n'
    'print(sys.flags.no_user_site, sys.flags.safe_path, "" in sys.path,\n'
    '      [p for p in sys.path[1:] if p.startswith(("/box", "."))],\n'
    '      sys.path[0] == os.getcwd(), "PYTHONPATH" in os.environ)'
  )
  files = {
    'sitecustomize.py': 'raise SystemExit("taken")',
    'encodings.py': 'raise SystemExit("taken")',
  }
  result = run(pool, script, zygote=zygote, files=files.items())
  assert result.output == '1 True False [] True False\n', result.output
