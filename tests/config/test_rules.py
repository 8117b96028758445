"""Every refusal of a config happens once: of an option, a section, or a rule."""

import json
import pathlib
import re
import shutil
import sys

import jax
import pytest

from configs import common, stepwise_ppo
from jaxagent import algorithms
from jaxagent.config import (
  checks,
  endpoints,
  engine_checks,
  model_checks,
  recipe,
  rules,
  sections,
  settings,
)
from jaxagent.envs import agents, parser, solution_env, step_env
from jaxagent.envs.specs import descriptions, task_yaml2
from jaxagent.errors import UserError
from jaxagent.models import attention
from jaxagent.models import config as model_config
from jaxagent.models.options import HfOptions
from jaxagent.recipes import one_turn
from jaxagent.records import StepRecord
from jaxagent.rewards import mle
from jaxagent.rollout import records
from jaxagent.sandbox import pool
from jaxagent.testing import fake_vllm, small_hf

ROOT = pathlib.Path(__file__).parents[2]
HF = 'model.hf.'


class WithoutValidation(one_turn.OneTurn):
  """Trains on nothing."""

  name, record_type = 'without', StepRecord

  def problems(self, tasks):
    return {}

  def carry_out(self, problem, response, job_id):
    raise NotImplementedError


class WithValidation(WithoutValidation):
  """The same with prompts."""

  def validation_problems(self, tasks):
    return {task: one_turn.Problem(task, task) for task in tasks}


def _config(changes=(), variant='tiny'):
  config = stepwise_ppo.get_config(variant).unlock()
  config.tasks_dir = str(ROOT / 'tasks')
  with config.ignore_type():
    for path, value in dict(changes).items():
      *parents, last = path.split('.')
      node = config
      for name in parents:
        node = node[name]
      node[last] = value
  return config


def _refusal(changes, dry_run=False) -> str:
  with pytest.raises(UserError) as error:
    settings.validate(_config({'dry_run': dry_run, **changes}))
  text = str(error.value)
  assert '\n' not in text and text.endswith(('.', "''."))
  return text


def test_a_config_holds_the_options_of_all_sections():
  names = {name for name, _ in checks.leaves(common.base())}
  options = dict(sections.all_options())
  assert set(options) - names == {HF + 'vocab_size', HF + 'head_dim'}
  assert not names - set(options)
  assert all(key in options for rule in rules.RULES for key in rule.keys)


CHOICES = {
  'writer.kind': 'policy, openai',
  'instrumenter.kind': ', '.join(solution_env.INSTRUMENTERS),
  'solution.scale': ', '.join(mle.SCALES),
  'sandbox.backend': 'docker',
  'sandbox.min_tier': 'T3, T2, T1, T0',
  'sandbox.reuse': 'off, recent',
  'expert.kind': 'scripted, openai',
  'editor.kind': 'scripted, openai, expert',
  'tasks.data': ', '.join(task_yaml2.VARIANTS),
  'tasks.description': ', '.join(descriptions.KINDS),
  'agent': ', '.join(agents.AGENTS),
  'reader.kind': 'scripted, openai, expert, editor',
  'env.dialect': ', '.join(step_env.DIALECTS),
  'env.after_edit': ', '.join(step_env.AFTER_EDIT),
  'env.on_failure': ', '.join(step_env.ON_FAILURE),
  'env.parse_mode': ', '.join(parser.MODES),
  'env.help': 'none, person',
  'model.dtype': ', '.join(model_config.DTYPES),
  'model.remat': ', '.join(model_config.REMAT),
  'model.attention': ', '.join(attention.KERNELS),
  'sft.schedule': 'cosine, constant',
  'sft.steps': 'ran, improved',
  'embeddings.kind': 'tfidf, openai',
  'rollout.engine': 'native, vllm',
  'rollout.vllm.adapters': 'served, merged',
  'rollout.vllm.sync': 'shared_memory, folder, nccl',
  'rollout.prompt_style': 'compact, full',
  'rl.weighting': 'none, duration, inclusion',
  'rl.rest': ', '.join(records.RESTS),
  'rl.on_stale': ', '.join(records.ON_STALE),
  'rl.estimator': 'gae, reinforce_pp, grpo, dr_grpo, rloo, best_of, max_rl, entropic',
  'rl.kl_kind': 'k1, k2, k3',
  'rl.kl_in': 'loss, reward',
  'rl.aggregation': 'token-mean, seq-mean-token-sum, seq-mean-token-mean',
  'rl.importance_level': ', '.join(algorithms.IMPORTANCE_LEVELS),
  'rl.baseline': 'mean, optimal, weighted',
  'rl.groups': 'drawn, prompt',
  'solution.parents': 'uniform, ranked',
  'search.parents': 'best, ranked',
  'rl.step_size': 'fixed, ess',
  'rl.schedule': 'cosine, constant',
  'rl.weight_mean': 'executed, batch',
  'rl.grad_reduce_dtype': ', '.join(model_config.DTYPES),
  'rl.row_layout': 'auto, flat, packed',
  'rl.product_dtype': 'float32, bfloat16, auto',
  'rl.reference_dtype': ', '.join(model_config.DTYPES),
}


# Of a recipe, which may be a user's own.
OPEN_CHOICES = {
  'recipe': ', '.join(recipe.REGISTRY),
  'stage': 'all, collect, sft, evaluate',
}


