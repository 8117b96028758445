"""Agents around a model, measured: a whole run, small, over loopback."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

from jaxagent import audit, traces
from tests.recipes.endpoint import serving
from tests.runs import environment, share_tasks

ROOT = pathlib.Path(__file__).parents[3]
RUN = (
  ' I run it.\nAction: Execute Script\n'
  'Action Input: {"script_name": "train.py"}'
)
pytestmark = pytest.mark.slow
END = ' I am done.\nFinal Answer: it runs'


class Model:
  """Runs the script, then answers; nothing while it is down."""

  down = True

  def __call__(self, body, number):
    if self.down:
      return None
    seen = 'Status' in str(body) or 'has been executed' in str(body)
    message = {'content': END if seen else RUN}
    return {
      'choices': [{'message': message, 'finish_reason': 'stop'}],
      'usage': {'prompt_tokens': 1, 'completion_tokens': 1},
    }


@pytest.fixture
def endpoint():
  model = Model()
  with serving(model) as (url, asked):
    yield model, url, asked


def _run(work: pathlib.Path, *options: str, code: int = 0) -> str:
  share_tasks(work)
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'jaxagent.main',
      '--config=configs/ml_agent.py:evaluate',
      "--config.tasks.heldin=('wine',)",
      "--config.tasks.heldout=('diabetes',)",
      '--config.sandbox.min_tier=T1',
      '--config.sandbox.timeout_s=30',
      '--config.eval.trajectories_per_task=2',
      '--config.eval.k=2',
      *options,
      f'--work_dir={work}',
    ],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=300,
  )
  assert done.returncode == code, done.stdout[-3000:]
  return done.stdout


def test_react_around_an_endpoint(tmp_path, endpoint):
  model, url, asked = endpoint
  options = (
    '--config.agent=react',
    '--config.expert.kind=openai',
    '--config.expert.model=small',
    f'--config.expert.base_url={url}',
  )
  # An outage leaves no result; the same command makes what is missing.
  out = _run(tmp_path / 'work', *options, code=1)
  assert re.search('[234] of 4 trajectories were lost', out)
  assert 'HTTP 400' in out
  assert not (tmp_path / 'work' / 'agent.json').exists()
  model.down, before = False, len(asked)
  out = _run(tmp_path / 'work', *options)
  assert 'scripted' not in out
  assert 6 <= before <= 12  # each call three times
  assert len(asked) == before + 8 and asked[-1]['max_tokens'] == 2048
  assert 'react on wine' in out
  found = json.loads((tmp_path / 'work' / 'agent.json').read_text())['react']
  final = found['tasks']['wine']['final']
  assert (final['runs'], final['submissions']) == (2, 2)
  assert found['failure_modes']['bad_plan'] == 1.0
  for split in ('heldin', 'heldout'):
    averages = found[split]['averages']
    assert averages['best_by_validation']['mean_improvement']['n'] == 2
    assert averages['final']['success_rate']['mean'] == 0.0
    assert found[split]['cost']['steps'] == 2
  prompt = asked[-1]['messages'][-1]['content']
  assert 'Question:' in prompt and 'has been executed' in prompt
  assert asked[-1]['stop'] == ['\nObservation:']
  trace = traces.read(tmp_path / 'work/mlagentbench/wine/1/env_log/trace.json')
  names = [step['action']['name'] for step in trace['steps']]
  assert names == ['Execute Script', 'Final Answer']
  assert trace['steps'][-1]['observation'] == 'end'
  log = tmp_path / 'work/mlagentbench/wine/1/agent_log/step_1_log.log'
  assert prompt in [m['messages'][-1]['content'] for m in asked]
  assert (
    'has been executed' in log.read_text() and 'Question:' in log.read_text()
  )
  cost = found['cost']
  assert (cost['steps'], cost['tokens'], cost['prompt_tokens']) == (2, 2, 2)
  assert cost['exec_s'] > 0 and cost['answer_s'] > 0
  assert audit.audit(tmp_path / 'work')['differences'] == []


def test_at_random_no_model_is_asked(tmp_path):
  work = tmp_path / 'work'
  out = _run(work, '--config.agent=random', '--config.eval.max_steps=5')
  assert 'scripted_expert' not in out
  records = json.loads((work / 'eval' / 'agent.json').read_text())
  assert [len(r['steps']) <= 5 for r in records] == [True] * 4
