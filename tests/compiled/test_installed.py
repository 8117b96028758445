"""Plans for TPUs and GPUs, where launch_scripts/plan_env.sh has made its environment."""

import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / '.venv-plan' / 'bin' / 'python'
SMALL = {
  'model.hf.num_attention_heads': 4,
  'model.hf.hidden_size': 256,
  'model.hf.num_hidden_layers': 2,
  'model.dtype': 'bfloat16',
  'model.scan_layers': True,
  'model.remat': 'full',
  'rollout.engine': 'vllm',
}


@pytest.mark.slow
@pytest.mark.skipif(
  not PYTHON.exists(),
  reason='no .venv-plan: bash launch_scripts/plan_env.sh makes it (6 GB)',
)
@pytest.mark.parametrize('target', ['a100:1x1x8', 'h100:1x2x8', 'v5e:2x4'])
def test_every_program_compiles_for_a_target(target, tmp_path):
  file = tmp_path / 'plan.json'
  done = subprocess.run(
    [
      PYTHON,
      '-m',
      'jaxagent.plan',
      '--config=configs/stepwise_ppo.py',
      f'--target={target}',
      f'--json={file}',
      *(f'--config.{key}={value}' for key, value in SMALL.items()),
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert done.returncode == 0, done.stdout + done.stderr[-2000:]
  found = json.loads(file.read_text())
  assert found['fits'] and set(found['programs']) == {
    'logprobs', 'reference_logprobs', 'values', 'policy_grads', 'policy_step',
    'value_grads', 'value_step',
  }  # fmt: skip
  assert not [n for n, r in found['programs'].items() if 'error' in r]
