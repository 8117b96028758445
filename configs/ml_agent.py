"""ML-Agent (paper 000) as printed: equation 5, plain PPO on expert states.

Each of the following also as NAME-tiny, for two CPU cores and 4 GiB, without GPU,
hub or key, at the size of stepwise_ppo.py:tiny; `stepwise-tiny` is the default.

stepwise
  command   python -m jaxagent.main --config=configs/ml_agent.py:stepwise
            --config.model.path=DIR --config.expert.model=NAME
            --config.editor.model=NAME (and base_url of each)
  hardware  8 x A100 80 GB
  paper     000, section 5.1 and appendix C: as stepwise_ppo.py:qwen2.5-7b, with
            39 PPO steps of 256 states, each waited for; no duration weights,
            no oversampling; the environment of paper 002, whose edits answer
            with the diff
  expected  000, table 1 (not measured here: it needs weights and the GPUs)
episodewise
  paper     figure 4: whole trajectories of 15 steps and 30 minutes
binary-reward, no-format-reward, no-corner-reward
  paper     table 2: equation 6 without one of its three parts
no-sft
  paper     figure 5: RL from the model as it is
half-tasks
  paper     figure 6: RL on 3 of the held-in tasks (other numbers: rl.tasks)
fewer-states, more-states
  paper     figure 9: RL on 3,000 and on 30,000 of the experts' states, each about
            once (tiny: 320 and 832); for its curves to K=128 also
            --config.eval.trajectories_per_task=128 --config.eval.k=128
without-thought
  paper     table 10: action and input alone, experts included

collect, sft
  command   python -m jaxagent.main --config=configs/ml_agent.py:collect
  hardware  two CPU cores
  paper     000, 4.1 and appendix B.2: trajectories of up to 15 steps, then SFT on
            them; here 504 of a scripted expert (paper: 10k)
  expected  collect/trajectories.jsonl and its rate in the log
evaluate
  command   python -m jaxagent.main --config=configs/ml_agent.py:evaluate
            --config.agent=react --config.expert.kind=openai
            --config.expert.model=NAME --config.expert.base_url=URL
  hardware  two CPU cores beside the model's server
  paper     002, section 4: agents compared, 50 steps and 5 hours, 8 runs a task;
            its environment, in which execution is an action of its own
  expected  agent.json and mlagentbench/TASK/RUN/trace.json
"""

from typing import Any

from configs import common, stepwise_ppo
from jaxagent.envs import mlagentbench

# Paper 000's comparisons: name -> what differs from stepwise.
COMPARED: dict[str, dict[str, Any]] = {
  'stepwise': {},
  'episodewise': {'recipe': 'episodewise'},
  'binary-reward': {'reward.binary': True},
  'no-format-reward': {'reward.format_term': False},
  'no-corner-reward': {'reward.corner_term': False},
  'no-sft': {'sft.epochs': 0},
  'half-tasks': {'rl.tasks': ('diabetes', 'digits', 'unicode-script')},
  'fewer-states': {'rl.states': 3000, 'rl.updates': 12},
  'more-states': {'rl.states': 30000, 'rl.updates': 117},
  'without-thought': {'agent': 'without_thought'},
}
# Where the experts leave so many: (states, updates).
_TINY_STATES = {'fewer-states-tiny': (320, 10), 'more-states-tiny': (832, 26)}
_OTHERS = ('collect', 'sft', 'evaluate')


def get_config(arg: str = '') -> common.ConfigDict:
  """The experiment's options for variant `arg`."""
  names = tuple(f'{name}-tiny' for name in COMPARED) + tuple(COMPARED)
  variant = common.variant(arg, names + _OTHERS)
  compared = variant.removesuffix('-tiny')
  paper = compared == variant and variant in COMPARED
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
    elif variant in ('collect', 'sft'):
      config.stage = variant
      config.collect.trajectories_per_task = 84  # of 6 tasks
      config.collect.max_steps = 15
      if variant == 'collect':
        _full_prompts(config)  # the drawn ideas stand in them
    elif variant == 'evaluate':
      _benchmark(config)
    config.update_from_flattened_dict(COMPARED.get(compared, {}))
    if variant in _TINY_STATES:
      config.rl.states, config.rl.updates = _TINY_STATES[variant]
  return config


def _full_prompts(config: common.ConfigDict) -> None:
  config.rollout.prompt_style = 'full'
  config.rollout.max_prompt_tokens = 12288
  config.rollout.max_new_tokens = 2048
  config.model.hf.max_position_embeddings = 16384


def _benchmark(config: common.ConfigDict) -> None:
  """Paper 002's protocol."""
  config.recipe = 'agents'
  _full_prompts(config)
  config.rollout.temperature = 0.5  # MLAgentBench's LLM.py
  config.env.dialect = 'mlagentbench'
  config.env.after_edit = 'nothing'
  config.env.actions = mlagentbench.ACTIONS
  config.env.parse_mode = 'mlagentbench'
  # A script may take what its task allows: in the benchmark's own, a whole run.
  config.sandbox.timeout_s = 0.0
  config.sandbox.step_timeout_s = 6 * 3600.0
  config.sandbox.memory_mb = 0
  config.eval.trajectories_per_task = 8
  config.eval.max_steps = 50
  config.eval.time_limit_s = 5 * 3600.0
