"""The whole recipe as a user runs it, small: killed in every stage, and resumed."""

from __future__ import annotations

import collections
import json
import pathlib
import signal
import subprocess
import time

import pytest

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.metrics import read_records
from jaxagent.recipes.ideator import pool as pools
from jaxagent.records import Evaluated
from jaxagent.runtime import kept
from tests.runs import start

ROOT = pathlib.Path(__file__).parents[3]
TASKS, HELDOUT, RUNS, UPDATES, BATCH, SLOTS = 2, 1, 8, 2, 16, 2
OPTIONS = (
  '--config=configs/ideator.py',
  "--config.tasks.heldin=('wine','diabetes')",
  "--config.tasks.heldout=('breast-cancer',)",
  '--config.sandbox.min_tier=T1',
  '--config.sandbox.timeout_s=30',
  f'--config.sandbox.slots={SLOTS}',
  '--config.model.hf.hidden_size=64',
  '--config.model.hf.num_hidden_layers=2',
  '--config.model.hf.num_attention_heads=2',
  '--config.model.hf.num_key_value_heads=1',
  f'--config.pool.runs_per_task={RUNS}',
  '--config.pool.train_per_task=6',
  '--config.pool.valid_per_task=1',
  '--config.ideator.max_calls=1',
  '--config.ideator.answers=4',
  "--config.ideator.arms=('none','blind')",
  '--config.rollout.temperature=0.3',
  '--config.sft.epochs=30',
  '--config.sft.batch_size=8',
  f'--config.rl.updates={UPDATES}',
  f'--config.rl.batch_size={BATCH}',
  '--config.eval.trajectories_per_task=3',
)
PAIRS = ('none', 'blind', 'sft', 'rl')
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def _start(work, *options) -> subprocess.Popen:
  return start(work, *OPTIONS, *options)


def _finish(work, *options) -> str:
  process = _start(work, *options)
  out, _ = process.communicate(timeout=1200)
  assert process.returncode == 0, out[-3000:]
  return out


def _jobs(work) -> list[str]:
  """Ids of executions that ended, in their order."""
  log = work / 'logs' / 'executions.jsonl'
  if not log.exists():
    return []
  lines = log.read_bytes().splitlines()
  found = []
  for line in lines:
    try:
      found.append(json.loads(line)['job_id'])
    except ValueError:
      continue  # a kill cut it
  return found


# Stage -> executions of it after which the run is killed.
KILLS = {
  'collect-runs-': 20,
  'collect-noise-': 5,
  'eval-sft-': 10,
  'rl': 2,
  'eval-blind-': 8,
}


def _of(stage: str, jobs: list[str]) -> list[str]:
  if stage == 'rl':
    other = ('start', 'collect-', 'eval-')
    return [job for job in jobs if not job.startswith(other)]
  return [job for job in jobs if job.startswith(stage)]


def _kill_in(work, stage: str, after: int) -> bool:
  """Starts the run and kills it; False where it was past the stage already."""
  process = _start(work)
  end = time.monotonic() + 900
  while len(_of(stage, _jobs(work))) < after:
    if process.poll() is not None:
      out = process.stdout.read()
      assert process.returncode == 0, out[-3000:]
      return False
    assert time.monotonic() < end
    time.sleep(0.02)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  return True


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """(work directory, output of its end, stages in which it was killed)."""
  work = tmp_path_factory.mktemp('ideator') / 'work'
  killed = [stage for stage, n in KILLS.items() if _kill_in(work, stage, n)]
  assert killed[:3] == list(KILLS)[:3] and 'eval-blind-' in killed
  return work, _finish(work), killed


def _runs(work, label: str) -> list[Evaluated]:
  return kept.evaluated(work, label)


