import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def environment() -> dict[str, str]:
  """That of a whole job: on CPU, compiled as a user's job is."""
  return {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}


def start(work: pathlib.Path, *options: str) -> subprocess.Popen:
  """Starts a run as a user does, its output in a pipe."""
  return subprocess.Popen(
    [sys.executable, '-m', 'jaxagent.main', *options, f'--work_dir={work}'],
    cwd=ROOT,
    env=environment(),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


# Step-wise PPO, the whole of it in half a minute.
SMALL = (
  '--config=configs/stepwise_ppo.py',
  '--config.sandbox.min_tier=T1',
  '--config.sandbox.timeout_s=30',
  '--config.model.hf.hidden_size=64',
  '--config.model.hf.num_hidden_layers=2',
  '--config.model.hf.num_attention_heads=2',
  '--config.model.hf.num_key_value_heads=1',
  '--config.rollout.max_new_tokens=128',
  '--config.collect.trajectories_per_task=4',
  '--config.collect.max_steps=4',
  '--config.sft.epochs=2',
  '--config.sft.batch_size=8',
  '--config.eval.trajectories_per_task=2',
  '--config.eval.max_steps=1',
  '--config.eval.k=2',
)