def test_every_choice_is_here():
  """But for the classes of vector units, which test_cpu_levels.py has."""
  found = {
    key
    for key, made in sections.all_options()
    if made.kind is str and made.choices
  }
  assert found == set(CHOICES) | {'sandbox.cpu_level'}


@pytest.mark.parametrize('path', sorted(CHOICES | OPEN_CHOICES))
def test_unknown_choice_is_named_with_the_choices(path):
  """The choices are those of the rooms that act on them."""
  text = _refusal({path: 'nonsense'}, dry_run=True)
  assert f"config.{path}='nonsense'" in text
  assert (CHOICES | OPEN_CHOICES)[path] in text


def test_cudnn_needs_bfloat16():
  text = _refusal({'model.attention': 'cudnn'}, dry_run=True)
  assert "needs config.model.dtype='bfloat16', not 'float32'" in text
  assert "config.model.attention='auto'" in text


def _paths(kind):
  rows = checks.leaves(_config())
  return sorted(n for n, v in rows if type(v) is kind)


LEAST = {
  'rollout.vllm.max_loras': 0,
  'rl.value_warmup_epochs': 0,
  'solution.programs': 0,
  'seed': 0,
  'sandbox.memory_mb': 0,
  'writer.samples': 0,
  'tokenizer.vocab_size': 259,
  'sft.warmup_steps': 0,
  'rl.warmup_steps': 0,
  'rl.max_staleness': -1,
  'rl.states': 0,
  'rl.validate_every': 0,
  'sft.epochs': 0,
  'rollout.max_num_seqs': 0,
  'rl.max_concurrent_rollouts': 0,
  'model.lora.rank': 0,
  'rl.best_of': 2,
  'rl.window': 0,
}


@pytest.mark.parametrize('path', _paths(int))
def test_whole_numbers(path):
  least = LEAST.get(path, 1)
  for bad in (least - 1, least + 0.5, True, None, '3'):
    text = _refusal({path: bad}, dry_run=True)
    assert f'config.{path}={bad!r}' in text and f'{least}' in text
    assert f'--config.{path}=N' in text


# Path -> values just outside, and the words for what is inside.
NUMBERS = {
  'sandbox.timeout_s': ((-1,), 'at least 0'),
  'sandbox.step_timeout_s': ((0, -1), 'above 0'),
  'solution.failure': ((0, 1), 'below 0'),
  'instrumenter.timeout_s': ((0, -1), 'above 0'),
  **{
    f'{role}.temperature': ((-0.1, -1), 'at least 0')
    for role in endpoints.WRITERS
  },
  'collect.time_limit_s': ((0, -1), 'above 0'),
  'eval.time_limit_s': ((0, -1), 'above 0'),
  'episode.time_limit_s': ((0, -1), 'above 0'),
  'eval.hours': ((-1,), 'at least 0'),
  'search.seconds': ((-1,), 'at least 0'),
  'search.debug_probability': ((-0.1, 1.1), 'at least 0 and at most 1'),
  'env.carry_mb': ((-1, 513), 'at least 0 and at most 512'),
  'solution.improve': ((-0.1, 1.1), 'at least 0 and at most 1'),
  'collect.varied_start': ((-0.1, 1.1), 'at least 0 and at most 1'),
  'model.lora.alpha': ((0, -1), 'above 0'),
  'model.hf.rms_norm_eps': ((0, -1), 'above 0'),
  'model.hf.rope_theta': ((0, -1), 'above 0'),
  'model.hf.initializer_range': ((0, -1), 'above 0'),
  'sft.lr': ((0, -1), 'above 0'),
  'rollout.temperature': ((0, -1), 'above 0'),
  'rollout.vllm.start_s': ((0, -1), 'above 0'),
  'rollout.vllm.gpu_memory_utilization': ((-0.1, 1), 'at least 0 and below 1'),
  'rollout.vllm.max_gap_nats': ((-1,), 'at least 0'),
  'rl.weight_cap': ((-1,), 'at least 0'),
  'rl.oversample': ((0.99, 0), 'at least 1'),
  'rl.lease_s': ((0, -1), 'above 0'),
  'rl.watchdog_s': ((0, -1), 'above 0'),
  'rl.policy_lr': ((0, -1), 'above 0'),
  'rl.value_lr': ((0, -1), 'above 0'),
  'rl.clip_low': ((0, 1, -0.1, 2), 'above 0 and below 1'),
  'rl.clip_high': ((0, -1), 'above 0'),
  'rl.value_clip': ((0, -1), 'above 0'),
  'rl.gamma': ((0, 1.01), 'above 0 and at most 1'),
  'rl.lam': ((-0.01, 1.01), 'at least 0 and at most 1'),
  'rl.kl_coef': ((-1,), 'at least 0'),
  'rl.entropy_coef': ((-1,), 'at least 0'),
  'rl.dual_clip': ((-1,), 'at least 0'),
  'rl.ties': ((-0.1,), 'at least 0'),
  'rl.kl_target': ((-1,), 'at least 0'),
  'rl.weight_decay': ((-1,), 'at least 0'),
  'rl.max_grad_norm': ((0, -1), 'above 0'),
  'rl.importance_cap': ((0, -1), 'above 0'),
}


def test_numbers_are_all_here():
  assert sorted(NUMBERS) == _paths(float)


