"""The vector units that a job's libraries may use.

NumPy, OpenBLAS and the C library choose their code by the CPU they find: equal
numbers are sorted in another order with AVX-512 than with AVX2 (NumPy's sort is
not stable), and sums and exponentials differ in their last digits. A script
would earn other rewards on another node. Jobs therefore keep to one level,
whatever more a machine has.
"""

from __future__ import annotations

import importlib
import platform
import re
from collections.abc import Sequence

LEVELS = ('all', 'no-avx512', 'no-avx2')
# What every x86 server of the last ten years has.
DEFAULT = 'no-avx512'
# Features of NumPy that a level is without, under the names since NumPy 2.4 and
# those before. What NumPy was not built to choose it refuses to switch off.
_WITHOUT = {
  'no-avx512': re.compile(r'AVX512|X86_V4'),
  'no-avx2': re.compile(r'AVX|X86_V[34]|FMA|F16C|XOP'),
}
# Kernels named, for OpenBLAS has others for CPUs of one level, too.
_KERNELS = {'no-avx512': 'Haswell', 'no-avx2': 'Nehalem'}
# The C library has no AVX-512 in its mathematics; both spellings of versions.
_TUNABLES = (
  'glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable,-FMA4_Usable'
)
NAMES = ('NPY_DISABLE_CPU_FEATURES', 'OPENBLAS_CORETYPE', 'GLIBC_TUNABLES')


def check(level: str) -> str:
  """Returns `level`. Raises ValueError that names the choices."""
  if level not in LEVELS:
    raise ValueError(f'cpu_level={level!r}: choose one of {", ".join(LEVELS)}.')
  return level


def machine_flags() -> frozenset[str]:
  """Gives the features of this machine's CPU as Linux names them.

  Empty where it is no x86-64, or where they cannot be read.
  """
  try:
    with open('/proc/cpuinfo') as f:
      return flags_of(platform.machine(), f.read())
  except OSError:
    return frozenset()


def flags_of(machine: str, cpuinfo: str) -> frozenset[str]:
  """Gives the features in the text of /proc/cpuinfo; empty for no x86-64."""
  if machine != 'x86_64':
    return frozenset()
  found = re.search(r'^flags\s*:(.*)$', cpuinfo, re.MULTILINE)
  return frozenset(found.group(1).split() if found else ())


def numpy_features() -> list[str]:
  """Names the features that this interpreter's NumPy chooses its code by."""
  for name in ('numpy._core._multiarray_umath', 'numpy.core._multiarray_umath'):
    try:
      return list(importlib.import_module(name).__cpu_dispatch__)
    except (ImportError, AttributeError):
      continue
  return []


def has(level: str, flags: frozenset[str]) -> bool:
  """Says whether a CPU with these features reaches a level."""
  if level == 'all' or not flags:
    return True
  wanted = {'avx2', 'fma'} if level == 'no-avx512' else {'sse4_2'}
  return wanted <= flags


def environment(
  level: str, flags: frozenset[str], features: Sequence[str]
) -> dict[str, str]:
  """Gives the variables that keep libraries to a level.

  level: one of LEVELS. flags: of the CPU (`machine_flags`). features: of NumPy
  (`numpy_features`). Has to be there when a process starts. Empty where
  there is nothing to keep to: for `all`, and on other CPUs than x86-64.
  """
  check(level)
  if level == 'all' or not flags:
    return {}
  if not has(level, flags):
    level = 'no-avx2'
  found = {}
  off = [f for f in features if _WITHOUT[level].search(f)]
  if off:
    found['NPY_DISABLE_CPU_FEATURES'] = ' '.join(off)
  if has(level, flags):
    found['OPENBLAS_CORETYPE'] = _KERNELS[level]
  if level == 'no-avx2':
    found['GLIBC_TUNABLES'] = _TUNABLES
  return found


def here(level: str = DEFAULT) -> dict[str, str]:
  """Gives `environment` of this machine and this interpreter's NumPy."""
  return environment(level, machine_flags(), numpy_features())


def note(level: str, flags: frozenset[str]) -> str:
  """Says in a line what of a level this CPU does not show; '' for nothing."""
  if level == 'all':
    return ''
  if not flags:
    return f'cpu_level={level}: no x86-64 CPU, so nothing is switched off'
  if not has(level, flags):
    return (
      f'cpu_level={level}: this CPU has no AVX2 and FMA, so jobs may '
      'print other last digits than on other nodes'
    )
  unit = 'avx512f' if level == 'no-avx512' else 'avx2'
  if unit not in flags:
    shown = 'AVX-512' if level == 'no-avx512' else 'AVX2'
    return f'cpu_level={level}: this CPU has no {shown} that could be left out'
  return ''
