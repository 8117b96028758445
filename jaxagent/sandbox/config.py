"""Options of the sandbox."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import Any

from jaxagent.options import Section, must, option, relation
from jaxagent.sandbox import cpu_levels
from jaxagent.sandbox.errors import TIERS

BACKENDS = ('local', 'docker', 'ray')
REUSES = ('off', 'recent')


def is_ray_address(address: Any) -> bool:
  """Returns whether it is '', 'auto', HOST:PORT or [IPV6]:PORT."""
  if address in ('', 'auto'):
    return True
  try:
    url = urllib.parse.urlsplit(f'//{address}')
    alone = url.netloc == address and not re.search(r'[\s@]', address)
    return bool(alone and url.hostname and url.port)
  except ValueError:  # no port of a machine
    return False


@dataclasses.dataclass(frozen=True)
class SandboxOptions(Section):
  """Backend and limits of executions, and how many run at once."""

  backend: str = option(
    'local',
    choices=BACKENDS,
    help='Where executions run: on this machine, in containers, or on Ray.',
  )
  docker_image: str = option(
    'jaxagent-sandbox',
    help='Image of backend docker.',
    check=must(
      lambda image: isinstance(image, str) and image.strip(),
      'must be the name of an image; python -m jaxagent.sandbox image makes '
      'one.',
    ),
    advanced=True,
  )
  ray_address: str = option(
    '',
    help="Cluster of backend ray, HOST:PORT or 'auto'; '': start one here.",
    check=must(
      is_ray_address,
      'must be HOST:PORT of a cluster that has a node on this machine, '
      "'auto' for the one that runs here, or '', which starts a private Ray.",
    ),
    advanced=True,
  )
  min_tier: str = option(
    'T2',
    choices=tuple(reversed(TIERS)),
    help='Weakest isolation that is accepted; see docs/sandbox.md.',
    advanced=True,
  )
  slots: int = option(2, help='Executions at once.')
  threads: int = option(1, help='CPUs of one execution.')
  gpus: tuple[str, ...] = option(
    (),
    help='GPUs, by number, for executions of tasks that ask for some; (): none.',
    advanced=True,
  )
  zygote: bool = option(
    True, help='Fork executions from a process that has imported the libraries.'
  )
  cpu_level: str = option(
    cpu_levels.DEFAULT,
    choices=cpu_levels.LEVELS,
    help='Vector units that executions use, the same on every node.',
    advanced=True,
  )
  recorded: str = option(
    '',
    help='File of real executions: a job that is in it is answered from it and marked, '
    "another one runs and is added; for benchmarks of many seeds. '': none.",
    advanced=True,
  )
  reuse: str = option(
    'off',
    choices=REUSES,
    help='Whether a job that equals one that waits, runs, or is among the last 256 that '
    'ended is answered by it and marked (recent), or runs (off).',
    advanced=True,
  )
  timeout_s: float = option(
    3.0,
    unit='s',
    least=0,
    help="Limit of one execution; 0: each task's own.",
  )
  step_timeout_s: float = option(
    60.0,
    unit='s',
    above=0,
    help='Limit of one step: editor, queue and execution.',
  )
  memory_mb: int = option(
    2048,
    unit='MB',
    least=0,
    help="Memory of one execution; 0: each task's own limit.",
    check=must(
      lambda most: most == 0 or most >= 256,
      'is too little for scikit-learn, which alone takes about 150; give 256 '
      "or more, or 0 for each task's own limit.",
    ),
  )

  relations = (
    relation(
      'ray_address',
      'backend',
      holds=lambda address, backend: not address or backend == 'ray',
      say='{at}ray_address={ray_address!r} is for '
      "{at}backend='ray', not {backend!r}.",
    ),
    relation(
      'threads',
      'zygote',
      holds=lambda threads, zygote: threads == 1 or not zygote,
      say='{at}threads={threads}: jobs of the zygote have one thread; set '
      '{at}zygote=False.',
    ),
    relation(
      'timeout_s',
      'step_timeout_s',
      holds=lambda execution, step: execution < step,
      say='{at}timeout_s={timeout_s} must be below '
      '{at}step_timeout_s={step_timeout_s}: deadlines nest '
      '(execution < step < lease < watchdog).',
    ),
  )