def test_a_killed_run_repeats_no_more_than_its_open_steps(finished):
  work, _, killed = finished
  counts = collections.Counter(_jobs(work))
  again = sum(n - 1 for n in counts.values())
  assert max(counts.values()) <= 2
  assert again <= SLOTS * len(killed)
  for label in PAIRS:
    names = {job.split('#')[0] for job in counts if f'eval-{label}-' in job}
    assert len(names) == (TASKS + HELDOUT) * 3
    assert len(_runs(work, label)) == (TASKS + HELDOUT) * 3


def test_a_killed_collection_has_the_states_of_an_undisturbed_one(
  finished, tmp_path
):
  work, _, _ = finished
  out = _finish(tmp_path / 'alone', '--config.stage=collect')
  assert 'pool: 12 states to train on, 2 to validate on' in out
  assert not (tmp_path / 'alone' / 'sft').exists()
  one, other = (
    pools.read(folder / 'collect' / 'pool.jsonl')
    for folder in (work, tmp_path / 'alone')
  )
  for split in ('train', 'valid'):
    mine, theirs = getattr(one, split), getattr(other, split)
    assert [i.key for i in mine] == [i.key for i in theirs]
    for a, b in zip(mine, theirs):
      assert [s.text for s in a.state.steps] == [s.text for s in b.state.steps]
      assert a.state.best.program == b.state.best.program
  assert not {i.run for i in one.train} & {i.run for i in one.valid}
  assert not list((work / 'collect').glob('*.journal'))


def test_every_reward_is_derived_again(finished):
  work, _, _ = finished
  found = audit.audit(work)
  assert found['differences'] == []
  assert found['records'] >= UPDATES * BATCH


def test_the_summary_has_the_tables_of_every_arm(finished):
  work, out, _ = finished
  summary = load(work / 'summary.json')
  assert summary['stand_ins'] == [
    'scripted_implementer',
    'blind_ideator',
    'scripted_ideator',
  ]
  table = summary['extra']['ideator']
  assert set(table) == set(PAIRS)
  for label in PAIRS:
    row = table[label]['heldin']
    assert row['runs'] == TASKS * 3 and row['board'].startswith('reference')
    assert 0 <= row['avg_at_3'] <= row['best_at_3']
    assert row['types_are'] == 'by rule from the family'
    assert len(row['by_step']) <= 16 and row['money'] is None
  assert table['none']['heldin']['calls'] == 0
  assert table['none']['heldin']['improve'] is None
  blind = table['blind']['heldin']
  assert 0 < blind['calls'] <= 1 and blind['ideas'] > 0
  assert sum(blind['types'].values()) == pytest.approx(100)
  assert sum(blind['calls_by_step'].values()) == pytest.approx(1)
  for label in PAIRS:
    assert f'{label:10} heldin' in out


def test_tensorboard_metrics_and_the_page_show_ideas(finished):
  work, _, _ = finished
  records = [
    r
    for r in read_records(work / 'logs' / 'metrics.jsonl')
    if 'ideator/mixed_groups' in r
  ]
  assert [r['step'] for r in records] == list(range(UPDATES))
  for record in records:
    shares = [v for k, v in record.items() if k.startswith('ideator/result/')]
    assert sum(shares) == pytest.approx(1)
    assert record['ideator/mean_of_8'] <= record['ideator/best_of_8']
  (arms,) = read_records(work / 'logs' / 'arms' / 'metrics.jsonl')
  assert 'ideator/arm/rl/heldout/avg_at_3' in arms
  page = (work / 'conversations.html').read_text()
  assert '<b>Ideator</b>' in page and '<b>blind</b> wine' in page


def test_a_finished_arm_is_made_again_alone_and_alike(finished):
  work, _, _ = finished
  before = [r.score for r in _runs(work, 'none')]
  jobs = len(_jobs(work))
  (work / 'eval' / 'none.json').unlink()
  _finish(work, '--config.stage=evaluate')
  assert [r.score for r in _runs(work, 'none')] == before
  new = _jobs(work)[jobs:]
  assert new and all(job.startswith('eval-none-') for job in new)
