"""`kill -9` of a run over real processes, at up to 50 points chosen at random."""

import collections
import json
import pathlib
import random
import subprocess
import sys
import time

import pytest

from jaxagent.rollout.journal import Journal
from tests.rollout import mortal

ROOT = pathlib.Path(__file__).parents[2]
KILLS = 50


def _start(folder):
  process = subprocess.Popen(
    [sys.executable, '-m', 'tests.rollout.mortal', folder],
    stdout=subprocess.PIPE,
    text=True,
    cwd=ROOT,
  )
  assert process.stdout.readline() == 'ready\n'
  return process


def _trained(folder):
  return {p.name: json.loads(p.read_text()) for p in folder.glob('update_*')}


@pytest.mark.slow
def test_drawn_once_and_run_once_whatever_is_killed(tmp_path):
  whole, killed = tmp_path / 'whole', tmp_path / 'killed'
  whole.mkdir()
  killed.mkdir()
  began = time.monotonic()
  process = _start(whole)
  assert process.communicate(timeout=60)[0] == 'done\n'
  whole_s = time.monotonic() - began
  rng, kills = random.Random(5), 0
  for _ in range(KILLS):
    process = _start(killed)
    time.sleep(rng.random() * whole_s / 20)
    process.kill()
    if process.communicate(timeout=60)[0] == 'done\n':
      break  # the machine was busier while the whole one ran
    kills += 1
  else:
    assert _start(killed).communicate(timeout=60)[0] == 'done\n'
  assert kills >= KILLS // 5
  assert _trained(killed) == _trained(whole)
  times = collections.defaultdict(collections.Counter)
  for event in Journal(killed / 'journal').events():
    if 'c' in event:
      times[event['e']][event['p'], event['d'], event['c']] += 1
  calls = mortal.UPDATES * mortal.BATCH * mortal.TURNS
  for kind, n in (('sampled', 2 * calls), ('executed', calls)):
    assert len(times[kind]) >= n and set(times[kind].values()) == {1}, kind
  # What a kill cut short was submitted again, and nothing else.
  assert max(times['submitted'].values()) > 1
