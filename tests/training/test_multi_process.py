"""One run by several processes, on devices of all of them."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from jaxagent import audit
from jaxagent.analysis.summary import load
from jaxagent.data.ledger import Ledger
from jaxagent.metrics import read_records
from jaxagent.models import __main__ as models_cli
from jaxagent.models import hf, init_decoder
from tests.learner.mesh_worker import MODEL
from tests.runs import QUICK, SMALL, share_tasks
from tests.training import multi_process_worker

ROOT = pathlib.Path(__file__).parents[2]
MAIN = (
  '-m', 'jaxagent.main',
  *SMALL,
  "--config.tasks.heldin=('wine',)",
  "--config.tasks.heldout=('diabetes',)",
  '--config.rl.updates=3',
  '--config.rl.batch_size=8',
  '--config.mesh.fsdp=4',
)  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _start(arguments, count: int) -> list[subprocess.Popen]:
  """Python with these arguments, in processes that have four devices together."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  each = f'--xla_force_host_platform_device_count={4 // count}'
  started = []
  for index in range(count):
    several = {
      'JAXAGENT_COORDINATOR': f'127.0.0.1:{port}',
      'JAXAGENT_NUM_PROCESSES': str(count),
      'JAXAGENT_PROCESS_ID': str(index),
    }
    started.append(
      subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
          **os.environ,
          'JAX_PLATFORMS': 'cpu',
          'XLA_FLAGS': f'{each} {QUICK}',
          **(several if count > 1 else {}),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
    )
  return started


def _finish(started) -> list[str]:
  said = [process.communicate(timeout=500)[0] for process in started]
  codes = [process.returncode for process in started]
  assert codes == [0] * len(codes), [text[-2000:] for text in said]
  return said


def test_two_and_four_processes_compute_what_one_does(tmp_path):
  """Weights and critic loaded from files, each process its own parts."""
  _, params = init_decoder(MODEL, 5)
  hf.save_hf(tmp_path / multi_process_worker.FOLDER, MODEL, params)
  found = []
  for count in (1, 2, 4):
    arguments = (
      '-m',
      'tests.training.multi_process_worker',
      str(tmp_path / str(count)),
    )
    out = _finish(_start(arguments, count))
    found.append(json.loads(out[0].splitlines()[-1]))
    assert all(text.splitlines()[-1] == 'followed' for text in out[1:])
  one, *several = found
  assert one['taught'] == one['again'] != one['moved']
  for other in several:
    assert other == pytest.approx(one, rel=1e-4, abs=1e-5, nan_ok=True)


def test_a_whole_run_by_two_processes_stopped_and_resumed(tmp_path):
  work = tmp_path / 'work'
  share_tasks(work)
  started = _start((*MAIN, f'--work_dir={work}'), 2)
  begun, end = work / 'rl/traces/update_000000.jsonl', time.monotonic() + 400
  while not begun.exists():
    assert started[0].poll() is None, started[0].communicate()[0][-2000:]
    assert time.monotonic() < end
    time.sleep(0.05)
  for process in started:  # as SLURM does, all of them
    process.send_signal(signal.SIGTERM)
  first, other = (process.communicate(timeout=200)[0] for process in started)
  assert [p.returncode for p in started] == [143, 143], (
    first[-2000:],
    other[-2000:],
  )
  assert 'is saved' in first and 'SIGTERM' not in other
  assert f'2 processes on 1 host ({socket.gethostname()}), 4 devices' in first
  first, other = _finish(_start((*MAIN, f'--work_dir={work}'), 2))
  assert 'summary.json' in first and 'summary.json' not in other
  assert load(work / 'summary.json')['rl']['heldin']['mean_reward']['n'] > 0
  ledger = Ledger.load(work / 'rl' / 'ledger.json')
  assert ledger.counts()['trained'] == 3 * 8
  assert audit.audit(work)['differences'] == []
  records = read_records(work / 'logs' / 'metrics.jsonl')
  assert [r['step'] for r in records] == [0, 1, 2]
  # The engine has the weights of the learner, whose devices are of both.
  assert records[0]['training/rollout_logps_diff_max'] < 1e-3
  # What both have saved is one checkpoint, for whoever reads it.
  out = tmp_path / 'hf'
  assert models_cli.main(['export', f'--model={work}', f'--out={out}']) == 0
  assert (out / 'model.safetensors').is_file()


def test_a_mesh_without_one_of_them_is_refused(tmp_path):
  small = (
    *MAIN[:-1],
    '--config.mesh.fsdp=2',
    f'--work_dir={tmp_path / "work"}',
  )
  for process in _start(small, 2):
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said[-2000:]
    assert 'config.mesh.fsdp=2' in said and 'every process has to be' in said
