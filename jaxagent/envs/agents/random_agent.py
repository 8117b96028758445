"""The agent without a model: an action drawn uniformly, plausible arguments.

It is the floor that every learned agent must leave behind. Paper 002 has no
such agent: its appendix B compares, where the starter code does not run, with
trivial random *predictions* (0.5 accuracy on imdb), and its `Baseline` column
is the starter code unchanged. So nothing of it could be followed here.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import parser, workspace
from jaxagent.envs.agents import research

MAX_LINES = 100  # of `Inspect Script Lines`
_THOUGHT = 'This agent draws its actions at random.'
_EDITS = (
  'Change the learning rate.',
  'Change the number of epochs.',
  'Use a larger model.',
  'Add regularization.',
  'Normalize the inputs.',
)


def _arguments(
  action: str, state: types.State, task: types.TaskSpec, rng: random.Random
) -> dict[str, str]:
  seen = workspace.visible(state.files)
  files = sorted({*seen, *task.read_only_files}) or [state.script]
  scripts = [f for f in sorted(seen) if f.endswith('.py')]
  script = rng.choice(scripts or [state.script])
  lines = max(len(workspace.text(state.files, script).splitlines()), 1)
  first = rng.randint(1, lines)
  last = rng.randint(first, min(lines, first + MAX_LINES - 1))
  edit = rng.choice(state.ideas or _EDITS)
  values = {
    'dir_path': rng.choice(['.', 'data']),
    'file_name': rng.choice(files),
    'source': rng.choice(files),
    'destination': f'copy_{rng.randrange(10)}.py',
    'script_name': script,
    'save_name': rng.choice([script, f'edited_{rng.randrange(10)}.py']),
    'start_line_number': str(first),
    'end_line_number': str(last),
    'edit_instruction': edit,
    'things_to_look_for': f'What determines the {task.metric}',
    'things_to_reflect_on': 'What has been tried',
    'current_plan': edit,
    'request': edit,
    'command': 'print(1 + 1)',
    'final_answer': 'Done.',
    'content': f'# {edit}\n',
  }
  return {name: values[name] for name in parser.ACTION_ARGS[action]}


@dataclasses.dataclass(frozen=True)
class RandomAgent(research.Research):
  """Writes responses in the research agent's format; asks no model."""

  name: str = 'random'

  def act(
    self,
    state: types.State,
    task: types.TaskSpec,
    actions: Sequence[str],
    rng: random.Random,
  ) -> str:
    """One response; the same for the same state of `rng`.

    Raises ValueError where there is no action, or an unknown one.
    """
    unknown = [a for a in actions if a not in parser.ACTION_ARGS]
    if unknown or not actions:
      raise ValueError(
        f'actions={tuple(actions)} must be names among '
        f'{", ".join(parser.ACTION_ARGS)}.'
      )
    action = rng.choice(list(actions))
    return parser.format_response(
      dict.fromkeys(parser.ENTRIES[:4], _THOUGHT),
      action,
      _arguments(action, state, task, rng),
    )
