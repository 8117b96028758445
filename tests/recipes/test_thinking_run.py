"""A run whose expert and editor answer as Qwen3 behind plain vLLM does.

The same model twice: once it only answers, once it thinks aloud before, in the text
or beside it, answers in parts, says nothing or is cut. What is learned is the same.
"""

from __future__ import annotations

import json
import pathlib
import random
import re
import subprocess
import sys
import zlib

import pytest

from jaxagent import audit
from jaxagent.envs import parser
from jaxagent.envs.interfaces import EditRefused
from jaxagent.recipes.results import read_traces
from jaxagent.stand_ins import moves
from jaxagent.stand_ins.editor import ScriptedEditor
from tests.recipes.endpoint import serving
from tests.runs import SMALL, environment, share_tasks

ROOT = pathlib.Path(__file__).parents[2]
ROOM = {'expert': 512, 'editor': 2048}
DRAFT = '```python\nraise SystemExit("a draft")\n```'
THOUGHTS = f'Pondering. Perhaps\n{DRAFT}\nNo, that is not it.'
_SCRIPT = re.compile(
  r'Instruction: (.*?)\n\nScript:\n```python\n(.*)```\Z', re.S
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _answer(body) -> str:
  """What the model has to say, whoever asks."""
  asked = body['messages'][-1]['content']
  if '[advice]' in asked:
    return '[advice]\n' + '\n'.join(f'Try idea number {i}.' for i in range(25))
  if found := _SCRIPT.search(asked):
    try:
      code = ScriptedEditor().edit(found[2], found[1])
    except EditRefused as error:
      return f'REFUSED: {error.reason}'
    return f'Here it is.\n```python\n{code}```\nDone.'
  rng = random.Random(body['seed'])
  move = rng.choice(moves.moves_for('classification', 'tabular'))
  return parser.format_response(
    dict.fromkeys(parser.ENTRIES[:4], 'I try this.'),
    'Edit Script (AI)',
    {
      'script_name': 'train.py',
      'edit_instruction': move.say(),
      'save_name': 'train.py',
    },
  )


def _plain(body, number):
  return _made({'role': 'assistant', 'content': _answer(body)})


def _thinking(body, number):
  """In one of six ways, by what is asked; with enough room it comes to an end."""
  text = _answer(body)
  key = json.dumps(body['messages']) + str(body.get('seed'))
  way = zlib.crc32(key.encode()) % 6
  first = body['max_tokens'] in (*ROOM.values(), 4096)
  if way == 0:
    return _made({'content': f'<think>\n{THOUGHTS}\n</think>\n\n{text}'})
  if way == 1:
    return _made({'content': f'{THOUGHTS}\n</think>\n\n{text}'})
  if way == 2:
    parts = [
      {'type': 'thinking', 'thinking': [{'type': 'text', 'text': THOUGHTS}]},
      {'type': 'text', 'text': text},
    ]
    return _made({'content': parts})
  if way == 3 and first:
    return _made({'content': None, 'reasoning_content': THOUGHTS}, 'length')
  if way == 4 and first:
    return _made({'content': f'<think>\n{THOUGHTS}'}, 'length')
  if way == 5 and first:
    return _made({'content': None})
  return _made({'content': text, 'reasoning': THOUGHTS})


def _made(message, end='stop'):
  return {
    'choices': [{'message': message, 'finish_reason': end}],
    'usage': {'prompt_tokens': 1, 'completion_tokens': 1},
  }


def _run(work: pathlib.Path, answer, *options: str) -> list[dict]:
  share_tasks(work)
  with serving(answer) as (url, asked):
    done = subprocess.run(
      [
        sys.executable, '-m', 'jaxagent.main', *SMALL,
        "--config.tasks.heldin=('wine',)", "--config.tasks.heldout=('breast-cancer',)",
        '--config.collect.idea_pool=20', '--config.collect.ideas_kept=5',
        '--config.collect.varied_start=0', '--config.collect.max_steps=3',
        '--config.expert.kind=openai', '--config.expert.model=qwen3',
        f'--config.expert.base_url={url}',
        f'--config.expert.max_tokens={ROOM["expert"]}',
        f'--config.editor.max_tokens={ROOM["editor"]}',
        '--config.rl.updates=1', '--config.rl.batch_size=4', '--config.rl.rest=wait',
        '--config.rl.weighting=none', '--config.rollout.batch_invariant=True',
        '--config.rl.value_warmup_epochs=0', '--config.sft.epochs=1',
        '--config.model.hf.num_hidden_layers=1',
        '--config.rl.ppo_epochs=1', '--config.rl.estimator=reinforce_pp',
        '--config.collect.trajectories_per_task=3', "--config.eval.policies=('starter',)",
        f'--work_dir={work}', *options,
      ],
      cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      text=True, timeout=400,
    )  # fmt: skip
  assert done.returncode == 0, done.stdout[-3000:]
  return asked


def _collected(work: pathlib.Path) -> list[dict]:
  lines = (work / 'collect' / 'trajectories.jsonl').read_text().splitlines()
  records = sorted(map(json.loads, lines), key=lambda r: r['index'])
  assert not any(record['fault'] for record in records)
  return [step for record in records for step in record['steps']]


def test_thoughts_do_not_change_what_is_collected_and_learned(tmp_path):
  _run(tmp_path / 'plain', _plain, '--config.stage=collect')
  asked = _run(tmp_path / 'thinking', _thinking)
  plain, thinking = (
    _collected(tmp_path / name) for name in ('plain', 'thinking')
  )
  same = ('response', 'outcome', 'valid_action', 'score_after', 'diff')
  assert [[s[k] for k in same] for s in plain] == [
    [s[k] for k in same] for s in thinking
  ]
  valid = [s for s in thinking if s['valid_action'] and s['outcome'] == 'ok']
  assert len(valid) > len(thinking) / 2
  # The thoughts are in the traces, beside what they led to and not within.
  assert not any('thoughts' in step for step in plain)
  for field in ('thoughts', 'editor_thoughts'):
    with_thoughts = [step for step in thinking if field in step]
    assert len(with_thoughts) > len(thinking) / 2
    assert all('Pondering' in step[field] for step in with_thoughts)
  assert not any(
    'Pondering' in s['response'] or 'draft' in s['diff'] for s in thinking
  )
  # Cuts were asked for again.
  rooms = {body['max_tokens'] for body in asked}
  assert {2 * ROOM['expert'], 2 * ROOM['editor']} <= rooms
  # And in RL nothing of it was charged to the policy.
  trained = read_traces(tmp_path / 'thinking' / 'rl' / 'traces')
  assert len(trained) == 4
  told = ' '.join(turn.record.observation for turn in trained)
  assert (
    'code block' not in told and 'no text' not in told and 'cut off' not in told
  )
  assert audit.audit(tmp_path / 'thinking')['differences'] == []
