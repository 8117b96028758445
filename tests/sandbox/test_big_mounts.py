"""Executions on much data begin and end as soon as on little, and nothing of it is kept."""

from __future__ import annotations

import statistics

import pytest

from jaxagent import sandbox
from jaxagent.envs import carried
from jaxagent.envs.snapshots import Snapshots
from jaxagent.envs.tasks import load_task
from jaxagent.files import bundled
from jaxagent.types import Blob, Job, Outcome, State

FILES, BYTES, JOBS = 139_000, 8 << 30, 64
# Wall time on a shared machine: the medians are compared, not the slowest.
MOST_LATER_S = 0.2
MOST_GROWN = 1_000_000  # bytes of the snapshots of 64 states


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


@pytest.mark.slow
def test_snapshots_after_64_executions_have_grown_by_less_than_1_mb(
  folders, tmp_path
):
  """The states are kept with the file that each execution wrote, and no data."""
  store = Snapshots(tmp_path / 'snapshots.sqlite')
  spec = load_task('wine', bundled.folder('tasks'))
  before = _size(tmp_path)
  keys = []
  with sandbox.SandboxPool(1, min_tier='T1') as pool:
    for number in range(JOBS):
      files = {
        'train.py': f"open('model.bin', 'wb').write(bytes([255, {number}]))"
      }
      result = pool.submit(
        Job(
          f'job{number}',
          'train.py',
          files=files,
          mounts={'data': folders[('many', 'large')[number % 2]]},
          changed_mb=64,
        )
      ).result()
      assert result.outcome is Outcome.OK
      kept, lines = carried.carry(files, result, spec, store, ['data'])
      assert set(kept) == {'train.py', 'model.bin'} and not lines
      assert isinstance(kept['model.bin'], Blob)
      state = State(f's{number}', 'wine', kept, None, None, step=number)
      keys.append(store.put(state))
  assert len(set(keys)) == JOBS and not store.missing(keys)
  grown = _size(tmp_path) - before
  assert 0 < grown < MOST_GROWN


def _size(folder):
  """Bytes of the files in a folder."""
  return sum(path.stat().st_size for path in folder.iterdir())
