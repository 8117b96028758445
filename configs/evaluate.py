"""Evaluation of a finished run: whole trajectories, held-in and held-out.

command   python -m jaxagent.main --config=configs/evaluate.py
          --config.work_dir=workdir/stepwise_ppo-tiny
hardware  two CPU cores (tiny)
paper     000, section 5.1 (avg@8, best@8, relative gain)
"""

from configs import common, stepwise_ppo


def get_config(arg: str = '') -> common.ConfigDict:
  """Returns stepwise_ppo's config, to evaluate a work directory's policies only."""
  config = stepwise_ppo.get_config(arg).unlock()
  config.stage = 'evaluate'
  return config.lock()