@pytest.mark.parametrize('path', sorted(NUMBERS))
def test_numbers(path):
  outside, words = NUMBERS[path]
  for bad in (*map(float, outside), '3', None):
    text = _refusal({path: bad}, dry_run=True)
    assert f'config.{path}={bad!r}' in text and words in text
  for bad in (float('nan'), float('inf'), -float('inf')):
    text = _refusal({path: bad}, dry_run=True)
    assert f'config.{path}={bad!r} must be finite' in text


@pytest.mark.parametrize('path', _paths(bool))
def test_flags(path):
  text = _refusal({path: 1} if path != 'dry_run' else {}, 1)
  assert 'must be True or False' in text


PAIRS = [
  (
    {'rollout.vllm.devices': ('0', '1')},
    "devices=.'0', '1'. names GPUs for each server, but .*servers=1",
  ),
  ({'rollout.vllm.shared_dir': 3}, 'shared_dir=3 must be a folder'),
  (
    {'rollout.vllm.sync': 'nccl'},
    "sync='nccl' needs GPUs that the trainer does not use: name them in .*devices",
  ),
  *(
    ({'rollout.vllm.urls': given}, 'urls=.* must be a tuple of addresses')
    for given in ('http://a:1', ('a:1',), (3,), ('',))
  ),
  ({'rl.weight_cap': 0.5}, 'weight_cap=0.5 is below the mean weight'),
  ({'rl.dual_clip': 1.0}, 'dual_clip=1.0 .*more than 1, usually 3, or 0'),
  (
    {
      'rl.baseline': 'optimal',
      'rl.estimator': 'rloo',
      'rl.group_size': 4,
    },
    "baseline='optimal' .*gae, reinforce_pp; .*estimator='rloo'",
  ),
  (
    {'rl.baseline': 'weighted'},
    "baseline='weighted' .*centre a group, .*estimator='gae'",
  ),
  (
    {
      'rl.baseline': 'weighted',
      'rl.estimator': 'rloo',
      'rl.group_size': 4,
      'rl.weighting': 'none',
    },
    "baseline='weighted' is the mean itself where nothing is weighted",
  ),
  (
    {'rl.keep_best': True},
    'keep_best=True needs the rewards of validations.*validate_every=0',
  ),
  (
    {
      'rl.validate_every': 10,
      'recipe': 'tests.config.test_rules:WithoutValidation',
    },
    'validate_every=10 needs validation prompts, .*WithoutValidation.* has none',
  ),
  ({'rl.minibatches': 5}, 'batch_size=32 does not divide by .*minibatches=5'),
  ({'rl.group_size': 5}, 'batch_size=32 does not divide by .*group_size=5'),
  ({'rl.estimator': 'grpo'}, 'group_size=1 must be at least 2'),
  ({'rl.estimator': 'dr_grpo'}, 'group_size=1 must be at least 2'),
  ({'rl.estimator': 'rloo'}, 'group_size=1 must be at least 2'),
  ({'rl.estimator': 'entropic'}, 'group_size=1 must be at least 2'),
  (
    {'rl.estimator': 'best_of', 'rl.group_size': 8},
    "best_of=8 of .*estimator='best_of' must be below .*group_size=8",
  ),
  (
    {'recipe': 'solutions', 'sandbox.recorded': 'executions.sqlite'},
    "recorded='executions.sqlite' .*instrumenter.kind='syntax' puts a new secret",
  ),
  (
    {'recipe': 'solutions', 'sandbox.reuse': 'recent'},
    "reuse='recent' .*instrumenter.kind='syntax' puts a new secret",
  ),
  (
    {'sandbox.recorded': 'executions.sqlite', 'sandbox.reuse': 'recent'},
    "recorded='executions.sqlite' answers equal .*reuse='recent' to 'off'",
  ),
  ({'rl.ties': 0.1}, "ties=0.1 .*rank scores, .*estimator='gae'.*to 0"),
  ({'rl.groups': 'prompt'}, "groups='prompt' .*estimator='gae' has none"),
  (
    {'rl.window': 64, 'rl.estimator': 'reinforce_pp'},
    "window=64 .*rank scores, .*and for gae; .*estimator='reinforce_pp' has no use",
  ),
  ({'rl.window': 8}, 'window=8 must be above .*best_of=8'),
  (
    {'rl.window': 64, 'rl.value_warmup_epochs': 2},
    "window=64 with .*estimator='gae' pays .*value_warmup_epochs=2 warms it",
  ),
  (
    {'rl.window': 64, 'recipe': 'solutions'},
    "estimator='gae' with config.rl.window=64 needs failures on the task's scale",
  ),
  (
    {'rl.estimator': 'best_of', 'rl.window': 8},
    'window=8 must be above .*best_of=8',
  ),
  (
    {'rl.estimator': 'best_of', 'rl.window': 64, 'rl.best_of': 32},
    'best_of=32 of .* must be below .*batch_size=32.*window=64',
  ),
  (
    {'rl.estimator': 'entropic', 'rl.window': 64, 'rl.groups': 'prompt'},
    "window=64 compares all .*groups='prompt'",
  ),
  ({'rl.window': 2000}, 'window=2000 must be'),
  (
    {
      'rl.estimator': 'best_of',
      'rl.groups': 'prompt',
      'rl.best_of': 32,
    },
    'best_of=32 of .* must be below .*batch_size=32',
  ),
  ({'rl.best_of': 1}, 'best_of=1 must be at least 2|best_of=1'),
  (
    {
      'rl.estimator': 'best_of',
      'rl.group_size': 16,
      'rl.kl_in': 'reward',
      'rl.kl_kind': 'k1',
    },
    "'best_of' ranks scores, which .*kl_in='reward'",
  ),
  ({'solution.failure': 0.0}, 'failure=0'),
  (
    {'sandbox.timeout_s': 60.0},
    'timeout_s=60.0 must be below .*deadlines nest',
  ),
  (
    {'rl.watchdog_s': 60.0, 'rl.lease_s': 50.0},
    'step_timeout_s=60.0 must be below .*watchdog_s',
  ),
  ({'rl.watchdog_s': 150.0}, 'lease_s=150.0 must be below .*watchdog_s=150.0'),
  ({'rl.lease_s': 60.0}, 'step_timeout_s=60.0 must be below .*lease_s=60.0'),
  ({'collect.time_limit_s': 2.9}, 'time_limit_s=2.9 .*timeout_s=3.0'),
  ({'eval.hours': 0.4}, 'hours=0.4 .*less than .*time_limit_s=1800'),
  (
    {'rl.product_dtype': 'bfloat16', 'model.dtype': 'bfloat16'},
    "product_dtype='bfloat16' .*model.dtype='bfloat16'.*Choose auto",
  ),
  (
    {'instrumenter.kind': 'openai', 'instrumenter.timeout_s': 100.0},
    'timeout_s=100.0: two tries, .*watchdog_s=300.0',
  ),
  ({'collect.ideas_kept': 101}, 'ideas_kept=101 are more than .*idea_pool=100'),
  ({'writer.samples': 5}, 'writer.samples=5 is for a model behind an endpoint'),
  (
    {'sandbox.memory_mb': 255},
    'memory_mb=255 is too little .* 0 for each task',
  ),
  (
    {'env.help': 'person'},
    r"help='person' answers 'Request Help'.*actions=\(\)",
  ),
  (
    {'env.after_edit': 'nothing'},
    "after_edit='nothing' gives an edit no score",
  ),
  (
    {'rl.states': 40, 'recipe': 'episodewise'},
    'rl.states=40 is for step-wise RL',
  ),
  (
    {'rl.states': 40, 'recipe': 'solutions'},
    "rl.states=40 is not for config.recipe='solutions'",
  ),
  (
    {
      'rl.tasks': ('digits',),
      'recipe': 'solutions',
      'tasks.heldin': ('digits',),
    },
    "rl.tasks=.* is not for config.recipe='solutions'",
  ),
  (
    {'rl.gamma': 0.9, 'recipe': 'episodewise'},
    'gamma=0.9 discounts the tokens of a row',
  ),
  (
    {'rl.estimator': 'rloo', 'rl.group_size': 2, 'rl.gamma': 0.9},
    "gamma=0.9 is not read by .*'rloo', but by gae and reinforce_pp",
  ),
  ({'rl.estimator': 'reinforce_pp', 'rl.lam': 0.9}, 'lam=0.9 is not read by'),
  (
    {'rollout.engine': 'vllm', 'rollout.batch_invariant': True},
    'batch_invariant=True is for the native engine',
  ),
  *(
    (
      {'rl.kl_kind': kind, 'rl.kl_in': place, 'rl.kl_coef': 0.1},
      f"kl_kind='{kind}' with .*kl_in='{place}' does not pull .*kl_coef=0.1 to 0",
    )
    for kind, place in (('k1', 'loss'), ('k2', 'reward'), ('k3', 'reward'))
  ),
  (
    {
      'rl.baseline': 'optimal',
      'rl.weighting': 'none',
      'rl.importance_level': 'none',
    },
    "baseline='optimal' is the mean itself where nothing is weighted",
  ),
  (
    {'rl.dual_clip': 3.0, 'rl.ppo_epochs': 1},
    'dual_clip=3.0 has no effect in the first step .*ppo_epochs=1',
  ),
  (
    {'rl.on_stale': 'drop', 'rl.max_staleness': -1},
    "on_stale='drop' is for samples beyond a bound, .*max_staleness=-1 is none",
  ),
  (
    {'rollout.engine': 'vllm', 'rollout.temperature': 0.005},
    "temperature=0.005: .*engine='vllm' raises anything lower to 0.01",
  ),
  ({'rl.states': 31}, 'rl.states=31 with .*group_size=1 .*batch_size=32'),
  ({'rl.kl_target': 0.1, 'rl.kl_coef': 0.0}, 'kl_target=0.1 .*kl_coef=0.0'),
  (
    {'reward.corner_term': False, 'reward.format_term': False},
    'corner_term=False gives a corner case the reward of an error',
  ),
  *(
    (
      {f'reward.{key}': value, 'recipe': 'solutions'},
      f'reward.{key}={value} is for',
    )
    for key, value in (
      ('binary', True),
      ('format_term', False),
      ('corner_term', False),
    )
  ),
  ({'collect.max_steps': 501}, 'from 1 to 500'),
  ({'eval.max_steps': 501}, 'from 1 to 500'),
  ({'sandbox.threads': 2}, 'threads=2: .*set config.sandbox.zygote=False'),
  *(
    ({'sandbox.backend': 'ray', 'sandbox.ray_address': address}, text)
    for address, text in (
      ('head', "ray_address='head' must be HOST:PORT"),
      ('ray://head:6379', 'must be HOST:PORT'),
      ('head:6379\n', 'must be HOST:PORT'),
      ('head:70000', 'must be HOST:PORT'),
      (6379, 'ray_address=6379 must be HOST:PORT'),
    )
  ),
  ({'sandbox.ray_address': 'auto'}, "for .*backend='ray', not 'local'"),
  ({'eval.k': 1000}, 'eval.k=1000 .*trajectories_per_task='),
  *(
    ({'solution.operators': shares, 'recipe': 'solutions'}, f'operators.*{why}')
    for shares, why in (
      ({'mutate': 1}, "'mutate' is no operator; choose from: draft, improve, "),
      (
        {'debug': -1},
        "share of 'debug' is -1, .*; give --config.solution.oper",
      ),
      ({'draft': float('nan')}, "share of 'draft' is nan"),
      ({'draft': 0}, 'no share above 0'),
      ("{'draft': 0}", 'no share above 0'),
      ('draft', 'neither JSON nor a Python literal; give a dictionary such as'),
    )
  ),
  (
    {'solution.operators': {'draft': 1}, 'solution.improve': 0.2},
    'solution.improve=0.2 is the older form of config.solution.operators',
  ),
  (
    {'solution.samples': 4, 'recipe': 'solutions'},
    'eval.k=8 .*solution.samples=4',
  ),
  (
    {'instrumenter.kind': 'openai', 'instrumenter.base_url': 'ftp://x'},
    "instrumenter.base_url='ftp://x'",
  ),
  ({'rollout.top_p': 0.9}, 'top_p=0.9.* truncated sampling'),
  ({'rollout.top_k': 5}, 'top_k=5.* truncated sampling'),
  ({'rollout.stop': 'END'}, "stop='END' must be a tuple of texts"),
  ({'rollout.stop': ('END', '')}, 'none empty'),
  ({'rollout.stop': (3,)}, 'must be a tuple of texts'),
  ({'rollout.max_prompt_tokens': 4000}, '4000 .*max_position_embeddings=1024'),
  ({'work_dir': ' '}, "work_dir=' ' is empty"),
  ({'compile_cache': ''}, "compile_cache='' is empty; give 'auto'"),
  (
    {'rl.offload': ('policy',)},
    "'policy' .*choose from: reference, value, policy_opt",
  ),
  ({'rl.offload': ('value', 'value')}, "'value' is there twice"),
  ({'rl.offload': 'value'}, "offload='value' must be a tuple"),
  (
    {'rl.offload': ('reference',), 'rl.kl_coef': 0.0},
    r'offload=.*kl_coef=0.0 has a reference; leave it out',
  ),
  (
    {
      'rl.offload': ('value_optimizer',),
      'rl.estimator': 'rloo',
      'rl.group_size': 2,
    },
    "offload=.*estimator='rloo' has no value model",
  ),
  (
    {'rl.reference_dtype': 'bfloat16', 'rl.kl_coef': 0.0},
    "reference_dtype='bfloat16' is for the reference.*'float32'",
  ),
  ({'rl.donate': True}, "donate=True .*rest='carry_over'.*engine='native'"),
  (
    {'rl.donate': True, 'rl.rest': 'wait', 'rollout.engine': 'vllm'},
    "donate=True .*engine='vllm'",
  ),
  (
    {'model.lora.rank': 8, 'model.lora.targets': ()},
    r'lora.targets=\(\) has no kernel .*rank=8; name one of: q, k',
  ),
  ({'model.lora.targets': ('lm_head',)}, "'lm_head' .*choose from: q, k, v"),
  (
    {'model.lora.rank': 8, 'model.lora.stages': ('sft',)},
    r"stages=\('sft',\) has no 'rl'.* not implemented; choose",
  ),
  ({'model.lora.path': 'x'}, "lora.path='x' has adapters, and .*rank=0 trains"),
  (
    {
      'model.lora.path': 'x',
      'model.lora.rank': 8,
      'model.lora.stages': ('rl',),
    },
    "lora.path='x' has adapters of the model as it is, which a full SFT",
  ),
  (
    {'model.lora.rank': 129, 'model.hf.hidden_size': 128},
    'lora.rank=129 is more than hidden_size=128 of config.model.hf.*lower it',
  ),
  (
    {'model.lora.rank': 8, 'rl.critic_path': 'x'},
    "critic_path='x' would be trained in full beside the adapters of .*rank=8",
  ),
  ({'eval.policies': ('rl', 'ppo')}, "'ppo' .*choose from: starter, sft, rl"),
  ({'eval.policies': ('rl', 'rl')}, "'rl' is there twice"),
  ({'eval.policies': 'rl'}, "policies='rl' must be a tuple"),
  (
    {'tasks.as_published': True},
    'as_published=True is for published data, and stand-ins give nothing away',
  ),
  (
    {'tasks.description': 'obfuscated'},
    'description=obfuscated is read from a checkout of mle-bench',
  ),
  ({'tasks.heldin': (3,)}, '3 is not a known name'),
  (
    {'tasks.heldin': ('nope',)},
    "unknown task 'nope'; choose from: AI4Code, ",
  ),
  ({'episode.max_steps': 501}, 'from 1 to 500'),
  ({'rl.tasks': ('nope',)}, "'nope' is not held-in; choose from: "),
  (
    {'tasks.heldout': ('nope',)},
    "unknown task 'nope'; choose from: AI4Code, ",
  ),
  ({'tasks.heldin': ('wine',), 'tasks.heldout': ('wine',)}, 'are both held-in'),
  ({'collect.idea_pool': 10**6}, 'idea_pool=1000000 asks for more ideas'),
  ({'tasks_dir': 'nowhere'}, "tasks_dir='nowhere' is not a folder"),
  ({HF + 'num_attention_heads': 5}, 'multiple of num_key_value_heads=2'),
  (
    {HF + 'hidden_size': 130, HF + 'num_key_value_heads': 4},
    'hidden_size=130 does not divide by .*num_attention_heads=4',
  ),
  ({HF + 'hidden_size': 12}, 'head_dim=3 must be even'),
  ({HF + 'model_type': 'llama'}, "'llama' is not implemented; choose"),
  ({HF + 'hidden_act': 'gelu'}, "hidden_act='gelu'"),
  ({HF + 'vocab_size': 0}, 'vocab_size=0 must be a whole number'),
  ({HF + 'head_dim': -2}, 'head_dim=-2 must be a whole number'),
  ({'mesh.tensor': 3}, 'num_attention_heads=4 does not divide .*tensor=3'),
  ({'mesh.fsdp': 3}, 'hidden_size=128 does not divide .*fsdp=3'),
  (
    {'expert.kind': 'openai', 'expert.base_url': 'ftp://x'},
    "expert.base_url='ftp://x' must be an http or https",
  ),
  (
    {'editor.kind': 'openai', 'editor.base_url': 'http://me:secret@x/v1'},
    'editor.base_url=.* without user name',
  ),
  (
    {'editor.kind': 'openai', 'editor.base_url': 'http://[::1'},
    'editor.base_url=',
  ),
  (
    {
      'recipe': 'solutions',
      'solution.programs': 5,
      'sft.conversations': 'a.json',
    },
    "programs=5 and config.sft.conversations='a.json' are both for SFT",
  ),
  (
    {'sft.conversations': 'a.json', 'sft.epochs': 0},
    "conversations='a.json' is not read with config.sft.epochs=0",
  ),
  ({'rollout.max_prompt_tokens': 20}, 'max_prompt_tokens=20 is below the shor'),
  (
    {'rollout.prompt_style': 'full', 'rollout.max_prompt_tokens': 600},
    "max_prompt_tokens=600 is below the shortest prompt .* 'full'",
  ),
]


