"""What a task hides is found wherever the sandbox would show it."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from jaxagent.envs.specs import label_sources
from jaxagent.envs.tasks import list_tasks, load_task

TASKS = pathlib.Path(__file__).parents[3] / 'tasks'


def test_every_copy_is_found(tmp_path, monkeypatch):
  import sklearn.datasets

  for name in ('a', 'b'):
    (tmp_path / name / 'sklearn/datasets/data').mkdir(parents=True)
  monkeypatch.syspath_prepend(tmp_path / 'a')
  monkeypatch.setattr(
    label_sources, '_ELSEWHERE', (str(tmp_path / 'b'), '/no/such/*')
  )
  found = label_sources.folders([load_task('digits', TASKS)])
  home = pathlib.Path(sklearn.datasets.__file__).parent.resolve()
  wanted = {tmp_path / n / 'sklearn/datasets/data' for n in ('a', 'b')}
  assert wanted | {home / 'data'} <= set(found)
  assert found == sorted(set(found))


def test_every_bundled_task_says_where_its_labels_lie():
  for spec in list_tasks(TASKS, version=1):
    assert bool(spec.hides) != bool(spec.exposed), spec.name
    assert bool(label_sources.folders([spec])) == bool(spec.hides)


@pytest.mark.parametrize(
  'exposed, tier, reason',
  [
    ('', 'T2', ''),
    ('', None, ''),
    ('', 'T0', 'tier T0 contains nothing'),
    ('in x', 'T3', 'labels exposed: in x'),
    ('in x', None, 'labels exposed: in x'),
  ],
)
def test_rewards_are_flagged(exposed, tier, reason):
  spec = dataclasses.replace(load_task('wine', TASKS), exposed=exposed)
  assert label_sources.untrusted(spec, tier) == reason
