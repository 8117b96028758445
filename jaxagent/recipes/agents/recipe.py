"""An agent around a model behind an endpoint, measured (paper 002).

Nothing is trained: `config.agent` says how the model of `config.expert` is
prompted and read; `random` asks none. Trajectories start from each task's
starter.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from jaxagent import traces, types
from jaxagent.config import checks, endpoints
from jaxagent.config.agents import actions_of, prompter_of
from jaxagent.config.recipe import Recipe
from jaxagent.envs.agents import RandomAgent
from jaxagent.recipes import agent_figures
from jaxagent.recipes import starts as start_scripts
from jaxagent.recipes.evaluation import present
from jaxagent.recipes.ml_agent import answers, evaluate
from jaxagent.recipes.rules import EQUATION_6_RULES
from jaxagent.recipes.stages import timed
from jaxagent.recipes.starts import write_json
from jaxagent.records import StepRecord
from jaxagent.runtime.context import RunContext
from jaxagent.training.policy import seed_of

AGENT = 'agent'  # the role, and the label of its records


def _measured(name: str) -> checks.Rule:
  """Returns the rule that a measured model has the limits of a policy."""
  usual, of_policy = endpoints.MEASURED_BY[name]
  return checks.related(
    f'expert.{name}',
    holds=lambda value: value == usual,
    say=f'config.expert.{name}={{0}} is for an expert that makes trajectories; the '
    f'model that config.recipe={{recipe!r}} measures uses config.rollout.{of_policy}: '
    'set that.',
  )


class Agents(Recipe):
  """An agent around the expert's model, evaluated."""

  name = 'agents'
  record_type = StepRecord
  trains = False
  expert_is_measured = True
  rules = (*EQUATION_6_RULES, *map(_measured, endpoints.MEASURED_BY))

  @property
  def has_policy(self) -> bool:
    return False

  def shortest_prompt(self, spec: types.TaskSpec) -> str:
    empty = types.State('', spec.name, {}, None, None)
    return prompter_of(self.config).text(empty, spec)

  def stand_ins(self, context: RunContext) -> Sequence[Any]:
    models = super().stand_ins(context)
    return models[1:] if self.config.agent == RandomAgent.name else models

  def plan(self, heldin: Sequence[str], heldout: Sequence[str]) -> list[str]:
    runs = self.config.eval.trajectories_per_task * (len(heldin) + len(heldout))
    model = self.config.expert.model or self.config.expert.kind
    who = 'no model' if self.config.agent == RandomAgent.name else model
    return [
      f'2 evaluate   {runs} trajectories, at most '
      f'{runs * self.config.eval.max_steps} steps, by agent {self.config.agent} '
      f'with {who}'
    ]

  def run(self, context: RunContext, stack: contextlib.ExitStack) -> None:
    """Writes eval/agent.json, agent.json and MLAgentBench's traces."""
    with timed(context, 'starts'):
      starts = start_scripts.make_starts(context)
    with timed(context, 'evaluate_agent'):
      records = evaluate.evaluate_text_model(
        context,
        AGENT,
        starts,
        lambda *asked: _answer(context, *asked),
        lambda state: _shown(context, state),
        endpoints.max_concurrency(context.config, 'expert'),
      )
    whole = present(records)
    found = agent_figures.figures(
      context, starts, {context.config.agent: whole}
    )
    path = context.work / 'agent.json'
    write_json(path, found)
    for record in records:
      spec = context.spec(record.task)
      traces.write_folder(
        context.work / 'mlagentbench' / record.task / str(record.index),
        record,
        spec.research_problem,
        store=context.env.store,
        submission=spec.submission_file,
      )
    _say(found, path)


def _shown(context: RunContext, state: types.State) -> str:
  """Returns the model's prompt; '' if the agent asks no model."""
  if context.config.agent == RandomAgent.name or context.expert.is_stand_in:
    return ''
  return context.expert.prompt(state, context.spec(state.task))


def _answer(
  context: RunContext, state: types.State, task: str, index: int, step: int
) -> types.TextCompletion:
  """Returns the agent's response. Raises TextModelError where there is none."""
  spec = context.spec(task)
  rng = random.Random(seed_of(context.config.seed, AGENT, task, index, step))
  if context.config.agent == RandomAgent.name:
    text = RandomAgent().act(state, spec, actions_of(context.config), rng)
    return types.TextCompletion(text)
  return answers.asked(context.expert, state, spec, rng, is_measured=True)


def _say(found: Mapping[str, Any], path: pathlib.Path) -> None:
  for agent, figures in found.items():
    for task, kinds in figures['tasks'].items():
      final = kinds['final']
      print(
        f'{agent} on {task}: success rate '
        f'{final["success_rate"]["mean"]:.2f} of {final["runs"]} runs, '
        f'{final["submissions"]} with a submission'
      )
  print(f'\nfigures      {path}')
  print(f'traces       {path.parent / "mlagentbench"}')
