"""RL for MLE agents from its programs to its report (papers 003 and 004)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from jaxagent.data.solutions import SolutionSource
from jaxagent.envs.solution_env import SolutionEnvironment
from jaxagent.errors import UserError
from jaxagent.metrics import read_records
from jaxagent.recipes import results, sft_data, stages
from jaxagent.recipes import starts as start_scripts
from jaxagent.recipes.solutions import (
  evaluate,
  prompts,
  tree_search,
)
from jaxagent.recipes.solutions.rollouts import Solutions
from jaxagent.recipes.stages import finish, timed
from jaxagent.recipes.starts import write_json
from jaxagent.report import write_tree
from jaxagent.rewards import mle
from jaxagent.runtime import kept, text_models
from jaxagent.runtime.host import Host
from jaxagent.training import device, rl, sft
from jaxagent.types import Outcome

if TYPE_CHECKING:
  from ml_collections import ConfigDict


def run(host: Host, stack: contextlib.ExitStack) -> None:
  """Runs all stages; SFT only where there are programs to learn from."""
  config = host.config
  _check_scale(host)
  if config.loop == 'tree_search' and config.writer.kind == 'openai':
    writer = text_models.Writer(config, host.work)
    prompt = prompts.Prompts(host).text
    recipe = _recipe(host, writer, prompt, 'agent')
    if config.writer.samples:
      _sample(host, recipe)
    _search(host, recipe, _label(config))
    return
  if config.loop != 'tree_search':
    # First, for a task whose starter gives no score ends here.
    with timed(host, 'starts'):
      starts = start_scripts.make_starts(host)
  with timed(host, 'sft'):
    imported, pairs = sft_data.imported(config), prompts.written(host)
    texts = sft_data.texts(imported) if imported else prompts.texts(host, pairs)
    tokenizer = device.make_tokenizer(host, texts)
    learner = device.make_learner(host, tokenizer)
    policy = device.make_policy(host, learner, tokenizer)
    stack.callback(policy.engine.close)
    prompt_ids = prompts.PromptIds(host, policy)
    recipe = _recipe(host, policy, prompt_ids)
    if imported:
      sft.run(host, learner, sft_data.rows_of_imported(imported, policy))
    elif pairs:
      sft.run(host, learner, prompts.rows(pairs, prompt_ids, policy))
  if config.loop == 'tree_search':
    device.restore_rl(host, learner)
    policy.engine.update_weights(learner.policy_params, policy.engine.version)
    stages.set_aside_older(host.work, 'search_policy', learner.updates)
    _search(host, recipe, recipe.role)
    return
  labels = ('sft', 'rl') if imported or pairs else ('rl',)
  if 'sft' in labels:
    _evaluate(host, recipe, policy, learner, 'sft')
  learner.start_rl()
  with timed(host, 'rl'):
    rl.run(host, recipe, learner, policy)
  _evaluate(host, recipe, policy, learner, 'rl')
  _finish(host, starts, labels)


def _check_scale(host: Host) -> None:
  """Raises UserError where `solution.scale` cannot be used for a task."""
  for task in host.heldin + host.heldout:
    spec = host.spec(task)
    try:
      mle.mle_reward(
        Outcome.OK,
        score=spec.m_best or 0.0,
        scale=host.config.solution.scale,
        start=spec.m_init,
        best=spec.m_best,
      )
    except ValueError as error:
      raise UserError(
        f'config.solution.scale={host.config.solution.scale!r}: task {task}: '
        f'{error} Run `python -m jaxagent.tasks prepare {task}`, or choose '
        'bounded.'
      ) from error


def _recipe(host: Host, author, prompt, role: str = 'policy') -> Solutions:
  """Makes the recipe. author: Policy or Writer. prompt: Task -> its prompt."""
  config = host.config
  options = config.solution
  env = SolutionEnvironment(
    host.env, instrumenter=config.instrumenter.kind, scale=options.scale
  )
  source = SolutionSource(
    host.heldin,
    group_size=config.rl.group_size,
    # An epoch fills a batch, be it of a single task.
    repeats=-(
      -config.rl.batch_size // (config.rl.group_size * len(host.heldin))
    ),
    improve=options.improve,
    most=options.kept,
    seed=config.seed,
  )
  ask = text_models.make_instrumenter(config, host.work)
  return Solutions(config, env, source, prompt, author, ask, role)


def _evaluate(host: Host, recipe, policy, learner, label: str) -> None:
  stages.evaluate(
    host,
    policy,
    learner,
    label,
    lambda: evaluate.run(host, recipe, label),
  )


def _label(config: ConfigDict) -> str:
  """Returns the writer's name, fit for a file name."""
  return (config.writer.model or 'agent').replace('/', '_')


def _sample(host: Host, recipe: Solutions) -> None:
  """Samples a prompted model; writes the same table as for trained policies."""
  with timed(host, 'samples'):
    records = evaluate.run(
      host,
      recipe,
      f'samples_{_label(host.config)}',
      samples=host.config.writer.samples,
    )
  path = host.work / 'samples.json'
  write_json(path, evaluate.table(records, _higher(host)))
  print(f'samples      {path}')


def _search(host: Host, recipe: Solutions, label: str) -> None:
  """Runs the searches; writes and prints their table."""
  with timed(host, 'search'):
    records = tree_search.run(host, recipe, label)
  found = tree_search.table(records, _higher(host))
  path = host.work / 'search.json'
  write_json(path, found)
  for task, row in found.items():
    print(
      f'{task:16} {row["n"]} searches, valid {row["valid"]:.2f}, private '
      f'score: mean {_text(row["mean"])}, best {_text(row["best"])}'
    )
  print(f'table        {path}')


def _text(value: float | None) -> str:
  return '-' if value is None else f'{value:.4g}'


def _higher(host: Host) -> dict[str, bool]:
  tasks = host.heldin + host.heldout
  return {task: host.spec(task).higher_is_better for task in tasks}


def _finish(host: Host, starts, labels) -> None:
  """Writes summary, report and tree."""
  tables: dict[str, Any] = {
    label: evaluate.table(kept.evaluated(host.work, label), _higher(host))
    for label in labels
    if label in host.config.eval.policies
  }
  how = {
    'start': 'scratch and improved',
    'trajectories_per_task': 2 * host.config.solution.samples,
    'max_steps': 1,
  }
  finish(host, starts, labels, {'solutions': tables}, how)
  traces = results.read_traces(host.work / 'rl' / 'traces')
  metrics = read_records(host.work / 'logs' / 'metrics.jsonl')
  page = write_tree(host.work / 'solutions.html', traces, metrics=metrics)
  print(f'solutions    {page}')
