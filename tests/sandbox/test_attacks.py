"""Every attack, guarded: as root at the machine's best tier and as an ordinary
user at T2 and T1; in every other mode too with --all. One process per mode; each
case is its own test."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys

import pytest

from jaxagent.sandbox import attacks

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

MODES = {
  'T3-root': ('', ()),
  'T2-root': ('', ('cgroup',)),
  'T2-user': ('nobody', ()),
  'T1-user': ('nobody', ('namespaces',)),
  'T1-root': ('root', ('namespaces', 'cgroup')),
}
ALWAYS = ('T3-root', 'T2-user', 'T1-user')


@functools.lru_cache
def report(mode: str) -> dict:
  who, off = MODES[mode]
  root = os.geteuid() == 0
  if not root and (who == 'root' or mode.endswith('root')):
    return {'skip': 'needs root'}
  command = [
    sys.executable,
    '-m',
    'jaxagent.sandbox',
    'self_check',
    '--json',
    '--min_tier',
    'T1',
    '--unguarded',
  ]
  for name in off:
    command += ['--disable', name]
  if who and root:
    command = [sys.executable, '-m', 'tests.sandbox.as_user', who, *command]
  command = [sys.executable, '-m', 'jaxagent.sandbox.guard', *command]
  done = None
  with contextlib.suppress(subprocess.TimeoutExpired):
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
  if done is None:  # kept by the cache: the other cases do not wait again
    return {'failed': 'self_check did not end within 800 s'}
  if done.returncode == 2:
    return {'skip': done.stderr[-600:]}
  assert done.stdout, done.stderr
  record = json.loads(done.stdout)
  record['by_name'] = {c['name']: c for c in record['cases']}
  return record


@pytest.mark.parametrize(
  'mode',
  [
    m if m in ALWAYS else pytest.param(m, marks=pytest.mark.quiet)
    for m in MODES
  ],
)
@pytest.mark.parametrize('name', [c.name for c in attacks.CASES])
def test_attack_is_contained(mode, name):
  record = report(mode)
  if 'skip' in record:
    pytest.skip(record['skip'])
  assert 'failed' not in record, record['failed']
  if record['tier'] < mode[:2]:
    pytest.skip(f'this machine offers {record["tier"]} here')
  if name not in record['by_name']:
    pytest.skip(f'not promised at {record["tier"]}')
  case = record['by_name'][name]
  assert case['contained'], case['detail']


def test_the_suite_is_large_and_its_names_are_unique():
  names = [c.name for c in attacks.CASES]
  assert len(set(names)) == len(names) >= 60
