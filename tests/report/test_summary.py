"""`summary.json`: built, checked, written atomically, read back."""

import copy
import json
import pathlib

import pytest

from jaxagent.analysis import summary
from tests.report import synthetic

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def good(tmp_path_factory):
  return synthetic.build(tmp_path_factory.mktemp('run')).summary


def test_a_summary_has_all_documented_keys(good):
  for policy in ('starter', 'sft', 'rl'):
    for split in ('heldin', 'heldout'):
      assert set(good[policy][split]) == set(summary.INTERVALS)
  for key in (
    'wall_s',
    'executions',
    'outcomes',
    'behaviour',
    'isolation_tier',
    'versions',
    'config_sha',
    'stand_ins',
    'untrusted',
  ):
    assert key in good
  assert good['executions'] == sum(good['outcomes'].values())
  assert good['versions']['python']


@pytest.mark.parametrize(
  ('path', 'value', 'message'),
  [
    ('rl', None, "rl is 'None'"),
    ('rl.heldin', None, "rl.heldin is 'None'"),
    ('rl.heldin.mean_reward.mean', float('nan'), 'finite'),
    ('rl.heldin.mean_reward.n', -1, 'a count'),
    ('rl.heldin.mean_reward.n', 0, 'nulls where n is 0'),
    ('rl.heldin.mean_reward.low', 2.0, 'low <= high'),
    ('sft.heldout.best_at_k', {'mean': 1}, 'mean, low, high, n'),
    ('executions', 3, 'the sum of the outcomes'),
    ('outcomes.ok', -1, 'a count'),
    ('outcomes', {'exploded': 1}, "'exploded' is unknown"),
    ('behaviour', None, "behaviour is 'None'"),
    ('behaviour.sft', [], r"behaviour.sft is '\[\]'"),
    ('behaviour.rl.heldout', None, "behaviour.rl.heldout is 'None'"),
    ('behaviour.train.last_quarter', {'edits': 1}, 'edit_rate, changed_rate'),
    ('behaviour.sft.heldin.edits', 1.5, 'a count'),
    ('behaviour.sft.heldin.edit_rate', 1.2, 'a share, 0 to 1'),
    ('behaviour.sft.heldin.exec_s', -1.0, '0 or more, or null'),
    ('behaviour.sft.heldin.exec_s', 'long', '0 or more, or null'),
    ('isolation_tier', 'T9', 'choose one of: T3'),
    ('wall_s.sft', -2, '0 or more'),
    ('stand_ins', 'expert', 'a list of names'),
    ('untrusted', {'wine': ''}, 'untrusted.wine'),
    ('schema', 7, 'schema'),
  ],
)
def test_check_names_the_place(good, path, value, message):
  data = copy.deepcopy(good)
  *parents, leaf = path.split('.')
  node = data
  for key in parents:
    node = node[key]
  node[leaf] = value
  with pytest.raises(ValueError, match=message):
    summary.check(data)


def test_write_and_load(tmp_path, good):
  built = summary.Summary(config_sha='ab', isolation_tier='T2')
  with pytest.raises(ValueError, match="starter is 'None'"):
    built.write(tmp_path / 'summary.json')
  assert not list(tmp_path.iterdir())  # nothing half-written
  for policy in summary.POLICIES:
    for split in summary.SPLITS:
      built.set_section(policy, split, good[policy][split])
  with pytest.raises(ValueError, match='behaviour.train.first_quarter'):
    built.write(tmp_path / 'summary.json')
  for who, parts in summary.BEHAVIOUR.items():
    for part in parts:
      built.set_behaviour(who, part, good['behaviour'][who][part])
  with pytest.raises(ValueError, match="'middle' is unknown; .*first_quarter"):
    built.set_behaviour('train', 'middle', {})
  with pytest.raises(ValueError, match='train, sft, rl'):
    built.set_behaviour('ppo', 'heldin', {})
  with pytest.raises(ValueError, match='policy .ppo. is unknown'):
    built.set_section('ppo', 'heldin', {})
  with pytest.raises(ValueError, match='evaluation is .*trajectories_per'):
    built.write(tmp_path / 'summary.json')
  built.set_evaluation(**good['evaluation'])
  built.add_outcomes({'ok': 2})
  built.add_outcomes({'ok': 1, 'oom': 1})
  path = built.write(tmp_path / 'out' / 'summary.json')
  data = summary.load(path)
  assert data['outcomes'] == {'ok': 3, 'oom': 1} and data['executions'] == 4
  assert [p.name for p in path.parent.iterdir()] == ['summary.json']
  path.write_text('{')
  with pytest.raises(ValueError, match='is not JSON.*again'):
    summary.load(path)


def test_docs_name_every_key(good):
  text = (ROOT / 'docs' / 'summary.md').read_text()
  for key in [*good, *summary.INTERVALS]:
    assert f'`{key}`' in text, key
  example = text.split('```json')[1].split('```')[0]
  assert set(json.loads(example)) == {'mean', 'low', 'high', 'n'}
  assert '`needs`' in text
