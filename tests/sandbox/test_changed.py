"""Standard error by itself, and the files that a job changed; hostile ones."""

from __future__ import annotations

import os
import stat
import time

import pytest

from jaxagent import sandbox
from jaxagent.sandbox import _changed, docker_backend
from jaxagent.types import Job, Limits, Outcome

LIMITS = Limits(timeout_s=20, memory_mb=512, pids=16, disk_mb=256)
PLACES = {'best': (), 'T1': ('cgroup', 'namespaces')}


@pytest.fixture(scope='module', params=PLACES)
def pool(request):
  disable = PLACES[request.param]
  try:
    made = sandbox.SandboxPool(1, min_tier='T1', disable=disable)
  except sandbox.TierError as error:
    # As root where others cannot reach the interpreter: see as_user.py.
    if not disable:
      raise
    pytest.skip(str(error)[:300])
  with made:
    yield made


@pytest.fixture(params=[False, True], ids=['cold', 'zygote'])
def zygote(request):
  return request.param


def run(pool, script, **fields):
  fields.setdefault('limits', LIMITS)
  files = {'main.py': 'import os\n' + script, **fields.pop('files', {})}
  name = f'job-{time.monotonic_ns()}'
  return pool.submit(Job(name, 'main.py', files=files, **fields)).result(
    timeout=60
  )


def changed(pool, script, **fields):
  """Of a script that must end well: `run` with changed_mb=1."""
  fields.setdefault('changed_mb', 1)
  result = run(pool, script, **fields)
  assert result.outcome is Outcome.OK, (result.message, result.output)
  return result


def test_standard_error_comes_apart(pool, zygote):
  script = (
    "import sys\nprint('a'); print('b', file=sys.stderr)\n"
    "os.system('echo c; echo d >&2')\nraise SystemExit('end')"
  )
  result = run(pool, script, zygote=zygote, apart=True)
  assert (result.output, result.errors) == ('a\nc\n', 'b\nd\nend\n')
  assert result.output_bytes == 12
  result = run(pool, script, zygote=zygote)
  assert (result.output, result.errors) == ('a\nb\nc\nd\nend\n', '')


def test_both_streams_keep_head_and_tail_and_share_the_limit(pool, zygote):
  script = (
    'import sys\n'
    "for s in (sys.stdout, sys.stderr): print('first', 'x' * 90_000, 'last', "
    'file=s)'
  )
  fields = {'zygote': zygote, 'apart': True}
  result = run(pool, script, **fields, limits=Limits(output_kb=200))
  assert result.outcome is Outcome.OK, result.message
  for text in (result.output, result.errors):
    assert text.startswith('first ') and text.endswith(' last\n')
    assert '[... cut ...]' in text and len(text) < 70_000
  result = run(pool, script, **fields, limits=Limits(output_kb=20))
  assert result.outcome is Outcome.OK
  assert result.output_bytes == 2 * 90_012
  for text in (result.output, result.errors):
    assert 19_000 < len(text) < 21_000 and '[... cut ...]' in text


def test_one_stream_may_be_closed_and_the_other_flow(pool, zygote):
  script = 'os.close(2)\nfor i in range(3): print(i)\nos.close(1)'
  result = run(pool, script, zygote=zygote, apart=True)
  assert (result.output, result.errors) == ('0\n1\n2\n', '')


def test_new_and_changed_files_come_out_and_gone_ones_are_listed(pool, zygote):
  script = (
    "os.makedirs('a/b'); open('a/b/new', 'wb').write(bytes(range(256)))\n"
    "open('in/same', 'w').write('1'); open('in/other', 'w').write('2')\n"
    "open('é', 'w'); os.remove('in/gone'); os.rename('moved', 'here')\n"
    "os.mkdir('__pycache__'); open('__pycache__/x.pyc', 'w').write('1')\n"
    "open('out', 'w').write('1'); open('in/asked', 'w').write('2')"
  )
  given = ('in/same', 'in/other', 'in/gone', 'in/asked', 'moved')
  result = changed(
    pool,
    script,
    zygote=zygote,
    files=dict.fromkeys(given, '1'),
    collect=('out',),
    optional=('in/asked',),
  )
  assert result.changed == {
    'é': b'',
    'here': b'1',
    'in/other': b'2',
    'a/b/new': bytes(range(256)),
  }
  assert result.removed == ('in/gone', 'moved') and result.left_out == ()
  assert result.collected == {'out': b'1', 'in/asked': b'2'}
  nothing = run(pool, script, zygote=zygote, files=dict.fromkeys(given, '1'))
  assert nothing.changed == {} and nothing.removed == nothing.left_out == ()


