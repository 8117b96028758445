"""Files of GPUs that the sandbox shows to the jobs that have them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

_OF_ALL = '/dev/nvidiactl', '/dev/nvidia-uvm', '/dev/nvidia-uvm-tools'


def files(gpus: Sequence[str]) -> list[str]:
  """Returns the device files of GPUs, by number, that are on this machine."""
  if not gpus:
    return []
  paths = (*_OF_ALL, *(f'/dev/nvidia{number}' for number in gpus))
  return [path for path in paths if pathlib.Path(path).exists()]