@pytest.mark.parametrize('changes, text', PAIRS, ids=lambda v: str(v)[:40])
def test_contradictions_are_refused_in_dry_runs_too(changes, text):
  for dry_run in (True, False):
    said = _refusal(changes, dry_run)
    assert re.search(text, said), said


HERE = [
  (
    {'sft.epochs': 0, 'stage': 'sft'},
    'config.sft.epochs=0 trains nothing',
  ),
  (
    {'recipe': 'solutions', 'solution.programs': 0},
    'config.solution.programs=0 leaves nothing to learn programs from',
  ),
  (
    {'rollout.engine': 'vllm', 'rollout.vllm.python': 'nowhere'},
    "python='nowhere' is not an interpreter: make it with `bash launch_scripts/vllm_env.sh",
  ),
  (
    {'rollout.engine': 'vllm', 'rollout.vllm.python': sys.executable},
    'has no vLLM: make it with `bash launch_scripts/vllm_env.sh',
  ),
  ({'expert.kind': 'openai'}, 'config.expert.model is empty: name the model'),
  ({'editor.kind': 'openai'}, 'config.editor.model is empty: name the model'),
  ({'embeddings.kind': 'openai'}, 'or set config.embeddings.kind=tfidf'),
  ({'writer.kind': 'openai'}, 'or set config.writer.kind=policy'),
  (
    {'model.lora.rank': 8},
    'config.model.lora.rank=8: adapters on random weights learn nothing, and '
    "config.model.path is ''; give a model, or set --config.model.lora.stages",
  ),
  (
    {'model.lora.rank': 8, 'model.lora.stages': ('rl',), 'sft.epochs': 0},
    'there is no SFT that would fill them (config.sft.epochs=0)',
  ),
  (
    {
      'model.lora.rank': 8,
      'model.lora.stages': ('rl',),
      'recipe': 'solutions',
      'solution.programs': 0,
    },
    'there is no SFT that would fill them (config.sft.epochs=8)',
  ),
  (
    {
      'model.lora.rank': 8,
      'model.lora.stages': ('rl',),
      'recipe': 'tree_search',
      'solution.programs': 0,
    },
    'there is no SFT that would fill them (config.sft.epochs=8)',
  ),
  (
    {'model.lora.rank': 8, 'model.lora.path': 'nowhere'},
    "'nowhere' is not a folder with adapter_config.json",
  ),
  ({'sft.conversations': 'nowhere'}, "'nowhere' is not a file"),
  ({'tokenizer.path': 'nowhere'}, "'nowhere' is not a folder with tokenizer"),
  ({'model.path': 'nowhere'}, "'nowhere' is not a folder with config.json"),
  ({'rl.critic_path': 'nowhere'}, "'nowhere' is not a folder with config.json"),
]


