"""A whole run: tasks, experts, SFT, RL, evaluation, report. Each stage's
result is kept in the work directory and reused."""

from __future__ import annotations

import contextlib
import json
import time

from jaxagent import sharding
from jaxagent.loops import (
  collect,
  device,
  evaluate,
  kept,
  results,
  settings,
  sft,
  train,
  value_warmup,
)
from jaxagent.loops import starts as start_scripts
from jaxagent.loops.errors import UserError
from jaxagent.loops.host import Host, open_host
from jaxagent.loops.recipes.stepwise import Stepwise


def run(config) -> None:
  """Runs `config.loop` and everything it needs that is not there yet."""
  try:
    sharding.initialize_distributed()
  except ValueError as error:
    raise UserError(str(error)) from error
  # Devices can be counted only once the processes have met.
  settings.validate_devices(config)
  work = settings.open_work_dir(config)
  if config.loop == 'evaluate':
    device.check_trained(work)
  with open_host(config, work) as host, contextlib.ExitStack() as stack:
    _say(host)
    with _timed(host, 'starts'):
      starts = start_scripts.make_starts(host)
    with _timed(host, 'collect'):
      records = collect.run(host, starts)
    if config.loop == 'collect':
      return
    with _timed(host, 'sft'):
      tokenizer = device.make_tokenizer(host, records)
      device.check_prompts(host, tokenizer, starts)
      learner = device.make_learner(host, tokenizer)
      policy = device.make_policy(host, learner, tokenizer)
      stack.callback(policy.engine.close)
      steps = sft.training_steps(records)
      sft.run(host, learner, sft.conversations(steps, policy))
    _evaluate(host, policy, learner, starts, 'sft')
    if config.loop == 'sft':
      return
    if config.loop == 'stepwise_ppo':
      learner.start_rl()
      if learner.config.uses_value and not device.has_rl(work):
        with _timed(host, 'value_warmup'):
          value_warmup.run(host, learner, policy, records)
      with _timed(host, 'rl'):
        pool = {s['state'].state_id: s['state'] for s in steps}
        train.run(host, Stepwise(host, pool, policy), learner, policy)
    else:
      device.restore_rl(host, learner)
    _evaluate(host, policy, learner, starts, 'rl')
    _finish(host, starts)


def _evaluate(host: Host, policy, learner, starts, label: str) -> None:
  if label not in host.config.eval.policies:
    return
  with _timed(host, f'evaluate_{label}'):
    policy.engine.update_weights(learner.policy_params, policy.engine.version)
    evaluate.evaluate_policy(host, policy, label, starts)


def _finish(host: Host, starts) -> None:
  """Summary and report, from what the stages left behind."""
  with _timed(host, 'report'):
    evaluated = {
      label: json.loads((host.work / 'eval' / f'{label}.json').read_text())
      for label in ('sft', 'rl')
      if label in host.config.eval.policies
    }
    traces = results.read_traces(host.work / 'rl' / 'traces')
  results.write(host, starts, evaluated, traces)


def _say(host: Host) -> None:
  print(
    f'jaxagent: {len(host.heldin)} held-in and {len(host.heldout)} held-out '
    f'tasks; sandbox tier {host.pool.tier}, {host.config.sandbox.slots} '
    f'slots; work directory {host.work}'
  )
  if host.stand_ins:
    print(
      'scripted stand-ins for language models: ' + ', '.join(host.stand_ins)
    )


@contextlib.contextmanager
def _timed(host: Host, stage: str):
  """Adds the stage's wall seconds to those of earlier attempts."""
  path = host.work / 'wall_s.json'
  began = time.monotonic()
  try:
    yield
  finally:
    walls = kept.kept_json(path, kept.seconds) or {}
    walls[stage] = walls.get(stage, 0.0) + time.monotonic() - began
    start_scripts.write_json(path, walls)
    host.wall_s.update(walls)
