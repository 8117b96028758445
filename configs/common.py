"""What every experiment shares: the full set of options with defaults.

A config is a `ml_collections.ConfigDict`, locked: an unknown key stops the
run. Files beside this one call `base()` and change what their experiment is
about. Units are in the names (`_s`, `_mb`, `_kb`).
"""

from __future__ import annotations

from ml_collections import ConfigDict, FieldReference


def base() -> ConfigDict:
  """Options of a run on one two-core machine, offline."""
  config = ConfigDict()
  config.name = 'base'
  config.variant = 'tiny'
  # collect | sft | stepwise_ppo | episodewise_ppo | evaluate | agent |
  # rl_for_mle | tree_search
  config.loop = 'stepwise_ppo'
  config.seed = 0
  config.work_dir = 'workdir/base'
  config.tasks_dir = 'tasks'
  config.dry_run = False

  # Names of tasks; an empty tuple means every bundled task of that split.
  config.tasks = ConfigDict()
  config.tasks.heldin = ()
  config.tasks.heldout = ()

  config.sandbox = ConfigDict()
  config.sandbox.backend = 'local'  # local | docker | ray
  config.sandbox.docker_image = 'jaxagent-sandbox'  # for backend docker
  config.sandbox.ray_address = ''  # of a cluster, for ray; '' starts one here
  config.sandbox.min_tier = 'T2'  # T3 | T2 | T1 | T0
  config.sandbox.slots = 2
  config.sandbox.threads = 1  # CPUs of one execution
  config.sandbox.zygote = True
  # Vector units that jobs use, alike on every node: all | no-avx512 | no-avx2
  config.sandbox.cpu_level = 'no-avx512'
  config.sandbox.timeout_s = 3.0  # one execution; 0: each task's own limit
  config.sandbox.step_timeout_s = 60.0  # editor, queue and execution
  config.sandbox.memory_mb = 2048  # 0: each task's own limit

  # Text models: 'scripted' is the offline stand-in, 'openai' an endpoint, and the
  # name of another role its model. max_tokens: of an answer and the thoughts before
  # it; one that is cut or empty is asked for again with twice, four and eight times
  # as many. extra: merged into the JSON of a request, None takes a key out.
  config.expert = ConfigDict()
  config.expert.kind = 'scripted'
  config.expert.base_url = 'http://127.0.0.1:8000/v1'
  config.expert.model = ''
  config.expert.max_tokens = 1024
  config.expert.temperature = 0.7
  config.expert.extra = _open()
  config.expert.max_concurrency = 8  # calls in flight
  config.editor = ConfigDict()
  config.editor.kind = 'expert'
  config.editor.base_url = 'http://127.0.0.1:8000/v1'
  config.editor.model = ''
  config.editor.max_tokens = 4096
  config.editor.temperature = 0.0
  config.editor.extra = _open()
  config.editor.max_concurrency = 8

  # Understand File, Reflection and the research log are answered by it.
  config.reader = ConfigDict()
  config.reader.kind = 'editor'
  config.reader.base_url = 'http://127.0.0.1:8000/v1'
  config.reader.model = ''
  config.reader.max_tokens = 1024
  config.reader.temperature = 0.0
  config.reader.extra = _open()
  config.reader.max_concurrency = 8

  # How a step-wise policy is prompted, in the full style, and answers:
  # research | without_thought | react | autogpt | random (loop agent alone)
  config.agent = 'research'
  # Its environment.
  config.env = ConfigDict()
  config.env.dialect = 'jaxagent'  # jaxagent | mlagentbench
  config.env.actions = ()  # that a policy may take; () is paper 000's seven
  # execute: run and tell | measure: for the reward alone | nothing
  config.env.after_edit = 'execute'
  config.env.on_failure = 'revert'  # revert | keep, an edit that failed
  config.env.parse_mode = 'strict'  # strict | compatible | mlagentbench
  # MB of new and changed files that a run may leave for the next step.
  config.env.carry_mb = 16.0
  config.env.help = 'none'  # none | person, who answers Request Help

  # Where partial credit for whole solutions comes from: marks by syntax | by a
  # model (openai) | verified (what the grader checks) | none.
  config.instrumenter = ConfigDict()
  config.instrumenter.kind = 'syntax'
  config.instrumenter.base_url = 'http://127.0.0.1:8000/v1'
  config.instrumenter.model = ''
  config.instrumenter.max_tokens = 4096
  config.instrumenter.temperature = 0.0
  config.instrumenter.extra = _open()
  config.instrumenter.max_concurrency = 8
  config.instrumenter.timeout_s = (
    30.0  # of one answer; asked twice, if cut twice more
  )

  # Whole solutions (loop rl_for_mle).
  config.solution = ConfigDict()
  config.solution.scale = 'bounded'  # bounded | task | raw, of a valid score
  config.solution.improve = 0.5  # share of prompts with a previous solution
  config.solution.kept = 256  # of a task, to improve upon
  config.solution.keep_failed = False  # these, too
  config.solution.programs = 2000  # by script, for SFT; 0: no SFT
  config.solution.samples = 128  # of a task at evaluation, from scratch

  # Loop tree_search: draft, debug, improve (AIDE) around the trained policy, or
  # around a model behind an endpoint (openai).
  config.writer = ConfigDict()
  config.writer.kind = 'policy'
  config.writer.base_url = 'http://127.0.0.1:8000/v1'
  config.writer.model = ''
  config.writer.max_tokens = 4096
  config.writer.temperature = 1.0
  config.writer.extra = _open()
  config.writer.max_concurrency = 8
  # Of a task, from scratch and improved, of an endpoint's model; 0: the search alone.
  config.writer.samples = 0
  config.search = ConfigDict()
  config.search.runs = 8  # of a task
  config.search.steps = 20  # programs of a search
  config.search.drafts = 5
  config.search.debug_probability = 0.5
  config.search.debug_depth = 3  # failures in a row that are still debugged

  # In which ideas are compared: tfidf | openai, an endpoint's /embeddings.
  config.embeddings = ConfigDict()
  config.embeddings.kind = 'tfidf'
  config.embeddings.base_url = 'http://127.0.0.1:8000/v1'
  config.embeddings.model = ''
  config.embeddings.extra = _open()
  config.embeddings.max_concurrency = 8

  config.collect = ConfigDict()
  config.collect.trajectories_per_task = 32
  config.collect.max_steps = 6
  config.collect.time_limit_s = 1800.0
  config.collect.idea_pool = 100
  config.collect.ideas_kept = 10
  config.collect.varied_start = 0.7  # share that starts from an edited script

  # Loop episodewise_ppo: trajectories from the starter on.
  config.episode = ConfigDict()
  config.episode.max_steps = 15
  config.episode.time_limit_s = 1800.0  # of its executions

  config.tokenizer = ConfigDict()
  # An HF folder; '' is the model's own where `model.path` names one, and else
  # one trained on the run's corpus.
  config.tokenizer.path = ''
  config.tokenizer.vocab_size = 1024

  config.model = ConfigDict()
  config.model.path = ''  # '' is random initialisation of `model.hf`
  config.model.hf = ConfigDict(
    dict(
      model_type='qwen2',
      hidden_size=128,
      intermediate_size=384,
      num_hidden_layers=3,
      num_attention_heads=4,
      num_key_value_heads=2,
      max_position_embeddings=1024,
      rms_norm_eps=1e-6,
      rope_theta=10000.0,
      initializer_range=0.02,
      tie_word_embeddings=True,
    )
  )
  config.model.dtype = 'float32'
  config.model.scan_layers = False
  # none | full | dots | dots_no_batch | attention (its output kept)
  config.model.remat = 'none'
  config.model.attention = 'auto'  # 'mapped', 'xla', 'cudnn', 'splash'

  config.mesh = ConfigDict(dict(data=1, fsdp=1, tensor=1))

  config.sft = ConfigDict()
  config.sft.epochs = 8
  config.sft.batch_size = 8
  config.sft.lr = 4e-3
  config.sft.schedule = 'cosine'
  config.sft.warmup_steps = 20
  config.sft.checkpoint_every = 100  # steps
  # Of the experts' steps, those that ran, or of trajectories alone that were once
  # better than their start.
  config.sft.steps = 'ran'  # ran | improved
  config.sft.deduplicate = False  # equal prompts with equal responses once
  # A ShareGPT file (.json, .jsonl) to learn from instead; see docs/ml_agent.md.
  config.sft.conversations = ''

  config.rollout = ConfigDict()
  config.rollout.engine = 'native'  # native | vllm
  config.rollout.prompt_style = 'compact'  # compact | full
  # The policy is softmax(logits / temperature): in SFT, RL, evaluation and export.
  config.rollout.temperature = 1.0
  config.rollout.top_p = 1.0
  config.rollout.top_k = 0
  # What the policy's chat template is rendered with, such as
  # {'enable_thinking': False}.
  config.rollout.chat_template_kwargs = _open()
  config.rollout.stop = ()  # texts that end a response, as the end token does
  config.rollout.max_prompt_tokens = 256
  config.rollout.max_new_tokens = 192
  # Completions of a role at once; 0: no limit, and the native engine decodes 48.
  config.rollout.max_num_seqs = 0
  # Log-probs to the last bit whatever is decoded beside; slower.
  config.rollout.batch_invariant = False

  # Servers of vLLM: started on this machine, or, with urls, somebody else's.
  config.rollout.vllm = ConfigDict()
  config.rollout.vllm.urls = ()  # 'http://HOST:PORT', ...
  config.rollout.vllm.python = '.venv-vllm/bin/python'
  config.rollout.vllm.servers = 1
  config.rollout.vllm.devices = ()  # GPUs of each: '4,5', '6,7'; () any
  # Share of a GPU's memory that a server takes; 0: vLLM's own choice.
  config.rollout.vllm.gpu_memory_utilization = 0.0
  config.rollout.vllm.enforce_eager = False  # no CUDA graphs
  config.rollout.vllm.start_s = 600.0
  config.rollout.vllm.sync = 'shared_memory'  # shared_memory | folder | nccl
  # Where weights lie for the servers; '' is /dev/shm, or the work directory.
  config.rollout.vllm.shared_dir = ''
  # Between log-probs of a fixed request there and here, after each update; 0:
  # 0.001 in float32, 0.2 in bfloat16.
  config.rollout.vllm.max_gap_nats = 0.0

  config.rl = ConfigDict()
  config.rl.updates = 64
  config.rl.batch_size = 32
  config.rl.group_size = 1
  # Of what the experts left, held-in tasks and states that RL starts from.
  config.rl.tasks = ()  # () all
  config.rl.states = 0  # 0 all
  config.rl.estimator = 'gae'  # gae | grpo | dr_grpo | rloo | reinforce_pp
  config.rl.weighting = 'duration'  # none | duration | inclusion
  # Where weights have the mean 1: executed (steps that ran) | batch (paper 003)
  config.rl.weight_mean = 'executed'
  # Duration weights are cut at this many means; 0 is no cap, else >= 1.
  config.rl.weight_cap = 3.0
  # m: samples dispatched for each one consumed; with rest=wait it counts as 1.
  config.rl.oversample = 1.25
  config.rl.rest = 'carry_over'  # carry_over | cancel | wait
  config.rl.max_staleness = 1  # updates; -1 is no bound
  config.rl.on_stale = 'keep'  # keep | hold | drop
  # Interactions under way at once; 0: as many as sandboxes and their queue take,
  # and max_num_seqs more. More where completions are slower than executions.
  config.rl.max_concurrent_rollouts = 0
  # A step that has begun and gives no answer for so long is taken for lost.
  config.rl.lease_s = 150.0
  config.rl.watchdog_s = 300.0
  config.rl.policy_lr = 3e-4
  config.rl.value_lr = 3e-3
  config.rl.warmup_steps = 0  # of both optimizers, linear
  config.rl.schedule = 'constant'  # constant | cosine (to a tenth at the end)
  # The critic's trunk: '' is the policy's; else a Hugging Face folder.
  config.rl.critic_path = ''
  config.rl.weight_decay = 0.01
  # Passes of the critic, where there is one, over the collected steps.
  config.rl.value_warmup_epochs = 3
  config.rl.ppo_epochs = 2
  config.rl.minibatches = 1
  config.rl.clip_low = 0.2
  config.rl.clip_high = 0.2
  config.rl.dual_clip = 0.0  # above 1, usually 3; 0 is none
  config.rl.value_clip = 0.5
  config.rl.gamma = 1.0
  config.rl.lam = 1.0
  config.rl.kl_kind = 'k3'  # k2 | k3 in the loss, k1 in the reward
  config.rl.kl_in = 'loss'  # loss | reward
  config.rl.kl_coef = 0.02
  # Nats a token that the coefficient is adapted to; 0 keeps it fixed.
  config.rl.kl_target = 0.0
  config.rl.kl_horizon = 10_000  # samples over which it adapts
  config.rl.entropy_coef = 0.0
  config.rl.entropy_metric = True  # costs a pass over the logits
  config.rl.max_grad_norm = 1.0
  config.rl.aggregation = 'token-mean'
  # That one device holds in a pass; a row that is longer is one row a device.
  config.rl.micro_batch_tokens = 4096
  config.rl.chunk_rows = 1024  # tokens of a device whose logits exist at once
  config.rl.reference_dtype = 'float32'  # float32 | bfloat16
  # What lies in pinned host memory while it is not used, on accelerators: of
  # reference | value | policy_optimizer | value_optimizer
  config.rl.offload = ()
  # Write the new policy over the old one, which the engine then must not need.
  config.rl.donate = False
  config.rl.grad_reduce_dtype = (
    'float32'  # float32 | bfloat16; of sums over devices
  )
  config.rl.importance_level = 'token'  # none | token | sequence
  config.rl.importance_cap = 2.0
  # Against the variance of duration weight times importance ratio:
  config.rl.baseline = 'mean'  # mean | optimal, of whitened advantages
  config.rl.step_size = 'fixed'  # fixed | ess, by the effective sample share
  config.rl.checkpoint_every = 1
  config.rl.keep_checkpoints = 3
  config.rl.shuffle_rewards = False  # the control of every claim of learning

  config.reward = ConfigDict()
  config.reward.binary = False
  config.reward.format_term = True
  config.reward.corner_term = True

  config.eval = ConfigDict()
  config.eval.trajectories_per_task = 16  # above k: see docs/summary.md
  config.eval.max_steps = 2
  # Of a trajectory's executions; no action begins after it.
  config.eval.time_limit_s = 1800.0
  config.eval.k = 8
  config.eval.policies = ('starter', 'sft', 'rl')
  return config


def _open() -> FieldReference:
  """Makes an option that is a dictionary with free keys; on the command line its text."""
  return FieldReference({}, field_type=object)


def variant(name: str, choices: tuple[str, ...]) -> str:
  """The variant asked for after the colon, checked against `choices`."""
  name = name or choices[0]
  if name not in choices:
    raise ValueError(
      f'unknown variant {name!r}; choose one of: {", ".join(choices)} '
      f'(as in --config=FILE.py:{choices[0]}).'
    )
  return name