@pytest.mark.parametrize('changes, text', HERE, ids=lambda v: str(v)[:40])
def test_missing_files_are_refused_but_a_dry_run_may_plan_with_them(
  changes, text
):
  assert text in _refusal(changes)
  settings.validate(_config({'dry_run': True, **changes}))


@pytest.mark.parametrize('name', [b for b in pool.BACKENDS if b != 'local'])
def test_a_backend_without_its_package_is_refused(name, monkeypatch):
  monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
  wanted = rf"backend='{name}' needs .* pip install 'jaxagent\[{name}\]'"
  assert re.search(wanted, _refusal({'sandbox.backend': name}))


@pytest.mark.parametrize('cpu, heads, said', [
  (True, 8, "config.model.hf: heads of 16; vLLM's CPU build has (32, 64,"),
  (True, 4, ''),  # of 32
  (False, 8, ''),
])  # fmt: skip
def test_heads_that_vllm_does_not_have(cpu, heads, said, monkeypatch):
  monkeypatch.setattr(engine_checks, 'has_cpu_build', lambda options: cpu)
  config = _config(
    {'rollout.engine': 'vllm', HF + 'num_attention_heads': heads}
  )
  told = engine_checks.complaint(config)
  assert said in told and bool(said) == bool(told)


def test_nccl_without_gpus_is_refused(monkeypatch):
  over = {'rollout.engine': 'vllm', 'rollout.vllm.sync': 'nccl'}
  config = _config({**over, 'rollout.vllm.urls': ('http://127.0.0.1:1',)})
  for there, said in (
    (None, 'CuPy is not installed'),
    (object(), 'not on a GPU'),
  ):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: there)  # noqa: B023
    with pytest.raises(
      UserError, match=f"sync='nccl': .*{said}.*shared_memory"
    ):
      settings.validate_devices(config)
  monkeypatch.setattr(engine_checks, 'has_cpu_build', lambda options: True)
  config = _config({**over, 'rollout.vllm.devices': ('0',)})
  assert "sync='nccl' is for GPUs" in engine_checks.complaint(config)


