"""The Ray backend: bytes both ways, cancellation, lost actors and nodes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import ray_nodes as benchmark
from jaxagent.sandbox import (
  SandboxPool,
  errors,
  ray_backend,
  ray_bytes,
  ray_nodes,
  ray_private,
  ray_slot,
  scratch,
)
from jaxagent.types import Execution, Job, Limits, Outcome

slow = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
_LIMITS = st.builds(
  Limits,
  timeout_s=st.floats(0.1, 1e6),
  memory_mb=st.integers(1, 10**6),
  pids=st.integers(1, 1000),
  disk_mb=st.integers(1, 1000),
  output_kb=st.integers(1, 1000),
)
_JOBS = st.builds(
  Job,
  job_id=_TEXT,
  script=_TEXT,
  files=st.dictionaries(_TEXT, _TEXT | st.binary(max_size=50), max_size=3),
  mounts=st.dictionaries(
    _TEXT, st.sampled_from([pathlib.Path('/a b'), pathlib.Path('/é')])
  ),
  argv=st.lists(_TEXT, max_size=3).map(tuple),
  collect=st.lists(_TEXT, max_size=3).map(tuple),
  env=st.dictionaries(_TEXT, _TEXT, max_size=3),
  limits=_LIMITS,
  zygote=st.booleans(),
  gpus=st.integers(0, 8),
  threads=st.integers(1, 64),
  priority=st.floats(allow_nan=False),
  apart=st.booleans(),
  changed_mb=st.floats(0, 512),
)
_SECONDS = st.floats(0, 1e9)
_EXECUTIONS = st.builds(
  Execution,
  job_id=_TEXT,
  outcome=st.sampled_from(Outcome),
  tier=st.sampled_from(errors.TIERS),
  exit_code=st.none() | st.integers(0, 255),
  signal=st.none() | st.integers(1, 64),
  queue_s=_SECONDS,
  startup_s=_SECONDS,
  exec_s=_SECONDS,
  teardown_s=_SECONDS,
  cpu_s=_SECONDS,
  peak_memory_mb=_SECONDS,
  bytes_written=st.integers(0),
  output=_TEXT,
  output_bytes=st.integers(0),
  collected=st.dictionaries(_TEXT, st.binary(max_size=50), max_size=3),
  message=_TEXT,
  attempts=st.integers(1, 3),
  errors=_TEXT,
  changed=st.dictionaries(_TEXT, st.binary(max_size=50), max_size=3),
  removed=st.lists(_TEXT, max_size=3).map(tuple),
  left_out=st.lists(_TEXT, max_size=3).map(tuple),
)


@given(_JOBS)
def test_a_job_comes_back_from_bytes(job):
  back = ray_bytes.job_from_bytes(ray_bytes.job_to_bytes(job))
  assert back == job and list(back.files) == list(job.files)


@given(_EXECUTIONS)
def test_an_execution_comes_back_from_bytes(execution):
  data = ray_bytes.execution_to_bytes(execution)
  assert ray_bytes.execution_from_bytes(data) == execution


def test_surrogates_stay_apart():
  text = '\ud800\udc00\udcff'
  job = Job(
    text, text, files={text: text, 'b': text.encode('utf-16', 'ignore')}
  )
  assert ray_bytes.job_from_bytes(ray_bytes.job_to_bytes(job)) == job


_OWNER = """
import os, sys
from jaxagent.sandbox import scratch
folder = scratch.Folder(sys.argv[1])
folder.write('jaxagent-1-00000000')
os.makedirs(folder.path + '/a/b')
print(folder.path, flush=True)
if len(sys.argv) > 2: folder.write('x'); sys.stdin.read()
os._exit(9)
"""


def test_folders_of_dead_owners_are_swept_and_no_other(tmp_path):
  command = [sys.executable, '-c', _OWNER, str(tmp_path)]
  dead = subprocess.run(command, capture_output=True, text=True, check=False)
  other = tmp_path / (scratch.PREFIX + 'other')
  other.mkdir()
  (other / 'owner').write_text('another machine\n')
  (tmp_path / (scratch.PREFIX + 'being-made')).mkdir()
  with subprocess.Popen(
    [*command, 'live'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as live:
    path = live.stdout.readline().strip()
    assert scratch.sweep(str(tmp_path)) == 1
    assert os.path.isdir(path + '/a/b')
    assert not os.path.exists(dead.stdout.strip())
    live.stdin.close()
  assert scratch.sweep(str(tmp_path)) == 1
  assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
  'address, text',
  [
    ('ray://127.0.0.1:1', 'Ray Client'),
    ('127.0.0.1:1', 'nothing answers'),
  ],
)
def test_an_address_without_a_cluster_is_named(address, text):
  started = time.monotonic()
  with contextlib.closing(ray_backend.RayBackend(1, address=address)) as made:
    with pytest.raises(errors.BackendError, match=text) as caught:
      made.start()
  assert address in str(caught.value) and '\n' not in str(caught.value)
  assert time.monotonic() - started < 15


@pytest.mark.slow
@pytest.mark.alone
def test_an_address_that_accepts_and_says_nothing(monkeypatch):
  monkeypatch.setattr(ray_backend, 'JOIN_S', 6.0)
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    address = f'127.0.0.1:{listener.getsockname()[1]}'
    with contextlib.closing(ray_backend.RayBackend(1, address=address)) as made:
      with pytest.raises(errors.BackendError, match='within 6 s'):
        made.start()


def _record(node, alive=True, **more):
  return {
    'NodeID': node,
    'Alive': alive,
    'NodeManagerHostname': f'host-{node}',
    'NodeManagerAddress': '10.0.0.1',
    'Resources': {'CPU': 8.0},
    **more,
  }


def test_nodes_that_go_and_come_are_named_once():
  nodes = ray_nodes.Nodes(
    lambda node: (2, ['b', 'a']) if node == 'x' else (0, [])
  )
  assert nodes.changes([_record('x'), _record('y')]) == []
  assert nodes.changes([_record('x'), _record('y')]) == []
  gone = _record('x', alive=False, DeathReasonMessage='missed\nheartbeats')
  (line,) = nodes.changes([gone, _record('y'), _record('z')][:2])
  assert line == (
    'Ray node host-x (10.0.0.1) is gone (missed heartbeats): its 2 slots start on '
    'other nodes; 2 jobs that ran there (a, b) are run again.'
  )
  (line,) = nodes.changes([gone, _record('y'), _record('z')])
  assert line.startswith('Ray node host-z (10.0.0.1) has joined with 8 CPUs')
  (line,) = nodes.changes([_record('z')])  # one that Ray has forgotten
  assert 'host-y (10.0.0.1) is gone (no reason given): its 0 slots' in line


_CORE = (
  '[2026-11-29 09:31:50,870 W 1717 1717] gcs_client.cc:210: Failed to get cluster ID '
  'from GCS server: Unauthenticated: RPC error: InvalidAuthToken: Authentication token '
  'is missing or incorrect\n'
)


@pytest.mark.parametrize(
  'text, words',
  [
    ('', ''),
    ('something else\n', ''),
    ('x\n' + 3 * _CORE + 'later', _CORE.partition('210: ')[2].strip()),
    ('[2026 I 1 1] a.cc:1: fine\n', ''),
    ('[2026 E 1 1] (raylet) a/b.cc:1: not fine\n', 'not fine'),
    ('\x00[W]\n[] W ]', ''),
  ],
)
def test_the_words_of_rays_core_are_found(text, words):
  assert ray_nodes.last_words(text) == words


@given(st.text())
def test_anything_that_a_core_writes_is_read(text):
  ray_nodes.last_words(text)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_a_token_that_is_missing_is_named(tmp_path, monkeypatch):
  with benchmark.head_with_token() as address:
    monkeypatch.setenv('HOME', str(tmp_path))
    for mode in ('', 'token'):
      monkeypatch.setenv('RAY_AUTH_MODE', mode)
      made = ray_backend.RayBackend(1, address=address)
      with contextlib.closing(made):
        with pytest.raises(errors.BackendError, match='RAY_AUTH_TOKEN') as said:
          made.start()
      assert 'Authentication token is missing' in str(said.value) or mode


def test_unknown_primitives_are_refused():
  with pytest.raises(ValueError, match='choose from'):
    ray_backend.RayBackend(1, disable=['x'])


# From here on Ray runs.


def job(name, script, **fields):
  return Job(name, 'main.py', files={'main.py': script}, **fields)


def folders(*roots):
  return {
    path
    for root in (tempfile.gettempdir(), *roots)
    for path in pathlib.Path(root).glob('jaxagent-*')
  }


def groups(pids):
  return [
    path
    for root in ('memory', 'pids', 'cpu,cpuacct', 'cpuacct', '')
    for pid in pids
    for path in pathlib.Path('/sys/fs/cgroup', root).glob(
      f'**/jaxagent-{pid}-*'
    )
  ]


def with_argument(text):
  """Process ids whose command line has `text`."""
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    with contextlib.suppress(OSError):
      if text.encode() in path.read_bytes().split(b'\0'):
        found.append(int(path.parent.name))
  return found


def wait_for(condition, seconds=10.0):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'it did not happen in time'
    time.sleep(0.02)


@contextlib.contextmanager
def running(backend, made, slot=0, timeout_s=60.0):
  """Runs a job in a thread; yields a list that gets its execution."""
  results = []
  thread = threading.Thread(
    target=lambda: results.append(backend.run(made, slot, timeout_s))
  )
  thread.start()
  yield results
  thread.join(90)
  assert results, 'the run did not return'


@pytest.fixture(scope='class')
def backend(tmp_path_factory):
  """Two slots of a private Ray, with a look at what is left at the end."""
  work = tmp_path_factory.mktemp('ray')
  before, handler = folders(work), signal.getsignal(signal.SIGTERM)
  made = ray_backend.RayBackend(2, work_dir=work)
  with contextlib.closing(made):
    assert made.start() == made.tier >= 'T1'
    assert signal.getsignal(signal.SIGTERM) is handler
    pids = [a['pid'] for a in made.stats()['actors']]
    yield made
    pids += [a['pid'] for a in made.stats()['actors'] if a]
    theirs = ray_private.processes_of(made._home)
    assert set(pids[2:]) <= set(theirs)
  assert not [p for p, s in theirs.items() if ray_private.started(p) == s]
  assert folders(work) == before and not groups(pids)
  assert signal.getsignal(signal.SIGTERM) is handler


class TestPrivate:
  pytestmark = slow

  def test_it_listens_on_the_loopback_alone(self, backend):
    mine = {
      os.readlink(fd)[8:-1]
      for pid in (*ray_private.processes_of(backend._home), os.getpid())
      for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir()
      if os.path.islink(fd) and os.readlink(fd).startswith('socket:')
    }
    heard = []
    for name in ('tcp', 'tcp6'):
      for line in pathlib.Path('/proc/net', name).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == '0A' and fields[9] in mine:
          heard.append(fields[1].split(':')[0])
    assert len(heard) >= 3
    assert all(h.endswith('0100007F') for h in heard), heard

  @pytest.mark.parametrize(
    'script, limit_s, wanted',
    [
      ('print(1)', 20.0, Outcome.OK),
      ('1 / 0', 20.0, Outcome.SCRIPT_ERROR),
      ('while True: pass', 1.0, Outcome.TIMEOUT),
    ],
  )
  def test_outcomes(self, backend, script, limit_s, wanted):
    for slot in range(2):
      result = backend.run(job('x', script), slot, limit_s)
      assert result.outcome is wanted, result
      assert result.tier == backend.tier

  def test_jobs_run_at_the_priority_of_the_driver(self, backend):
    script = 'import os; print(os.getpriority(0, 0))'
    result = backend.run(job('nice', script), 0, 20.0)
    assert result.output == f'{os.getpriority(os.PRIO_PROCESS, 0)}\n'

  def test_files_of_some_megabytes_pass(self, backend):
    data = os.urandom(24 << 20)
    made = Job(
      'big',
      'main.py',
      collect=('b',),
      files={'a': data, 'main.py': "import os; os.rename('a', 'b')"},
    )
    result = backend.run(made, 0, 60.0)
    assert result.outcome is Outcome.OK, result.message
    assert result.collected == {'b': data}

  def test_a_missing_mount_names_node_and_path(self, backend):
    made = job('m', 'pass', mounts={'data': pathlib.Path('/nowhere/at all')})
    result = backend.run(made, 0, 20.0)
    assert result.outcome is Outcome.INFRASTRUCTURE
    assert '/nowhere/at all' in result.message
    assert socket.gethostname() in result.message

  def test_cancel_kills_a_running_job(self, backend):
    with running(backend, job('c', 'import time; time.sleep(50)')) as results:
      time.sleep(1)
      started = time.monotonic()
      assert backend.cancel('c')
    assert results[0].outcome is Outcome.KILLED
    assert time.monotonic() - started < 2
    assert not backend.cancel('c')

  def test_a_cancel_is_never_lost(self, backend):
    for number in range(30):
      made = job(f'c{number}', 'import time; time.sleep(50)')
      with running(backend, made, number % 2) as results:
        wait_for(lambda: made.job_id in backend._running)  # noqa: B023
        time.sleep(number * 0.5e-3)
        assert backend.cancel(made.job_id)
      assert results[0].outcome is Outcome.KILLED

  def test_a_cancel_from_before_is_seen(self, backend):
    result = backend.run(job('c', 'pass'), 0, 20.0, cancelled=lambda: True)
    assert result.outcome is Outcome.KILLED

  def test_a_killed_actor_takes_its_job_along_and_is_replaced(self, backend):
    seconds = f'4321.{os.getpid()}'
    script = (
      f"import subprocess; subprocess.Popen(['sleep', '{seconds}']).wait()"
    )
    restarts, old = backend.restarts, backend.stats()['actors'][1]['pid']
    with running(backend, job('lost', script), 1) as results:
      wait_for(lambda: with_argument(seconds))
      os.kill(old, signal.SIGKILL)
      killed = time.monotonic()
      wait_for(lambda: not with_argument(seconds), 3)
    assert time.monotonic() - killed < 5
    assert results[0].outcome is Outcome.INFRASTRUCTURE
    again = backend.run(job('lost', 'print(2)'), 1, 20.0)
    assert again.outcome is Outcome.OK and again.output == '2\n'
    assert backend.stats()['actors'][1]['pid'] != old
    assert backend.restarts == restarts + 1
    wait_for(lambda: not groups([old]))

  def test_an_actor_that_dies_before_it_opens_costs_its_job_nothing(
    self, backend, monkeypatch
  ):
    check, loaded = backend._check, []

    def die_once(handle, record):
      loaded.append(record['pid'])
      if len(loaded) == 1:
        os.kill(loaded[0], signal.SIGKILL)
      return check(handle, record)

    monkeypatch.setattr(backend, '_check', die_once)
    backend._lose(0, backend._actors[0], 'earlier')
    result = backend.run(job('again', 'print(5)'), 0, 20.0)
    assert result.outcome is Outcome.OK and result.output == '5\n'
    assert len(loaded) == 2 and not ray_private.started(loaded[0])

  def test_a_killed_launcher_leaves_a_working_actor(self, backend):
    actor = backend.stats()['actors'][0]['pid']
    (launcher,) = [
      int(p)
      for p in pathlib.Path(f'/proc/{actor}/task').glob('*/children')
      for p in p.read_text().split()
    ]
    os.kill(launcher, signal.SIGKILL)
    result = backend.run(job('l', 'print(3)'), 0, 20.0)
    assert result.outcome in (Outcome.OK, Outcome.INFRASTRUCTURE)
    assert backend.run(job('l', 'print(3)'), 0, 20.0).output == '3\n'

  def test_a_stopped_actor_is_given_up(self, backend, monkeypatch):
    monkeypatch.setattr(ray_backend, 'GUARD_S', 2.0)
    pid = backend.stats()['actors'][0]['pid']
    os.kill(pid, signal.SIGSTOP)
    result = backend.run(job('stop', 'print(4)'), 0, 1.0)
    assert result.outcome is Outcome.INFRASTRUCTURE
    assert 'no answer within 3 s' in result.message
    assert backend.run(job('stop', 'print(4)'), 0, 20.0).output == '4\n'
    assert not ray_private.started(pid)

  def test_a_lower_replacement_is_refused(self, backend, monkeypatch):
    monkeypatch.setitem(backend._options, 'disable', ['namespaces'])
    actor = backend._actors[1]
    backend._lose(1, actor, 'earlier')
    result = backend.run(job('low', 'pass'), 1, 20.0)
    assert result.outcome is Outcome.INFRASTRUCTURE
    assert f'not {backend.tier}' in result.message, result.message
    monkeypatch.undo()
    assert backend.run(job('low', 'pass'), 1, 20.0).outcome is Outcome.OK

  def test_signals_still_reach_the_trainer(self, backend):
    seen = []
    before = {
      n: signal.signal(n, lambda number, _: seen.append(number))
      for n in (signal.SIGTERM, signal.SIGINT)
    }
    try:
      with running(backend, job('s', 'import time; time.sleep(1)')) as results:
        for number in before:
          os.kill(os.getpid(), number)
    finally:
      for number, handler in before.items():
        signal.signal(number, handler)
    assert seen == [signal.SIGTERM, signal.SIGINT]
    assert results[0].outcome is Outcome.OK

  def test_other_users_of_the_loopback_are_refused(self, backend):
    there = backend._ray.get_runtime_context().gcs_address
    code = (
      'import sys; from ray._raylet import GcsClient\n'
      'try: GcsClient(address=sys.argv[1]); print("in")\n'
      'except Exception as error: print(type(error).__name__)'
    )
    with contextlib.suppress(subprocess.TimeoutExpired):  # it keeps trying
      done = subprocess.run(
        [sys.executable, '-c', code, there],
        timeout=8,
        capture_output=True,
        text=True,
        check=False,
      )
      assert done.stdout == 'AuthenticationError\n', done

  def test_more_slots_than_cpus_are_refused(self, backend, monkeypatch):
    monkeypatch.setattr(ray_backend, 'CPUS_S', 2.0)
    started = time.monotonic()
    with contextlib.closing(ray_backend.RayBackend(3)) as second:
      with pytest.raises(errors.BackendError, match='slots=3.* 2 CPUs'):
        second.start()
    with contextlib.closing(ray_backend.RayBackend(1)) as second:
      with pytest.raises(errors.BackendError, match='0 of them free'):
        second.start()
    assert time.monotonic() - started < 15
    assert backend.run(job('on', 'pass'), 0, 20.0).outcome is Outcome.OK

  def test_a_node_without_the_tasks_is_named(self, backend, tmp_path):
    made = job('m', 'pass', mounts={'data': tmp_path / 'nowhere'})
    result = backend.run(made, 0, 20.0)
    assert result.outcome is Outcome.INFRASTRUCTURE
    assert f"no folder '{tmp_path}/nowhere'" in result.message
    assert 'all nodes share' in result.message

  def test_another_address_than_the_joined_one_is_refused(self, backend):
    made = ray_backend.RayBackend(1, address='127.0.0.1:1')
    with contextlib.closing(made):
      with pytest.raises(errors.BackendError, match='has joined'):
        made.start()


_DRIVER = """
import sys
from jaxagent.sandbox import ray_backend
from jaxagent.types import Job
made = ray_backend.RayBackend(2, work_dir=sys.argv[1])
made.start()
print(made._home, *[a['pid'] for a in made.stats()['actors']], flush=True)
script = f"import subprocess; subprocess.Popen(['sleep', '{sys.argv[2]}']).wait()"
made.run(Job('x', 'm.py', files={'m.py': script}), 0, 60.0)
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_nothing_outlives_a_killed_trainer(tmp_path):
  before, seconds = folders(tmp_path), f'4322.{os.getpid()}'
  with subprocess.Popen(
    [sys.executable, '-c', _DRIVER, str(tmp_path), seconds],
    stdout=subprocess.PIPE,
    text=True,
  ) as driver:
    home, *pids = driver.stdout.readline().split()
    wait_for(lambda: with_argument(seconds))
    theirs = ray_private.processes_of(home)
    driver.kill()
  assert set(map(int, pids)) < set(theirs)
  wait_for(lambda: not with_argument(seconds))
  wait_for(
    lambda: not any(ray_private.started(p) == s for p, s in theirs.items()), 15
  )
  wait_for(lambda: folders(tmp_path) == before)
  assert not groups(pids)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize('noted', [None, '10.0.0.1:6379'])
