"""Supervised fine-tuning on expert trajectories alone (paper 000, 4.1).

command   python -m jaxagent.main --config=configs/sft.py
hardware  two CPU cores (tiny)
expected  the SFT column of the quickstart's summary
paper     000, table 1, rows "SFT"; section 4.1
"""

from configs import common, stepwise_ppo


def get_config(arg: str = '') -> common.ConfigDict:
  """Returns stepwise_ppo's config with SFT as the last stage."""
  config = stepwise_ppo.get_config(arg).unlock()
  config.name = 'sft'
  config.stage = 'sft'
  config.work_dir = f'workdir/sft-{config.variant}'
  return config.lock()
