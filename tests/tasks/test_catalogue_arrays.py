"""Tasks whose answers are arrays: what they hold, and where the originals go."""

from __future__ import annotations

import hashlib
import zipfile

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


def test_halves_of_the_graphs_are_the_same_everywhere(paths):
  """With any version of Python and NumPy, or scores could not be compared."""
  _, answers = paths
  assert ''.join(half[0] for half in answers['split']) == (
    'ppppvvvpvpvppvppvvpvppvpvpvvvppppvvppvpvpvvvppppvpvpvvvvvpppppvv'
  )


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


BABY_SOURCES = (
  'aochildes bnc_spoken cbt children_stories gutenberg open_subtitles qed '
  'simple_wikipedia switchboard wikipedia'
).split()


def lay_out_texts(folder, size):
  """Writes babylm_data.zip with texts of chance; returns those of the test."""
  rng = np.random.RandomState(0)
  folder.mkdir()
  tests = {}
  with zipfile.ZipFile(folder / 'babylm_data.zip', 'w') as archive:
    for part, inside in (
      ('train', 'babylm_10M'),
      ('dev', 'babylm_dev'),
      ('test', 'babylm_test'),
    ):
      for name in BABY_SOURCES:
        count = size if part == 'test' else 300
        data = rng.randint(256, size=count).astype(np.uint8).tobytes()
        archive.writestr(f'babylm_data/{inside}/{name}.{part}', data)
        if part == 'test':
          tests[name] = data
  return tests


def test_no_piece_of_hidden_text_shows_what_is_around_the_byte_of_another(
  tmp_path,
):
  tests = lay_out_texts(tmp_path / 'raw', 110_000)
  answers = prepared('babylm', tmp_path / 'out', '--raw', tmp_path / 'raw')
  public = tmp_path / 'out/public'
  contexts = np.load(public / 'contexts.npy')
  assert contexts.shape == (2000, 256) and answers['symbol'].shape == (2000,)
  places, sources = set(), set()
  for context, symbol in zip(contexts, answers['symbol']):
    (found,) = [
      (name, data.index(context.tobytes()))
      for name, data in tests.items()
      if context.tobytes() in data
    ]
    assert tests[found[0]][found[1] + 256] == symbol
    places.add(found)
    sources.add(found[0])
  assert len(places) == 2000 and sources == set(BABY_SOURCES)
  for name in BABY_SOURCES:
    own = sorted(place for found, place in places if found == name)
    # 257 would be a piece that begins behind the hidden byte.
    assert np.diff(own).min() > 257
  files = [p for p in (public / 'babylm_data').rglob('*') if p.is_file()]
  assert len(files) == 20
  assert all(p.suffix in ('.train', '.dev') for p in files)
  assert all(p.stat().st_size == 300 for p in files)


def test_too_few_hidden_texts_are_half_a_download(tmp_path):
  lay_out_texts(tmp_path / 'raw', 10_000)
  done = catalogue.prepare(
    'babylm', tmp_path / 'out', '--raw', str(tmp_path / 'raw')
  )
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert 'holds 190 pieces' in done.stderr


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  """(public folder, answers) of the stand-in of babylm."""
  home = tmp_path_factory.mktemp('texts')
  return home / 'public', prepared('babylm', home, '--standin')


@pytest.mark.slow
def test_no_context_of_the_stand_in_is_in_its_training_texts(texts):
  """Nor does one hold the byte that another asks for."""
  public, answers = texts
  contexts = np.load(public / 'contexts.npy')
  whole = [
    path.read_bytes()
    for path in (public / 'babylm_data').rglob('*')
    if path.is_file()
  ]
  whole += [row.tobytes() for row in contexts]
  everything = b'\0'.join(whole)
  assert len(np.unique(answers['symbol'])) > 25
  for context, symbol in zip(contexts, answers['symbol']):
    assert context[-80:].tobytes() + bytes([symbol]) not in everything


def test_halves_of_the_texts_are_the_same_everywhere(texts):
  """With any version of Python and NumPy, or scores could not be compared."""
  _, answers = texts
  halves = ''.join(half[0] for half in answers['split'])
  assert hashlib.sha256(halves.encode()).hexdigest() == (
    '07c7b59e854079e552a69ebad41e1a489fd1a287b9dbc62dd31d69da3f5001a4'
  )
