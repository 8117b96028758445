"""A small run with validations and a best checkpoint, killed where it hurts most."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from safetensors import numpy as st

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.checkpoint import CheckpointManager
from jaxagent.metrics import read_records
from jaxagent.models import __main__ as models_cli
from jaxagent.runtime import executions
from jaxagent.training import validation
from tests.runs import TAUGHT, environment, give_taught

ROOT = pathlib.Path(__file__).parents[2]
UPDATES, TASKS, SAMPLES, SLOTS = 4, 2, 3, 2
OPTIONS = (
  *TAUGHT,
  '--config.sandbox.min_tier=T1',
  '--config.rl.value_warmup_epochs=1',
  f'--config.rl.updates={UPDATES}',
  '--config.rl.batch_size=6',
  '--config.rl.rest=wait',
  '--config.rollout.batch_invariant=True',
  '--config.rl.weighting=none',
  '--config.rl.keep_checkpoints=1',
  '--config.rl.validate_every=1',
  f'--config.rl.validate_samples={SAMPLES}',
  '--config.rl.keep_best=True',
  f'--config.sandbox.slots={SLOTS}',
)
# What learner and validation computed; clocks differ between runs.
SAME = (
  'actor/pg_loss',
  'actor/grad_norm',
  'critic/vf_loss',
  'critic/score/mean',
  validation.REWARD,
)
# Place, and how often a process comes there before it is killed.
KILLS = (
  ('execution', 4),
  ('stored', 1),
  ('committed', 1),
  ('execution', TASKS * SAMPLES + 2),
  # It resumes from the second update, which counts, too.
  ('committed', UPDATES - 1),
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def _run(work, *start: str) -> tuple[int, str]:
  """Runs the command; returns exit code and output."""
  start = start or ('-m', 'jaxagent.main')
  ended = subprocess.run(
    [sys.executable, *start, *OPTIONS, f'--work_dir={work}'],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=1200,
  )
  return ended.returncode, ended.stdout


def _kill(work, place: str, number: int) -> None:
  module = ('-m', 'tests.recipes.mortal_run', place, str(number))
  code, out = _run(work, *module)
  assert code == -signal.SIGKILL, (place, number, out[-3000:])


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """An undisturbed run."""
  work = tmp_path_factory.mktemp('validated') / 'work'
  give_taught(work, tmp_path_factory)
  code, out = _run(work)
  assert code == 0, out[-3000:]
  return work


@pytest.fixture(scope='module')
def killed(whole, tmp_path_factory):
  """The same one, whose RL was killed at every place of KILLS."""
  work = tmp_path_factory.mktemp('killed') / 'work'
  shutil.copytree(whole, work, symlinks=True)
  shutil.rmtree(work / 'rl')
  (work / 'eval' / 'rl.json').unlink()
  (work / 'logs' / 'metrics.jsonl').unlink()
  (work / executions.LOG).unlink()
  for place, number in KILLS:
    _kill(work, place, number)
  code, out = _run(work)
  assert code == 0, out[-3000:]
  return work


def _checkpoints(work) -> CheckpointManager:
  return CheckpointManager(work / 'rl' / 'checkpoints')


def _learned(work) -> list[dict]:
  records = read_records(work / 'logs' / 'metrics.jsonl')
  return [{key: r[key] for key in ('step', *SAME)} for r in records]


def _validations(work) -> Counter:
  """Returns how often each execution of a validation ran to its end."""
  lines = (work / executions.LOG).read_text().splitlines()
  jobs = (json.loads(line)['job_id'] for line in lines)
  return Counter(job for job in jobs if job.startswith('validation-'))


def _exported(work, out, *stage) -> dict:
  command = ['export', f'--model={work}', f'--out={out}', *stage]
  assert models_cli.main(command) == 0
  return st.load_file(next(out.glob('*.safetensors')))


def test_every_validation_is_stored_logged_and_audited(whole):
  records = read_records(whole / 'logs' / 'metrics.jsonl')
  rewards = validation.rewards_by_step(whole)
  assert list(rewards) == [1, 2, 3, 4]
  assert [r[validation.REWARD] for r in records] == list(rewards.values())
  assert len(set(rewards.values())) > 1
  assert all(r['val/rollouts'] == TASKS * SAMPLES for r in records)
  by_task = [r[f'val-core/wine/reward/mean@{SAMPLES}'] for r in records]
  assert len(by_task) == UPDATES
  found = audit.audit(whole)
  assert found['differences'] == []
  file = validation.file_of(whole, 2)
  kept = file.read_text()
  turns = json.loads(kept)
  turns[0]['reward'] += 0.25
  file.write_text(json.dumps(turns))
  problems = [d['problem'] for d in audit.audit(whole)['differences']]
  file.unlink()
  gone = [d['problem'] for d in audit.audit(whole)['differences']]
  file.write_text(kept)
  assert any('reward given' in p for p in problems)
  assert gone == ['the file of the validation after update 2 is gone']


def test_the_best_checkpoint_is_kept_evaluated_and_exported(whole, tmp_path):
  rewards = validation.rewards_by_step(whole)
  best = max(rewards, key=lambda step: (rewards[step], -step))
  manager = _checkpoints(whole)
  assert manager.best_step() == best
  assert manager.steps() == sorted({best, UPDATES})
  assert (whole / 'eval' / 'rl.updates').read_text() == str(best)
  found = load(whole / 'summary.json')['extra']['validation']
  assert found['best'] == {'update': best, 'reward': rewards[best]}
  assert found['last'] == {'update': UPDATES, 'reward': rewards[UPDATES]}
  assert found['evaluated'] == best
  last = _exported(whole, tmp_path / 'last')
  top = _exported(whole, tmp_path / 'best', '--stage=best')
  same = all(np.array_equal(last[name], top[name]) for name in last)
  assert same == (best == UPDATES)


def test_kills_in_and_after_validations_change_nothing(whole, killed, tmp_path):
  assert _learned(killed) == _learned(whole)
  assert _checkpoints(killed).scores() == _checkpoints(whole).scores()
  for stage in ('rl', 'best'):
    one, other = (
      _exported(work, tmp_path / stage / work.parent.name, f'--stage={stage}')
      for work in (whole, killed)
    )
    assert all(np.array_equal(one[name], other[name]) for name in one)
  assert audit.audit(killed)['differences'] == []
  assert not list((killed / 'rl' / 'validation').glob('*.journal'))


def test_what_a_validation_has_carried_out_is_not_run_again(whole, killed):
  once, ran = _validations(whole), _validations(killed)
  assert set(once.values()) == {1} and ran.keys() == once.keys()
  cut = [place for place, _ in KILLS if place == 'execution']
  assert ran.total() - once.total() <= SLOTS * len(cut)
