"""Each folder of the catalogue: stand-in, starter, reference, the real layouts."""

from __future__ import annotations

import hashlib
import importlib.util

import numpy as np
import pandas as pd
import pytest

from jaxagent import graders
from jaxagent.envs import tasks as task_lib
from jaxagent.graders import Scope
from jaxagent.sandbox import cpu_levels
from jaxagent.tasks import table as table_lib
from tests.tasks import catalogue, layouts, residues

QUICK = ('spaceship-titanic', 'tweet-sentiment-extraction')


# The fast subset takes two, the test command six; `--all` and
# `python -m jaxagent.tasks check` all.
SLOW = (
  'aerial-cactus-identification',
  'leaf-classification',
  'learning-agency-lab-automated-essay-scoring-2',
  'spooky-author-identification',
)


def marked(names):
  marks = dict.fromkeys(SLOW, pytest.mark.slow)
  return [
    n if n in QUICK else pytest.param(n, marks=marks.get(n, pytest.mark.quiet))
    for n in names
  ]


NAMES = catalogue.names()
# Whose files are not train.csv and test.csv with the ids of the answers.
OTHER_FILES = (
  'AI4Code',
  'CLRS',
  'amp-parkinsons-disease-progression-prediction',
  'babylm',
  'cifar10',
  'imdb',
  'ogbn-arxiv',
  'random-acts-of-pizza',
  layouts.ANIMALS,
  layouts.SALT,
  layouts.SIGNS,
  *layouts.FILES,
)
TABLES = [n for n in NAMES if n not in OTHER_FILES]
every_task = pytest.mark.parametrize('name', marked(NAMES))
every_table = pytest.mark.parametrize('name', marked(TABLES))


class Prepared:
  """Stand-ins, each made once, with the scripts' submissions."""

  def __init__(self, home):
    self.home, self.made, self.halves = home, set(), {}
    self.submissions: dict[tuple[str, str], bytes] = {}

  def folder(self, name):
    path = self.home / name
    if name not in self.made:
      done = catalogue.prepare(name, path, '--standin')
      assert done.returncode == 0, done.stderr
      self.made.add(name)
    return path

  def submission(self, name, script):
    key = name, script
    if key not in self.submissions:
      path = catalogue.TASKS / name / script
      public = self.folder(name) / 'public'
      self.submissions[key] = catalogue.run(path, public)
    return self.submissions[key]

  def graded(self, name, script):
    key = name, script
    if key not in self.halves:
      submission = self.submission(name, script)
      self.halves[key] = catalogue.halves(name, self.folder(name), submission)
    return self.halves[key]

  def scores(self, name, script):
    halves = self.graded(name, script)
    return [catalogue.score(name, *halves[half]) for half in catalogue.HALVES]


@pytest.fixture(scope='module')
def standins(tmp_path_factory):
  return Prepared(tmp_path_factory.mktemp('standins'))


def digests(folder):
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and path.stem != 'submission'
  }


def test_there_is_a_folder_for_each_task_that_is_tested_quickly():
  assert {*QUICK, *SLOW} <= set(NAMES)


@every_task
def test_folder_is_read_and_its_scores_point_the_right_way(name, tasks_dir):
  spec = task_lib.load_task(name, tasks_dir)
  assert spec.version == 2
  sign = 1 if spec.higher_is_better else -1
  assert sign * (spec.m_best - spec.m_init) > 0
  assert spec.details.papers and spec.details.source.rules
  text = (spec.root / 'scripts/research_problem.txt').read_text()
  assert 'stand-in' in text and spec.submission in text


@every_task
def test_prepared_twice_gives_the_same_bytes(name, standins, tmp_path):
  done = catalogue.prepare(name, tmp_path, '--standin')
  assert done.returncode == 0, done.stderr
  once = digests(standins.folder(name))
  assert digests(tmp_path) == once
  answers = catalogue.answers_of(name, tmp_path).relative_to(tmp_path)
  assert str(answers) in once and len(once) > 3


