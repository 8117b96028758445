"""Step-wise and episode-wise RL, from experts to report (paper 000)."""

from __future__ import annotations

import contextlib
import itertools

from jaxagent.recipes import sft_data, stages
from jaxagent.recipes import starts as start_scripts
from jaxagent.recipes.ml_agent import (
  collect,
  evaluate,
  state_pool,
  value_warmup,
)
from jaxagent.recipes.ml_agent.episodewise import Episodewise
from jaxagent.recipes.ml_agent.stepwise import Stepwise
from jaxagent.recipes.stages import finish, timed
from jaxagent.runtime.host import Host
from jaxagent.training import device, rl, sft


def run(host: Host, stack: contextlib.ExitStack) -> None:
  """Runs the stages up to the one that `config.loop` names."""
  config, loop = host.config, host.config.loop
  imported = sft_data.imported(config)
  with timed(host, 'starts'):
    starts = start_scripts.make_starts(host)
  evaluate.scales(
    host, starts
  )  # before long work: a task without one ends here
  with timed(host, 'collect'):
    records = collect.run(host, starts)
  if loop == 'collect':
    return
  states = state_pool.make(host, records) if loop == 'stepwise_ppo' else None
  with timed(host, 'sft'):
    texts = itertools.chain(
      device.step_texts(host, records), sft_data.texts(imported)
    )
    tokenizer = device.make_tokenizer(host, texts)
    device.check_prompts(host, tokenizer, starts)
    learner = device.make_learner(host, tokenizer)
    policy = device.make_policy(host, learner, tokenizer)
    stack.callback(policy.engine.close)
    if imported:
      rows = sft_data.rows_of_imported(imported, policy)
    else:
      rows = sft_data.rows_of_steps(host, records, policy)
    sft.run(host, learner, rows)
  _evaluate(host, policy, learner, starts, 'sft')
  if loop == 'sft':
    return
  if loop in ('stepwise_ppo', 'episodewise_ppo'):
    learner.start_rl()
    if learner.config.uses_value and not device.has_rl(host.work):
      with timed(host, 'value_warmup'):
        own = records if states is None else states.of(records)
        value_warmup.run(host, learner, policy, own)
    with timed(host, 'rl'):
      recipe = _recipe(host, starts, states, policy)
      rl.run(host, recipe, learner, policy)
  else:
    device.restore_rl(host, learner)
  _evaluate(host, policy, learner, starts, 'rl')
  finish(host, starts)


def _recipe(host: Host, starts, states, policy) -> Stepwise:
  """Returns the recipe: steps from expert states, or trajectories from starters."""
  if states is not None:
    return Stepwise(host, states, policy)
  names = host.config.rl.tasks or host.heldin
  return Episodewise(host, {task: starts[task] for task in names}, policy)


def _evaluate(host: Host, policy, learner, starts, label: str) -> None:
  stages.evaluate(
    host,
    policy,
    learner,
    label,
    lambda: evaluate.evaluate_policy(host, policy, label, starts),
  )
