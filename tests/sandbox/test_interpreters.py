"""Jobs of another interpreter than the trainer's, in the same pool."""

import pathlib
import time

import pytest

from jaxagent.sandbox import SandboxPool
from jaxagent.types import Job, Limits, Outcome
from tests.second_environment import second_environment

SCRIPT = """
import sys
try:
  import only_there
  print(only_there.NAME)
except ImportError:
  print('first')
open('out.txt', 'w').write(sys.prefix)
"""


@pytest.fixture(scope='module')
def python(tmp_path_factory):
  return second_environment(tmp_path_factory.mktemp('second') / 'env')


@pytest.fixture(scope='module', params=[False, True], ids=['cold', 'zygote'])
def pool(request, python):
  with SandboxPool(
    2, min_tier='T1', zygote=request.param, interpreters=[python]
  ) as pool:
    yield pool


def _job(name: str, text: str = SCRIPT, **fields) -> Job:
  fields.setdefault('limits', Limits(timeout_s=30.0))
  return Job(name, 'run.py', files={'run.py': text}, **fields)


@pytest.mark.parametrize('zygote', [False, True])
def test_a_job_has_the_packages_of_the_interpreter_that_it_asks_for(
  pool, python, zygote
):
  jobs = [
    _job(f'{name}-{zygote}', collect=('out.txt',), zygote=zygote, **asked)
    for name, asked in (('own', {}), ('other', {'interpreter': python}))
  ]
  own, other = (f.result() for f in [pool.submit(job) for job in jobs])
  assert (own.outcome, other.outcome) == (Outcome.OK, Outcome.OK)
  assert own.output.split() == ['first'] and other.output.split() == ['second']
  assert own.tier == other.tier == pool.tier


def test_a_job_of_another_interpreter_is_contained_and_cancelled(pool, python):
  text = f"""
import pathlib, time
print(pathlib.Path({str(pathlib.Path(__file__).resolve())!r}).exists())
open('begun', 'w').close()
time.sleep(600)
"""
  begun = time.monotonic()
  future = pool.submit(_job('long', text, interpreter=python))
  time.sleep(2.0)
  assert pool.cancel('long')
  done = future.result(30)
  assert done.outcome is Outcome.KILLED and time.monotonic() - begun < 30
  short = Limits(timeout_s=1.0)
  late = pool.submit(
    _job('late', text, interpreter=python, limits=short)
  ).result()
  assert late.outcome is Outcome.TIMEOUT and late.output.split() == ['False']


def test_an_interpreter_that_the_pool_has_not_is_named(pool, python):
  with pytest.raises(ValueError, match=r'interpreters=\[...\]') as found:
    pool.submit(_job('none', interpreter='/no/python'))
  assert python in str(found.value)


def test_backends_with_images_or_nodes_refuse_interpreters():
  with pytest.raises(ValueError, match="are for backend='local', not 'docker'"):
    SandboxPool(1, backend='docker', interpreters=['/usr/bin/python3'])
