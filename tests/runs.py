import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# XLA's flags of all but whole jobs. Compiling takes most of a test's time, and a third
# of what it takes by default with these: LLVM optimizes nothing, and fusions go to it
# without a second compiler (MLIR) before.
QUICK = '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false'


def environment() -> dict[str, str]:
  """That of a whole job: on CPU, compiled as a user's job is."""
  return {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''}


def share_tasks(work: pathlib.Path) -> None:
  """Lets a run use the data that runs of other tests have prepared.

  Prepared data is kept by its content; where it lies is no run's business. It takes a
  fifth of the CPU time of a run as small as these.
  """
  shared = pathlib.Path(os.environ['JAXAGENT_TESTS_SHARED']) / 'tasks'
  shared.mkdir(exist_ok=True)
  work.mkdir(parents=True, exist_ok=True)
  if not (work / 'tasks').exists():
    (work / 'tasks').symlink_to(shared)


def start(work: pathlib.Path, *options: str) -> subprocess.Popen:
  """Starts a run as a user does, its output in a pipe."""
  share_tasks(work)
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

# A policy that has learned to write actions, in two minutes; for several files.
TAUGHT = (
  '--config=configs/stepwise_ppo.py',
  "--config.tasks.heldin=('wine','diabetes')",
  "--config.tasks.heldout=('breast-cancer',)",
  '--config.sandbox.timeout_s=30',
  '--config.model.hf.num_hidden_layers=2',
  # Enough for responses that run. So cool that rounding does not decide: 10 to 12
  # of 32 with seeds 0, 1, 2.
  '--config.rollout.temperature=0.5',
  '--config.collect.trajectories_per_task=10',
  '--config.collect.max_steps=3',
  '--config.sft.epochs=20',
  '--config.sft.batch_size=8',
  "--config.eval.policies=('rl',)",
  '--config.eval.trajectories_per_task=2',
  '--config.eval.max_steps=1',
  '--config.eval.k=2',
)


def give_taught(
  work: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
  """Makes a work directory whose stages until SFT are done, with options TAUGHT.

  The stages are run once for all workers: the first that comes makes them, the
  others wait for it.
  """
  shared = tmp_path_factory.getbasetemp()
  if 'PYTEST_XDIST_WORKER' in os.environ:
    shared = shared.parent
  made = shared / 'taught'
  with open(shared / 'taught.lock', 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (made / 'sft').exists():
      part = shared / 'taught-part'
      shutil.rmtree(part, ignore_errors=True)  # of one that failed
      process = start(part, *TAUGHT, '--config.stage=sft')
      out, _ = process.communicate(timeout=800)
      assert process.returncode == 0, out[-3000:]
      part.rename(made)
  share_tasks(work)
  for stage in ('collect', 'tokenizer', 'sft'):
    shutil.copytree(made / stage, work / stage)
  shutil.copy(made / 'snapshots.sqlite', work)
