"""The vector units of jobs: which variables a level is, and that it arrives."""

from __future__ import annotations

import json

import pytest

from jaxagent.sandbox import SandboxPool, cpu_levels
from jaxagent.types import Job, Limits, Outcome

NEW = ['X86_V3', 'X86_V4', 'AVX512_ICL', 'AVX512_SPR']
OLD = 'SSSE3 SSE41 POPCNT SSE42 AVX F16C FMA3 AVX2 AVX512F AVX512_SKX'.split()
AVX2 = frozenset('sse4_2 avx avx2 fma'.split())
AVX512 = AVX2 | {'avx512f'}


@pytest.mark.parametrize(
  'features, off',
  [
    (
      NEW,
      {'no-avx512': 'X86_V4 AVX512_ICL AVX512_SPR', 'no-avx2': ' '.join(NEW)},
    ),
    (
      OLD,
      {
        'no-avx512': 'AVX512F AVX512_SKX',
        'no-avx2': 'AVX F16C FMA3 AVX2 AVX512F AVX512_SKX',
      },
    ),
  ],
  ids=['NumPy 2.4', 'before'],
)
def test_a_level_names_what_this_numpy_knows(features, off):
  """Another name is a warning, one of its baseline ends the import."""
  for level, names in off.items():
    made = cpu_levels.environment(level, AVX512, features)
    assert made['NPY_DISABLE_CPU_FEATURES'] == names
  assert cpu_levels.environment('all', AVX512, features) == {}


def test_kernels_are_those_that_the_cpu_has():
  kernels = lambda level, flags: cpu_levels.environment(  # noqa: E731
    level, flags, NEW
  ).get('OPENBLAS_CORETYPE')
  assert kernels('no-avx512', AVX512) == kernels('no-avx512', AVX2) == 'Haswell'
  assert kernels('no-avx512', frozenset({'sse4_2'})) == 'Nehalem'
  assert kernels('no-avx512', frozenset({'sse2'})) is None


def test_nodes_with_and_without_avx512_get_the_same_variables():
  assert cpu_levels.environment('no-avx512', AVX512, NEW) == (
    cpu_levels.environment('no-avx512', AVX2, NEW)
  )


def test_other_processors_are_left_alone():
  flags = cpu_levels.flags_of('aarch64', 'Features\t: fp asimd\n')
  for level in cpu_levels.LEVELS:
    assert cpu_levels.environment(level, flags, ['ASIMDHP']) == {}
  assert 'nothing is switched off' in cpu_levels.note('no-avx2', flags)


def test_a_level_without_effect_on_this_machine_is_reported():
  assert 'no AVX-512' in cpu_levels.note('no-avx512', AVX2)
  assert cpu_levels.note('no-avx512', AVX512) == ''
  assert 'other nodes' in cpu_levels.note('no-avx512', frozenset({'sse4_2'}))


def test_an_unknown_level_is_refused_with_the_choices():
  with pytest.raises(ValueError, match="'avx2': choose one of all, no-avx512"):
    SandboxPool(1, cpu_level='avx2')


SEEN = """
import json, os, warnings
warnings.simplefilter('error')
import numpy
from numpy._core import _multiarray_umath as core
import scipy.linalg, threadpoolctl
print(json.dumps([
  [f for f in core.__cpu_dispatch__ if core.__cpu_features__[f]],
  sorted({t.get('architecture') for t in threadpoolctl.threadpool_info()
          if t['internal_api'] == 'openblas'}),
  os.environ.get('GLIBC_TUNABLES', ''),
]))
"""
# Sums, sorts among equals and exponentials: what other vector units do otherwise.
NUMBERS = """
import hashlib, math, numpy as np
x = np.random.RandomState(0).rand(200, 200)
ties = (np.arange(4000) * 7919 % 13).astype(float)
for value in (x @ x, np.exp(x.astype('float32')), ties.argsort(),
              np.array([math.exp(v) for v in x.ravel()])):
  print(hashlib.sha256(value.tobytes()).hexdigest()[:12])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_level_arrives_in_jobs_that_start_anew_and_in_forks():
  flags = cpu_levels.machine_flags()
  if 'avx2' not in flags:
    pytest.skip('this CPU has no AVX2 to switch off')
  numbers = {}
  for level in cpu_levels.LEVELS:
    with SandboxPool(1, min_tier='T2', cpu_level=level) as pool:
      for zygote in (False, True):
        results = [
          pool.submit(
            Job(
              f'{level}-{zygote}-{i}',
              'main.py',
              files={'main.py': script},
              zygote=zygote,
              limits=Limits(timeout_s=60),
            )
          ).result(120)
          for i, script in enumerate((SEEN, NUMBERS))
        ]
        assert results[0].outcome is Outcome.OK, results[0].output
        on, kernels, tunables = json.loads(results[0].output)
        if level != 'all':
          assert not [f for f in on if '512' in f or 'V4' in f]
          assert kernels == ['Haswell' if level == 'no-avx512' else 'Nehalem']
        assert (on == []) == (level == 'no-avx2')
        assert ('-AVX2' in tunables) == (level == 'no-avx2')
        assert results[1].outcome is Outcome.OK, results[1].output
        numbers[level, zygote] = results[1].output.split()
      assert pool.stats()['launcher']['cpu_level'] == level
  for level in cpu_levels.LEVELS:
    assert numbers[level, False] == numbers[level, True], level
  assert all(
    a != b
    for a, b in zip(  # BLAS, NumPy, its sort, the C library
      numbers['no-avx512', True], numbers['no-avx2', True], strict=True
    )
  ), numbers
