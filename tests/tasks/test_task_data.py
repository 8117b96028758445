"""Variants of a task's data: made once each, and refused where they are broken."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import task_data
from jaxagent.envs.specs.task_data import DataSource
from jaxagent.files import bundled
from jaxagent.types import Scale
from tests.tasks import published

ID = 'random-acts-of-pizza'


@pytest.fixture
def spec(tmp_path):
  published.write(tmp_path / 'tasks')
  return lib.load_task('pizza', tmp_path / 'tasks')


@pytest.fixture
def kaggle(tmp_path):
  """mle-bench's data folder, with one competition."""
  home = tmp_path / 'mle-bench'
  for part in ('public', 'private'):
    (home / ID / 'prepared' / part).mkdir(parents=True)
    (home / ID / 'prepared' / part / 'x.csv').write_text('a\n1\n')
  return home


def test_a_variant_is_prepared_once_and_apart_from_the_others(
  spec, kaggle, tmp_path
):
  home = tmp_path / 'data'
  published_source = DataSource('mlebench', kaggle)
  made = {
    'standin': lib.prepare_task(spec, home),
    'mlebench': lib.prepare_task(spec, home, published_source),
    'raw': lib.prepare_task(spec, home, DataSource('raw', kaggle)),
  }
  assert len({task.public_dir for task in made.values()}) == 3
  for variant, task in made.items():
    given = (task.public_dir / 'source.txt').read_text()
    assert given == ('standin' if variant == 'standin' else f'{kaggle}/{ID}')
    assert task.spec.variant == variant and task.notes == ()
  again = lib.prepare_task(spec, home, published_source)
  assert again.public_dir == made['mlebench'].public_dir
  (kaggle / ID / 'prepared/public/x.csv').write_text('a\n1\n2\n')
  other = lib.prepare_task(spec, home, published_source)
  assert other.public_dir != made['mlebench'].public_dir


def test_what_gives_answers_away_stays_where_that_is_asked_for(
  spec, kaggle, tmp_path
):
  home = tmp_path / 'data'
  leaky = dataclasses.replace(
    spec, details=dataclasses.replace(spec.details, leaks='a field tells it')
  )
  clean = DataSource('mlebench', kaggle)
  kept = DataSource('mlebench', kaggle, as_published=True)
  # A task that gives nothing away is prepared as ever.
  same = [lib.prepare_task(spec, home, source) for source in (clean, kept)]
  assert same[0].public_dir == same[1].public_dir
  assert not same[1].spec.exposed
  assert not lib.prepare_task(leaky, home, clean).spec.exposed
  with pytest.raises(ValueError, match='as_published'):
    lib.prepare_task(leaky, home, kept)  # this script does not know the flag
  with pytest.raises(ValueError, match='a stand-in gives nothing away'):
    DataSource(as_published=True)


def test_scores_belong_to_a_variant(spec, kaggle, tmp_path):
  home, source = tmp_path / 'data', DataSource('mlebench', kaggle)
  assert lib.prepare_task(spec, home).spec.m_best == 0.9
  full = lib.prepare_task(spec, home, source)
  assert not full.spec.has_scale
  measured = Scale(0.6, 0.7, 0.61, 0.71, 'measured')
  task_data.write_scale(full.public_dir.parent, measured)
  full = lib.prepare_task(spec, home, source)
  assert (full.spec.m_init, full.spec.m_best_private) == (0.6, 0.71)
  assert lib.prepare_task(spec, home).spec.m_best == 0.9
  (full.public_dir.parent / task_data.SCALE_FILE).write_text('{')
  with pytest.raises(ValueError, match='damaged.*measure the task again'):
    lib.prepare_task(spec, home, source)


def test_what_the_hash_depends_on(spec, tmp_path):
  before = lib.content_hash(spec)
  source = dataclasses.replace(spec.details.source, url='https://other')
  details = dataclasses.replace(spec.details, source=source)
  assert lib.content_hash(dataclasses.replace(spec, details=details)) != before
  script = spec.root / 'scripts/prepare.py'
  script.write_text(script.read_text() + '\n# another\n')
  assert lib.content_hash(spec) != before


@pytest.mark.parametrize(
  ('variant', 'files', 'message'),
  [
    ('mlebench', None, 'no data of .*run `mlebench prepare -c random-acts'),
    (
      'raw',
      None,
      r'download it from https://example.org/pizza, accept its rule',
    ),
    ('raw', {}, 'no data of'),
    ('raw', {'train.csv.crdownload': b'a'}, 'half a download'),
    ('raw', {'train.csv': b'a', 'x.zip': b'PK\x03\x04half'}, 'x.zip .*half a'),
    (
      'raw',
      {'leaderboard.csv': b'version https://git-lfs.github.com/spec/v1\n'},
      'Git-LFS pointer, not the file; run `git lfs pull`',
    ),
  ],
)
def test_what_is_missing_or_broken_is_told_before_anything_runs(
  spec, tmp_path, variant, files, message
):
  home = tmp_path / 'kaggle'
  if files is not None:
    (home / ID).mkdir(parents=True)
    for name, content in files.items():
      (home / ID / name).write_bytes(content)
  (spec.root / 'scripts/prepare.py').write_text('raise SystemExit("it ran")')
  with pytest.raises(ValueError, match=f'task pizza: .*{message}') as said:
    lib.prepare_task(spec, tmp_path / 'data', DataSource(variant, home))
  assert '\n' not in str(said.value) and 'it ran' not in str(said.value)


