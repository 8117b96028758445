"""Jobs that do the same: who is run, who is answered, and what answers nobody."""

import concurrent.futures
import random
import threading
import time

import pytest

from jaxagent.sandbox import SandboxPool, recorded
from jaxagent.sandbox.reuse import ReusingPool
from jaxagent.types import Execution, Job, Limits, Outcome

DRAWS = 'import os, time\ntime.sleep({})\nprint(os.urandom(8).hex())\n'


def _job(name, text='print(1)', **fields):
  fields.setdefault('limits', Limits(timeout_s=30.0))
  return Job(name, 'run.py', files={'run.py': text}, **fields)


class ByHand:
  """A pool whose jobs end when they are told to."""

  tier, slots = 'T3', 1

  def __init__(self):
    self.jobs, self.deadlines, self.cancelled = {}, {}, []
    self.closed = False

  def submit(self, job, deadline_s=None):
    if self.closed:
      raise RuntimeError('the sandbox pool is closed.')
    self.deadlines[job.job_id] = deadline_s
    self.jobs[job.job_id] = concurrent.futures.Future()
    return self.jobs[job.job_id]

  def end(self, name, outcome=Outcome.OK, **fields):
    found = Execution(
      name, outcome, 'T3', slot=0, exec_s=2.0, output=f'of {name}', **fields
    )
    self.jobs[name].set_result(found)

  def cancel(self, name):
    self.cancelled.append(name)
    return True

  def stats(self):
    return {'jobs': len(self.jobs)}

  def close(self):
    self.closed = True
    for name, future in self.jobs.items():
      if not future.done():
        self.end(name, Outcome.KILLED)


def _until(holds):
  end = time.monotonic() + 10
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.005)


def test_equal_jobs_end_with_the_first_and_are_marked():
  inner = ByHand()
  with ReusingPool(inner) as pool:
    first, second = (pool.submit(_job(name)) for name in 'ab')
    other = pool.submit(_job('c', 'print(2)'))
    assert list(inner.jobs) == ['a', 'c'] and not second.done()
    inner.end('a')
    late = pool.submit(_job('d')).result(1)
    for name, found in (('b', second.result(1)), ('d', late)):
      assert found.recorded and found.job_id == name and found.slot is None
      assert (found.output, found.exec_s) == ('of a', 2.0)
    assert second.result().queue_s > late.queue_s == 0
    assert not first.result(1).recorded and first.result().slot == 0
    assert list(inner.jobs) == ['a', 'c'] and not other.done()
    assert pool.stats() == {'jobs': 2, 'reused': 2}


@pytest.mark.parametrize('outcome', Outcome)
def test_what_a_job_did_not_do_by_itself_answers_nobody(outcome):
  inner = ByHand()
  with ReusingPool(inner) as pool:
    first, second, third = (pool.submit(_job(name)) for name in 'abc')
    inner.end('a', outcome)
    assert first.result(1).outcome is outcome
    if outcome in recorded.KEPT:
      assert second.result(1).outcome is third.result(1).outcome is outcome
      assert list(inner.jobs) == ['a']
      return
    _until(lambda: 'b' in inner.jobs)
    assert not second.done() and not third.done()
    inner.end('b')
    found = [one.result(10) for one in (second, third)]
    assert [one.recorded for one in found] == [False, True]
    assert {one.output for one in found} == {'of b'}
    assert list(inner.jobs) == ['a', 'b']


def test_who_must_end_before_the_first_does_not_wait_for_it():
  inner = ByHand()
  with ReusingPool(inner) as pool:
    pool.submit(_job('a'))
    pool.submit(_job('b'), deadline_s=5.0)
    assert list(inner.jobs) == ['a', 'b'] and 4 < inner.deadlines['b'] <= 5
    waits = pool.submit(_job('c'))
    inner.end('b', Outcome.DEADLINE)
    assert not waits.done()  # it waits for the first
    inner.end('a')
    assert waits.result(1).output == 'of a'


def test_one_that_waits_can_be_cancelled_and_its_first_goes_on():
  inner = ByHand()
  with ReusingPool(inner) as pool:
    first, second, third = (pool.submit(_job(name)) for name in 'abc')
    assert pool.cancel('b') and second.result(1).outcome is Outcome.KILLED
    assert pool.cancel('a') and inner.cancelled == ['a']
    inner.end('a')
    assert third.result(1).recorded and not first.result(1).recorded


def test_a_job_id_that_is_there_twice_is_refused():
  with ReusingPool(ByHand()) as pool:
    pool.submit(_job('a'))
    pool.submit(_job('b'))
    with pytest.raises(ValueError, match="'b' is already in the pool"):
      pool.submit(_job('b'))


def test_closing_ends_those_that_wait():
  pool = ReusingPool(ByHand())
  found = [pool.submit(_job(name)) for name in 'abc']
  pool.close()
  assert {one.result(10).outcome for one in found} == {Outcome.KILLED}
  with pytest.raises(RuntimeError, match='closed'):
    pool.submit(_job('d'))


def test_the_oldest_results_are_forgotten():
  inner = ByHand()
  with ReusingPool(inner, keep=2, keep_bytes=1000) as pool:
    for name in 'abc':
      pool.submit(_job(name, name))
      inner.end(name)
    assert pool.submit(_job('d', 'b')).done()
    pool.submit(_job('e', 'a'))
    assert 'e' in inner.jobs
    pool.submit(_job('f', 'large'))
    inner.end('f', collected={'x': bytes(999)})
    pool.submit(_job('g', 'b'))
    pool.submit(_job('h', 'large'))
    assert {'g', 'h'} <= set(inner.jobs) and not pool._bytes


def test_real_jobs_that_draw_without_a_seed_are_one_draw():
  with ReusingPool(SandboxPool(2, min_tier='T1')) as pool:
    texts = [DRAWS.format(0.3), DRAWS.format(0.3), DRAWS.format(0.31)]
    found = [
      one.result(60)
      for one in [pool.submit(_job(f'j{i}', t)) for i, t in enumerate(texts)]
    ]
    assert found[0].output == found[1].output != found[2].output
    assert [one.recorded for one in found] == [False, True, False]


def test_many_threads_lose_and_repeat_nothing():
  """Any order of ends, cancels and losses: each job ends once, as one that ran."""
  rng, ran = random.Random(0), []

  class Quick(ByHand):
    def submit(self, job, deadline_s=None):
      future = concurrent.futures.Future()
      ran.append(job.job_id)
      lost = job.job_id.endswith('7')
      found = Execution(
        job.job_id, Outcome.INFRASTRUCTURE if lost else Outcome.OK, 'T3',
        output=job.files['run.py'],
      )  # fmt: skip
      threading.Timer(rng.random() / 50, future.set_result, (found,)).start()
      return future

  with ReusingPool(Quick(), keep=3) as pool:
    jobs = [_job(f'{i}', f'print({rng.randrange(6)})') for i in range(300)]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
      found = list(threads.map(lambda job: pool.submit(job).result(20), jobs))
  assert [one.job_id for one in found] == [job.job_id for job in jobs]
  assert len(set(ran)) == len(ran)
  for job, one in zip(jobs, found):
    assert one.output == job.files['run.py']
    assert one.recorded == (one.job_id not in ran)
    if one.recorded:
      assert one.outcome is Outcome.OK
  assert len(ran) < 300
