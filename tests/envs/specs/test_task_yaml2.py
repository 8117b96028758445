"""`task.yaml`, version 2: what is read, and what is refused."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from jaxagent.envs import tasks as lib
from jaxagent.envs.specs import task_yaml
from jaxagent.graders import report
from jaxagent.types import Scale
from tests.envs import program_task
from tests.tasks import published

_TASKS = pathlib.Path(__file__).parents[3] / 'tasks'


def _load(tmp_path, **changes):
  published.write(tmp_path, **changes)
  return lib.load_task('pizza', tmp_path)


def test_every_key_of_a_folder_is_read(tmp_path):
  spec = _load(
    tmp_path,
    id='request_id',
    targets=['requester_received_pizza'],
    submission={'path': 'out/s.jsonl', 'format': 'jsonl', 'max_mb': 3},
    limits={'hours': 2, 'gigabytes': 4, 'gpus': 2, 'disk_mb': 99},
    environment={'packages': ['torch'], 'interpreter': '/usr/bin/python3'},
    board={
      'best': 1.0,
      'median': 0.6,
      'worst': 0.47,
      'source': 'mle-bench',
      'faults': ['1.0 is a leak'],
    },
  )
  found = spec.details
  assert spec.version == 2 and spec.variant == 'standin'
  assert found.papers == {'000': 'train', '003': 'both'}
  assert (found.source.kind, found.source.id) == (
    'mlebench',
    'random-acts-of-pizza',
  )
  assert (found.id_column, found.targets) == (
    'request_id',
    ('requester_received_pizza',),
  )
  assert (spec.submission, found.submission_format) == ('out/s.jsonl', 'jsonl')
  assert (found.submission_mb, found.gpus) == (3, 2)
  assert (spec.limits.timeout_s, spec.limits.memory_mb) == (7200, 4096)
  assert spec.limits.disk_mb == 99
  assert found.environment.packages == ('torch',)
  assert found.board.faults == ('1.0 is a leak',)
  assert (spec.m_init, spec.m_best, spec.m_best_private) == (0.5, 0.9, 0.9)
  assert found.variants['standin'] == Scale(0.5, 0.9, 0.5, 0.9, 'the reference')


def test_a_task_without_scores_and_options_is_read(tmp_path):
  spec = _load(tmp_path, variants=None, papers=None, data=None)
  assert not spec.has_scale and spec.details.papers == {}
  assert spec.submission == 'submission.csv'


@pytest.mark.parametrize('version', [3, 0, '2', 2.5, True, None])
def test_another_version_is_refused_and_the_remedy_named(tmp_path, version):
  root = published.write(tmp_path)
  text = (root / 'task.yaml').read_text()
  shown = 'null' if version is None else repr(version).lower()
  (root / 'task.yaml').write_text(
    text.replace('version: 2', f'version: {shown}')
  )
  with pytest.raises(ValueError, match='update jaxagent, or write the file in'):
    lib.load_task('pizza', tmp_path)


def test_version_1_may_be_named(tmp_path):
  shutil.copytree(_TASKS / 'wine', tmp_path / 'wine')
  path = tmp_path / 'wine/task.yaml'
  before = lib.load_task('wine', tmp_path)
  path.write_text('version: 1\n' + path.read_text())
  assert lib.load_task('wine', tmp_path) == before and before.version == 1


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'source': None}, 'missing source; write it, as docs'),
    ({'source': {'kind': 'web', 'id': 'x'}}, "'web'.*mlebench, mlagentbench"),
    ({'source': {'kind': 'made'}}, 'source.id is missing'),
    ({'source': 'kaggle'}, 'must be a mapping with kind'),
    ({'paper': {}}, "key='paper' is unknown"),
    ({'papers': {'000': 'test'}}, 'train, evaluate, both'),
    ({'papers': {0: 'train'}}, "write '000' in quotes"),
    ({'papers': ['000']}, 'must be a mapping'),
    ({'modality': 'smell'}, 'graph, audio, video, pairs, code'),
    ({'kind': 'guess'}, 'ranking, span, segmentation'),
    ({'metric': 'pizza'}, 'choose one of accuracy, .*random-acts-of-pizza'),
    ({'metric': 3}, 'must be a name'),
    ({'higher_is_better': False}, 'better when higher'),
    ({'id': 'id'}, "reads 'request_id'"),
    ({'targets': ['pizza']}, r"reads \('requester_received_pizza',\)"),
    ({'targets': ['a', 'a']}, 'names one twice'),
    ({'metric': 'rmse', 'higher_is_better': False}, 'needs the names of its'),
    (
      {'metric': 'accuracy', 'id': 'a', 'targets': ['a']},
      'one or more that are not the id',
    ),
    ({'submission': {'path': '/s.csv'}}, 'inside the workspace'),
    ({'submission': {'path': '../s.csv'}}, 'inside the workspace'),
    ({'submission': {'path': 's.txt'}}, 'csv, jsonl, npy, npz'),
    ({'submission': {'format': 'jsonl'}}, 'does not end in .jsonl'),
    ({'submission': {'path': 's.npy'}}, 'grades csv or jsonl'),
    ({'submission': {'max_mb': 0}}, 'greater than zero'),
    ({'metric': 'CLRS'}, 'grades npy or npz'),
    ({'limits': {'gpus': -1}}, '0 for none'),
    ({'limits': {'gpus': 1.5}}, 'whole number'),
    ({'limits': {'gpus': 1000}}, 'more than 64'),
    ({'limits': {'pids': 1.5}}, 'limits.pids=1.5 must be a whole number'),
    ({'limits': {'memory_mb': 512.0}}, 'must be a whole number'),
    ({'limits': {'hours': 1, 'timeout_s': 9}}, 'say the same'),
    ({'limits': {'gigabytes': -1}}, 'zero or more|greater than zero'),
    ({'limits': {'seconds': 1}}, 'timeout_s'),
    ({'limits': 5}, 'must be a mapping'),
    ({'environment': {'packages': 'torch'}}, 'list of names'),
    ({'environment': {'python': '3'}}, 'packages, image, interpreter'),
    ({'data': {'full_mb': -5}}, 'zero or more'),
    ({'variants': {'full': {'m_init': 1}}}, "'full'.*standin"),
    ({'variants': {'standin': {'m_init': 'x'}}}, 'number or null'),
    (
      {'variants': {'standin': {'m_init': 0.9, 'm_best': 0.1}}},
      'is worse than',
    ),
    ({'board': {'best': 0.1, 'worst': 0.9}}, 'no order'),
    ({'board': {'worst': -999999}}, 'board.faults'),
    ({'m_init': 0.5}, "'m_init' is unknown"),
  ],
)
def test_a_wrong_value_names_key_value_and_choices(tmp_path, changes, message):
  with pytest.raises(ValueError, match=f'(?s){message}'):
    _load(tmp_path, **changes)


def test_an_eval_beside_a_grader_is_refused(tmp_path):
  root = published.write(tmp_path)
  (root / 'scripts/eval.py').write_text('def score(a, b):\n  return 1.0\n')
  with pytest.raises(ValueError, match='scripts/eval.py is another; remove it'):
    lib.load_task('pizza', tmp_path)


def test_the_metrics_of_both_versions_have_one_direction():
  from jaxagent import graders

  for name, higher in task_yaml.METRICS.items():
    scope = graders.Scope(id_column='i', targets=('t',))
    assert graders.grader(name, scope).higher_is_better is higher


@pytest.mark.parametrize(
  ('score', 'is_mark'),
  [
    (999999, True),
    (-9999, True),
    (float('inf'), True),
    (999, False),
    (0.9999, False),
    (99999.5, False),
    (16626, False),
  ],
)
def test_a_sentinel_of_a_board_is_known(score, is_mark):
  assert (report.sentinels([0.5, score]) == [score]) is is_mark


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'variants': {'standin': {'m_init': 10**400}}}, 'm_init=.*finite'),
    ({'board': {'best': -(10**400)}}, 'board.best=.*finite'),
    ({'data': {'full_mb': 10**400}}, 'full_mb=.*finite'),
    ({'submission': {'max_mb': 1e308}}, 'max_mb=1e.308 is more than'),
    ({'limits': {'gigabytes': 1e308}}, 'gigabytes=1e.308 is more than'),
  ],
)
def test_a_number_beyond_all_measure_is_refused(tmp_path, changes, message):
  with pytest.raises(ValueError, match=message):
    _load(tmp_path, **changes)


@pytest.mark.parametrize(
  'text', ['version: 2\nmetric: [', 'version: 2099-99-99', 'a: ' + '[' * 5000]
)
def test_a_task_yaml_that_cannot_be_read_is_named(tmp_path, text):
  """And no script asked for that only version 1 needs."""
  root = published.write(tmp_path)
  (root / 'task.yaml').write_text(text)
  with pytest.raises(ValueError, match='task.yaml: not readable as YAML') as e:
    lib.load_task('pizza', tmp_path)
  assert '\n' not in str(e.value)


def test_a_program_is_read_where_kind_metric_and_format_say_so(tmp_path):
  program_task.write(tmp_path)
  spec = lib.load_task('sums', tmp_path)
  assert spec.details.is_program and spec.submission == 'submission.py'
  assert not _load(tmp_path / 'other').details.is_program


@pytest.mark.parametrize(
  ('changes', 'reason'),
  [
    ({'kind': 'regression'}, 'write all three or none'),
    ({'metric': 'rmse'}, 'write all three or none'),
    ({'submission': {'path': 'a.npy', 'format': 'npy'}}, 'all three or none'),
    ({'limits': {'gpus': 1}}, 'measured on a CPU alone'),
    ({'targets': ['x']}, 'a program has no columns'),
    ({'higher_is_better': True, 'variants': None}, 'higher_is_better'),
  ],
)
def test_what_is_not_built_for_programs_is_refused(tmp_path, changes, reason):
  program_task.write(tmp_path, **changes)
  with pytest.raises(ValueError, match=reason):
    lib.load_task('sums', tmp_path)


def test_a_program_has_no_grader_of_its_own(tmp_path):
  root = program_task.write(tmp_path)
  (root / 'scripts/eval.py').write_text('def score(s, a):\n  return 1.0\n')
  with pytest.raises(ValueError, match='another grader; remove it'):
    lib.load_task('sums', tmp_path)


def test_a_program_without_a_reference_to_measure_beside_is_refused(tmp_path):
  root = program_task.write(tmp_path)
  (root / 'solution/reference.py').unlink()
  with pytest.raises(ValueError, match='reference.py, which is missing'):
    lib.load_task('sums', tmp_path)


@pytest.mark.parametrize(
  'name', ['research_problem.txt', 'read_only_files.txt']
)
def test_a_text_that_is_none_is_named(tmp_path, name):
  path = published.write(tmp_path) / 'scripts' / name
  path.write_bytes(b'caf\xe9\n')
  with pytest.raises(ValueError, match=f'scripts/{name} is no UTF-8 text'):
    lib.load_task('pizza', tmp_path)