def test_what_auto_finds_stays_as_it_is(noted, tmp_path, monkeypatch):
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  address = tmp_path / 'ray' / 'ray_current_cluster'
  if noted:
    address.parent.mkdir()
    address.write_text(noted)
  with contextlib.closing(ray_backend.RayBackend(1, zygote=False)) as made:
    made.start()
    assert (address.read_text() if address.exists() else None) == noted
  assert (address.read_text() if address.exists() else None) == noted


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_auto_joins_the_cluster_of_this_machine(cluster):
  made = ray_backend.RayBackend(1, address='auto', zygote=False)
  with contextlib.closing(made):
    made.start()
    assert made.run(job('a', 'print(1)'), 0, 20.0).output == '1\n'


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_jobs_of_a_lost_node_come_out_on_another(cluster, caplog):
  before = folders()
  made = ray_backend.RayBackend(2, address=cluster.address, zygote=False)
  with contextlib.closing(made):
    made.start()
    actors = made.stats()['actors']
    pids = [a['pid'] for a in actors]
    assert len({a['node'] for a in actors}) == 2
    (lost,) = [n for n in cluster.removable if n.node_id == actors[0]['node']]
    with running(made, job('n', 'import time; time.sleep(40)'), 0) as results:
      time.sleep(2)
      cluster.remove_node(lost, allow_graceful=False)
      removed = time.monotonic()
    assert results[0].outcome is Outcome.INFRASTRUCTURE, results[0]
    assert time.monotonic() - removed < 20
    wait_for(lambda: 'is gone (' in caplog.text)
    assert '1 jobs that ran there (n) are run again' in caplog.text
    again = made.run(job('n', 'print(1)'), 0, 20.0)
    assert again.outcome is Outcome.OK, again.message
    now = made.stats()['actors']
    assert now[0]['node'] == now[1]['node'] == actors[1]['node']
    assert made.run(job('o', 'print(1)'), 1, 20.0).outcome is Outcome.OK
    pids.append(now[0]['pid'])
  assert folders() == before and not groups(pids)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_a_pool_gets_every_job_once_when_a_node_goes(cluster):
  with SandboxPool(
    2, backend='ray', address=cluster.address, zygote=False, min_tier='T1'
  ) as pool:
    first = pool.stats()['launcher']['actors'][0]['node']
    (lost,) = [n for n in cluster.removable if n.node_id == first]
    futures = [
      pool.submit(job(f'n{i}', f'import time; time.sleep(1); print({i})'))
      for i in range(12)
    ]
    time.sleep(2.5)
    cluster.remove_node(lost, allow_graceful=False)
    results = [f.result(timeout=120) for f in futures]
  assert [r.output for r in results] == [f'{i}\n' for i in range(12)]
  assert {r.outcome for r in results} == {Outcome.OK}
  assert sorted(r.attempts for r in results)[-2:] == [1, 2]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
def test_another_version_on_a_node_is_refused(cluster, monkeypatch):
  monkeypatch.setattr(ray_slot, 'fingerprint', lambda: 'other')
  made = ray_backend.RayBackend(1, address=cluster.address, zygote=False)
  with contextlib.closing(made):
    with pytest.raises(errors.BackendError, match='another jaxagent'):
      made.start()
