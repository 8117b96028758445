"""Executions that are looked up: what is kept, for whom, and when it is refused."""

import concurrent.futures
import dataclasses
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxagent.sandbox import SandboxPool, recorded
from jaxagent.sandbox.recorded import RecordedPool, key_of
from jaxagent.types import Execution, Job, Limits, Outcome

SCRIPT = """
import os
print(os.urandom(8).hex(), open('data/x').read())
open('out.bin', 'wb').write(os.urandom(64))
"""


@pytest.fixture
def data(tmp_path):
  folder = tmp_path / 'data'
  folder.mkdir()
  (folder / 'x').write_text('1')
  return folder


def _job(name, data, text=SCRIPT, **fields):
  fields.setdefault('limits', Limits(timeout_s=30.0))
  return Job(
    name, 'run.py', files={'run.py': text}, mounts={'data': data},
    collect=('out.bin',), **fields,
  )  # fmt: skip


def _opened(pool, path, **options):
  return RecordedPool(pool, path, **options)


class Ends:
  """A pool whose jobs all end in one way, at once."""

  tier, slots = 'T3', 1

  def __init__(self, **how):
    self.how, self.ran = {'outcome': Outcome.OK} | how, []

  def submit(self, job, deadline_s=None):
    self.ran.append(job.job_id)
    future = concurrent.futures.Future()
    future.set_result(Execution(job.job_id, tier='T3', **self.how))
    return future

  def close(self):
    pass


def test_a_job_that_ran_before_is_answered_as_it_was(tmp_path, data):
  file = tmp_path / 'made/executions.sqlite'
  with _opened(SandboxPool(1, min_tier='T1'), file, data=[data]) as pool:
    first = pool.submit(_job('a', data)).result()
    again = pool.submit(_job('b', data, zygote=True)).result()
    other = pool.submit(_job('c', data, SCRIPT + '\n')).result()
  assert first.outcome is Outcome.OK and not first.recorded
  assert again.recorded and again.job_id == 'b' and again.slot is None
  for name in ('output', 'collected', 'exec_s', 'cpu_s', 'tier', 'outcome'):
    assert getattr(again, name) == getattr(first, name), name
  assert not other.recorded and other.output != first.output
  with _opened(Ends(), file, data=[data]) as pool:  # of another run
    later = pool.submit(_job('d', data)).result()
  assert later.recorded and later.output == first.output


@pytest.mark.parametrize('outcome', Outcome)
def test_what_a_job_did_by_itself_is_kept_and_nothing_else(
  tmp_path, data, outcome
):
  ends = Ends(outcome=outcome)
  with _opened(ends, tmp_path / 'file') as pool:
    found = [pool.submit(_job(n, data)).result() for n in 'ab']
  kept = outcome.value not in ('infrastructure', 'killed', 'deadline')
  assert ends.ran == (['a'] if kept else ['a', 'b'])
  assert [one.recorded for one in found] == [False, kept]
  assert {one.outcome for one in found} == {outcome}


def test_whatever_a_job_may_do_depends_on_is_part_of_its_key(data, tmp_path):
  other = tmp_path / 'other'
  other.mkdir()
  (other / 'x').write_text('2')
  job = _job('a', data)
  changes = [
    {'files': {'run.py': SCRIPT, 'more.py': ''}},
    {'files': {'run.py': SCRIPT.encode() + b'\xff'}},
    {'mounts': {'data': other}},
    {'mounts': {'more': data}},
    {'argv': ('x',)},
    {'env': {'A': 'b'}},
    {'limits': Limits(timeout_s=31.0)},
    {'threads': 2},
    {'collect': ()},
    {'optional': ('y',)},
    {'interpreter': '/usr/bin/python3'},
    {'apart': True},
    {'changed_mb': 1.0},
    {'gpus': 1},
  ]
  keys = {key_of(dataclasses.replace(job, **change)) for change in changes}
  assert len(keys | {key_of(job)}) == len(changes) + 1
  same = dataclasses.replace(job, job_id='b', zygote=True, priority=3.0)
  assert key_of(same) == key_of(job)


texts = st.text(max_size=40)
files = st.dictionaries(texts, st.binary(max_size=40), max_size=3)


@given(
  st.builds(
    Execution,
    job_id=texts,
    outcome=st.sampled_from(Outcome),
    tier=st.sampled_from(['T3', 'T1']),
    exit_code=st.none() | st.integers(-255, 255),
    exec_s=st.floats(0, 1e6),
    output=texts,
    errors=texts,
    message=texts,
    collected=files,
    changed=files,
    removed=st.tuples(texts),
    left_out=st.tuples(texts, texts),
  )
)
def test_a_result_comes_back_as_it_went_in(execution):
  back = recorded._read(recorded._written(execution), execution.job_id)
  assert back == dataclasses.replace(execution, recorded=True)


def test_a_file_of_something_else_is_refused(tmp_path):
  file = tmp_path / 'file'
  file.write_text('no database, but longer than a header of one' * 40)
  with pytest.raises(ValueError, match='no file of executions'):
    _opened(Ends(), file)


@pytest.mark.parametrize(
  'name, there', [('numpy', '1.0'), ('cpu_level', 'all'), ('version', '0')]
)
def test_executions_of_other_versions_or_levels_are_refused(
  tmp_path, name, there
):
  file = tmp_path / 'file'
  _opened(Ends(), file).close()
  with sqlite3.connect(file) as db:
    db.execute('update meta set value = ? where name = ?', (there, name))
  with pytest.raises(ValueError, match=f'{name} {there}, and here is'):
    _opened(Ends(), file)


def test_executions_on_other_data_alone_are_refused(tmp_path, data):
  file, other = tmp_path / 'file', tmp_path / 'other'
  other.mkdir()
  _opened(Ends(), file, data=[data]).close()
  with pytest.raises(ValueError, match='on other data'):
    _opened(Ends(), file, data=[other])
  _opened(Ends(), file, data=[data, other]).close()  # one is enough
  _opened(Ends(), file, data=[other]).close()


def test_two_runs_share_a_file(tmp_path, data):
  file = tmp_path / 'file'
  with _opened(Ends(), file) as one, _opened(Ends(), file) as two:
    jobs = [_job(str(n), data, f'print({n})') for n in range(40)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
      for pool in (one, two):
        list(
          threads.map(lambda job, pool=pool: pool.submit(job).result(), jobs)
        )
    assert all(one.submit(job).result().recorded for job in jobs)
