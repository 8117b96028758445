"""Step-wise and episode-wise RL, from experts to report (paper 000)."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import numpy as np

from jaxagent.data.expert_steps import training_steps
from jaxagent.loops import (
  collect,
  device,
  evaluate,
  learned,
  sft,
  stages,
  train,
  value_warmup,
)
from jaxagent.loops import starts as start_scripts
from jaxagent.loops.errors import UserError
from jaxagent.loops.host import Host
from jaxagent.loops.recipes.episodewise import Episodewise
from jaxagent.loops.recipes.stepwise import Stepwise
from jaxagent.loops.stages import finish, timed


def run(host: Host, stack: contextlib.ExitStack) -> None:
  """Stages up to the one that `config.loop` names."""
  config, loop = host.config, host.config.loop
  imported = learned.imported(config)
  with timed(host, 'starts'):
    starts = start_scripts.make_starts(host)
  evaluate.scales(host, starts)  # before long work: a task without one ends here
  with timed(host, 'collect'):
    records = collect.run(host, starts)
  if loop == 'collect':
    return
  with timed(host, 'sft'):
    texts = itertools.chain(
      device.step_texts(host, records), learned.texts(imported)
    )
    tokenizer = device.make_tokenizer(host, texts)
    device.check_prompts(host, tokenizer, starts)
    learner = device.make_learner(host, tokenizer)
    policy = device.make_policy(host, learner, tokenizer)
    stack.callback(policy.engine.close)
    steps = training_steps(
      records, host.env.store.get, improved=config.sft.steps == 'improved'
    )
    if imported:
      rows = learned.rows_of_imported(imported, policy)
    else:
      rows = learned.rows_of_steps(host, steps, policy)
    sft.run(host, learner, rows)
  _evaluate(host, policy, learner, starts, 'sft')
  if loop == 'sft':
    return
  if loop in ('stepwise_ppo', 'episodewise_ppo'):
    learner.start_rl()
    if learner.config.uses_value and not device.has_rl(host.work):
      with timed(host, 'value_warmup'):
        value_warmup.run(host, learner, policy, records)
    with timed(host, 'rl'):
      recipe = _recipe(host, starts, steps, policy)
      train.run(host, recipe, learner, policy)
  else:
    device.restore_rl(host, learner)
  _evaluate(host, policy, learner, starts, 'rl')
  finish(host, starts)


def _recipe(host: Host, starts, steps, policy) -> Stepwise:
  """From expert states, or from the starters on."""
  names = host.config.rl.tasks or host.heldin
  if host.config.loop == 'episodewise_ppo':
    return Episodewise(host, {task: starts[task] for task in names}, policy)
  pool = {
    s['state'].state_id: s['state'] for s in steps if s['state'].task in names
  }
  return Stepwise(host, _drawn(host, pool), policy)


def _drawn(host: Host, pool: dict[str, Any]) -> dict[str, Any]:
  """`rl.states` of the pool, drawn by the seed; 0: all."""
  wanted = host.config.rl.states
  if not pool or wanted > len(pool):
    raise UserError(
      f'config.rl.tasks={tuple(host.config.rl.tasks)!r}, rl.states={wanted}: the '
      f'experts left {len(pool)} states of these tasks; ask for fewer, or raise '
      'config.collect.trajectories_per_task.'
    )
  if not wanted:
    return pool
  rng = np.random.default_rng([host.config.seed, 13])
  names = sorted(pool)
  return {names[i]: pool[names[i]] for i in rng.permutation(len(names))[:wanted]}


def _evaluate(host: Host, policy, learner, starts, label: str) -> None:
  stages.evaluate(
    host,
    policy,
    learner,
    label,
    lambda: evaluate.evaluate_policy(host, policy, label, starts),
  )