def test_a_whole_zip_is_no_half_download(spec, tmp_path):
  folder = tmp_path / 'kaggle' / 'pizza'  # the task's own name is found, too
  folder.mkdir(parents=True)
  with zipfile.ZipFile(folder / 'x.zip', 'w') as archive:
    archive.writestr('a', 'b')
  source = DataSource('raw', folder.parent)
  assert lib.prepare_task(spec, tmp_path / 'data', source).spec.name == 'pizza'


def test_a_wrong_checksum_is_told_and_not_fatal(spec, tmp_path):
  folder = tmp_path / 'kaggle'
  folder.mkdir()
  (folder / 'a.csv').write_bytes(b'a')
  (folder / 'b.csv').write_bytes(b'b')
  right = hashlib.sha256(b'a').hexdigest()
  (folder / 'SHA256SUMS').write_text(
    f'{right}  a.csv\n{right} *b.csv\n{right}  c.csv\n'
  )
  source = DataSource('raw', folder)
  for _ in range(2):  # of what is there already, too
    task = lib.prepare_task(spec, tmp_path / 'data', source)
    assert [note.split(' ')[0] for note in task.notes] == [
      f'{folder}/b.csv',
      f'{folder}/c.csv',
    ]
    assert 'another version, or a broken download' in task.notes[0]


def test_a_checksum_that_became_right_is_told_no_more(spec, tmp_path):
  """Though names and sizes are those of the data that was prepared."""
  folder = tmp_path / 'kaggle'
  folder.mkdir()
  (folder / 'a.csv').write_bytes(b'a')
  (folder / 'MD5SUMS').write_text(f'{hashlib.md5(b"b").hexdigest()}  a.csv\n')
  source = DataSource('raw', folder)
  assert len(lib.prepare_task(spec, tmp_path / 'data', source).notes) == 1
  (folder / 'a.csv').write_bytes(b'b')
  assert lib.prepare_task(spec, tmp_path / 'data', source).notes == ()


def test_a_task_that_mlebench_does_not_have_is_told_so(kaggle, tmp_path):
  spec = lib.load_task('cifar10', bundled.folder('tasks'))
  (kaggle / 'cifar10').mkdir()
  with pytest.raises(ValueError, match=r'does not prepare it; .*\(--raw DIR\)'):
    lib.prepare_task(spec, tmp_path / 'data', DataSource('mlebench', kaggle))


@pytest.mark.parametrize('variant', ['mlebench', 'raw', 'packages'])
def test_inputs_of_programs_are_made_by_code_whatever_the_source(variant):
  spec = lib.load_task('vectorization', bundled.folder('tasks'))
  source = DataSource(variant, bundled.folder('tasks'))
  assert task_data.source_for(spec, source) == task_data.STANDIN


def test_checksums_of_mlebench_are_read(spec, kaggle, tmp_path):
  digest = hashlib.md5(b'a\n1\n').hexdigest()
  (kaggle / ID / 'prepared/checksums.yaml').write_text(
    f'zip: 12\npublic:\n  x.csv: {digest}\nprivate:\n  x.csv: {"0" * 32}\n'
  )
  task = lib.prepare_task(
    spec, tmp_path / 'data', DataSource('mlebench', kaggle)
  )
  (note,) = task.notes
  assert 'private/x.csv has the md5' in note


def test_a_list_of_checksums_that_is_no_yaml_is_told_and_not_fatal(
  spec, kaggle, tmp_path
):
  (kaggle / ID / 'prepared/checksums.yaml').write_text('public: [')
  source = DataSource('mlebench', kaggle)
  (note,) = lib.prepare_task(spec, tmp_path / 'data', source).notes
  assert 'checksums.yaml cannot be read' in note and '\n' not in note


@pytest.mark.parametrize(
  ('name', 'contents'),
  [
    (task_data.SCALE_FILE, ('5', 'null', '[1]', '"m_init"')),
    (task_data.NOTES_FILE, ('{', '5', '{}', None)),
  ],
)
def test_a_damaged_file_beside_the_data_is_named(
  spec, tmp_path, name, contents
):
  task = lib.prepare_task(spec, tmp_path / 'data')
  path = task.public_dir.parent / name
  for content in contents:
    if content is None:
      path.unlink()
    else:
      path.write_text(content)
    with pytest.raises(ValueError, match=f'{name} is damaged'):
      lib.prepare_task(spec, tmp_path / 'data')


