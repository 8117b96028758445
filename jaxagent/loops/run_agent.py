"""An agent around a model behind an endpoint, measured (paper 002).

Nothing is trained: `config.agent` says how the model of `config.expert` is
prompted and read; `random` asks none. Trajectories start from each task's
starter.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
from collections.abc import Sequence

from jaxagent import traces, types
from jaxagent.envs.agents import RandomAgent
from jaxagent.envs.interfaces import TextModelError
from jaxagent.loops import agent_figures, answers, collect, evaluate
from jaxagent.loops import starts as start_scripts
from jaxagent.loops.agents import actions_of
from jaxagent.loops.host import Host
from jaxagent.loops.policy import seed_of
from jaxagent.loops.stages import timed
from jaxagent.loops.starts import write_json

AGENT = 'agent'  # the role, and the label of its records
_AT_ONCE = 8  # as many as a client sends


def run(host: Host, stack: contextlib.ExitStack) -> None:
  """Writes eval/agent.json, agent.json and MLAgentBench's traces."""
  with timed(host, 'starts'):
    starts = start_scripts.make_starts(host)
  asked = stack.enter_context(concurrent.futures.ThreadPoolExecutor(_AT_ONCE))

  def draw(waiting: Sequence[evaluate.Episode], step: int):
    return list(asked.map(lambda one: _answer(host, one), waiting))

  limits = host.config.eval
  recipe = collect.spoken(
    AGENT, max_steps=limits.max_steps, time_limit_s=limits.time_limit_s
  )
  with timed(host, 'evaluate_agent'):
    records = evaluate.walk_all(
      host,
      AGENT,
      starts,
      recipe,
      {AGENT: draw},
      lambda state: _shown(host, state),
    )
  present = evaluate.present(records)
  found = agent_figures.figures(host, starts, {host.config.agent: present})
  path = host.work / 'agent.json'
  write_json(path, found)
  for record in records:
    spec = host.spec(record.task)
    traces.write_folder(
      host.work / 'mlagentbench' / record.task / str(record.index),
      record,
      spec.research_problem,
      store=host.env.store,
      submission=spec.submission,
    )
  _say(found, path)


def _shown(host: Host, state: types.State) -> str:
  """The model's prompt; '' where none is asked in words."""
  if host.config.agent == RandomAgent.name or host.expert.is_stand_in:
    return ''
  return host.expert.prompt(state, host.spec(state.task))


def _answer(host: Host, episode: evaluate.Episode) -> str | TextModelError:
  """The agent's response; the error where its model gave none."""
  state: types.State = episode.call.prompt
  spec = host.spec(episode.task)
  made = len(episode.steps)
  seed = seed_of(host.config.seed, AGENT, episode.task, episode.index, made)
  rng = random.Random(seed)
  if host.config.agent == RandomAgent.name:
    return RandomAgent().act(state, spec, actions_of(host.config), rng)
  try:
    return answers.asked(host.expert, state, spec, rng, is_measured=True)
  except TextModelError as error:
    return error


def _say(found, path) -> None:
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
