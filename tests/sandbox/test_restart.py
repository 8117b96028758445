"""A launcher that is started again and offers less (a double)."""

from __future__ import annotations

import contextlib
import json
import subprocess

from jaxagent.sandbox import local
from jaxagent.types import Job, Outcome

# Says what it offers, and ends with its socket.
_LAUNCHER = """
import socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
control.send({hello!r})
control.recv(1)
"""


def test_a_launcher_of_a_lower_tier_runs_nothing(monkeypatch, tmp_path):
  hello = dict.fromkeys(('namespaces', 'seccomp', 'slot_uids', 'cgroups'), True)
  started, popen = [], subprocess.Popen

  def start(*args, **options):
    started.append(popen(*args, **options))
    return started[-1]

  monkeypatch.setattr(
    local.launcher,
    'start_command',
    lambda root: _LAUNCHER.format(hello=json.dumps(hello).encode()),
  )
  monkeypatch.setattr(local.subprocess, 'Popen', start)
  backend = local.LocalBackend(1, zygote=False, work_dir=tmp_path)
  job = Job('a', 'main.py', files={'main.py': 'pass'})
  with contextlib.closing(backend):
    assert backend.start() == 'T3'
    started[0].kill()
    started[0].wait()
    hello['cgroups'] = False
    for n in (2, 3):  # the next job finds none that runs, either
      result = backend.run(job, 0, 1.0)
      assert result.outcome is Outcome.INFRASTRUCTURE
      assert 'offers T2, not T3' in result.message
      assert len(started) == n and started[-1].returncode is not None
    assert backend._process is None and backend.tier == 'T3'
