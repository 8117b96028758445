"""Executions on much data begin and end as soon as on little."""

from __future__ import annotations

import statistics

import pytest

from jaxagent import sandbox
from jaxagent.types import Job, Outcome

FILES, BYTES, JOBS = 139_000, 8 << 30, 64
# Wall time on a shared machine: the medians are compared, not the slowest.
MOST_LATER_S = 0.2


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """A small folder, one of 139,000 files, and one with a sparse file of 8 GB."""
  root = tmp_path_factory.mktemp('mounts')
  made = {name: root / name for name in ('small', 'many', 'large')}
  for folder in made.values():
    folder.mkdir(mode=0o755)
    (folder / 'x.csv').write_text('7')
  for number in range(FILES):
    (made['many'] / f'{number:06}.json').touch()
  with open(made['large'] / 'video.bin', 'wb') as file:
    file.truncate(BYTES)
  return made


@pytest.mark.slow
@pytest.mark.parametrize('zygote', [False, True])
def test_no_execution_starts_later_for_what_it_is_shown(folders, zygote):
  script = "print(open('data/x.csv').read())"
  seconds = {name: [] for name in folders}
  with sandbox.SandboxPool(1, min_tier='T1', zygote=zygote) as pool:
    for number in range(JOBS):
      for name, folder in folders.items():
        result = pool.submit(
          Job(
            f'{name}{number}',
            'main.py',
            files={'main.py': script},
            mounts={'data': folder},
          )
        ).result()
        assert result.outcome is Outcome.OK and result.output.strip() == '7'
        seconds[name].append(result.startup_s + result.teardown_s)
  small = statistics.median(seconds['small'])
  for name in ('many', 'large'):
    assert statistics.median(seconds[name]) - small < MOST_LATER_S, seconds
