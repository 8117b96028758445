"""Whole solutions as a user runs them, small: learned, killed, resumed, searched."""

import json
import pathlib
import signal
import subprocess
import time

import pytest

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.metrics import read_records
from jaxagent.runtime import kept
from jaxagent.types import OPERATORS as NAMES
from tests.runs import start

ROOT = pathlib.Path(__file__).parents[3]
UPDATES = 4
# So few programs that a small policy knows them by heart, and so cold that it
# recites them, whatever machine rounds its sums.
OPTIONS = (
  '--config=configs/rl_for_mle.py',
  '--config.sandbox.min_tier=T1',
  '--config.sandbox.timeout_s=30',
  '--config.model.hf.hidden_size=64',
  '--config.model.hf.num_hidden_layers=2',
  '--config.solution.programs=4',
  '--config.solution.samples=4',
  '--config.sft.batch_size=4',
  '--config.sft.epochs=60',
  '--config.rollout.temperature=0.3',
  f'--config.rl.updates={UPDATES}',
  '--config.rl.batch_size=8',
  '--config.rl.policy_lr=1e-5',
  '--config.eval.k=2',
  '--config.search.runs=2',
  '--config.search.steps=3',
  '--config.search.drafts=1',
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _start(work, *options) -> subprocess.Popen:
  return start(work, *OPTIONS, *options)


def _finish(work, *options) -> str:
  process = _start(work, *options)
  out, _ = process.communicate(timeout=800)
  assert process.returncode == 0, out[-3000:]
  return out


def _kill_in_rl(work, *options) -> None:
  """Starts a run, and kills it once RL has trained on something."""
  process = _start(work, *options)
  end = time.monotonic() + 600
  while not list((work / 'rl' / 'traces').glob('*.jsonl')):
    assert process.poll() is None, process.stdout.read()[-3000:]
    assert time.monotonic() < end
    time.sleep(0.05)
  process.send_signal(signal.SIGKILL)
  process.wait()


def _traces(work) -> list[dict]:
  return [
    json.loads(line)
    for path in sorted((work / 'rl' / 'traces').glob('*.jsonl'))
    for line in path.read_text().splitlines()
  ]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A run that was killed once in the middle of RL."""
  work = tmp_path_factory.mktemp('mle') / 'work'
  _kill_in_rl(work)
  return work, _finish(work)


def test_it_leaves_summary_report_and_tree(finished):
  work, out = finished
  summary = load(work / 'summary.json')
  assert summary['stand_ins'] == ['scripted_programmer']
  assert summary['rl']['heldout']['mean_reward']['n'] == 0
  found = summary['extra']['solutions']['rl']['digits']
  assert found['scratch']['n'] == 4 and set(found) == {
    'scratch', 'improved', 'better',
  }  # fmt: skip
  # Of four samples, and validation chooses from at most half of them.
  assert set(found['scratch']['chosen']) == {'1', '2'}
  assert 'Best of K' in (work / 'report.html').read_text()
  page = (work / 'solutions.html').read_text()
  assert 'import pandas' in page and 'http://' not in page
  for name in ('summary.json', 'report.html', 'solutions.html'):
    assert name in out


def test_rewards_are_derived_again_and_solutions_improved_upon(finished):
  work, _ = finished
  found = audit.audit(work)
  assert found['differences'] == [] and found['records'] >= UPDATES * 8
  records = read_records(work / 'logs' / 'metrics.jsonl')
  assert [r['step'] for r in records] == list(range(UPDATES))
  assert max(r['solution/valid_rate'] for r in records) > 0.3
  traces = _traces(work)
  valid = {t['solution_id'] for t in traces if t['score_after'] is not None}
  improved = {t['improves'] for t in traces} - {''}
  assert improved and improved <= valid
  assert all(
    t['reward'] == t['score_after'] for t in traces if t['score_after']
  )


OPERATORS = (
  "--config.solution.operators={'draft': 1, 'improve': 1, 'debug': 1, 'crossover': 1}",
  '--config.solution.programs=8',
)


@pytest.fixture(scope='module')
def with_operators(tmp_path_factory):
  """A run with all operators, killed once in the middle of RL."""
  work = tmp_path_factory.mktemp('operators') / 'work'
  _kill_in_rl(work, *OPERATORS)
  return work, _finish(work, *OPERATORS)


def test_all_operators_are_learned_and_trained_with_a_kill_between(
  with_operators,
):
  work, _ = with_operators
  assert audit.audit(work)['differences'] == []
  traces = _traces(work)
  of = {name: [t for t in traces if t['operator'] == name] for name in NAMES}
  assert sum(map(len, of.values())) == len(traces) >= UPDATES * 8
  assert of['draft'] and (of['improve'] or of['crossover'] or of['debug'])
  valid = {t['solution_id'] for t in traces if t['score_after'] is not None}
  failed = {t['solution_id'] for t in traces if t['score_after'] is None}
  assert {t['improves'] for t in of['improve'] + of['crossover']} <= valid
  assert {t['joins'] for t in of['crossover']} <= valid
  assert all(t['joins'] != t['improves'] for t in of['crossover'])
  assert {t['improves'] for t in of['debug']} <= failed
  assert {t['asked'] for t in traces if 'asked' in t} <= {*NAMES}
  found = load(work / 'summary.json')['extra']['operators']['digits']
  assert {k: v['n'] for k, v in found.items()} == {
    k: len(v) for k, v in of.items() if v
  }
  metrics = read_records(work / 'logs' / 'metrics.jsonl')
  for record in metrics:
    shares = [record[f'solution/share/{name}'] for name in NAMES]
    assert sum(shares) == pytest.approx(1)


def test_a_search_with_the_operators_of_training(with_operators):
  work, _ = with_operators
  _finish(work, *OPERATORS, '--config.recipe=tree_search')
  found = kept.evaluated(work, 'search_policy')
  records = [step.record for one in found for step in one.steps]
  assert len(records) == 6
  assert all(record.action == record.operator for record in records)
  assert audit.audit(work)['differences'] == []


def test_a_search_around_the_trained_policy(finished):
  work, _ = finished
  out = _finish(work, '--config.recipe=tree_search')
  found = json.loads((work / 'search.json').read_text())['digits']
  assert found['n'] == 2 and set(found['by_step']) == {'1', '2'}
  assert 'search.json' in out
  assert audit.audit(work)['differences'] == []
