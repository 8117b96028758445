"""Whole runs under a real SLURM: two nodes, in namespaces of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import pytest

from jaxagent import audit
from tests.runs import SMALL

ROOT = pathlib.Path(__file__).parents[2]
_NODES = ROOT / 'tests' / 'launch' / 'slurm_nodes.sh'
_NEEDED = ('slurmctld', 'slurmd', 'munged', 'sbatch', 'ip', 'nsenter')
_LACKING = [name for name in _NEEDED if shutil.which(name) is None]
pytestmark = [
  pytest.mark.slurm,
  pytest.mark.slow,
  pytest.mark.alone,
  pytest.mark.timeout(1200),
]
RUN = (
  *SMALL[1:],
  "--config.tasks.heldin=('wine',)",
  "--config.tasks.heldout=('diabetes',)",
  '--config.rl.batch_size=8',
)
# SLURM waits for so long between SIGTERM and SIGKILL.
KILL_WAIT_S = 30
# Each stage is long enough to be met in its middle, and the one update longer than
# KILL_WAIT_S: 40 s on a machine of speed index 1.
_LONG = {
  'collect.trajectories_per_task': 8,
  'sft.epochs': 12,
  'rl.value_warmup_epochs': 8,
  'rl.rest': 'wait',
  'rl.policy_lr': 1e-6,
  'rl.ppo_epochs': 160,
  'eval.policies': "('rl',)",
}
# After its first update it has a minute to go on a machine of speed index 1, which is
# the longest that SLURM's signal before a limit lets wait here.
_STEADY = ('--config.rl.ppo_epochs=24', '--config.rl.policy_lr=1e-6')
LONG = (
  *(x for x in RUN if x.split('=')[0].removeprefix('--config.') not in _LONG),
  *(f'--config.{key}={value}' for key, value in _LONG.items()),
)


def _missing(config: pytest.Config) -> str:
  """Returns why these tests do not run; '' if they do."""
  wanted = re.search(r'\bslurm\b', config.getoption('markexpr'))
  if not (wanted or os.environ.get('JAXAGENT_TEST_SLURM')):
    return '-m slurm, or JAXAGENT_TEST_SLURM=1, runs them'
  if os.geteuid():
    return 'two SLURM nodes on one machine need root'
  if _LACKING:
    names = ', '.join(_LACKING)
    return f'{names} not found: bash launch_scripts/install_slurm.sh'
  return ''


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
    run: Sequence[str] = RUN,
  ) -> str:
    """Queues a run by the launcher; returns the job's id."""
    said = self.call(
      'bash', 'launch_scripts/slurm.sh', '--gpus=0', *flags,
      f'--sbatch=--output={self.folder}/%j.log {options}', f'--python={sys.executable}',
      SMALL[0], '--', *run, f'--config.rl.updates={updates}', f'--work_dir={work}',
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

  def wait_until(self, job: str, seen: Callable[[], object]) -> None:
    """Waits until `seen` is true while the job is queued or runs."""
    end = time.monotonic() + 600
    while not seen():
      state = self.state(job)['JobState']
      assert state in ('PENDING', 'RUNNING'), (state, self.log(job))
      assert time.monotonic() < end, self.log(job)[-2000:]
      time.sleep(0.2)

  def go_on(self, job: str) -> None:
    """Starts a requeued job, which SLURM lets wait for two minutes, at once."""
    end = time.monotonic() + 300
    while self.state(job)['JobState'] != 'RUNNING':
      # Again where the end of its last start has put the time off once more.
      with contextlib.suppress(AssertionError):
        self.call('scontrol', 'update', f'JobId={job}', 'StartTime=now')
      assert time.monotonic() < end, self.state(job)
      time.sleep(1.0)

  def wait_for_update(self, job: str, work: pathlib.Path) -> None:
    """Waits until the job has trained one update more than there were."""
    traces = work / 'rl' / 'traces'
    count = lambda: len(list(traces.glob('update_*'))) if traces.exists() else 0
    before = count()
    self.wait_until(job, lambda: count() >= before + 2)

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
def cluster(request):
  if reason := _missing(request.config):
    pytest.skip(reason)
  folder = pathlib.Path(tempfile.mkdtemp(prefix='slurm-', dir='/tmp'))
  made = Cluster(folder)
  try:
    subprocess.run(
      ['bash', _NODES, 'up', folder], check=True, timeout=120, env=os.environ
    )
    yield made
    if request.session.testsfailed:
      for path in *folder.glob('*.log'), folder / 'log' / 'slurmctld.log':
        print(path, *_lines(path)[-200:], sep='\n')
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
  cluster.go_on(job)
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
    work,
    *('--chain', '--time=60'),
    updates=12,
    options='--signal=TERM@90',
    run=(*RUN, *_STEADY),
  )
  cluster.wait_for_update(job, work)
  minutes, _, _ = cluster.state(job)['RunTime'].rpartition(':')
  hours, _, minutes = minutes.rpartition(':')
  # SLURM looks at limits every 30 s and counts them in minutes. With less than two
  # of its looks left, the signal may come with the limit, which ends the chain, too.
  limit = 60 * int(hours) + int(minutes) + 2
  cluster.call('scontrol', 'update', f'JobId={job}', f'TimeLimit={limit}')
  cluster.wait(job, 'PENDING')
  assert 'is saved' in cluster.log(job)
  assert 'chain: stopped with status 143 after ' in cluster.log(job)
  assert f's; job {job} goes back into the queue' in cluster.log(job)
  cluster.call('scontrol', 'update', f'JobId={job}', 'TimeLimit=60')
  cluster.go_on(job)
  state = cluster.wait(job, 'COMPLETED', 'FAILED')
  ended = state['JobState'], state['ExitCode']
  assert ended == ('COMPLETED', '0:0'), cluster.log(job)
  _whole(work, 12)