@pytest.mark.parametrize(
  'end, outcome',
  [
    ('while True: pass', Outcome.TIMEOUT),
    ('1 / 0', Outcome.SCRIPT_ERROR),
    ('os.kill(os.getpid(), 9)', Outcome.SCRIPT_ERROR),
  ],
)
def test_a_job_that_fails_brings_its_files(pool, zygote, end, outcome):
  result = run(
    pool,
    f"open('x', 'w').write('1')\n{end}",
    zygote=zygote,
    changed_mb=0.01,
    limits=Limits(timeout_s=0.7),
  )
  assert result.outcome is outcome and result.changed == {'x': b'1'}


def test_the_smallest_come_first(pool):
  script = (
    "for n in (400, 300, 200): open(f'{n}', 'wb').write(b'1' * n * 1024)\n"
    "open('sparse', 'wb').truncate(80_000_000)"
  )
  result = changed(pool, script, changed_mb=0.5)
  assert {k: len(v) for k, v in result.changed.items()} == {
    '200': 200 << 10,
    '300': 300 << 10,
  }
  assert result.left_out == (
    '400: 409600 bytes, beyond 0.5 MB',
    'sparse: 80000000 bytes, beyond 0.5 MB',
  )


def test_many_files_are_bounded(pool):
  result = changed(
    pool,
    (
      "for n in range(300):\n  open(f'{n:03}', 'w').write('1' * (1 + n // 256))"
    ),
  )
  assert sorted(result.changed) == [f'{n:03}' for n in range(256)]
  assert len(result.left_out) == 17
  assert result.left_out[0] == '256: 2 bytes, beyond 256 files'
  assert result.left_out[-1] == 'and 28 more'


def test_links_pipes_and_odd_names_are_left_out(pool):
  script = (
    "os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'folder')\n"
    "os.mkfifo('pipe'); open('two', 'w').write('1'); os.link('two', 'names')\n"
    "os.remove('was'); os.symlink('main.py', 'was')\n"
    "os.remove('f'); os.mkdir('f'); open('f/in', 'w').write('1')\n"
    "os.rename('in', 'moved'); os.symlink('moved', 'in')\n"
    "open(b'\\xff', 'w'); os.mkdir(b'd\\xfe'); open(b'd\\xfe/x', 'w')\n"
    "os.symlink('x', 'a\\nb')"
  )
  given = dict.fromkeys(('was', 'f', 'in/a'), '1')
  result = changed(pool, script, files=given)
  assert result.changed == {'f/in': b'1', 'moved/a': b'1'}
  assert result.removed == ('was', 'f', 'in/a')
  assert set(result.left_out) == {
    'a\\nb: is a link',
    'd\\udcfe: its name is not UTF-8',
    'folder: is a link',
    'in: is a link',
    'link: is a link',
    'names: has hard links',
    'pipe: is a pipe',
    'two: has hard links',
    'was: is a link',
    '\\udcff: its name is not UTF-8',
  }


def test_a_mount_is_not_walked_into(pool, tmp_path):
  (tmp_path / 'secret').write_text('1')
  tmp_path.chmod(0o755)
  script = "os.rename('in', 'moved'); open('x', 'w').write('1')"
  for name in ('data', 'in/data'):
    result = changed(pool, script, files={'in/a': '1'}, mounts={name: tmp_path})
    assert result.changed == {'x': b'1', 'moved/a': b'1'}
    assert result.removed == ('in/a',)


def test_deep_folders_and_long_names(pool):
  script = (
    "for n in range(300):\n  os.mkdir('d' * 20); os.chdir('d' * 20)\n"
    "  open('f', 'w').write(str(n))"
  )
  result = changed(pool, script)
  assert len(result.changed) == _changed.MOST_DEPTH
  assert len(result.left_out) == 1
  assert result.left_out[0].endswith('is below 16 folders')
  script = (
    "for n in range(9):\n  os.mkdir('d' * 250); os.chdir('d' * 250)\n"
    "  open('f', 'w').write(str(n))"
  )
  result = changed(pool, script)
  assert sorted(result.changed.values()) == [b'0', b'1']
  assert len(result.left_out[0]) < 220


def test_very_many_files_end_the_search_and_not_the_job(pool):
  script = (
    "os.remove('gone'); open('kept', 'w').write('2')\n"
    "for n in range(15_000): os.close(os.open(f'{n}', os.O_CREAT))"
  )
  result = changed(pool, script, files={'gone': '1', 'kept': '1'})
  assert result.removed == ('gone',) and len(result.changed) == 256
  assert result.left_out[0] == '.: not all seen, 10000 entries at most'
  assert len(result.left_out) == 17 and result.teardown_s < 15


