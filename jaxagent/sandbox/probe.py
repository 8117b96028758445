"""Finds the tier that this machine really offers, by running attacks."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import tempfile
import warnings
from typing import Any

from jaxagent.sandbox import errors
from jaxagent.types import Job, Limits, Outcome

_ATTACKS = """
import ctypes, json, os, socket, sys
canary, port, launcher = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = {}
def attack(name, f):
  try:
    done[name] = bool(f())
  except Exception:
    done[name] = False
def connect():
  socket.create_connection(('127.0.0.1', port), 1).close()
  return True
def udp():  # whether it arrives is seen outside
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
  s.sendto(b'x', ('127.0.0.1', port))
def environ():
  for pid in os.listdir('/proc'):
    try:
      if b'JAXAGENT_PROBE' in open('/proc/%s/environ' % pid, 'rb').read():
        return True
    except OSError:
      pass
def call(name, *args):
  return getattr(ctypes.CDLL(None), name)(*args) == 0
attack('read a host file', lambda: open(canary).read())
attack('write beside the interpreter', lambda: open(
  os.path.join(sys.prefix, 'jaxagent-probe'), 'w'))
attack('write a kernel setting', lambda: open(
  '/proc/sys/kernel/core_pattern', 'r+'))
attack('connect to the trainer', connect)
attack('send a datagram', udp)
attack('signal the launcher', lambda: os.kill(launcher, 0) is None)
attack('read an environment', environ)
attack('make a user namespace', lambda: call('unshare', 0x10000000))
attack('mount', lambda: call('mount', b'x', b'/tmp', b'tmpfs', 0, 0))
attack('be root', lambda: os.setuid(0) is None)
open('probe.json', 'w').write(json.dumps(done))
"""
# In a separate namespace the launcher's number may be one of the job's own.
_PID_OUTSIDE = 4_000_000


def attack(backend: Any) -> dict[str, bool]:
  """Runs the probe's attacks; returns {attack: it succeeded}.

  Raises BackendError where the probe itself could not run.
  """
  with (
    tempfile.TemporaryDirectory() as folder,
    socket.socket() as listener,
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mailbox,
  ):
    canary = pathlib.Path(folder) / 'canary'
    canary.write_text('planted')
    os.chmod(folder, 0o755)
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    # Another network may have a 127.0.0.1 of its own that takes datagrams.
    mailbox.bind(listener.getsockname())
    mailbox.setblocking(False)
    launcher = backend.stats().get('launcher_pid') or _PID_OUTSIDE
    job = Job(
      'probe',
      'probe.py',
      files={'probe.py': _ATTACKS},
      argv=(str(canary), str(listener.getsockname()[1]), str(launcher)),
      collect=('probe.json',),
      limits=Limits(timeout_s=30.0),
    )
    result = backend.run(job, 0, 30.0)
    arrived = _has_mail(mailbox)
  if result.outcome is not Outcome.OK:
    raise errors.BackendError(
      f'{result.outcome.value}: {result.message} {result.output[-800:]}'
    )
  won = json.loads(result.collected['probe.json'])
  return {**won, 'send a datagram': arrived}


def _has_mail(mailbox: socket.socket) -> bool:
  try:
    return bool(mailbox.recv(16))
  except BlockingIOError:
    return False


def confirm(backend: Any, min_tier: str) -> str:
  """Attacks the backend, lowers it until the probe holds, checks min_tier."""
  reasons: list[str] = list(backend.stats().get('notes', []))
  while backend.tier != 'T0':
    try:
      won = [k for k, v in attack(backend).items() if v]
      if not won:
        break
      reasons.append(f'{backend.tier}: not contained: {", ".join(won)}')
    except errors.BackendError as error:
      reasons.append(f'{backend.tier}: {error}')
    if not hasattr(backend, 'lower'):
      raise errors.TierError('; '.join(reasons))
    backend.lower()
  tier = backend.tier
  if errors.tier_number(tier) < errors.tier_number(min_tier):
    raise errors.TierError(
      f'the sandbox offers {tier} here and min_tier is {min_tier} '
      f'({"; ".join(reasons)}). {errors.REMEDY}'
    )
  if tier == 'T0' and min_tier == 'T0':
    warnings.warn(
      'sandbox: T0 contains nothing; rewards are untrusted.', stacklevel=3
    )
  elif tier == 'T1':
    warnings.warn(
      'sandbox: T1 has no namespaces; see docs/sandbox.md for what that '
      'does not contain.',
      stacklevel=3,
    )
  return tier