@every_task
def test_sizes_are_as_task_yaml_says(name, standins, tasks_dir):
  files = [
    p for p in (standins.folder(name) / 'public').rglob('*') if p.is_file()
  ]
  size = sum(p.stat().st_size for p in files) / 1e6
  said = task_lib.load_task(name, tasks_dir).details.standin_mb
  assert abs(size - said) < 0.06 + 0.05 * said and size < 20


@every_task
def test_scripts_score_what_task_yaml_says(name, standins, tasks_dir):
  scale = task_lib.load_task(name, tasks_dir).details.variants['standin']
  starter = standins.scores(name, 'env/train.py')
  reference = standins.scores(name, 'solution/reference.py')
  assert starter == pytest.approx(
    [scale.m_init, scale.m_init_private], rel=1e-5
  )
  assert reference == pytest.approx(
    [scale.m_best, scale.m_best_private], rel=1e-5
  )


@every_task
def test_reference_is_better_by_three_standard_errors_on_both_halves(
  name, standins
):
  one = standins.graded(name, 'env/train.py')
  two = standins.graded(name, 'solution/reference.py')
  for half in catalogue.HALVES:
    assert catalogue.margin(name, one[half], two[half]) > 3, half


@every_task
def test_sample_is_not_better_than_the_starter(name, standins):
  home = standins.folder(name)
  sample = catalogue.sample_of(name, home)
  halves = catalogue.halves(name, home, sample.read_bytes())
  metric = catalogue.record(name)['metric']
  sign = 1 if graders.higher_is_better(metric, 'strict') else -1
  for half, starter in zip(
    catalogue.HALVES, standins.scores(name, 'env/train.py')
  ):
    grade = catalogue.graded(name, *halves[half])
    # One that is all alike has no correlation.
    assert grade.score is None or sign * grade.score <= sign * starter


@every_task
def test_whole_submission_scores_as_its_rows_of_a_half(name, standins):
  home = standins.folder(name)
  path = home / catalogue.submission_of(name)
  path.write_bytes(standins.submission(name, 'env/train.py'))
  metric = catalogue.record(name)['metric']
  for half, want in zip(
    catalogue.HALVES, standins.scores(name, 'env/train.py')
  ):
    grade = graders.grade_files(
      metric,
      path,
      catalogue.answers_of(name, home),
      'strict',
      Scope(split=half),
    )
    assert grade.score == pytest.approx(want, abs=1e-5), grade.reason


@every_task
def test_labels_are_nowhere_in_public(name, standins):
  """No file repeats the answers, and no table has a target beside a hidden id."""
  home = standins.folder(name)
  record = catalogue.record(name)
  if catalogue.is_arrays(name):  # their files have tests of their own
    return
  answers = catalogue.read(name, home / 'private/answers.csv')
  assert list(answers.columns)[-1] == 'split'
  if not record.get('id'):  # its files have tests of their own
    return
  hidden = set(answers[record['id']].astype(str))
  targets = [c for c in answers.columns if c not in (record['id'], 'split')]
  sample = catalogue.sample_of(name, home)
  for path in (home / 'public').rglob('*.csv'):
    table = layouts.cells(path)
    if path == sample:
      assert set(table[record['id']]) == hidden
    elif set(table.columns) & {*targets, 'author', 'species', 'label'}:
      if name == layouts.NOMAD:  # there both tables count from 1
        test = layouts.cells(home / 'public/test.csv')
        same = [c for c in test.columns if c != 'id']
        assert not len(table.merge(test, on=same))
      elif name == 'cifar10':  # and here both count from 0
        train, test = (
          {i.tobytes() for i in np.load(home / f'public/{part}_images.npy')}
          for part in ('train', 'test')
        )
        assert train and test and not train & test
      elif name == 'imdb':  # and here the training set has no ids
        test = layouts.cells(home / 'public/test.csv')
        assert not set(table['text']) & set(test['text'])
      elif name == layouts.LUNGS:  # the first week of a hidden patient is known
        patients = table['Patient'].value_counts()
        if path.name == 'test.csv':
          assert (patients == 1).all()
        else:
          assert not set(patients.index) & set(answers['Patient'])
      else:
        assert not set(table[record['id']]) & hidden, path
  names = {p.name for p in (home / 'public').rglob('*')}
  assert not names & {'answers.csv', 'test_orders.csv', 'prepare.py'}


