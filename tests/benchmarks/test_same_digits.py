"""benchmarks.same_digits sees each difference and nothing but differences."""

import json
import pathlib

import pytest

from benchmarks import same_digits

_TRACE = {
  'prompt_id': '0/0/0',
  'reward': 0.5,
  'exec_s': 0.1,
  'timestamp': 1.0,
  'timeout_rate': 0.25,
  'hash': 'a',
  'args': {'names': ['x', 'y']},
}
_METRICS = {'actor/pg_loss': 0.25, 'timing_s/gen': 1.0, 'perf/throughput': 2.0}


def _work(root: pathlib.Path, trace: dict, metrics=_METRICS) -> pathlib.Path:
  files = {
    'collect/trajectories.jsonl': [{'task': 'wine', 'index': 0}],
    'rl/traces/update_000000.jsonl': [trace],
    'logs/metrics.jsonl': [metrics],
    'logs/executions.jsonl': [trace],  # not compared: in the order of ends
  }
  for name, records in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(r) + '\n' for r in records))
  (root / 'summary.json').write_text(json.dumps({'wall_s': 1, 'tasks': 3}))
  return root


@pytest.fixture
def before(tmp_path):
  return _work(tmp_path / 'before', _TRACE)


def test_equal_runs_have_no_difference_whatever_their_seconds(before, tmp_path):
  later = {**_TRACE, 'exec_s': 9.0, 'timestamp': 2.0, 'hash': 'b'}
  metrics = {**_METRICS, 'timing_s/gen': 5.0, 'perf/throughput': 1.0}
  found = same_digits.compare(before, _work(tmp_path / 'after', later, metrics))
  assert found.differences == []
  # task and index, five of the trace, one metric, one of the summary
  assert (found.values, found.rewards) == (9, 1)


@pytest.mark.parametrize(
  ('change', 'line'),
  [
    ({'reward': 0.5000001}, r'.reward: 0.5 and 0.5000001'),
    ({'reward': None}, r'.reward: 0.5 and null'),
    ({'reward': '0.5'}, '.reward: 0.5 and "0.5"'),
    ({'args': {'names': ['x', 'z']}}, '.args.names[1]: "y" and "z"'),
    ({'args': {}}, '.args.names: missing'),
    ({'timeout_rate': 0.5}, '.timeout_rate: 0.25 and 0.5'),
  ],
)
def test_a_changed_or_missing_value_is_named_by_its_path(
  before, tmp_path, change, line
):
  after = _work(tmp_path / 'after', {**_TRACE, **change})
  found = same_digits.compare(before, after)
  assert found.differences == [f'rl/traces/update_000000.jsonl[0]{line}']


def test_places_of_a_checkout_in_a_traceback_are_no_differences(
  before, tmp_path
):
  seen = 'File "{}/jaxagent/sandbox/_runner.py", line {}, in compiled\n'
  seen += '{}/.venv/lib/site-packages/x.py:3: Warning: {}'
  _work(before, {**_TRACE, 'seen': seen.format('/host/a', 52, '/a', 'old')})
  for word, found in (('old', []), ('new', ['seen'])):
    trace = {**_TRACE, 'seen': seen.format('/host/b', 60, '/b/c', word)}
    after = _work(tmp_path / 'after', trace)
    lines = same_digits.compare(before, after).differences
    assert [line.split(':')[0].split('.')[-1] for line in lines] == found


def test_lengths_and_missing_files_are_differences(before, tmp_path):
  after = _work(tmp_path / 'after', {**_TRACE, 'args': {'names': ['x']}})
  (after / 'logs' / 'metrics.jsonl').unlink()
  assert same_digits.compare(before, after).differences == [
    'rl/traces/update_000000.jsonl[0].args.names: 2 and 1 items',
    'logs/metrics.jsonl: missing',
  ]


def test_added_fields_and_files_are_no_differences(before, tmp_path):
  after = _work(tmp_path / 'after', {**_TRACE, 'reason': 'none'})
  (after / 'eval').mkdir()
  (after / 'eval' / 'rl.json').write_text('[]')
  found = same_digits.compare(before, after)
  assert (found.differences, found.added) == ([], 1)


def test_expert_steps_are_compared_in_the_order_of_their_numbers(
  before, tmp_path
):
  for folder, order in ((before, (0, 1)), (tmp_path / 'after', (1, 0))):
    path = _work(folder, _TRACE) / 'collect' / 'trajectories.jsonl'
    path.write_text(
      ''.join(json.dumps({'task': 'wine', 'index': i}) + '\n' for i in order)
    )
  assert same_digits.compare(before, tmp_path / 'after').differences == []


def test_a_work_directory_without_traces_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match='holds no rl/traces'):
    same_digits.compare(tmp_path, tmp_path)


def test_an_option_goes_by_the_name_that_the_checkout_knows():
  renamed = {'rl.rest': 'rl.stragglers'}
  for name in ('rl.rest', 'rl.stragglers'):
    for wanted in ('rl.rest', 'rl.stragglers'):
      assert same_digits.options({wanted: 'wait'}, {name}, renamed) == [
        f'--config.{name}=wait'
      ]
  with pytest.raises(ValueError, match='config.rl.rest is not in the config'):
    same_digits.options({'rl.rest': 'wait'}, {'rl.updates'}, {})


@pytest.mark.parametrize('recipe', same_digits.RECIPES)
def test_every_option_is_in_this_checkouts_configs(recipe):
  config, small = same_digits.RECIPES[recipe]
  keys = same_digits.Checkout(pathlib.Path(__file__).parents[2]).keys(config)
  assert same_digits.options({**same_digits.SHARED, **small}, keys, {})


def test_only_a_checkout_that_knows_a_faster_path_is_told_to_leave_it(tmp_path):
  asked = []

  class Checkout:
    root = tmp_path

    def __init__(self, *extra: str):
      small = same_digits.RECIPES['stepwise'][1]
      self.known = {'seed', *same_digits.SHARED, *small, *extra}

    def keys(self, config):
      return self.known

    def revision(self):
      return ''

    def run(self, *words, **more):
      asked.append([w for w in words if 'attention' in w or 'row_layout' in w])

  for checkout in (Checkout(), Checkout(*same_digits.OLDER)):
    same_digits.run(checkout, 'stepwise', tmp_path / 'works', {}, 0)
  assert asked == [
    [],
    ['--config.model.attention=mapped', '--config.rl.row_layout=packed'],
  ]
