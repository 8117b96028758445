"""Device files that a job may open."""

from __future__ import annotations

import pytest

from jaxagent.sandbox import _job

DEVICES = ['/dev/nvidiactl', '/dev/nvidia-uvm', '/dev/nvidia0', '/dev/nvidia1']


@pytest.mark.parametrize(
  ('ids', 'own'),
  [
    ([], []),
    (['1'], ['/dev/nvidiactl', '/dev/nvidia-uvm', '/dev/nvidia1']),
    (['0', '1'], DEVICES),
    (['7'], ['/dev/nvidiactl', '/dev/nvidia-uvm']),
  ],
)
def test_a_job_may_open_its_own_gpus_and_a_job_without_none(ids, own):
  header = {'gpus': len(ids), 'gpu_ids': ids}
  assert _job.gpu_files(DEVICES, header) == own
