"""Keys of a config by their former names, for one version, with a message."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from ml_collections import ConfigDict

# Former `config.loop` -> (config.recipe, config.stage).
LOOPS: Mapping[str, tuple[str, str]] = {
  'collect': ('stepwise', 'collect'),
  'sft': ('stepwise', 'sft'),
  'stepwise_ppo': ('stepwise', 'all'),
  'episodewise_ppo': ('episodewise', 'all'),
  'evaluate': ('stepwise', 'evaluate'),
  'rl_for_mle': ('solutions', 'all'),
  'tree_search': ('tree_search', 'all'),
  'agent': ('agents', 'all'),
}


def arguments(argv: Sequence[str]) -> list[str]:
  """Returns command-line arguments with the former names replaced; prints which.

  Raises ValueError for a former value that is not known.
  """
  found: list[str] = []
  rest = iter(argv)
  for argument in rest:
    name, given, value = argument.partition('=')
    if name not in ('--config.loop', '-config.loop'):  # absl takes both
      found.append(argument)
      continue
    recipe, stage = _of_loop(value if given else next(rest, ''))
    found += [f'--config.recipe={recipe}', f'--config.stage={stage}']
  return found


def upgrade(config: ConfigDict, given: Collection[str] = ()) -> None:
  """Replaces former keys that a config file sets, in place; prints which.

  given: keys that the command line sets, which the file's do not replace.

  Raises ValueError for a former value that is not known.
  """
  if 'loop' not in config:
    return
  missing = [key for key in ('recipe', 'stage') if key not in given]
  with config.unlocked():
    if missing:
      made = dict(zip(('recipe', 'stage'), _of_loop(config.loop)))
      config.update({key: made[key] for key in missing})
    del config['loop']


def _of_loop(value: str) -> tuple[str, str]:
  if value not in LOOPS:
    raise ValueError(
      f'config.loop={value!r} is unknown, and config.loop is now config.recipe '
      f'and config.stage; the former values were: {", ".join(LOOPS)}.'
    )
  recipe, stage = LOOPS[value]
  print(
    f'config.loop={value!r} is now config.recipe={recipe!r} with '
    f'config.stage={stage!r}; the former name goes with the next version.',
    file=sys.stderr,
  )
  return recipe, stage
