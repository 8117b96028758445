"""Layouts of real data that are no two tables: JSON, reviews, graph, visits."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest

from tests.tasks import catalogue, layouts

pytestmark = pytest.mark.slow
PIZZA = 'random-acts-of-pizza'
PARKINSON = 'amp-parkinsons-disease-progression-prediction'


def prepared(name, home, *source):
  done = catalogue.prepare(name, home, *map(str, source))
  assert done.returncode == 0, done.stderr
  return layouts.cells(home / 'private/answers.csv')


def requests(path):
  return json.loads(path.read_text())


def test_the_giver_of_a_pizza_and_what_came_later_are_not_published(tmp_path):
  answers = prepared(PIZZA, tmp_path, '--standin')
  train, test = (
    requests(tmp_path / f'public/{part}.json') for part in ('train', 'test')
  )
  assert [row['request_id'] for row in test] == list(answers['request_id'])
  later = set(train[0]) - set(test[0])
  assert 'requester_received_pizza' in later
  assert {k for k in train[0] if k.endswith('_at_retrieval')} <= later
  for row in (*train, *test):
    assert 'giver_username_if_known' not in row


def test_pizza_of_mlebench_and_of_the_originals(tmp_path):
  prepared(PIZZA, tmp_path / 'standin', '--standin')
  rows = requests(tmp_path / 'standin/public/train.json')[:400]
  rows = [{'giver_username_if_known': 'N/A', **row} for row in rows]
  kept = ['giver_username_if_known', 'request_id', 'request_title']
  shown = [{k: row[k] for k in kept} for row in rows]
  public = tmp_path / 'mlebench' / PIZZA / 'prepared/public'
  private = public.parent / 'private'
  for path in (public, private, tmp_path / 'raw'):
    path.mkdir(parents=True)
  (public / 'train.json').write_text(json.dumps(rows[:300]))
  (public / 'test.json').write_text(json.dumps(shown[300:]))
  truth = pd.DataFrame(rows)[['request_id', 'requester_received_pizza']]
  truth['requester_received_pizza'] = truth['requester_received_pizza'] * 1
  truth[300:].to_csv(private / 'test.csv', index=False)
  for part, table in (('train', rows), ('test', shown[:100])):
    with zipfile.ZipFile(tmp_path / f'raw/{part}.json.zip', 'w') as archive:
      archive.writestr(f'{part}.json', json.dumps(table))
  known = truth.astype(str).set_index('request_id')['requester_received_pizza']
  for source, folder, hidden in (
    ('--mlebench', 'mlebench', list(known.index[300:])),
    ('--raw', 'raw', None),
  ):
    home = tmp_path / f'{folder}-out'
    answers = prepared(PIZZA, home, source, tmp_path / folder)
    # Of 400 with answers and 100 without, a fifth is held out.
    assert hidden is None or list(answers['request_id']) == hidden
    assert len(answers) == (80 if hidden is None else 100)
    given = list(answers['requester_received_pizza'])
    assert given == list(known[answers['request_id']])
    test = requests(home / 'public/test.json')
    assert [list(row) for row in test] == [kept[1:]] * len(answers)
    prepared(PIZZA, home, source, tmp_path / folder, '--as_published')
    test = requests(home / 'public/test.json')
    assert [list(row) for row in test] == [kept] * len(answers)


def test_numbers_of_reviews_do_not_tell_their_labels(tmp_path):
  home = tmp_path / 'raw'
  home.mkdir()
  with tarfile.open(home / 'aclImdb_v1.tar.gz', 'w:gz') as tar:
    for part in ('train', 'test'):
      for label in ('neg', 'pos'):
        for k in range(40):
          data = f'{label} review {part} {k}, it was\n'.encode()
          member = tarfile.TarInfo(f'aclImdb/{part}/{label}/{k}_9.txt')
          member.size = len(data)
          tar.addfile(member, io.BytesIO(data))
  answers = prepared('imdb', tmp_path / 'out', '--raw', home)
  test = layouts.cells(tmp_path / 'out/public/test.csv')
  is_positive = test['text'].str.startswith('pos').astype(int)
  assert list(answers['label'].astype(int)) == list(is_positive)
  assert list(answers['idx']) == list(test['idx'])
  assert abs(is_positive[:40].mean() - 0.5) < 0.3
  for half in catalogue.HALVES:
    assert answers['label'][answers['split'] == half].nunique() == 2
  answers = prepared('imdb', tmp_path / 'kept', '--raw', home, '--as_published')
  assert list(answers['label'].astype(int)) == [0] * 40 + [1] * 40


def unpacked(path):
  text = gzip.decompress(path.read_bytes()).decode()
  return pd.read_csv(io.StringIO(text), header=None)


def test_subjects_of_test_papers_are_in_no_file(tmp_path):
  answers = prepared('ogbn-arxiv', tmp_path / 'standin', '--standin')
  public = tmp_path / 'standin/public'
  test = unpacked(public / 'split/time/test.csv.gz')[0]
  labels = unpacked(public / 'raw/node-label.csv.gz')[0]
  assert len(test) == len(answers) and (labels[test] == -1).all()
  others = labels.drop(test)
  assert (others >= 0).all() and others.max() == 39
  years = unpacked(public / 'raw/node_year.csv.gz')[0]
  assert years[test].min() == 2019 and years.drop(test).max() == 2018
  edges = unpacked(public / 'raw/edge.csv.gz')
  assert (years[edges[0]].to_numpy() >= years[edges[1]].to_numpy()).all()
  # The whole of it again, as if it were the original.
  whole = labels.copy()
  whole[test] = answers['0'].astype(int).to_numpy()
  lines = '\n'.join(map(str, whole)) + '\n'
  (public / 'raw/node-label.csv.gz').write_bytes(gzip.compress(lines.encode()))
  (tmp_path / 'raw').mkdir()
  with zipfile.ZipFile(tmp_path / 'raw/arxiv.zip', 'w') as archive:
    for path in sorted(public.rglob('*.gz')):
      archive.write(path, f'arxiv/{path.relative_to(public)}')
  again = prepared('ogbn-arxiv', tmp_path / 'out', '--raw', tmp_path / 'raw')
  pd.testing.assert_frame_equal(again, answers)
  hidden = unpacked(tmp_path / 'out/public/raw/node-label.csv.gz')[0]
  assert (hidden[test] == -1).all()
  assert not (tmp_path / 'out/public/mapping').exists()
  source = ('--raw', tmp_path / 'raw', '--as_published')
  prepared('ogbn-arxiv', tmp_path / 'kept', *source)
  kept = unpacked(tmp_path / 'kept/public/raw/node-label.csv.gz')[0]
  assert list(kept) == list(whole)


def test_patients_are_in_one_half_and_their_ratings_nowhere(tmp_path):
  answers = prepared(PARKINSON, tmp_path / 'standin', '--standin')
  patients = answers['prediction_id'].str.split('_').str[0]
  assert (answers.groupby(patients)['split'].nunique() == 1).all()
  public = tmp_path / 'standin/public'
  for path in public.rglob('*.csv'):
    table = layouts.cells(path)
    if any(c.startswith('updrs_1') or c == 'NPX' for c in table.columns):
      known = set(table['patient_id']) & set(patients)
      assert not known or 'example_test_files' in str(path)
  test = layouts.cells(public / 'example_test_files/test.csv')
  assert not any(c in test.columns for c in ('updrs_1', 'rating'))


def test_two_patients_are_the_test_set_of_the_originals(tmp_path):
  prepared(PARKINSON, tmp_path / 'standin', '--standin')
  public = tmp_path / 'standin/public'
  raw = tmp_path / 'raw'
  raw.mkdir()
  for path in public.glob('*.csv'):
    (raw / path.name).write_bytes(path.read_bytes())
  clinical = layouts.cells(raw / 'train_clinical_data.csv')
  answers = prepared(PARKINSON, tmp_path / 'out', '--raw', raw)
  everyone = [int(p) for p in clinical['patient_id'].unique()]
  random.seed(42)
  want = {str(p) for p in random.sample(everyone, 2)}
  parts = answers['prediction_id'].str.extract(
    r'(\d+)_(\d+)_updrs_(\d)_plus_(\d+)'
  )
  assert set(parts[0]) == want and set(answers['split']) == {'valid', 'private'}
  assert (answers.groupby(parts[0])['split'].nunique() == 1).all()
  truth = clinical.set_index('visit_id')
  for row, rating in zip(parts.itertuples(index=False), answers['rating']):
    later = f'{row[0]}_{int(row[1]) + int(row[3])}'
    assert truth.loc[later, f'updrs_{row[2]}'] == rating != ''
  out = tmp_path / 'out/public'
  kept = layouts.cells(out / 'train_clinical_data.csv')
  assert set(kept['patient_id']) == set(map(str, everyone)) - want
  test = layouts.cells(out / 'example_test_files/test.csv')
  assert set(test['patient_id']) == want
  assert np.isin(test['updrs_test'], [f'updrs_{k}' for k in (1, 2, 3, 4)]).all()
