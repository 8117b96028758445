"""A recipe of a user's own, from its data to its report, without an edit to the package.

`Neighbours`, below, is all that a fifth experiment takes: this file and `CONFIG`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from jaxagent.options import Section, option
from jaxagent.recipes.one_turn import (
  Carried,
  OneTurn,
  OneTurnEvaluation,
  Problem,
)
from jaxagent.runtime import kept
from jaxagent.types import NoReward, Outcome, Record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ROOT = pathlib.Path(__file__).parents[2]
FIT = 'model.fit('


@dataclasses.dataclass(frozen=True)
class Options(Section):
  """Options of recipe neighbours."""

  most: int = option(9, least=1, most=9, help='Neighbours of a demonstration.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeighboursRecord(Record):
  """An answer. few: neighbours that it gives, 0 where it gives none."""

  KIND = 'neighbours'
  DERIVED_FROM = ('outcome', 'score_after', 'few')
  few: int = 0

  def derive(self, switches=None) -> float | NoReward:
    """Returns the score, less a hundredth for each neighbour; -1 without a score."""
    if self.outcome.is_infrastructure:
      return NoReward.of(self.outcome)
    if self.score_after is None:
      return -1.0
    return self.score_after - 0.01 * self.few


class Neighbours(OneTurn):
  """The policy says how many neighbours vote, in one digit."""

  name = 'neighbours'
  record_type = NeighboursRecord
  sections = {'neighbours': Options}
  metric_names = {'neighbours/few': 'Mean number of neighbours of an answer.'}

  def problems(self, tasks):
    return {task: Problem(task, f'{task}, neighbours: ') for task in tasks}

  def demonstrations(self):
    problems = self.problems(self.context.heldin).values()
    for few in range(1, self.config.neighbours.most + 1):
      yield from ((problem, str(few)) for problem in problems)

  def carry_out(self, problem, response, job_id):
    if not re.fullmatch('[1-9]', response):
      record = NeighboursRecord(
        task=problem.task,
        outcome=Outcome.INVALID_FORMAT,
        response=response,
        valid_action=False,
      )
      return Carried(record)
    start = self.starts[problem.task].state
    made = f'model = KNeighborsClassifier({response})\n{FIT}'
    code = start.files[start.script].replace(FIT, made)
    run = self.run_program(problem.task, code, job_id)
    fields = self.fields_of(problem.task, run)
    record = NeighboursRecord(response=response, few=int(response), **fields)
    return Carried(record, run)

  def metrics(self, found):
    return {'neighbours/few': sum(r.few for r in found) / len(found)}

  def evaluate(self, label):
    """Asks about the held-out tasks alone, three times each."""
    problems = self.problems(self.context.heldout)
    OneTurnEvaluation(self, label, problems, each=3).run()

  def figures(self, labels):
    work = self.context.work
    return {'asked': {one: len(kept.evaluated(work, one)) for one in labels}}


CONFIG = f"""
from jaxagent.config.base import base

def get_config(arg=''):
  config = base({__file__ + ':Neighbours'!r})
  config.work_dir = 'work'
  config.tasks.heldin = ('digits', 'wine')
  config.tasks.heldout = ('breast-cancer',)
  config.sandbox.min_tier = 'T1'
  config.sandbox.timeout_s = 30
  config.model.hf.hidden_size = 64
  config.model.hf.num_hidden_layers = 2
  config.model.hf.num_attention_heads = 2
  config.model.hf.num_key_value_heads = 1
  config.rollout.max_prompt_tokens = 32
  config.rollout.max_new_tokens = 8
  config.tokenizer.vocab_size = 270
  config.sft.epochs = 10
  config.sft.batch_size = 6
  config.rl.estimator = 'grpo'
  config.rl.group_size = 3
  config.rl.batch_size = 6
  config.rl.minibatches = 1
  config.rl.updates = 3
  config.eval.trajectories_per_task = 3
  config.eval.k = 2
  return config.lock()