@every_table
def test_ids_and_order_of_rows_tell_nothing_of_the_half(name, standins):
  answers = layouts.cells(standins.folder(name) / 'private/answers.csv')
  valid = (answers['split'] == 'valid').astype(float)
  assert 0.4 <= valid.mean() <= 0.6
  lag = pd.Series(valid.to_numpy())
  assert abs(lag.autocorr(1)) < 0.15 or name == 'spaceship-titanic'
  assert abs(lag.corr(pd.Series(range(len(lag))))) < 0.1


# Whose ids say what they ask for: a pixel's place, or a week.
ASKING = (layouts.PAGES, layouts.LUNGS)


@pytest.mark.parametrize(
  'name',
  marked(n for n in NAMES if n not in ASKING and not catalogue.is_arrays(n)),
)
def test_no_residue_of_the_row_or_the_id_tells_a_label(name, standins):
  """Nor the half: by any of them a script would score without the data."""
  home = standins.folder(name)
  answers = layouts.cells(home / 'private/answers.csv')
  column = catalogue.record(name).get('id') or 'row'
  shown = layouts.cells(catalogue.sample_of(name, home))
  if column not in answers:
    answers[column] = [str(k) for k in range(len(answers))]
  elif column in shown and answers[column].is_unique:
    answers = answers.set_index(column).loc[shown[column]].reset_index()
  labels = answers.drop(columns=[column, 'height', 'width'], errors='ignore')
  found = residues.most_telling(answers[column], labels)
  assert found.chance > 1e-3, found


def test_no_residue_of_its_number_tells_a_recording_without_birds(standins):
  """Rows of birds ask for a species each, so recordings are compared here."""
  answers = layouts.cells(
    standins.folder(layouts.BIRDS) / 'private/answers.csv'
  )
  recordings = answers['Id'].astype(int) // 100
  birds = answers['Probability'].astype(int).groupby(recordings).sum()
  labels = pd.DataFrame({'silent': [str(n == 0) for n in birds]})
  found = residues.most_telling(pd.Series(birds.index.astype(str)), labels)
  assert found.chance > 1e-3, found


@pytest.mark.parametrize('number', ['row', 'id'])
def test_a_label_that_follows_a_residue_is_found(number):
  """As an empty scene in each fourth row did, and silence by a recording's number."""
  rng = np.random.RandomState(0)
  ids = pd.Series([str(10**18 + k) for k in rng.permutation(10**6)[:64]])
  places = range(64) if number == 'row' else map(int, ids)
  told = pd.DataFrame({'y': ['-' if k % 7 == 0 else '1 3' for k in places]})
  found = residues.most_telling(ids, told)
  assert found.chance < 1e-6 and (found.number, found.modulus) == (number, 7)
  chance = told.sample(frac=1, random_state=0).reset_index(drop=True)
  assert residues.most_telling(ids, chance).chance > 0.01


@every_table
def test_data_of_mlebench_stays_as_it_is_and_its_answers_are_divided(
  name, standins, tmp_path
):
  if catalogue.record(name)['source']['kind'] != 'mlebench':
    pytest.skip('mle-bench does not have it')
  folder = tmp_path / 'mlebench'
  test = layouts.lay_out_mlebench(
    name, standins.folder(name) / 'public', folder
  )
  home = tmp_path / 'out'
  done = catalogue.prepare(name, home, '--mlebench', str(folder))
  assert done.returncode == 0, done.stderr
  public = folder / name / 'prepared/public'
  for path in sorted(public.rglob('*')):
    if path.is_file():
      mine = home / 'public' / path.relative_to(public)
      if path.suffix == '.csv':
        pd.testing.assert_frame_equal(layouts.cells(mine), layouts.cells(path))
      else:
        assert mine.read_bytes() == path.read_bytes()
  check_answers(name, home, test)