def _with_adapters(urls, rank=16):
  return _config(
    {
      'rollout.engine': 'vllm',
      'rollout.vllm.urls': urls,
      'model.lora.rank': rank,
      'model.lora.stages': ('rl',),
    }
  )


def test_a_server_that_takes_no_adapters_is_refused_before_any_work():
  for kind, want in (('served', ''), ('', 'UPDATING=1.*adapters=merged')):
    server = fake_vllm.FakeVllm(adapters=kind)
    try:
      told = engine_checks.complaint(_with_adapters((server.url,)))
      assert re.search(want, told) if want else not told
      merged = _with_adapters((server.url,))
      merged.rollout.vllm.adapters = 'merged'
      assert not engine_checks.complaint(merged)
    finally:
      server.close()


def test_a_rank_that_vllm_does_not_serve_is_refused():
  told = engine_checks.complaint(_with_adapters((), rank=513))
  assert 'rank=513: vLLM serves adapters of rank 512' in told
  config = _with_adapters((), rank=8)
  config.rollout.vllm.max_loras = 1
  with pytest.raises(UserError, match='max_loras=1: requests of two'):
    settings.validate(config)


@pytest.fixture(scope='module')
def small(tmp_path_factory):
  folder = tmp_path_factory.mktemp('hf') / 'model'
  return small_hf.make(folder, vocab_size=600, hidden_size=16)


