"""MLAgentBench's research agent (paper 002 section 3 and appendix F).

The prompt is that of paper 000 tables 5 and 6, with the instructions of paper
002 appendix F and the last steps in full. The model finds its last `Research
Plan and Status` there, which the format asks it to copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from jaxagent import types
from jaxagent.envs import parser, prompts
from jaxagent.envs.agents import style

# Paper 002 appendix F, word by word.
INSTRUCTIONS = """\
You do not know anything about this problem so far.

Follow these instructions and do not forget them:
- First, come up with a high level plan based on your understanding of the \
problem and available tools and record it in the Research Plan and Status. \
You can revise the plan later.
- Research Plan and Status should well organized and succinctly keep track of \
1) high level plan (can be revised), 2) what steps have been done and what \
steps are in progress, 3) short results and conclusions of each step after it \
has been performed.
- Research Plan and Status must only include progress that has been made by \
previous steps. It should not include results not directly confirmed by the \
previous observation.
- Performance numbers and estimates can only be confirmed and included in the \
status by running the code and observing the output.
- You should come up with a good experiment design that addresses the \
problem, and whenever applicable, define and measure the baseline performance \
of the relevant system or model before attempting any improvements.
- Follow the plan and try to achieve the goal as straightforwardly as possible.
- Highlight the supporting experiment results and reasoning before drawing \
any conclusions.
- Do not try installing any new packages or libraries.
- If you believe you have solved the problem, you can use the Final Answer \
action to submit your answer. You can only submit once, so double check that \
you have achieved the goal before submitting."""


def render(
  state: types.State,
  task: types.TaskSpec,
  *,
  actions: Sequence[str],
  entries: Sequence[str],
  instructions: str,
  observation_chars: int,
  steps: int,
) -> str:
  """Tools, problem, instructions, format, last steps: in this order.

  All but the steps is the same throughout a trajectory, so that an engine
  may keep its cache of it.
  """
  parts = [
    'You are a helpful research assistant. You have access to the following '
    f'tools:\n{prompts.tools_prompt(actions)}',
    f'Research Problem: {prompts.research_problem(state, task)}',
    instructions,
    f'Always respond in this format exactly:\n{prompts.format_prompt(entries)}'
    '\nObservation:\n```\nthe result of the action\n```',
  ]
  for number, past in style.past_steps(state, steps):
    parts.append(
      f'Step {number}:\n{style.response(past, entries)}\nObservation:\n```\n'
      f'{style.observation(past, observation_chars)}\n```'
    )
  parts.append(f'Step {state.step}:\n')
  return '\n\n'.join(part for part in parts if part)


@dataclasses.dataclass(frozen=True)
class Research:
  """All of paper 000 table 6's entries.

  mode: of parser.parse_response.
  """

  name: str = 'research'
  stop: tuple[str, ...] = style.STOP
  mode: str = 'strict'

  def prompt(
    self,
    state: types.State,
    task: types.TaskSpec,
    *,
    actions: Sequence[str],
    observation_chars: int,
    steps: int = 3,
  ) -> str:
    """See style.AgentStyle."""
    return render(
      state,
      task,
      actions=actions,
      entries=parser.ENTRIES,
      instructions=INSTRUCTIONS,
      observation_chars=observation_chars,
      steps=steps,
    )

  def parse(self, text: str, *, actions: Sequence[str]) -> parser.Response:
    """See style.AgentStyle."""
    return parser.parse_response(
      text,
      mode=self.mode,
      actions=actions,
    )

  def write(
    self, thoughts: Mapping[str, str], action: str, args: Mapping[str, str]
  ) -> str:
    """See style.AgentStyle."""
    return parser.format_response(thoughts, action, args)
