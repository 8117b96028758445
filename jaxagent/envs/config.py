"""Options of the environment in which a policy acts."""

from __future__ import annotations

import dataclasses

from jaxagent.envs import parser, step_env
from jaxagent.options import Section, option, relation


@dataclasses.dataclass(frozen=True)
class EnvOptions(Section):
  """Actions that a policy may take, and how results are shown to it."""

  dialect: str = option(
    'jaxagent',
    choices=tuple(step_env.DIALECTS),
    help='Words in which a result is shown.',
  )
  actions: tuple[str, ...] = option(
    (),
    choices=tuple(parser.ACTION_ARGS),
    help='Actions that a policy may take; (): the seven of paper 000.',
  )
  after_edit: str = option(
    'execute',
    choices=step_env.AFTER_EDIT,
    help='After an edit: run and show, run for the reward alone, or nothing.',
  )
  on_failure: str = option(
    'revert',
    choices=step_env.ON_FAILURE,
    help='What becomes of an edit whose script failed.',
    advanced=True,
  )
  parse_mode: str = option(
    'strict',
    choices=parser.MODES,
    help='How strictly a response is read.',
  )
  carry_mb: float = option(
    16.0,
    unit='MB',
    least=0,
    most=512,
    help='New and changed files kept for the next step; 0: none.',
    advanced=True,
  )
  help: str = option(
    'none',
    choices=('none', 'person'),
    help='Who answers Request Help.',
    advanced=True,
  )

  relations = (
    relation(
      'help',
      'actions',
      holds=lambda who, actions: who == 'none' or 'Request Help' in actions,
      say="{at}help={help!r} answers 'Request Help', an action that "
      '{at}actions={actions!r} does not offer; name there all that are '
      'offered, this one among them.',
    ),
  )