def test_folders_without_permissions(pool, zygote):
  script = (
    "os.mkdir('shut'); open('shut/f', 'w').write('1'); os.chmod('shut', 0)\n"
    "open('file', 'w').write('1'); os.chmod('file', 0)\n"
    "open('x', 'w').write('1'); os.chmod('in', 0); os.chmod('.', 0)"
  )
  result = changed(pool, script, zygote=zygote, files={'in/a': '1'})
  if os.geteuid() == 0:  # as another user some of it may be shut to us too
    assert result.changed == {'x': b'1', 'file': b'1', 'shut/f': b'1'}
  assert result.removed == ()


@pytest.mark.parametrize(
  'script',
  [
    "os.chdir('..'); os.rename('workspace', 'w'); os.mkdir('workspace')\n"
    "open('workspace/y', 'w').write('1')",
    'import shutil; shutil.rmtree(os.getcwd())',
  ],
)
def test_a_workspace_that_was_replaced(pool, script):
  result = changed(pool, "open('x', 'w').write('1')\n" + script)
  assert 'y' not in result.changed


def test_a_full_disk_changes_no_outcome(pool):
  script = (
    "try: open('a', 'wb').write(b'1' * 2**23)\nexcept OSError: pass\n"
    "open('b', 'wb').truncate(2**20)"
  )
  result = run(pool, script, changed_mb=64, limits=Limits(disk_mb=4))
  assert result.outcome in (Outcome.OK, Outcome.DISK_LIMIT)
  if pool.tier != 'T1':
    assert result.outcome is Outcome.OK
    assert result.changed['b'] == bytes(2**20)


def find(folder, laid_out=None, **header):
  fd = os.open(folder, os.O_RDONLY)
  header = {
    'collect': [],
    'folders': [],
    'mounts': {},
    'changed_mb': 1,
    **header,
  }
  try:
    return _changed.find(fd, laid_out or {}, header)
  finally:
    os.close(fd)


def test_time_is_bounded(tmp_path, monkeypatch):
  monkeypatch.setattr(_changed, 'MOST_S', -1.0)
  (tmp_path / 'x').write_text('1')
  found = find(tmp_path, _changed.digests(['x', 'y'], [b'1', b'']))
  assert found.files == {} and found.removed == []
  assert found.left_out == [
    'x: not compared in -1 s, 2 such',
    '.: not all seen, -1 s at most',
  ]


def test_files_are_read_when_they_are_sent(tmp_path):
  content = os.urandom(600_000)
  (tmp_path / 'x').write_bytes(content)
  file = find(tmp_path).files['x']
  assert len(file) == 600_000 and b''.join(file.parts()) == content
  file = find(tmp_path).files['x']
  (tmp_path / 'x').write_bytes(b'')
  with pytest.raises(OSError, match='shorter'):
    list(file.parts())


def test_an_empty_folder_is_listed_as_left_out(tmp_path):
  for name in ('a/b/c', 'in/deep', 'data', 'd/__pycache__'):
    os.makedirs(tmp_path / name)
  laid_out = _changed.digests(['in/deep/gone'], [b'1'])
  found = find(tmp_path, laid_out, mounts={'data': ''})
  assert found.left_out == ['a/b/c: is an empty folder']
  assert found.removed == ['in/deep/gone'] and found.files == {}


def test_no_descriptor_is_left_open(tmp_path):
  os.makedirs(tmp_path / 'a/b')
  os.mkfifo(tmp_path / 'a/pipe')
  (tmp_path / 'a/x').write_text('1')
  os.symlink('a', tmp_path / 'c')
  before = os.listdir('/proc/self/fd')
  laid_out = _changed.digests(['a/x', 'a/y', 'c/x', 'z/y'], [b'2'] * 4)
  found = find(tmp_path, laid_out)
  for file in found.files.values():
    assert stat.S_ISREG(os.fstat(file.fd).st_mode)
    list(file.parts())
  assert os.listdir('/proc/self/fd') == before
  assert found.removed == ['a/y', 'c/x', 'z/y']


@pytest.mark.parametrize(
  'field, value',
  [
    ('changed_mb', -1),
    ('changed_mb', 1e9),
    ('changed_mb', float('nan')),
    ('apart', 'no'),
  ],
)
def test_bad_values_are_refused(field, value):
  from jaxagent.sandbox import checks

  with pytest.raises(ValueError, match=f'{field}='):
    checks.job(Job('x', 'a', files={'a': ''}, **{field: value}))


def test_the_text_for_containers_fits_an_argument():
  text = docker_backend.start_text()
  assert '_changed' in text and len(text.encode()) < 32 * 4096
