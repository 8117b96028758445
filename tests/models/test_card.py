"""The model card of an export, and where it is pushed to."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jaxagent.models import card, push
from tests.models.conftest import make_config

HASH = 'ab' * 32
SECTION = {
  measure: {'mean': 0.5, 'low': 0.25, 'high': 0.75, 'n': 7}
  for measure, _ in card.MEASURES
}
EMPTY = {m: {'mean': None, 'low': None, 'high': None, 'n': 0} for m in SECTION}
OPTIONS = {
  'seed': 5,
  'rollout': {'temperature': 0.7, 'prompt_style': 'compact'},
  'tasks': {
    'heldin': ['digits', 'name:wi*'],
    'heldout': ['iris'],
    'data_dir': 'd',
  },
  'model': {'path': '/home/someone/qwen'},
  'expert': {'base_url': 'http://10.0.0.1:8000/v1', 'model': 'org/name'},
  'rollout_note': '~/secret',
}
SUMMARY = {
  'rl': {'heldin': SECTION, 'heldout': EMPTY},
  'isolation_tier': 'T3',
  'stand_ins': ['scripted_expert'],
  'untrusted': {'wine': 'its labels | are public'},
  'evaluation': {'k': 8, 'trajectories_per_task': 16},
  'versions': {'python': '3.11.7', 'jax': '0.10.2'},
  'config_sha': '0123456789abcdef',
}


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
  """The files of a run of three updates that a card reads."""
  work = tmp_path / 'work'
  traces = work / 'rl' / 'traces'
  traces.mkdir(parents=True)
  (work / 'eval').mkdir()
  (work / 'config.json').write_text(json.dumps(OPTIONS))
  (work / 'summary.json').write_text(json.dumps(SUMMARY))
  (work / 'eval' / 'rl.updates').write_text('3')
  records = [
    {'task': 'wine', 'split': 'heldin', 'steps': [{'tier': 'T2'}]},
    {'task': 'digits', 'split': 'heldin', 'steps': [{'tier': None}]},
  ]
  (work / 'eval' / 'rl.json').write_text(json.dumps(records))
  for update in range(3):
    lines = [{'hash': f'{update}'}, {'hash': HASH if update == 2 else 'other'}]
    text = '\n'.join(map(json.dumps, lines))
    (traces / f'update_{update:06d}.jsonl').write_text(text)
  return work


def _card(
  work: pathlib.Path, checkpoint='rl/checkpoints/step_00000003', **options
):
  return card.of_run(work, make_config(), work / checkpoint, **options)


def test_a_card_has_tasks_tiers_seed_intervals_versions_and_the_audit(run):
  text = _card(run)
  for part in (
    '- held-in: digits, wine\n',
    '- held-out: iris (as configured; not evaluated)',
    '| after RL | held-in | 0.500 [0.250, 0.750] (7) |',
    '| after RL | held-out | - |',
    'tier of the executions: T3, T2 (',
    'Training seed: 5;',
    'Scripts stood in for language models: scripted_expert.',
    'Rewards of wine may have been cheated: its labels \\| are public.',
    'k is 8, with 16 trajectories a task',
    'python 3.11.7, jax 0.10.2.',
    'jaxagent audit WORK_DIR',
    f'`rl/traces/update_000002.jsonl`, has the hash `{HASH}`',
    '`0123456789abcdef`',
    'checkpoint `rl/checkpoints/step_00000003`',
  ):
    assert part in text, part


def test_the_head_of_a_card_is_yaml_that_the_hub_reads(run):
  from huggingface_hub import ModelCard

  read = ModelCard(_card(run)).data
  assert read.library_name == 'transformers'
  assert read.tags == ['jaxagent', 'reinforcement-learning']
  lora = make_config().replace(lora_rank=4)
  text = card.of_run(
    run, lora, run / 'rl' / 'checkpoints' / 'step_1', adapters=True
  )
  assert ModelCard(text).data.library_name == 'peft'
  assert '# Adapters of rank 4 for a qwen2 model' in text


def test_no_place_of_the_machine_is_in_a_card(run):
  text = _card(run)
  for place in ('someone', '10.0.0.1', 'secret', '"d"', str(run)):
    assert place not in text
  assert '"model": "org/name"' in text


def test_weights_that_were_not_evaluated_are_named_as_such(run):
  assert 'not of these weights' not in _card(run)
  text = _card(run, 'rl/checkpoints/step_00000001')
  assert 'they have seen 1 updates, the policy that was evaluated 3.' in text
  assert '`rl/traces/update_000000.jsonl`, has the hash `other`' in text


def test_weights_of_sft_have_no_trace_of_rl(run):
  text = _card(run, 'sft/checkpoints/step_00000003')
  assert 'chained by SHA-256' not in text and 'not of these weights' not in text


def test_a_card_says_what_the_run_lacks(run):
  shutil.rmtree(run)
  run.mkdir()
  text = _card(run)
  assert 'has no `summary.json`' in text and 'has no `config.json`' in text
  assert 'tier of the executions: unknown' in text
  assert '- held-in: unknown (as configured; not evaluated)' in text


def test_a_damaged_file_of_the_run_is_as_good_as_none(run):
  for file in (
    run / 'summary.json',
    run / 'config.json',
    run / 'eval' / 'rl.json',
  ):
    file.write_text('{"a": ')
  for file in (run / 'rl' / 'traces').iterdir():
    file.write_bytes(b'\xff\n')
  text = _card(run)
  assert 'has no `summary.json`' in text and 'SHA-256' not in text


_JSON = some.recursive(
  some.none() | some.booleans() | some.floats() | some.text(),
  lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
  max_leaves=8,
)


@given(_JSON, _JSON)
def test_no_content_of_a_run_raises_out_of_a_card(
  tmp_path_factory, first, second
):
  work = tmp_path_factory.mktemp('run')
  (work / 'eval').mkdir()
  wrapped = {k: first for k in SUMMARY} | {'rl': {'heldin': second}}
  (work / 'summary.json').write_text(json.dumps(wrapped))
  options = {'tasks': first, 'seed': second, 'rollout': first}
  (work / 'config.json').write_text(json.dumps(options))
  (work / 'eval' / 'rl.json').write_text(json.dumps([first, {'steps': second}]))
  lines = _card(work).splitlines()
  assert lines.count('```') == 2  # no text of the run opens or closes a block


def test_a_card_of_weights_without_a_run_says_that_none_trained_them():
  assert 'not trained by it' in card.of_import(make_config())


class _Hub:
  """What `push` uses of huggingface_hub.HfApi; keeps the calls."""

  def __init__(self, error: Exception | None = None):
    self.calls: list[tuple] = []
    self._error = error

  def create_repo(self, name, *, private, exist_ok):
    if self._error:
      raise self._error
    self.calls.append((name, private, exist_ok))

  def upload_folder(self, *, repo_id, folder_path, commit_message):
    self.calls.append((repo_id, folder_path))
    return f'https://hub/{repo_id}'


@pytest.fixture
def token(monkeypatch):
  monkeypatch.setattr('huggingface_hub.get_token', lambda: 'hf_x')
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', False)


def test_a_push_makes_a_private_repository_unless_it_is_to_be_public(tmp_path):
  for public in (False, True):
    hub = _Hub()
    made = push.push(tmp_path, 'me/policy', public=public, api=hub)
    assert made == 'https://hub/me/policy'
    assert hub.calls == [
      ('me/policy', not public, True),
      ('me/policy', tmp_path),
    ]


def test_what_the_hub_refuses_is_one_line_that_says_how_to_try_again(tmp_path):
  hub = _Hub(OSError('403\nforbidden'))
  with pytest.raises(
    ValueError, match='OSError: 403 forbidden.*hf upload me/p'
  ) as e:
    push.push(tmp_path, 'me/p', api=hub)
  assert '\n' not in str(e.value)


def test_a_push_without_a_token_is_refused_by_its_name(monkeypatch, token):
  push.check('me/policy')
  monkeypatch.setattr('huggingface_hub.get_token', lambda: None)
  with pytest.raises(ValueError, match='set HF_TOKEN, or run `hf auth login`'):
    push.check('me/policy')


@pytest.mark.parametrize(
  'name', ['policy', 'a/b/c', 'me/', '/x', 'me/a--b', '']
)
def test_a_push_to_no_repository_name_is_refused(token, name):
  with pytest.raises(ValueError, match='--push='):
    push.check(name)


def test_a_push_while_offline_is_refused(monkeypatch, token):
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
  with pytest.raises(ValueError, match='HF_HUB_OFFLINE is set'):
    push.check('me/policy')
