"""Whole solutions of a model behind an endpoint: sampled, and searched."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from configs import common
from jaxagent import audit
from jaxagent.envs.interfaces import TextModelError
from jaxagent.envs.solution import SYSTEM, Solution, parse
from jaxagent.runtime import text_models
from tests.recipes.endpoint import serving
from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = """I predict the most frequent class.
```python
import pandas as pd
train = pd.read_csv('data/train.csv')
sample = pd.read_csv('data/sample_submission.csv')
target = sample.columns[1]
sample[target] = train[target].mode()[0]
sample.to_csv('submission.csv', index=False)
```
"""


def _said(body, number):
  """One and the same program, and sometimes nothing."""
  text = '' if body['seed'] % 4 == 0 else PROGRAM
  return {'choices': [{'message': {'content': text}}]}


@pytest.fixture
def endpoint():
  with serving(_said) as served:
    yield served


@pytest.mark.slow
def test_a_prompted_model_has_the_table_of_a_trained_one(tmp_path, endpoint):
  url, asked = endpoint
  work = tmp_path / 'work'
  done = subprocess.run(
    [
      sys.executable, '-m', 'jaxagent.main', '--config=configs/rl_for_mle.py',
      '--config.recipe=tree_search', '--config.writer.kind=openai',
      '--config.writer.model=org/small', f'--config.writer.base_url={url}',
      '--config.writer.samples=8', '--config.rollout.prompt_style=full',
      '--config.sandbox.min_tier=T1', '--config.sandbox.timeout_s=30',
      '--config.search.runs=2', '--config.search.steps=2', '--config.search.drafts=1',
      f'--work_dir={work}',
    ],
    cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    text=True, timeout=300,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout[-3000:]
  found = json.loads((work / 'samples.json').read_text())['digits']
  drawn = [found[part] for part in ('scratch', 'improved')]
  assert [part['n'] for part in drawn] == [8, 8]
  # What it does not say is its own failure, not the machinery's.
  assert 0 < drawn[0]['valid'] < 1 and found['better'] in drawn
  assert found['better']['reward'] == max(part['reward'] for part in drawn)
  assert json.loads((work / 'search.json').read_text())['digits']['n'] == 2
  assert all(
    a['messages'][0] == {'role': 'system', 'content': SYSTEM} for a in asked
  )
  assert any('previous solution' in a['messages'][1]['content'] for a in asked)
  assert audit.audit(work)['differences'] == []


def test_no_answer_is_an_error(tmp_path):
  config = common.base()
  config.writer.kind, config.writer.model = 'openai', 'm'
  config.writer.base_url = 'http://127.0.0.1:9/v1'
  writer = text_models.ProgramModel(config, tmp_path)
  writer._client._sleep = lambda seconds: None
  with pytest.raises(TextModelError):
    writer.complete('a', 0)


def test_what_the_writer_thinks_and_how_it_fences_is_not_its_program(tmp_path):
  program = 'I try it.\n````python title="x"\r\nprint(1)\r\n````\n'
  content = f'<think>\n{PROGRAM}\n</think>\n\n{program}'
  said = {
    'choices': [{'message': {'content': content}, 'finish_reason': 'length'}]
  }
  with serving(lambda body, number: said) as (url, asked):
    config = common.base()
    config.writer.update(
      kind='openai', model='m', base_url=url, temperature=0.3
    )
    writer = text_models.ProgramModel(config, tmp_path)
    answer = writer.text(writer.complete('a', 0))
  assert parse(answer) == Solution('I try it.', 'print(1)\n')
  assert 'most frequent' in answer.thoughts and asked[0]['temperature'] == 0.3
  assert len(asked) == 1  # it is measured
