"""An Ideator that an Implementer may ask, trained by GRPO (MLE-Ideator, paper 001).

tiny (default)
  command   python -m jaxagent.main --config=configs/ideator.py
  hardware  two CPU cores, 4 GiB; no GPU, hub or key
  expected  docs/ideator.md
collect
  command   python -m jaxagent.main --config=configs/ideator.py:collect
            (an endpoint: --config.implementer.kind=openai
            --config.implementer.model=NAME --config.implementer.base_url=URL,
            --config.ideator.kind=openai and so on)
  paper     001, 4.1: runs whose states with a question are the pool
evaluate
  command   python -m jaxagent.main --config=configs/ideator.py:evaluate
            --work_dir=WORK_DIR
  paper     001, tables 1 and 2, figure 2
qwen3-8b
  command   python -m jaxagent.main --config=configs/ideator.py:qwen3-8b
            --config.model.path=DIR --config.implementer.model=NAME
            --config.implementer.base_url=URL --config.ideator.model=NAME
            --config.ideator.base_url=URL
  hardware  8 x A100 80 GB for the policy (the paper has 128 A10G, one an idea, for
            executions)
  paper     001, 4.1 and appendix: Qwen3-8B with LoRA of rank 32, 1000 + 100 states
            of 10 tasks, 62 updates of 16 states x 8 ideas, no KL
  expected  001, tables 1 to 3 (not measured here: it needs weights and the GPUs)
"""

from configs import common


def get_config(arg: str = '') -> common.ConfigDict:
  """The experiment's options for variant `arg`."""
  variant = common.variant(arg, ('tiny', 'collect', 'evaluate', 'qwen3-8b'))
  config = common.base('ideator')
  config.name = 'ideator'
  # Stages are of one run, and share its work directory.
  config.variant = 'tiny' if variant in _STAGES else variant
  config.work_dir = f'workdir/ideator-{config.variant}'
  config.stage = variant if variant in _STAGES else 'all'
  # One execution an idea: durations differ by the program alone.
  config.rl.weighting = 'none'
  config.rl.rest = 'wait'
  config.rl.oversample = 1.0
  config.rl.estimator = 'grpo'
  config.rl.group_size = 8
  config.rl.aggregation = 'seq-mean-token-mean'
  config.rl.kl_coef = 0.0
  config.rl.validate_every = 10
  config.rl.keep_best = True
  config.rl.ppo_epochs = 1
  config.rl.minibatches = 1
  if variant == 'qwen3-8b':
    _paper(config)
  else:
    _tiny(config)
  return config.lock()


_STAGES = ('collect', 'evaluate')


def _tiny(config: common.ConfigDict) -> None:
  """A policy that imitates a mediocre scripted teacher first."""
  config.implementer.max_steps = 16
  config.pool.train_per_task = 50
  config.pool.valid_per_task = 10
  config.sandbox.timeout_s = 6.0
  config.rollout.max_prompt_tokens = 288
  config.rollout.max_new_tokens = 112
  # Copying a step's name is learned late from an even start (configs/rl_for_mle.py).
  config.model.hf.initializer_range = 0.08
  config.ideator.answers = 16
  config.ideator.augment = 0.75
  config.sft.epochs = 5
  config.rl.batch_size = 32
  config.rl.updates = 75
  config.eval.trajectories_per_task = 6
  config.eval.k = 3


def _paper(config: common.ConfigDict) -> None:
  """Paper 001's settings; what it leaves open is marked so."""
  config.model.hf = common.ConfigDict(
    dict(
      model_type='qwen3',
      vocab_size=151936,
      hidden_size=4096,
      intermediate_size=12288,
      num_hidden_layers=36,
      num_attention_heads=32,
      num_key_value_heads=8,
      head_dim=128,
      max_position_embeddings=40960,
      rms_norm_eps=1e-6,
      rope_theta=1000000.0,
      tie_word_embeddings=False,
    )
  )
  common.on_eight_gpus(config)
  config.tasks.heldin = ('paper:001/train',)
  # 17 of 51: the other folders are to be made, and --dry_run names them.
  config.tasks.heldout = ('paper:001/evaluate',)
  config.model.lora.rank = 32
  config.model.lora.alpha = 64.0  # open in the paper
  config.implementer.kind = (
    'openai'  # the reward's Implementer: open in the paper
  )
  config.implementer.max_steps = 50
  config.implementer.time_limit_s = 3600.0
  config.implementer.max_concurrency = 128
  config.ideator.kind = 'openai'  # who answers in the pool: open in the paper
  config.ideator.arms = ('none', 'null', 'vague', 'openai')
  config.ideator.answers = 0  # no SFT
  config.pool.runs_per_task = 90
  config.pool.train_per_task = 100  # of 10 tasks: 1000 states
  config.pool.valid_per_task = 10
  config.rollout.engine = 'vllm'
  config.rollout.prompt_style = 'full'
  config.rollout.temperature = 1.0  # open in the paper
  config.rollout.max_prompt_tokens = 32768
  config.rollout.max_new_tokens = 4096  # response length: open in the paper
  # Thinking mode: open in the paper. Thoughts in front of an idea are allowed, and
  # trained; --config.rollout.chat_template_kwargs="{'enable_thinking': False}" has none.
  config.sandbox.timeout_s = 3600.0
  config.sandbox.step_timeout_s = 4200.0
  config.sandbox.slots = 128  # one an idea
  config.sandbox.zygote = False
  config.sandbox.memory_mb = 16384
  config.rl.batch_size = 128  # 16 states x 8 ideas
  config.rl.updates = 62  # 1000 states by 16
  config.rl.policy_lr = 1e-5  # open in the paper
  config.rl.clip_low = config.rl.clip_high = 0.2  # symmetric; open in the paper
  config.rl.checkpoint_every = 10
  config.rl.lease_s = 5400.0
  config.rl.watchdog_s = 7200.0
  config.rl.micro_batch_tokens = 36864  # the longest row
  config.eval.trajectories_per_task = 3
  config.eval.k = 3
