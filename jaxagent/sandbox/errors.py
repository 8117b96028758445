"""Errors of the sandbox."""

from __future__ import annotations

TIERS = ('T0', 'T1', 'T2', 'T3')

REMEDY = (
  'Allow unprivileged user namespaces (sysctl user.max_user_namespaces > 0, '
  'kernel.unprivileged_userns_clone=1, and on Ubuntu '
  'kernel.apparmor_restrict_unprivileged_userns=0), or run as root; in '
  'Docker add `--security-opt seccomp=unconfined --cap-add SYS_ADMIN`. '
  'T3 needs root and writable memory and pids '
  'cgroups. A lower tier has to be asked for: sandbox.min_tier=T1.'
)


class TierError(RuntimeError):
  """This machine cannot offer the containment that was asked for."""


class BackendError(RuntimeError):
  """A backend cannot start: what is missing and how to get it."""


def tier_number(tier: str) -> int:
  if tier not in TIERS:
    raise ValueError(f'min_tier={tier!r}: choose one of {", ".join(TIERS)}.')
  return TIERS.index(tier)
