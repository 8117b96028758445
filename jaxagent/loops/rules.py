"""What a config may hold: one table, read before any work is done.

A rule looks at a few keys and complains in one sentence that names the
value, what it may be and the remedy. `tests/loops/test_rules.py` holds every
leaf of configs/common.py to be in the table or in `FREE`, and breaks every
rule once.
"""

from __future__ import annotations

import pathlib

from jaxagent import readings, summary
from jaxagent.algorithms import kl
from jaxagent.envs import agents, parser, step_env
from jaxagent.envs.solution_env import INSTRUMENTERS
from jaxagent.interactions import MAX_CALLS
from jaxagent.learner.config import CENTRED, OFFLOADED
from jaxagent.loops import checks, endpoints, engines, templates
from jaxagent.rewards.mle import SCALES
from jaxagent.sandbox import cpu_levels

# Any text will do.
FREE = ('name', 'variant')
# What a Hugging Face config.json, `model.hf`, may leave out.
OPTIONAL = (
  'model.hf.vocab_size',
  'model.hf.head_dim',
  'model.hf.num_key_value_heads',
  'model.hf.rms_norm_eps',
  'model.hf.rope_theta',
  'model.hf.initializer_range',
  'model.hf.tie_word_embeddings',
)


def complaint(config, stages: tuple[str, ...]) -> str:
  """The first complaint of the table, '' where there is none."""
  for rule in RULES:
    if rule.stage not in stages:
      continue
    absent = [key for key in rule.keys if not checks.has(config, key)]
    if missing := [key for key in absent if key not in OPTIONAL]:
      return f'config.{missing[0]} is missing; give --config.{missing[0]}.'
    if not absent and (said := rule.check(config)):
      return said
  return ''


RL_LOOPS = ('stepwise_ppo', 'episodewise_ppo', 'rl_for_mle')
_HF = 'model.hf.'
_NEST = 'deadlines nest (execution < step < lease < watchdog)'


def _vllm(*names: str) -> tuple[str, ...]:
  return tuple(f'rollout.vllm.{name}' for name in names)


