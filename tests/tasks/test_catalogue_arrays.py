"""Tasks whose answers are arrays: what they hold, and where the originals go."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csgraph

from tests.tasks import catalogue


def prepared(name, home, *source):
  done = catalogue.prepare(name, home, *map(str, source))
  assert done.returncode == 0, done.stderr
  with np.load(home / 'private/answers.npz') as found:
    answers = dict(found)
  for half in catalogue.HALVES:
    assert 0.4 <= (answers['split'] == half).mean() <= 0.6
  return answers


@pytest.fixture(scope='module')
def paths(tmp_path_factory):
  """(public folder, answers) of the stand-in of CLRS."""
  home = tmp_path_factory.mktemp('paths')
  return home / 'public', prepared('CLRS', home, '--standin')


def test_a_pointer_is_the_node_before_the_last_on_the_shortest_path(paths):
  public, answers = paths
  with np.load(public / 'test.npz') as test:
    weights = test['A']
  nodes = weights.shape[1]
  other = ~np.eye(nodes, dtype=bool)
  rows = np.repeat(np.arange(nodes)[:, None], nodes, axis=1)
  for graph, found in zip(weights, answers['Pi']):
    _, before = csgraph.floyd_warshall(graph, return_predecessors=True)
    before = np.where(before < 0, rows, before)
    assert (found == before)[other].all()


def test_a_node_points_back_by_its_own_edge_or_by_a_shorter_way(paths):
  public, answers = paths
  with np.load(public / 'test.npz') as test:
    weights = test['A']
  nodes = np.arange(weights.shape[1])
  kinds = set()
  for graph, found in zip(weights, answers['Pi']):
    far = csgraph.floyd_warshall(graph * (1 - np.eye(len(graph))))
    edges = np.where(graph > 0, graph, np.inf)
    np.fill_diagonal(edges, np.inf)
    back = far + edges.T  # from i to k and over one edge to i
    last = np.where(
      np.diag(graph) > back.min(axis=1), back.argmin(axis=1), nodes
    )
    kinds |= set(found.diagonal() == nodes)
    assert (found.diagonal() == last).all()
  assert kinds == {True, False}


def test_pointers_of_hidden_graphs_are_in_no_file(paths):
  public, answers = paths
  with (
    np.load(public / 'test.npz') as test,
    np.load(public / 'train.npz') as own,
  ):
    assert sorted(test) == ['A', 'adj', 'pos']
    assert own['Pi'].shape[1:] == (16, 16) and test['A'].shape[1:] == (64, 64)
  assert answers['Pi'].dtype == np.int64
  assert not np.load(public / 'sample_submission.npy').any()


def graphs(count, nodes):
  rng = np.random.RandomState(nodes)
  shape = count, nodes, nodes
  return {
    'pos': rng.rand(count, nodes),
    'A': rng.rand(*shape),
    'adj': np.ones(shape),
    'Pi': rng.randint(nodes, size=shape).astype(float),
  }


def test_exported_graphs_stay_as_they_are(tmp_path):
  raw = tmp_path / 'raw'
  raw.mkdir()
  train, test = graphs(5, 3), graphs(40, 4)
  np.savez(raw / 'train.npz', **train)
  np.savez(raw / 'test.npz', **test)
  answers = prepared('CLRS', tmp_path / 'out', '--raw', raw)
  assert (answers['Pi'] == test['Pi']).all()
  for part, want in (('train', train), ('test', test)):
    with np.load(tmp_path / f'out/public/{part}.npz') as found:
      for name in found:
        assert (found[name] == want[name]).all()


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    ({'A': np.array([{}], dtype=object)}, 'pickle'),
    ({'A': None}, "'A is not a file"),
    ({'Pi': np.zeros((40, 4, 4, 4))}, 'Pi has 4 axes, not 3'),
  ],
)
def test_an_export_of_another_form_is_refused_with_a_reason(
  change, words, tmp_path
):
  raw = tmp_path / 'raw'
  raw.mkdir()
  np.savez(raw / 'train.npz', **graphs(5, 3))
  found = {**graphs(40, 4), **change}
  kept = {k: v for k, v in found.items() if v is not None}
  np.savez(raw / 'test.npz', allow_pickle=True, **kept)
  done = catalogue.prepare('CLRS', tmp_path / 'out', '--raw', str(raw))
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert words in done.stderr.strip().splitlines()[-1]
