"""A collection with both models behind an endpoint, as a user starts it."""

from __future__ import annotations

import collections
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.envs.agents.implementer import Query, Turn, write_turn
from jaxagent.recipes.ideator import pool as pools
from jaxagent.recipes.ideator.parser import Idea, write_idea
from tests.recipes.endpoint import serving
from tests.runs import environment, share_tasks

ROOT = pathlib.Path(__file__).parents[3]
STARTER = "exec(open('train.py').read())"
QUERY = Query('It stays.', '- the starter', 'a lower loss')
IDEA = Idea('It underfits.', 'Use a deeper tree.', 'Depth helps.')
# What the Implementer says, by the number of its message.
SAID = (
  write_turn(Turn('ipython', code=STARTER)),
  'I muse, and do nothing.',
  write_turn(Turn('seek_help', query=QUERY)),
  f'<think>So be it.</think>\n{write_turn(Turn("ipython", code=STARTER))}',
  write_turn(Turn('finish')),
)
RUNS, SLOTS = 6, 2
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def answer(body, number) -> dict:
  own = [m for m in body['messages'] if m['role'] == 'assistant']
  is_ideator = 'TRAJECTORY' in body['messages'][-1]['content']
  text = write_idea(IDEA) if is_ideator else SAID[len(own)]
  time.sleep(0.2)
  return {
    'choices': [{'message': {'content': text}, 'finish_reason': 'stop'}],
    'usage': {'prompt_tokens': 1000, 'completion_tokens': 10},
  }


def _start(url: str, work, *options: str) -> subprocess.Popen:
  share_tasks(work)
  roles = [
    f'--config.{role}.{option}'
    for role in ('implementer', 'ideator')
    for option in (
      'kind=openai',
      'model=any',
      f'base_url={url}',
      'prices={"prompt": 1.0, "completion": 2.0}',
    )
  ]
  return subprocess.Popen(
    [
      sys.executable,
      '-m',
      'jaxagent.main',
      '--config=configs/ideator.py:collect',
      "--config.tasks.heldin=('wine',)",
      "--config.tasks.heldout=('diabetes',)",
      '--config.sandbox.min_tier=T1',
      '--config.sandbox.timeout_s=30',
      f'--config.sandbox.slots={SLOTS}',
      f'--config.pool.runs_per_task={RUNS}',
      '--config.pool.train_per_task=4',
      '--config.pool.valid_per_task=2',
      '--config.rl.batch_size=16',
      f'--work_dir={work}',
      *roles,
      *options,
    ],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def test_nonsense_costs_a_step_and_a_kill_or_an_empty_purse_no_answer(tmp_path):
  work = tmp_path / 'work'
  with serving(answer) as (url, asked):
    # Room for about ten of the messages: the run stops, and says how to go on.
    poor = _start(url, work, '--config.implementer.max_spend=0.02')
    out, _ = poor.communicate(timeout=300)
    assert poor.returncode == 2, out[-2000:]
    assert 'config.implementer.max_spend=0.02' in out and 'resumes' in out
    before = len(asked)
    assert 0 < before < RUNS * len(SAID)
    killed = _start(url, work)
    end = time.monotonic() + 300
    while len(asked) < before + 8:
      assert killed.poll() is None and time.monotonic() < end
      time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    last = _start(url, work)
    out, _ = last.communicate(timeout=300)
  assert last.returncode == 0, out[-2000:]
  assert 'pool: 4 states to train on, 2 to validate on' in out
  pool = pools.read(work / 'collect' / 'pool.jsonl')
  for item in (*pool.train, *pool.valid):
    kinds = [step.kind for step in item.state.steps]
    assert kinds == ['ipython', 'invalid', 'seek_help']
    assert item.state.query == QUERY and item.state.best is not None
  # Equal questions of several runs differ by their seeds: each was asked once, but
  # for those that were open in a stop.
  counts = collections.Counter(json.dumps(body) for body in asked)
  again = sum(n - 1 for n in counts.values())
  assert again <= 2 * 2 * 8  # two stops, two roles, eight in flight
  assert len(counts) == RUNS * (len(SAID) + 1)
  lines = (work / 'spending' / 'implementer.jsonl').read_text().splitlines()
  paid = [json.loads(line) for line in lines]
  assert len({p['question'] for p in paid}) == len(paid) == RUNS * len(SAID)
  assert paid[0]['cost'] == pytest.approx((1000 * 1.0 + 10 * 2.0) / 1e6)


def test_a_member_that_the_endpoint_refuses_leaves_its_group_and_earns_nothing(
  tmp_path,
):
  work, batch = tmp_path / 'work', 16
  options = (
    '--config.stage=all',
    '--config.model.hf.hidden_size=64',
    '--config.model.hf.num_hidden_layers=2',
    '--config.model.hf.num_attention_heads=2',
    '--config.model.hf.num_key_value_heads=1',
    '--config.rollout.temperature=0.3',
    '--config.ideator.answers=4',
    '--config.sft.epochs=100',
    '--config.sft.batch_size=8',
    '--config.rl.updates=2',
    '--config.ideator.arms=()',
    "--config.eval.policies=('rl',)",
    '--config.eval.trajectories_per_task=3',
  )

  def refusing(body, number) -> dict | None:
    """As `answer`, but in RL it never carries out the ideas with some seeds."""
    in_rl = (work / 'rl').exists() and not (
      work / 'eval' / 'rl.journal'
    ).exists()
    return None if in_rl and body['seed'] % 5 == 0 else answer(body, number)

  with serving(refusing) as (url, _):
    run = _start(url, work, *options)
    out, _ = run.communicate(timeout=500)
  assert run.returncode == 0, out[-3000:]
  lines = (work / 'rl' / 'rollouts.jsonl').read_text().splitlines()
  rollouts = [json.loads(line) for line in lines]
  fates = collections.Counter(r['fate'] for r in rollouts)
  assert fates['quarantined'] > 0
  for one in rollouts:
    if one['fate'] == 'quarantined':
      assert one['reward'] is None
  trained = [
    json.loads(line)
    for path in sorted((work / 'rl' / 'traces').glob('*.jsonl'))
    for line in path.read_text().splitlines()
  ]
  assert len(trained) == fates['trained'] <= 2 * batch
  # Carried out, each idea is the starter again: nothing is changed.
  carried = [t for t in trained if t['valid_action']]
  assert carried and {t['reward'] for t in carried} == {0.0}
  assert all(t['no_op'] and t['outcome'] == 'ok' for t in carried)
  found = audit.audit(work)
  assert found['differences'] == []
  row = load(work / 'summary.json')['extra']['ideator']['rl']['heldin']
  assert row['tokens']['implementer'] > 0 and row['money'] > 0