RULES: tuple[checks.Rule, ...] = (
  checks.Rule((), checks.all_finite),
  # What there is to choose.
  checks.one_of(
    'loop',
    'collect',
    'sft',
    'stepwise_ppo',
    'episodewise_ppo',
    'evaluate',
    'rl_for_mle',
    'tree_search',
    'agent',
  ),
  checks.related(
    'agent',
    'loop',
    holds=lambda agent, loop: agent != 'random' or loop == 'agent',
    say='config.agent={0!r} asks no model: nothing can be trained to act so. It '
    "is for config.loop='agent', not {1!r}.",
  ),
  checks.one_of('writer.kind', 'policy', 'openai'),
  checks.one_of('sandbox.backend', 'local', 'docker', 'ray'),
  checks.related(
    'sandbox.docker_image',
    holds=lambda image: isinstance(image, str) and image.strip(),
    say='config.sandbox.docker_image={0!r} must be the name of an image; '
    'python -m jaxagent.sandbox image makes one.',
  ),
  checks.related(
    'sandbox.ray_address',
    holds=checks.is_ray_address,
    say='config.sandbox.ray_address={0!r} must be HOST:PORT of a cluster that '
    "has a node on this machine, 'auto' for the one that runs here, or '', "
    'which starts a private Ray.',
  ),
  checks.related(
    'sandbox.ray_address',
    'sandbox.backend',
    holds=lambda address, backend: not address or backend == 'ray',
    say='config.sandbox.ray_address={0!r} is for '
    "config.sandbox.backend='ray', not {1!r}.",
  ),
  checks.one_of('sandbox.min_tier', 'T3', 'T2', 'T1', 'T0'),
  checks.one_of('sandbox.cpu_level', *cpu_levels.LEVELS),
  checks.one_of('expert.kind', 'scripted', 'openai'),
  checks.one_of('editor.kind', 'scripted', 'openai', 'expert'),
  checks.one_of('agent', *agents.AGENTS),
  checks.one_of('reader.kind', 'scripted', 'openai', 'expert', 'editor'),
  checks.one_of('env.dialect', *step_env.DIALECTS),
  checks.one_of('env.after_edit', *step_env.AFTER_EDIT),
  checks.one_of('env.on_failure', *step_env.ON_FAILURE),
  checks.one_of('env.parse_mode', *parser.MODES),
  checks.one_of('env.help', 'none', 'person'),
  checks.names('env.actions', tuple(parser.ACTION_ARGS)),
  checks.one_of('instrumenter.kind', *INSTRUMENTERS),
  checks.one_of('solution.scale', *SCALES),
  checks.one_of('model.dtype', 'float32', 'bfloat16'),
  checks.one_of(
    'model.remat', 'none', 'full', 'dots', 'dots_no_batch', 'attention'
  ),
  checks.one_of('model.attention', 'auto', 'mapped', 'xla', 'cudnn', 'splash'),
  checks.related(
    'model.attention',
    'model.dtype',
    holds=lambda kernel, dtype: kernel != 'cudnn' or dtype == 'bfloat16',
    say="config.model.attention='cudnn' needs config.model.dtype='bfloat16', not "
    "{1!r}; set that, or config.model.attention='auto'.",
  ),
  checks.one_of('sft.schedule', 'cosine', 'constant'),
  checks.one_of('embeddings.kind', 'tfidf', 'openai'),
  checks.one_of('sft.steps', 'ran', 'improved'),
  checks.one_of('rl.schedule', 'cosine', 'constant'),
  checks.one_of('rl.grad_reduce_dtype', 'float32', 'bfloat16'),
  checks.one_of('rl.reference_dtype', 'float32', 'bfloat16'),
  checks.names('rl.offload', OFFLOADED),
  checks.one_of('rollout.engine', 'native', 'vllm'),
  checks.one_of('rollout.vllm.sync', 'shared_memory', 'folder', 'nccl'),
  checks.one_of('rollout.prompt_style', 'compact', 'full'),
  checks.one_of(
    'rl.estimator', 'gae', 'grpo', 'dr_grpo', 'rloo', 'reinforce_pp'
  ),
  checks.one_of('rl.weighting', 'none', 'duration', 'inclusion'),
  checks.one_of('rl.weight_mean', 'executed', 'batch'),
  checks.one_of('rl.rest', 'carry_over', 'cancel', 'wait'),
  checks.one_of('rl.on_stale', 'hold', 'drop', 'keep'),
  checks.one_of('rl.kl_kind', 'k1', 'k2', 'k3'),
  checks.one_of('rl.kl_in', 'loss', 'reward'),
  checks.one_of(
    'rl.aggregation',
    'token-mean',
    'seq-mean-token-sum',
    'seq-mean-token-mean',
  ),
  checks.one_of('rl.importance_level', 'none', 'token', 'sequence'),
  checks.one_of('rl.baseline', 'mean', 'optimal'),
  checks.one_of('rl.step_size', 'fixed', 'ess'),
  checks.names('eval.policies', summary.POLICIES),
  checks.texts('rollout.stop', 'Observation:'),
  checks.addresses('rollout.vllm.urls'),
  checks.texts('rollout.vllm.devices', '0,1'),
  checks.names('tasks.heldin'),
  checks.names('rl.tasks'),
  checks.whole('rl.states', least=0),
  checks.names('tasks.heldout'),
  checks.flag('dry_run'),
  checks.flag('sandbox.zygote'),
  checks.flag('model.scan_layers'),
  checks.flag('sft.deduplicate'),
  checks.flag('rl.shuffle_rewards'),
  checks.flag('rl.donate'),
  checks.flag('rl.entropy_metric'),
  checks.flag('rollout.batch_invariant'),
  checks.flag('rollout.vllm.enforce_eager'),
  checks.flag('solution.keep_failed'),
  checks.flag('reward.binary'),
  checks.flag('reward.format_term'),
  checks.flag('reward.corner_term'),
  checks.flag(_HF + 'tie_word_embeddings'),
  # Whole numbers.
  checks.whole('seed', 0, 2**31 - 1),
  checks.whole('sandbox.slots'),
  checks.whole('sandbox.threads'),
  checks.whole('sandbox.memory_mb', 0),
  checks.related(
    'sandbox.memory_mb',
    holds=lambda most: most == 0 or most >= 256,
    say='config.sandbox.memory_mb={0} is too little for scikit-learn, which alone '
    "takes about 150; give 256 or more, or 0 for each task's own limit.",
  ),
  checks.whole('collect.trajectories_per_task'),
  checks.whole('collect.max_steps', most=MAX_CALLS // 2),
  checks.whole('collect.idea_pool'),
  checks.whole('collect.ideas_kept'),
  checks.whole('writer.samples', 0),
  checks.related(
    'writer.samples',
    'writer.kind',
    holds=lambda samples, kind: not samples or kind == 'openai',
    say='config.writer.samples={0} is of a model behind an endpoint '
    '(config.writer.kind=openai); a trained policy has its table in summary.json.',
  ),
  checks.whole('search.runs'),
  checks.whole('search.steps'),
  checks.whole('search.drafts'),
  checks.whole('search.debug_depth'),
  checks.whole('solution.kept'),
  checks.whole('solution.programs', 0),
  checks.whole('solution.samples'),
  checks.whole('tokenizer.vocab_size', 259),  # all bytes and three specials
  checks.whole(_HF + 'hidden_size'),
  checks.whole(_HF + 'intermediate_size'),
  checks.whole(_HF + 'num_hidden_layers'),
  checks.whole(_HF + 'num_attention_heads'),
  checks.whole(_HF + 'num_key_value_heads'),
  checks.whole(_HF + 'max_position_embeddings'),
  checks.whole(_HF + 'vocab_size'),
  checks.whole(_HF + 'head_dim'),
  checks.whole('mesh.data'),
  checks.whole('mesh.fsdp'),
  checks.whole('mesh.tensor'),
  checks.whole('sft.epochs', least=0),
  checks.whole('sft.batch_size'),
  checks.whole('sft.warmup_steps', 0),
  checks.whole('sft.checkpoint_every'),
  checks.whole('rollout.top_k', 0),
  checks.whole('rollout.max_prompt_tokens'),
  checks.whole('rollout.max_new_tokens'),
  checks.whole('rollout.max_num_seqs', 0),
  checks.whole('rollout.vllm.servers'),
  checks.whole('rl.updates'),
  checks.whole('rl.batch_size'),
  checks.whole('rl.group_size'),
  checks.whole('rl.max_staleness', -1),
  checks.whole('rl.max_concurrent_rollouts', 0),
  checks.whole('rl.value_warmup_epochs', 0),
  checks.whole('rl.ppo_epochs'),
  checks.whole('rl.warmup_steps', 0),
  checks.whole('rl.kl_horizon'),
  checks.whole('rl.minibatches'),
  checks.whole('rl.micro_batch_tokens'),
  checks.whole('rl.chunk_rows'),
  checks.whole('rl.checkpoint_every'),
  checks.whole('rl.keep_checkpoints'),
  checks.whole('eval.trajectories_per_task'),
  checks.whole('eval.max_steps', most=MAX_CALLS // 2),
  checks.whole('episode.max_steps', most=MAX_CALLS // 2),
  checks.number('episode.time_limit_s', above=0),
  checks.whole('eval.k'),
  # Numbers.
  checks.number('sandbox.timeout_s', least=0),
  checks.number('sandbox.step_timeout_s', above=0),
  checks.number('instrumenter.timeout_s', above=0),
  checks.number('collect.time_limit_s', above=0),
  checks.number('eval.time_limit_s', above=0),
  checks.number('collect.varied_start', least=0, most=1),
  checks.number('env.carry_mb', least=0, most=512),
  checks.number('solution.improve', least=0, most=1),
  checks.number('search.debug_probability', least=0, most=1),
  checks.number(_HF + 'rms_norm_eps', above=0),
  checks.number(_HF + 'rope_theta', above=0),
  checks.number(_HF + 'initializer_range', above=0),
  checks.number('sft.lr', above=0),
  checks.number('rollout.temperature', above=0),
  checks.number('rollout.vllm.start_s', above=0),
  checks.number('rollout.vllm.gpu_memory_utilization', least=0, below=1),
  checks.number('rollout.vllm.max_gap_nats', least=0),
  checks.number('rollout.top_p', above=0, most=1),
  checks.number('rl.weight_cap', least=0),
  checks.number('rl.oversample', least=1),
  checks.number('rl.lease_s', above=0),
  checks.number('rl.watchdog_s', above=0),
  checks.number('rl.policy_lr', above=0),
  checks.number('rl.value_lr', above=0),
  checks.number('rl.clip_low', above=0, below=1),
  checks.number('rl.clip_high', above=0),
  checks.number('rl.value_clip', above=0),
  checks.number('rl.gamma', above=0, most=1),
  checks.number('rl.lam', least=0, most=1),
  checks.number('rl.kl_coef', least=0),
  checks.number('rl.entropy_coef', least=0),
  checks.number('rl.dual_clip', least=0),
  checks.number('rl.kl_target', least=0),
  checks.number('rl.weight_decay', least=0),
  checks.number('rl.max_grad_norm', above=0),
  checks.number('rl.importance_cap', above=0),
  # What belongs together.
  checks.related(
    'rl.reference_dtype',
    'rl.kl_coef',
    holds=lambda dtype, coefficient: dtype == 'float32' or coefficient > 0,
    say='config.rl.reference_dtype={0!r} is of the reference, which no run with '
    "config.rl.kl_coef={1} has; set it to 'float32'.",
  ),
  checks.related(
    'rl.offload',
    'rl.kl_coef',
    holds=lambda roles, coefficient: (
      'reference' not in roles or coefficient > 0
    ),
    say='config.rl.offload={0!r}: no run with config.rl.kl_coef={1} has a '
    'reference; leave it out.',
  ),
  checks.related(
    'rl.offload',
    'rl.estimator',
    holds=lambda roles, name: (
      name == 'gae' or not {'value', 'value_optimizer'} & set(roles)
    ),
    say='config.rl.offload={0!r}: config.rl.estimator={1!r} has no value model; '
    'leave it out.',
  ),
  checks.related(
    'rl.donate',
    'rl.rest',
    'rollout.engine',
    holds=lambda donate, rest, engine: (
      not donate or (rest == 'wait' and engine == 'native')
    ),
    say='config.rl.donate={0} writes the new policy over the old one, from which '
    'config.rl.rest={1!r} with config.rollout.engine={2!r} may still draw or be '
    "checked; set it to False, or take rest='wait' and engine='native'.",
  ),
  checks.related(
    'rl.weight_cap',
    holds=lambda cap: cap == 0 or cap >= 1,
    say='config.rl.weight_cap={0} is below the mean weight, 1; give 1 or '
    'more, or 0 for no cap.',
  ),
  checks.related(
    'rl.dual_clip',
    holds=lambda clip: clip == 0 or clip > 1,
    say='config.rl.dual_clip={0} bounds the loss at that many times a negative '
    'advantage; give more than 1, usually 3, or 0 for none.',
  ),
  checks.related(
    'rl.baseline',
    'rl.estimator',
    holds=lambda baseline, name: baseline == 'mean' or name in CENTRED,
    say='config.rl.baseline={0!r} is for the estimators that centre a whole '
    f'batch, {" and ".join(CENTRED)}; config.rl.estimator={{1!r}} has the '
    'baseline of its groups.',
  ),
  checks.related(
    'env.after_edit',
    'loop',
    holds=lambda after, loop: (
      after != 'nothing'
      or loop not in ('collect', 'sft', 'stepwise_ppo', 'episodewise_ppo')
    ),
    say='config.env.after_edit={0!r} gives an edit no score, so that each would be '
    'paid like a failure; config.loop={1!r} needs measure or execute.',
  ),
  checks.related(
    'env.help',
    'env.actions',
    holds=lambda who, actions: who == 'none' or 'Request Help' in actions,
    say="config.env.help={0!r} answers 'Request Help', an action that "
    'config.env.actions={1!r} does not offer; name there all that are offered, '
    'this one among them.',
  ),
  checks.related(
    'rl.states',
    'loop',
    holds=lambda states, loop: not states or loop != 'episodewise_ppo',
    say='config.rl.states={0} is of step-wise RL; whole trajectories '
    '(config.loop={1!r}) start from the starters. Set it to 0.',
  ),
  *(
    checks.related(
      key,
      'loop',
      holds=lambda value, loop: not value or loop != 'rl_for_mle',
      say=f'config.{key}={{0!r}} is not of config.loop={{1!r}}, which trains on '
      'config.tasks.heldin; leave it out.',
    )
    for key in ('rl.tasks', 'rl.states')
  ),
  checks.related(
    'rl.states',
    'rl.group_size',
    'rl.batch_size',
    holds=lambda states, group, batch: not states or states * group >= batch,
    say='config.rl.states={0} with config.rl.group_size={1} samples each do not fill '
    'config.rl.batch_size={2}; raise the first (0: all), or lower the last.',
  ),
  checks.related(
    'rl.baseline',
    'rl.weighting',
    'rl.importance_level',
    holds=lambda baseline, weights, ratios: (
      baseline == 'mean' or weights != 'none' or ratios != 'none'
    ),
    say='config.rl.baseline={0!r} is the mean itself where nothing is weighted '
    '(config.rl.weighting={1!r}, config.rl.importance_level={2!r}); set it to '
    "'mean', or weight.",
  ),
  checks.related(
    'rl.dual_clip',
    'rl.ppo_epochs',
    'rl.minibatches',
    holds=lambda clip, epochs, parts: not clip or epochs > 1 or parts > 1,
    say='config.rl.dual_clip={0} never binds in the first step after a batch was '
    'drawn, and config.rl.ppo_epochs={1} with config.rl.minibatches={2} takes no '
    'other; raise one of them, or set it to 0.',
  ),
  checks.related(
    'rl.on_stale',
    'rl.max_staleness',
    holds=lambda late, bound: late == 'keep' or bound >= 0,
    say='config.rl.on_stale={0!r} is for samples beyond a bound, and '
    "config.rl.max_staleness={1} is none; set a bound of 0 or more, or 'keep'.",
  ),
  checks.related(
    'rollout.temperature',
    'rollout.engine',
    holds=lambda heat, engine: engine != 'vllm' or heat >= 0.01,
    say='config.rollout.temperature={0}: config.rollout.engine={1!r} samples at 0.01 '
    'where less is asked, and gives the log-probs of that; give 0.01 or more, or '
    'engine=native.',
  ),
  checks.related(
    'rl.kl_kind',
    'rl.kl_in',
    'rl.kl_coef',
    holds=lambda kind, place, coefficient: (
      not coefficient or kind in kl.USEFUL[place]
    ),
    say='config.rl.kl_kind={0!r} with config.rl.kl_in={1!r} does not pull towards the '
    "reference: its expected gradient is no KL divergence's. In the loss take k2 "
    '(that of KL(policy || reference)) or k3 (that of KL(reference || policy)), in '
    'the reward k1; or set config.rl.kl_coef={2} to 0.',
  ),
  checks.related(
    'rl.kl_target',
    'rl.kl_coef',
    holds=lambda target, coefficient: not target or coefficient,
    say='config.rl.kl_target={0} is what config.rl.kl_coef={1} is multiplied towards; '
    'give the latter a start above 0, or set the target to 0.',
  ),
  checks.related(
    'rl.gamma',
    'loop',
    holds=lambda gamma, loop: gamma == 1 or loop != 'episodewise_ppo',
    say='config.rl.gamma={0} discounts by token, and the turns of a trajectory are '
    'rows of their own in config.loop={1!r}, between which nothing is discounted; '
    'set it to 1.',
  ),
  *(
    checks.related(
      key,
      'rl.estimator',
      holds=lambda value, name, needs=needs: value == 1 or name in needs,
      say=f'config.{key}={{0}} is not read by config.rl.estimator={{1!r}}, but by '
      f'{" and ".join(needs)}; set it to 1.',
    )
    for key, needs in (
      ('rl.gamma', ('gae', 'reinforce_pp')),
      ('rl.lam', ('gae',)),
    )
  ),
  checks.related(
    'rollout.batch_invariant',
    'rollout.engine',
    holds=lambda same, engine: not same or engine == 'native',
    say='config.rollout.batch_invariant={0} is of the native engine; vLLM has its own '
    "(VLLM_BATCH_INVARIANT). Set it to False, or config.rollout.engine='native'.",
  ),
  checks.related(
    'reward.corner_term',
    'reward.format_term',
    holds=lambda corner, form: corner or form,
    say='config.reward.corner_term={0} pays a corner case like an error, and '
    'config.reward.format_term={1} pays an error like a corner case: together the '
    'first changes nothing. Leave out one of them.',
  ),
  *(
    checks.related(
      f'reward.{key}',
      'loop',
      holds=lambda value, loop, usual=usual: (
        value == usual or loop not in ('rl_for_mle', 'tree_search', 'agent')
      ),
      say=f'config.reward.{key}={{0}} is of equation 6, which config.loop={{1!r}} '
      'does not train on; leave it out.',
    )
    for key, usual in (
      ('binary', False),
      ('format_term', True),
      ('corner_term', True),
    )
  ),
  checks.related(
    'rl.batch_size',
    'rl.minibatches',
    holds=lambda batch, parts: batch % parts == 0,
    say='config.rl.batch_size={0} does not divide by '
    'config.rl.minibatches={1}; change one of them.',
  ),
  checks.related(
    'rl.batch_size',
    'rl.group_size',
    holds=lambda batch, group: batch % group == 0,
    say='config.rl.batch_size={0} does not divide by '
    'config.rl.group_size={1}; change one of them.',
  ),
  checks.related(
    'rl.estimator',
    'rl.group_size',
    holds=lambda name, group: (
      name not in ('grpo', 'dr_grpo', 'rloo') or group >= 2
    ),
    say='config.rl.estimator={0!r} compares samples of one prompt: '
    'config.rl.group_size={1} must be at least 2.',
  ),
  checks.related(
    'sandbox.threads',
    'sandbox.zygote',
    holds=lambda threads, zygote: threads == 1 or not zygote,
    say='config.sandbox.threads={0}: jobs of the zygote have one thread; set '
    'config.sandbox.zygote=False.',
  ),
  checks.related(
    'sandbox.timeout_s',
    'sandbox.step_timeout_s',
    holds=lambda execution, step: execution < step,
    say='config.sandbox.timeout_s={0} must be below '
    f'config.sandbox.step_timeout_s={{1}}: {_NEST}.',
  ),
  checks.related(
    'sandbox.step_timeout_s',
    'rl.watchdog_s',
    'loop',
    holds=lambda step, watchdog, loop: step < watchdog or loop not in RL_LOOPS,
    say='config.sandbox.step_timeout_s={0} must be below '
    f'config.rl.watchdog_s={{1}}: {_NEST}.',
  ),
  checks.related(
    'sandbox.step_timeout_s',
    'rl.lease_s',
    'loop',
    holds=lambda step, lease, loop: step < lease or loop not in RL_LOOPS,
    say='config.sandbox.step_timeout_s={0} must be below '
    f'config.rl.lease_s={{1}}: {_NEST}.',
  ),
  checks.related(
    'instrumenter.timeout_s',
    'rl.watchdog_s',
    'instrumenter.kind',
    holds=lambda answer, watchdog, kind: (
      kind != 'openai' or 5 * answer < watchdog
    ),
    say='config.instrumenter.timeout_s={0}: two tries, two more of a cut answer and the '
    'waits between them must end well before config.rl.watchdog_s={1}; lower the first or raise the second.',
  ),
  checks.related(
    'rl.lease_s',
    'rl.watchdog_s',
    holds=lambda lease, watchdog: lease < watchdog,
    say='config.rl.lease_s={0} must be below '
    f'config.rl.watchdog_s={{1}}: {_NEST}.',
  ),
  checks.related(
    'collect.time_limit_s',
    'sandbox.timeout_s',
    holds=lambda whole, one: whole >= one,
    say='config.collect.time_limit_s={0} of a trajectory must be at least '
    'config.sandbox.timeout_s={1} of one execution; raise the first or lower '
    'the second.',
  ),
  checks.related(
    'collect.ideas_kept',
    'collect.idea_pool',
    holds=lambda kept, pool: kept <= pool,
    say='config.collect.ideas_kept={0} are more than '
    'config.collect.idea_pool={1}, from which they are chosen; lower the '
    'first.',
  ),
  checks.related(
    'eval.k',
    'eval.trajectories_per_task',
    holds=lambda k, runs: k <= runs,
    say='config.eval.k={0} needs as many runs of a task, but '
    'config.eval.trajectories_per_task={1}; lower k or raise the runs.',
  ),
  checks.related(
    'eval.k',
    'solution.samples',
    holds=lambda k, samples: k <= samples,
    say='config.eval.k={0} needs as many solutions of a task, but '
    'config.solution.samples={1}; lower k or raise the samples.',
  ),
  checks.related(
    'solution.programs',
    'model.path',
    'sft.conversations',
    'loop',
    holds=lambda programs, path, file, loop: (
      programs or path or file or loop != 'rl_for_mle'
    ),
    say='config.solution.programs={0} leaves nothing to learn programs from, and '
    'config.model.path={1!r} names no model that can write them; give one of '
    'the two, or config.sft.conversations.',
    stage='run',  # the paper's variant is planned without weights
  ),
  checks.related(
    'sft.conversations',
    'sft.epochs',
    holds=lambda file, epochs: epochs or not file,
    say='config.sft.conversations={0!r} is not read with config.sft.epochs={1}; '
    "raise it, or set the file to ''.",
  ),
  checks.related(
    'sft.epochs',
    'model.path',
    'loop',
    holds=lambda epochs, path, loop: (
      epochs or path or loop != 'sft'
    ),  # RL from the model as it is: paper 000, figure 5
    say='config.sft.epochs={0} leaves the model as it is, and '
    'config.model.path={1!r} names none that has learned anything; give one of '
    'the two.',
    stage='run',
  ),
  checks.related(
    'solution.programs',
    'sft.conversations',
    'loop',
    holds=lambda programs, file, loop: (
      not (programs and file) or loop not in ('rl_for_mle', 'tree_search')
    ),
    say='config.solution.programs={0} writes programs to learn from, and '
    'config.sft.conversations={1!r} is learned from instead; set one of the '
    "two to 0 or ''.",
  ),
  checks.related(
    'sft.conversations',
    holds=lambda file: (
      isinstance(file, str) and (not file or pathlib.Path(file).is_file())
    ),
    say='config.sft.conversations={0!r} is no file here; give a ShareGPT file '
    "(.json or .jsonl), or ''.",
    stage='run',
  ),
  checks.related(
    'rollout.top_p',
    'rollout.top_k',
    holds=lambda p, k: p == 1 and k == 0,
    say='config.rollout.top_p={0}, top_k={1}: truncated sampling changes the '
    'log-probs that training divides by; set top_p=1 and top_k=0.',
  ),
  checks.related(
    *_vllm('devices', 'servers'),
    holds=lambda devices, servers: len(devices) in (0, servers),
    say='config.rollout.vllm.devices={0!r} names GPUs for each server, but '
    'config.rollout.vllm.servers={1}.',
  ),
  checks.related(
    *_vllm('sync', 'devices', 'urls'),
    holds=lambda sync, devices, urls: sync != 'nccl' or devices or urls,
    say='config.rollout.vllm.sync={0!r} needs GPUs that the trainer does not use: '
    'name them in config.rollout.vllm.devices, or give servers in '
    'config.rollout.vllm.urls.',
  ),
  checks.related(
    'rollout.vllm.shared_dir',
    holds=lambda path: isinstance(path, str),
    say="config.rollout.vllm.shared_dir={0!r} must be a folder, or ''.",
  ),
  checks.Rule(
    (
      'rollout.max_prompt_tokens',
      'rollout.max_new_tokens',
      _HF + 'max_position_embeddings',
    ),
    checks.positions,
  ),
  checks.related(
    'work_dir',
    holds=lambda path: str(path).strip(),
    say='config.work_dir={0!r} is empty; say where results go with --work_dir.',
  ),
  checks.Rule((_HF + 'model_type',), checks.model_shape),
  checks.Rule(('mesh.fsdp', 'mesh.tensor'), checks.mesh_fits_model),
  *endpoints.rules(),
  templates.RULE,
  # What this machine and this version have.
  checks.Rule(('sandbox.backend',), checks.backend_is_installed, 'run'),
  checks.Rule(
    ('rollout.engine', *_vllm('urls', 'python', 'sync')),
    engines.complaint,
    'run',
  ),
  checks.folder('tokenizer.path', *readings.ENTRY_FILES),
  checks.folder('model.path', 'config.json'),
  checks.folder('rl.critic_path', 'config.json'),
  checks.Rule(('rl.critic_path',), checks.critic_fits, 'run'),
  checks.Rule(('tasks_dir',), checks.tasks_dir),
  checks.Rule(
    ('tasks.heldin', 'tasks.heldout', 'rl.tasks'), checks.chosen_tasks
  ),
  checks.Rule(('rollout.max_prompt_tokens',), checks.prompt_room),
  checks.Rule(
    ('tokenizer.path', 'model.path', 'rollout.max_prompt_tokens'),
    checks.tokenizer_fits,
    'run',
  ),
  checks.Rule(
    ('mesh.data', 'mesh.fsdp', 'mesh.tensor'),
    checks.mesh_fits_devices,
    'devices',
  ),
  checks.Rule(('rl.offload',), checks.offload_fits_devices, 'devices'),
  checks.Rule(
    ('rollout.engine', *_vllm('sync')), engines.nccl_complaint, 'devices'
  ),
  checks.weights_fit('model.path'),
  checks.weights_fit('rl.critic_path'),
)