"""


def _environment() -> dict[str, str]:
  """That of a user's shell, where the tests can be imported."""
  found = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}
  return found | {'PYTHONPATH': str(ROOT)}


def _start(folder: pathlib.Path, *arguments: object) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, '-m', *map(str, arguments)],
    cwd=folder,
    env=_environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _done(folder: pathlib.Path, *arguments: object) -> str:
  process = _start(folder, *arguments)
  out, _ = process.communicate(timeout=1200)
  assert process.returncode == 0, out[-3000:]
  return out


def _traces(work: pathlib.Path) -> list[dict]:
  files = sorted((work / 'rl' / 'traces').glob('*.jsonl'))
  return [json.loads(t) for f in files for t in f.read_text().splitlines()]


@pytest.fixture(scope='module')
def own(tmp_path_factory):
  folder = tmp_path_factory.mktemp('own')
  (folder / 'config.py').write_text(CONFIG)
  _done(folder, 'jaxagent.main', '--config=config.py')
  return folder


def test_a_recipe_of_ones_own_runs_from_its_data_to_its_report(own):
  work = own / 'work'
  traces = _traces(work)
  assert len(traces) == 18 and {t['kind'] for t in traces} == {'neighbours'}
  scored = [t for t in traces if t['score_after'] is not None]
  assert scored, 'SFT has taught the format'
  for trace in scored:
    assert trace['few'] == int(trace['response'])
    expected = trace['score_after'] - 0.01 * trace['few']
    assert trace['reward'] == pytest.approx(expected)
  assert '<html' in (work / 'report.html').read_text()
  logged = (work / 'logs' / 'metrics.jsonl').read_text()
  assert logged.count('neighbours/few') == 3


def test_its_own_evaluation_is_what_the_summary_has(own):
  work = own / 'work'
  summary = json.loads((work / 'summary.json').read_text())
  assert summary['extra']['asked'] == {'sft': 3, 'rl': 3}
  for label in ('sft', 'rl'):
    found = json.loads((work / 'eval' / f'{label}.json').read_text())
    assert {one['task'] for one in found} == {'breast-cancer'}
    assert summary[label]['heldout']['relative_gain']['n'] == 3
    assert summary[label]['heldin']['relative_gain']['n'] == 0


def test_its_rewards_are_derived_again_by_its_own_class(own):
  out = _done(own, 'jaxagent.audit', 'work')
  assert '24 rewards derived again, 24 of them sealed, 0 differences' in out


@pytest.fixture(scope='module')
def demo(tmp_path_factory):
  """What `new` writes, run outside of the checkout as it is; and its seconds."""
  folder = tmp_path_factory.mktemp('elsewhere')
  _done(folder, 'jaxagent.recipes', 'new', 'demo', '--dir', folder / 'mine')
  began = time.monotonic()
  out = _done(folder, 'jaxagent.main', f'--config={folder / "mine/config.py"}')
  print(f'demo: {time.monotonic() - began:.0f} s')
  return folder, out


def test_a_written_recipe_runs_as_it_is_outside_of_the_checkout(demo):
  folder, out = demo
  work = folder / 'workdir' / 'demo-tiny'
  summary = json.loads((work / 'summary.json').read_text())
  for policy in ('starter', 'sft', 'rl'):
    for split in ('heldin', 'heldout'):
      assert summary[policy][split]['relative_gain']['n'] > 0
  assert '<html' in (work / 'report.html').read_text()
  assert str(work / 'summary.json') in out and str(work / 'report.html') in out
  assert '0 differences' in _done(folder, 'jaxagent.audit', work)
  rewards = [t['reward'] for t in _traces(work)]
  assert len(rewards) == 64 and len(set(rewards)) > 2


def test_why_names_its_rollouts(demo):
  folder, _ = demo
  work = folder / 'workdir' / 'demo-tiny'
  out = _done(folder, 'jaxagent.why', work, '--update', 2)
  assert len(re.findall(r'^\d+/\d+/\d+ .*trained: reward', out, re.M)) == 8