def _with_model(small, tmp_path, **changes):
  """The small model's folder with other entries in its config.json."""
  folder = tmp_path / 'model'
  shutil.copytree(small, folder)
  raw = json.loads((folder / 'config.json').read_text()) | changes
  (folder / 'config.json').write_text(json.dumps(raw))
  return {'model.path': str(folder)}


def test_a_models_folder_is_valid_whatever_the_other_dictionary_says(small):
  changes = {'model.path': str(small), HF + 'max_position_embeddings': 8}
  for dry_run in (True, False):
    config = _config({'dry_run': dry_run, **changes})
    settings.validate(config)
  settings.validate_devices(config)


@pytest.mark.parametrize(
  'inside, outside, text',
  [
    ({'model_type': 'llama'}, {}, "'llama' is not implemented"),
    (
      {'max_position_embeddings': 100},
      {},
      'exceed max_position_embeddings=100 of config.json of config.model.path',
    ),
    ({}, {'mesh.tensor': 3}, 'num_attention_heads=4 does not divide'),
    ({'vocab_size': 512}, {}, 'vocab_size=512, smaller than the 600 of'),
    ({}, {'rollout.max_prompt_tokens': 30}, 'is below the shortest prompt'),
  ],
)
def test_what_does_not_fit_a_models_folder(
  small, tmp_path, inside, outside, text
):
  assert text in _refusal(_with_model(small, tmp_path, **inside) | outside)


@pytest.mark.parametrize(
  'inside, outside, text',
  [
    ({}, {}, ''),
    ({}, {'rl.estimator': 'reinforce_pp'}, "not for 'reinforce_pp'; leave"),
    ({'vocab_size': 512}, {}, 'knows 512 tokens, the policy'),
    ({'model_type': 'llama'}, {}, "'llama' is not implemented"),
    ({'max_position_embeddings': 100}, {}, 'reads 100 tokens at most'),
  ],
)
def test_a_critic_of_its_own(small, tmp_path, inside, outside, text):
  changes = _with_model(small, tmp_path, **inside)
  changes['rl.critic_path'] = changes.pop('model.path')
  changes |= {'tokenizer.path': str(small), 'model.path': str(small)} | outside
  if text:
    assert text in _refusal(changes)
    return
  settings.validate(_config(changes))
  folder = pathlib.Path(changes['rl.critic_path'])
  (folder / 'model.safetensors').write_bytes(b'damaged')
  with pytest.raises(UserError, match='config.rl.critic_path: '):
    settings.validate_devices(_config(changes))


