"""Options of the reward."""

from __future__ import annotations

import dataclasses

from jaxagent.options import Section, option, relation


@dataclasses.dataclass(frozen=True)
class RewardOptions(Section):
  """Terms of equation 6 of paper 000."""

  binary: bool = option(
    False, help='Pay 1 for a better score and else 0, whatever the gain.'
  )
  format_term: bool = option(
    True, help='Pay 0 for an invalid action or an error; False: 0.5.'
  )
  corner_term: bool = option(
    True, help='Pay 0.5 for a corner case; False: as for an error.'
  )

  relations = (
    relation(
      'corner_term',
      'format_term',
      holds=lambda corner, form: corner or form,
      say='{at}corner_term={corner_term} gives a corner case the reward of an '
      'error, and {at}format_term={format_term} an error that of a corner case: '
      'the two cancel out. Leave out one of them.',
    ),
  )
