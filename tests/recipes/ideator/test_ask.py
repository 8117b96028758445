"""The trained Ideator asked from outside, by the commands of docs/ideator.md."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from configs import ideator
from jaxagent.config import settings
from jaxagent.recipes.ideator import __main__ as ask
from jaxagent.recipes.ideator import pool as pools
from jaxagent.recipes.ideator.parser import ITEMS
from jaxagent.recipes.ideator.pool import Pool
from tests.recipes.ideator.test_endpoints import state
from tests.recipes.ideator.test_recipe import OPTIONS
from tests.rollout.served import FOLDER, need_vllm
from tests.runs import environment, share_tasks

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / 'docs' / 'ideator.md').read_text()


def commands(heading: str) -> list[str]:
  """The commands of a section of the page, each on one line."""
  _, _, section = PAGE.partition(f'## {heading}\n')
  section = section.partition('\n## ')[0]
  code = '\n'.join(re.findall(r'```\n(.*?)```', section, re.S))
  return code.replace('\\\n', ' ').splitlines()


def wine_state():
  made = state()
  asks = made.state
  return type(made)(
    made.key, made.run, type(asks)('wine', False, {}, steps=asks.steps)
  )


@pytest.fixture
def work(tmp_path) -> pathlib.Path:
  """A work directory with a pool of one state for each split."""
  config = ideator.get_config().unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  config.work_dir = str(tmp_path)
  settings.open_work_dir(config)
  held = wine_state()
  other = dataclasses.replace(held, key='trained', run='another run')
  pools.write(tmp_path / 'collect' / 'pool.jsonl', Pool((other,), (held,)))
  return tmp_path


def test_a_request_holds_the_prompt_that_the_policy_is_trained_on(work, capsys):
  assert ask.main(['request', str(work), '--model', 'mine']) == 0
  body = json.loads(capsys.readouterr().out)
  (message,) = body['messages']
  assert message['role'] == 'user' and body['model'] == 'mine'
  assert 'Task: tabular classification' in message['content']
  assert 'Problem: Try 0 failed.' in message['content']
  assert body['max_tokens'] == 112


def test_an_unknown_state_and_a_folder_without_a_pool_are_named(
  work, tmp_path, capsys
):
  assert ask.main(['request', str(work), '--state', 'x']) == 2
  assert "no state 'x'; it has state-0" in capsys.readouterr().err
  (work / 'collect' / 'pool.jsonl').unlink()
  assert ask.main(['request', str(work)]) == 2
  assert 'collect a pool first' in capsys.readouterr().err


def test_a_template_is_given_to_a_tokenizer_of_a_run_alone(tmp_path, capsys):
  path = tmp_path / 'tokenizer_config.json'
  assert ask.main(['template', str(tmp_path)]) == 2
  path.write_text(json.dumps({'sep_token': '<sep>', 'eos_token': '<eos>'}))
  assert ask.main(['template', str(tmp_path)]) == 0
  value = json.loads(path.read_text())
  assert value['chat_template'].endswith('<sep>')
  assert value['split_special_tokens'] is False
  assert ask.main(['template', str(tmp_path)]) == 2  # it has one now
  path.write_text(json.dumps({'eos_token': '<|im_end|>'}))
  assert ask.main(['template', str(tmp_path)]) == 2
  assert 'serve it as it is' in capsys.readouterr().err


def _run(command: str, work: pathlib.Path, *options: str) -> str:
  """Carries out a command of the page, in another folder."""
  words = command.replace('workdir/', f'{work}/').split()
  assert words[0] == 'python'
  done = subprocess.run(
    [sys.executable, *words[1:], *options],
    cwd=ROOT,
    env=environment(),
    capture_output=True,
    text=True,
    timeout=1000,
  )
  assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
  return done.stdout


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(1500)
def test_the_commands_of_the_page_train_export_serve_and_ask(tmp_path):
  need_vllm()
  train, check = commands('Train')
  small = [o for o in OPTIONS if not o.startswith('--config=')]
  few = ('--config.ideator.arms=()', "--config.eval.policies=('rl',)")
  # Enough of SFT that it answers in three items.
  long = ('--config.sft.epochs=80', '--config.rl.updates=1')
  share_tasks(tmp_path / 'ideator-tiny')
  _run(
    train, tmp_path, *small, *few, *long, f'--work_dir={tmp_path}/ideator-tiny'
  )
  assert ' 0 differences' in _run(check, tmp_path)
  export, template, _, serve, request, curl = commands(
    'Ask the trained Ideator'
  )
  _run(export, tmp_path)
  _run(template, tmp_path)
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = str(free.getsockname()[1])
  body = json.loads(_run(request.partition(' > ')[0], tmp_path))
  (tmp_path / 'request.json').write_text(json.dumps(body | {'temperature': 0}))
  served = serve.replace('workdir/', f'{tmp_path}/').replace('8000', port)
  python, *words = served.replace('.venv-vllm', FOLDER).split()
  with open(tmp_path / 'server.log', 'w') as log:
    server = subprocess.Popen(
      [str(ROOT / python), *words],
      cwd=tmp_path,
      stdout=log,
      stderr=log,
      env=environment() | {'VLLM_CPU_KVCACHE_SPACE': '1'},
    )
  try:
    _wait_for(f'http://127.0.0.1:{port}/health', server, tmp_path)
    done = subprocess.run(
      curl.replace('8000', port),
      shell=True,
      cwd=tmp_path,
      capture_output=True,
      text=True,
      timeout=120,
    )
  finally:
    server.send_signal(signal.SIGTERM)
    server.wait(60)
  answer = json.loads(done.stdout)['choices'][0]['message']['content']
  places = [answer.find(f'{name}:') for name in ITEMS]
  assert places[0] == 0 and places == sorted(places), answer


def _wait_for(url: str, server: subprocess.Popen, folder) -> None:
  end = time.monotonic() + 400
  while time.monotonic() < end:
    log = (folder / 'server.log').read_text()[-2000:]
    assert server.poll() is None, log
    try:
      with urllib.request.urlopen(url, timeout=5):
        return
    except OSError:
      time.sleep(1)
  pytest.fail(log)
