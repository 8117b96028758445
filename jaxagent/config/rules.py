"""Rules between two sections of a config, or between a config and this machine.

Each section checks its own options (`jaxagent.options`, `config.sections`). A rule
here looks at keys of several and complains in one sentence that names the value,
what it may be and the remedy. `tests/config/test_rules.py` breaks every one once.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from jaxagent.config import (
  checks,
  endpoints,
  engine_checks,
  model_checks,
  sections,
  task_checks,
  templates,
)
from jaxagent.files import readings
from jaxagent.rewards.config import RewardOptions

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def complaint(config: ConfigDict, stages: tuple[str, ...]) -> str:
  """Returns the first complaint about a config, '' if there is none."""
  for stage in stages:
    if found := sections.complaint(config, stage):
      return found
    for rule in RULES:
      present = all(checks.has(config, key) for key in rule.keys)
      if rule.stage == stage and present and (found := _checked(rule, config)):
        return found
  return ''


def _checked(rule: checks.Rule, config) -> str:
  try:
    return rule.check(config)
  except OSError as error:  # of a path that is too long or may not be read
    key = rule.keys[0]
    value = str(checks.get(config, key))[:_MOST_SHOWN]
    return f'config.{key}={value!r} cannot be read: {error.strerror}.'


_MOST_SHOWN = 200  # characters of a path in an error
RL_LOOPS = ('stepwise_ppo', 'episodewise_ppo', 'rl_for_mle')
_NEST = 'deadlines nest (execution < step < lease < watchdog)'


RULES: tuple[checks.Rule, ...] = (
  checks.related(
    'rl.donate',
    'rl.rest',
    'rollout.engine',
    holds=lambda donate, rest, engine: (
      not donate or (rest == 'wait' and engine == 'native')
    ),
    say='config.rl.donate={0} writes the new policy over the old one, which is still '
    'used with config.rl.rest={1!r} and config.rollout.engine={2!r}; set it to False, '
    "or choose rest='wait' and engine='native'.",
  ),
  checks.related(
    'env.after_edit',
    'loop',
    holds=lambda after, loop: (
      after != 'nothing'
      or loop not in ('collect', 'sft', 'stepwise_ppo', 'episodewise_ppo')
    ),
    say='config.env.after_edit={0!r} gives an edit no score, so that each would have '
    'the reward of a failure; config.loop={1!r} needs measure or execute.',
  ),
  checks.related(
    'rl.states',
    'loop',
    holds=lambda states, loop: not states or loop != 'episodewise_ppo',
    say='config.rl.states={0} is for step-wise RL; whole trajectories '
    '(config.loop={1!r}) start from the starters. Set it to 0.',
  ),
  *(
    checks.related(
      key,
      'loop',
      holds=lambda value, loop: not value or loop != 'rl_for_mle',
      say=f'config.{key}={{0!r}} is not for config.loop={{1!r}}, which trains on '
      'config.tasks.heldin; leave it out.',
    )
    for key in ('rl.tasks', 'rl.states')
  ),
  checks.related(
    'rl.gamma',
    'loop',
    holds=lambda gamma, loop: gamma == 1 or loop != 'episodewise_ppo',
    say='config.rl.gamma={0} discounts the tokens of a row only, and in '
    'config.loop={1!r} each turn of a trajectory is a row of its own; set it to 1.',
  ),
  *(
    checks.related(
      f'reward.{key}',
      'loop',
      holds=lambda value, loop, usual=usual: (
        value == usual or loop not in ('rl_for_mle', 'tree_search', 'agent')
      ),
      say=f'config.reward.{key}={{0}} is for equation 6, which config.loop={{1!r}} '
      'does not train on; leave it out.',
    )
    for key, usual in RewardOptions.defaults().items()
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
    'collect.time_limit_s',
    'sandbox.timeout_s',
    holds=lambda whole, one: whole >= one,
    say='config.collect.time_limit_s={0} of a trajectory must be at least '
    'config.sandbox.timeout_s={1} of one execution; raise the first or lower '
    'the second.',
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
    'sft.epochs',
    'model.path',
    'loop',
    holds=lambda epochs, path, loop: (
      epochs or path or loop != 'sft'
    ),  # RL from the model as it is: paper 000, figure 5
    say='config.sft.epochs={0} trains nothing, and config.model.path={1!r} names no '
    'trained model; give one of the two.',
    stage='run',
  ),
  checks.related(
    'solution.programs',
    'sft.conversations',
    'loop',
    holds=lambda programs, file, loop: (
      not (programs and file) or loop not in ('rl_for_mle', 'tree_search')
    ),
    say='config.solution.programs={0} and config.sft.conversations={1!r} are both '
    "for SFT, which uses one of them; set the first to 0 or the second to ''.",
  ),
  checks.related(
    'sft.conversations',
    holds=lambda file: (
      isinstance(file, str) and (not file or pathlib.Path(file).is_file())
    ),
    say='config.sft.conversations={0!r} is not a file; give a ShareGPT file '
    "(.json or .jsonl), or ''.",
    stage='run',
  ),
  checks.Rule(
    (
      'rollout.max_prompt_tokens',
      'rollout.max_new_tokens',
      'model.hf.max_position_embeddings',
    ),
    model_checks.positions,
  ),
  checks.Rule(('model.hf.model_type',), model_checks.model_shape),
  checks.Rule(('mesh.fsdp', 'mesh.tensor'), model_checks.mesh_fits_model),
  *endpoints.rules(),
  templates.RULE,
  # What this machine and this version have.
  checks.Rule(('sandbox.backend',), checks.backend_is_installed, 'run'),
  checks.Rule(
    (
      'rollout.engine',
      'rollout.vllm.urls',
      'rollout.vllm.python',
      'rollout.vllm.sync',
    ),
    engine_checks.complaint,
    'run',
  ),
  checks.folder('tokenizer.path', *readings.ENTRY_FILES),
  checks.folder('model.path', 'config.json'),
  checks.folder('rl.critic_path', 'config.json'),
  checks.Rule(('rl.critic_path',), model_checks.critic_fits, 'run'),
  checks.Rule(('tasks_dir',), task_checks.tasks_dir),
  checks.Rule(
    ('tasks.heldin', 'tasks.heldout', 'rl.tasks'), task_checks.chosen_tasks
  ),
  checks.Rule(('rollout.max_prompt_tokens',), task_checks.prompt_room),
  checks.Rule(
    ('tokenizer.path', 'model.path', 'rollout.max_prompt_tokens'),
    task_checks.tokenizer_fits,
    'run',
  ),
  checks.Rule(
    ('mesh.data', 'mesh.fsdp', 'mesh.tensor'),
    model_checks.mesh_fits_devices,
    'devices',
  ),
  checks.Rule(('rl.offload',), model_checks.offload_fits_devices, 'devices'),
  checks.Rule(
    ('rollout.engine', 'rollout.vllm.sync'),
    engine_checks.nccl_complaint,
    'devices',
  ),
  model_checks.weights_fit('model.path'),
  model_checks.weights_fit('rl.critic_path'),
)
