"""Whole runs under a real SLURM: two nodes, in namespaces of this machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from jaxagent import audit
from tests.runs import SMALL

ROOT = pathlib.Path(__file__).parents[2]
_NODES = ROOT / 'tests' / 'launch' / 'slurm_nodes.sh'
_NEEDED = ('slurmctld', 'slurmd', 'munged', 'sbatch', 'ip', 'nsenter')
_LACKING = [name for name in _NEEDED if shutil.which(name) is None]
_WANTED = bool(os.environ.get('JAXAGENT_TEST_SLURM'))
_WHY = (
  'JAXAGENT_TEST_SLURM=1 runs them'
  if not _WANTED
  else 'two SLURM nodes on one machine need root'
  if os.geteuid()
  else f'{", ".join(_LACKING)} not found: bash launch_scripts/install_slurm.sh'
)
pytestmark = [
  pytest.mark.slurm,
  pytest.mark.slow,
  pytest.mark.alone,
  pytest.mark.timeout(1200),
  pytest.mark.skipif(
    not _WANTED or bool(_LACKING or os.geteuid()), reason=_WHY
  ),
]
RUN = (
  *SMALL[1:],
  "--config.tasks.heldin=('wine',)",
  "--config.tasks.heldout=('diabetes',)",
  '--config.rl.batch_size=8',
)


class Cluster:
  """Two nodes and their controller; `folder` is theirs."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.environment = os.environ | {
      'SLURM_CONF': str(folder / 'slurm.conf'),
      'JAX_PLATFORMS': 'cpu',
    }

  def call(self, *words) -> str:
    done = subprocess.run(
      words,
      cwd=ROOT,
      env=self.environment,
      capture_output=True,
      text=True,
      timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

  def submit(
    self,
    work: pathlib.Path,
    *flags: str,
    updates: int = 40,
    options: str = '',
  ) -> str:
    """Queues a run by the launcher; returns the job's id."""
    said = self.call(
      'bash', 'launch_scripts/slurm.sh', '--gpus=0', *flags,
      f'--sbatch=--output={self.folder}/%j.log {options}', f'--python={sys.executable}',
      SMALL[0], '--', *RUN, f'--config.rl.updates={updates}', f'--work_dir={work}',
    )  # fmt: skip
    job = said.split()[1]
    assert f'log: {self.folder}/{job}.log' in said
    return job

  def log(self, job: str) -> str:
    file = self.folder / f'{job}.log'
    return file.read_text() if file.exists() else ''

  def state(self, job: str) -> dict[str, str]:
    words = self.call('scontrol', '-o', 'show', 'job', job).split()
    return dict(word.split('=', 1) for word in words if '=' in word)

  def wait(
    self, job: str, *states: str, seconds: float = 600
  ) -> dict[str, str]:
    end = time.monotonic() + seconds
    while (found := self.state(job))['JobState'] not in states:
      assert time.monotonic() < end, (found, self.log(job)[-2000:])
      time.sleep(0.2)
    return found

  def wait_for_update(self, job: str, work: pathlib.Path) -> None:
    """Waits until the job has trained one update more than there were."""
    traces = work / 'rl' / 'traces'
    count = lambda: len(list(traces.glob('update_*'))) if traces.exists() else 0
    before, end = count(), time.monotonic() + 600
    while count() < before + 2:
      assert self.state(job)['JobState'] in ('PENDING', 'RUNNING'), self.log(
        job
      )
      assert time.monotonic() < end, self.log(job)[-2000:]
      time.sleep(0.2)

  def process(self, index: int) -> int:
    """Returns the pid of a process of the one job that runs."""
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
      with contextlib.suppress(OSError):
        command = (folder / 'cmdline').read_bytes().split(b'\0')
        variables = (folder / 'environ').read_bytes().split(b'\0')
        main = b'jaxagent.main' in command and command[0] != b'srun'
        if (
          main
          and f'SLURM_PROCID={index}'.encode() in variables
          and f'SLURMD_NODENAME=n{index + 1}'.encode() in variables
          and b'SLURM_STEP_ID=0' in variables
        ):
          return int(folder.name)
    raise AssertionError(f'no process {index}')


@pytest.fixture(scope='module')
def cluster():
  folder = pathlib.Path(tempfile.mkdtemp(prefix='slurm-', dir='/tmp'))
  made = Cluster(folder)
  try:
    subprocess.run(
      ['bash', _NODES, 'up', folder], check=True, timeout=120, env=os.environ
    )
    yield made
  finally:
    subprocess.run(['bash', _NODES, 'down', folder], timeout=120, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _whole(work: pathlib.Path, updates: int) -> None:
  """Checks that a run is complete and that every reward follows from its trace."""
  assert (work / 'summary.json').is_file()
  assert len(list((work / 'rl' / 'traces').glob('update_*'))) == updates
  assert audit.audit(work)['differences'] == []


def test_a_job_of_two_nodes_outlives_kills_and_a_requeue(cluster, tmp_path):
  work = tmp_path / 'work'
  for victim in (1, 0):
    job = cluster.submit(work, updates=12)
    cluster.wait_for_update(job, work)
    os.kill(cluster.process(victim), signal.SIGKILL)
    cluster.wait(job, 'FAILED', seconds=30)
    log = cluster.log(job)
    (line,) = [x for x in log.splitlines() if ' error: process' in x]
    assert f'process {victim} on n{victim + 1} died' in line
    assert line.startswith(f'{1 - victim}: ')
    assert 'Traceback' not in log and '    @ ' not in log
  job = cluster.submit(work, updates=12)
  cluster.wait_for_update(job, work)
  cluster.call('scontrol', 'requeue', job)
  cluster.wait(job, 'PENDING')
  cluster.call('scontrol', 'update', f'JobId={job}', 'StartTime=now')
  state = cluster.wait(job, 'COMPLETED', 'FAILED')
  ended = state['JobState'], state['ExitCode']
  assert ended == ('COMPLETED', '0:0'), cluster.log(job)
  assert state['Restarts'] == '1'
  opening = next(x for x in cluster.log(job).splitlines() if 'jaxagent: ' in x)
  assert opening.startswith(
    '0: jaxagent: 2 processes on 2 hosts (n1, n2), 2 dev'
  )
  assert f'SLURM_JOB_ID {job}; work directory {work}' in opening
  _whole(work, 12)


def test_a_chain_goes_on_after_the_time_limit_until_it_is_complete(
  cluster, tmp_path
):
  work = tmp_path / 'work'
  job = cluster.submit(
    work, '--chain', '--time=60', updates=12, options='--signal=TERM@50'
  )
  cluster.wait_for_update(job, work)
  minutes, _, _ = cluster.state(job)['RunTime'].rpartition(':')
  hours, _, minutes = minutes.rpartition(':')
  limit = 60 * int(hours) + int(minutes) + 1
  cluster.call('scontrol', 'update', f'JobId={job}', f'TimeLimit={limit}')
  cluster.wait(job, 'PENDING')
  assert 'is saved' in cluster.log(job)
  assert f'chain: stopped by a signal; job {job} goes back' in cluster.log(job)
  cluster.call(
    'scontrol', 'update', f'JobId={job}', 'TimeLimit=60', 'StartTime=now'
  )
  state = cluster.wait(job, 'COMPLETED', 'FAILED')
  ended = state['JobState'], state['ExitCode']
  assert ended == ('COMPLETED', '0:0'), cluster.log(job)
  _whole(work, 12)


def test_a_chain_that_is_cancelled_stays_so(cluster, tmp_path):
  job = cluster.submit(tmp_path / 'work', '--chain')
  end = time.monotonic() + 120
  while 'jaxagent: 2 processes' not in cluster.log(job):
    assert time.monotonic() < end, cluster.log(job)
    time.sleep(0.2)
  cluster.call('scancel', job)
  cluster.wait(job, 'CANCELLED', seconds=90)
  time.sleep(3)
  state = cluster.state(job)
  assert (state['JobState'], state['Restarts']) == ('CANCELLED', '0')


def test_a_batch_script_without_srun_is_told_of_it(cluster, tmp_path):
  command = [sys.executable, '-m', 'jaxagent.main', *SMALL[:1], *RUN]
  job = cluster.call(
    'sbatch', '--parsable', '--nodes=2', f'--output={cluster.folder}/%j.log',
    '--wrap', ' '.join([*map(shlex.quote, command), f'--work_dir={tmp_path}/work']),
  ).strip()  # fmt: skip
  end = time.monotonic() + 120
  while 'held-out tasks' not in cluster.log(job):  # it trains, alone
    assert time.monotonic() < end, cluster.log(job)
    time.sleep(0.2)
  assert 'Start it as `srun python -m jaxagent.main' in cluster.log(job)
  assert 'jaxagent: 1 process on 1 host (n1)' in cluster.log(job)
  cluster.call('scancel', job)
  cluster.wait(job, 'CANCELLED', seconds=90)