def test_folders_that_lack_something(small, tmp_path):
  changes = _with_model(small, tmp_path)
  folder = pathlib.Path(changes['model.path'])
  (folder / 'tokenizer.json').rename(folder / 'other.json')
  assert 'holds no tokenizer' in _refusal(changes)
  settings.validate(_config({**changes, 'tokenizer.path': str(small)}))
  (folder / 'other.json').rename(folder / 'tokenizer.json')
  (folder / 'model.safetensors').write_bytes(b'damaged')
  config = _config(changes)
  settings.validate(config)
  with pytest.raises(UserError, match='config.model.path: ') as error:
    settings.validate_devices(config)
  assert '\n' not in str(error.value)
  (folder / 'config.json').write_text('{')
  assert 'config.json: not JSON' in _refusal(changes)


@pytest.mark.parametrize(
  'key', ['tasks_dir', 'model.path', 'tokenizer.path', 'sft.conversations']
)
def test_a_path_that_no_system_can_read_is_refused(key):
  said = _refusal({key: 'x' * 10_000})
  assert said.startswith(f"config.{key}='xxx") and len(said) < 500


def test_collecting_needs_no_engine_and_no_devices():
  config = _config(
    {'stage': 'collect', 'rollout.engine': 'vllm', 'mesh.fsdp': 64}
  )
  settings.validate(config)
  settings.validate_devices(config)


def test_mesh_larger_than_the_devices_names_their_count():
  settings.validate(_config({'mesh.fsdp': 64}))
  settings.validate_devices(_config())
  found = jax.device_count()
  with pytest.raises(UserError, match=rf'needs 64 devices, but {found} '):
    settings.validate_devices(_config({'mesh.fsdp': 64}))


def test_a_missing_key_is_named():
  config = _config()
  del config.rl.updates
  with pytest.raises(UserError, match=r'config\.rl\.updates is missing'):
    settings.validate(config)
  config = _config()
  for key, made in HfOptions.options().items():
    if made.optional and key in config.model.hf:
      del config.model.hf[key]
  settings.validate(config)


@pytest.mark.parametrize(
  'changes',
  [
    {'rl.max_staleness': -1},
    {'rl.max_staleness': 0},
    {'rl.weight_cap': 0.0},
    {'rl.weight_cap': 1.0},
    {'rl.validate_every': 10, 'rl.keep_best': True},
    {'rl.validate_every': 10, 'recipe': 'episodewise'},
    {
      'rl.validate_every': 10,
      'recipe': 'tests.config.test_rules:WithValidation',
    },
    {
      'rl.validate_every': 10,
      'stage': 'sft',
      'recipe': 'tests.config.test_rules:WithoutValidation',
    },
    {'rl.lam': 0.0, 'rl.gamma': 1.0},
    {'rl.kl_coef': 0.0, 'rl.entropy_coef': 0.0},
    {'eval.policies': ('rl',)},
    {'eval.policies': ()},
    {
      'expert.kind': 'openai',
      'expert.model': 'm',
      'collect.idea_pool': 10**4,
    },
    {'collect.time_limit_s': 3.0},
    {'eval.hours': 0.5},
    {'rl.product_dtype': 'auto', 'model.dtype': 'bfloat16'},
    {'rl.product_dtype': 'bfloat16'},
    {'sft.warmup_steps': 0},
    {'tasks.heldin': ('wine',), 'tasks.heldout': ('digits',)},
    {'model.lora.rank': 8, 'model.lora.stages': ('rl',)},
  ],
  ids=str,
)
def test_edges_that_are_allowed(changes):
  settings.validate(_config(changes))


@pytest.mark.parametrize('dry_run', [True, False])
def test_tiny_is_valid(dry_run):
  settings.validate(_config({'dry_run': dry_run}))


def test_the_papers_variant_may_be_planned():
  config = _config({'dry_run': True}, 'qwen2.5-7b')
  settings.validate(config)
  config.dry_run = False
  with pytest.raises(UserError):
    settings.validate(config)


def test_prompt_bound_lies_below_every_tokenizer():
  """A tokenizer that has seen the prompt alone a hundred times."""
  from jaxagent import types
  from jaxagent.data import bpe
  from jaxagent.envs import prompts
  from jaxagent.envs.tasks import load_task

  spec = load_task('wine', ROOT / 'tasks')
  state = types.State('', 'wine', {}, None, None)
  text = prompts.compact(state, spec)
  ids = bpe.train([text] * 100, 4096).encode_prompt(text)
  config = _config({'tasks.heldin': ('wine',), 'tasks.heldout': ('digits',)})
  config.rollout.max_prompt_tokens = len(ids)
  assert rules.complaint(config, ('config', 'run')) == ''
  config.rollout.max_prompt_tokens = len(ids) - 4
  assert 'shortest prompt' in rules.complaint(config, ('config', 'run'))


def test_offload_is_refused_where_the_devices_are_the_host():
  said = model_checks.offload_fits_devices(
    _config({'rl.offload': ('reference',)})
  )
  assert said.startswith("config.rl.offload=('reference',) does nothing on CPU")
  assert not model_checks.offload_fits_devices(_config())
