"""Step-wise PPO on a pool of expert states (ML-Agent, paper 000, 4.1-4.3).

tiny (default)
  command   python -m jaxagent.main --config=configs/stepwise_ppo.py
  hardware  two CPU cores, 4 GiB; no GPU, hub or key
  expected  the table in README.md (python -m benchmarks.quickstart --seeds 3)
qwen2.5-7b
  command   python -m jaxagent.main --config=configs/stepwise_ppo.py:qwen2.5-7b
            --config.model.path=DIR --config.expert.model=NAME
            --config.editor.model=NAME (and base_url of each)
  hardware  8 x A100 80 GB
  paper     000, section 5.1 and appendix C: SFT 2 epochs, batch 64, 2e-5;
            PPO batch 256, 1 epoch, 1e-6 (policy) and 1e-5 (value), KL 0.001
  expected  000, table 1 (not measured here: it needs weights and the GPUs)
"""

from configs import common


def get_config(arg: str = '') -> common.ConfigDict:
  """The experiment's options for variant `arg`."""
  variant = common.variant(arg, ('tiny', 'qwen2.5-7b'))
  config = common.base()
  config.name = 'stepwise_ppo'
  config.variant = variant
  config.recipe = 'stepwise'
  config.work_dir = f'workdir/stepwise_ppo-{variant}'
  if variant == 'qwen2.5-7b':
    _paper(config)
  return config.lock()


def _paper(config: common.ConfigDict) -> None:
  """Paper 000's settings for Qwen2.5-7B."""
  config.model.hf = common.ConfigDict(
    dict(
      model_type='qwen2',
      vocab_size=152064,
      hidden_size=3584,
      intermediate_size=18944,
      num_hidden_layers=28,
      num_attention_heads=28,
      num_key_value_heads=4,
      max_position_embeddings=32768,
      rms_norm_eps=1e-6,
      rope_theta=1000000.0,
      tie_word_embeddings=False,
    )
  )
  common.on_eight_gpus(config)
  config.expert.kind = 'openai'
  config.editor.kind = 'openai'  # the paper's coder, which reads files as well
  config.collect.trajectories_per_task = 1112  # 10k over 9 tasks
  config.collect.max_steps = 15
  config.collect.varied_start = 0.0
  config.sft.epochs = 2
  config.sft.batch_size = 64
  config.sft.lr = 2e-5
  config.sft.warmup_steps = 0
  config.rollout.engine = 'vllm'
  config.rollout.prompt_style = 'full'
  config.rollout.max_prompt_tokens = 12288
  config.rollout.max_new_tokens = 2048
  config.sandbox.timeout_s = 1800.0
  config.sandbox.step_timeout_s = 3600.0
  config.sandbox.slots = 64
  config.sandbox.threads = 2
  config.sandbox.zygote = False
  config.sandbox.memory_mb = 16384
  config.rl.batch_size = 256
  config.rl.updates = 40
  config.rl.weight_cap = 0.0
  config.rl.policy_lr = 1e-6
  config.rl.value_lr = 1e-5
  config.rl.value_warmup_epochs = 0
  config.rl.ppo_epochs = 1
  config.rl.kl_coef = 0.001
  config.rl.lease_s = 5400.0
  config.rl.watchdog_s = 7200.0
  config.rl.micro_batch_tokens = 14336  # the longest row
  config.eval.trajectories_per_task = 16
  config.eval.max_steps = 15