def check_answers(name, home, labelled):
  """The answers are those of these labelled rows, in both halves."""
  answers = layouts.cells(home / 'private/answers.csv')
  column = catalogue.record(name)['id']
  assert sorted(answers[column]) == sorted(labelled[column])
  assert set(answers['split']) == set(catalogue.HALVES)
  truth = labelled.drop_duplicates(column).set_index(column)
  target = layouts.ONE_HOT.get(name)
  for row in answers.to_dict('records'):
    true = truth.loc[row[column]]
    if target:
      assert float(row[true[target]]) == 1.0
      continue
    for key in set(row) - {column, 'split'}:
      assert row[key] == true[key] or float(row[key]) == float(true[key])


# Held out: mle-bench's tenth, but for these.
SHARES = {'tabular-playground-series-may-2022': 0.25}
LAST = ('spaceship-titanic', 'house-price')


@every_table
def test_original_files_are_split_as_their_source_does(
  name, standins, tmp_path
):
  folder = tmp_path / 'raw'
  table = layouts.lay_out_raw(name, standins.folder(name) / 'public', folder)
  home = tmp_path / 'out'
  done = catalogue.prepare(name, home, '--raw', str(folder))
  assert done.returncode == 0, done.stderr
  if name in (layouts.INSULTS, layouts.TOXIC, layouts.BIAS):
    held_out = table[layouts.ROWS :]
  elif name.startswith('feedback-prize'):
    held_out = table.sample(frac=1, random_state=42)[int(0.98 * len(table)) :]
  elif name in LAST:
    held_out = table[int(len(table) * 0.8) :]
  else:
    from sklearn.model_selection import train_test_split

    share = SHARES.get(name, 0.1)
    train, held_out = train_test_split(table, test_size=share, random_state=0)
    if name == 'tabular-playground-series-may-2022':
      held_out['id'] = [str(len(train) + k) for k in range(len(held_out))]
    if name == layouts.NOMAD:
      for k, old in enumerate(held_out['id'], 1):
        data = (home / f'public/test/{k}/geometry.xyz').read_bytes()
        assert data == f'crystal {old}'.encode()
      held_out['id'] = [str(k) for k in range(1, len(held_out) + 1)]
  check_answers(name, home, held_out)
  train = layouts.cells(home / 'public/train.csv')
  assert len(train) == len(table) - len(held_out)


@every_task
def test_without_data_the_source_and_its_rules_are_named(name, tmp_path):
  source = catalogue.record(name)['source']
  (tmp_path / 'empty').mkdir()
  for choice in ([], ['--raw', str(tmp_path / 'empty')]):
    done = catalogue.prepare(name, tmp_path / 'out', *choice)
    assert done.returncode == 1
    words = ' '.join(done.stderr.split())
    assert 'Traceback' not in words
    assert 'Rules: ' in words and 'https://' in words and source['id'] in words
    assert not (tmp_path / 'out/private').exists()


@every_task
def test_task_yaml_and_prepare_name_one_source(name):
  path = catalogue.TASKS / name / 'scripts/prepare.py'
  spec = importlib.util.spec_from_file_location('one', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  assert module.SOURCE.id == catalogue.record(name)['source']['id']
  kind = catalogue.record(name)['source']['kind']
  assert module.SOURCE.mlebench is (kind == 'mlebench')


def test_table_of_the_catalogue_in_the_docs_is_what_the_folders_say(tasks_dir):
  specs = task_lib.list_tasks(tasks_dir, version=2)
  page = (tasks_dir.parent / 'docs/tasks.md').read_text()
  assert table_lib.markdown(specs) in page  # python -m jaxagent.tasks.table
  programs = [s.name for s in specs if s.kind == 'speed']
  assert len(specs) == len(NAMES) + len(programs)


@pytest.mark.slow
@every_task
def test_scripts_score_the_same_on_a_cpu_without_wide_vectors(name, standins):
  if 'avx2' not in cpu_levels.machine_flags():
    pytest.skip('this CPU has no vector units to leave out')
  home = standins.folder(name)
  for script in ('env/train.py', 'solution/reference.py'):
    submission = catalogue.run(
      catalogue.TASKS / name / script, home / 'public', 'no-avx2'
    )
    halves = catalogue.halves(name, home, submission)
    scores = [catalogue.score(name, *halves[h]) for h in catalogue.HALVES]
    assert scores == standins.scores(name, script), script