def test_the_reason_of_a_failed_preparation_is_passed_on(tmp_path):
  """And not the list of downloads that follows it."""
  spec = lib.load_task(
    'wine', bundled.folder('tasks')
  )  # any spec: the script is another
  root = tmp_path / 'task'
  (root / 'scripts').mkdir(parents=True)
  (root / 'scripts/prepare.py').write_text(
    'import pathlib\n'
    'from jaxagent.tasks import kit\n'
    'source = kit.Source("x", "https://x", "none", ("a.csv",))\n'
    'def raw(folder):\n'
    '  kit.copied(folder, ["a.csv"])\n'
    'kit.prepare_from("", source, None, None, raw)\n'
  )
  spec = dataclasses.replace(spec, root=root)
  script = root / 'scripts/prepare.py'
  args = ['--public', 'a', '--private', 'b', '--raw', str(tmp_path)]
  with pytest.raises(ValueError, match='holds no a.csv; the download is not'):
    lib._run_prepare(spec, script, tmp_path, args)


def test_a_file_that_is_cut_off_is_told_with_the_remedy_and_the_command(
  tmp_path,
):
  """The command is one that can be called: its folders are not those of a scratch."""
  spec = lib.load_task('spooky-author-identification', bundled.folder('tasks'))
  folder = tmp_path / 'raw'
  folder.mkdir()
  (folder / 'train.csv').write_text('id,text,author\nid1,"cut off in the')
  with pytest.raises(ValueError, match='EOF inside string') as said:
    lib.prepare_task(spec, tmp_path / 'data', DataSource('raw', folder))
  command = f'prepare.py --public public --private private --raw {folder}`'
  assert command in str(said.value) and '\n' not in str(said.value)
  assert str(said.value).endswith('another version, download it again.')


def test_a_disk_without_room_is_told(spec, kaggle, tmp_path):
  details = dataclasses.replace(spec.details, full_mb=440e9)
  large = dataclasses.replace(spec, details=details)
  assert lib.prepare_task(large, tmp_path / 'data').spec.variant == 'standin'
  with pytest.raises(
    ValueError, match='440,000,000,000 MB, and .* free; give an'
  ):
    lib.prepare_task(large, tmp_path / 'data', DataSource('mlebench', kaggle))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'answers': 'request_id,x\na,1\n'}, 'no column split'),
    (
      {'answers': published.ANSWERS.replace('private', 'valid')},
      'no row of split .private.',
    ),
    ({'answers': published.ANSWERS.replace('request_id', 'id')}, 'request_id'),
    ({'answers': 'request_id,split\na,valid\nb,private\n'}, 'no column of req'),
    (
      {
        'metric': 'rmse',
        'higher_is_better': False,
        'id': 'row',
        'targets': ['x', 'y'],
        'answers': 'row,x,split\n1,2,valid\n2,3,private\n',
      },
      'no column of y, which rmse compares',
    ),
    ({'answers': 'a,"b'}, 'not a readable table'),
    ({'sample_name': 'other.csv'}, 'no public/sample_submission.csv'),
    (
      {
        'sample_name': 'other.csv',
        'submission': {'path': 'submission.csv', 'sample': 'mine.csv'},
      },
      'no public/mine.csv',
    ),
  ],
)
def test_what_prepare_left_out_is_named(tmp_path, options, message):
  published.write(tmp_path / 'tasks', **options)
  spec = lib.load_task('pizza', tmp_path / 'tasks')
  with pytest.raises(ValueError, match=f'task pizza: .*{message}'):
    lib.prepare_task(spec, tmp_path / 'data')
  assert list((tmp_path / 'data/pizza').iterdir()) == []


@pytest.mark.parametrize(
  'name', ['sampleSubmission.csv', 'sample_submission_null.csv']
)
def test_other_names_of_a_sample_are_found(tmp_path, name):
  task = published.prepared(tmp_path, sample_name=name)
  assert task_data.sample_file(task.spec, task.public_dir).name == name


def test_answers_may_be_arrays(tmp_path):
  truth, sample = io.BytesIO(), io.BytesIO()
  pointers = np.zeros((4, 3, 3), int)
  np.savez(truth, pi=pointers, split=np.array(['valid', 'private'] * 2))
  np.save(sample, pointers)
  task = published.prepared(
    tmp_path,
    metric='CLRS',
    submission={'path': 'submission.npy'},
    answers=truth.getvalue(),
    sample=sample.getvalue(),
    sample_name='sample_submission.npy',
  )
  assert (
    task_data.answers_file(task.spec, task.private_dir).name == 'answers.npz'
  )


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      ('full', None),
      "'full' is unknown; choose one of standin, packages, mlebench, raw",
    ),
    (('raw', None), "'raw' needs a folder"),
    (('standin', '/data'), "'standin' has no folder"),
  ],
)
def test_a_source_names_its_choices(options, message):
  with pytest.raises(ValueError, match=message):
    DataSource(*options)
