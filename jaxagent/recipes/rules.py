"""Rules on the config that several recipes share."""

from __future__ import annotations

from jaxagent.config import checks
from jaxagent.rewards.config import RewardOptions

# Of recipes whose reward has no such switches.
EQUATION_6_RULES = tuple(
  checks.related(
    f'reward.{key}',
    holds=lambda value, usual=usual: value == usual,
    say=f'config.reward.{key}={{0}} is for equation 6, which config.recipe={{recipe!r}} '
    'does not train on; leave it out.',
  )
  for key, usual in RewardOptions.defaults().items()
)
