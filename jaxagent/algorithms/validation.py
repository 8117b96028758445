"""Checks of a batch on the host, before it meets the compiled update."""

from __future__ import annotations

import numpy as np


def _finite_under(name: str, values, mask: np.ndarray) -> None:
  values = np.asarray(values)
  if values.shape != mask.shape:
    raise ValueError(
      f'{name} has shape {values.shape}, the mask {mask.shape}; they must '
      'be the same.'
    )
  bad = np.argwhere((mask > 0) & ~np.isfinite(values))
  if bad.size:
    row, token = (int(i) for i in bad[0])
    raise ValueError(
      f'{name}[{row}, {token}]={float(values[row, token])} on a policy token '
      f'({len(bad)} such values); drop or repair the sample before training.'
    )


def validate_batch(
  mask,
  *,
  rewards=None,
  durations_s=None,
  scores=None,
  valid=None,
  **arrays,
) -> None:
  """Raises ValueError for what would put a NaN or a silent zero in an update.

  mask [B, T]: 0 or 1, at least one policy token in the batch.
  rewards [B, T]: finite, floating, and 0 off policy tokens (GAE would lose
    it there). arrays [B, T] by name: finite on policy tokens.
  durations_s, scores [B]: finite (durations positive) where `valid` [B].
  """
  mask = np.asarray(mask)
  if mask.ndim != 2:
    raise ValueError(f'mask has shape {mask.shape}; expected [B, T].')
  if not np.isin(mask, (0, 1)).all():
    raise ValueError('mask must hold 0 and 1 only.')
  if not mask.any():
    raise ValueError(
      f'The mask {mask.shape} has no policy token: nothing to learn from. '
      'Leave such a batch out.'
    )
  if rewards is not None:
    _check_rewards(np.asarray(rewards), mask)
  for name, values in arrays.items():
    if values is not None:
      _finite_under(name, values, mask)
  keep = np.ones(mask.shape[0], bool)
  if valid is not None:
    keep = np.asarray(valid, bool)
  if scores is not None:
    _check_rows('scores', np.asarray(scores), keep, positive=False)
  if durations_s is not None:
    _check_rows('durations_s', np.asarray(durations_s), keep, positive=True)


def _check_rewards(rewards: np.ndarray, mask: np.ndarray) -> None:
  if not np.issubdtype(rewards.dtype, np.floating):
    raise ValueError(
      f'rewards are stored as {rewards.dtype}, which would round them; use '
      'float32.'
    )
  _finite_under('rewards', rewards, mask)
  lost = np.argwhere((mask == 0) & (rewards != 0))
  if lost.size:
    row, token = (int(i) for i in lost[0])
    raise ValueError(
      f'rewards[{row}, {token}]={float(rewards[row, token])} is on a token that '
      "the policy did not produce and would be lost; put a step's reward on "
      'its last policy token.'
    )


def _check_rows(name, values, keep, *, positive: bool) -> None:
  good = np.isfinite(values) & ((values > 0) | (not positive))
  rows = keep.reshape(keep.shape + (1,) * (values.ndim - 1))
  bad = np.argwhere(rows & ~good)
  if bad.size:
    where = tuple(int(i) for i in bad[0])
    rule = 'finite and greater than zero' if positive else 'finite'
    raise ValueError(
      f'{name}{list(where)}={float(values[where])} must be {rule}; leave the '
      'sample out (valid=False) if its infrastructure failed.'
    )
