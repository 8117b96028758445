"""What scripts/prepare.py and eval.py share, and that bundled data is as it was."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import pathlib
import zipfile

import numpy as np
import pandas as pd
import pytest

from jaxagent.envs import tasks as task_lib
from jaxagent.envs.specs import task_sources
from jaxagent.tasks import essays, kit, language, pictures, scores, sounds
from tests.subset import fast

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / 'tests/golden/bundled_tasks.json').read_text())


def digests(folder):
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob('*'))
    if path.is_file() and path.name != 'done'
  }


# Without data of scikit-learn, and one with, first.
KINDS = sorted(GOLDEN, key=lambda name: not name.startswith('unicode'))


@pytest.mark.parametrize('name', fast(KINDS, first=3))
def test_data_of_a_bundled_task_is_the_same_to_the_byte(
  name, tasks_dir, tmp_path
):
  prepared = task_lib.prepare_task(
    task_lib.load_task(name, tasks_dir), tmp_path
  )
  assert digests(prepared.public_dir.parent) == GOLDEN[name]


def table(**columns):
  return pd.DataFrame(columns)


def test_metrics_of_the_bundled_tasks_are_what_a_hand_computes():
  truth = table(y=[1, 0])
  prob = table(p_0=[0.5, 1.0], p_1=[1.5, 0.0])  # the first row sums to 2
  assert scores.log_loss('y')(prob, truth) == pytest.approx(
    -np.log(0.75) / 2, abs=1e-12
  )
  values, wrong = table(y=[1.0, 2.0]), table(y=[4.0, -2.0])
  assert scores.rmse('y')(wrong, values) == pytest.approx(np.sqrt(12.5))
  assert scores.mae('y')(wrong, values) == 3.5
  assert scores.accuracy('y')(table(y=['a', 'b']), table(y=['a', 'c'])) == 0.5
  ranks = table(y=[0.1, 0.4, 0.3, 0.9])
  assert scores.roc_auc('y')(ranks, table(y=[0, 0, 1, 1])) == 0.75
  labels = table(y=['a', 'a', 'b', 'c'])
  guessed = table(y=['a', 'b', 'b', 'b'])  # F1: 2/3, 1/2, 0
  assert scores.f1_macro('y')(guessed, labels) == pytest.approx(7 / 18)


def test_entry_point_scores_the_rows_of_one_half_by_id(tmp_path):
  table(id=[3, 1, 2], y=[30.0, 10.0, 0.0]).to_csv(
    tmp_path / 'submission.csv', index=False
  )
  answers = tmp_path / 'answers.csv'
  table(
    id=[1, 2, 3], y=[10, 20, 31], split=['valid', 'private', 'valid']
  ).to_csv(answers, index=False)
  get_score = scores.entry_point(scores.mae('y'))
  assert get_score(tmp_path, answers) == 0.5
  assert get_score(tmp_path, answers, 'private') == 20


def test_a_group_is_whole_and_in_the_same_half_beside_other_groups():
  names = [f'patient {k % 40}' for k in range(200)]
  split = kit.halves(names)
  by_group = pd.Series(split).groupby(names).nunique()
  assert (by_group == 1).all() and set(split) == {'valid', 'private'}
  order = np.random.RandomState(0).permutation(200)
  assert list(kit.halves([names[k] for k in order])) == list(split[order])


def test_both_halves_have_every_class():
  rng = np.random.RandomState(0)
  for seed in range(20):
    classes = np.repeat(['a', 'b', 'rare'], [60, 30, 2])[rng.permutation(92)]
    split = kit.halves([f'{seed}-{k}' for k in range(92)], classes)
    for half in kit.SPLITS:
      assert set(classes[split == half]) == {'a', 'b', 'rare'}
      assert (split == half).mean() >= 0.4


def test_a_class_in_one_group_alone_is_refused():
  with pytest.raises(ValueError, match='each class needs rows in two groups'):
    kit.halves(list('abcdefgh'), list('xxxxxxxy'))


def test_opaque_ids_are_different_and_of_one_length():
  ids = kit.opaque_ids(np.random.RandomState(0), 250, 2)  # of 256
  assert len(set(ids)) == 250 and {len(i) for i in ids} == {2}
  with pytest.raises(ValueError, match='300 different ids.*256'):
    kit.opaque_ids(np.random.RandomState(0), 300, 2)


def test_hold_out_takes_the_rows_of_scikit_learn():
  from sklearn.model_selection import train_test_split

  frame = table(id=range(57), y=range(57))
  train, test = kit.hold_out(frame, 0.1)
  want = train_test_split(frame, test_size=0.1, random_state=0)
  assert [list(train['id']), list(test['id'])] == [list(w['id']) for w in want]
  first, last = kit.last_rows(frame, 0.2)
  assert list(first['id']) == list(range(45))
  assert list(last['id']) == list(range(45, 57))


def test_cells_of_a_text_table_are_written_as_they_were_read(tmp_path):
  text = 'id,a,b\n0300,NA,1.10\n0301,"x, ""y""\nz",\n'
  path = tmp_path / 'in.csv'
  path.write_text(text)
  kit.write(
    tmp_path / 'public',
    tmp_path / 'private',
    kit.Parts({'in.csv': kit.texts(path)}, table(id=range(40), y=range(40))),
  )
  assert (tmp_path / 'public/in.csv').read_text() == text
  answers = pd.read_csv(tmp_path / 'private/answers.csv')
  assert list(answers.columns) == ['id', 'y', 'split']


def test_an_original_is_found_plain_or_in_a_zip(tmp_path):
  with zipfile.ZipFile(tmp_path / 'all.zip', 'w') as archive:
    archive.writestr('folder/train.csv', 'zipped')
  assert kit.original(tmp_path, 'train.csv').read() == b'zipped'
  (tmp_path / 'train.csv').write_text('plain')
  assert kit.original(tmp_path, 'train.csv').read() == b'plain'
  with pytest.raises(kit.DataMissing, match='holds no test.csv.*download'):
    kit.original(tmp_path, 'test.csv')


@pytest.mark.parametrize(
  ('name', 'data', 'message'),
  [
    (
      'train.csv',
      b'version https://git-lfs.github.com/spec/v1',
      'git lfs pull',
    ),
    ('half.zip', b'PK\x03\x04 cut off', 'no whole zip'),
  ],
)
def test_a_pointer_or_half_a_download_is_told(tmp_path, name, data, message):
  (tmp_path / name).write_bytes(data)
  with pytest.raises(kit.DataMissing, match=message):
    kit.original(tmp_path, 'train.csv')


def test_a_class_that_is_none_is_named():
  with pytest.raises(ValueError, match="'c' is none of the classes"):
    kit.one_hot(['a', 'c'], ['a', 'b'])


def test_prepared_data_depends_on_the_shared_modules_that_a_script_imports(
  tmp_path,
):
  script = tmp_path / 'prepare.py'
  script.write_text(
    'import numpy\nfrom jaxagent.tasks import kit\n'
    'def f():\n  from jaxagent.tasks.pictures import luminance\n'
  )
  names = [path.name for path in task_sources.files_behind(script)]
  assert names == ['prepare.py', 'kit.py', 'pictures.py']
  script.write_text('def f(:\n')
  with pytest.raises(ValueError, match='prepare.py is no Python text'):
    task_sources.files_behind(script)


def test_every_bundled_eval_is_one_of_the_shared_metrics(tasks_dir):
  for name in GOLDEN:
    path = tasks_dir / name / 'scripts/eval.py'
    spec = importlib.util.spec_from_file_location('one', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.score.__module__ == 'jaxagent.tasks.scores', name


def test_a_folder_of_originals_is_unpacked_without_its_neighbours(tmp_path):
  with zipfile.ZipFile(tmp_path / 'all.zip', 'w') as archive:
    archive.writestr('all/train/1.txt', 'one')
    archive.writestr('all/pretrain/2.txt', 'two')
  found = kit.unpacked(tmp_path, 'train')
  assert [p.name for p in found.iterdir()] == ['1.txt']
  assert not list(found.parent.rglob('2.txt'))
  with pytest.raises(kit.DataMissing, match='no folder images'):
    kit.unpacked(tmp_path, 'images')


def test_rare_classes_are_promised_to_no_half():
  classes = kit.frequent(['a'] * 30 + ['b'] * 30 + ['once'])
  assert set(classes) == {'a', 'b'} and len(classes) == 61
  assert set(kit.halves(range(61), classes)) == {'valid', 'private'}


def test_names_alone_do_not_tell_the_halves():
  names = range(200)
  one, two = (kit.halves(names, secret=secret) for secret in ('a', 'b'))
  assert 60 < (one != two).sum() < 140


def test_runs_of_a_mask_count_down_the_columns_from_one():
  mask = np.zeros((3, 4), dtype=bool)
  mask[1:, 0] = mask[0, 1] = mask[2, 3] = True
  assert pictures.run_lengths(mask) == '2 3 12 1'
  assert pictures.run_lengths(mask & False) == ''
  assert pictures.run_lengths(mask | True) == '1 12'


def test_a_disc_is_round_and_a_spike_reaches_where_it_points():
  disc = pictures.disc(21, 10.0, 10.0, 5.0)
  assert disc[10, 5:16].all() and not disc[10, 4] and not disc[10, 16]
  spike = np.full(8, 3.0)
  spike[2] = 9.0  # a quarter turn: down the rows
  drawn = pictures.disc(21, 10.0, 10.0, spike)
  assert drawn[19, 10] and not drawn[1, 10] and not drawn[10, 19]


def test_texts_are_the_same_for_a_seed_and_fill_every_slot():
  def text(seed):
    rng = np.random.RandomState(seed)
    words = language.fill(rng, '{person} {acted} the {plain} {thing}')
    return words + language.coined(rng, ('la', 'mi'), 2, 3)

  assert text(0) == text(0) != text(1)
  assert '{' not in text(0)
  with pytest.raises(KeyError):
    language.fill(np.random.RandomState(0), '{unknown}')


def test_a_misspelt_word_differs_in_few_letters_and_short_words_stay():
  rng = np.random.RandomState(0)
  for word in ('lantern', 'umbrella', 'gate') * 20:
    assert abs(len(language.misspelt(rng, word)) - len(word)) <= 1
    assert language.misspelt(rng, word)[0] == word[0]
  assert language.misspelt(rng, 'the') == 'the'


def test_better_essays_are_longer_and_no_single_trait_tells_the_quality():
  rng = np.random.RandomState(0)
  quality = rng.normal(0, 1, 300)
  words = [len(essays.essay(rng, q).split()) for q in quality]
  assert 0.5 < np.corrcoef(quality, words)[0, 1] < 0.95


def test_a_recording_is_read_as_it_was_written():
  from scipy.io import wavfile

  rate, read = wavfile.read(
    io.BytesIO(sounds.wav(np.array([0, 0.5, -2]), 8000))
  )
  assert rate == 8000 and read.dtype == np.int16
  assert list(read) == [0, 16384, -32767]  # 0.5 x 32767 rounds to even


def test_a_tone_has_the_pitch_that_was_asked_for():
  sound = sounds.tone(np.full(4000, 1000.0), 8000)
  assert np.abs(np.fft.rfft(sound)).argmax() == 500  # of 2 Hz each
  assert abs(sound[0]) < 1e-9 > abs(sound[-1])


def test_dark_noise_has_less_of_high_pitches():
  rng = np.random.RandomState(0)
  shares = []
  for dark in (0, 0.95):
    values = sounds.noise(rng, 20000, dark)
    assert values.std() == pytest.approx(1)
    power = np.abs(np.fft.rfft(values)) ** 2
    shares.append(power[5000:].sum() / power.sum())
  assert abs(shares[0] - 0.5) < 0.05 and shares[1] < 0.05


def test_an_array_is_written_without_pickles():
  values = np.arange(6, dtype=np.int16).reshape(2, 3)
  read = np.load(io.BytesIO(kit.array_bytes(values)), allow_pickle=False)
  assert read.dtype == np.int16 and (read == values).all()
  with pytest.raises(ValueError, match='pickle'):
    kit.array_bytes(np.array([{}], dtype=object))


def test_answers_may_be_arrays_with_a_half_for_each_row(tmp_path):
  """The same bytes again; rows of a group are in one half."""
  values = np.arange(240).reshape(60, 4)
  groups = [k // 3 for k in range(60)]
  parts = kit.Parts({'one.txt': b'1'}, {'x': values}, groups)
  found = []
  for home in (tmp_path / 'a', tmp_path / 'b'):
    kit.write(home / 'public', home / 'private', parts)
    found.append((home / 'private/answers.npz').read_bytes())
  assert found[0] == found[1]
  with np.load(io.BytesIO(found[0]), allow_pickle=False) as read:
    assert (read['x'] == values).all()
    halves = read['split'].reshape(20, 3)
  assert (halves == halves[:, :1]).all() and set(halves.ravel()) == set(
    kit.SPLITS
  )


def test_halves_of_arrays_follow_what_they_hold_and_no_header_of_a_file(
  tmp_path,
):
  """Python 3.11.4 changed the headers of a zip, and the halves stay."""
  values = np.arange(80).reshape(20, 4)
  found = {}
  for name, array in (
    ('rows', values),
    ('columns', np.asfortranarray(values)),  # another header of the .npy
    ('others', values + 1),
    ('small', values.astype(np.int16)),
  ):
    home = tmp_path / name
    kit.write(home, home, kit.Parts({}, {'x': array}))
    with np.load(home / 'answers.npz') as read:
      found[name] = ''.join(half[0] for half in read['split'])
  assert found['rows'] == found['columns'] == 'vvvpvpvvpvpvvvppvppp'
  assert len(set(found.values())) == 3


def test_data_in_its_right_form_is_not_there_twice(tmp_path):
  given, made = tmp_path / 'given', tmp_path / 'made'
  (given / 'train/deep').mkdir(parents=True)
  (given / 'train/deep/a.bin').write_bytes(b'1')
  (given / 'train/secret.bin').write_bytes(b'2')
  (given / 'train/deep/a.bin').chmod(0o644)
  (given / 'train/secret.bin').chmod(0o600)
  (given / 'train/alias.bin').symlink_to(given / 'train/deep/a.bin')
  answers = pd.DataFrame({'id': range(8), 'y': [0, 1] * 4})
  parts = kit.Parts(kit.copied(given, ['train']), answers)
  kit.write(made / 'public', made / 'private', parts)
  whole = made / 'public/train/deep/a.bin'
  assert whole.samefile(given / 'train/deep/a.bin')
  # What jobs could not read, and what points elsewhere, is a file of its own.
  for name in ('secret.bin', 'alias.bin'):
    file = made / 'public/train' / name
    assert not file.is_symlink() and file.stat().st_nlink == 1
  assert (made / 'public/train/secret.bin').read_bytes() == b'2'
  whole.unlink()
  assert (given / 'train/deep/a.bin').read_bytes() == b'1'
