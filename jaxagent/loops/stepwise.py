"""Step-wise RL from its experts to its report (paper 000)."""

from __future__ import annotations

import contextlib

from jaxagent.loops import (
  collect,
  device,
  evaluate,
  sft,
  stages,
  train,
  value_warmup,
)
from jaxagent.loops import starts as start_scripts
from jaxagent.loops.host import Host
from jaxagent.loops.recipes.stepwise import Stepwise
from jaxagent.loops.stages import finish, timed


def run(host: Host, stack: contextlib.ExitStack) -> None:
  """Stages up to the one that `config.loop` names."""
  loop = host.config.loop
  with timed(host, 'starts'):
    starts = start_scripts.make_starts(host)
  with timed(host, 'collect'):
    records = collect.run(host, starts)
  if loop == 'collect':
    return
  with timed(host, 'sft'):
    tokenizer = device.make_tokenizer(host, device.step_texts(host, records))
    device.check_prompts(host, tokenizer, starts)
    learner = device.make_learner(host, tokenizer)
    policy = device.make_policy(host, learner, tokenizer)
    stack.callback(policy.engine.close)
    steps = sft.training_steps(records)
    sft.run(host, learner, sft.conversations(steps, policy))
  _evaluate(host, policy, learner, starts, 'sft')
  if loop == 'sft':
    return
  if loop == 'stepwise_ppo':
    learner.start_rl()
    if learner.config.uses_value and not device.has_rl(host.work):
      with timed(host, 'value_warmup'):
        value_warmup.run(host, learner, policy, records)
    with timed(host, 'rl'):
      pool = {s['state'].state_id: s['state'] for s in steps}
      train.run(host, Stepwise(host, pool, policy), learner, policy)
  else:
    device.restore_rl(host, learner)
  _evaluate(host, policy, learner, starts, 'rl')
  finish(host, starts)


def _evaluate(host: Host, policy, learner, starts, label: str) -> None:
  stages.evaluate(
    host,
    policy,
    learner,
    label,
    lambda: evaluate.evaluate_policy(host, policy, label, starts),
  )
