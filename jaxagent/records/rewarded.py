"""The reward of a record, where a recipe's class may be wrong."""

from __future__ import annotations

from collections.abc import Mapping

from jaxagent.errors import UserError
from jaxagent.files import modules
from jaxagent.types import NoReward, Record


def reward_of(
  record: Record, switches: Mapping[str, bool] = {}
) -> float | NoReward:
  """Returns `record.derive(switches)`.

  Raises UserError, naming class and file, where that raises or gives neither a
  finite number nor a `NoReward`: no attempt at the same call would end otherwise.
  """
  try:
    reward = record.derive(switches)
    record.checked(reward)
  except Exception as error:  # a recipe's own class may raise anything
    raise UserError(
      f'task {record.task!r}: no reward can be derived of a {record.KIND!r} record: '
      f'{modules.place_of(type(record))}.derive: {type(error).__name__}: '
      f'{" ".join(str(error).split())} Fix it and rerun '
      'the same command; it resumes.'
    ) from error
  return reward
