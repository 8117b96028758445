"""ML-Agent (paper 000) as printed: equation 5, plain PPO on expert states.

stepwise
  command   python -m jaxagent.main --config=configs/ml_agent.py:stepwise
            --config.model.path=DIR
  hardware  8 x A100 80 GB
  paper     000, section 5.1 and appendix C: as stepwise_ppo.py:qwen2.5-7b, with
            39 PPO steps of 256 states, each waited for; no duration weights,
            no oversampling; the environment of paper 002, whose edits answer
            with the diff
  expected  000, table 1 (not measured here: it needs weights and the GPUs)
stepwise-tiny (default)
  command   python -m jaxagent.main --config=configs/ml_agent.py
  hardware  two CPU cores, 4 GiB; no GPU, hub or key
  expected  the same objective at the size of stepwise_ppo.py:tiny
"""

from configs import common, stepwise_ppo


def get_config(arg: str = '') -> common.ConfigDict:
  """The experiment's options for variant `arg`."""
  variant = common.variant(arg, ('stepwise-tiny', 'stepwise'))
  paper = variant == 'stepwise'
  config = stepwise_ppo.get_config('qwen2.5-7b' if paper else 'tiny')
  with config.unlocked():
    config.name = 'ml_agent'
    config.variant = variant
    config.work_dir = f'workdir/ml_agent-{variant}'
    config.rl.weighting = 'none'
    config.rl.oversample = 1.0
    config.rl.rest = 'wait'
    if paper:
      config.rl.updates = 39
      config.env.dialect = 'mlagentbench'
      config.env.after_edit = 'measure'
  return config