def _lines(path: pathlib.Path) -> list[str]:
  return path.read_text().splitlines() if path.exists() else []


def _events(work: pathlib.Path) -> list[dict]:
  """Returns the events of RL's journal, in their order."""
  segments = sorted((work / 'rl' / 'journal').glob('*'))
  return [json.loads(x) for path in segments for x in _lines(path)]


def _has(work: pathlib.Path, event: str) -> bool:
  text = f'"e":"{event}"'.encode()
  segments = (work / 'rl' / 'journal').glob('*')
  return any(text in path.read_bytes() for path in segments)


# When a job is cancelled, by what its run has written, and what its last line says.
MOMENTS = {
  'collecting': (
    lambda work: _lines(work / 'collect' / 'trajectories.jsonl'),
    'complete trajectories are kept in ',
  ),
  'fine-tuning': (
    lambda work: len(_lines(work / 'logs' / 'sft' / 'metrics.jsonl')) > 1,
    'SFT step ',
  ),
  'warming up': (
    lambda work: _lines(work / 'logs' / 'value_warmup' / 'metrics.jsonl'),
    'the value warm-up will start again',
  ),
  'waiting for a batch': (
    lambda work: _has(work, 'asked'),
    'no update is saved yet',
  ),
  'updating': (lambda work: _has(work, 'batch'), 'no update is saved yet'),
}


def test_a_job_that_is_cancelled_at_five_moments_loses_nothing(
  cluster, tmp_path
):
  work = tmp_path / 'work'
  for name, (reached, words) in MOMENTS.items():
    job = cluster.submit(work, run=LONG, updates=1)
    cluster.wait_until(job, lambda: reached(work))  # noqa: B023
    if name == 'updating':
      time.sleep(5)
    began = time.monotonic()
    cluster.call('scancel', job)
    cluster.wait(job, 'CANCELLED', seconds=90)
    # It went by itself.
    assert time.monotonic() - began < KILL_WAIT_S - 5, name
    log = cluster.log(job)
    (line,) = [x for x in log.splitlines() if x.startswith('0: SIGTERM: ')]
    assert f'stopped; {words}' in line, (name, line)
    assert 'Traceback' not in log, name
    assert not (work / 'rl' / 'traces').exists(), name  # not too late
    if name == 'collecting':
      kept = set(_lines(work / 'collect' / 'trajectories.jsonl'))
  assert (_has(work, 'sampled'), _has(work, 'trained')) == (True, False)
  job = cluster.submit(work, run=LONG, updates=1)
  state = cluster.wait(job, 'COMPLETED', 'FAILED')
  ended = state['JobState'], state['ExitCode']
  assert ended == ('COMPLETED', '0:0'), cluster.log(job)
  _whole(work, 1)
  assert kept <= set(_lines(work / 'collect' / 'trajectories.jsonl'))
  steps = [
    json.loads(x)['step'] for x in _lines(work / 'logs/sft/metrics.jsonl')
  ]
  assert steps == list(range(len(steps)))
  (record,) = map(json.loads, _lines(work / 'logs' / 'metrics.jsonl'))
  assert record['timing_s/step'] > KILL_WAIT_S
  events = _events(work)
  # What was drawn and executed before a stop is not drawn and executed again.
  for kind in ('drawn', 'sampled', 'executed', 'trained'):
    names = 'group', 'p', 'd', 'c', 'a', 'update'
    keys = [tuple(map(e.get, names)) for e in events if e['e'] == kind]
    assert keys and len(set(keys)) == len(keys), (kind, keys)
  assert len({tuple(e['groups']) for e in events if e['e'] == 'batch'}) == 1


def test_a_chain_that_is_cancelled_stays_so(cluster, tmp_path):
  job = cluster.submit(tmp_path / 'work', '--chain')
  cluster.wait_until(job, lambda: 'jaxagent: 2 processes' in cluster.log(job))
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
  # It trains, alone.
  cluster.wait_until(job, lambda: 'held-out tasks' in cluster.log(job))
  assert 'Start it as `srun python -m jaxagent.main' in cluster.log(job)
  assert 'jaxagent: 1 process on 1 host (n1)' in cluster.log(job)
  cluster.call('scancel', job)
  cluster.wait(job, 'CANCELLED', seconds=90)