def test_its_finished_stages_are_reused_by_the_other_stages(demo):
  folder, _ = demo
  config = f'--config={folder / "mine/config.py"}'
  work = folder / 'workdir' / 'demo-tiny'
  before = (work / 'eval' / 'rl.json').read_text()
  _done(folder, 'jaxagent.main', config, '--config.stage=sft')
  _done(folder, 'jaxagent.main', config, '--config.stage=evaluate')
  assert (work / 'eval' / 'rl.json').read_text() == before


def test_the_stage_sft_ends_before_rl(tmp_path):
  _done(tmp_path, 'jaxagent.recipes', 'new', 'demo', '--dir', 'mine')
  config = '--config=mine/config.py'
  options = (config, '--config.stage=sft', '--config.sft.epochs=1')
  _done(tmp_path, 'jaxagent.main', *options)
  work = tmp_path / 'workdir' / 'demo-tiny'
  assert (work / 'eval' / 'sft.json').is_file()
  assert not (work / 'rl' / 'traces').exists()
  process = _start(
    tmp_path, 'jaxagent.main', config, '--config.stage=evaluate',
    '--config.sft.epochs=1',
  )  # fmt: skip
  out, _ = process.communicate(timeout=300)
  assert process.returncode == 2 and 'error: ' in out


def test_a_killed_one_resumes_to_the_same_rewards(tmp_path):
  """SIGKILL within RL, in the synchronous mode, whose order does not depend on clocks."""
  _done(tmp_path, 'jaxagent.recipes', 'new', 'demo', '--dir', 'mine')
  options = (
    'jaxagent.main',
    '--config=mine/config.py',
    '--config.rl.rest=wait',
    '--config.rl.weighting=none',
    '--config.rollout.batch_invariant=True',
    '--config.sandbox.timeout_s=30',
    '--config.sft.epochs=10',
    '--config.rl.updates=4',
  )
  _done(tmp_path, *options, '--work_dir=whole')
  process = _start(tmp_path, *options, '--work_dir=killed')
  second = tmp_path / 'killed' / 'rl' / 'traces' / 'update_000001.jsonl'
  end = time.monotonic() + 600
  while not second.exists() and time.monotonic() < end:
    assert process.poll() is None, process.stdout.read()[-3000:]
    time.sleep(0.05)
  process.send_signal(signal.SIGKILL)
  process.communicate(timeout=60)
  assert not (tmp_path / 'killed' / 'summary.json').exists()
  _done(tmp_path, *options, '--work_dir=killed')
  whole, killed = _traces(tmp_path / 'whole'), _traces(tmp_path / 'killed')
  keys = ('prompt_id', 'update', 'response', 'reward', 'outcome')
  assert [[t[k] for k in keys] for t in killed] == [
    [t[k] for k in keys] for t in whole
  ]
  assert '0 differences' in _done(tmp_path, 'jaxagent.audit', 'killed')


def test_a_carry_out_that_raises_ends_the_run_by_class_file_and_line(demo):
  """It is neither tried again as a fault of the machine nor charged to the policy."""
  folder, _ = demo
  recipe = folder / 'mine' / 'recipe.py'
  good = recipe.read_text()
  bad = good.replace(
    'match = RESPONSE', 'spec.no_such_member\n    match = RESPONSE'
  )
  assert bad != good
  recipe.write_text(bad)
  try:
    process = _start(
      folder, 'jaxagent.main', f'--config={folder / "mine/config.py"}',
      '--work_dir=broken', '--config.sft.epochs=1',
    )  # fmt: skip
    out, _ = process.communicate(timeout=300)
  finally:
    recipe.write_text(good)
  assert process.returncode == 2, out[-3000:]
  (line,) = [text for text in out.splitlines() if text.startswith('error: ')]
  assert f'Demo in {recipe}.carry_out raised AttributeError' in line
  assert re.search(rf'{re.escape(str(recipe))}, line \d+', line)
